/* SPDX-License-Identifier: MIT */
/* Commands of the daemon, their answers and notifications, in the seeded simulator. Included by daemon_world.h, which
 * has the constants. */
#ifndef DAEMON_COMMAND_H
#define DAEMON_COMMAND_H

/* An entry of a queue; 0, 0: none. */
struct entry {
	uint64_t arrival, replica;
};

/* A master's notification of the next waiter. */
struct notification {
	struct store_text *text; /* NULL: the confirmation of SUBSCRIBE */
	/* For the checks: its content, and the lease whose release caused it (or NONE). Arrival 0: it names
	 * no waiter. */
	struct entry entry;
	uint64_t last; /* shared waiters up to this arrival are notified, too; 0: none */
	uint8_t key;
	uint16_t lease;
};

/* Those of the core and of the guard have the numbers of the scripts. */
enum command_kind {
	COMMAND_OK, /* any answer but an error is accepted */
	COMMAND_EPOCH = REDLOCK_SCRIPT_EPOCH,
	COMMAND_INFO = SCRIPTS_COUNT,
	COMMAND_CLIENT_ID,
	COMMAND_CONFIG, /* GET, of a durable master */
	COMMAND_LOAD,   /* of a script: `script` */
	COMMAND_NUMBER, /* is answered with `code` */
	COMMAND_ERROR,  /* is answered with `text` */
	COMMAND_TRIAL,  /* a script on the keys of a check: answered with `code` first */
	COMMAND_ALIVE,  /* SET of an alive key; NIL if XX does not find it */
	COMMAND_READ,   /* of the leases of a key */
	COMMAND_SCAN
};

/* A command with its arguments, which the store of a master carries out. One block: free(). */
struct sent {
	size_t keys, argc; /* keys: of a script */
	const char **argv;
	size_t *lens;
};

/* The arguments of a script that the checks and the story need. */
struct script_request {
	unsigned key;
	uint32_t names; /* of a set: its keys, a bit each; 0: `key` alone */
	uint64_t token; /* 0: none */
	uint64_t ttl_ms, fence;
	struct entry entry;
	uint64_t wait_ms; /* 0: the entry leaves the queue */
	bool any_epoch, is_repair, clocked;
};

/* The same of its answer; 0: not in it. */
struct script_answer {
	int code;
	uint64_t old;                         /* acquire, raise */
	uint64_t fence;                       /* fences */
	uint64_t beat, epoch, run_id, marker; /* epoch */
};

struct command {
	uint8_t kind, script;
	bool waits;     /* for its answer at the process */
	bool travels;   /* a message has it */
	bool no_script; /* NOSCRIPT */
	bool only_if_there, evicts;
	STAILQ_ENTRY(command) waiting; /* of its connection */
	uint16_t next;                 /* of its message */
	uint16_t also;                 /* of a batch: the next one */
	uint32_t number;               /* of its connection */
	const char *text;              /* ERROR */
	int code;
	uint64_t run_at, latest; /* true time: when it is carried out; its latest time, 0: none */
	/* INFO, CLIENT ID */
	uint64_t run_id, uptime_s;
	uint32_t client_id, evicted;
	struct sent *sent; /* NULL: no store carries it out */
	redisReply *reply; /* of the store; NULL: daemon_reply.c makes one */
	struct script_request request;
	struct script_answer answer;
};

#endif
