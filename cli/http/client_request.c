/* SPDX-License-Identifier: MIT */
/* See client.h. Names were checked when the command line was parsed. No path has one: some proxies refuse or rewrite
 * what it then holds. */
#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "api/calls/calls.h"
#include "client.h"

static void client_request_append(struct client_request *request, const char *text, const char *value)
{
	char encoded[PATH_ENCODED_MAX + 1];
	size_t len = strlen(request->path);
	assert(strlen(value) <= PATH_VALUE_MAX);
	path_encode(value, strlen(value), encoded);
	snprintf(request->path + len, sizeof request->path - len, "%s%s", text, encoded);
}

struct client_request client_request_get_state(const char *name)
{
	struct client_request request = {.method = "GET"};
	client_request_append(&request, "/locks?resource=", name);
	return request;
}

/* Takes ownership of the object. */
static void client_request_set_body(struct client_request *request, json_t *object)
{
	size_t len = json_dumpb(object, request->body, sizeof request->body - 1, JSON_COMPACT);
	assert(len > 0 && len < sizeof request->body);
	json_decref(object);
}

/* `time`: the member that is `ms`, unless that is 0. */
static struct client_request client_request_of_lease(const char *method, const struct arguments *arguments,
						     const char *token, const char *time, uint64_t ms)
{
	struct client_request request = {.method = method, .path = "/locks", .token = token, .of_lease = true};
	json_t *body = json_pack("{s:o}", names_member(&arguments->names), names_json(&arguments->names));
	assert(token && *token);
	if (ms > 0)
		json_object_set_new(body, time, json_integer((json_int_t)ms));
	client_request_set_body(&request, body);
	return request;
}

struct client_request client_request_acquire(const struct arguments *arguments, uint64_t wait_ms, const char *key)
{
	struct client_request request = {
		.method = "POST", .path = "/locks", .wait_ms = wait_ms, .may_grant = true, .key = key};
	const char *owner = arguments->owner;
	json_t *body = json_pack("{s:o, s:s*}", names_member(&arguments->names), names_json(&arguments->names), "owner",
				 owner && *owner != '\0' ? owner : NULL);
	if (arguments->ttl_ms > 0)
		json_object_set_new(body, "ttl_ms", json_integer((json_int_t)arguments->ttl_ms));
	if (arguments->metadata)
		json_object_set(body, "metadata", arguments->metadata);
	if (arguments->shared)
		json_object_set_new(body, "mode", json_string("shared"));
	if (arguments->slots > 0)
		json_object_set_new(body, "slots", json_integer((json_int_t)arguments->slots));
	if (wait_ms > 0)
		json_object_set_new(body, "wait_ms", json_integer((json_int_t)wait_ms));
	client_request_set_body(&request, body);
	return request;
}

struct client_request client_request_extend(const struct arguments *arguments, const char *token, uint64_t ttl_ms)
{
	return client_request_of_lease("PUT", arguments, token, "ttl_ms", ttl_ms);
}

struct client_request client_request_release(const struct arguments *arguments, const char *token, uint64_t keep_ms)
{
	return client_request_of_lease("DELETE", arguments, token, "keep_ms", keep_ms);
}

struct client_request client_request_force(const char *name, uint64_t fence)
{
	/* a second one without a fence could release the next holder */
	struct client_request request = {.method = "DELETE", .path = "/locks?force=true", .once = fence == 0};
	size_t len = strlen(request.path);
	if (fence > 0)
		snprintf(request.path + len, sizeof request.path - len, "&fence=%" PRIu64, fence);
	client_request_set_body(&request, json_pack("{s:s}", "resource", name));
	return request;
}

struct client_request client_request_list(const struct arguments *arguments, uint64_t limit, const char *cursor)
{
	struct client_request request = {.method = "GET"};
	snprintf(request.path, sizeof request.path, "/locks?limit=%" PRIu64, limit);
	if (arguments->prefix)
		client_request_append(&request, "&prefix=", arguments->prefix);
	if (arguments->owner)
		client_request_append(&request, "&owner=", arguments->owner);
	if (*cursor != '\0')
		client_request_append(&request, "&cursor=", cursor);
	return request;
}

struct client_request client_request_get(const char *path)
{
	struct client_request request = {.method = "GET"};
	assert(strlen(path) < sizeof request.path);
	strcpy(request.path, path);
	return request;
}

struct client_request client_request_watch(const char *name, const char *tag, uint64_t wait_ms)
{
	struct client_request request = client_request_get_state(name);
	size_t len = strlen(request.path);
	if (*tag == '\0')
		return request;
	request.tag = tag;
	request.wait_ms = wait_ms;
	snprintf(request.path + len, sizeof request.path - len, "&wait_ms=%" PRIu64, wait_ms);
	return request;
}
