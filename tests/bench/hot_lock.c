/* SPDX-License-Identifier: MIT */
/* The load generator of the hot-lock benchmark. One thread, one libuv loop, raw HTTP over sockets: as little of the
 * machine as can be is taken from what is measured.
 *
 *   hot_lock loop   many clients want one lock (hot_loop.c)
 *   hot_lock alone  one client wants many locks (hot_alone.c)
 *   hot_lock rate   --rate R [--cuts S[,S…]]: R a second over N connections (hot_rate.c)
 *   hot_lock order  is the order kept? (hot_order.c)
 *
 * Each takes --service S --servers A[,A…] [--waiters N] [--seconds T] [--warmup T] [--repeats N].
 *
 * S is redlockd or etcd, A a host:port. The result is one JSON object on stdout. The exit status is 0 if it ran to its
 * end. */
#include "hot_lock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static void (*bench_begin)(struct bench *bench);

void bench_client_ready(struct bench *bench)
{
	if (++bench->ready == bench->client_count)
		bench_begin(bench);
}

void bench_run(struct bench *bench, unsigned clients, client_event_cb *on_event, void (*begin)(struct bench *bench))
{
	bench_begin = begin;
	bench->client_count = clients;
	bench->clients = calloc(clients, sizeof(*bench->clients));
	if (bench->clients == NULL)
		http_die("out of memory");
	for (unsigned i = 0; i < clients; i++) {
		struct client *client = &bench->clients[i];
		client->owner = bench;
		client->number = i;
		client->server = i % bench->server_count;
		client_open(client, &bench->loop, bench->service, bench->servers[client->server], on_event);
	}
	uv_run(&bench->loop, UV_RUN_DEFAULT);
	free(bench->clients);
}

static void split_servers(struct bench *bench, char *list)
{
	for (char *one = strtok(list, ","); one != NULL; one = strtok(NULL, ",")) {
		if (bench->server_count == BENCH_SERVERS_MAX)
			http_die("too many servers");
		bench->servers[bench->server_count++] = one;
	}
}

static void parse(struct bench *bench, int argc, char **argv)
{
	static const struct option options[] = {
		{"service", required_argument, NULL, 's'},  {"servers", required_argument, NULL, 'a'},
		{"waiters", required_argument, NULL, 'n'},  {"seconds", required_argument, NULL, 't'},
		{"warmup", required_argument, NULL, 'w'},   {"repeats", required_argument, NULL, 'r'},
		{"resource", required_argument, NULL, 'o'}, {"rate", required_argument, NULL, 'p'},
		{"cuts", required_argument, NULL, 'c'},     {NULL, 0, NULL, 0},
	};

	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
		switch (option) {
		case 's': bench->service = service_find(optarg); break;
		case 'a': split_servers(bench, optarg); break;
		case 'n': bench->waiters = (unsigned)strtoul(optarg, NULL, 10); break;
		case 't': bench->seconds = strtod(optarg, NULL); break;
		case 'w': bench->warmup_s = strtod(optarg, NULL); break;
		case 'r': bench->repeats = (unsigned)strtoul(optarg, NULL, 10); break;
		case 'o': bench->resource = optarg; break;
		case 'p': bench->per_second = strtod(optarg, NULL); break;
		case 'c': bench->cuts = optarg; break;
		default: exit(2);
		}
	if (optind + 1 != argc || bench->service == NULL || bench->server_count == 0 || bench->waiters == 0 ||
	    bench->waiters >= BENCH_CLIENTS_MAX || strlen(bench->resource) > 40)
		http_die("usage: see the top of tests/bench/hot_lock.c");
}

/* How much of a processor the generator itself took, in seconds. */
static double own_cpu_s(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(struct bench *bench, json_t *result);
	} modes[] = {
		{"loop", hot_loop},
		{"alone", hot_alone},
		{"order", hot_order},
		{"rate", hot_rate},
	};
	struct bench bench = {.waiters = 1,
			      .repeats = 1,
			      .warmup_s = 0.5,
			      .seconds = 2,
			      .per_second = 1000,
			      .resource = "hot",
			      .cuts = ""};
	json_t *result = json_object();

	parse(&bench, argc, argv);
	uv_loop_init(&bench.loop);
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		if (strcmp(argv[optind], modes[i].name) != 0)
			continue;
		modes[i].run(&bench, result);
		json_object_set_new(result, "own_cpu_s", json_real(own_cpu_s()));
		json_dumpf(result, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
		putchar('\n');
		json_decref(result);
		return uv_loop_close(&bench.loop) == 0 ? 0 : 1;
	}
	http_die("no such mode: %s", argv[optind]);
}
