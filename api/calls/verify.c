/* SPDX-License-Identifier: MIT */
/* Calls whose token waits to be verified, and calls under way by a verified token, which ends some time. See
 * calls_internal.h.
 *
 * A signature takes up to 0.3 ms, so that a thousand new tokens at once would hold up everybody else. Their calls wait
 * in a list, of which each round of the loop verifies as many as fit into a ms (pipeline.c). One address has a share of
 * the list, so that it cannot keep others out, nor let them wait for long. Worker's thread. */
#include <assert.h>

#include "calls_internal.h"

enum { LOOK_US = 1000000 };

struct token_cache *verify_tokens(const struct request_context *context)
{
	struct calls_state *state = calls_state(context);
	if (!state->tokens && context->keys && context->keys->issuer_count > 0) {
		state->tokens = token_cache_new();
		TAILQ_INIT(&state->waiting);
		TAILQ_INIT(&state->in_use);
	}
	return state->tokens;
}

bool verify_wait(struct call *call)
{
	struct calls_state *state = calls_state(call->request->context);
	assert(call->token && call->token_list == VERIFY_NONE);
	if (state->waiting_count >= VERIFY_MAX || !peer_verify_begin(call->request->peer, VERIFY_SHARE))
		return false;
	TAILQ_INSERT_TAIL(&state->waiting, call, token_entry);
	state->waiting_count++;
	call->token_list = VERIFY_WAITS;
	return true;
}

void verify_use(struct call *call)
{
	struct calls_state *state = calls_state(call->request->context);
	assert(call->caller.token && call->token_list == VERIFY_NONE);
	TAILQ_INSERT_TAIL(&state->in_use, call, token_entry);
	call->token_list = VERIFY_IN_USE;
}

void verify_end(struct call *call)
{
	if (call->token_list == VERIFY_NONE)
		return;
	struct calls_state *state = calls_state(call->request->context);
	if (call->token_list == VERIFY_WAITS) {
		assert(state->waiting_count > 0);
		TAILQ_REMOVE(&state->waiting, call, token_entry);
		state->waiting_count--;
		peer_verify_end(call->request->peer);
	} else {
		TAILQ_REMOVE(&state->in_use, call, token_entry);
	}
	call->token_list = VERIFY_NONE;
}

bool verify_cancel(struct call *call)
{
	bool waited = call->token_list == VERIFY_WAITS;
	if (waited)
		verify_end(call);
	return waited;
}

struct call *verify_next(const struct request_context *context)
{
	struct calls_state *state = calls_state(context);
	struct call *call = state->tokens ? TAILQ_FIRST(&state->waiting) : NULL;
	if (call)
		verify_end(call);
	return call;
}

struct call *verify_next_ended(const struct request_context *context, uint64_t now_us)
{
	struct calls_state *state = calls_state(context);
	struct call *call;
	if (!state->tokens || TAILQ_EMPTY(&state->in_use) || now_us < state->look_us)
		return NULL;
	int64_t now_s = (int64_t)(clock_wall_us() / 1000000);
	TAILQ_FOREACH (call, &state->in_use, token_entry)
		if (call->caller.token->end_s <= now_s) {
			verify_end(call);
			return call;
		}
	state->look_us = now_us + LOOK_US;
	return NULL;
}

uint64_t verify_due_us(const struct request_context *context)
{
	const struct calls_state *state = calls_state(context);
	if (!state->tokens || (TAILQ_EMPTY(&state->waiting) && TAILQ_EMPTY(&state->in_use)))
		return UINT64_MAX;
	return TAILQ_EMPTY(&state->waiting) ? state->look_us : 0;
}

void verify_close(const struct request_context *context)
{
	struct calls_state *state = calls_state(context);
	assert(!state->tokens || (TAILQ_EMPTY(&state->waiting) && TAILQ_EMPTY(&state->in_use)));
	token_cache_free(state->tokens);
	state->tokens = NULL;
}
