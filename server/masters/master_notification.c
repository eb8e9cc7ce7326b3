/* Notifications of waiters, and the signs of life that keep their queue entries, for as long as a request of this
 * worker waits (server/scripts/queue_*.lua):
 *
 *   alive key      on each master, {prefix}redlockd:alive:{replica}. It runs out after a second and is set again every
 *                  300 ms over the master's connection.
 *   notifications  on the channel {prefix}redlockd:wake, over a second connection to each master, since one that has
 *                  subscribed takes no other commands (RESP2). Opened with the first waiter, kept until the master is
 *                  lost. It is also opened, and closed again, before the master's first vote, to find out whether the
 *                  channel can be subscribed to (master_check.c).
 *
 * A master on which the key had run out may have dropped our entries, and without the second connection notifications
 * are missed: both are reported as `missed`. All on the worker's thread. */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "master_internal.h"
#include "server/base/base.h"

enum { ALIVE_TICK_MS = 300, SUBSCRIBE_MS = 1000, ENTRY_LEN = MASTER_REPLICA_LEN + 1 + 16 };

_Static_assert(3 * ALIVE_TICK_MS * UINT64_C(1000) < REDLOCK_ALIVE_US,
	       "two of three may be lost, and this worker still counts as alive");

/* ---- the second connection ---- */

static void drop(struct master *master)
{
	redisAsyncContext *context = master->notification.context;
	master->notification.context = NULL;
	if (context)
		redisAsyncFree(context);
}

/* Of a message: "replica:arrival key". */
static void parse_notification(struct master *master, const char *text, size_t len)
{
	const struct masters *masters = master->all;
	size_t prefix_len = strlen(masters->options->key_prefix), head = ENTRY_LEN + 1;
	if (len <= head + prefix_len || text[MASTER_REPLICA_LEN] != ':' || text[ENTRY_LEN] != ' ' ||
	    memcmp(text + head, masters->options->key_prefix, prefix_len) != 0)
		return;
	struct masters_notification notification = {.master = (uint8_t)master->index,
						    .ours = memcmp(text, masters->replica, MASTER_REPLICA_LEN) == 0,
						    .resource = text + head + prefix_len,
						    .resource_len = len - head - prefix_len};
	for (size_t i = MASTER_REPLICA_LEN + 1; i < ENTRY_LEN; i++) {
		if (text[i] < '0' || text[i] > '9')
			return;
		notification.arrival = notification.arrival * 10 + (uint64_t)(text[i] - '0');
	}
	masters->notification_events.notified(masters->notification_events.arg, &notification);
}

static void report_missed(const struct masters *masters)
{
	assert(masters->has_waiters);
	masters->notification_events.missed(masters->notification_events.arg);
}

/* hiredis calls it with the answer to SUBSCRIBE, for each message, and with NULL at the end. */
static void on_message(redisAsyncContext *context, void *raw, void *privdata)
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
			report_missed(master->all);
		else
			drop(master); /* it was opened for master_notification_check() alone */
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
	/* hiredis takes an error in answer to SUBSCRIBE (no right to the channel) for the end of the connection. Then
	 * waiters depend on their timers alone. */
	bool refused = context->err == REDIS_ERR_OTHER;
	const char *why = context->errstr[0] ? context->errstr : "the second connection was closed";
	enum master_error error = refused ? master_error_classify(why, strlen(why)) : MASTER_ERROR_LOST;
	if (refused)
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

/* To the peer of the first connection: its name is resolved already. */
static redisAsyncContext *connect_beside(const struct master *master)
{
	assert(master->link.state == LINK_UP && master->link.io);
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
	return sent == REDIS_OK && redisAsyncCommand(context, on_message, NULL, "SUBSCRIBE %s", channel) == REDIS_OK;
}

/* Opens the second connection, unless there is one that was opened beside this first connection. */
static void open_second(struct master *master)
{
	assert(master->link.state == LINK_UP);
	uint64_t now_us = clock_now_us();
	bool in_time = master->notification.subscribed ||
		       now_us < master->notification.tried_us + SUBSCRIBE_MS * UINT64_C(1000);
	if (master->notification.context && in_time && master->notification.beside_us == master->up_us)
		return;
	drop(master);
	master->notification.tried_us = now_us;
	master->notification.subscribed = false;
	redisAsyncContext *context = connect_beside(master);
	if (!context)
		return;
	char why[STATUS_REASON_MAX]; /* the first connection will report the same */
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
		open_second(master);
}

/* ---- the alive key ---- */

static void set_alive(struct master *master);

static void on_alive(struct master *master, const redisReply *reply)
{
	struct masters *masters = master->all;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		master_state_doubt_reply(master, reply);
	if (!reply || reply->type != REDIS_REPLY_NIL || !masters->has_waiters)
		return;
	set_alive(master); /* it had run out, or the master has lost it */
	report_missed(masters);
}

static void set_alive(struct master *master)
{
	const char *set[] = {"SET", master->all->alive_key, "", "PX", ALIVE_MS_TEXT};
	master_command_send(master, NULL, 5, set);
}

static void renew_alive(struct master *master)
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
		renew_alive(master);
		if (master->check.passed) /* else master_check.c tries it */
			open_second(master);
	}
}

/* ---- start and end ---- */

void master_notification_init(struct masters *masters,
			      void (*note_subscribed)(struct master *master, enum master_error error,
						      const char *refused))
{
	const char *prefix = masters->options->key_prefix;
	assert(note_subscribed && masters->loop);
	masters->note_subscribed = note_subscribed;
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
	assert(events->notified && events->missed && !masters->has_waiters);
	masters->notification_events = *events;
}

void masters_start_notifications(struct masters *masters)
{
	assert(!masters->has_waiters && masters->notification_events.notified && masters->notification_events.missed);
	masters->has_waiters = true;
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		if (!is_reachable(master))
			continue;
		set_alive(master);
		open_second(master);
	}
	uv_timer_start(&masters->alive_timer, on_tick, ALIVE_TICK_MS, ALIVE_TICK_MS);
}

void masters_stop_notifications(struct masters *masters)
{
	masters->has_waiters = false;
	uv_timer_stop(&masters->alive_timer);
}
