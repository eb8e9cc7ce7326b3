/* The libmicrohttpd daemons of one worker. */
#ifndef MHD_DAEMON_H
#define MHD_DAEMON_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api;

/* One daemon and how many connections it has. The library goes through all suspended connections of a daemon whenever
 * it resumes one, so ten thousand that wait for a lock would slow down everybody who is with them: they are spread over
 * as many daemons as it takes, and who does not wait suffers from few. */
struct mhd_daemon {
	struct MHD_Daemon *daemon;
	bool tls;
	bool due; /* it has something to do */
	size_t connections;
};

enum { DAEMON_POOL_MAX = 64, MHD_DAEMON_CONNECTIONS = 512 };

/* The MHD daemons of one worker; those that are full come first. */
struct daemon_pool {
	int epoll_fd; /* readable when one of them has something to do */
	size_t count;
	struct mhd_daemon list[DAEMON_POOL_MAX];
};

/* Begins with one for plain HTTP, and one for TLS where `tls`. False where it cannot be started; errno says why, and
 * nothing is left. */
bool daemon_pool_init(struct api *api, bool tls);
/* Ends all connections, without a word. */
void daemon_pool_stop(struct api *api);

/* Where a new connection goes: the first one that has room, or a new one, or the one with the fewest. */
struct mhd_daemon *mhd_daemon_choose(struct api *api, bool tls);

/* Ends those at the end of the list that are empty, but for the first of each kind. Not from within a callback of the
 * library. */
void daemon_pool_trim(struct api *api);

/* Whose connection it is. */
struct mhd_daemon *mhd_daemon_of(struct api *api, struct MHD_Connection *mhd);

/* Runs those that have something to do, each until it has nothing more, or twice where 2 ms have passed since
 * `now_us`. */
void daemon_pool_run(struct api *api, uint64_t now_us);

/* True if one of them has something to do that its descriptor does not show. */
bool daemon_pool_have_more(const struct api *api);

/* libmicrohttpd's own part in api.c. */
struct MHD_Daemon *api_daemon_start(struct api *api, bool tls);

#endif
