/* SPDX-License-Identifier: MIT */
/* The authorization of a call: checks the page, the address, the caller and their rates. Whether a caller has a right
 * is decided in api/auth/access.c. Worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "calls_internal.h"

/* ---- page and address ---- */

/* False if Host is the name of another site's page. Besides loopback, only --allow-host defines our names. An address
 * in Host is not the name of a page. */
static bool authorize_host(const struct call *call)
{
	const struct options_names *allowed = &call->request->context->config->options->allow_hosts;
	const struct headers *headers = &call->request->headers;
	enum http_reach reach = call->request->reach;
	if (!headers->host || reach == HTTP_REACH_UNIX)
		return true;
	if (reach == HTTP_REACH_NETWORK && (allowed->count == 0 || origin_is_address(headers->host, headers->host_len)))
		return true;
	return origin_is_local_host(headers->host, headers->host_len, allowed);
}

static bool authorize_origin(struct call *call, const char *method)
{
	static const char unknown_host[] =
		"The header Host does not name this machine. Call it by its address, or add the name to --allow-host.";
	static const char unknown_origin[] =
		"Web pages of this Origin may not call. The operator can add it to --allow-origin.";
	const struct headers *headers = &call->request->headers;
	if (!authorize_host(call))
		return call_reject(call, PROBLEM_FORBIDDEN, unknown_host);
	if (!headers->origin)
		return true;
	call->origin = origin_find(headers->origin, headers->origin_len,
				   &call->request->context->config->options->allow_origins);
	if (!call->origin &&
	    (!headers->host || !origin_is_same(headers->origin, headers->origin_len, headers->host, headers->host_len)))
		return call_reject(call, PROBLEM_FORBIDDEN, unknown_origin);
	call->preflight = call->origin && headers->preflight && strcmp(method, "OPTIONS") == 0;
	if (call->preflight)
		reply_empty(call->request, 204);
	return !call->preflight;
}

static bool authorize_reject_rate(struct call *call, enum http_counter limit, const char *detail, uint32_t retry_ms)
{
	assert(retry_ms > 0);
	metrics_add(&call->request->context->config->metrics->http_counters[limit], 1);
	call_reject(call, PROBLEM_TOO_MANY_REQUESTS, detail);
	call_retry_after(call, retry_ms);
	return false;
}

bool authorize_page(struct call *call, const char *method)
{
	static const char too_many[] =
		"This address makes too many requests (--max-rate-per-address). Try again after Retry-After.";
	uint32_t retry_ms, per_second = call->request->context->config->options->max_rate_per_address;
	assert(!call->route && !call->caller.known);
	return authorize_origin(call, method) &&
	       (peer_take(call->request->peer, per_second, clock_now_us(), &retry_ms) ||
		authorize_reject_rate(call, HTTP_LIMIT_ADDRESS_RATE, too_many, retry_ms));
}

/* ---- the caller ---- */

enum problem authorize_problem(enum access_verdict verdict)
{
	assert(verdict != ACCESS_ALLOWED);
	return verdict == ACCESS_UNKNOWN ? PROBLEM_UNAUTHORIZED : PROBLEM_FORBIDDEN;
}

/* Finds the first name of a set that the caller is not allowed to use. */
static enum access_verdict authorize_decide_set(const struct call *call, const struct access_caller *caller,
						const char **ret_name, size_t *ret_len)
{
	const char *at = call->lease.resource, *end = at + call->lease.resource_len;
	enum access_verdict verdict = ACCESS_ALLOWED;
	assert(call->lease.set_count > 0);
	while (verdict == ACCESS_ALLOWED && text_line(&at, end, ret_name, ret_len))
		verdict = access_decide(call->route->need, caller, *ret_name, *ret_len);
	return verdict;
}

/* The verdict ACCESS_NO_PREFIX. */
static bool authorize_reject_prefix(struct call *call)
{
	static const char no_prefix[] = "begins with none of the caller's prefixes. GET /whoami shows them.";
	char detail[sizeof no_prefix + LEASE_RESOURCE_MAX + 32];
	const char *name = "";
	size_t len = 0;
	if (call->lease.set_count > 0)
		(void)authorize_decide_set(call, &call->caller, &name, &len);
	snprintf(detail, sizeof detail, "The resource %.*s%s%s", (int)len, name, len > 0 ? " " : "", no_prefix);
	return call_reject(call, PROBLEM_FORBIDDEN, detail);
}

bool authorize_accept(struct call *call, enum access_verdict verdict)
{
	static const char no_prefix_listed[] = "The caller may list only what begins with one of its prefixes: ask "
					       "with ?prefix=. GET /whoami shows them.";
	enum access_need need = call->route->need;
	char no_right[128];
	switch (verdict) {
	case ACCESS_ALLOWED: return true;
	case ACCESS_UNKNOWN: return call_reject(call, PROBLEM_UNAUTHORIZED, call->caller.reason);
	case ACCESS_NO_RULE: return call_reject(call, PROBLEM_FORBIDDEN, call->caller.reason);
	case ACCESS_NO_RIGHT:
		snprintf(no_right, sizeof no_right,
			 "The caller does not have the right %s. GET /whoami shows what it may do.",
			 access_right_name(need));
		return call_reject(call, PROBLEM_FORBIDDEN, no_right);
	default:
		return need == ACCESS_LIST ? call_reject(call, PROBLEM_FORBIDDEN, no_prefix_listed)
					   : authorize_reject_prefix(call);
	}
}

/* Reads the credentials of the request and its connection. */
static struct access_credentials authorize_credentials(const struct call *call)
{
	const struct headers *headers = &call->request->headers;
	return (struct access_credentials){headers->key, headers->key_len, headers->other_scheme,
					   call->request->tls_peer, verify_tokens(call->request->context)};
}

/* Sets the bounds of a body: those of the configuration, or lower ones of the caller's key. */
static void authorize_limits(struct call *call)
{
	const struct options *options = call->request->context->config->options;
	uint32_t max_ttl_ms = options->max_ttl_ms, own_ms = call->caller.key ? call->caller.key->max_ttl_ms : 0;
	if (own_ms > 0 && own_ms < max_ttl_ms)
		max_ttl_ms = MAX(own_ms, options->min_ttl_ms);
	assert(options->min_ttl_ms <= max_ttl_ms);
	call->limits = (struct body_limits){MIN(options->default_ttl_ms, max_ttl_ms), options->min_ttl_ms, max_ttl_ms,
					    options->max_wait_ms};
}

_Static_assert((int)TOKEN_REFUSALS == (int)METRICS_TOKEN_REFUSALS, "a counter for each");

static bool authorize_key_rate(struct call *call)
{
	const struct key *key = call->caller.key;
	uint32_t retry_ms;
	return !key || rate_take(&key->usage->rate, key->rate, clock_now_us(), &retry_ms) ||
	       authorize_reject_rate(call, HTTP_LIMIT_KEY_RATE,
				     "This key makes too many requests. Try again after Retry-After.", retry_ms);
}

/* The caller is known, or not. One that is not authenticated may use the token of a lease, but its answers
 * differ: see lock_call_answer(). */
static bool authorize_identified(struct call *call)
{
	struct access_caller *caller = &call->caller;
	assert(!caller->unverified && caller->refusal < TOKEN_REFUSALS);
	if (caller->refusal != TOKEN_GOOD)
		metrics_add(&call->request->context->config->metrics->token_refusals[caller->refusal], 1);
	if (call->route->need == ACCESS_TOKEN) {
		call->stranger = caller->controlled && !caller->known;
		if (caller->known && caller->token && call->route->operation == LEASE_EXTEND &&
		    token_newer_is_expected())
			call->newer = token_ref(caller->token);
		access_forget(caller);
		return true;
	}
	if (caller->token)
		verify_use(call);
	return authorize_accept(call, access_decide(call->route->need, caller, NULL, 0)) && authorize_key_rate(call);
}

/* Finds the caller by the present keys, and keeps them until the request is over. */
static void authorize_identify(struct call *call, const struct access_credentials *credentials)
{
	struct keys *keys = call->request->context->keys, *before = call->keys;
	access_forget(&call->caller);
	call->keys = keys && call->route->need != ACCESS_TOKEN ? keys_ref(keys) : NULL;
	keys_unref(before);
	access_identify(keys, credentials, NULL, &call->caller);
}

static void authorize_drop_token(struct call *call)
{
	if (call->token)
		explicit_bzero(call->token, call->token_len);
	free(call->token);
	call->token = NULL;
}

bool authorize_caller(struct call *call)
{
	struct access_credentials credentials = authorize_credentials(call);
	assert(!call->keys && !call->caller.known);
	if (call->route->need != ACCESS_NOTHING) {
		authorize_identify(call, &credentials);
		if (call->caller.unverified) {
			call->token = memory_copy(credentials.key, credentials.key_len);
			call->token_len = credentials.key_len;
		} else if (!authorize_identified(call)) {
			return false;
		}
	}
	authorize_limits(call);
	return true;
}

bool authorize_verify(struct call *call)
{
	struct access_credentials credentials = authorize_credentials(call);
	assert(call->token && call->token_list == VERIFY_NONE);
	credentials.key = call->token;
	credentials.key_len = call->token_len;
	authorize_identify(call, &credentials); /* the keys may be others by now */
	if (call->caller.unverified)
		access_verify(call->request->context->keys, &credentials, &call->caller);
	authorize_drop_token(call);
	if (!authorize_identified(call))
		return false;
	authorize_limits(call);
	return true;
}

bool authorize_wait_for_verification(struct call *call)
{
	if (verify_wait(call))
		return true;
	authorize_drop_token(call);
	access_forget(&call->caller);
	call->stranger = call->route->need == ACCESS_TOKEN;
	return call->stranger ||
	       authorize_reject_rate(
		       call, HTTP_LIMIT_TOKENS,
		       "Too many tokens wait to be verified, of this address or of all. Try again after Retry-After.",
		       1000);
}

/* ---- the operation ---- */

/* The verdict for the resource or prefix of the call, if that is known yet. */
static enum access_verdict authorize_decide(const struct call *call, const struct access_caller *caller)
{
	const char *name;
	size_t len;
	if (call->route->need == ACCESS_LIST)
		return access_decide(ACCESS_LIST, caller, call->query->params[PARAM_PREFIX].value,
				     call->query->params[PARAM_PREFIX].len);
	if (call->lease.set_count > 0)
		return authorize_decide_set(call, caller, &name, &len);
	return access_decide(call->route->need, caller, call->lease.resource, call->lease.resource_len);
}

static bool authorize_wait(struct call *call)
{
	const struct key *key = call->caller.key;
	assert(!call->counted);
	if (!key || (call->lease.wait_ms == 0 && !call->streams))
		return true;
	if (!key_wait_begin(key))
		return authorize_reject_rate(
			call, HTTP_LIMIT_KEY_WAITING,
			"This key has reached its limit of waiting requests. Try again after Retry-After.", 1000);
	call->counted = true;
	return true;
}

bool authorize_operation(struct call *call)
{
	assert(call_has_resource(call) || call->route->need == ACCESS_LIST);
	assert(!call->token);
	return authorize_accept(call, authorize_decide(call, &call->caller)) && authorize_wait(call);
}

bool authorize_more(struct call *call, size_t count)
{
	static const char too_many[] =
		"This address makes too many requests (--max-rate-per-address), and each lease counts as one. Try "
		"again after Retry-After.";
	uint32_t retry_ms, per_second = call->request->context->config->options->max_rate_per_address;
	return peer_take_more(call->request->peer, per_second, (uint32_t)count, clock_now_us(), &retry_ms) ||
	       authorize_reject_rate(call, HTTP_LIMIT_ADDRESS_RATE, too_many, retry_ms);
}

/* Takes over `caller`, which the present keys have found. */
static void authorize_replace(struct call *call, const struct access_caller *caller)
{
	struct keys *before = call->keys;
	if (call->counted)
		key_wait_move(call->caller.key, caller->key);
	call->keys = before ? keys_ref(call->request->context->keys) : NULL;
	access_forget(&call->caller);
	call->caller = *caller;
	authorize_limits(call);
	keys_unref(before);
}

enum access_verdict authorize_again(struct call *call)
{
	struct keys *keys = call->request->context->keys;
	struct access_caller caller;
	assert(call->route);
	request_identify(call->request);
	struct access_credentials credentials = authorize_credentials(call);
	access_identify(keys, &credentials, &call->caller, &caller);
	enum access_verdict verdict = authorize_decide(call, &caller);
	if (verdict != ACCESS_ALLOWED) {
		call->caller.reason = caller.reason;
		access_forget(&caller);
		return verdict;
	}
	authorize_replace(call, &caller);
	return ACCESS_ALLOWED;
}

bool authorize_renew(struct call *call)
{
	struct access_credentials credentials = authorize_credentials(call);
	struct keys *keys = call->request->context->keys;
	char *bytes = call->stream ? hold_stream_newer_token(call->stream, &credentials.key_len) : NULL;
	struct access_caller caller;
	if (!bytes)
		return false;
	credentials.key = bytes;
	access_identify(keys, &credentials, NULL, &caller);
	if (caller.unverified)
		access_verify(keys, &credentials, &caller);
	bool good = caller.known && caller.token && strcmp(caller.name, call->caller.name) == 0 &&
		    authorize_decide(call, &caller) == ACCESS_ALLOWED;
	if (good)
		authorize_replace(call, &caller);
	else
		access_forget(&caller);
	explicit_bzero(bytes, credentials.key_len);
	free(bytes);
	return good;
}

void authorize_offer(const struct call *call, const struct lease_request *lease, const struct lease_answer *answer)
{
	if (call->newer && answer->status == LEASE_OK)
		token_newer_offer(lease->token, LEASE_TOKEN_LEN, call->newer);
}

void authorize_wait_end(struct call *call)
{
	assert(!call->counted || call->caller.key);
	if (call->counted)
		key_wait_end(call->caller.key);
	call->counted = false;
}

void authorize_end(struct call *call)
{
	authorize_wait_end(call);
	verify_end(call);
	authorize_drop_token(call);
	access_forget(&call->caller);
	token_unref(call->newer);
	call->newer = NULL;
	keys_unref(call->keys);
	call->keys = NULL;
}
