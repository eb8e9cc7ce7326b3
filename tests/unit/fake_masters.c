/* SPDX-License-Identifier: MIT */
/* Masters that only do what a test tells them. See fake_masters.h. */
#include "fake_masters.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static void keep(struct fake_command *ret, const struct master_script *script)
{
	ret->script = script->script;
	ret->ttl_ms = script->ttl_ms;
	ret->place = script->entry.place;
	snprintf(ret->key, sizeof ret->key, "%.*s", script->resource_len, script->resource);
	if (script->token)
		snprintf(ret->token, sizeof ret->token, "%.*s", LEASE_TOKEN_LEN, script->token);
	ret->fence = script->fence;
	ret->repair = script->repair;
	if (script->repair) {
		ret->hold_ms = script->hold_ms;
		snprintf(ret->label, sizeof ret->label, "%.*s", (int)script->label_len, script->label);
		snprintf(ret->buckets, sizeof ret->buckets, "%.*s", (int)script->buckets_len, script->buckets);
	}
	if (script->entry.arrival != 0)
		snprintf(ret->entry, sizeof ret->entry, FAKE_REPLICA ":%016llu %llu",
			 (unsigned long long)script->entry.arrival, (unsigned long long)script->entry.wait_ms);
}

/* ---- what a test calls ---- */

static bool is_meant(const struct fake_command *command, enum redlock_script script, int master)
{
	return (script == REDLOCK_SCRIPT_NONE || command->script == script) &&
	       (master < 0 || command->master == master);
}

size_t fake_masters_count(const struct masters *masters, enum redlock_script script, int master, bool open)
{
	size_t count = 0;
	for (size_t i = 0; i < masters->command_count; i++)
		count += is_meant(&masters->commands[i], script, master) && (!open || masters->commands[i].open);
	return count;
}

struct fake_command *fake_masters_last(struct masters *masters, enum redlock_script script, int master)
{
	for (size_t i = masters->command_count; i > 0; i--)
		if (is_meant(&masters->commands[i - 1], script, master))
			return &masters->commands[i - 1];
	ck_abort_msg("no such command was sent to master %d", master);
}

size_t fake_masters_answer_some(struct masters *masters, enum redlock_script script, int master, size_t count,
				const struct master_reply *reply)
{
	size_t answered = 0;
	for (size_t i = 0; i < masters->command_count && answered < count; i++) {
		struct fake_command *command = &masters->commands[i];
		if (!command->open || !is_meant(command, script, master))
			continue;
		command->open = false;
		answered++;
		command->reply(command->arg, reply);
	}
	return answered;
}

void fake_masters_answer(struct masters *masters, enum redlock_script script, const struct master_reply *reply)
{
	(void)fake_masters_answer_some(masters, script, -1, SIZE_MAX, reply);
}

void fake_masters_publish(struct masters *masters, const char *resource)
{
	masters->notification_events.changed(masters->notification_events.arg, resource, strlen(resource));
}

void fake_masters_notify(struct masters *masters, uint8_t master, bool ours, uint64_t arrival, const char *resource)
{
	struct masters_notification notification = {.master = master,
						    .ours = ours,
						    .arrival = arrival,
						    .resource = resource,
						    .resource_len = strlen(resource)};
	masters->notification_events.notified(masters->notification_events.arg, &notification);
}

/* ---- what the leases call ---- */

size_t masters_count(const struct masters *masters)
{
	(void)masters;
	return FAKE_MASTERS;
}

enum master_sent masters_send(struct masters *masters, size_t i, const struct master_script *script, uint64_t until_us,
			      master_reply_fn *reply, void *arg)
{
	if (masters->quarantined & 1U << i)
		return MASTER_REFUSED;
	if (masters->down & 1U << i)
		return MASTER_UNSENT;
	ck_assert_uint_lt(masters->command_count, FAKE_COMMANDS_MAX);
	struct fake_command *kept = &masters->commands[masters->command_count++];
	*kept = (struct fake_command){
		.open = true, .master = (uint8_t)i, .until_us = until_us, .reply = reply, .arg = arg};
	keep(kept, script);
	return MASTER_SENT;
}

void masters_keep_release(struct masters *masters, size_t i, const struct master_script *release, bool refused)
{
	(void)refused;
	ck_assert_uint_lt(masters->pending_count, FAKE_COMMANDS_MAX);
	struct fake_command *kept = &masters->pending[masters->pending_count++];
	*kept = (struct fake_command){.master = (uint8_t)i};
	keep(kept, release);
}

void masters_set_notification_events(struct masters *masters, const struct masters_notification_events *events)
{
	masters->notification_events = *events;
}

void masters_start_notifications(struct masters *masters)
{
	ck_assert(!masters->queue_open);
	masters->queue_open = true;
	masters->queue_opened++;
}

void masters_stop_notifications(struct masters *masters)
{
	masters->queue_open = false;
	masters->queue_shut++;
}

void masters_check_silence(struct masters *masters, size_t i)
{
	masters->silent |= 1U << i;
}

bool masters_have_unread(const struct masters *masters, size_t i)
{
	return (masters->unread & 1U << i) != 0;
}

void masters_flush(struct masters *masters)
{
	(void)masters;
}

enum master_sent masters_send_scan(struct masters *masters, size_t i, const struct master_scan_command *command,
				   master_scan_fn *scan, void *arg)
{
	(void)masters;
	(void)scan;
	(void)arg;
	ck_abort_msg("%u keys for a listing, from master %zu", command->keys, i);
}

enum master_sent masters_send_read(struct masters *masters, size_t i, const struct master_read_command *command,
				   master_scan_fn *scan, void *arg)
{
	(void)i;
	ck_assert_uint_lt(masters->read_count, FAKE_READS_MAX);
	masters->reads[masters->read_count++] = (struct fake_read){command->read, scan, arg};
	return MASTER_SENT;
}

void fake_masters_answer_reads(struct masters *masters, const struct master_scan *list,
			       const struct master_scan *values)
{
	while (masters->read_count > 0) {
		struct fake_read read = masters->reads[0];
		memmove(masters->reads, masters->reads + 1, --masters->read_count * sizeof read);
		read.scan(read.arg, read.read == MASTER_READ_LIST ? list : values);
	}
}

void masters_quorum(const struct masters *masters, struct quorum_status *ret_quorum)
{
	(void)masters;
	*ret_quorum = (struct quorum_status){.needed = 2, .voting = FAKE_MASTERS, .masters = FAKE_MASTERS};
}
