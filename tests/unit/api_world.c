/* SPDX-License-Identifier: MIT */
/* A worker without masters for the tests of the HTTP side. See api_world.h. */
#include "api_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/base/base.h"
#include "server/metrics/metrics.h"
#include "suite.h"

struct world world;
struct answer answer;

const char get_healthz[] = "GET /healthz HTTP/1.1\r\n" HOST "\r\n";
const size_t get_healthz_len = sizeof(get_healthz) - 1;
const char post_a[] = "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\n\r\n{\"resource\":\"a\"}";
const size_t post_a_len = sizeof(post_a) - 1;

void open_world(void)
{
	static const char *const addresses[] = {"127.0.0.1:6379", "127.0.0.1:6380", "127.0.0.1:6381"};

	fake_leases_init(&world.leases);
	fake_holds_init(&world.holds);
	fake_masters_init(&world.masters);
	world.config = (struct api_config){.service = calls_service(),
					   .leases = &world.leases,
					   .holds = &world.holds,
					   .masters = &world.masters,
					   .options = &world.options,
					   .max_connections = 100};
	world.options = (struct options){.default_ttl_ms = 30000,
					 .min_ttl_ms = 100,
					 .max_ttl_ms = 60000,
					 .max_wait_ms = 60000,
					 .request_timeout_ms = 10000,
					 .idle_timeout_ms = 60000};
	log_setup(LOG_ERROR, LOG_LOGFMT);
	metrics_init(1, 3, addresses);
	stats_init(0);
	world.config.metrics = metrics_worker(0);
	world.api = api_new(&world.config);
	ck_assert_ptr_nonnull(world.api);
}

void reopen_world(void)
{
	api_free(world.api);
	world.api = api_new(&world.config);
	ck_assert_ptr_nonnull(world.api);
}

void close_world(void)
{
	api_free(world.api);
	log_fini();
}

size_t in_phase(enum connection_phase phase)
{
	const struct connection *connection;
	size_t count = 0;

	TAILQ_FOREACH (connection, &world.api->lists[phase], entry)
		count++;
	return count;
}

void set_nonblocking(int fd)
{
	ck_assert_int_eq(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

int connect_unix(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	set_nonblocking(pair[0]);
	set_nonblocking(pair[1]);
	world.served = pair[1];
	api_accept(world.api, pair[1], (struct sockaddr *)&address, sizeof(address.sun_family), false);
	return pair[0];
}

int connect_tcp(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	ck_assert_int_eq(connect(client, (struct sockaddr *)&address, len), 0);
	world.served = accept(listener, NULL, NULL);
	ck_assert_int_ge(world.served, 0);
	close(listener);
	set_nonblocking(client);
	set_nonblocking(world.served);
	api_accept(world.api, world.served, (struct sockaddr *)&address, len, false);
	return client;
}

void turn(int client, int at_most_ms)
{
	struct pollfd fds[3] = {{.fd = api_fd(world.api), .events = POLLIN},
				{.fd = api_disconnect_fd(world.api), .events = POLLIN},
				{.fd = client, .events = POLLIN}};
	int timeout_ms = api_timeout_ms(world.api);

	if (timeout_ms < 0 || timeout_ms > at_most_ms)
		timeout_ms = at_most_ms;
	poll(fds, client >= 0 ? 3 : 2, timeout_ms);
	if (fds[1].revents != 0)
		api_check_disconnects(world.api);
	api_run(world.api);
	if (fake_leases_dispatch(&world.leases) > 0)
		api_run(world.api);
}

uint64_t now_ms(void)
{
	return clock_now_us() / 1000;
}

unsigned count_answers(bool bodiless)
{
	const char *at = answer.text, *end;
	unsigned count = 0;

	while ((end = strstr(at, "\r\n\r\n")) != NULL) {
		const char *length = strstr(at, "Content-Length: ");
		size_t len = !bodiless && length != NULL && length < end ? (size_t)atoi(length + 16) : 0;
		if (end + 4 + len > answer.text + answer.len)
			break;
		at = end + 4 + len;
		count++;
	}
	return count;
}

void receive(int client)
{
	ssize_t got = 1;

	while (answer.len < sizeof(answer.text) - 1 &&
	       (got = recv(client, answer.text + answer.len, sizeof(answer.text) - 1 - answer.len, MSG_DONTWAIT)) > 0)
		answer.len += (size_t)got;
	answer.text[answer.len] = '\0';
	if (got == 0 || (got < 0 && errno != EAGAIN))
		answer.closed = true;
	if (got < 0 && errno != EAGAIN)
		answer.reset = true;
}

void await(int client, unsigned answers, bool bodiless)
{
	uint64_t end_ms = now_ms() + PATIENCE_MS;

	while (count_answers(bodiless) < answers && !answer.closed) {
		ck_assert_msg(now_ms() < end_ms, "no answer; so far: %s", answer.text);
		turn(client, 50);
		receive(client);
	}
}

void forget(void)
{
	answer.len = 0;
	answer.text[0] = '\0';
	answer.closed = answer.reset = false;
}

void put(int client, const char *bytes, size_t len)
{
	ck_assert_int_eq(send(client, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

void exchange(int client, const char *bytes, size_t len, unsigned answers)
{
	forget();
	put(client, bytes, len);
	await(client, answers, false);
}

int ask(int client, const char *request)
{
	exchange(client, request, strlen(request), 1);
	return answer.len > 12 ? atoi(answer.text + 9) : 0;
}

int ask_body(int client, const char *head, const char *body)
{
	static char request[32 * 1024];

	snprintf(request, sizeof(request), "%s" HOST "Content-Length: %zu\r\n\r\n%s", head, strlen(body), body);
	return ask(client, request);
}

json_t *answer_json(void)
{
	const char *body = strstr(answer.text, "\r\n\r\n");

	ck_assert_ptr_nonnull(body);
	json_t *json = json_loads(body + 4, 0, NULL);
	ck_assert_msg(json != NULL, "no JSON: %s", answer.text);
	return json;
}

void assert_json(const char *path, const char *wanted)
{
	char words[128], *rest;
	json_t *body = answer_json(), *at = body;

	snprintf(words, sizeof words, "%s", path);
	for (char *word = strtok_r(words, "/", &rest); word; word = strtok_r(NULL, "/", &rest))
		at = json_is_array(at) ? json_array_get(at, strtoul(word, NULL, 10)) : json_object_get(at, word);
	char *text = json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT);
	ck_assert_msg(strcmp(text ? text : "", wanted) == 0, "%s: %s instead of %s", path, text, wanted);
	free(text);
	json_decref(body);
}

void assert_code(const char *code)
{
	json_t *json = answer_json();

	HAS("Content-Type: application/problem+json\r\n");
	ck_assert_str_eq(json_string_value(json_object_get(json, "code")), code);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "status")), atoi(answer.text + 9));
	json_decref(json);
}
