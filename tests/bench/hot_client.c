/* SPDX-License-Identifier: MIT */
/* See hot_client.h. The two services differ in the text of their requests and answers alone. */
#include "hot_client.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 60000, ETCD_TTL_S = 600, BODY_MAX = 512 };

struct service {
	const char *name;
	void (*prepare)(struct client *client); /* NULL: nothing to do before the first lock */
	void (*acquire)(struct client *client);
	void (*release)(struct client *client);
	void (*count)(struct client *client);
	/* a good answer to whatever the client did; false: not as it should be */
	bool (*take)(struct client *client, json_t *answer);
};

/* ---- redlockd ---- */

static void redlockd_acquire(struct client *client)
{
	char body[BODY_MAX];

	if (client->waits)
		snprintf(body, sizeof(body), "{\"resource\":\"%s\",\"wait_ms\":%d}", client->resource, WAIT_MS);
	else
		snprintf(body, sizeof(body), "{\"resource\":\"%s\",\"ttl_ms\":10000}", client->resource);
	http_send(&client->http, "POST", "/locks", body);
}

static void redlockd_release(struct client *client)
{
	char path[BODY_MAX], body[BODY_MAX];

	snprintf(path, sizeof(path), "/locks/%s", client->resource);
	snprintf(body, sizeof(body), "{\"token\":\"%s\"}", client->key);
	http_send(&client->http, "DELETE", path, body);
}

static void redlockd_count(struct client *client)
{
	char path[BODY_MAX];

	snprintf(path, sizeof(path), "/locks/%s", client->resource);
	http_send(&client->http, "GET", path, NULL);
}

static bool redlockd_take(struct client *client, json_t *answer)
{
	if (client->was == CLIENT_ACQUIRING) {
		const char *token = json_string_value(json_object_get(answer, "token"));
		client->fence = (uint64_t)json_integer_value(json_object_get(answer, "fence"));
		return client->status == 201 && token != NULL &&
		       snprintf(client->key, sizeof(client->key), "%s", token) < (int)sizeof(client->key);
	}
	client->waiters = (unsigned)json_integer_value(json_object_get(answer, "waiters"));
	return client->was == CLIENT_RELEASING ? client->status == 204 : client->status == 200;
}

/* ---- etcd: bytes are in base64, 64-bit numbers are strings ---- */

static void etcd_base64(const char *text, const char *more, char *ret)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char joined[BODY_MAX] = "";
	size_t len = (size_t)snprintf(joined, sizeof(joined) - 2, "%s%s", text, more);

	assert(len < 120);
	for (size_t i = 0; i < len; i += 3) {
		unsigned three = (unsigned)(unsigned char)joined[i] << 16 |
				 (unsigned)(unsigned char)joined[i + 1] << 8 | (unsigned char)joined[i + 2];
		*ret++ = digits[three >> 18];
		*ret++ = digits[three >> 12 & 63];
		*ret++ = i + 1 < len ? digits[three >> 6 & 63] : '=';
		*ret++ = i + 2 < len ? digits[three & 63] : '=';
	}
	*ret = '\0';
}

static void etcd_prepare(struct client *client)
{
	char body[BODY_MAX];

	snprintf(body, sizeof(body), "{\"TTL\":%d}", ETCD_TTL_S);
	http_send(&client->http, "POST", "/v3/lease/grant", body);
}

static void etcd_acquire(struct client *client)
{
	char name[BODY_MAX], body[2 * BODY_MAX];

	etcd_base64(client->resource, "", name);
	snprintf(body, sizeof(body), "{\"name\":\"%s\",\"lease\":\"%s\"}", name, client->lease);
	http_send(&client->http, "POST", "/v3/lock/lock", body);
}

static void etcd_release(struct client *client)
{
	char body[BODY_MAX];

	snprintf(body, sizeof(body), "{\"key\":\"%s\"}", client->key);
	http_send(&client->http, "POST", "/v3/lock/unlock", body);
}

/* The holder and each waiter have a key "resource/lease". '0' is the byte after '/'. */
static void etcd_count(struct client *client)
{
	char from[BODY_MAX], to[BODY_MAX], body[4 * BODY_MAX];

	etcd_base64(client->resource, "/", from);
	etcd_base64(client->resource, "0", to);
	snprintf(body, sizeof(body), "{\"key\":\"%s\",\"range_end\":\"%s\",\"count_only\":true}", from, to);
	http_send(&client->http, "POST", "/v3/kv/range", body);
}

static bool etcd_take(struct client *client, json_t *answer)
{
	const char *count = json_string_value(json_object_get(answer, "count")),
		   *lease = json_string_value(json_object_get(answer, "ID"));
	const char *key = json_string_value(json_object_get(answer, "key"));
	int keys = count == NULL ? 0 : atoi(count);

	client->waiters = keys > 0 ? (unsigned)keys - 1 : 0;
	if (client->was == CLIENT_PREPARING && lease != NULL)
		snprintf(client->lease, sizeof(client->lease), "%s", lease);
	if (client->was == CLIENT_ACQUIRING && key != NULL)
		snprintf(client->key, sizeof(client->key), "%s", key);
	return client->status == 200 && (client->was != CLIENT_ACQUIRING || key != NULL) &&
	       (client->was != CLIENT_PREPARING || lease != NULL);
}

static const struct service services[] = {
	{"redlockd", NULL, redlockd_acquire, redlockd_release, redlockd_count, redlockd_take},
	{"etcd", etcd_prepare, etcd_acquire, etcd_release, etcd_count, etcd_take},
};

/* ---- both ---- */

const struct service *service_find(const char *name)
{
	for (size_t i = 0; i < sizeof(services) / sizeof(*services); i++)
		if (strcmp(services[i].name, name) == 0)
			return &services[i];
	return NULL;
}

static void client_on_answer(struct http *http, uint64_t now_ns, int status, const char *body, size_t len)
{
	static const enum client_event good[] = {
		[CLIENT_PREPARING] = CLIENT_READY,
		[CLIENT_ACQUIRING] = CLIENT_GRANTED,
		[CLIENT_RELEASING] = CLIENT_RELEASED,
		[CLIENT_COUNTING] = CLIENT_COUNTED,
	};
	struct client *client = (struct client *)http;
	json_t *answer = len > 0 ? json_loadb(body, len, 0, NULL) : NULL;

	assert(client->state != CLIENT_IDLE);
	client->was = client->state;
	client->state = CLIENT_IDLE;
	client->answered_ns = now_ns;
	client->status = status;
	bool taken = client->service->take(client, answer);
	json_decref(answer);
	if (!taken && (client->was == CLIENT_PREPARING || client->was == CLIENT_COUNTING || status <= 400))
		http_die("not understood: %d %s", status, body);
	client->on_event(client, taken ? good[client->was] : CLIENT_REFUSED);
}

static void client_begin(struct client *client, enum client_state state)
{
	assert(client->state == CLIENT_IDLE);
	client->state = state;
	client->sent_ns = uv_hrtime();
}

void client_open(struct client *client, uv_loop_t *loop, const struct service *service, const char *address,
		 client_event_cb *on_event)
{
	client->service = service;
	client->on_event = on_event;
	client->waits = true;
	uv_timer_init(loop, &client->pause);
	client->pause.data = client;
	http_open(&client->http, loop, address, client_on_answer);
	if (service->prepare == NULL) {
		on_event(client, CLIENT_READY);
		return;
	}
	client_begin(client, CLIENT_PREPARING);
	service->prepare(client);
}

void client_acquire(struct client *client, const char *resource)
{
	snprintf(client->resource, sizeof(client->resource), "%s", resource);
	client_begin(client, CLIENT_ACQUIRING);
	client->service->acquire(client);
}

void client_release(struct client *client)
{
	client_begin(client, CLIENT_RELEASING);
	client->service->release(client);
}

void client_count(struct client *client, const char *resource)
{
	snprintf(client->resource, sizeof(client->resource), "%s", resource);
	client_begin(client, CLIENT_COUNTING);
	client->service->count(client);
}

void client_close(struct client *client)
{
	uv_close((uv_handle_t *)&client->pause, NULL);
	http_close(&client->http);
}
