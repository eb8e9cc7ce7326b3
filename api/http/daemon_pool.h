/* The libmicrohttpd daemons of one worker. */
#ifndef HOUSE_H
#define HOUSE_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api;

/* One daemon and how many connections it has. The library goes through all suspended connections of a daemon whenever it resumes one, so ten thousand that wait
 * for a lock would slow down everybody who is with them: they are spread over as many daemons as it takes, and who does not wait suffers from few. */
struct house {
	struct MHD_Daemon *daemon;
	bool tls;
	bool due;           /* it has something to do */
	size_t connections;
};

enum { HOUSES_MAX = 64, HOUSE_CONNECTIONS = 512 };

/* The houses of one worker; those that are full come first. */
struct houses {
	int epoll_fd; /* readable when one of them has something to do */
	size_t count;
	struct house list[HOUSES_MAX];
};

/* Begins with one for plain HTTP, and one for TLS where `tls`. False where it cannot be started; errno says why, and nothing is left. */
bool houses_init(struct api *api, bool tls);
/* Ends all connections, without a word. */
void houses_stop(struct api *api);

/* Where a new connection goes: the first one that has room, or a new one, or the one with the fewest. */
struct house *house_choose(struct api *api, bool tls);

/* Ends those at the end of the list that are empty, but for the first of each kind. Not from within a callback of the library. */
void houses_trim(struct api *api);

/* Whose connection it is. */
struct house *house_of(struct api *api, struct MHD_Connection *mhd);

/* Runs those that have something to do, each until it has nothing more, or twice where 2 ms have passed since `now_us`. */
void houses_run(struct api *api, uint64_t now_us);

/* True if one of them has something to do that its descriptor does not show. */
bool houses_have_more(const struct api *api);

/* libmicrohttpd's own part in api.c. */
struct MHD_Daemon *api_daemon_start(struct api *api, bool tls);

#endif
