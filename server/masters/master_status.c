/* The state of the masters of one worker as plain structs (master_status.h), made at each call. The worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "master_internal.h"

size_t masters_count(const struct masters *masters)
{
	return masters->count;
}

void masters_status(const struct masters *masters, size_t i, struct master_status *ret_status)
{
	assert(i < masters->count);
	const struct master *master = &masters->list[i];
	memset(ret_status, 0, sizeof *ret_status);
	ret_status->state = master_state_of(master);
	snprintf(ret_status->address, sizeof ret_status->address, "%s", master->link.address->shown);
	if (ret_status->state != MASTER_VOTING)
		master_state_write_reason(master, ret_status->reason);
	ret_status->quarantine_remaining_ms = master_state_quarantine_left_ms(master);
	ret_status->has_quarantine = ret_status->quarantine_remaining_ms > 0;
	ret_status->has_rtt = master->has_rtt;
	ret_status->rtt_us = master->rtt_us;
	if (master->has_info) {
		memcpy(ret_status->version, master->info.product, sizeof ret_status->version);
		memcpy(ret_status->run_id, master->info.run_id, sizeof ret_status->run_id);
	}
	ret_status->warning_count = master->warning_count;
	memcpy(ret_status->warnings, master->warnings, sizeof ret_status->warnings);
}

/* The time until a majority may vote, if time alone ends enough quarantines. */
static void fill_wait(const struct masters *masters, struct quorum_status *quorum)
{
	uint64_t waits_ms[OPTIONS_MASTERS_MAX];
	size_t count = 0;
	for (size_t i = 0; i < masters->count; i++) {
		struct master_status status;
		masters_status(masters, i, &status);
		if (!status.has_quarantine)
			continue;
		size_t at = count++;
		for (; at > 0 && waits_ms[at - 1] > status.quarantine_remaining_ms; at--)
			waits_ms[at] = waits_ms[at - 1];
		waits_ms[at] = status.quarantine_remaining_ms;
	}
	assert(quorum->voting < quorum->needed);
	size_t missing = (size_t)quorum->needed - quorum->voting;
	quorum->has_wait = missing <= count;
	if (quorum->has_wait)
		quorum->wait_ms = waits_ms[missing - 1];
}

void masters_quorum(const struct masters *masters, struct quorum_status *ret_quorum)
{
	uint8_t voting = 0;
	for (size_t i = 0; i < masters->count; i++)
		voting = (uint8_t)(voting + (master_state_of(&masters->list[i]) == MASTER_VOTING));
	*ret_quorum = (struct quorum_status){.needed = redlock_majority((uint8_t)masters->count),
					     .voting = voting,
					     .masters = (uint8_t)masters->count};
	if (voting < ret_quorum->needed)
		fill_wait(masters, ret_quorum);
}
