/* What a request must pass before its handler runs. See admit.h. */
#include "authorize.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/http/http_internal.h"

/* False where Host is the name of somebody else's page. Beyond loopback nobody knows our names but --allow-host; an
 * address in Host is no page's name. */
static bool is_for_us(const struct request *request)
{
	const struct origin_names *allowed = &request->connection->api->config.allow_hosts;
	const struct headers *headers = &request->headers;

	if (headers->host == NULL || request->connection->reach == CONNECTION_UNIX)
		return true;
	if (request->connection->reach == CONNECTION_NETWORK &&
	    (allowed->count == 0 || origin_is_address(headers->host, headers->host_len)))
		return true;
	return origin_is_local_host(headers->host, headers->host_len, allowed);
}

bool authorize_page(struct request *request, const char *method)
{
	const struct api_config *config = &request->connection->api->config;
	const struct headers *headers = &request->headers;

	if (!is_for_us(request)) {
		reply_problem(request, PROBLEM_FORBIDDEN,
			      "The header Host names no address of this machine; --allow-host lists further names.",
			      NULL);
		return false;
	}
	if (!headers->has_origin)
		return true;
	request->origin = origin_find(headers->origin, headers->origin_len, &config->allow_origins);
	if (request->origin == NULL && (headers->host == NULL || !origin_is_same(headers->origin, headers->origin_len,
										 headers->host, headers->host_len))) {
		reply_problem(request, PROBLEM_FORBIDDEN,
			      "Pages of this Origin may not call; --allow-origin lists those that may.", NULL);
		return false;
	}
	if (request->origin != NULL && headers->preflight && strcmp(method, "OPTIONS") == 0) {
		reply_empty(request, 204);
		request->reply.preflight = true;
		return false;
	}
	return true;
}

static void refuse_rate(struct request *request, enum http_limit limit, const char *detail, uint32_t retry_ms)
{
	http_metrics_limited(request->connection->api->metrics, limit);
	reply_problem(request, PROBLEM_TOO_MANY_REQUESTS, detail, NULL);
	request->reply.retry_after_s = retry_ms / 1000 + (retry_ms % 1000 > 0);
}

bool authorize_address(struct request *request)
{
	const struct connection *connection = request->connection;
	uint32_t retry_ms;

	if (peer_take(connection->peer, connection->api->config.max_rate_per_address, api_now_us(), &retry_ms))
		return true;
	refuse_rate(request, HTTP_LIMIT_ADDRESS_RATE, "This address makes too many requests (--max-rate-per-address).",
		    retry_ms);
	return false;
}

static enum access_need need_of(const struct request *request)
{
	return request->force ? ACCESS_ADMIN : request->route->need;
}

bool authorize_refuse(struct request *request, enum access_verdict verdict)
{
	char detail[160];

	switch (verdict) {
	case ACCESS_ALLOWED: return true;
	case ACCESS_UNKNOWN: reply_problem(request, PROBLEM_UNAUTHORIZED, request->caller.reason, NULL); break;
	case ACCESS_NO_RIGHT:
		snprintf(detail, sizeof(detail), "The caller does not have the right %s.",
			 access_right_name(need_of(request)));
		reply_problem(request, PROBLEM_FORBIDDEN, detail, NULL);
		break;
	case ACCESS_NO_PREFIX:
		reply_problem(
			request, PROBLEM_FORBIDDEN,
			need_of(request) == ACCESS_LIST
				? "The caller may list only what begins with one of its prefixes: ask with ?prefix=."
				: "The resource begins with none of the caller's prefixes.",
			NULL);
		break;
	}
	return false;
}

static bool take_rate(struct request *request)
{
	const struct key *key = request->caller.key;
	uint32_t retry_ms;

	if (key == NULL || rate_take(&key->usage->rate, key->rate, api_now_us(), &retry_ms))
		return true;
	refuse_rate(request, HTTP_LIMIT_KEY_RATE, "This key makes too many requests.", retry_ms);
	return false;
}

/* What the client certificate of the connection shows; the headers are not looked at. */
static struct access_credentials certificate_of(const struct connection *connection)
{
	const struct tls_peer *peer = connection_tls_peer(connection);

	if (!peer)
		return (struct access_credentials){0};
	return (struct access_credentials){
		.asks_certificate = true,
		.has_certificate = peer->state != TLS_PEER_NONE,
		.untrusted = peer->state == TLS_PEER_BAD ? peer->reason : NULL,
		.names = peer->names,
		.name_count = peer->count,
	};
}

bool authorize_caller(struct request *request)
{
	const struct connection *connection = request->connection;
	struct keys *keys = connection->api->keys;
	enum access_need need = need_of(request);

	if (need == ACCESS_NOTHING || need == ACCESS_TOKEN)
		return true;
	if (keys != NULL) /* the caller's key stays what it is until the request is over */
		request->keys = keys_ref(keys);
	struct access_credentials credentials = certificate_of(connection);
	credentials.key = request->headers.key;
	credentials.key_len = request->headers.key_len;
	credentials.other_scheme = request->headers.other_scheme;
	access_identify(keys, &credentials, &request->caller);
	return authorize_refuse(request, access_decide(need, &request->caller, NULL, 0)) && take_rate(request);
}

bool authorize_resource(struct request *request, const char *bytes, size_t len)
{
	return authorize_refuse(request, access_decide(need_of(request), &request->caller, bytes, len));
}

/* What the caller's right is about, as far as it is known. */
static enum access_verdict decide_again(const struct request *request, const struct access_caller *caller)
{
	enum access_need need = need_of(request);

	if (need == ACCESS_LIST)
		return access_decide(need, caller, request->params[0].value, request->params[0].len);
	return access_decide(need, caller, request->has_resource ? request->lease.resource : NULL,
			     request->lease.resource_len);
}

enum access_verdict authorize_again(struct request *request)
{
	struct keys *keys = request->connection->api->keys;
	struct access_caller caller;

	tls_link_identify(request->connection);
	struct access_credentials credentials = certificate_of(request->connection);
	access_identify_again(keys, &request->caller, &credentials, &caller);
	enum access_verdict verdict = decide_again(request, &caller);
	if (verdict != ACCESS_ALLOWED) {
		request->caller.reason = caller.reason;
		return verdict;
	}
	if (request->counted)
		key_wait_move(request->caller.key, caller.key);
	struct keys *before = request->keys;
	request->keys = before != NULL ? keys_ref(keys) : NULL;
	request->caller = caller;
	keys_unref(before);
	return verdict;
}

void authorize_limit(const struct request *request, struct body_limits *limits)
{
	const struct key *key = request->caller.key;

	if (key == NULL || key->max_ttl_ms == 0 || key->max_ttl_ms >= limits->max_ttl_ms)
		return;
	limits->max_ttl_ms = key->max_ttl_ms > limits->min_ttl_ms ? key->max_ttl_ms : limits->min_ttl_ms;
	if (limits->default_ttl_ms > limits->max_ttl_ms)
		limits->default_ttl_ms = limits->max_ttl_ms;
}

bool authorize_wait(struct request *request)
{
	const struct key *key = request->caller.key;

	assert(!request->counted);
	if (key == NULL || request->lease.operation != LEASE_ACQUIRE || request->lease.wait_ms == 0)
		return true;
	if (!key_wait_begin(key)) {
		http_metrics_limited(request->connection->api->metrics, HTTP_LIMIT_KEY_WAITING);
		reply_problem(request, PROBLEM_TOO_MANY_REQUESTS, "As many requests of this key wait already as may.",
			      NULL);
		request->reply.retry_after_s = 1;
		return false;
	}
	request->counted = true;
	return true;
}

void authorize_wait_end(struct request *request)
{
	if (request->counted)
		key_wait_end(request->caller.key);
	request->counted = false;
}

void authorize_end(struct request *request)
{
	authorize_wait_end(request);
	keys_unref(request->keys);
	request->keys = NULL;
	request->caller = (struct access_caller){0};
}
