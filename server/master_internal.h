/* What the files master*.c share; nobody else includes it.
 *
 *   master.c        the list, sending, owed releases, status
 *   master_link.c   resolve, connect, hiredis in the libuv loop, back-off
 *   master_greet.c  what is said first on a connection, the heartbeat, what INFO tells
 *   master_reply.c  from a reply to a vote */
#ifndef MASTER_INTERNAL_H
#define MASTER_INTERNAL_H

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

#include "master.h"

enum {
	MASTER_GREETING_MS = 1000,   /* from connect to the last answer of the greeting */
	MASTER_HEARTBEAT_MS = 1000,
	MASTER_BACKOFF_MIN_MS = 50,
	MASTER_BACKOFF_MAX_MS = 1000,
	MASTER_OWED_MAX = 10000,     /* releases kept for one master */
	MASTER_ELEMENTS_MAX = 100000, /* of a reply */
	MASTER_TCP_TIMEOUT_MS = 5000 /* data that the peer's kernel does not acknowledge: the path is gone, not just the process stopped */
};

/* down ─► resolving ─► connecting ─► greeting ─► up ─► down … */
enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_GREETING, LINK_UP, LINK_CLOSED };

/* One command under way. In the order of the connection; the head is the oldest. */
struct master_call {
	struct master *master;
	struct master_call *next;
	uint64_t sent_us;
	enum redlock_script script; /* NONE: not a script */
	master_reply_fn *reply;
	master_raw_fn *raw;
	void *arg;
	struct owed_release *owed; /* a release that is owed until its answer is here */
};

struct owed_release {
	struct owed_release *next;
	uint64_t until_us; /* by then the key has run out */
	size_t len;
	char command[];
};

/* The descriptor of one connection in the loop; outlives it until libuv has let go. */
struct master_io {
	uv_poll_t poll;
	struct master *master; /* NULL: cut off */
	redisAsyncContext *context;
	int events;
	bool want_write; /* there is something to write at the end of this round */
	bool flushing;
};

/* What INFO says, as far as it matters. */
struct master_info {
	char run_id[48], version[32], role[16], policy[32];
	uint64_t maxmemory, used_memory;
	bool loading, cluster;
};

struct master {
	struct masters *all;
	size_t index;
	const struct master_address *address;
	enum link_state link;
	struct master_io *io; /* while connecting, greeting, up */
	uv_timer_t timer;     /* back-off, greeting deadline, heartbeat: by the state */
	uv_getaddrinfo_t resolve;
	uint32_t attempts;    /* to connect, since the last success */
	uint32_t addresses;   /* of its name, at the last look; 0: not a name */
	bool tried;           /* up or failed once */
	bool was_up;          /* once at least */
	bool hung;            /* up, but behind with its answers */
	bool heartbeat_out;   /* a heartbeat is under way */
	bool heartbeat_due;   /* … and its time is up, but the loop had not looked at its sockets yet */
	bool closing;         /* the service ends */
	int timers_closed;
	struct master_call *first, *last; /* under way */
	struct master_call *spare;        /* for reuse */
	struct owed_release *owed_first, *owed_last;
	size_t owed_count; /* those that lie here and those under way */
	struct master_info info;
	char last_run_id[48]; /* of the greeting before */
	bool has_info;
	bool has_rtt;
	uint64_t rtt_us;
	char reason[STATUS_REASON_MAX];      /* why the link is down */
	char bar_reason[STATUS_REASON_MAX];  /* why it may not vote; "": it may */
	char soft_reason[STATUS_REASON_MAX]; /* it answers, but only with this error */
	enum redlock_script soft_script;     /* … to this script */
	enum master_state shown;             /* the state last told to the log */
	bool told;                           /* … if any was */
	uint64_t restarted_until_us;         /* until then it may have forgotten leases that are still valid */
	size_t warning_count;
	char warnings[STATUS_WARNINGS_MAX][STATUS_REASON_MAX];
};

struct masters {
	uv_loop_t *loop;
	uint64_t looked_us;  /* all that had arrived by then has been read */
	uint64_t round_us;  /* the last masters_note_round() */
	const struct options *options;
	struct metrics *metrics;
	size_t count;
	struct master list[OPTIONS_MASTERS_MAX];
};

/* master_link.c */
void master_link_start(struct master *master);
void master_link_fail(struct master *master, const char *reason); /* closes and tries again later */
void master_link_close(struct master *master);                    /* closes for good */
void master_link_flush(struct master *master);
void master_link_timer(struct master *master, uint64_t delay_ms);

/* master_greet.c */
void master_greet(struct master *master);       /* link is up: say who we are */
void master_heartbeat_tick(struct master *master);
bool master_info_parse(const char *text, size_t len, struct master_info *ret_info);
void master_judge(struct master *master);       /* bars and warnings from `info` */

/* master_reply.c */
void master_reply_map(enum redlock_script script, const redisReply *reply, struct master_reply *ret_reply);
enum master_error master_error_classify(const char *text, size_t len);

/* master.c */
struct master_call *master_call_push(struct master *master, enum redlock_script script, const char *command, size_t len);
bool master_command(struct master *master, master_raw_fn *reply, int argc, const char *const argv[]);
void master_state_changed(struct master *master);
void master_send_owed(struct master *master);
void master_drop_owed(struct master *master);

#endif
