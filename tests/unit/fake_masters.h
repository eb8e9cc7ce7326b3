/* SPDX-License-Identifier: MIT */
/* Masters for tests of the leases: they keep the commands that are sent to them until a test answers. */
#ifndef FAKE_MASTERS_H
#define FAKE_MASTERS_H

#include "server/leases/leases.h"
#include "server/masters/masters.h"

enum { FAKE_MASTERS = 3, FAKE_COMMANDS_MAX = 512, FAKE_READS_MAX = 32 };

#define FAKE_REPLICA "00000000000000ab"

struct fake_command {
	uint64_t until_us; /* of masters_send() */
	bool open;         /* its answer is still to come */
	uint8_t master;
	enum redlock_script script;
	uint32_t ttl_ms;
	uint64_t place; /* of the entry */
	bool repair;
	uint64_t fence, hold_ms;
	char label[64], buckets[64];                                             /* terminated; of a repair */
	char key[LEASE_RESOURCE_MAX + 1], token[LEASE_TOKEN_LEN + 1], entry[64]; /* terminated */
	master_reply_fn *reply;
	void *arg;
};

/* All members may be read and set by a test. */
struct masters {
	unsigned down, quarantined; /* bit i: nothing can be sent to master i */
	unsigned silent;            /* bit i: masters_check_silence() was called for master i */
	unsigned unread;            /* bit i: bytes of master i have arrived and were not read */
	struct fake_command commands[FAKE_COMMANDS_MAX];
	size_t command_count;
	struct fake_command pending[FAKE_COMMANDS_MAX];
	size_t pending_count;
	struct fake_read {
		enum master_read read;
		master_scan_fn *scan;
		void *arg;
	} reads[FAKE_READS_MAX]; /* that are not answered */
	size_t read_count;
	bool queue_open;
	unsigned queue_opened, queue_shut; /* how often */
	struct masters_notification_events notification_events;
};

/* How many commands of that script were sent to that master, -1: any; only those that are not answered yet if
 * `open`. */
size_t fake_masters_count(const struct masters *masters, enum redlock_script script, int master, bool open);
/* The one sent last; fails if there is none. */
struct fake_command *fake_masters_last(struct masters *masters, enum redlock_script script, int master);
/* Answers all that are open, of a script or (REDLOCK_SCRIPT_NONE) all, also those that are sent meanwhile; or only the
 * oldest `count` of them to that master. Returns how many there were. */
size_t fake_masters_answer_some(struct masters *masters, enum redlock_script script, int master, size_t count,
				const struct master_reply *reply);
void fake_masters_answer(struct masters *masters, enum redlock_script script, const struct master_reply *reply);
/* Answers all reads, also those that are sent meanwhile: those of lists, and those of values. */
void fake_masters_answer_reads(struct masters *masters, const struct master_scan *list,
			       const struct master_scan *values);
/* A master notifies a waiter; `arrival` is one of this worker's if `ours`. */
void fake_masters_notify(struct masters *masters, uint8_t master, bool ours, uint64_t arrival, const char *resource);
/* A master publishes a change of a watched resource. */
void fake_masters_publish(struct masters *masters, const char *resource);

#endif
