/* JSON bodies -> struct lease_request. See body.h.
 *
 * The usual bodies are read in place (body_flat.c); any other is parsed by jansson, which also finds the mistakes.
 *
 * Strict: one flat object, no unknown or repeated members, no NUL, no trailing bytes, integers only where integers are
 * meant. One table says which operation knows which member. No state, any thread. */
#include "body.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "api/auth/auth.h"
#include "api/http/http.h"
#include "path.h"
#include "server/base/base.h"

/* 2^53: every whole number up to it is a double, and no other number becomes one of them */
#define WHOLE_MAX 9007199254740992.0

struct reading {
	const struct body_limits *limits;
	struct lease_request *request;
	struct field_errors *errors;
	const char *header_token;
	bool resource, ttl, token; /* seen, right or wrong */
};

typedef void parse_fn(struct reading *reading, const struct body_value *value);

static void parse_resource(struct reading *reading, const struct body_value *value)
{
	const char *reason;

	reading->resource = true;
	if (value->kind != BODY_STRING) {
		field_errors_add(reading->errors, "resource", "must be a string");
		return;
	}
	reason = path_check_resource(value->bytes, value->len);
	if (reason) {
		field_errors_add(reading->errors, "resource", "%s", reason);
		return;
	}
	reading->request->resource_len = (uint16_t)value->len;
	memcpy(reading->request->resource, value->bytes, value->len);
}

static void parse_ttl(struct reading *reading, const struct body_value *value)
{
	const struct body_limits *limits = reading->limits;

	reading->ttl = true;
	if (value->kind != BODY_INTEGER)
		field_errors_add(reading->errors, "ttl_ms", "must be an integer");
	else if (value->integer < limits->min_ttl_ms || value->integer > limits->max_ttl_ms)
		field_errors_add(reading->errors, "ttl_ms", "must be from %u to %u", limits->min_ttl_ms,
				 limits->max_ttl_ms);
	else
		reading->request->ttl_ms = (uint32_t)value->integer;
}

static void parse_owner(struct reading *reading, const struct body_value *value)
{
	if (value->kind != BODY_STRING)
		field_errors_add(reading->errors, "owner", "must be a string");
	else if (value->len > LEASE_OWNER_MAX)
		field_errors_add(reading->errors, "owner", "must be at most %d bytes", LEASE_OWNER_MAX);
	else if (utf8_has_control(value->bytes, value->len))
		field_errors_add(reading->errors, "owner", "must not hold control characters");
	else {
		memcpy(reading->request->owner, value->bytes, value->len);
		reading->request->owner_len = (uint16_t)value->len;
	}
}

static void parse_token(struct reading *reading, const struct body_value *value)
{
	reading->token = true;
	if (value->kind != BODY_STRING || !headers_is_token(value->bytes, value->len))
		field_errors_add(reading->errors, "token", "must be %d lower-case hexadecimal digits", LEASE_TOKEN_LEN);
	else if (reading->header_token && memcmp(value->bytes, reading->header_token, LEASE_TOKEN_LEN) != 0)
		field_errors_add(reading->errors, "token", "is not the same as in the header Lock-Token");
	else
		memcpy(reading->request->token, value->bytes, LEASE_TOKEN_LEN);
}

static void parse_wait(struct reading *reading, const struct body_value *value)
{
	uint32_t max_ms = reading->limits->max_wait_ms;

	if (value->kind != BODY_INTEGER)
		field_errors_add(reading->errors, "wait_ms", "must be an integer");
	else if (value->integer < 0 || value->integer > max_ms)
		field_errors_add(reading->errors, "wait_ms", "must be from 0 to %u", max_ms);
	else
		reading->request->wait_ms = (uint32_t)value->integer;
}

static void parse_hold(struct reading *reading, const struct body_value *value)
{
	if (value->kind != BODY_BOOLEAN)
		field_errors_add(reading->errors, "hold", "must be true or false");
	else
		reading->request->hold = value->boolean;
}

enum { ON_ACQUIRE = 1 << LEASE_ACQUIRE, ON_EXTEND = 1 << LEASE_EXTEND, ON_RELEASE = 1 << LEASE_RELEASE };

/* Which operation knows which member. */
static const struct {
	const char *name;
	unsigned calls;
	parse_fn *parse;
} members[] = {
	{"resource", ON_ACQUIRE, parse_resource}, {"ttl_ms", ON_ACQUIRE | ON_EXTEND, parse_ttl},
	{"owner", ON_ACQUIRE, parse_owner},       {"token", ON_EXTEND | ON_RELEASE, parse_token},
	{"wait_ms", ON_ACQUIRE, parse_wait},      {"hold", ON_ACQUIRE, parse_hold},
};
enum { MEMBER_COUNT = sizeof members / sizeof members[0] };

static void parse_member(struct reading *reading, const char *name, size_t name_len, const struct body_value *value)
{
	assert(reading->request->operation < LEASE_INSPECT);
	for (size_t i = 0; i < MEMBER_COUNT; i++)
		if (strncmp(members[i].name, name, name_len) == 0 && members[i].name[name_len] == '\0' &&
		    (members[i].calls & 1u << reading->request->operation) != 0) {
			members[i].parse(reading, value);
			return;
		}
	field_errors_add_name(reading->errors, name, name_len, "is not a member of this body");
}

/* The member that is there twice, which the parser does not name: the first of ours that stands twice in the text. */
static const char *find_duplicate(const char *bytes, size_t len)
{
	for (size_t i = 0; i < MEMBER_COUNT; i++) {
		size_t name_len = strlen(members[i].name), count = 0;
		for (const char *at = bytes;
		     (at = memmem(at, len - (size_t)(at - bytes), members[i].name, name_len)) != NULL; at += name_len)
			count += at > bytes && at[-1] == '"' && at + name_len < bytes + len && at[name_len] == '"';
		if (count > 1)
			return members[i].name;
	}
	return "body";
}

/* Adds the reason why the parser rejected the text. Its own message holds pieces of the body and is not used. */
static void add_parse_error(const json_error_t *error, const char *bytes, size_t len, struct field_errors *errors)
{
	switch (json_error_code(error)) {
	case json_error_duplicate_key:
		field_errors_add(errors, find_duplicate(bytes, len), "must not be given twice");
		break;
	case json_error_null_character:
	case json_error_null_byte_in_key: field_errors_add(errors, "body", "must not hold NUL"); break;
	case json_error_invalid_utf8: field_errors_add(errors, "body", "must be valid UTF-8"); break;
	case json_error_numeric_overflow: field_errors_add(errors, "body", "holds a number that is too large"); break;
	case json_error_end_of_input_expected: field_errors_add(errors, "body", "must end after the object"); break;
	case json_error_stack_overflow: field_errors_add(errors, "body", "is nested too deeply"); break;
	default: field_errors_add(errors, "body", "is not valid JSON (at byte %d)", error->position); break;
	}
}

/* The object, or NULL with the reason in `errors`; without a reason if memory is short. */
static json_t *body_load(const char *bytes, size_t len, struct field_errors *errors)
{
	json_error_t error;

	assert(len > 0);
	if (memchr(bytes, '\0', len)) {
		field_errors_add(errors, "body", "must not hold NUL");
		return NULL;
	}
	json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &error);
	/* Integers beyond 64 bits: read again as reals, so that the error can name their member. */
	if (!root && json_error_code(&error) == json_error_numeric_overflow)
		root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
	if (json_memory_failed()) { /* a byte of a string may be missing */
		json_decref(root);
		return NULL;
	}
	if (!root)
		add_parse_error(&error, bytes, len, errors);
	else if (!json_is_object(root)) {
		field_errors_add(errors, "body", "must be a JSON object");
		json_decref(root);
		root = NULL;
	}
	return root;
}

/* 6331.0 and 1e3 are integers for JSON Schema, and some clients write all numbers so. */
static bool is_whole(double number)
{
	return number >= -WHOLE_MAX && number <= WHOLE_MAX && number == (double)(int64_t)number;
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
	} else if (json_is_real(json) && is_whole(json_real_value(json))) {
		value.kind = BODY_INTEGER;
		value.integer = (int64_t)json_real_value(json);
	} else if (json_is_boolean(json)) {
		value.kind = BODY_BOOLEAN;
		value.boolean = json_is_true(json);
	}
	return value;
}

/* By jansson: all of JSON, and the reason why it is invalid. */
static bool read_whole(struct reading *reading, const char *bytes, size_t len)
{
	json_t *root = body_load(bytes, len, reading->errors), *json;
	const char *name;

	if (!root)
		return false;
	json_object_foreach(root, name, json)
	{
		struct body_value value = value_of(json);
		parse_member(reading, name, strlen(name), &value);
	}
	json_decref(root);
	return true;
}

static bool read_members(struct reading *reading, const char *bytes, size_t len)
{
	struct body_member found[BODY_FLAT_MAX];
	size_t count;

	if (!body_flat_scan(bytes, len, found, &count))
		return read_whole(reading, bytes, len);
	for (size_t i = 0; i < count; i++)
		parse_member(reading, found[i].name, found[i].name_len, &found[i].value);
	return true;
}

/* Checks the required members, and sets the defaults. */
static void complete(struct reading *reading)
{
	struct lease_request *request = reading->request;

	assert(reading->errors && reading->request);
	if (request->operation == LEASE_ACQUIRE && !reading->resource)
		field_errors_add(reading->errors, "resource", "is required");
	if (request->operation != LEASE_RELEASE && !reading->ttl)
		request->ttl_ms = reading->limits->default_ttl_ms;
	if (request->operation == LEASE_ACQUIRE || reading->token)
		return;
	if (!reading->header_token)
		field_errors_add(reading->errors, "token", "is required, in the body or in the header Lock-Token");
	else
		memcpy(request->token, reading->header_token, LEASE_TOKEN_LEN);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool body_is_nothing(const char *bytes, size_t len)
{
	assert(bytes || len == 0);
	for (; len > 0 && is_blank(bytes[0]); len--)
		bytes++;
	while (len > 0 && is_blank(bytes[len - 1]))
		len--;
	return len == 0 || (len == 4 && memcmp(bytes, "null", 4) == 0);
}

bool body_parse(const char *bytes, size_t len, const char *header_token, const struct body_limits *limits,
		struct lease_request *ret_request, struct field_errors *errors)
{
	struct lease_request request = *ret_request;
	struct reading reading = {
		.limits = limits, .request = &request, .errors = errors, .header_token = header_token};
	size_t errors_before = errors->count;

	assert(len <= BODY_MAX && (bytes || len == 0));
	assert(request.operation == LEASE_ACQUIRE || request.operation == LEASE_EXTEND ||
	       request.operation == LEASE_RELEASE);
	assert(limits->min_ttl_ms <= limits->default_ttl_ms && limits->default_ttl_ms <= limits->max_ttl_ms);
	if (request.operation == LEASE_ACQUIRE) /* an extension's or release's comes from the path */
		request.resource_len = 0;
	request.owner_len = 0;
	request.wait_ms = 0;
	request.hold = false;
	if (request.operation == LEASE_RELEASE && body_is_nothing(bytes, len))
		len = 0;
	if (len > 0) {
		if (!read_members(&reading, bytes, len))
			return false;
	} else if (request.operation == LEASE_ACQUIRE) {
		field_errors_add(errors, "body", "must not be empty");
		return false;
	}
	complete(&reading);
	if (errors->count > errors_before)
		return false;
	*ret_request = request;
	return true;
}
