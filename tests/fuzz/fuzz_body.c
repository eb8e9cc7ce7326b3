/* SPDX-License-Identifier: MIT */
/* Fuzz target: the bodies of the lease calls, beside the header Lock-Token (api/calls/body.c).
 *
 * Input: a letter for the call (a: acquire, e: extend, r: release, f: forced), a digit, and the body. The digit's bits:
 * 1: there is a token in the header; 2: another one; 4: narrow limits; 8: the path names no resource, as it never does
 * for a and f. */
#include <jansson.h>

#include "api/calls/calls_internal.h"
#include "api/http/http.h"
#include "fuzz_words.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"
#define OTHER_TOKEN "ffffffffffffffffffffffffffffffffffffffff"

enum { TOKEN_IN_HEADER = 1, TOKEN_IS_OTHER = 2, NARROW = 4, NO_PATH = 8 };

static const struct body_limits wide = {30000, 100, 60000, 60000}, narrow = {1000, 1000, 1001, 0};

#ifdef FUZZ_MUTATED
/* Leaves something behind where the only mistake is in wait_ms. */
static bool body_parse_mutated(const char *bytes, size_t len, const char *header_token,
			       const struct body_limits *limits, struct lease_request *request,
			       struct field_errors *errors)
{
	bool good = body_parse(bytes, len, header_token, limits, request, errors);
	if (!good && errors->count == 1 && strcmp(errors->items[0].field, "wait_ms") == 0)
		request->wait_ms = 0;
	return good;
}
#define body_parse body_parse_mutated
#endif

/* The names are those of the body. */
static void check_names(const struct lease_request *request)
{
	bool is_set = request->set_count > 0;
	MUST(is_set ? request->set_count >= 2 && request->set_count <= LEASE_SET_MAX
		    : words_name_resource(request->resource, request->resource_len),
	     "a resource of %u bytes, %u resources", request->resource_len, request->set_count);
}

static void check_acquire(const struct lease_request *request, const struct lease_request *before,
			  const struct body_limits *limits)
{
	bool is_set = request->set_count > 0;
	check_names(request);
	MUST((request->mode == LEASE_SLOT) == (request->slots > 0) && request->slots <= LEASE_SLOTS_MAX &&
		     request->mode <= LEASE_SLOT && !(is_set && request->mode == LEASE_SLOT),
	     "mode %u, %u slots", (unsigned)request->mode, request->slots);
	MUST(request->owner_len <= LEASE_OWNER_MAX && words_are_plain(request->owner, request->owner_len),
	     "an owner of %u bytes", request->owner_len);
	MUST(request->metadata_len <= LEASE_METADATA_MAX &&
		     (!request->metadata || !memchr(request->metadata, '\n', request->metadata_len)),
	     "metadata of %u bytes", request->metadata_len);
	MUST(request->wait_ms <= limits->max_wait_ms, "waits for %u ms", request->wait_ms);
	MUST(memcmp(request->token, before->token, sizeof request->token) == 0, "a token for an acquisition");
}

/* The other operations have no members of an acquisition; the resource is that of the path, if it has one. */
static void check_owned(const struct lease_request *request, const struct lease_request *before,
			const char *header_token)
{
	bool forced = request->operation == LEASE_FORCE;
	if (forced)
		MUST(memcmp(request->token, before->token, sizeof request->token) == 0 && request->set_count == 0,
		     "a token or a set for a forced release");
	MUST(forced || headers_is_token(request->token, LEASE_TOKEN_LEN), "no token");
	MUST(forced || strspn(request->token, "0123456789abcdef") >= LEASE_TOKEN_LEN, "no token");
	MUST(header_token == NULL || memcmp(request->token, header_token, LEASE_TOKEN_LEN) == 0,
	     "not the token of the header");
	MUST(request->owner_len == 0 && !request->metadata && request->wait_ms == 0 && !request->hold,
	     "owner, wait_ms or hold");
	MUST(request->mode == LEASE_EXCLUSIVE && request->slots == 0, "a mode");
	if (before->resource_len == 0)
		check_names(request);
	else
		MUST(request->resource_len == before->resource_len && request->resource == before->resource &&
			     request->set_count == 0,
		     "another resource");
	MUST(request->operation == LEASE_EXTEND || request->ttl_ms == before->ttl_ms, "ttl_ms for a release");
}

static json_t *write_names(const struct lease_request *request)
{
	const char *at = request->resource, *name;
	json_t *names = json_array();
	size_t len;
	while (text_line(&at, request->resource + request->resource_len, &name, &len))
		json_array_append_new(names, json_stringn(name, len));
	MUST(json_array_size(names) == request->set_count, "%u resources", request->set_count);
	return names;
}

static json_t *write_body(const struct lease_request *request, bool has_names)
{
	json_t *body = json_object();
	if (has_names && request->set_count > 0)
		json_object_set_new(body, "resources", write_names(request));
	else if (has_names)
		json_object_set_new(body, "resource", json_stringn(request->resource, request->resource_len));
	if (request->operation == LEASE_EXTEND || request->operation == LEASE_RELEASE)
		json_object_set_new(body, "token", json_stringn(request->token, LEASE_TOKEN_LEN));
	if (request->operation == LEASE_ACQUIRE || request->operation == LEASE_EXTEND)
		json_object_set_new(body, "ttl_ms", json_integer(request->ttl_ms));
	if (request->operation != LEASE_ACQUIRE)
		return body;
	if (request->mode != LEASE_SLOT)
		json_object_set_new(body, "mode", json_string(request->mode == LEASE_SHARED ? "shared" : "exclusive"));
	else
		json_object_set_new(body, "slots", json_integer(request->slots));
	json_object_set_new(body, "owner", json_stringn(request->owner, request->owner_len));
	json_object_set_new(body, "wait_ms", json_integer(request->wait_ms));
	json_object_set_new(body, "hold", json_boolean(request->hold));
	if (request->metadata)
		json_object_set_new(body, "metadata", json_loadb(request->metadata, request->metadata_len, 0, NULL));
	return body;
}

/* A decoded body, written and read again, is the same. */
static void check_again(const struct lease_request *request, const struct lease_request *before,
			const struct body_limits *limits)
{
	struct lease_request again = *before;
	struct field_errors errors = {.count = 0};
	json_t *body = write_body(request, before->resource_len == 0);
	char *text = json_dumps(body, JSON_COMPACT);
	bool good = body_parse(text, strlen(text), NULL, limits, &again, &errors);
	MUST(good, "%s: %s", errors.items[0].field, errors.items[0].reason);
	MUST(again.resource_len == request->resource_len &&
		     memcmp(again.resource, request->resource, again.resource_len) == 0,
	     "another resource: %s", text);
	MUST(again.owner_len == request->owner_len &&
		     (again.owner_len == 0 || memcmp(again.owner, request->owner, again.owner_len) == 0),
	     "another owner: %s", text);
	MUST(again.ttl_ms == request->ttl_ms && again.wait_ms == request->wait_ms && again.hold == request->hold,
	     "another number: %s", text);
	MUST(again.mode == request->mode && again.slots == request->slots, "another mode: %s", text);
	MUST(again.set_count == request->set_count, "other resources: %s", text);
	MUST(memcmp(again.token, request->token, LEASE_TOKEN_LEN) == 0, "another token: %s", text);
	MUST(again.metadata_len == request->metadata_len &&
		     (!again.metadata || strcmp(again.metadata, request->metadata) == 0),
	     "other metadata: %s", text);
	free((char *)again.metadata);
	if (again.resource != before->resource)
		free((char *)again.resource);
	free((char *)again.owner);
	json_decref(body);
	free(text);
}

static void check(enum lease_operation call, unsigned flags, const char *bytes, size_t len)
{
	const struct body_limits *limits = flags & NARROW ? &narrow : &wide;
	const char *token = !(flags & TOKEN_IN_HEADER) ? NULL : flags & TOKEN_IS_OTHER ? OTHER_TOKEN : TOKEN;
	struct lease_request request, before;
	struct field_errors errors = {.count = flags & NARROW ? 1 : 0}; /* one of the path, say */
	size_t errors_before = errors.count;
	memset(&request, 0xa5, sizeof request);
	memset(&errors.items, 0, sizeof errors.items);
	request.operation = call;
	request.hold = true;
	request.resource = flags & NO_PATH ? NULL : "of/path";
	request.resource_len = flags & NO_PATH ? 0 : 7;
	request.set_count = 0;
	before = request;
	if (!body_parse(bytes, len, token, limits, &request, &errors)) {
		MUST(memcmp(&request, &before, sizeof request) == 0, "refused, and the request is another one");
		MUST(errors.count > errors_before, "refused without a reason");
		words_check_errors(&errors, errors_before);
		return;
	}
	MUST(errors.count == errors_before, "taken in spite of %s: %s", errors.items[errors_before].field,
	     errors.items[errors_before].reason);
	MUST(request.operation == call, "another call");
	if (call == LEASE_ACQUIRE)
		check_acquire(&request, &before, limits);
	else
		check_owned(&request, &before, token);
	if (call == LEASE_ACQUIRE || call == LEASE_EXTEND)
		MUST(request.ttl_ms >= limits->min_ttl_ms && request.ttl_ms <= limits->max_ttl_ms, "a ttl of %u ms",
		     request.ttl_ms);
	check_again(&request, &before, limits);
	free((char *)request.metadata);
	if (request.resource != before.resource)
		free((char *)request.resource);
	free((char *)request.owner);
}

/* body_visit_fn: makes the object of which the text speaks; a member that is there twice ends the scan. */
static bool add_member(void *arg, const char *name, size_t name_len, const struct body_value *value)
{
	char *key = fuzz_text(name, name_len);
	bool twice = json_object_get(arg, key) != NULL;
	if (!twice)
		json_object_set_new(arg, key,
				    value->kind == BODY_STRING    ? json_stringn(value->bytes, value->len)
				    : value->kind == BODY_INTEGER ? json_integer(value->integer)
								  : json_boolean(value->integer));
	free(key);
	return !twice;
}

/* jansson accepts each body that is read in place, and finds the same in it. */
static void check_flat(const char *bytes, size_t len)
{
	json_t *scanned = json_object();
	if (body_flat_scan(bytes, len, add_member, scanned)) {
		json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL);
		MUST(json_equal(scanned, root), "read in place, and jansson reads something else: %zu bytes", len);
		json_decref(root);
	}
	json_decref(scanned);
}

/* jansson accepts a body if it accepts each item that is found in it, and finds the same items. */
static void check_items(const char *bytes, size_t len)
{
	struct body_item items[BODY_ITEMS_MAX];
	size_t count = body_find_items(bytes, len, items);
	json_t *found = json_array(), *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *list = json_object_get(root, "leases");
	bool all = count > 0 && count <= BODY_ITEMS_MAX;
	for (size_t i = 0; all && i < count; i++)
		all = json_array_append_new(
			      found, json_loadb(items[i].bytes, items[i].len, JSON_REJECT_DUPLICATES, NULL)) == 0;
	MUST(!all || json_equal(found, list), "%zu items are found, and jansson reads something else", count);
	MUST(!root || count == 0 || (json_object_size(root) == 1 && json_array_size(list) == count), "%zu items",
	     count);
	json_decref(root);
	json_decref(found);
}

static void check_token(const char *bytes, size_t len)
{
	char *text = fuzz_text(bytes, len);
	bool good = len == LEASE_TOKEN_LEN && strspn(text, "0123456789abcdef") == LEASE_TOKEN_LEN;
	MUST(headers_is_token(bytes, len) == good, "a token: %d", good);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum lease_operation calls[] = {
		['a' % 3] = LEASE_ACQUIRE, ['e' % 3] = LEASE_EXTEND, ['r' % 3] = LEASE_RELEASE};
	if (size < 2 || size - 2 > REQUEST_BODY_MAX)
		return 0;
	char *body = fuzz_copy(data + 2, size - 2);
	enum lease_operation call = data[0] == 'f' ? LEASE_FORCE : calls[data[0] % 3];
	unsigned without = call == LEASE_FORCE ? TOKEN_IN_HEADER : 0,
		 with = call == LEASE_FORCE || call == LEASE_ACQUIRE ? NO_PATH : 0;
	check(call, (data[1] % 16U & ~without) | with, body, size - 2);
	check_flat(body, size - 2);
	check_items(body, size - 2);
	check_token(body, size - 2);
	free(body);
	return 0;
}
