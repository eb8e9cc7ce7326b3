/* Several libmicrohttpd daemons in one worker: see house.h. */
#include "daemon_pool.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "http_internal.h"

enum {
	RUN_ROUNDS_MAX = 100, /* of one daemon; what is left then is done in the next run */
	RUN_US_MAX = 2000     /* the same in time: while clients keep it busy, the masters' answers to others lie there */
};

/* NULL where it cannot be started. */
static struct house *house_new(struct api *api, bool tls)
{
	struct houses *houses = &api->houses;

	if (houses->count == HOUSES_MAX)
		return NULL;
	struct house *house = &houses->list[houses->count];
	*house = (struct house){.daemon = api_daemon_start(api, tls), .tls = tls};
	if (house->daemon == NULL)
		return NULL;
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(house->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	struct epoll_event watch = {.events = EPOLLIN, .data.ptr = house};
	assert(info != NULL);
	if (epoll_ctl(houses->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &watch) != 0) {
		MHD_stop_daemon(house->daemon);
		return NULL;
	}
	houses->count++;
	return house;
}

bool houses_init(struct api *api, bool tls)
{
	api->houses.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (api->houses.epoll_fd < 0)
		return false;
	if (house_new(api, false) != NULL && (!tls || house_new(api, true) != NULL))
		return true;
	int error = errno != 0 ? errno : ENOMEM;
	houses_stop(api);
	errno = error;
	return false;
}

void houses_stop(struct api *api)
{
	struct houses *houses = &api->houses;

	while (houses->count > 0)
		MHD_stop_daemon(houses->list[--houses->count].daemon);
	close(houses->epoll_fd);
}

struct house *house_choose(struct api *api, bool tls)
{
	struct houses *houses = &api->houses;
	struct house *emptiest = NULL;

	for (struct house *house = houses->list; house < houses->list + houses->count; house++) {
		if (house->tls != tls)
			continue;
		if (house->connections < HOUSE_CONNECTIONS)
			return house;
		if (emptiest == NULL || house->connections < emptiest->connections)
			emptiest = house;
	}
	struct house *made = house_new(api, tls);
	return made != NULL ? made : emptiest;
}

void houses_trim(struct api *api)
{
	struct houses *houses = &api->houses;
	size_t first_ones = api->tls != NULL ? 2 : 1;

	while (houses->count > first_ones && houses->list[houses->count - 1].connections == 0)
		MHD_stop_daemon(houses->list[--houses->count].daemon);
}

struct house *house_of(struct api *api, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_DAEMON);
	struct houses *houses = &api->houses;

	assert(info != NULL);
	for (struct house *house = houses->list; house < houses->list + houses->count; house++)
		if (house->daemon == info->daemon)
			return house;
	assert(false);
	return NULL;
}

static bool has_more(const struct house *house)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms = 1;

	return MHD_get_timeout(house->daemon, &timeout_ms) == MHD_YES && timeout_ms == 0;
}

bool houses_have_more(const struct api *api)
{
	const struct houses *houses = &api->houses;
	bool more = false;

	for (size_t i = 0; i < houses->count && !more; i++)
		more = houses->list[i].due || has_more(&houses->list[i]);
	return more;
}

/* Once is not enough: what is resumed in one round is answered in the next. */
static void house_run(struct house *house, uint64_t now_us)
{
	house->due = false;
	for (int i = 0; i < RUN_ROUNDS_MAX; i++) {
		MHD_run(house->daemon);
		if (!has_more(house) || (i > 0 && api_now_us() - now_us > RUN_US_MAX))
			break;
	}
}

/* One alone is simply run. */
static void look_who_is_due(struct houses *houses)
{
	struct epoll_event ready[HOUSES_MAX];

	if (houses->count == 1) {
		houses->list[0].due = true;
		return;
	}
	int count = epoll_wait(houses->epoll_fd, ready, HOUSES_MAX, 0);
	for (int i = 0; i < count; i++)
		((struct house *)ready[i].data.ptr)->due = true;
}

void houses_run(struct api *api, uint64_t now_us)
{
	struct houses *houses = &api->houses;

	look_who_is_due(houses);
	for (size_t i = 0; i < houses->count; i++)
		if (houses->list[i].due || has_more(&houses->list[i]))
			house_run(&houses->list[i], now_us);
}
