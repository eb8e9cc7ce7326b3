/* SPDX-License-Identifier: MIT */
/* The clients of fuzz_http.c: real sockets, whose other ends the api serves. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/http/http.h"
#include "fuzz_http.h"

enum { DEAF_BYTES = 2304 }; /* about the least that the kernel keeps for a socket */

/* A pair of TCP sockets over loopback; false where ports are short. One listener for all executions. */
static bool tcp_pair(int pair[2])
{
	static int listener = -1;
	static struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof address;
	if (listener < 0) {
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		int first = socket(AF_INET, SOCK_STREAM, 0);
		/* out of the way: the descriptors of an execution are the lowest */
		listener = fcntl(first, F_DUPFD, 200);
		close(first);
		MUST(bind(listener, (struct sockaddr *)&address, len) == 0 && listen(listener, 4) == 0,
		     "no listener: %s", strerror(errno));
		MUST(getsockname(listener, (struct sockaddr *)&address, &len) == 0, "no address");
	}
	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(pair[0], (struct sockaddr *)&address, sizeof address) != 0) {
		close(pair[0]);
		return false;
	}
	pair[1] = accept(listener, NULL, NULL);
	return true;
}

static int serving[256]; /* by descriptor */

int client_serving(int fd)
{
	return fd >= 0 && fd < 256 ? serving[fd] : -1;
}

void client_open(struct api *api, struct client *client)
{
	struct sockaddr_un unix_address = {.sun_family = AF_UNIX};
	struct sockaddr_in tcp_address = {.sin_family = AF_INET};
	int pair[2];
	client->tcp = client->tcp && tcp_pair(pair);
	MUST(client->tcp || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "no sockets: %s", strerror(errno));
	fcntl(pair[0], F_SETFL, O_NONBLOCK | O_RDWR);
	fcntl(pair[1], F_SETFL, O_NONBLOCK | O_RDWR);
	client->fd = pair[0];
	static int connections;
	MUST(pair[1] >= 0 && pair[1] < 256, "descriptor %d", pair[1]);
	serving[pair[1]] = client->served = connections++;
	client->lossy = client->deaf;
	client->len = 0;
	if (client->deaf) {
		int size = DEAF_BYTES;
		setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	}
	tcp_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (client->tcp)
		api_accept(api, pair[1], (struct sockaddr *)&tcp_address, sizeof tcp_address, false);
	else
		api_accept(api, pair[1], (struct sockaddr *)&unix_address, sizeof unix_address.sun_family, false);
}

void client_send(struct client *client, const char *bytes, size_t len)
{
	if (len > 0)
		(void)!send(client->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void client_read(struct client *client)
{
	ssize_t got;
	if (client->fd < 0 || client->deaf)
		return;
	while (client->len < ANSWERS_MAX &&
	       (got = recv(client->fd, client->text + client->len, ANSWERS_MAX - client->len, MSG_DONTWAIT)) > 0)
		client->len += (size_t)got;
	client->lossy = client->lossy || client->len == ANSWERS_MAX;
}

void client_close(struct client *client, bool reset)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};
	if (client->fd < 0)
		return;
	if (reset) {
		client->lossy = true;
		setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
	} else {
		client->deaf = false;
		client_read(client);
	}
	close(client->fd);
	client->fd = -1;
}
