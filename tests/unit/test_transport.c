/* SPDX-License-Identifier: MIT */
/* Connections to Redis in the loop, against a server of the test's own that answers what no Redis would. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "server/transport/transport.h"
#include "suite.h"

enum { PATIENCE_MS = 10000 };

/* What a server says, to so many commands (and SUBSCRIBE), and what becomes of the connection. */
struct story {
	unsigned commands;
	bool subscribes;
	const char *says;
	unsigned answers, messages; /* that arrive before the end */
	const char *reason;
	enum transport_end how;
};

#define SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
#define MESSAGE "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n"
#define CLOSED "connection: Server closed the connection"
#define UNASKED "protocol: an answer to no command"

static const struct story stories[] = {
	{0, false, "+OK\r\n", 0, 0, UNASKED, TRANSPORT_PROTOCOL},
	{0, false, ":1\r\n:2\r\n", 0, 0, UNASKED, TRANSPORT_PROTOCOL},
	{0, false, "$-1\r\n", 0, 0, UNASKED, TRANSPORT_PROTOCOL},
	{0, false, "*0\r\n", 0, 0, UNASKED, TRANSPORT_PROTOCOL},
	{0, false, MESSAGE, 0, 0, UNASKED, TRANSPORT_PROTOCOL},
	{0, false, "-ERR not \x1b you\r\n", 0, 0, "connection: ERR not ? you", TRANSPORT_LOST},
	{1, false, "+OK\r\n:1\r\n", 1, 0, UNASKED, TRANSPORT_PROTOCOL},
	{1, false, MESSAGE MESSAGE, 1, 0, UNASKED, TRANSPORT_PROTOCOL},
	{2, false, "+OK\r\n-ERR no\r\n-ERR more\r\n", 2, 0, "connection: ERR more", TRANSPORT_LOST},
	{3, false, "+OK\r\n", 1, 0, CLOSED, TRANSPORT_LOST},
	{1, false, "*1000000000\r\n", 0, 0, "protocol: a reply of more than 20480 elements", TRANSPORT_PROTOCOL},
	{1, false, "HTTP/1.1 400\r\n", 0, 0, "protocol: this is no Redis server: ", TRANSPORT_PROTOCOL},
	{0, true, SUBSCRIBED MESSAGE MESSAGE, 0, 3, CLOSED, TRANSPORT_LOST},
	{1, true, "+OK\r\n" SUBSCRIBED MESSAGE, 1, 2, CLOSED, TRANSPORT_LOST},
	{0, true, "-NOPERM c\r\n", 0, 0, "NOPERM c", TRANSPORT_REFUSED},
	{0, true, "-\r\n", 0, 0, "an error without words", TRANSPORT_REFUSED},
	{0, false, "-\r\n", 0, 0, "connection: an error without words", TRANSPORT_LOST},
	{1, true, "-ERR password\r\n-NOAUTH c\r\n", 1, 0, "NOAUTH c", TRANSPORT_REFUSED},
	{0, true, SUBSCRIBED "+OK\r\n", 0, 1, UNASKED, TRANSPORT_PROTOCOL},
	{0, true, SUBSCRIBED ":1\r\n", 0, 1, UNASKED, TRANSPORT_PROTOCOL},
	{0, true, SUBSCRIBED "$-1\r\n", 0, 1, UNASKED, TRANSPORT_PROTOCOL},
	{0, true, SUBSCRIBED "*-1\r\n", 0, 1, UNASKED, TRANSPORT_PROTOCOL},
	{0, true, SUBSCRIBED "*0\r\n", 0, 1, UNASKED, TRANSPORT_PROTOCOL},
	{0, true, SUBSCRIBED "*3\r\n:1\r\n:2\r\n:3\r\n", 0, 1, UNASKED, TRANSPORT_PROTOCOL},
	{0, true, SUBSCRIBED "*3\r\n*0\r\n*0\r\n*0\r\n", 0, 1, UNASKED, TRANSPORT_PROTOCOL},
	{0, true, SUBSCRIBED "*2\r\n$7\r\nmessage\r\n$1\r\nc\r\n", 0, 1, UNASKED, TRANSPORT_PROTOCOL},
	{0, true, "*3\r\n$-1\r\n$1\r\nc\r\n:1\r\n", 0, 0, UNASKED, TRANSPORT_PROTOCOL},
};

/* The last command is written when the server has spoken and closed. */
static bool late;
/* The kernel takes no more descriptors to watch. */
static bool unwatched;

/* ---- a server ---- */

static struct {
	int listener;
	struct sockaddr_un address;
	const struct story *story;
	pthread_t thread;
} server;

/* One connection: it speaks once it has heard something, if anything is to be heard. */
static void *serve(void *arg)
{
	const struct story *story = server.story;
	char bytes[4096];
	(void)arg;
	int fd = accept(server.listener, NULL, NULL);
	if ((story->commands > 0 || story->subscribes) && recv(fd, bytes, sizeof bytes, 0) <= 0)
		ck_abort_msg("nothing was sent");
	send(fd, story->says, strlen(story->says), MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	while (!late && recv(fd, bytes, sizeof bytes, 0) > 0)
		;
	close(fd);
	return NULL;
}

static void start_server(const struct story *story)
{
	char folder[] = "/tmp/redlockd-test-XXXXXX";
	ck_assert_ptr_nonnull(mkdtemp(folder));
	server.story = story;
	server.address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(server.address.sun_path, sizeof server.address.sun_path, "%s/socket", folder);
	server.listener = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(server.listener, (struct sockaddr *)&server.address, sizeof server.address), 0);
	ck_assert_int_eq(listen(server.listener, 5), 0);
	ck_assert_int_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void end_server(void)
{
	if (!late)
		pthread_join(server.thread, NULL);
	close(server.listener);
	unlink(server.address.sun_path);
	*strrchr(server.address.sun_path, '/') = '\0';
	rmdir(server.address.sun_path);
}

/* ---- a client ---- */

static struct client {
	uv_loop_t loop;
	struct address address;
	struct transport_connection *connection; /* NULL: it has ended */
	const struct story *story;
	unsigned answers, lost, messages;
	enum transport_end how;
	bool closes; /* with the first answer */
	bool connected, wrote_late;
	char reason[TRANSPORT_REASON_MAX];
} client;

static void on_answer(void *arg, const redisReply *reply)
{
	(void)arg;
	if (client.answers + client.lost == client.story->commands) {
		ck_assert(reply && reply->type == REDIS_REPLY_ARRAY);
		client.messages++;
		return;
	}
	if (reply)
		client.answers++;
	else
		client.lost++;
	if (!client.closes || client.answers + client.lost > 1)
		return;
	transport_close(client.connection);
	client.connection = NULL;
}

static void send_command(void)
{
	transport_send(client.connection, 1, &(struct transport_word){"PING", 4});
}

static void on_connected(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i + late < client.story->commands; i++)
		send_command();
	client.connected = true;
	if (client.story->subscribes)
		transport_subscribe(client.connection, "c");
}

static void on_ended(void *arg, const char *reason, enum transport_end how)
{
	(void)arg;
	snprintf(client.reason, sizeof client.reason, "%s", reason);
	client.how = how;
	client.connection = NULL;
}

static void on_patience(uv_timer_t *timer)
{
	(void)timer;
	ck_abort_msg("the connection does not end");
}

static void on_prepare(uv_prepare_t *prepare)
{
	if (!client.connection) {
		uv_close((uv_handle_t *)prepare, NULL);
		return;
	}
	transport_flush(client.connection);
	if (!late || !client.connected || client.wrote_late)
		return;
	pthread_join(server.thread, NULL);
	client.wrote_late = true;
	send_command();
	transport_flush(client.connection);
}

static const struct transport_events events = {NULL, on_connected, on_answer, on_ended};

static void connect_client(void)
{
	int backend = uv_backend_fd(&client.loop), epoll = dup(backend), none = open("/dev/null", O_RDWR);
	if (unwatched)
		dup2(none, backend);
	client.connection = transport_connect(&client.loop, &client.address, 0, NULL, &events, NULL);
	dup2(epoll, backend);
	close(epoll);
	close(none);
}

/* Until the connection has ended, and all of it is freed. */
static void live_through(const struct story *story, bool closes)
{
	static uv_timer_t patience;
	static uv_prepare_t prepare;
	start_server(story);
	client = (struct client){.story = story, .closes = closes, .address.is_unix = true};
	strcpy(client.address.host, server.address.sun_path);
	uv_loop_init(&client.loop);
	uv_timer_init(&client.loop, &patience);
	uv_timer_start(&patience, on_patience, PATIENCE_MS, 0);
	uv_unref((uv_handle_t *)&patience);
	uv_prepare_init(&client.loop, &prepare);
	uv_prepare_start(&prepare, on_prepare);
	connect_client();
	uv_run(&client.loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&patience, NULL);
	uv_run(&client.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&client.loop), 0);
	end_server();
}

TEST_EACH(a_server_answers_what_nobody_asked, 0, sizeof stories / sizeof *stories)
{
	const struct story *story = &stories[_i];
	live_through(story, false);
	ck_assert_uint_eq(client.answers, story->answers);
	ck_assert_uint_eq(client.lost, story->commands - story->answers);
	ck_assert_uint_eq(client.messages, story->messages);
	ck_assert_msg(strncmp(client.reason, story->reason, strlen(story->reason)) == 0, "%s", client.reason);
	ck_assert_int_eq(client.how, story->how);
}

TEST(closing_from_within_an_answer_loses_the_others)
{
	static const struct story story = {.commands = 3, .says = "+OK\r\n+OK\r\n+OK\r\n:1\r\n"};
	live_through(&story, true);
	ck_assert_uint_eq(client.answers, 1);
	ck_assert_uint_eq(client.lost, 2);
	ck_assert_str_eq(client.reason, "");
}

TEST(a_write_that_fails_loses_no_answer)
{
	static const struct story story = {.commands = 3, .says = "+OK\r\n+OK\r\n"};
	late = true;
	live_through(&story, false);
	ck_assert_uint_eq(client.answers, 2);
	ck_assert_uint_eq(client.lost, 1);
	ck_assert_str_eq(client.reason, CLOSED);
}

TEST(a_descriptor_that_cannot_be_watched_ends_the_connection_alone)
{
	static const struct story story = {.says = ""};
	unwatched = true;
	live_through(&story, false);
	ck_assert_str_eq(client.reason, "connection: invalid argument");
}
