/* SPDX-License-Identifier: MIT */
/* Leases and masters for tests of the HTTP side: they keep what they are asked for and answer what a test tells them
 * to. */
#ifndef FAKE_LEASE_H
#define FAKE_LEASE_H

#include "server/leases/leases.h"
#include "server/masters/masters.h"

enum { FAKE_OPS_MAX = 256 };

#define FAKE_FENCE UINT64_C(9007199254740991) /* of every lease: the largest there is, which a double just holds */

struct lease_op {
	bool used;
	struct lease_request request;
	lease_done_fn *done;
	void *arg;
};

struct lease_listing {
	bool used;
	struct lease_list_request request;
	lease_list_found_fn *found;
	lease_list_done_fn *done;
	void *arg;
};

/* A lock of a listing. */
struct fake_lock {
	uint16_t resource_len;
	char resource[LEASE_RESOURCE_MAX];
	struct lease_answer answer;
};

/* One watcher: a test sets `tag` and `state`, and calls `event`. */
struct lease_watcher {
	struct leases *leases;
	char resource[LEASE_RESOURCE_MAX + 1], seen[LEASE_TAG_MAX], tag[LEASE_TAG_MAX];
	uint32_t time_ms;
	struct lease_answer state;
	lease_watch_fn *event;
	void *arg;
};

/* The holder that listens to waiters: a test calls `event`. */
struct lease_wanted {
	unsigned listeners;
	lease_wanted_fn *event;
	void *arg;
};

/* All members may be read and set by a test. */
struct leases {
	struct lease_wanted wanted;
	struct lease_op ops[FAKE_OPS_MAX];
	struct lease_listing listings[FAKE_OPS_MAX];
	struct lease_answer answer;    /* what each operation is answered */
	struct lease_list_answer list; /* what each listing is answered, behind `list.count` of … */
	const struct fake_lock *locks; /* … these */
	bool hold;                     /* answer nothing for the time being */
	bool draining;
	struct lease_watcher *watcher; /* the last one, or NULL */
	bool watch_full;
	unsigned watched;
	unsigned submitted, listed, cancelled, abandoned;
	struct lease_request last; /* asked for last, with these texts */
	char last_names[LEASE_NAMES_MAX], last_owner[LEASE_OWNER_MAX];
	struct lease_list_request last_list;
	char last_resource[LEASE_RESOURCE_MAX + 1], last_token[LEASE_TOKEN_LEN + 1]; /* released last as abandoned */
};

struct masters {
	size_t count;
	struct master_status status[3];
	struct quorum_status quorum;
};

/* Both as they are when all is well: three masters that vote, every lease granted. */
void fake_leases_init(struct leases *leases);
void fake_masters_init(struct masters *masters);

/* Answers all that is under way, unless held. Returns how many answers were given. */
unsigned fake_leases_dispatch(struct leases *leases);

#endif
