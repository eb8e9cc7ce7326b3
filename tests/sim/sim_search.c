/* SPDX-License-Identifier: MIT */
/* The search: see sim_search.h. The worlds on the way from the start are on a stack; of all others only the
 * fingerprint is kept.
 *
 * A failed assert of the core is a violation like others: our __assert_fail() jumps back to the code that made the
 * event happen. An assert of the simulator itself ends the program. */
#include "sim_search.h"

#include <assert.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "state_set.h"

struct frame {
	struct sim_world world;
	struct sim_event event; /* that led here */
	unsigned next;          /* which event is to be tried next */
};

struct event_list {
	unsigned count;
	struct sim_event events[100 * SIM_OPS];
};

static jmp_buf on_assert;
static bool armed;
static const char *assertion;

void __assert_fail(const char *text, const char *file, unsigned line, const char *function)
{
	if (armed && strstr(file, "server/redlock/")) {
		assertion = text;
		longjmp(on_assert, 1);
	}
	fprintf(stderr, "%s:%u: %s: assertion failed: %s\n", file, line, function, text);
	abort();
}

/* ---- all that may ever happen ---- */

static void add(struct event_list *list, enum sim_kind kind, unsigned op, unsigned master, unsigned arg)
{
	assert(list->count < sizeof list->events / sizeof *list->events);
	list->events[list->count++] = (struct sim_event){(uint8_t)kind, (uint8_t)op, (uint8_t)master, (uint8_t)arg};
}

static bool has_guess(enum sim_kind kind)
{
	return kind == SIM_START || kind == SIM_TIMER || kind == SIM_NOTIFY;
}

static bool is_local(enum sim_kind kind)
{
	return kind == SIM_CANCEL || kind == SIM_RELEASE || kind == SIM_LATE || kind == SIM_RUN_OUT || kind == SIM_END;
}

static bool is_of_master(enum sim_kind kind)
{
	return kind == SIM_WIPE || kind == SIM_SURVEY || kind == SIM_WRITE_EPOCH;
}

static void list_events(struct event_list *list)
{
	list->count = 0;
	for (unsigned kind = 0; kind < SIM_KINDS; kind++) {
		for (unsigned o = 0; o < SIM_OPS; o++) {
			for (unsigned arg = 0; arg < SIM_GUESSES && has_guess(kind); arg++)
				for (unsigned i = 0; i < (kind == SIM_NOTIFY ? SIM_MASTERS : 1); i++)
					add(list, kind, o, i, arg);
			if (is_local(kind))
				add(list, kind, o, 0, 0);
			if (has_guess(kind) || is_local(kind))
				continue;
			for (unsigned i = 0; i < SIM_MASTERS; i++)
				if (kind == SIM_DROP || kind == SIM_EXPIRE)
					for (unsigned key = o; key < SIM_KEYS; key += SIM_OPS)
						add(list, kind, 0, i, key);
				else if (o == 0 || !is_of_master(kind))
					add(list, kind, o, i, 0);
		}
	}
}

/* ---- the search ---- */

static double seconds(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Lets it happen, asserts included. True if something is wrong afterwards that counts. */
static bool apply(const struct sim_search *search, struct sim_world *world, const struct sim_event *event)
{
	armed = true;
	if (setjmp(on_assert) == 0)
		sim_apply(world, search->config, event);
	else
		world->violated |= SIM_ASSERT;
	armed = false;
	return (world->violated & search->checks) != 0;
}

static bool all_have_numbers(const struct sim_world *world)
{
	bool all = true;
	for (unsigned o = 0; o < SIM_OPS; o++)
		all &= world->ops[o].fence != 0;
	return all;
}

/* A hash of all that can come next, by its fingerprints and violations. */
static uint64_t hash_successors(const struct sim_search *search, const struct sim_world *world,
				const struct event_list *list)
{
	static struct sim_world next;
	struct state_set seen;
	uint64_t sum = 1;
	state_set_init(&seen);
	for (unsigned i = 0; i < list->count; i++) {
		if (!sim_can(world, search->config, &list->events[i]))
			continue;
		next = *world;
		(void)apply(search, &next, &list->events[i]);
		uint64_t fingerprint = sim_fingerprint(&next, search->config);
		if (state_set_add(&seen, fingerprint))
			sum += (fingerprint ^ next.violated) * UINT64_C(0x9e3779b97f4a7c15);
	}
	state_set_fini(&seen);
	return sum;
}

/* True if the world is new. With `pairs`: worlds of one fingerprint must all have successors of the same fingerprints,
 * so there must be as many pairs of both as there are fingerprints. */
static bool visit(const struct sim_search *search, const struct sim_world *world, const struct event_list *list,
		  struct state_set *set, struct state_set *pairs)
{
	uint64_t fingerprint = sim_fingerprint(world, search->config);
	if (search->check_form)
		state_set_add(pairs,
			      (fingerprint + hash_successors(search, world, list) * UINT64_C(0xd6e8feb86659fd93)) | 1);
	return state_set_add(set, fingerprint);
}

static void walk(struct sim_search *search, struct state_set *set, struct state_set *pairs, struct frame *frames,
		 const struct event_list *list)
{
	unsigned depth = 0;
	sim_init(&frames[0].world, search->config);
	frames[0].next = 0;
	visit(search, &frames[0].world, list, set, pairs);
	for (;;) {
		struct frame *top = &frames[depth], *next = top + 1;
		while (top->next < list->count && !sim_can(&top->world, search->config, &list->events[top->next]))
			top->next++;
		if (top->next == list->count) {
			if (depth-- == 0)
				return;
			continue;
		}
		assert(depth + 1 < SIM_DEPTH_MAX);
		next->world = top->world;
		next->event = list->events[top->next++];
		next->next = 0;
		search->transitions++;
		if (apply(search, &next->world, &next->event)) {
			if (search->check_form)
				continue; /* what is wrong here was compared as a successor */
			search->violated = next->world.violated & search->checks;
			for (unsigned i = 0; i <= depth; i++)
				search->story[i] = frames[i + 1].event;
			search->story_len = depth + 1;
			return;
		}
		if (!visit(search, &next->world, list, set, pairs))
			continue;
		search->oks += all_have_numbers(&next->world);
		if (++depth > search->depth)
			search->depth = depth;
		if (search->max_states != 0 && set->count >= search->max_states) {
			search->bounded = true;
			return;
		}
	}
}

/* ---- the story ---- */

/* Plays the events that can happen, one of them left out; true if it still goes wrong, and how far it took. */
static bool goes_wrong_without(const struct sim_search *search, unsigned left_out, struct sim_event *ret_played,
			       unsigned *ret_len)
{
	struct sim_world world;
	struct sim_event played[SIM_DEPTH_MAX];
	unsigned len = 0;
	sim_init(&world, search->config);
	for (unsigned i = 0; i < search->story_len; i++) {
		if (i == left_out || !sim_can(&world, search->config, &search->story[i]))
			continue;
		played[len++] = search->story[i];
		if (!apply(search, &world, &search->story[i]))
			continue;
		if ((world.violated & search->violated) == 0)
			return false;
		memcpy(ret_played, played, len * sizeof *played);
		*ret_len = len;
		return true;
	}
	return false;
}

/* Depth first finds long ways round: leaves out what is not needed, until nothing more can be. */
static void shorten(struct sim_search *search)
{
	bool shorter = true;
	while (shorter) {
		shorter = false;
		for (unsigned i = search->story_len; i-- > 0;)
			if (i < search->story_len && goes_wrong_without(search, i, search->story, &search->story_len))
				shorter = true;
	}
}

void sim_search(struct sim_search *search)
{
	struct state_set set, pairs;
	struct event_list list;
	double began_s = seconds(CLOCK_MONOTONIC), cpu_began_s = seconds(CLOCK_PROCESS_CPUTIME_ID);
	struct frame *frames = calloc(SIM_DEPTH_MAX, sizeof *frames);
	assert(frames);
	state_set_init(&set);
	state_set_init(&pairs);
	list_events(&list);
	walk(search, &set, &pairs, frames, &list);
	search->states = set.count;
	search->seconds = seconds(CLOCK_MONOTONIC) - began_s;
	search->cpu_seconds = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_began_s;
	search->unlike = search->check_form && pairs.count > set.count ? pairs.count - set.count : 0;
	state_set_fini(&set);
	state_set_fini(&pairs);
	free(frames);
	if (search->violated)
		shorten(search);
}

void sim_search_tell(const struct sim_search *search)
{
	struct sim_world world;
	sim_init(&world, search->config);
	for (unsigned i = 0; i < search->story_len; i++) {
		struct sim_world before = world;
		(void)apply(search, &world, &search->story[i]);
		sim_tell(i + 1, &before, &search->story[i], &world, search->config);
	}
	for (unsigned check = 1; check < SIM_ALL; check <<= 1)
		if (world.violated & search->violated & check)
			printf("VIOLATED %s%s%s\n", sim_check_name(check), check == SIM_ASSERT ? ": " : "",
			       check == SIM_ASSERT ? assertion : "");
}
