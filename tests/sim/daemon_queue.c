/* SPDX-License-Identifier: MIT */
/* The events to come, random numbers, clocks, the trace and the story of the simulator. See daemon_world.h.
 *
 * A heap has a small entry for each event; the events themselves lie in a fixed array. Events of the same time come in
 * the order in which they were pushed. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon_world.h"

enum { NUMBER_BITS = 26 }; /* of a key */

void queue_init(struct world *world)
{
	world->heap_count = 0;
	world->event_number = 0;
	for (unsigned i = 0; i < world->used_events; i++)
		store_text_unref(world->events[i].notification.text);
	memset(world->events, 0, world->used_events * sizeof *world->events);
	world->free_event_count = 0;
	world->used_events = 0;
}

struct event *event_new(struct world *world, enum event_kind kind)
{
	uint16_t slot;
	if (world->free_event_count > 0)
		slot = world->free_events[--world->free_event_count];
	else
		slot = world->used_events++;
	assert(slot < EVENTS);
	struct event *event = &world->events[slot];
	memset(event, 0, sizeof *event);
	event->kind = (uint8_t)kind;
	return event;
}

void event_free(struct world *world, struct event *event)
{
	store_text_unref(event->notification.text);
	event->notification.text = NULL;
	world->free_events[world->free_event_count++] = (uint16_t)(event - world->events);
}

static void heap_push(struct world *world, const struct event *event)
{
	struct queued entry = {event->key, (uint16_t)(event - world->events)};
	assert(world->heap_count + 1 < EVENTS);
	uint32_t i = world->heap_count++;
	for (; i > 0 && entry.key < world->heap[(i - 1) / 2].key; i = (i - 1) / 2)
		world->heap[i] = world->heap[(i - 1) / 2];
	world->heap[i] = entry;
}

/* Without branches that nobody could foretell: the hole goes down to the end, to the smaller of two each time, and the
 * last one up from there. */
static struct queued heap_pop(struct world *world)
{
	struct queued *heap = world->heap;
	struct queued first = heap[0], last = heap[--world->heap_count];
	uint32_t i = 0, count = world->heap_count;
	heap[count].key = UINT64_MAX; /* no child to speak of */
	for (uint32_t child = 1; child < count; child = 2 * i + 1) {
		child += heap[child + 1].key < heap[child].key;
		heap[i] = heap[child];
		i = child;
	}
	for (; i > 0 && last.key < heap[(i - 1) / 2].key; i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = last;
	return first;
}

/* By time, then in the order of pushing. */
void event_push(struct world *world, struct event *event, uint64_t at)
{
	assert(at >= world->now && at < UINT64_C(1) << (64 - NUMBER_BITS) && world->event_number < 1U << NUMBER_BITS);
	event->key = at << NUMBER_BITS | world->event_number++;
	heap_push(world, event);
}

struct event *event_pop(struct world *world)
{
	if (world->heap_count == 0)
		return NULL;
	struct queued first = heap_pop(world);
	assert(first.key >> NUMBER_BITS >= world->now);
	world->now = first.key >> NUMBER_BITS;
	return &world->events[first.slot];
}

/* ---- numbers ---- */

uint64_t spread(struct world *world, uint64_t least, uint64_t most)
{
	unsigned doublings = 0;
	assert(least > 0 && least <= most);
	while (least << (doublings + 1) <= most)
		doublings++;
	uint64_t from = least << below(world, doublings + 1);
	uint64_t to = from * 2 < most ? from * 2 : most;
	return from + below(world, to - from + 1);
}

/* ---- clocks ---- */

void clock_shift(struct clock *clock, uint64_t now, int64_t by_us)
{
	clock->base = clock_read(clock, now) + (uint64_t)by_us;
	clock->from = now;
}

/* ---- what happened ---- */

/* FNV-1a, but of 64 bits at a time. */
static void mix(struct world *world, uint64_t number)
{
	world->hash = (world->hash ^ number) * UINT64_C(0x100000001b3);
	world->hash ^= world->hash >> 29;
}

void trace(struct world *world, uint64_t a, uint64_t b, uint64_t c)
{
	mix(world, a);
	mix(world, b);
	mix(world, c);
}

void tell(struct world *world, const char *format, ...)
{
	char line[400];
	int at = snprintf(line, sizeof line, "%9llu.%03llu ms  ", (unsigned long long)(world->now / 1000),
			  (unsigned long long)(world->now % 1000));
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(line + at, sizeof line - (size_t)at, format, arguments);
	va_end(arguments);
	world->tell(line);
}

void fail(struct world *world, const char *format, ...)
{
	va_list arguments;
	if (world->failed || (world->only && strncmp(format, world->only, strlen(world->only)) != 0))
		return;
	world->failed = true;
	va_start(arguments, format);
	vsnprintf(world->failure, sizeof world->failure, format, arguments);
	va_end(arguments);
	TELL(world, "VIOLATION: %s", world->failure);
}
