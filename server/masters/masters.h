/* SPDX-License-Identifier: MIT */
/* The masters of one worker: one asynchronous connection to each, which is opened again whenever it ends.
 *
 * Commands leave in order over that connection, and every command gets exactly one callback in any case. No command is
 * sent to a master that is down, hung or quarantined: masters_send() returns that at once, so that no request waits for
 * such a master. All on the worker's thread. */
#ifndef MASTERS_H
#define MASTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/metrics/metrics.h"
#include "server/redlock/redlock.h"

struct uv_loop_s;

/* The answer of a master to a script, as the core uses it. */
struct master_reply {
	/* GRANTED, STALE, HELD, QUEUED, GONE, FAILED, or QUARANTINED: the master has another epoch; nothing but a
	 * release was carried out */
	enum redlock_vote vote;
	enum master_error error; /* FAILED: why; LATE: nothing was carried out */
	bool lost;               /* FAILED: the connection went away; it may have been carried out or not */
	bool no_script;          /* FAILED: the master no longer has the script; nothing was carried out */
	uint64_t time_us;        /* the master's own time; 0: unknown */
	uint64_t ttl_us;         /* GRANTED, extend */
	/* GRANTED, acquire: the bucket's number before; STALE: the bucket's number. GRANTED, release: the arrival of
	 * the place that was taken */
	uint64_t fence;
	/* HELD; REDLOCK_NEVER: no expiry. QUEUED: how long the first waiter still counts as alive. */
	uint64_t remaining_us;
	uint32_t waiters;       /* inspect: HELD, GONE; extend: GRANTED */
	uint8_t blocking_index; /* of a set, HELD or QUEUED: the resource that is held, or has another waiter */
	/* HELD; GRANTED, extend and release: the key's value; QUEUED: the entry of the first waiter; NULL for a key of
	 * another type. Valid during the callback. */
	const char *value;
	size_t value_len;
	/* extend, GONE: what the buckets have, for a repair. Not terminated; valid during the callback */
	const char *buckets;
	size_t buckets_len;
	/* acquire, HELD: a digit for each slot, 1: taken; 1 alone: all are taken. Empty: no lease has slots. Not
	 * terminated */
	const char *taken;
	size_t taken_len;
	/* inspect, HELD by several leases: how many, the sum of the ends of their tokens (inspect.lua), and those
	 * listed for master_reply_holder() */
	uint32_t holder_count;
	uint64_t digest;
	size_t listed;
	const void *holders;
};

/* Lease i of those that are listed: its value, or its token alone if many are listed. False: redlockd did not write it.
 * The value is valid during the callback. */
bool master_reply_holder(const struct master_reply *reply, size_t i, const char **ret_value, size_t *ret_len,
			 uint64_t *ret_remaining_us);

/* True if the answer was lost, is an error, or is not our scripts': the command may not have been carried out. */
static inline bool master_reply_is_error(const struct master_reply *reply)
{
	return reply->vote == REDLOCK_VOTE_FAILED && reply->time_us == 0;
}

typedef void master_reply_fn(void *arg, const struct master_reply *reply);

/* Fence buckets of each master. */
enum { MASTER_FENCE_BUCKETS = 16384 };

enum { MASTERS_RESOURCE_MAX = 256, MASTERS_SET_MAX = 16 }; /* bytes of a resource; resources of a command */
/* The bucket of a resource, 0 … MASTER_FENCE_BUCKETS−1: the same on every redlockd. */
unsigned masters_bucket(const char *resource, size_t len);

/* An entry in the queue of a resource. */
struct master_entry {
	uint64_t arrival; /* 0: there is none */
	uint64_t wait_ms; /* for how long it may be needed; 0: it is removed */
	bool of_set;      /* the waiter wants other resources, too */
	/* release: with wait_ms 0 the place is kept for this key, else the place of this key is taken, whatever
	 * `arrival` is (server/scripts/lib/queue.lua); 0: neither */
	uint64_t place;
};

/* How many leases there may be at once, as in acquire.lua: exclusive, shared or on slots. */
enum master_kind { MASTER_EXCLUSIVE = 0, MASTER_SHARED = '+', MASTER_SLOT = '#' };

/* A script of the core for one resource, or for a set of several. It is encoded when it leaves, with the epoch and
 * the deadline for its master (master_script.c). */
struct master_script {
	enum redlock_script script;
	bool with_source; /* the master has lost the script */
	bool alone;       /* in a command of its own: a master refuses a whole command if it refuses a part */
	/* of a set: how many resources; `resource` then has their sorted names, separated by line feeds */
	uint8_t set_count;
	uint16_t resource_len;
	const char *resource;
	const char *label; /* acquire: of the value, after the fence; label_len bytes */
	size_t label_len;
	const char *token;         /* RANDOM_TOKEN_LEN; release: NULL for none */
	uint32_t ttl_ms;           /* acquire, extend; release: keep_ms; inspect: to watch; 0: none */
	enum master_kind kind;     /* acquire; release of an entry */
	uint16_t slot;             /* MASTER_SLOT */
	uint32_t capacity;         /* acquire, release of an entry: leases at once, if not exclusive */
	uint32_t list_max;         /* inspect: how many leases are listed at most */
	unsigned bucket;           /* of one resource: masters_bucket() */
	uint64_t fence;            /* acquire, raise; extend with a key: of the lease */
	uint64_t key;              /* acquire, extend: see struct lease_request; 0: none */
	struct master_entry entry; /* acquire, release */
	/* acquire: writes a lease again that an extension found gone (acquire.lua). `buckets`: as that answer named
	 * them; hold_ms: how old the lease may still get, 0: no bound */
	bool repair;
	uint16_t buckets_len;
	const char *buckets;
	uint64_t hold_ms;
	bool wanted; /* extend: the holder asks for messages of waiters (masters_notification_events) */
};

enum master_sent {
	MASTER_SENT,   /* the callback will be called, later */
	MASTER_UNSENT, /* down or hung: nothing was sent and the callback will not be called */
	MASTER_REFUSED /* quarantined: likewise */
};

/* Starts to connect to all masters; copies their addresses. */
struct masters *masters_new(struct uv_loop_s *loop, const struct options *options, struct metrics *metrics);
/* Begins to close all connections; pending callbacks are called with FAILED now. Run the loop until it is empty, then
 * masters_free(). */
void masters_close(struct masters *masters);
void masters_free(struct masters *masters);
/* Sets other addresses, users and passwords of the masters, as many as before; copies them. New connections use them.
 * If an address has changed, the connection to the old server ends, and its commands under way are lost. The new server
 * is checked like any other. */
void masters_set_addresses(struct masters *masters, const struct address addresses[]);

/* True when each master has been reached or has failed once, and the guard has evaluated those that were reached: then
 * redlockd begins to listen. */
bool masters_settled(const struct masters *masters);
/* True while --bootstrap waits to see whether another redlockd runs on masters of another layout, for a few seconds. */
bool masters_are_watched(const struct masters *masters);
/* True if two configured addresses turned out to be one server (same run_id); writes their indexes. */
bool masters_find_duplicate(const struct masters *masters, size_t *ret_first, size_t *ret_second);
/* True if the hash of a master was written with another layout or another number of masters, and not taken over; writes
 * its index. */
bool masters_find_other_digest(const struct masters *masters, size_t *ret_indexes);

/* Sends a script to master i: not carried out after `until_us` of our time, nor later than --master-timeout-ms from
 * now. An acquisition, and what it points to, must stay until the answer is here. */
enum master_sent masters_send(struct masters *masters, size_t i, const struct master_script *script, uint64_t until_us,
			      master_reply_fn *reply, void *arg);

/* Keeps a copy of a release that could not be sent to master i, or whose answer was lost or (`refused`) an error. Sends
 * it after all earlier commands, as soon as the master is reachable, or after a pause if it refused, until it is
 * carried out. Drops it after the longest lease, or if there are too many. */
void masters_keep_release(struct masters *masters, size_t i, const struct master_script *release, bool refused);

/* Call it when an attempt ran out without an answer of master i: if its oldest answer is overdue, it counts as hung
 * from now on. */
void masters_check_silence(struct masters *masters, size_t i);

/* True if bytes of master i have arrived that were not read yet: a missing answer may be among them. */
bool masters_have_unread(const struct masters *masters, size_t i);

/* Call it once per round of the loop, before it waits for descriptors: a master only counts as hung if its answers were
 * read. */
void masters_begin_round(struct masters *masters);

/* Writes everything that was sent since the last call. Call it at the end of each round of the loop, so that commands
 * of concurrent operations leave in one write. */
void masters_flush(struct masters *masters);

/* ---- listings, and what an inspection leaves out ---- */

/* The answer to a SCAN or another read, valid during the call. */
struct master_scan {
	uint64_t cursor; /* SCAN; 0: this was the last step */
	size_t key_count;
	const void *keys; /* see master_scan_key() */
};

/* NULL: the answer was lost, is late, or is not that of a read. */
typedef void master_scan_fn(void *arg, const struct master_scan *scan);

/* Not terminated; NULL where the master did not answer with a string. */
const char *master_scan_key(const struct master_scan *scan, size_t i, size_t *ret_len);
/* The time of that master in ms at which a lease ends: the score of its token. 0: redlockd did not write it. */
uint64_t master_scan_end_ms(const struct master_scan *scan, size_t i);

/* One step of a SCAN of the resources that begin with a prefix. */
struct master_scan_command {
	uint64_t cursor;
	const char *prefix;
	size_t prefix_len;
	unsigned keys; /* about how many */
};

/* Otherwise like masters_send(). */
enum master_sent masters_send_scan(struct masters *masters, size_t i, const struct master_scan_command *command,
				   master_scan_fn *scan, void *arg);

enum { MASTER_READ_LIST_MAX = 100, MASTER_READ_VALUES_MAX = 100, MASTER_READ_TOKENS_MAX = 1024 };

/* Reads of leases that hold a resource together. */
enum master_read {
	MASTER_READ_LIST,   /* token and end of each of the first ones that last longer than a time of that master */
	MASTER_READ_TOKENS, /* the same, more of them and without their ends */
	MASTER_READ_VALUES  /* the values of some, in their order; NULL for one that has ended */
};

struct master_read_command {
	enum master_read read;
	const char *resource;
	size_t resource_len;
	size_t count; /* values: 1 … MASTER_READ_VALUES_MAX */
	const char *tokens[MASTER_READ_VALUES_MAX];
	uint64_t after_ms; /* list, tokens */
};

/* Otherwise like masters_send(). */
enum master_sent masters_send_read(struct masters *masters, size_t i, const struct master_read_command *command,
				   master_scan_fn *scan, void *arg);

/* ---- notifications of waiters and watchers ---- */

enum { MASTER_REPLICA_LEN = 16 };

/* A master notifies a waiter: there is room for it, and the waiter that came at `arrival` is the first. */
struct masters_notification {
	uint8_t master;
	bool ours; /* it waits at this worker; else at another one or another redlockd */
	enum master_kind kind;
	uint32_t capacity; /* of the entry, if it is not exclusive */
	bool of_set;       /* of the entry, if it is shared */
	bool has_free;     /* MASTER_SLOT: `free` has just become free */
	uint16_t free;
	uint64_t arrival;     /* of the entry */
	uint64_t last;        /* MASTER_SHARED: all shared waiters up to this arrival are notified, too; 0: none */
	const char *resource; /* not terminated */
	size_t resource_len;
};

/* Called from the loop, never from within a function of this header. */
struct masters_notification_events {
	void (*notified)(void *arg, const struct masters_notification *notification);
	/* A watched resource has another holder there (an inspection with a ttl has begun the watch). */
	void (*changed)(void *arg, const char *resource, size_t len);
	/* The queue of a resource was empty there and has a waiter now; its holder has asked for this message. */
	void (*wanted)(void *arg, uint8_t master, const char *resource, size_t len);
	/* A lease was confirmed with that key (extend.lua), and somebody waits for its resource. */
	void (*confirmed)(void *arg, uint64_t key);
	/* A master may have dropped our queue entries, or a notification may have been missed. */
	void (*missed)(void *arg);
	void *arg;
};

/* Copies `events`; once, before the first of the two below. */
void masters_set_notification_events(struct masters *masters, const struct masters_notification_events *events);
/* Call it when the first request of this worker begins to wait or to watch. From now on each master learns that this
 * worker is alive, before the next command, and notifications are received. */
void masters_start_notifications(struct masters *masters);
/* Call it when the last request of this worker that waited or watched has ended. */
void masters_stop_notifications(struct masters *masters);

/* ---- their states, for /masters, /readyz and the metrics ---- */

enum { STATUS_ADDRESS_MAX = 300, STATUS_REASON_MAX = 480, STATUS_WARNINGS_MAX = 4 };

enum master_state { MASTER_VOTING, MASTER_QUARANTINED, MASTER_DOWN };

/* One master as this worker sees it. */
struct master_status {
	char address[STATUS_ADDRESS_MAX]; /* never with a password */
	enum master_state state;
	uint64_t state_ms;                /* how long it has been in this state */
	uint64_t quarantine_remaining_ms; /* 0: not quarantined, or time alone does not end it */
	char reason[STATUS_REASON_MAX];   /* "" while voting; else a code, then ": " and a text if there is one */
	uint64_t rtt_us;                  /* smoothed; 0: not known */
	char version[40];                 /* "7.0.15", "valkey 8.1.1"; "": not known yet */
	char run_id[48];
	size_t warning_count;
	char warnings[STATUS_WARNINGS_MAX][STATUS_REASON_MAX];
};

struct quorum_status {
	uint8_t needed, voting, quarantined, masters;
	uint64_t wait_ms; /* too few vote: until a majority may; 0: time alone does not change that */
};

size_t masters_count(const struct masters *masters);
void masters_status(const struct masters *masters, size_t i, struct master_status *ret_status);
void masters_quorum(const struct masters *masters, struct quorum_status *ret_quorum);

const char *master_state_name(enum master_state state);

#endif
