/* SPDX-License-Identifier: MIT */
/* The link to one master: connects, and tries again after a random, growing pause when the connection ends. Reports
 * events to the owner (struct master_link_events). */
#include <assert.h>

#include "master_internal.h"
#include "server/base/base.h"

void master_link_set_timer(struct master_link *link, uint64_t delay_ms)
{
	if (link->state != LINK_CLOSED)
		transport_timer_start(link->timer, delay_ms);
}

static uint64_t backoff_ms(const struct master_link *link)
{
	uint32_t doublings = link->attempts < 8 ? link->attempts : 8;
	uint64_t ceiling_ms = (uint64_t)MASTER_BACKOFF_MIN_MS << doublings;
	if (ceiling_ms > MASTER_BACKOFF_MAX_MS)
		ceiling_ms = MASTER_BACKOFF_MAX_MS;
	return ceiling_ms / 2 + random_number() % (ceiling_ms / 2 + 1);
}

/* The transport frees a connection that ended by itself. */
static void fail(struct master_link *link, const char *reason, enum link_end how)
{
	struct transport_connection *connection = link->connection;
	enum link_state was = link->state;
	assert(reason[0] && connection && was != LINK_DOWN && was != LINK_CLOSED);
	/* localhost may be ::1 first, and 127.0.0.1 next */
	link->tried = link->tried || link->attempts + 1 >= transport_address_count(connection);
	link->state = LINK_DOWN;
	link->connection = NULL;
	master_link_set_timer(link, backoff_ms(link));
	if (link->attempts < UINT32_MAX)
		link->attempts++;
	link->events->failed(link->owner, was, reason, how);
	if (how == LINK_END_OURS)
		transport_close(connection);
}

void master_link_fail(struct master_link *link, const char *reason)
{
	if (link->connection)
		fail(link, reason, LINK_END_OURS);
}

/* ---- reports of the transport ---- */

static void on_link_resolved(void *arg)
{
	master_link_set_timer(arg, MASTER_HANDSHAKE_MS);
}

static void on_link_connected(void *arg)
{
	struct master_link *link = arg;
	assert(link->state == LINK_CONNECTING && link->connection);
	link->state = LINK_HANDSHAKE;
	link->events->connected(link->owner);
}

static void on_answered(void *arg, const redisReply *reply)
{
	const struct master_link *link = arg;
	link->events->answered(link->owner, reply);
}

static void on_link_ended(void *arg, const char *reason, enum transport_end how)
{
	fail(arg, reason, how == TRANSPORT_PROTOCOL ? LINK_END_PROTOCOL : LINK_END_PEER);
}

static const struct transport_events events = {on_link_resolved, on_link_connected, on_answered, on_link_ended};

/* ---- the timer ---- */

static void begin_connecting(struct master_link *link)
{
	assert(link->state == LINK_DOWN && !link->connection);
	link->state = LINK_CONNECTING;
	link->connection = transport_connect(link->loop, link->address, link->attempts, NULL, &events, link);
	if (!transport_is_resolving(link->connection))
		master_link_set_timer(link, MASTER_HANDSHAKE_MS);
}

static const char *late_reason(const struct master_link *link)
{
	assert(link->state == LINK_CONNECTING || link->state == LINK_HANDSHAKE);
	if (link->state == LINK_CONNECTING)
		return "timeout: no connection";
	return transport_is_in_tls_handshake(link->connection)
		       ? "tls: no end of the handshake; without TLS on that port the address begins with redis://"
		       : "timeout: no answer to the handshake; is it a Redis server, without TLS?";
}

static void on_link_timer(void *arg)
{
	struct master_link *link = arg;
	assert(link->state != LINK_CLOSED);
	switch (link->state) {
	case LINK_DOWN: begin_connecting(link); break;
	case LINK_CONNECTING:
	case LINK_HANDSHAKE: master_link_fail(link, late_reason(link)); break;
	case LINK_UP: link->events->ticked(link->owner); break;
	case LINK_CLOSED: break;
	}
}

void master_link_start(struct master_link *link)
{
	assert(link->loop && link->address && link->events && link->owner);
	link->timer = transport_timer_new(link->loop, on_link_timer, link);
	link->state = LINK_DOWN;
	master_link_set_timer(link, 0);
}

void master_link_restart(struct master_link *link)
{
	assert(link->state == LINK_DOWN && !link->connection);
	link->attempts = 0;
	link->tried = false;
	master_link_set_timer(link, 0);
}

void master_link_set_up(struct master_link *link)
{
	assert(link->state == LINK_HANDSHAKE && link->connection);
	link->state = LINK_UP;
	link->attempts = 0;
	link->tried = true;
}

void master_link_close(struct master_link *link)
{
	struct transport_connection *connection = link->connection;
	assert(link->state != LINK_CLOSED);
	link->state = LINK_CLOSED;
	link->connection = NULL;
	if (connection)
		transport_close(connection);
	transport_timer_free(link->timer);
}
