/* SPDX-License-Identifier: MIT */
/* JSON bodies -> struct lease_request. See calls_internal.h.
 *
 * The usual bodies are read in place (body_flat.c); any other is parsed by jansson, which also finds the mistakes.
 *
 * Strict: one flat object, no unknown or repeated members, no NUL, no trailing bytes, no other numbers than integers.
 * Both ways use one table of the members. No state, any thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"

/* 2^53: every whole number up to it is a double, and no other number becomes one of them */
#define INTEGER_LIMIT 9007199254740992.0

struct reading {
	const struct body_limits *limits;
	struct lease_request *request; /* that is made */
	struct field_errors *errors;
	const char *header_token;
	bool is_named; /* by the path */
	bool is_item;  /* of `leases` */
	bool as_reals; /* some integer is beyond 64 bits, so all were read as reals */
	unsigned seen; /* a bit for each member of the table that was present, valid or not */
	bool no_names; /* an empty list of resources */
};

/* ---- the members ---- */

enum {
	ON_ACQUIRE = 1 << LEASE_ACQUIRE,
	ON_EXTEND = 1 << LEASE_EXTEND,
	ON_RELEASE = 1 << LEASE_RELEASE,
	ON_FORCE = 1 << LEASE_FORCE
};
enum { RESOURCE, RESOURCES, TTL, OWNER, TOKEN, KEEP, WAIT, HOLD, METADATA, MODE, SLOTS, MEMBER_COUNT };

/* The members: operations that know each, and its type. */
static const struct member {
	const char *name;
	unsigned operations;
	enum body_kind kind;
} members[MEMBER_COUNT] = {
	[RESOURCES] = {"resources", ON_ACQUIRE | ON_EXTEND | ON_RELEASE, BODY_ARRAY},
	[RESOURCE] = {"resource", ON_ACQUIRE | ON_EXTEND | ON_RELEASE | ON_FORCE, BODY_STRING},
	[TTL] = {"ttl_ms", ON_ACQUIRE | ON_EXTEND, BODY_INTEGER},
	[OWNER] = {"owner", ON_ACQUIRE, BODY_STRING},
	[TOKEN] = {"token", ON_EXTEND | ON_RELEASE, BODY_STRING},
	[KEEP] = {"keep_ms", ON_RELEASE, BODY_INTEGER},
	[WAIT] = {"wait_ms", ON_ACQUIRE, BODY_INTEGER},
	[HOLD] = {"hold", ON_ACQUIRE, BODY_BOOLEAN},
	[METADATA] = {"metadata", ON_ACQUIRE, BODY_OBJECT},
	[MODE] = {"mode", ON_ACQUIRE, BODY_STRING},
	[SLOTS] = {"slots", ON_ACQUIRE, BODY_INTEGER},
};

static bool was_seen(const struct reading *reading, int member)
{
	return (reading->seen & 1u << member) != 0;
}

static bool is_known(const struct reading *reading, int member)
{
	return (members[member].operations & 1u << reading->request->operation) != 0 &&
	       !(reading->is_named && (member == RESOURCE || member == RESOURCES));
}

/* This function and the next: NULL, or the reason why the bytes are not a value of their member (static). */
static const char *check_owner(const struct body_value *value)
{
	_Static_assert(LEASE_OWNER_MAX == 128, "the reason names it");
	if (value->len > LEASE_OWNER_MAX)
		return "must be at most 128 bytes";
	return utf8_has_control(value->bytes, value->len) ? "must not hold control characters" : NULL;
}

static const char *check_token(const struct reading *reading, const struct body_value *value)
{
	if (!headers_is_token(value->bytes, value->len))
		return HEADERS_TOKEN_RULE;
	if (reading->header_token && memcmp(value->bytes, reading->header_token, LEASE_TOKEN_LEN) != 0)
		return "is not the same as in the header Lock-Token";
	return NULL;
}

/* Stores a copy of the text in the request, and frees an earlier one. With a reason to reject it: adds the error. */
static void read_string(struct reading *reading, int member, const struct body_value *value, const char *reason,
			const char **ret_text, uint16_t *ret_len)
{
	if (reason) {
		field_errors_add(reading->errors, members[member].name, "%s", reason);
		return;
	}
	free((char *)*ret_text);
	*ret_text = memory_copy(value->bytes, value->len);
	*ret_len = (uint16_t)value->len;
}

static void put_token(struct reading *reading, const struct body_value *value)
{
	const char *reason = check_token(reading, value);
	if (reason)
		field_errors_add(reading->errors, "token", "%s", reason);
	else
		memcpy(reading->request->token, value->bytes, LEASE_TOKEN_LEN);
}

static void put_integer(struct reading *reading, int member, const struct body_value *value, uint32_t min, uint32_t max,
			uint32_t *ret_integer)
{
	assert(min <= max);
	if (value->integer < min || value->integer > max)
		field_errors_add(reading->errors, members[member].name, "must be from %u to %u%s", min, max,
				 member == TTL && value->integer > max ? "; extend it for longer" : "");
	else
		*ret_integer = (uint32_t)value->integer;
}

/* The query may have it, too. */
static void put_keep(struct reading *reading, const struct body_value *value)
{
	uint32_t in_query = reading->request->keep_ms;
	put_integer(reading, KEEP, value, 0, reading->limits->max_ttl_ms, &reading->request->keep_ms);
	if (in_query > 0 && in_query != reading->request->keep_ms)
		field_errors_add(reading->errors, "keep_ms", "is not the same as in the query");
}

/* A longer wait than the server allows is shortened. */
static void put_wait(struct reading *reading, const struct body_value *value)
{
	uint32_t max = reading->limits->max_wait_ms;
	if (value->integer < 0)
		field_errors_add(reading->errors, "wait_ms", "must not be negative");
	else
		reading->request->wait_ms = value->integer < max ? (uint32_t)value->integer : max;
}

static void read_mode(struct reading *reading, const struct body_value *value)
{
	bool is_shared = value->len == 6 && memcmp(value->bytes, "shared", 6) == 0;
	if (is_shared)
		reading->request->mode = LEASE_SHARED;
	else if (value->len != 9 || memcmp(value->bytes, "exclusive", 9) != 0)
		field_errors_add(reading->errors, "mode", "must be exclusive or shared");
}

/* The request owns the text. */
static void put_metadata(struct reading *reading, const json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);
	size_t len = text ? strlen(text) : 0;
	assert(!reading->request->metadata);
	if (!reading->as_reals && len > 0 && len <= LEASE_METADATA_MAX) {
		reading->request->metadata = text;
		reading->request->metadata_len = (uint16_t)len;
		return;
	}
	if (reading->as_reals)
		field_errors_add(reading->errors, "metadata", "must hold no integer beyond 64 bits");
	else
		field_errors_add(reading->errors, "metadata", "must be at most %d bytes as compact JSON",
				 LEASE_METADATA_MAX);
	free(text);
}

/* NULL, or the reason why the element is not a name. */
static const char *check_name(const json_t *array, size_t i)
{
	const json_t *name = json_array_get(array, i);
	if (!json_is_string(name))
		return "must be a string";
	for (size_t j = 0; j < i; j++)
		if (json_equal(json_array_get(array, j), name))
			return "must not be given twice";
	return path_check_resource(json_string_value(name), json_string_length(name));
}

static int compare_resources(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Writes a line feed after each name. */
static char *write_names(char *at, const char *const names[], size_t count)
{
	for (size_t i = 0; i < count; i++) {
		assert(names[i]);
		at = stpcpy(at, names[i]);
		*at++ = '\n';
	}
	return at;
}

static void reject_count(struct reading *reading)
{
	field_errors_add(reading->errors, "resources", "must be 2 to %d names; name a single one as resource",
			 LEASE_SET_MAX);
}

/* The request gets the sorted names, followed by a line feed and the names as they were given. */
static void read_resources(struct reading *reading, const json_t *array)
{
	struct lease_request *request = reading->request;
	size_t count = json_array_size(array), errors_before = reading->errors->count, len = 0;
	const char *names[LEASE_SET_MAX];
	if (count < 2 || count > LEASE_SET_MAX) {
		reject_count(reading);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		char field[FIELD_NAME_MAX];
		const char *reason = check_name(array, i);
		snprintf(field, sizeof field, "resources[%zu]", i);
		if (reason)
			field_errors_add(reading->errors, field, "%s", reason);
		names[i] = json_string_value(json_array_get(array, i));
		len += names[i] ? strlen(names[i]) + 1 : 0;
	}
	if (reading->errors->count > errors_before)
		return;
	char *sorted = memory_alloc(2 * len + 1);
	write_names(sorted + len, names, count);
	qsort(names, count, sizeof *names, compare_resources);
	write_names(sorted, names, count);
	free((char *)request->resource); /* the request also has one resource, which is a mistake */
	request->resource = sorted;
	request->resource_len = (uint16_t)(len - 1);
	request->set_count = (uint8_t)count;
}

static void put_value(struct reading *reading, int member, const struct body_value *value)
{
	const struct body_limits *limits = reading->limits;
	struct lease_request *request = reading->request;
	switch (member) {
	case RESOURCE:
		read_string(reading, member, value, path_check_resource(value->bytes, value->len), &request->resource,
			    &request->resource_len);
		break;
	case OWNER:
		read_string(reading, member, value, check_owner(value), &request->owner, &request->owner_len);
		break;
	case TOKEN: put_token(reading, value); break;
	case RESOURCES:
		reading->no_names = json_array_size(value->json) == 0;
		if (!reading->no_names)
			read_resources(reading, value->json);
		break;
	case TTL: put_integer(reading, member, value, limits->min_ttl_ms, limits->max_ttl_ms, &request->ttl_ms); break;
	case KEEP: put_keep(reading, value); break;
	case WAIT: put_wait(reading, value); break;
	case HOLD: request->hold = value->integer != 0; break;
	case METADATA: put_metadata(reading, value->json); break;
	case MODE: read_mode(reading, value); break;
	case SLOTS: put_integer(reading, member, value, 1, LEASE_SLOTS_MAX, &request->slots); break;
	default: assert(false);
	}
}

/* body_visit_fn: stores a value, or adds its fault. False for a member that the operation does not know, or that came
 * before. */
static bool read_body_member(void *arg, const char *name, size_t name_len, const struct body_value *value)
{
	static const char *const kinds[] = {"a string", "an integer", "true or false", "an object",
					    "an array of strings"};
	struct reading *reading = arg;
	int member = 0;
	while (member < MEMBER_COUNT &&
	       (strncmp(members[member].name, name, name_len) != 0 || members[member].name[name_len] != '\0'))
		member++;
	if (member == MEMBER_COUNT || !is_known(reading, member) || was_seen(reading, member))
		return false;
	reading->seen |= 1u << member;
	if (value->kind != members[member].kind)
		field_errors_add(reading->errors, members[member].name, "must be %s", kinds[members[member].kind]);
	else
		put_value(reading, member, value);
	return true;
}

/* ---- by jansson ---- */

/* The member that occurs twice: the parser's message names it as the text before the mistake. */
static const char *find_duplicate(const char *message)
{
	char quoted[FIELD_NAME_MAX];
	for (size_t i = 0; i < MEMBER_COUNT; i++) {
		snprintf(quoted, sizeof quoted, "'\"%s\"'", members[i].name);
		if (strstr(message, quoted))
			return members[i].name;
	}
	return strstr(message, "'\"leases\"'") ? "leases" : "body";
}

/* 6331.0 and 1e3 are integers for JSON Schema, and some clients write all numbers so. */
static bool is_integer(double number)
{
	return number >= -INTEGER_LIMIT && number <= INTEGER_LIMIT && number == (double)(int64_t)number;
}

static struct body_value value_of(const json_t *json)
{
	struct body_value value = {.kind = BODY_OTHER};
	assert(json);
	if (json_is_string(json)) {
		value.kind = BODY_STRING;
		value.bytes = json_string_value(json);
		value.len = json_string_length(json);
	} else if (json_is_integer(json)) {
		value.kind = BODY_INTEGER;
		value.integer = json_integer_value(json);
	} else if (json_is_real(json) && is_integer(json_real_value(json))) {
		value.kind = BODY_INTEGER;
		value.integer = (int64_t)json_real_value(json);
	} else if (json_is_boolean(json)) {
		value.kind = BODY_BOOLEAN;
		value.integer = json_is_true(json);
	} else if (json_is_object(json) || json_is_array(json)) {
		value.kind = json_is_object(json) ? BODY_OBJECT : BODY_ARRAY;
		value.json = json;
	}
	return value;
}

/* Adds a member that the operation does not know: the reason names those that it knows. */
static void reject_unknown(struct reading *reading, const char *name)
{
	char reason[FIELD_REASON_MAX] = "is not a member of this body; allowed are";
	size_t len = strlen(reason);
	if (reading->is_named &&
	    (strcmp(name, members[RESOURCE].name) == 0 || strcmp(name, members[RESOURCES].name) == 0)) {
		field_errors_add(reading->errors, name, BODY_NAME_TWICE);
		return;
	}
	for (size_t i = 0; i < MEMBER_COUNT; i++)
		if (is_known(reading, (int)i))
			len += (size_t)snprintf(reason + len, sizeof reason - len, " %s,", members[i].name);
	assert(len < sizeof reason && reason[len - 1] == ',');
	reason[len - 1] = '\0';
	field_errors_add_name(reading->errors, name, strlen(name), reason);
}

/* Reads any JSON. False if it is not an object; the reason is in `errors`. */
static bool read_complete(struct reading *reading, const char *bytes, size_t len)
{
	json_error_t error;
	const char *name;
	json_t *json, *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &error);
	assert(len > 0);
	/* Integers beyond 64 bits: read again as reals, so that the error can name their member. */
	reading->as_reals = !root && json_error_code(&error) == json_error_numeric_overflow;
	if (reading->as_reals)
		root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
	if (!root && json_error_code(&error) == json_error_duplicate_key)
		field_errors_add(reading->errors, find_duplicate(error.text), "must not be given twice");
	else if (!root)
		field_errors_add(reading->errors, "body", "%s (at byte %d)%s", keys_json_reason(&error), error.position,
				 json_error_code(&error) == json_error_invalid_syntax
					 ? "; names and texts need double quotes, times are numbers of milliseconds"
					 : "");
	else if (!json_is_object(root))
		field_errors_add(reading->errors, "body", "must be a JSON object");
	bool is_object = json_is_object(root);
	json_object_foreach(root, name, json)
	{
		struct body_value value = value_of(json);
		if (!read_body_member(reading, name, strlen(name), &value))
			reject_unknown(reading, name);
	}
	json_decref(root);
	return is_object;
}

/* ---- the body ---- */

/* Checks the required members, and sets the defaults. */
static void complete(struct reading *reading)
{
	struct lease_request *request = reading->request;
	assert(reading->errors && reading->request);
	if (reading->no_names &&
	    (reading->is_named || was_seen(reading, RESOURCE))) /* some generated clients always send it */
		reading->seen &= ~(1u << RESOURCES);
	else if (reading->no_names)
		reject_count(reading);
	if (!reading->is_named && !was_seen(reading, RESOURCE) && !was_seen(reading, RESOURCES))
		field_errors_add(
			reading->errors, "resource", "is required%s",
			request->operation == LEASE_ACQUIRE || reading->is_item ? "" : ", in the path or in the body");
	if (was_seen(reading, RESOURCE) && was_seen(reading, RESOURCES))
		field_errors_add(reading->errors, "resources", "must not be there beside resource");
	if (was_seen(reading, SLOTS) && request->mode == LEASE_SHARED)
		field_errors_add(reading->errors, "slots", "must not be there beside mode shared");
	else if (was_seen(reading, SLOTS) && was_seen(reading, RESOURCES))
		field_errors_add(reading->errors, "slots", "must not be there beside resources");
	else if (was_seen(reading, SLOTS))
		request->mode = LEASE_SLOT;
	if (is_known(reading, TTL) && !was_seen(reading, TTL))
		request->ttl_ms = reading->limits->default_ttl_ms;
	if (!is_known(reading, TOKEN) || was_seen(reading, TOKEN))
		return;
	if (!reading->header_token)
		field_errors_add(reading->errors, "token", "is required%s",
				 reading->is_item ? "" : ", in the body or in the header Lock-Token");
	else
		memcpy(request->token, reading->header_token, LEASE_TOKEN_LEN);
}

/* Begins with a copy of `before`, without the members that the body may have. */
static void begin_reading(struct reading *reading, const struct lease_request *before)
{
	struct lease_request *request = reading->request;
	*request = (struct lease_request){.operation = before->operation,
					  .ttl_ms = before->ttl_ms,
					  .keep_ms = before->keep_ms,
					  .fence = before->fence,
					  .key = before->key};
	memcpy(request->token, before->token, sizeof request->token);
	if (reading->is_named) {
		request->resource_len = before->resource_len;
		request->resource = before->resource;
	}
	reading->seen = 0;
	reading->no_names = false;
}

/* Frees the values of the body. */
static void discard(const struct lease_request *request, const struct lease_request *before)
{
	if (request->resource != before->resource)
		free((char *)request->resource);
	free((char *)request->owner);
	free((char *)request->metadata);
}

static bool parse_object(struct reading *reading, const char *bytes, size_t len, struct lease_request *ret_request)
{
	struct lease_request *request = reading->request;
	struct field_errors *errors = reading->errors;
	const struct body_limits *limits = reading->limits;
	size_t errors_before = errors->count;
	begin_reading(reading, ret_request);
	assert(len <= REQUEST_LARGE_BODY_MAX && (bytes || len == 0));
	assert(request->operation != LEASE_INSPECT && (request->operation != LEASE_FORCE || !reading->is_named));
	assert(limits->min_ttl_ms <= limits->default_ttl_ms && limits->default_ttl_ms <= limits->max_ttl_ms);
	if ((request->operation == LEASE_RELEASE || request->operation == LEASE_FORCE) && body_is_nothing(bytes, len))
		len = 0;
	if (len == 0 && request->operation == LEASE_ACQUIRE) {
		field_errors_add(errors, "body", "must not be empty");
		return false;
	}
	if (len > 0 && !body_flat_scan(bytes, len, read_body_member, reading)) {
		discard(request, ret_request);
		begin_reading(reading, ret_request);
		errors->count = errors_before;
		if (!read_complete(reading, bytes, len))
			return false;
	}
	complete(reading);
	if (errors->count > errors_before) {
		discard(request, ret_request);
		return false;
	}
	*ret_request = *request;
	return true;
}

bool body_parse(const char *bytes, size_t len, const char *header_token, const struct body_limits *limits,
		struct lease_request *ret_request, struct field_errors *errors)
{
	struct lease_request request;
	struct reading reading = {.limits = limits,
				  .request = &request,
				  .errors = errors,
				  .header_token = header_token,
				  .is_named = ret_request->operation != LEASE_ACQUIRE && ret_request->resource_len > 0};
	return parse_object(&reading, bytes, len, ret_request);
}

bool body_parse_item(const char *bytes, size_t len, const struct body_limits *limits, struct lease_request *ret_request,
		     struct field_errors *errors)
{
	struct lease_request request;
	struct reading reading = {.limits = limits, .request = &request, .errors = errors, .is_item = true};
	assert(len > 0 && ret_request->resource_len == 0);
	return parse_object(&reading, bytes, len, ret_request);
}
