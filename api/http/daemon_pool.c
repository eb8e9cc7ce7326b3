/* Several libmicrohttpd daemons in one worker. See http_internal.h. Worker's thread. */
#include <assert.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <unistd.h>

#include "http_internal.h"

enum {
	RUN_ROUNDS_MAX = 100, /* of one daemon; the rest is done in the next run */
	/* the same in time: while clients keep a daemon busy, the masters' answers are not read */
	RUN_US_MAX = 2000
};

/* NULL if it cannot be started. */
static struct mhd_daemon *mhd_daemon_new(struct api *api, enum mhd_daemon_kind kind)
{
	struct daemon_pool *daemon_pool = &api->daemon_pool;
	if (daemon_pool->count == DAEMON_POOL_MAX)
		return NULL;
	struct mhd_daemon *mhd_daemon = &daemon_pool->list[daemon_pool->count];
	*mhd_daemon = (struct mhd_daemon){.api = api, .kind = kind};
	TAILQ_INIT(&mhd_daemon->heads);
	mhd_daemon->daemon = daemon_pool->start(mhd_daemon);
	if (!mhd_daemon->daemon)
		return NULL;
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(mhd_daemon->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	struct epoll_event watch = {.events = EPOLLIN, .data.ptr = mhd_daemon};
	assert(info);
	if (epoll_ctl(daemon_pool->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &watch) != 0) {
		MHD_stop_daemon(mhd_daemon->daemon);
		return NULL;
	}
	daemon_pool->count++;
	return mhd_daemon;
}

bool daemon_pool_init(struct api *api, bool tls, mhd_daemon_start_fn *start)
{
	api->daemon_pool = (struct daemon_pool){.start = start};
	api->daemon_pool.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (api->daemon_pool.epoll_fd < 0)
		return false;
	return mhd_daemon_new(api, DAEMON_TCP) && (!tls || mhd_daemon_new(api, DAEMON_TLS));
}

void daemon_pool_stop(struct api *api)
{
	struct daemon_pool *daemon_pool = &api->daemon_pool;
	while (daemon_pool->count > 0)
		MHD_stop_daemon(daemon_pool->list[--daemon_pool->count].daemon);
	assert(daemon_pool->epoll_fd >= 0);
	close(daemon_pool->epoll_fd);
}

struct mhd_daemon *daemon_pool_choose(struct api *api, enum mhd_daemon_kind kind)
{
	struct daemon_pool *daemon_pool = &api->daemon_pool;
	struct mhd_daemon *emptiest = NULL;
	assert(daemon_pool->count > 0);
	for (struct mhd_daemon *mhd_daemon = daemon_pool->list; mhd_daemon < daemon_pool->list + daemon_pool->count;
	     mhd_daemon++) {
		if (mhd_daemon->kind != kind)
			continue;
		if (mhd_daemon->connections < MHD_DAEMON_CONNECTIONS)
			return mhd_daemon;
		if (!emptiest || mhd_daemon->connections < emptiest->connections)
			emptiest = mhd_daemon;
	}
	struct mhd_daemon *made = mhd_daemon_new(api, kind);
	assert(made || emptiest || kind == DAEMON_UNIX);
	if (made)
		return made;
	return emptiest ? emptiest : daemon_pool->list; /* which ends a Unix connection that would only rest */
}

static uint64_t mhd_daemon_wait_ms(const struct mhd_daemon *mhd_daemon)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms = 0;
	if (mhd_daemon->runnable)
		return 0;
	return MHD_get_timeout(mhd_daemon->daemon, &timeout_ms) == MHD_YES ? timeout_ms : UINT64_MAX;
}

uint64_t daemon_pool_wait_ms(const struct api *api)
{
	const struct daemon_pool *daemon_pool = &api->daemon_pool;
	uint64_t wait_ms = UINT64_MAX;
	for (size_t i = 0; i < daemon_pool->count && wait_ms > 0; i++)
		wait_ms = MIN(wait_ms, mhd_daemon_wait_ms(&daemon_pool->list[i]));
	return wait_ms;
}

/* One round is not enough: a connection that is resumed in one is answered in the next. */
static void mhd_daemon_run(struct mhd_daemon *mhd_daemon, uint64_t now_us)
{
	assert(mhd_daemon->daemon);
	mhd_daemon->runnable = false;
	for (int i = 0; i < RUN_ROUNDS_MAX; i++) {
		MHD_run(mhd_daemon->daemon);
		if (mhd_daemon_wait_ms(mhd_daemon) > 0 || (i > 0 && clock_now_us() - now_us > RUN_US_MAX))
			break;
	}
}

/* Marks the daemons whose descriptors show something; a single daemon is always run. */
static void daemon_pool_poll(struct daemon_pool *daemon_pool)
{
	struct epoll_event ready[DAEMON_POOL_MAX];
	if (daemon_pool->count == 1) {
		daemon_pool->list[0].runnable = true;
		return;
	}
	int count = epoll_wait(daemon_pool->epoll_fd, ready, DAEMON_POOL_MAX, 0);
	for (int i = 0; i < count; i++)
		if (ready[i].data.ptr) /* else deferred.c's */
			((struct mhd_daemon *)ready[i].data.ptr)->runnable = true;
}

static bool is_first_of_its_kind(const struct mhd_daemon *mhd_daemon)
{
	const struct mhd_daemon *first = mhd_daemon->api->daemon_pool.list;
	while (first->kind != mhd_daemon->kind)
		first++;
	return first == mhd_daemon;
}

/* Stops the empty daemons at the end of the list, except for the first of each kind. */
static void daemon_pool_trim(struct daemon_pool *daemon_pool)
{
	const struct mhd_daemon *last = &daemon_pool->list[daemon_pool->count - 1];
	for (; last->connections == 0 && !is_first_of_its_kind(last); last--) {
		MHD_stop_daemon(last->daemon);
		daemon_pool->count--;
	}
}

void daemon_pool_run(struct api *api, uint64_t now_us)
{
	struct daemon_pool *daemon_pool = &api->daemon_pool;
	daemon_pool_poll(daemon_pool);
	for (size_t i = 0; i < daemon_pool->count; i++)
		if (mhd_daemon_wait_ms(&daemon_pool->list[i]) == 0)
			mhd_daemon_run(&daemon_pool->list[i], now_us);
	if (api->connections < MHD_DAEMON_CONNECTIONS / 2)
		daemon_pool_trim(daemon_pool);
}
