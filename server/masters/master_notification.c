/* What this worker says and hears about the lines in which requests wait (server/scripts/line_*.lua), for as long as
 * any of its own waits:
 *
 *   says   "I am alive", a key on each master that runs out after a second, set anew every 300 ms over the master's
 *          connection;
 *   hears  whose turn it is, on the channel {prefix}redlockd:wake, over a second connection to each master, since one
 *          that has subscribed takes no other commands (RESP2). Opened with the first waiter, kept until the master is
 *          lost. Before the master's first vote it is opened, too, to see whether the channel may be had
 *          (master_check.c), and closed again.
 *
 * A master on which the key had run out may have dropped our places, and while the second connection was not there we
 * heard nothing: both are told as a missed notification. All on the worker's thread. */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "master_internal.h"
#include "server/base/base.h"

enum { QUEUE_TICK_MS = 300, QUEUE_OPENING_MS = 1000, ENTRY_LEN = MASTER_REPLICA_LEN + 1 + 16 };

_Static_assert(3 * QUEUE_TICK_MS * UINT64_C(1000) < REDLOCK_ALIVE_US,
	       "a word may be lost, and we still count as alive");

/* ---- hearing ---- */

static void drop(struct master *master)
{
	redisAsyncContext *context = master->notification.context;
	master->notification.context = NULL;
	if (context)
		redisAsyncFree(context);
}

/* "message", channel, "replica:arrival key" */
static void parse_notification(struct master *master, const char *text, size_t len)
{
	const struct masters *masters = master->all;
	size_t prefix_len = strlen(masters->options->key_prefix), head = ENTRY_LEN + 1;
	if (len <= head + prefix_len || text[MASTER_REPLICA_LEN] != ':' || text[ENTRY_LEN] != ' ' ||
	    memcmp(text + head, masters->options->key_prefix, prefix_len) != 0)
		return;
	struct masters_notification call = {.master = (uint8_t)master->index,
					    .ours = memcmp(text, masters->replica, MASTER_REPLICA_LEN) == 0};
	for (size_t i = MASTER_REPLICA_LEN + 1; i < ENTRY_LEN; i++) {
		if (text[i] < '0' || text[i] > '9')
			return;
		call.arrival = call.arrival * 10 + (uint64_t)(text[i] - '0');
	}
	call.resource = text + head + prefix_len;
	call.resource_len = len - head - prefix_len;
	masters->notification_events.notified(masters->notification_events.arg, &call);
}

/* hiredis calls it for the answer to SUBSCRIBE, for each message, and with NULL at the end. */
static void on_word(redisAsyncContext *context, void *raw, void *privdata)
{
	struct master *master = context->data;
	const redisReply *reply = raw;
	(void)privdata;
	if (!reply || !master || master->notification.context != context)
		return;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || reply->element[0]->type != REDIS_REPLY_STRING)
		return;
	if (strcmp(reply->element[0]->str, "subscribe") == 0) {
		master->notification.subscribed = true;
		master->all->note_subscribed(master, MASTER_ERROR_OTHER, NULL);
		if (master->all->has_waiters)
			master->all->notification_events.missed(master->all->notification_events.arg);
		else
			drop(master); /* it was to be seen whether it may be had */
	} else if (strcmp(reply->element[0]->str, "message") == 0 && reply->element[2]->type == REDIS_REPLY_STRING)
		parse_notification(master, reply->element[2]->str, (size_t)reply->element[2]->len);
}

static void on_disconnect(const redisAsyncContext *context, int status)
{
	struct master *master = context->data;
	(void)status;
	if (!master || master->notification.context != context)
		return;
	master->notification.context = NULL; /* the next tick opens another one */
	/* hiredis takes an error in answer to SUBSCRIBE (no right to the channel) for the server's farewell. Then only
	 * the timers are left to those who wait. */
	bool told = context->err == REDIS_ERR_OTHER;
	const char *why = context->errstr[0] ? context->errstr : "the second connection was closed";
	enum master_error error = told ? master_error_classify(why, strlen(why)) : MASTER_ERROR_LOST;
	if (told)
		master_state_doubt(master, error, why, strlen(why));
	master->all->note_subscribed(master, error, why);
}

static void on_connect(const redisAsyncContext *context, int status)
{
	const struct master *master = context->data;
	if (status != REDIS_OK)
		on_disconnect(context, status);
	else if (master)
		master_io_set_options(context->c.fd, master->link.address->is_unix);
}

/* To wherever the first connection leads: its name is resolved already. */
static redisAsyncContext *connect_beside(const struct master *master)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	char host[INET6_ADDRSTRLEN];
	if (master->link.address->is_unix)
		return redisAsyncConnectUnix(master->link.address->host);
	if (getpeername(master->link.io->context->c.fd, (struct sockaddr *)&peer, &len) != 0)
		return NULL;
	bool v6 = peer.ss_family == AF_INET6;
	const void *address = v6 ? (const void *)&((struct sockaddr_in6 *)&peer)->sin6_addr
				 : (const void *)&((struct sockaddr_in *)&peer)->sin_addr;
	if (!inet_ntop(peer.ss_family, address, host, sizeof host))
		return NULL;
	return redisAsyncConnect(host, master->link.address->port);
}

static bool subscribe(struct master *master, redisAsyncContext *context)
{
	const struct master_address *address = master->link.address;
	const char *channel = master->all->wake_channel;
	int sent = REDIS_OK;
	if (address->password[0] && address->user[0])
		sent = redisAsyncCommand(context, NULL, NULL, "AUTH %s %s", address->user, address->password);
	else if (address->password[0])
		sent = redisAsyncCommand(context, NULL, NULL, "AUTH %s", address->password);
	return sent == REDIS_OK && redisAsyncCommand(context, on_word, NULL, "SUBSCRIBE %s", channel) == REDIS_OK;
}

/* Opens the second connection where the first one is up and it is not there, or is still that to a server before. */
static void listen_to(struct master *master)
{
	uint64_t now_us = clock_now_us();
	bool in_time = master->notification.subscribed ||
		       now_us < master->notification.tried_us + QUEUE_OPENING_MS * UINT64_C(1000);
	if (master->notification.context && in_time && master->notification.beside_us == master->up_us)
		return;
	drop(master);
	master->notification.tried_us = now_us;
	master->notification.subscribed = false;
	redisAsyncContext *context = connect_beside(master);
	if (!context)
		return;
	char why[STATUS_REASON_MAX]; /* the same as the first connection's will be, which tells it */
	if (context->err || !master_io_attach(master->all->loop, context, master->link.address, why)) {
		redisAsyncFree(context);
		return;
	}
	context->data = master;
	master->notification.context = context;
	master->notification.beside_us = master->up_us;
	redisAsyncSetConnectCallback(context, on_connect);
	redisAsyncSetDisconnectCallback(context, on_disconnect);
	if (!subscribe(master, context))
		drop(master);
}

void master_notification_check(struct master *master)
{
	if (master->notification.context && master->notification.subscribed &&
	    master->notification.beside_us == master->up_us)
		master->all->note_subscribed(master, MASTER_ERROR_OTHER, NULL);
	else
		listen_to(master);
}

/* ---- saying ---- */

static void say_alive(struct master *master);

static void on_alive(struct master *master, const redisReply *reply)
{
	struct masters *masters = master->all;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		master_state_doubt_reply(master, reply);
	if (!reply || reply->type != REDIS_REPLY_NIL || !masters->has_waiters)
		return;
	say_alive(master); /* it had run out, or the master has forgotten it */
	masters->notification_events.missed(masters->notification_events.arg);
}

static void say_alive(struct master *master)
{
	const char *set[] = {"SET", master->all->alive_key, "", "PX", ALIVE_MS_TEXT};
	master_command_send(master, NULL, 5, set);
}

static void say_still_alive(struct master *master)
{
	const char *set[] = {"SET", master->all->alive_key, "", "XX", "PX", ALIVE_MS_TEXT};
	master_command_send(master, on_alive, 6, set);
}

static bool is_reachable(const struct master *master)
{
	return master->link.state == LINK_UP && !master->hung;
}

static void on_tick(uv_timer_t *timer)
{
	struct masters *masters = timer->data;
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		if (!is_reachable(master))
			continue;
		say_still_alive(master);
		if (master->check.passed) /* else master_check() tries */
			listen_to(master);
	}
}

/* ---- the face ---- */

void master_notification_init(struct masters *masters,
			      void (*note_subscribed)(struct master *master, enum master_error error,
						      const char *refused))
{
	masters->note_subscribed = note_subscribed;
	const char *prefix = masters->options->key_prefix;
	snprintf(masters->replica, sizeof masters->replica, "%016llx", (unsigned long long)random_number());
	snprintf(masters->alive_key, sizeof masters->alive_key, "%sredlockd:alive:%s", prefix, masters->replica);
	snprintf(masters->wake_channel, sizeof masters->wake_channel, "%sredlockd:wake", prefix);
	uv_timer_init(masters->loop, &masters->alive_timer);
	masters->alive_timer.data = masters;
}

void master_notification_close(struct masters *masters)
{
	masters->has_waiters = false;
	for (size_t i = 0; i < masters->count; i++)
		drop(&masters->list[i]);
	if (!uv_is_closing((uv_handle_t *)&masters->alive_timer))
		uv_close((uv_handle_t *)&masters->alive_timer, NULL);
}

const char *masters_replica(const struct masters *masters)
{
	return masters->replica;
}

void masters_set_notification_events(struct masters *masters, const struct masters_notification_events *events)
{
	masters->notification_events = *events;
}

void masters_start_notifications(struct masters *masters)
{
	assert(!masters->has_waiters && masters->notification_events.notified);
	masters->has_waiters = true;
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		if (!is_reachable(master))
			continue;
		say_alive(master);
		listen_to(master);
	}
	uv_timer_start(&masters->alive_timer, on_tick, QUEUE_TICK_MS, QUEUE_TICK_MS);
}

void masters_stop_notifications(struct masters *masters)
{
	masters->has_waiters = false;
	uv_timer_stop(&masters->alive_timer);
}
