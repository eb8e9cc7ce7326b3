/* What the files master*.c share; nobody else includes it.
 *
 *   master.c        the list, sending, owed releases, status
 *   master_link.c   resolve, connect, hiredis in the libuv loop, back-off
 *   master_handshake.c  what is said first on a connection, the heartbeat, what INFO tells
 *   master_guard.c  may it vote: the restart guard's way to Redis and back
 *   master_call.c   commands under way
 *   master_batch.c  acquisitions that leave as one command
 *   master_pending.c   releases that wait for a connection
 *   master_check.c  can it do all that locks need?
 *   master_line.c   what is said and heard about the lines of those who wait
 *   master_reply.c  from a reply to a vote
 *   master_status.c what is shown of them
 *   master_tls.c    rediss:// */
#ifndef MASTER_INTERNAL_H
#define MASTER_INTERNAL_H

#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <uv.h>

#include "masters.h"
#include "server/redlock/guard/guard.h"

#define ALIVE_MS_TEXT "1000" /* REDLOCK_ALIVE_US */

enum {
	MASTER_HANDSHAKE_MS = 1000, /* from connect to the last answer of the handshake */
	MASTER_HEARTBEAT_MS = 1000,
	MASTER_BEGINNING_MS = 20, /* the same while a new cluster begins */
	MASTER_BACKOFF_MIN_MS = 50,
	MASTER_BACKOFF_MAX_MS = 1000,
	MASTER_PENDING_MAX = 10000,   /* releases kept for one master */
	MASTER_ELEMENTS_MAX = 100000, /* of a reply */
	MASTER_ACQUIRE_ARGUMENTS = 9, /* of acquire.lua, for each resource */
	/* resources in one command: a master does nothing else meanwhile, for some 150 µs */
	MASTER_BATCH_MAX = 32,
	MASTER_BATCH_HALF = 8 * 1024, /* bytes of keys, and of arguments: more than what the longest command has */
	MASTER_BATCH_BYTES = 2 * MASTER_BATCH_HALF + 512,
	MASTER_WORDS_MAX = 160, /* of what a master says in an error */
	/* data that the peer's kernel does not acknowledge: the path is gone, not just the process stopped */
	MASTER_TCP_TIMEOUT_MS = 5000
};

/* down ─► resolving ─► connecting ─► handshake ─► up ─► down … */
enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_HANDSHAKE, LINK_UP, LINK_CLOSED };

/* One command under way. In the order of the connection; the head is the oldest. */
struct master_command {
	struct master *master;
	struct master_command *next;
	struct master_command *also; /* acquisitions: the next one that went in the same command */
	uint64_t sent_us;
	enum redlock_script script; /* NONE: not a script */
	uint64_t epoch;             /* that the script carried */
	master_reply_fn *reply;
	master_raw_fn *raw;
	void *arg;
	struct pending_release *pending; /* a release that is owed until its answer is here */
};

/* Acquisitions of this round of the loop, in the Redis protocol. */
struct master_batch {
	unsigned count;
	size_t keys_len, arguments_len;
	char keys[MASTER_BATCH_HALF], arguments[MASTER_BATCH_HALF];
};

struct pending_release {
	struct pending_release *next;
	uint64_t until_us; /* by then the key has run out */
	size_t len;
	bool reloaded; /* the master was given its script anew */
	char command[];
};

/* The descriptor of one connection in the loop; outlives it until libuv has let go. */
struct master_io {
	uv_poll_t poll;
	struct master *master; /* NULL: cut off, or the connection of master_line.c */
	redisAsyncContext *context;
	struct ssl_st *ssl; /* NULL: not over TLS */
	int events;
	bool want_write; /* there is something to write at the end of this round */
	bool flushing;
};

/* A number and its sixteen digits; digits[0] is NUL as long as there is none. */
struct master_digits {
	uint64_t number;
	char digits[16];
};

/* What INFO says, as far as it matters. */
struct master_info {
	char run_id[48], version[32], role[16], policy[32];
	/* the version, for people: Valkey has one of its own beside that of Redis which it stands for */
	char product[40];
	uint64_t maxmemory, used_memory, evicted, replicas;
	bool loading, cluster;
};

struct master {
	struct masters *all;
	size_t index;
	const struct master_address *address;
	enum link_state link;
	struct master_io *io; /* while connecting, handshake, up */
	uv_timer_t timer;     /* back-off, handshake deadline, heartbeat: by the state */
	uv_getaddrinfo_t resolve;
	uint32_t attempts;  /* to connect, since the last success */
	uint32_t addresses; /* of its name, at the last look; 0: not a name */
	bool tried;         /* up or failed once */
	bool was_up;        /* once at least */
	bool reconnected;   /* this connection is not the first one */
	bool hung;          /* up, but behind with its answers */
	bool heartbeat_out; /* a heartbeat is under way */
	bool heartbeat_due; /* … and its time is up, but the loop had not looked at its sockets yet */
	bool closing;       /* the service ends */
	int timers_closed;
	struct master_command *first, *last;             /* under way */
	struct master_command *spare;                    /* for reuse */
	struct master_digits epoch_sent, deadline_sent;  /* in the last command */
	struct master_batch batch;                       /* not sent yet … */
	struct master_command *batch_first, *batch_last; /* … and who waits for it */
	struct {
		redisAsyncContext *context; /* subscribed; NULL: not there */
		uint64_t tried_us;          /* when it was opened last */
		bool listening;             /* … and the master has said so */
		uint64_t beside_us;         /* since when the connection is up beside which it was opened */
	} line;
	struct pending_release *pending_first, *pending_last;
	size_t pending_count; /* those that lie here and those under way */
	struct master_info info;
	char last_run_id[48]; /* of the handshake before */
	bool has_info;
	uint64_t client_id;           /* of this connection, as the server counts them */
	uint64_t up_us;               /* since when the link is up */
	uint64_t answered_sent_us;    /* when the command was sent whose raw answer is being told */
	bool read;                    /* its epoch was read on this connection */
	bool left_out;                /* a new cluster may begin without it, and the log says so */
	bool evicted_known;           /* info.evicted was compared with what the master remembers */
	bool started;                 /* the guard was told of this connection */
	bool excluded;                /* no master of ours: a replica, a twin, … */
	uint32_t quarantined_for;     /* bits of enum quarantine_reason: of this quarantine, as far as counted */
	uint64_t clocked_us;          /* when its floor was made of clocks, in its own time; 0: never */
	uint64_t time_us;             /* its own time at the last heartbeat */
	uint64_t clock_back_until_us; /* its clock went back: until then its locks last longer */
	bool has_rtt;
	uint64_t rtt_us;
	char reason[STATUS_REASON_MAX];            /* why the link is down */
	enum quarantine_reason quarantine_code;    /* by INFO: why it may not vote */
	char quarantine_reason[STATUS_REASON_MAX]; /* … in words; "": it may */
	struct {                                   /* master_check.c; of this connection */
		bool passed;                       /* the last run, and nothing was refused since */
		bool known;                        /* one run at least: what it answers counts, whatever it refuses */
		bool ended;                        /* one run at least */
		bool listening;                    /* this run waits for SUBSCRIBE */
		unsigned left, at;                 /* answers that this run waits for; the step whose answer is next */
		uint64_t began_us, found;          /* found: bits of enum master_command_kind */
		enum master_error error;           /* of the first that was refused … */
		char words[MASTER_WORDS_MAX];      /* … and what was said to it; "": nothing was refused */
	} check;
	uint64_t told_refused; /* commands, as last told to the log */
	/* it answers, but refuses what it must be able to do; "" while the check has not ended, or has passed */
	char soft_reason[STATUS_REASON_MAX];
	enum master_state shown;     /* the state last told to the log */
	bool told;                   /* … if any was */
	uint64_t restarted_until_us; /* until then it may have forgotten leases that are still valid */
	size_t warning_count;
	char warnings[STATUS_WARNINGS_MAX][STATUS_REASON_MAX];
};

struct masters {
	uv_loop_t *loop;
	uint64_t looked_us; /* all that had arrived by then has been read */
	uint64_t round_us;  /* the last masters_note_round() */
	const struct options *options;
	struct metrics *metrics;
	struct guard guard;
	char hash_key[sizeof((struct options *)0)->key_prefix + 16]; /* {prefix}redlockd:master */
	char replica[MASTER_REPLICA_LEN + 1];                        /* who we are in the lines */
	char alive_key[sizeof((struct options *)0)->key_prefix + 40];
	char wake_channel[sizeof((struct options *)0)->key_prefix + 16];
	uv_timer_t queue_timer;
	bool queue_open; /* some request of ours waits */
	struct queue_events queue_events;
	size_t count;
	struct master list[OPTIONS_MASTERS_MAX];
};

/* master_link.c */
void master_link_start(struct master *master);
void master_link_fail(struct master *master, const char *reason); /* closes and tries again later */
void master_link_close(struct master *master);                    /* closes for good */
void master_link_flush(struct master *master);
void master_link_timer(struct master *master, uint64_t delay_ms);
/* A path that is gone shows within seconds. */
void master_link_set_options(int fd, bool is_unix);
/* Puts a connection to `address` into the loop until hiredis frees its context, and begins TLS on it where that is
 * asked for. `master`: hears of its end, and its writes wait for master_link_flush(); NULL: neither, for a connection
 * beside. NULL: ret_reason says why not; the context is still the caller's. */
struct master_io *master_io_attach(uv_loop_t *loop, redisAsyncContext *context, const struct master_address *address,
				   struct master *master, char ret_reason[STATUS_REASON_MAX]);

/* master_handshake.c */
void master_handshake(struct master *master); /* link is up: say who we are */
void master_heartbeat_tick(struct master *master);
bool master_info_parse(const char *text, size_t len, struct master_info *ret_info);

/* master_guard.c */
void master_guard_init(struct masters *masters);
void master_guard_exclude(struct master *master, bool excluded);           /* by what INFO says */
void master_guard_start(struct master *master);                            /* the link is up */
void master_guard_tell(struct master *master, enum guard_event_kind kind); /* CONNECTED, LOST or DROPPED_KEYS */
/* the heartbeat; false: could not be sent */
bool master_guard_read(struct master *master);
void master_guard_pump(struct masters *masters); /* does what is to be done now */
/* Writes epoch and deadline into a script's command; returns the epoch. */
uint64_t master_guard_stamp(struct master *master, char *command, size_t len, uint64_t until_us);
/* What a reply is worth: its TIME, its epoch. May turn its vote into FAILED. */
void master_guard_judge_reply(struct master *master, const struct master_command *call, uint64_t now_us,
			      struct master_reply *reply);
/* --bootstrap, and we know it for a moment only: another worker or redlockd that begins too may write one at any
 * time. */
bool master_guard_is_beginning(const struct master *master);
bool master_guard_is_asking(const struct master *master); /* too early to say */
bool master_guard_is_quarantined(const struct master *master);
/* nothing that a few round trips will change */
bool master_guard_is_settled(const struct master *master);
bool master_guard_has_other_digest(const struct master *master);
/* 0: none, or it is not time that is missing */
uint64_t master_guard_quarantine_left_ms(const struct master *master);
enum quarantine_reason master_guard_reason(const struct master *master);                /* quarantined: why */
void master_guard_describe(const struct master *master, char *ret_reason, size_t size); /* quarantined: why */

/* master_unusable.c: --bootstrap, and a master that answers but cannot be used */
void master_unusable_refused(struct master *master, enum master_error error); /* it refused the handshake */
/* it cannot vote, or refuses the guard's script: does its hash show an epoch? */
void master_unusable_look(struct master *master);

/* master_check.c */
void master_check(struct master *master);     /* with each INFO: begins a run where one is due */
void master_check_end(struct master *master); /* the connection is about to be dropped */
/* the answer to SUBSCRIBE; NULL: it listens */
void master_check_heard(struct master *master, enum master_error error, const char *refused);
/* The master refused `command`; MASTER_COMMAND_COUNT: one that it need not carry out, but what it says may explain the
 * end of the connection. */
void master_check_note(struct master *master, enum master_command_kind command, const redisReply *reply);
/* what was noted since the run or the handshake began */
void master_check_write(const struct master *master, char ret_reason[STATUS_REASON_MAX]);

/* master_line.c */
/* may it be listened to? master_check_heard() is told, later as a rule */
void master_queue_check(struct master *master);
void master_queue_init(struct masters *masters);
void master_queue_close(struct masters *masters);

/* master_batch.c: pure */
/* True of a command that names its script; one that brings the source of it goes by itself. */
bool master_batch_suits(const char *command);
/* Takes in an ACQUIRE as lease_command_format() makes it. False where there is no room: then the batch has to go
 * first. */
bool master_batch_add(struct master_batch *batch, const char *command, size_t len);
/* The command for all that the batch has, one at least; the batch is empty then. Returns its length. */
size_t master_batch_take(struct master_batch *batch, const char *hash_key, char ret_command[MASTER_BATCH_BYTES]);

/* master_reply.c */
void master_reply_map(enum redlock_script script, const redisReply *reply, struct master_reply *ret_reply);
/* The answer to acquisition `i` of `count` that went in one command. */
void master_reply_map_part(const redisReply *reply, size_t i, size_t count, struct master_reply *ret_reply);
enum master_error master_error_classify(const char *text, size_t len);
/* What a master said in an error, for people: one line of printable ASCII, never empty, without what only repeats our
 * command. */
void master_error_words(const char *text, size_t len, char ret_words[MASTER_WORDS_MAX]);

/* master_status.c */
/* 0: it is not quarantined, or time alone does not end its quarantine */
uint64_t master_quarantine_left_ms(const struct master *master);

/* master.c */
enum master_state master_state_of(const struct master *master);
void master_write_reason(const struct master *master, char ret_reason[STATUS_REASON_MAX]); /* not voting: why */
void master_state_changed(struct master *master);
void master_soft_error(struct master *master, const redisReply *reply); /* it refused what it must be able to do */
/* the same, in its words */
void master_doubt(struct master *master, enum master_error error, const char *text, size_t len);
void master_count_error(struct master *master, enum master_error error);
/* a vote that is FAILED */
void master_note_failure(struct master *master, const struct master_reply *reply, const redisReply *raw);
void master_note_answer(struct master *master, uint64_t rtt_us);

/* master_call.c */
struct master_command *master_command_push(struct master *master, enum redlock_script script, const char *command,
					   size_t len);
/* an acquisition: it may wait for others until the end of this round */
struct master_command *master_command_join(struct master *master, const char *command, size_t len);
void master_command_send_batch(struct master *master);
void master_batch_lost(struct master *master); /* the connection is gone: who waits for the batch is told */
bool master_command(struct master *master, master_raw_fn *reply, int argc, const char *const argv[]);
/* master_pending.c */
void master_pending_answered(struct master *master, struct pending_release *pending, const redisReply *reply);
void master_send_pending(struct master *master);
void master_drop_pending(struct master *master);

#endif
