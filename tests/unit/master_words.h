/* SPDX-License-Identifier: MIT */
/* For the tests of the commands to a master: the words of a command, with one master whose guard, clock and epoch a
 * test sets. Each suite that includes this has its own copy and this fixture. */
#ifndef MASTER_WORDS_H
#define MASTER_WORDS_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "server/masters/master_internal.h"
#include "server/scripts/scripts.h"
#include "suite.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"
/* Epoch and deadline, where the guard is off and the clock of the master is not known. */
#define NO_EPOCH "----------------"
#define GUARD NO_EPOCH, "9999999999999999"
#define REPLICA "fedcba9876543210"

static struct options options = {.key_prefix = "app:", .max_hold_ms = 86400000, .max_ttl_ms = 60000};
static struct masters masters;
static struct master *const master = &masters.list[0];
static uint64_t until_us;

static inline void set_up(void)
{
	masters = (struct masters){.options = &options, .count = 1, .prefix_len = 4, .replica = REPLICA};
	masters.hash_key_len = (size_t)snprintf(masters.hash_key, sizeof masters.hash_key, "app:redlockd:master");
	master->all = &masters;
	options.restart_guard = OPTIONS_GUARD_OFF;
	options.master_timeout_ms = 50;
	until_us = REDLOCK_NEVER;
	master_guard_init(&masters);
}

static inline struct master_script script_of(enum redlock_script script)
{
	return (struct master_script){
		.script = script,
		.ttl_ms = 30000,
		.resource = "orders/42",
		.resource_len = 9,
		.label = ":me:you",
		.label_len = 7,
		.token = TOKEN,
		.bucket = masters_bucket("orders/42", 9),
		.fence = 7,
		.capacity = 100,
		.list_max = 100,
		.wanted = true,
	};
}

/* The words of acquisitions that leave together, or of one script, each terminated; valid until the next call. */
static struct words {
	size_t elements;
	char *element[MASTER_COMMAND_ARGUMENTS_MAX];
} words;

static inline const struct words *words_of(size_t count, const struct master_script list[])
{
	static struct master_arguments written;
	static struct master_command commands[MASTER_BATCH_MAX];
	for (size_t i = 0; i < count; i++) {
		commands[i] = (struct master_command){.script = &list[i]};
		STAILQ_NEXT(&commands[i], also) = i + 1 < count ? &commands[i + 1] : NULL;
		master_script_stamp(master, until_us, &commands[i]);
	}
	memset(written.text, 'x', sizeof written.text);
	master_script_write(master, commands, &written);
	for (size_t i = 0; i < words.elements; i++)
		free(words.element[i]);
	words.elements = written.count;
	for (size_t i = 0; i < words.elements; i++)
		words.element[i] = strndup(written.arguments[i].bytes, written.arguments[i].len);
	return &words;
}

/* Its clock and its epoch. */
static inline void know(uint64_t its_us)
{
	uint64_t now_us = clock_now_us();
	options.restart_guard = OPTIONS_GUARD_ON;
	masters.guard.masters[0].epoch = 1;
	guard_time(&masters.guard, 0, now_us, now_us, its_us);
}

FIXTURE(set_up, NULL)

#endif
