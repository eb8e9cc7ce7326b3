/* SPDX-License-Identifier: MIT */
/* Notifications of waiters and watchers, and the signs of life that keep queue entries, while a request of this worker
 * waits or watches (server/scripts/lib/queue.lua):
 *
 *   alive key      on each master, {prefix}redlockd:alive:{replica}. It runs out after a second and is set again every
 *                  300 ms over the master's connection.
 *   notifications  on the channel {prefix}redlockd:wake, over a second connection to each master, since one that has
 *                  subscribed takes no other commands (RESP2). Opened with the first waiter, kept until the master is
 *                  lost. It is also opened, and closed again, before the master's first vote, to find out whether the
 *                  channel can be subscribed to (master_check.c).
 *
 * A master on which the key had run out may have dropped our entries, and without the second connection notifications
 * are missed: both are reported as `missed`. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

enum { ALIVE_TICK_MS = 300, SUBSCRIBE_MS = 1000, ARRIVAL_LEN = 16 };

_Static_assert(3 * ALIVE_TICK_MS * UINT64_C(1000) < REDLOCK_ALIVE_US,
	       "two of three may be lost, and this worker still counts as alive");

/* ---- the second connection ---- */

void master_notification_drop(struct master *master)
{
	struct transport_connection *connection = master->notification.connection;
	master->notification.connection = NULL;
	if (connection)
		transport_close(connection);
}

/* The resource of a message whose key begins after `head` bytes; *ret_len 0: it is not one of ours. */
static const char *find_resource(const struct masters *masters, const char *text, size_t len, size_t head,
				 size_t *ret_len)
{
	bool ours = len > head + masters->prefix_len &&
		    memcmp(text + head, masters->options->key_prefix, masters->prefix_len) == 0;
	*ret_len = ours ? len - head - masters->prefix_len : 0;
	return ours ? text + head + masters->prefix_len : NULL;
}

/* *at: the first of 16 digits, then the position after them. */
static bool parse_arrival(const char **at, const char *end, uint64_t *ret_arrival)
{
	uint64_t arrival = 0;
	if (end - *at < ARRIVAL_LEN)
		return false;
	for (const char *last = *at + ARRIVAL_LEN; *at < last; (*at)++) {
		if (**at < '0' || **at > '9')
			return false;
		arrival = arrival * 10 + (uint64_t)(**at - '0');
	}
	*ret_arrival = arrival;
	return true;
}

/* ":capacity", of a shared set ";capacity", which ends at `end`. */
static bool parse_capacity(const char *at, const char *end, struct masters_notification *ret)
{
	uint64_t capacity = end - at > 1 ? master_reply_number(at + 1, (size_t)(end - at - 1), 10) : 0;
	ret->of_set = at < end && *at == ';';
	ret->capacity = (uint32_t)capacity;
	return at < end && (*at == ':' || (ret->of_set && ret->kind == MASTER_SHARED)) && capacity > 0 &&
	       capacity <= UINT32_MAX;
}

/* The rest of an entry for a slot: ":capacity" or ":capacity@slot". */
static bool parse_slots(const char *at, const char *end, struct masters_notification *ret)
{
	const char *free = memchr(at, '@', (size_t)(end - at));
	uint64_t slot = free ? master_reply_number(free + 1, (size_t)(end - free - 1), 10) : 0;
	ret->has_free = free != NULL;
	ret->free = (uint16_t)slot;
	return parse_capacity(at, free ? free : end, ret) && (!free || free + 1 < end) && slot <= UINT16_MAX;
}

/* The rest of a shared entry: ":capacity" or ":capacity>last". */
static bool parse_shared(const char *at, const char *end, struct masters_notification *ret)
{
	const char *last = memchr(at, '>', (size_t)(end - at));
	if (!parse_capacity(at, last ? last : end, ret))
		return false;
	return !last++ || (parse_arrival(&last, end, &ret->last) && last == end);
}

/* "replica:arrival", "replica+arrival:capacity" with an optional ">last", or "replica#arrival:capacity" with an
 * optional "@slot". */
static bool parse_entry(const struct masters *masters, const char *at, const char *end,
			struct masters_notification *ret)
{
	if (end - at < MASTER_REPLICA_LEN + 1 || !memchr(":+#", at[MASTER_REPLICA_LEN], 3))
		return false;
	ret->ours = memcmp(at, masters->replica, MASTER_REPLICA_LEN) == 0;
	ret->kind = at[MASTER_REPLICA_LEN] == ':' ? MASTER_EXCLUSIVE : (enum master_kind)at[MASTER_REPLICA_LEN];
	at += MASTER_REPLICA_LEN + 1;
	if (!parse_arrival(&at, end, &ret->arrival))
		return false;
	if (ret->kind == MASTER_EXCLUSIVE)
		return at == end;
	return ret->kind == MASTER_SLOT ? parse_slots(at, end, ret) : parse_shared(at, end, ret);
}

/* "confirmed:" and the key in 16 hex digits. */
static bool parse_confirmed(const char *text, size_t len, uint64_t *ret_key)
{
	static const char head[] = "confirmed:";
	bool is_one = len == sizeof head - 1 + 16 && memcmp(text, head, sizeof head - 1) == 0 &&
		      strspn(text + sizeof head - 1, "0123456789abcdef") == 16;
	*ret_key = is_one ? master_reply_number(text + sizeof head - 1, 16, 16) : 0;
	return is_one && *ret_key != 0;
}

/* Parses a message: an entry, "watch", "wanted" or "confirmed:…", a blank, and the key. */
static void parse_notification(struct master *master, const char *text, size_t len)
{
	const struct masters *masters = master->all;
	const struct masters_notification_events *events = &masters->notification_events;
	const char *end = memchr(text, ' ', len);
	size_t resource_len, head = end ? (size_t)(end - text) : len;
	const char *resource = find_resource(masters, text, len, head + 1, &resource_len);
	struct masters_notification notification = {
		.master = (uint8_t)master->index, .resource = resource, .resource_len = resource_len};
	uint64_t key;
	if (!end || head == 0 || resource_len == 0)
		return;
	if (head == 5 && memcmp(text, "watch", 5) == 0)
		events->changed(events->arg, resource, resource_len);
	else if (head == 6 && memcmp(text, "wanted", 6) == 0)
		events->wanted(events->arg, notification.master, resource, resource_len);
	else if (parse_confirmed(text, head, &key))
		events->confirmed(events->arg, key);
	else if (parse_entry(masters, text, end, &notification))
		events->notified(events->arg, &notification);
}

static void report_missed(const struct masters *masters)
{
	assert(masters->has_waiters);
	masters->notification_events.missed(masters->notification_events.arg);
}

/* The answers to AUTH and SUBSCRIBE, and each message. */
static void on_message(void *arg, const redisReply *reply)
{
	struct master *master = arg;
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
	    reply->element[0]->type != REDIS_REPLY_STRING)
		return;
	if (strcmp(reply->element[0]->str, "subscribe") == 0) {
		bool is_checked = master->check.subscribing;
		master->notification.subscribed = true;
		master_check_settle_subscribe(master, MASTER_ERROR_OTHER, NULL);
		if (master->all->has_waiters)
			report_missed(master->all);
		else if (is_checked)
			master_notification_drop(master); /* it was opened for master_notification_check() alone */
		/* else the waits are over, but a notification for an entry that they left here still matters */
	} else if (strcmp(reply->element[0]->str, "message") == 0 && reply->element[2]->type == REDIS_REPLY_STRING)
		parse_notification(master, reply->element[2]->str, (size_t)reply->element[2]->len);
}

/* If the channel may not be subscribed to, waiters depend on their timers alone. */
static void on_second_ended(void *arg, const char *reason, enum transport_end how)
{
	struct master *master = arg;
	master->notification.connection = NULL; /* the next tick opens another one */
	enum master_error error = how == TRANSPORT_REFUSED    ? master_error_classify(reason)
				  : how == TRANSPORT_PROTOCOL ? MASTER_ERROR_PROTOCOL
							      : MASTER_ERROR_LOST;
	if (how == TRANSPORT_REFUSED)
		master_state_doubt(master, error, reason);
	else if (how == TRANSPORT_PROTOCOL && !master->check.subscribing) /* else the trial counts it */
		master_state_count_error(master, error);
	master_check_settle_subscribe(master, error, reason);
}

static void on_second_connected(void *arg)
{
	struct master *master = arg;
	struct transport_connection *connection = master->notification.connection;
	const struct address *address = master->link.address;
	const struct transport_word auth = {"AUTH", 4}, user = {address->user, strlen(address->user)},
				    password = {address->password, strlen(address->password)};
	if (user.len > 0 && password.len > 0)
		transport_send(connection, 3, (struct transport_word[]){auth, user, password});
	else if (password.len > 0)
		transport_send(connection, 2, (struct transport_word[]){auth, password});
	transport_subscribe(connection, master->all->wake_channel);
}

static const struct transport_events connection_events = {NULL, on_second_connected, on_message, on_second_ended};

/* Opens the second connection, unless there is one that was opened beside this first connection. */
static void open_second(struct master *master)
{
	assert(master->link.state == LINK_UP);
	uint64_t now_us = clock_now_us();
	bool in_time = master->notification.subscribed ||
		       now_us < master->notification.tried_us + SUBSCRIBE_MS * UINT64_C(1000);
	if (master->notification.connection && in_time && master->notification.beside_us == master->up_us)
		return;
	master_notification_drop(master);
	master->notification.tried_us = now_us;
	master->notification.subscribed = false;
	master->notification.beside_us = master->up_us;
	master->notification.connection = transport_connect(master->all->loop, master->link.address, 0,
							    master->link.connection, &connection_events, master);
}

void master_notification_check(struct master *master)
{
	if (master->notification.connection && master->notification.subscribed &&
	    master->notification.beside_us == master->up_us)
		master_check_settle_subscribe(master, MASTER_ERROR_OTHER, NULL);
	else
		open_second(master);
}

/* ---- the alive key ---- */

static void set_alive(struct master *master)
{
	master_command_send(master, NULL, 0,
			    (const char *[]){"SET", master->all->alive_key, "", "PX", ALIVE_MS_TEXT, NULL});
}

static void on_alive(struct master *master, unsigned what, const redisReply *reply)
{
	struct masters *masters = master->all;
	(void)what;
	if (reply->type == REDIS_REPLY_ERROR)
		master_state_doubt_reply(master, reply);
	if (reply->type != REDIS_REPLY_NIL || !masters->has_waiters)
		return;
	set_alive(master); /* it had run out, or the master has lost it */
	report_missed(masters);
}

static bool is_reachable(const struct master *master)
{
	return master->link.state == LINK_UP && !master->hung;
}

static void on_alive_tick(void *arg)
{
	struct masters *masters = arg;
	transport_timer_start(masters->alive_timer, ALIVE_TICK_MS);
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		if (!is_reachable(master))
			continue;
		master_command_send(master, on_alive, 0,
				    (const char *[]){"SET", masters->alive_key, "", "XX", "PX", ALIVE_MS_TEXT, NULL});
		if (master->check.state == CHECK_PASSED) /* else master_check.c tries it */
			open_second(master);
	}
}

/* ---- start and end ---- */

void master_notification_init(struct masters *masters)
{
	const char *prefix = masters->options->key_prefix;
	assert(masters->loop);
	snprintf(masters->replica, sizeof masters->replica, "%016llx", (unsigned long long)random_number());
	snprintf(masters->alive_key, sizeof masters->alive_key, "%sredlockd:alive:%s", prefix, masters->replica);
	snprintf(masters->wake_channel, sizeof masters->wake_channel, "%sredlockd:wake", prefix);
	masters->alive_timer = transport_timer_new(masters->loop, on_alive_tick, masters);
}

void master_notification_close(struct masters *masters)
{
	masters->has_waiters = false;
	for (size_t i = 0; i < masters->count; i++)
		master_notification_drop(&masters->list[i]);
	transport_timer_free(masters->alive_timer);
}

void masters_set_notification_events(struct masters *masters, const struct masters_notification_events *events)
{
	assert(events->notified && events->changed && events->missed && !masters->has_waiters);
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
	transport_timer_start(masters->alive_timer, ALIVE_TICK_MS);
}

void masters_stop_notifications(struct masters *masters)
{
	masters->has_waiters = false;
	transport_timer_stop(masters->alive_timer);
}
