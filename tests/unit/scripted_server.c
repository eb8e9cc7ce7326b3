/* SPDX-License-Identifier: MIT */
/* See scripted_server.h. The test reads what the thread has seen after scripted_server_end(). */
#include "scripted_server.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUEST_MAX = 16384 };

static struct {
	pthread_t thread;
	const struct scripted_step *steps;
	size_t count;
	char folder[64], seen[REQUEST_MAX], keys[SCRIPTED_MAX][64];
	int listeners[SCRIPTED_SERVERS], orders, end;
} server;

/* Writes the value of a header, or an empty text. */
static const char *header_value(const char *request, const char *name, char ret_value[64])
{
	const char *at = strcasestr(request, name);
	*ret_value = '\0';
	if (at)
		snprintf(ret_value, 64, "%.*s", (int)strcspn(at + strlen(name), "\r"), at + strlen(name));
	return ret_value;
}

/* Reads a request with its body. False: the client has closed the connection. */
static bool read_request(int fd, char request[REQUEST_MAX])
{
	size_t len = 0;
	for (;;) {
		ssize_t got = read(fd, request + len, REQUEST_MAX - 1 - len);
		if (got <= 0)
			return false;
		request[len += (size_t)got] = '\0';
		char value[64], *body = strstr(request, "\r\n\r\n");
		if (body && strlen(body + 4) >= strtoul(header_value(request, "\r\nContent-Length: ", value), NULL, 10))
			return true;
	}
}

static unsigned number_of_key(const char *key)
{
	unsigned i = 0;
	while (server.keys[i][0] != '\0' && strcmp(server.keys[i], key) != 0)
		i++;
	strcpy(server.keys[i], key);
	return i + 1;
}

static void record_request(size_t listener, const char *request)
{
	char value[64], line[REQUEST_MAX];
	int len = snprintf(line, sizeof line, "%zu %.*s", listener, (int)(strstr(request, " HTTP/") - request),
			   request);
	static const char *const names[] = {"Lock-Token: ", "If-None-Match: ", "Authorization: "};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (*header_value(request, names[i], value) != '\0')
			len += snprintf(line + len, sizeof line - (size_t)len, " %s%s", names[i], value);
	if (*header_value(request, "Idempotency-Key: ", value) != '\0')
		len += snprintf(line + len, sizeof line - (size_t)len, " key %u", number_of_key(value));
	const char *body = strstr(request, "\r\n\r\n") + 4;
	snprintf(line + len, sizeof line - (size_t)len, "%s%s\n", *body == '\0' ? "" : " ", body);
	size_t seen = strlen(server.seen);
	snprintf(server.seen + seen, sizeof server.seen - seen, "%s", line);
}

/* Returns when the client has read the answer and closed the connection. */
static void send_answer(int fd, const char *answer)
{
	char text[REQUEST_MAX];
	const char *rest = strchr(answer, ' '), *body = rest ? strpbrk(rest, "{[<") : NULL;
	if (strcmp(answer, "close") != 0) {
		int header = rest && body ? (int)(body - rest - 1) : rest ? (int)strlen(rest) : 0;
		int len = snprintf(text, sizeof text,
				   "HTTP/1.1 %.3s x\r\nConnection: close\r\nContent-Length: %zu\r\n%.*s%s\r\n%s",
				   answer, body ? strlen(body) : 0, header > 1 ? header - 1 : 0, rest ? rest + 1 : "",
				   header > 1 ? "\r\n" : "", body ? body : "");
		ck_assert_int_eq(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
		shutdown(fd, SHUT_WR);
		while (read(fd, text, sizeof text) > 0)
			;
	}
	close(fd);
}

/* Takes the next connection; -1: the test is over. */
static int accept_next(size_t *ret_listener)
{
	struct pollfd fds[SCRIPTED_SERVERS + 1] = {{.fd = server.end, .events = POLLIN}};
	for (size_t i = 0; i < SCRIPTED_SERVERS; i++)
		fds[i + 1] = (struct pollfd){.fd = server.listeners[i], .events = POLLIN};
	poll(fds, SCRIPTED_SERVERS + 1, -1);
	if (fds[0].revents != 0)
		return -1;
	*ret_listener = fds[1].revents != 0 ? 0 : 1;
	return accept4(server.listeners[*ret_listener], NULL, NULL, SOCK_CLOEXEC);
}

/* Tells the client to stop, and waits until it has closed the connection. */
static void stop_client(int fd, char request[REQUEST_MAX])
{
	eventfd_write(server.orders, 1);
	while (read(fd, request, REQUEST_MAX) > 0)
		;
	close(fd);
}

static void *serve(void *arg)
{
	char request[REQUEST_MAX];
	int late = -1, fd;
	size_t listener, step = 0, late_step = 0;
	(void)arg;
	while ((fd = accept_next(&listener)) >= 0) {
		if (!read_request(fd, request)) {
			close(fd);
			continue;
		}
		record_request(listener, request);
		const struct scripted_step *now = step < server.count ? &server.steps[step] : NULL;
		if (now && now->late > 0) {
			late = fd;
			late_step = step;
		} else if (now && strcmp(now->answer, "stop") == 0) {
			stop_client(fd, request);
		} else {
			send_answer(fd,
				    now ? now->answer : "404 {\"code\":\"script-over\",\"detail\":\"script over\"}");
		}
		if (late >= 0 && step == late_step + server.steps[late_step].late) {
			send_answer(late, server.steps[late_step].answer);
			late = -1;
		}
		step++;
	}
	return NULL;
}

void scripted_server_start(const struct scripted_step *steps, size_t count)
{
	strcpy(server.folder, "/tmp/redlockctl-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(server.folder));
	server.steps = steps;
	server.count = count;
	for (int i = 0; i < SCRIPTED_SERVERS; i++) {
		struct sockaddr_un name = {.sun_family = AF_UNIX};
		snprintf(name.sun_path, sizeof name.sun_path, "%s/%d", server.folder, i);
		server.listeners[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(bind(server.listeners[i], (struct sockaddr *)&name, sizeof name), 0);
		ck_assert_int_eq(listen(server.listeners[i], SCRIPTED_MAX), 0);
	}
	server.orders = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	server.end = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

const char *scripted_server_folder(void)
{
	return server.folder;
}

int scripted_server_orders(void)
{
	return server.orders;
}

const char *scripted_server_seen(void)
{
	return server.seen;
}

void scripted_server_end(void)
{
	char path[80];
	eventfd_write(server.end, 1);
	pthread_join(server.thread, NULL);
	for (int i = 0; i < SCRIPTED_SERVERS; i++) {
		snprintf(path, sizeof path, "%s/%d", server.folder, i);
		unlink(path);
	}
	rmdir(server.folder);
}
