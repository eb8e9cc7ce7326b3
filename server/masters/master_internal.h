/* SPDX-License-Identifier: MIT */
/* Private header of this folder; no other folder includes it. Each file uses those below it, and none above:
 *
 *   masters.c                                         implements masters.h; joins the layers
 *   master_handshake.c                                the first commands on a connection, the heartbeat
 *   master_notification.c       master_pending.c      waiters are notified; releases are repeated
 *                               master_durable.c      --durable-masters: the settings
 *                               master_guard.c        drives the guard: its scripts, epoch and deadline of commands
 *   master_check.c                                    tests whether the master can do all that locks need
 *   master_command.c                                  commands under way, hung masters
 *   master_state.c                                    the state of a master and its reason; reports
 *   master_link.c                                     the connection: opened again whenever it ends
 *   master_script.c, master_reply.c                   arguments of commands; answers, INFO (pure)
 *
 * Lower files report to higher ones through callbacks. */
#ifndef MASTER_INTERNAL_H
#define MASTER_INTERNAL_H

#include <sys/queue.h>

#include "masters.h"
#include "server/redlock/guard/guard.h"
#include "server/transport/transport.h"

/* REDLOCK_ALIVE_MS as an argument of a command */
#define ALIVE_TEXT_OF(ms) #ms
#define ALIVE_TEXT(ms) ALIVE_TEXT_OF(ms)
#define ALIVE_MS_TEXT ALIVE_TEXT(REDLOCK_ALIVE_MS)

_Static_assert((int)OPTIONS_MASTERS_MAX == (int)REDLOCK_MASTERS_MAX, "as many masters as the core can count");

enum {
	MASTER_HEARTBEAT_MS = 1000,
	MASTER_BEGINNING_MS = 20,   /* the heartbeat while a new cluster begins */
	MASTER_PENDING_MAX = 10000, /* releases kept for one master */
	/* Resources in one command: a master does nothing else meanwhile, for some 150 µs. */
	MASTER_BATCH_MAX = 32,
	MASTER_BATCH_INSPECT_MAX = 8,  /* it takes longer if many hold a resource together */
	MASTER_BATCH_LISTED_MAX = 100, /* an inspection that may list more leases goes alone */
	MASTER_BATCH_BITS = 256,
	MASTER_BATCH_SPAN_US = 2000, /* between the deadlines of one batch */
	MASTER_ARGUMENTS_MAX = 6,    /* of one operation: acquire.lua */
	MASTER_ARGUMENTS_SHARED = 4, /* of all operations of a command: lib/master.lua */
	MASTER_COMMAND_ARGUMENTS_MAX = 4 + MASTER_ARGUMENTS_SHARED + MASTER_BATCH_MAX * (1 + MASTER_ARGUMENTS_MAX),
	MASTER_TEXT_MAX = sizeof((struct options *)0)->key_prefix + MASTERS_RESOURCE_MAX + 216, /* of one of a batch */
	MASTER_BUCKETS_LEN_MAX = MASTERS_SET_MAX * 17,
	MASTER_DIGITS = 16,         /* of epoch and deadline in a command */
	MASTER_ERROR_TEXT_MAX = 160 /* of the text of an error */
};

struct master;
struct master_command;

/* ---- the connection (master_link.c) ---- */

enum {
	MASTER_HANDSHAKE_MS = 1000, /* from connect to the last answer of the handshake */
	MASTER_BACKOFF_MIN_MS = 50,
	MASTER_BACKOFF_MAX_MS = 1000
};

/*   down ─► connecting ─► handshake ─► up          down: it waits until it tries again
 *    ▲          │             │         │          closed: for good, from any
 *    └──────────┴─────────────┴─────────┘ */
enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_HANDSHAKE, LINK_UP, LINK_CLOSED };

/* Ended by us; by the peer; or by us because the bytes that came were no reply of Redis. */
enum link_end { LINK_END_OURS, LINK_END_PEER, LINK_END_PROTOCOL };

struct master_link_events {
	/* Connected, LINK_HANDSHAKE: send what comes first. */
	void (*connected)(struct master *owner);
	/* The oldest command has its answer; NULL: lost. */
	void (*answered)(struct master *owner, const redisReply *reply);
	/* The time given to master_link_set_timer() is over, and the link is up. */
	void (*ticked)(struct master *owner);
	/* The link has just become LINK_DOWN, and has no connection any more; `was`: its state before. The connection's
	 * pending callbacks follow if it was ended by us. */
	void (*failed)(struct master *owner, enum link_state was, const char *reason, enum link_end how);
};

struct master_link {
	struct uv_loop_s *loop;
	const struct address *address;
	const struct master_link_events *events;
	struct master *owner;
	enum link_state state;
	struct transport_connection *connection; /* connecting, handshake, up; else NULL */
	struct transport_timer *timer;           /* by the state: back-off, deadline of the handshake, the owner's */
	uint32_t attempts;                       /* to connect, since the last success */
	bool tried;                              /* it was up, or failed at each of its addresses */
};

/* Begins to connect in the next round of the loop. */
void master_link_start(struct master_link *link);
/* Connects in the next round of the loop. link->address has changed, and the old connection was ended. */
void master_link_restart(struct master_link *link);
void master_link_set_up(struct master_link *link);
/* Closes the connection and tries again later. Does nothing if it is down already. */
void master_link_fail(struct master_link *link, const char *reason);
/* Closes the connection for good; its pending callbacks are called. */
void master_link_close(struct master_link *link);
/* LINK_UP: calls `ticked`; before: the link fails then. */
void master_link_set_timer(struct master_link *link, uint64_t delay_ms);

/* ---- commands ---- */

/* The answer to a script of the core; `raw`: as it was read, NULL: lost. May change `reply`. */
typedef void master_settle_fn(struct master *master, const struct master_command *done, uint64_t now_us,
			      struct master_reply *reply, const redisReply *raw);
/* The answer to a command of this folder; `what`: as it was given with the command. Not called if the connection has
 * ended first. So the link has the same state as when the command was sent, or has come up since. */
typedef void master_answer_fn(struct master *master, unsigned what, const redisReply *reply);

/* One command under way. */
struct master_command {
	STAILQ_ENTRY(master_command) entry; /* of those under way, or of spare ones */
	STAILQ_ENTRY(master_command) also;  /* of those of its batch */
	uint64_t sent_us;
	/* A script of the core; NONE: another command. */
	enum redlock_script kind;
	const struct master_script *script; /* until it has left */
	uint64_t epoch, deadline_us;        /* that it carries; the deadline in the master's own time */
	uint64_t until_s;                   /* guard_leases_until_s(), or 0 */
	master_settle_fn *settle;
	master_reply_fn *reply;   /* the caller's; called by settle */
	master_scan_fn *scan;     /* a read: the caller's; NULL: none, or called already, since the answer is late */
	bool has_cursor;          /* … and it is a SCAN */
	void *arg;                /* of reply or scan */
	master_answer_fn *answer; /* a command of this folder; NULL: its answer does not matter */
	unsigned what;            /* … of the answer */
};

STAILQ_HEAD(master_commands, master_command);

/* Commands of one script, each for one resource, that leave together. */
struct master_batch {
	struct master_commands commands;
	unsigned count;
	/* a bit for the hash of each resource; no two batches share a bit */
	uint64_t resources[MASTER_BATCH_BITS / 64];
};

struct master_arguments {
	size_t count, text_len;
	struct transport_word arguments[MASTER_COMMAND_ARGUMENTS_MAX];
	char text[MASTER_BATCH_MAX * MASTER_TEXT_MAX]; /* of those that were made for it */
};

/* A release that is kept until it is carried out. */
struct pending_release {
	STAILQ_ENTRY(pending_release) entry;
	uint64_t until_us; /* by then the lease is over */
	struct master_script script;
	char bytes[]; /* of the token and the resource */
};

/* A number and its digits; digits[0] is NUL as long as there is none. */
struct master_digits {
	uint64_t number;
	char digits[MASTER_DIGITS];
};

/* The fields of INFO that matter; "" or 0: there is none, or its value is too long. */
struct master_info {
	char run_id[48], version[32], valkey[32], role[16], mode[16], policy[32];
	char product[40]; /* the version, for people: Valkey has one of its own beside that of the Redis it replaces */
	uint64_t maxmemory, used_memory, evicted, replicas, loading, cluster;
	char aof_write[12], second_replid[48];
	uint64_t aof, aof_rewriting, aof_scheduled;
};

struct master {
	struct masters *all;
	size_t index;
	struct address address;
	struct metrics_master *metrics;
	struct master_link link;

	/* master_command.c */
	struct master_commands under_way, spare; /* under way: in the order of the connection, the oldest first */
	struct master_batch batches[REDLOCK_SCRIPT_INSPECT + 1]; /* of this round of the loop, not sent yet */
	uint64_t answered_sent_us;                               /* of the command whose answer is being handled */
	bool hung;                                               /* up, but its oldest answer is overdue */
	uint64_t rtt_us;                                         /* smoothed; 0: not known on this connection */

	/* master_handshake.c */
	uint64_t ups;   /* how often the link came up */
	uint64_t up_us; /* since when it is up */
	/* idle ─► out ─► late: its time is up, but the loop may not have read its sockets yet.
	 * The answer, or the end of the connection: idle */
	enum { HEARTBEAT_IDLE, HEARTBEAT_OUT, HEARTBEAT_LATE } heartbeat;
	struct master_info info;                   /* run_id "": there was no handshake yet */
	uint64_t client_id;                        /* of this connection, as the server counts them */
	uint64_t restarted_until_us;               /* until then it may have forgotten leases that are still valid */
	enum quarantine_reason quarantine_code;    /* by INFO: why it may not vote */
	char quarantine_reason[STATUS_REASON_MAX]; /* the same as text; "": it may vote */
	size_t warning_count;
	char warnings[STATUS_WARNINGS_MAX][STATUS_REASON_MAX];

	/* master_guard.c */
	/* State of this connection, to the guard:
	 *   unknown ─► asked ─► read       unknown: INFO was not evaluated, or shows none of our masters (a replica, …)
	 *                 └───────┴─► expelled    INFO shows that now; when that ends, the connection is closed */
	enum { MEMBER_UNKNOWN, MEMBER_ASKED, MEMBER_READ, MEMBER_EXPELLED } member;
	bool evicted_known;           /* info.evicted was compared with the count in its hash */
	bool left_out;                /* a new cluster may begin without it, and the log says so */
	uint64_t time_us;             /* its own time at the last heartbeat */
	uint64_t clocked_us;          /* when its floor was made of clocks, in its own time; 0: never */
	uint64_t clock_back_until_us; /* its clock went back: until then its locks last longer */
	struct master_digits epoch_sent, deadline_sent; /* in the last command */

	/* master_durable.c; of this connection */
	struct {
		/* as CONFIG GET shows them; "": not shown */
		char appendonly[8], appendfsync[16], on_rewrite[8];
		char refused[MASTER_ERROR_TEXT_MAX];    /* the error of CONFIG GET; "": none */
		char fault[MASTER_ERROR_TEXT_MAX + 40]; /* why it may not vote; "": it may */
		bool weak, reported;                    /* its answers may be lost; the guard was notified */
		bool written;                           /* all that it has in memory is in its append-only file */
	} durable;

	/* master_check.c; of this connection */
	struct {
		/* untried ─► failed ─► passed ◄─► doubted: a run has failed since, or something was refused;
		 * its answers still count */
		enum { CHECK_UNTRIED, CHECK_FAILED, CHECK_PASSED, CHECK_DOUBTED } state;
		bool subscribing; /* this run waits for SUBSCRIBE */
		unsigned left;    /* answers that this run waits for */
		uint64_t began_us;
		uint64_t refused;                       /* bits of enum master_command_kind: what was refused */
		enum master_error error;                /* of the first refusal */
		char error_text[MASTER_ERROR_TEXT_MAX]; /* of the first refusal; "": nothing was refused */
	} check;

	/* master_notification.c */
	struct {
		struct transport_connection *connection; /* the second one; NULL: there is none */
		uint64_t tried_us;                       /* when it was opened last */
		bool subscribed;                         /* the master has confirmed it */
		uint64_t beside_us; /* up_us of the first connection when the second one was opened */
	} notification;

	/* master_pending.c */
	STAILQ_HEAD(, pending_release) pending;
	size_t pending_count; /* those in this list and those under way */

	/* master_state.c */
	enum master_state state;        /* at the last report */
	uint64_t state_since_us;        /* since when; 0: no report yet */
	char reason[STATUS_REASON_MAX]; /* why the link is down, or the master hung */
	/* It answers, but refuses a command that it must carry out; "": the trials have not ended, or have passed. */
	char soft_reason[STATUS_REASON_MAX];
	uint32_t quarantined_for;         /* bits of enum quarantine_reason that were counted for this quarantine */
	bool reported;                    /* a state was written to the log */
	enum master_state reported_state; /* the last state that was written */
	uint64_t reported_refused;        /* the commands that were refused then */
};

struct masters {
	struct uv_loop_s *loop;
	uint64_t looked_us; /* all that had arrived by then has been read */
	uint64_t round_us;  /* the last masters_begin_round() */
	const struct options *options;
	struct guard guard;
	size_t prefix_len, hash_key_len;
	char hash_key[sizeof((struct options *)0)->key_prefix + 16]; /* {prefix}redlockd:master */
	char replica[MASTER_REPLICA_LEN + 1]; /* this worker's name in the queues: hex digits, random at its start */
	char alive_key[sizeof((struct options *)0)->key_prefix + 40];
	char wake_channel[sizeof((struct options *)0)->key_prefix + 16];
	struct transport_timer *alive_timer, *pending_timer;
	bool pending_timer_runs;
	bool has_waiters; /* between masters_start_notifications() and masters_stop_notifications() */
	struct masters_notification_events notification_events;
	size_t count;
	struct master list[OPTIONS_MASTERS_MAX];
};

/* ---- master_reply.c: pure ---- */

void master_reply_map(enum redlock_script script, const redisReply *reply, struct master_reply *ret_reply);
/* Makes the vote FAILED, because of `error`. */
void master_reply_fail(struct master_reply *reply, enum master_error error);
/* Maps the answer to command `i` of a batch. */
void master_reply_map_part(enum redlock_script script, const redisReply *reply, size_t i, size_t count,
			   struct master_reply *ret_reply);
void master_reply_map_scan(const redisReply *reply, master_scan_fn *scan, void *arg);
void master_reply_map_read(const redisReply *reply, master_scan_fn *scan, void *arg);
/* True if the answer of a script begins with this number. */
bool master_reply_begins(const redisReply *reply, long long number);
/* The answer to a script of the guard: fills what an event of this kind has. `ret_time_us`: the master's time;
 * `ret_evicted`: the count of evicted keys in its hash, "": there is none. False: an answer of another shape. */
bool master_reply_map_guard(const redisReply *reply, struct guard_event *event, uint64_t *ret_time_us,
			    const char **ret_evicted);
uint64_t master_reply_number(const char *text, size_t len, int base);
enum master_error master_error_classify(const char *text);
/* The text of an error, for people: one line of printable ASCII, never empty, without the part that repeats our
 * command. */
void master_error_text(const char *text, char ret_text[MASTER_ERROR_TEXT_MAX]);

/* Parses the text of INFO. True if it names a run_id, a version and a role, as Redis and Valkey do. Always writes
 * *info. */
bool master_info_parse(const char *text, size_t len, struct master_info *info);
bool master_info_read(const redisReply *reply, struct master_info *info);

/* ---- master_script.c ---- */

/* Sets the epoch, the deadline and until_s of a command. */
void master_script_stamp(const struct master *master, uint64_t until_us, struct master_command *command);
/* Writes the arguments of a script and of the others of its batch (`also`). */
void master_script_write(struct master *master, const struct master_command *first, struct master_arguments *ret_text);
void master_script_write_scan(const struct masters *masters, const struct master_scan_command *scan,
			      struct master_arguments *ret_text);
void master_script_write_read(const struct masters *masters, const struct master_read_command *read,
			      struct master_arguments *ret_text);

/* ---- master_state.c ---- */

/* Causes of its state: the first of these that holds. */
enum master_cause {
	MASTER_CAUSE_LINK,   /* down: no connection, or hung */
	MASTER_CAUSE_INFO,   /* quarantined: by what INFO shows */
	MASTER_CAUSE_ASKING, /* down: the guard does not know yet */
	MASTER_CAUSE_GUARD,  /* quarantined: by the guard */
	MASTER_CAUSE_CHECK,  /* down: the trials have not passed */
	MASTER_CAUSE_NONE    /* voting */
};
enum master_cause master_state_cause(const struct master *master);
enum master_state master_state_of(const struct master *master);
void master_state_write_reason(const struct master *master, char ret_reason[STATUS_REASON_MAX]);
/* Reports a new state to the log and the metrics. */
void master_state_report(struct master *master);
void master_state_count_error(struct master *master, enum master_error error);
/* The master refused a command that it must carry out, with this text: no vote until the trials have passed again. */
void master_state_doubt(struct master *master, enum master_error error, const char *text);
/* The same, and counts the error. */
void master_state_doubt_reply(struct master *master, const redisReply *reply);
/* The same for a FAILED vote, unless its cause is temporary (lost, late, no script, quarantined). */
void master_state_handle_failure(struct master *master, const struct master_reply *reply, const redisReply *raw);
/* True for a moment with --bootstrap: another worker or redlockd that begins too may write an epoch at any time. */
bool master_state_is_beginning(const struct master *master);
/* True if a few more round trips will not change the state. */
bool master_state_is_settled(const struct master *master);
/* 0: the guard has not quarantined it, or time alone does not end the quarantine. */
uint64_t master_state_guard_left_ms(const struct master *master);

/* ---- master_command.c ---- */

/* Sends a script of the core, after all earlier commands for its resource. It may wait for others until the end of this
 * round. `reply`: called by `settle`, or NULL. */
void master_command_send_script(struct master *master, const struct master_script *script, uint64_t until_us,
				master_settle_fn *settle, master_reply_fn *reply, void *arg);
/* Sends a command of this folder. `argv` ends with NULL; `answer` may be NULL. */
void master_command_send(struct master *master, master_answer_fn *answer, unsigned what, const char *const argv[]);
/* The answer of a command with a cursor begins with that. */
void master_command_send_read(struct master *master, const struct master_arguments *arguments, bool has_cursor,
			      master_scan_fn *scan, void *arg);
void master_command_init_batches(struct master *master);
void master_command_send_batches(struct master *master);
/* The oldest command has its answer; NULL: lost. */
void master_command_answer(struct master *master, const redisReply *reply);
/* The connection has ended: fails the commands that waited in a batch. */
void master_command_fail_batches(struct master *master);
/* True if the oldest answer is overdue at `when_us`, and not because this process was stopped or has not yet read all
 * that has arrived. */
bool master_command_is_silent(const struct master *master, uint64_t when_us);
void master_command_set_hung(struct master *master);

/* ---- master_guard.c ---- */

/* True if it is one of our masters, as far as INFO has shown. */
static inline bool master_is_member(const struct master *master)
{
	return master->member == MEMBER_ASKED || master->member == MEMBER_READ;
}

static inline bool master_guard_is_on(const struct masters *masters)
{
	return masters->options->restart_guard != OPTIONS_GUARD_OFF;
}

void master_guard_init(struct masters *masters);
void master_guard_notify(struct master *master, enum guard_event_kind kind);
void master_guard_exclude(struct master *master, bool excluded);
/* Sends READ. `kept_epoch`: the epoch that a restarted master keeps; 0: none. */
void master_guard_read(struct master *master, uint64_t kept_epoch);
/* Evaluates a reply by its TIME and its epoch. May turn its vote into FAILED. */
void master_guard_evaluate_reply(struct master *master, const struct master_command *done, uint64_t now_us,
				 struct master_reply *reply);
/* --bootstrap: the master refused the handshake. */
void master_guard_handle_refusal(struct master *master, enum master_error error);
/* --bootstrap, for a master that cannot vote or refuses the guard's script: reads whether its hash has an epoch. */
void master_guard_inspect_hash(struct master *master);

/* ---- master_durable.c ---- */

/* A new connection, after its handshake. */
void master_durable_begin(struct master *master);
/* Sends CONFIG GET; its answer comes before those to later commands. */
void master_durable_ask(struct master *master);
/* Writes the fault that the last answers to CONFIG GET and INFO show. */
void master_durable_evaluate(struct master *master);
/* Reports a new weakness to the guard, which must know the connection. */
void master_durable_report(struct master *master);

/* ---- master_pending.c ---- */

void master_pending_init(struct masters *masters);
void master_pending_close(struct masters *masters);
/* On a new connection, before any other command: the releases that the master missed. */
void master_pending_send_all(struct master *master);
void master_pending_drop_all(struct master *master);

/* ---- master_notification.c ---- */

void master_notification_init(struct masters *masters);
void master_notification_close(struct masters *masters);
/* Ends the second connection. */
void master_notification_drop(struct master *master);
/* Tests whether the channel can be subscribed to. master_check_settle_subscribe() gets the answer, usually later. */
void master_notification_check(struct master *master);

/* ---- master_check.c ---- */

/* Begins a run if one is due. True: the caller calls master_notification_check(), which is part of the run. */
bool master_check_tick(struct master *master);
void master_check_end(struct master *master, bool in_handshake);
/* The answer to SUBSCRIBE; `refused` NULL: subscribed. */
void master_check_settle_subscribe(struct master *master, enum master_error error, const char *refused);
/* The master refused `command`; MASTER_COMMAND_COUNT: a command that it need not carry out, but whose answer may
 * explain the end of the connection. */
void master_check_record_refusal(struct master *master, enum master_command_kind command, const redisReply *reply);
/* Writes the refusals since the run or the handshake began. */
void master_check_write(const struct master *master, char ret_reason[STATUS_REASON_MAX]);

/* ---- master_digest.c ---- */

enum { MASTER_DIGEST_TEXT = 80 };

uint64_t master_digest_of(size_t masters, bool durable);
/* Why a master with the reason OTHER_DIGEST has no vote: names its layout and ours. */
void master_digest_describe(const struct master *master, char ret_reason[STATUS_REASON_MAX]);

/* ---- master_handshake.c ---- */

void master_handshake_start(struct master *master);
/* The heartbeat. */
void master_handshake_tick(struct master *master);

#endif
