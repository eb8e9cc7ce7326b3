/* SPDX-License-Identifier: MIT */
/* The loop of one worker: see daemon.h. This file and main.c connect the HTTP side with the lock side.
 *
 * A round of the loop serves descriptors and timers first: replies become events, events become answers. Then
 * on_round() hands out answers and runs the HTTP side until nothing is ready. It writes the pending output of the
 * masters' connections, and of the log, with one call each. So commands of concurrent requests leave together. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "api/calls/calls.h"
#include "api/http/http.h"
#include "daemon.h"
#include "server/base/base.h"
#include "server/leases/leases.h"
#include "server/masters/masters.h"
#include "server/metrics/metrics.h"

enum {
	SETTLE_MS = 1000,   /* serving starts then even without masters, but not while --bootstrap watches them */
	DRAIN_LOOK_MS = 10, /* how often a drain checks whether it is over */
	CLOSING_MS = 250,   /* reserved for closing when a drain is over */
	ACCEPTS_PER_ROUND = 64,
	ACCEPT_PAUSE_MS = 100 /* out of descriptors: look again after this */
};

/* The state of a worker; only its own thread reads it.
 *
 *   TRYING ──► SERVING ──► DRAINING ──► ENDING
 *      └──────────────────────────────────┘ masters that cannot be used together */
enum phase { TRYING, SERVING, DRAINING, ENDING };

/* The part that other threads may read. */
enum state { WORKER_STARTING, WORKER_SERVING, WORKER_ENDED };

struct worker {
	size_t index;
	const struct options *options;
	pthread_t thread;
	uv_loop_t loop;
	uv_prepare_t round;
	uv_async_t wake; /* worker_drain(), worker_reload() or worker_ping() from another thread */
	uv_poll_t api_poll, disconnect_poll;
	uv_timer_t api_timer, settle_timer, drain_timer, accept_timer;
	uv_poll_t listener_polls[OPTIONS_LISTEN_MAX];
	int listeners[OPTIONS_LISTEN_MAX];
	struct masters *masters;
	struct leases *leases;
	struct holds *holds;
	struct api *api;
	bool api_ready; /* api_run() has something to do */
	enum phase phase;
	uint64_t drain_began_us;

	pthread_mutex_t lock; /* of the members below */
	pthread_cond_t changed;
	enum state state;
	bool drain_wanted;
	uint32_t quiet_ms;
	bool loop_ran;   /* the loop has answered `wake` since worker_ping() */
	struct tls *tls; /* references, for the worker's thread to apply; NULL: no change */
	struct keys *keys;
	struct address *addresses; /* of the masters, from the heap; likewise */
};

static void enter_phase(struct worker *worker, enum phase phase)
{
	assert(phase == worker->phase + 1 || (worker->phase == TRYING && phase == ENDING));
	worker->phase = phase;
}

static void set_state(struct worker *worker, enum state state)
{
	pthread_mutex_lock(&worker->lock);
	assert(state >= worker->state);
	worker->state = state;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
}

/* ---- accepting ---- */

static void on_listener_ready(uv_poll_t *poll, int status, int events);

static void poll_listeners(struct worker *worker, bool on)
{
	for (size_t i = 0; i < worker->options->listen_count; i++)
		if (on)
			uv_poll_start(&worker->listener_polls[i], UV_READABLE, on_listener_ready);
		else
			uv_poll_stop(&worker->listener_polls[i]);
}

static void on_accept_timer(uv_timer_t *timer)
{
	poll_listeners(timer->data, true);
}

/* Out of descriptors or memory: the listener stays readable, so polling it would use up the processor. */
static void pause_accepting(struct worker *worker, int error)
{
	log_begin(LOG_WARN, "accept-failed");
	log_text("reason", strerror(error));
	log_end();
	poll_listeners(worker, false);
	uv_timer_start(&worker->accept_timer, on_accept_timer, ACCEPT_PAUSE_MS, 0);
}

static void on_listener_ready(uv_poll_t *poll, int status, int events)
{
	struct worker *worker = poll->data;
	size_t index = (size_t)(poll - worker->listener_polls);
	assert(index < worker->options->listen_count);
	int listener = worker->listeners[index];
	bool tls = worker->options->listen[index].tls;
	(void)status, (void)events;
	for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
		struct sockaddr_storage address;
		socklen_t len = sizeof address;
		int fd = accept4(listener, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			api_accept(worker->api, fd, (struct sockaddr *)&address, len, tls);
			worker->api_ready = true;
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			pause_accepting(worker, errno);
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

/* ---- the round ---- */

static void on_api_ready(uv_poll_t *poll, int status, int events)
{
	(void)status, (void)events;
	((struct worker *)poll->data)->api_ready = true;
}

static void on_disconnect(uv_poll_t *poll, int status, int events)
{
	struct worker *worker = poll->data;
	(void)status, (void)events;
	api_check_disconnects(worker->api);
	worker->api_ready = true;
}

static void on_api_timer(uv_timer_t *timer)
{
	((struct worker *)timer->data)->api_ready = true;
}

static void run_api(struct worker *worker)
{
	assert(worker->api && worker->phase != ENDING);
	worker->api_ready = false;
	api_run(worker->api);
	int timeout_ms = api_timeout_ms(worker->api);
	if (timeout_ms < 0)
		uv_timer_stop(&worker->api_timer);
	else
		uv_timer_start(&worker->api_timer, on_api_timer, (uint64_t)timeout_ms, 0);
}

/* ---- starting and ending ---- */

/* True if the masters can be used together. */
static bool check_masters(struct worker *worker)
{
	const struct address *masters = worker->options->masters;
	size_t first, second;
	if (masters_find_duplicate(worker->masters, &first, &second)) {
		log_begin(LOG_ERROR, "same-master-twice");
		log_text("first", masters[first].shown);
		log_text("second", masters[second].shown);
		log_text("message",
			 "--masters: two addresses lead to one server; each master must be a server of its own");
	} else if (masters_find_other_digest(worker->masters, &first)) {
		struct master_status status;
		masters_status(worker->masters, first, &status);
		log_begin(LOG_ERROR, "other-digest");
		log_text("master", masters[first].shown);
		log_text("reason", status.reason);
		log_text("message",
			 "--masters: redlockd with another layout, number of masters or --durable-masters uses this "
			 "master; how to change over: docs/how-to/upgrade.md and docs/how-to/replace-a-master.md");
	} else {
		return true;
	}
	log_end();
	return false;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle) && handle->data)
		uv_close(handle, NULL);
}

/* Answers the requests that are left, releases abandoned grants, and writes pending commands. */
static void begin_end(struct worker *worker)
{
	enter_phase(worker, ENDING);
	/* Before their descriptors are closed: libuv removes them from its epoll by number. */
	uv_close((uv_handle_t *)&worker->api_poll, NULL);
	uv_close((uv_handle_t *)&worker->disconnect_poll, NULL);
	api_free(worker->api);
	worker->api = NULL;
	masters_flush(worker->masters);
	masters_close(worker->masters);
	leases_close(worker->leases);
	uv_walk(&worker->loop, close_handle, NULL); /* those of the masters are closing already */
}

static void start_serving(struct worker *worker)
{
	assert(worker->phase == TRYING);
	uv_timer_stop(&worker->settle_timer);
	if (!check_masters(worker)) {
		set_state(worker, WORKER_ENDED);
		begin_end(worker);
		return;
	}
	enter_phase(worker, SERVING);
	poll_listeners(worker, true);
	set_state(worker, WORKER_SERVING);
}

static void on_settle_timer(uv_timer_t *timer)
{
	struct worker *worker = timer->data;
	if (masters_are_watched(worker->masters))
		uv_timer_start(timer, on_settle_timer, SETTLE_MS, 0);
	else
		start_serving(worker);
}

static void on_round(uv_prepare_t *prepare)
{
	struct worker *worker = prepare->data;
	if (worker->phase == TRYING && masters_settled(worker->masters))
		start_serving(worker);
	if (worker->phase == ENDING) /* the masters cannot be used together: ends at once */
		return;
	while (leases_dispatch(worker->leases) || worker->api_ready)
		run_api(worker);
	masters_begin_round(worker->masters);
	masters_flush(worker->masters);
	log_flush();
}

/* ---- draining ---- */

static void on_drain_timer(uv_timer_t *timer)
{
	struct worker *worker = timer->data;
	assert(worker->phase == DRAINING);
	pthread_mutex_lock(&worker->lock);
	uint64_t quiet_us = worker->quiet_ms * UINT64_C(1000);
	pthread_mutex_unlock(&worker->lock);
	uint64_t for_us = clock_now_us() - worker->drain_began_us;
	bool idle = api_busy(worker->api) == 0 && leases_waiting(worker->leases) == 0;
	uint64_t bound_ms = worker->options->drain_ms;
	/* at --drain-ms the program must have ended */
	bound_ms -= bound_ms / 4 < CLOSING_MS ? bound_ms / 4 : CLOSING_MS;
	if ((idle && for_us >= quiet_us) || for_us >= bound_ms * 1000)
		begin_end(worker);
}

static void begin_drain(struct worker *worker)
{
	assert(worker->api);
	enter_phase(worker, DRAINING);
	worker->drain_began_us = clock_now_us();
	api_drain(worker->api);
	leases_drain(worker->leases);
	holds_drain(worker->holds);
	worker->api_ready = true;
	uv_timer_start(&worker->drain_timer, on_drain_timer, 0, DRAIN_LOOK_MS);
}

static void free_addresses(const struct worker *worker, struct address *addresses)
{
	if (addresses) /* they have passwords */
		explicit_bzero(addresses, worker->options->master_count * sizeof *addresses);
	free(addresses);
}

/* Applies a reload, also while draining, since the worker still answers. */
static void apply_reload(struct worker *worker, struct tls *tls, struct keys *keys, struct address *addresses)
{
	if (addresses && worker->phase != ENDING)
		masters_set_addresses(worker->masters, addresses);
	free_addresses(worker, addresses);
	if (tls && worker->phase != ENDING)
		api_set_tls(worker->api, tls);
	if (keys && worker->phase != ENDING)
		api_set_keys(worker->api, keys);
	worker->api_ready = true; /* requests that have lost their rights are answered now */
	tls_unref(tls);
	keys_unref(keys);
}

static void on_wake(uv_async_t *wake)
{
	struct worker *worker = wake->data;
	pthread_mutex_lock(&worker->lock);
	worker->loop_ran = true;
	bool drain = worker->drain_wanted;
	struct tls *tls = worker->tls;
	struct keys *keys = worker->keys;
	struct address *addresses = worker->addresses;
	worker->tls = NULL;
	worker->keys = NULL;
	worker->addresses = NULL;
	pthread_mutex_unlock(&worker->lock);
	apply_reload(worker, tls, keys, addresses);
	if (drain && worker->phase == SERVING)
		begin_drain(worker);
}

void worker_drain(struct worker *worker, uint32_t quiet_ms)
{
	pthread_mutex_lock(&worker->lock);
	worker->quiet_ms = quiet_ms;
	worker->drain_wanted = true;
	if (worker->state != WORKER_ENDED)
		uv_async_send(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}

void worker_reload(struct worker *worker, struct tls *tls, struct keys *keys, const struct address masters[])
{
	pthread_mutex_lock(&worker->lock);
	bool running = worker->state != WORKER_ENDED;
	if (running && tls) {
		tls_unref(worker->tls);
		worker->tls = tls_ref(tls);
	}
	if (running && keys) {
		keys_unref(worker->keys);
		worker->keys = keys_ref(keys);
	}
	if (running && masters) {
		free_addresses(worker, worker->addresses);
		worker->addresses = (struct address *)(void *)memory_copy(
			(const char *)masters, worker->options->master_count * sizeof *masters);
	}
	if (running)
		uv_async_send(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}

void worker_ping(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	worker->loop_ran = false;
	if (worker->state == WORKER_SERVING)
		uv_async_send(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}

bool worker_loop_ran(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	bool loop_ran = worker->loop_ran;
	pthread_mutex_unlock(&worker->lock);
	return loop_ran;
}

/* ---- the thread ---- */

static _Noreturn void fail_start(int error)
{
	log_begin(LOG_ERROR, "start-failed");
	log_text("reason", strerror(error));
	log_end();
	_exit(EXIT_FAILURE);
}

static void make_parts(struct worker *worker)
{
	const struct options *options = worker->options;
	struct metrics *metrics = metrics_worker(worker->index);
	worker->masters = masters_new(&worker->loop, options, metrics);
	worker->leases = leases_new(&worker->loop, options, worker->masters, metrics);
	worker->holds = holds_new(&worker->loop, worker->leases, metrics);
	struct api_config config = {
		.service = calls_service(),
		.options = options,
		.leases = worker->leases,
		.holds = worker->holds,
		.masters = worker->masters,
		.metrics = metrics,
		.max_connections = (options->max_connections + options->workers - 1) / options->workers,
	};
	pthread_mutex_lock(&worker->lock);
	config.tls = worker->tls;
	worker->api = api_new(&config);
	if (!worker->api)
		fail_start(errno);
	api_set_keys(worker->api, worker->keys);
	pthread_mutex_unlock(&worker->lock); /* on_wake() applies both once more, and drops the references */
}

static void init_handles(struct worker *worker)
{
	assert(worker->options->listen_count > 0 && worker->options->listen_count <= OPTIONS_LISTEN_MAX);
	uv_loop_t *loop = &worker->loop;
	uv_timer_t *const timers[] = {&worker->api_timer, &worker->settle_timer, &worker->drain_timer,
				      &worker->accept_timer};
	for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) {
		uv_timer_init(loop, timers[i]);
		timers[i]->data = worker;
	}
	uv_prepare_init(loop, &worker->round);
	worker->round.data = worker;
	uv_prepare_start(&worker->round, on_round);
	uv_poll_init(loop, &worker->api_poll, api_fd(worker->api));
	uv_poll_init(loop, &worker->disconnect_poll, api_disconnect_fd(worker->api));
	worker->api_poll.data = worker->disconnect_poll.data = worker;
	uv_poll_start(&worker->api_poll, UV_READABLE, on_api_ready);
	uv_poll_start(&worker->disconnect_poll, UV_READABLE, on_disconnect);
	for (size_t i = 0; i < worker->options->listen_count; i++) {
		uv_poll_init(loop, &worker->listener_polls[i], worker->listeners[i]);
		worker->listener_polls[i].data = worker;
	}
	uv_timer_start(&worker->settle_timer, on_settle_timer, SETTLE_MS, 0);
}

static void *run_worker(void *arg)
{
	struct worker *worker = arg;
	make_parts(worker);
	init_handles(worker);
	uv_run(&worker->loop, UV_RUN_DEFAULT);
	holds_free(worker->holds);
	leases_free(worker->leases);
	masters_free(worker->masters);
	set_state(worker, WORKER_ENDED);
	log_fini();
	return NULL;
}

struct worker *worker_start(size_t index, const struct options *options, const int listeners[], struct tls *tls,
			    struct keys *keys)
{
	assert(index < options->workers && options->listen_count <= OPTIONS_LISTEN_MAX);
	struct worker *worker = memory_zeroed(1, sizeof *worker);
	worker->index = index;
	worker->options = options;
	worker->tls = tls ? tls_ref(tls) : NULL;
	worker->keys = keys ? keys_ref(keys) : NULL;
	memcpy(worker->listeners, listeners, options->listen_count * sizeof *listeners);
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->changed, NULL);
	int error = uv_loop_init(&worker->loop);
	if (error != 0)
		fail_start(-error);
	uv_async_init(&worker->loop, &worker->wake, on_wake);
	worker->wake.data = worker;
	error = pthread_create(&worker->thread, NULL, run_worker, worker);
	if (error != 0)
		fail_start(error);
	return worker;
}

bool worker_wait_serving(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	while (worker->state == WORKER_STARTING)
		pthread_cond_wait(&worker->changed, &worker->lock);
	bool serving = worker->state == WORKER_SERVING;
	pthread_mutex_unlock(&worker->lock);
	return serving;
}

void worker_join(struct worker *worker)
{
	pthread_join(worker->thread, NULL);
}

void worker_free(struct worker *worker)
{
	assert(worker->state == WORKER_ENDED);
	uv_loop_close(&worker->loop);
	tls_unref(worker->tls);
	keys_unref(worker->keys);
	free_addresses(worker, worker->addresses);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
}
