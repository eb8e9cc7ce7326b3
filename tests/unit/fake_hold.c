/* SPDX-License-Identifier: MIT */
/* Held leases that do as a test tells them. See fake_hold.h. */
#include "fake_hold.h"

#include <assert.h>
#include <string.h>

void fake_holds_init(struct holds *holds)
{
	memset(holds, 0, sizeof *holds);
	holds->validity_ms = 29690;
}

struct hold *hold_new(struct holds *holds, const struct lease_request *request, const struct lease_answer *answer,
		      hold_event_fn *on_event, void *arg)
{
	for (size_t i = 0; i < FAKE_HOLDS_MAX; i++)
		if (!holds->items[i].used) {
			holds->items[i] = (struct hold){holds, true, *request, *answer, on_event, arg};
			holds->made++;
			return &holds->items[i];
		}
	return NULL;
}

uint32_t hold_validity_ms(const struct hold *hold)
{
	assert(hold->used);
	return hold->holds->validity_ms;
}

uint32_t hold_waiters(const struct hold *hold)
{
	assert(hold->used);
	return hold->holds->waiters;
}

bool hold_take_wanted(struct hold *hold)
{
	bool is_wanted = hold->holds->is_wanted;
	hold->holds->is_wanted = false;
	return is_wanted;
}

void hold_drop(struct hold *hold, bool release)
{
	assert(hold->used);
	hold->used = false;
	*(release ? &hold->holds->released : &hold->holds->left) += 1;
}

void fake_holds_tell(struct holds *holds, enum hold_event event, enum lease_status code)
{
	for (size_t i = 0; i < FAKE_HOLDS_MAX; i++)
		if (holds->items[i].used)
			holds->items[i].on_event(holds->items[i].arg, event, code);
}

size_t fake_holds_count(const struct holds *holds)
{
	size_t count = 0;

	for (size_t i = 0; i < FAKE_HOLDS_MAX; i++)
		count += holds->items[i].used;
	return count;
}
