/* See client_request.h. Names were checked when the command line was parsed. The token is in a header, since some
 * proxies drop the body of a DELETE. */
#include "client_request.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls.h"

static void client_request_init(struct client_request *request, const char *method, const char *token)
{
	assert(method && (!token || *token));
	*request = (struct client_request){.method = method, .token = token};
}

static void client_request_lock_path(struct client_request *request, const char *name)
{
	char encoded[PATH_ENCODED_MAX + 1];

	path_encode(name, strlen(name), encoded);
	snprintf(request->path, sizeof request->path, "/locks/%s", encoded);
}

/* Takes ownership of the object. */
static void client_request_body(struct client_request *request, json_t *object)
{
	request->body = json_dumps(object, JSON_COMPACT);
	assert(request->body);
	json_decref(object);
}

void client_request_acquire(struct client_request *request, const char *name, uint64_t ttl_ms, const char *owner,
			    uint64_t wait_ms)
{
	json_t *body = json_pack("{s:s, s:I}", "resource", name, "ttl_ms", (json_int_t)ttl_ms);

	assert(body);
	client_request_init(request, "POST", NULL);
	strcpy(request->path, "/locks");
	request->wait_ms = wait_ms;
	request->may_grant = true;
	if (owner && *owner != '\0')
		json_object_set_new(body, "owner", json_string(owner));
	if (wait_ms > 0)
		json_object_set_new(body, "wait_ms", json_integer((json_int_t)wait_ms));
	client_request_body(request, body);
}

void client_request_extend(struct client_request *request, const char *name, const char *token, uint64_t ttl_ms)
{
	client_request_init(request, "PUT", token);
	client_request_lock_path(request, name);
	client_request_body(request, json_pack("{s:I}", "ttl_ms", (json_int_t)ttl_ms));
}

void client_request_release(struct client_request *request, const char *name, const char *token)
{
	client_request_init(request, "DELETE", token);
	client_request_lock_path(request, name);
}

void client_request_force(struct client_request *request, const char *name)
{
	client_request_init(request, "DELETE", NULL);
	client_request_lock_path(request, name);
	strcat(request->path, "?force=true");
}

void client_request_status(struct client_request *request, const char *name)
{
	client_request_init(request, "GET", NULL);
	client_request_lock_path(request, name);
}

static void client_request_parameter(struct client_request *request, char separator, const char *name,
				     const char *value)
{
	char encoded[PATH_ENCODED_MAX + 1];
	size_t len = strlen(request->path);

	assert(separator == '&' || separator == '?');
	path_encode(value, strlen(value), encoded);
	snprintf(request->path + len, sizeof request->path - len, "%c%s=%s", separator, name, encoded);
}

void client_request_list(struct client_request *request, const char *prefix, uint64_t limit, const char *cursor)
{
	assert(!prefix || strlen(prefix) <= PATH_VALUE_MAX);
	assert(!cursor || strlen(cursor) <= PATH_VALUE_MAX);
	client_request_init(request, "GET", NULL);
	snprintf(request->path, sizeof request->path, "/locks?limit=%" PRIu64, limit);
	if (prefix)
		client_request_parameter(request, '&', "prefix", prefix);
	if (cursor)
		client_request_parameter(request, '&', "cursor", cursor);
}

void client_request_masters(struct client_request *request)
{
	client_request_init(request, "GET", NULL);
	strcpy(request->path, "/masters");
}

void client_request_health(struct client_request *request)
{
	client_request_init(request, "GET", NULL);
	strcpy(request->path, "/healthz");
}

void client_request_ready(struct client_request *request)
{
	client_request_init(request, "GET", NULL);
	strcpy(request->path, "/readyz");
}

void client_request_fini(struct client_request *request)
{
	free(request->body);
	request->body = NULL;
}
