/* SPDX-License-Identifier: MIT */
/* The masters of the exhaustive check: stores that run the real scripts (store.h). A state of a master is a number, and
 * each script runs only once on a state with the same arguments: its effect is cached. Time stands still.
 *
 * The states live as long as the program. One thread. */
#ifndef SIM_MASTER_H
#define SIM_MASTER_H

#include <stdbool.h>
#include <stdint.h>

#include "server/redlock/redlock.h"
#include "store.h"

#ifndef SIM_OPS
#define SIM_OPS 2
#endif

enum { SIM_KEYS = 3, SIM_HOLDERS = 4, SIM_KEY_TTL_MS = 1000 };
enum sim_lease_kind { SIM_EXCLUSIVE, SIM_PLUS /* shared */, SIM_SLOT };

typedef uint32_t sim_state;

/* The data of a master in a state. */
struct sim_master {
	uint8_t epoch;             /* 0: none */
	bool waited;               /* somebody may wait */
	uint8_t numbers[SIM_KEYS]; /* of each bucket: it or the floor */
	bool is_several[SIM_KEYS];
	uint8_t tokens[SIM_KEYS][SIM_HOLDERS + 1]; /* of each key, 0 after the last one */
	uint8_t queues[SIM_KEYS][SIM_OPS + 1];     /* of each entry, in their order, the operation + 1; likewise */
};

/* In the place of a token: the one under which its lease is kept after its release. */
enum { SIM_KEPT_TOKEN = 0x40 };
/* The token that the 40 digits at `bytes` stand for (sim_token.c). */
uint8_t sim_token_read(const char *bytes);

struct sim_request {
	uint8_t script;
	uint8_t names; /* the keys, a bit each; several: a set, with a bucket for each */
	uint8_t token; /* 0: none */
	uint8_t fence; /* acquire, raise */
	uint8_t epoch;
	uint8_t kind;    /* of enum sim_lease_kind: acquire, and of the entry */
	uint8_t slot;    /* acquire */
	uint8_t most;    /* leases at once, not of an exclusive one */
	uint8_t waiter;  /* the operation + 1; 0: no entry */
	uint8_t arrival; /* of the entry */
	bool leaves;     /* the entry leaves the queue */
	bool keeps;      /* release: nobody else gets it, ever */
	bool repair;     /* acquire: `arrival` is the number that the bucket had; 0: none */
};

/* The effect of a script: its answer and its notification. */
struct sim_effect {
	sim_state state;
	int8_t code;
	uint8_t old;      /* acquire, raise; extend: that of the bucket where the lease is gone */
	uint8_t holder;   /* of code 0: the token */
	bool is_several;  /* likewise: one of several leases */
	bool elsewhere;   /* likewise: another slot is free */
	uint8_t notified; /* bit o: operation o */
	uint8_t up_to;    /* all shared ones up to this arrival are notified, too; 0: none */
};

/* A master with the epoch 1, that floor and the bucket of each key; the processes of all operations are alive. */
sim_state sim_master_new(uint8_t floor, const uint8_t buckets[SIM_KEYS]);
const struct sim_master *sim_master(sim_state state);
const struct sim_effect *sim_master_run(sim_state state, const struct sim_request *request);
bool sim_master_has_token(const struct sim_master *master, unsigned key, uint8_t token);

/* Each returns the state after the event. */
sim_state sim_master_flush(sim_state state);
sim_state sim_master_write_epoch(sim_state state, uint8_t epoch, uint8_t floor);
/* The lease of a token ends early. */
sim_state sim_master_drop(sim_state state, unsigned key, uint8_t token);

#endif
