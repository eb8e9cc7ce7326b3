/* What is to happen next, numbers drawn from the seed, clocks, the trace and the story of the simulator. See random_world.h.
 *
 * The queue is a heap of small entries; events lie in a fixed array beside it. Events of one time come in the order in which they
 * were pushed, so that nothing hangs on the heap's shape. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "random_world.h"

void queue_init(struct world *world)
{
	world->heap_count = 0;
	world->event_number = 0;
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
	memset(event, 0, offsetof(struct event, u));
	event->kind = (uint8_t)kind;
	event->next = NONE;
	return event;
}

void event_free(struct world *world, struct event *event)
{
	world->free_events[world->free_event_count++] = (uint16_t)(event - world->events);
}

/* By time, then in the order of pushing. */
static uint64_t key_of(uint64_t at, uint32_t number)
{
	assert(at < UINT64_C(1) << 38 && number < 1U << 26);
	return at << 26 | number;
}

void event_push(struct world *world, struct event *event, uint64_t at)
{
	struct queued entry = { key_of(at, world->event_number++), (uint16_t)(event - world->events) };
	assert(at >= world->now && world->heap_count < EVENTS);
	uint32_t i = world->heap_count++;
	for (; i > 0 && entry.key < world->heap[(i - 1) / 2].key; i = (i - 1) / 2)
		world->heap[i] = world->heap[(i - 1) / 2];
	world->heap[i] = entry;
}

struct event *event_pop(struct world *world)
{
	if (world->heap_count == 0)
		return NULL;
	struct queued first = world->heap[0], last = world->heap[--world->heap_count];
	uint32_t i = 0, count = world->heap_count;
	for (uint32_t child = 1; child < count; child = 2 * i + 1) {
		child += child + 1 < count && world->heap[child + 1].key < world->heap[child].key;
		if (last.key <= world->heap[child].key)
			break;
		world->heap[i] = world->heap[child];
		i = child;
	}
	world->heap[i] = last;
	assert(first.key >> 26 >= world->now);
	world->now = first.key >> 26;
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
	int at = snprintf(line, sizeof line, "%9llu.%03llu ms  ", (unsigned long long)(world->now / 1000), (unsigned long long)(world->now % 1000));
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
