/* SPDX-License-Identifier: MIT */
/* One measurement: what was asked for, the clients, and what came out. See hot_lock.c. */
#pragma once

#include <jansson.h>
#include <uv.h>

#include "hot_client.h"
#include "hot_figures.h"

enum { BENCH_SERVERS_MAX = 8, BENCH_CLIENTS_MAX = 2048 };

struct bench {
	/* The options. */
	const struct service *service;
	const char *servers[BENCH_SERVERS_MAX];
	unsigned server_count, waiters, repeats;
	double warmup_s, seconds, per_second;
	const char *resource, *cuts;

	uv_loop_t loop;
	struct client *clients; /* client_count of them; client i talks to server i modulo server_count */
	unsigned client_count, ready;
};

/* Opens the clients and calls `begin` when all are ready, then runs the loop until nothing is left in it. */
void bench_run(struct bench *bench, unsigned clients, client_event_cb *on_event, void (*begin)(struct bench *bench));

/* To be called for CLIENT_READY. */
void bench_client_ready(struct bench *bench);

/* Each adds its figures to `result`. */
void hot_loop(struct bench *bench, json_t *result);
void hot_alone(struct bench *bench, json_t *result);
void hot_rate(struct bench *bench, json_t *result);
void hot_order(struct bench *bench, json_t *result);
