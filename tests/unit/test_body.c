/* SPDX-License-Identifier: MIT */
/* body.c: which bodies of lease requests are accepted, and which field an error names. */
#include <check.h>
#include <string.h>

#include "api/calls/calls_internal.h"
#include "api/http/http.h"
#include "suite.h"

#define S(literal) literal, sizeof(literal) - 1
#define TOKEN "0123456789abcdef0123456789abcdef01234567"
#define OTHER "f123456789abcdef0123456789abcdef01234567"

static const struct body_limits limits = {.default_ttl_ms = 30000,
					  .min_ttl_ms = 100,
					  .max_ttl_ms = 60000,
					  .max_wait_ms = 50000};

static const struct {
	enum lease_operation call;
	const char *body;
	size_t len;
	const char *header; /* Lock-Token */
	const char *error;  /* field of the first error; NULL: the body is good */
} bodies[] = {
	/* acquire: good */
	{LEASE_ACQUIRE, S("{\"resource\":\"a\"}"), NULL, NULL},
	{LEASE_ACQUIRE, S(" {\t\"resource\" :\r\n\"a\" } \n"), NULL, NULL},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"ttl_ms\":60000,\"owner\":\"me\"}"), NULL, NULL},
	{LEASE_ACQUIRE, S("{\"resource\":\"\\u00e9\\ud83d\\udd12\"}"), NULL, NULL},
	{LEASE_ACQUIRE, S("{\"resource\":\"\xc3\xa9\"}"), NULL, NULL},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\"}"), TOKEN, NULL}, /* a token is ignored here */
	{LEASE_ACQUIRE, S("{\"res\\u006furce\":\"a\"}"), NULL, NULL},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"ttl_ms\":6331.0,\"wait_ms\":0.0}"), NULL, NULL},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"ttl_ms\":1e3,\"wait_ms\":-0.0}"), NULL, NULL},
	/* acquire: not an object; more of these: tests/e2e/malformed/4-body.txt */
	{LEASE_ACQUIRE, S(""), NULL, "body"},
	{LEASE_ACQUIRE, S("[]"), NULL, "body"},
	{LEASE_ACQUIRE, S("{"), NULL, "body"},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\\u0000b\"}"), NULL, "body"},
	/* acquire: resource */
	{LEASE_ACQUIRE, S("{}"), NULL, "resource"},
	{LEASE_ACQUIRE, S("{\"ttl_ms\":1000}"), NULL, "resource"},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"resource\":\"b\"}"), NULL, "resource"},
	{LEASE_ACQUIRE, S("{\"Resource\":\"a\"}"), NULL, "Resource"},
	/* acquire: ttl_ms */
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"ttl_ms\":1000,\"ttl_ms\":1000}"), NULL, "ttl_ms"},
	/* acquire: wait_ms */
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"wait_ms\":1000,\"wait_ms\":1000}"), NULL, "wait_ms"},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"wait\":1000}"), NULL, "wait"},
	/* acquire: owner */
	/* acquire: hold */
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"hold\":true,\"wait_ms\":1}"), NULL, NULL},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"hold\":true,\"hold\":true}"), NULL, "hold"},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"token\":\"" TOKEN "\"}"), NULL, "token"},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"x\":1}"), NULL, "x"},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"\":1}"), NULL, "?"},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"" TOKEN "\":1}"), NULL, "?"},
	{LEASE_ACQUIRE, S("{\"resource\":\"a\",\"x\":1,\"x\":2}"), NULL, "body"},
	/* extend */
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\"}"), NULL, NULL},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\",\"ttl_ms\":500}"), NULL, NULL},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\"}"), TOKEN, NULL},
	{LEASE_EXTEND, S("{\"ttl_ms\":500}"), TOKEN, NULL},
	{LEASE_EXTEND, S("{}"), TOKEN, NULL},
	{LEASE_EXTEND, S(""), TOKEN, NULL},
	{LEASE_EXTEND, S(""), NULL, "token"},
	{LEASE_EXTEND, S("null"), TOKEN, "body"},
	{LEASE_RELEASE, S("null"), TOKEN, NULL},
	{LEASE_RELEASE, S(" \tnull\r\n"), TOKEN, NULL},
	{LEASE_RELEASE, S(" "), TOKEN, NULL},
	{LEASE_RELEASE, S("null"), NULL, "token"},
	{LEASE_RELEASE, S("nulll"), TOKEN, "body"},
	{LEASE_RELEASE, S("null\0"), TOKEN, "body"},
	{LEASE_RELEASE, S("[]"), TOKEN, "body"},
	{LEASE_RELEASE, S("false"), TOKEN, "body"},
	{LEASE_EXTEND, S("{}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"ttl_ms\":500}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\"}"), OTHER, "token"},
	{LEASE_EXTEND, S("{\"token\":\"0123456789ABCDEF0123456789abcdef01234567\"}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"token\":\"0123456789abcdef0123456789abcdef0123456\"}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"token\":\"0123456789abcdef0123456789abcdef012345678\"}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"token\":\"g123456789abcdef0123456789abcdef01234567\"}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"token\":\"\"}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"token\":\"\"}"), TOKEN, "token"},
	{LEASE_EXTEND, S("{\"token\":null}"), TOKEN, "token"},
	{LEASE_EXTEND, S("{\"token\":1}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\",\"token\":\"" TOKEN "\"}"), NULL, "token"},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\",\"ttl_ms\":99}"), NULL, "ttl_ms"},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\",\"resource\":\"a\"}"), NULL, "resource"},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\",\"owner\":\"a\"}"), NULL, "owner"},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\",\"wait_ms\":1000}"), NULL, "wait_ms"},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\",\"hold\":true}"), NULL, "hold"},
	{LEASE_EXTEND, S("[]"), TOKEN, "body"},
	/* release */
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\"}"), NULL, NULL},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\"}"), TOKEN, NULL},
	{LEASE_RELEASE, S(""), TOKEN, NULL},
	{LEASE_RELEASE, S("{}"), TOKEN, NULL},
	{LEASE_RELEASE, S(""), NULL, "token"},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\"}"), OTHER, "token"},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\",\"ttl_ms\":1000}"), NULL, "ttl_ms"},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\",\"wait_ms\":0}"), NULL, "wait_ms"},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\",\"keep_ms\":0}"), NULL, NULL},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\",\"keep_ms\":60000}"), NULL, NULL},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\",\"keep_ms\":60001}"), NULL, "keep_ms"},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\",\"keep_ms\":\"1\"}"), NULL, "keep_ms"},
	{LEASE_EXTEND, S("{\"token\":\"" TOKEN "\",\"keep_ms\":1}"), NULL, "keep_ms"},
	{LEASE_RELEASE, S("{\"token\":\"" TOKEN "\"}x"), NULL, "body"},
};

/* What the body gave to a request that had no texts. */
static void free_texts(struct lease_request *request)
{
	free((char *)request->resource);
	free((char *)request->owner);
	free((char *)request->metadata);
}

TEST_EACH(test_bodies, 0, sizeof(bodies) / sizeof(bodies[0]))
{
	struct lease_request request, before;
	struct field_errors errors = {.count = 0};

	memset(&request, 0x5a, sizeof(request));
	request.operation = bodies[_i].call;
	request.resource_len = 1;
	request.keep_ms = 0; /* of the query */
	before = request;
	bool good = body_parse(bodies[_i].body, bodies[_i].len, bodies[_i].header, &limits, &request, &errors);
	ck_assert_int_eq(good, bodies[_i].error == NULL);
	ck_assert_int_eq(good, errors.count == 0);
	if (!good) {
		ck_assert_str_eq(errors.items[0].field, bodies[_i].error);
		ck_assert_mem_eq(&request, &before, sizeof(request));
		for (size_t i = 0; i < errors.count; i++) { /* no error repeats a secret */
			ck_assert_ptr_null(strstr(errors.items[i].reason, TOKEN));
			ck_assert_ptr_null(strstr(errors.items[i].field, TOKEN));
		}
	} else if (request.operation != LEASE_ACQUIRE) {
		ck_assert_mem_eq(request.token, TOKEN, LEASE_TOKEN_LEN);
	}
	if (request.resource != before.resource)
		free((char *)request.resource);
	if (good)
		free((char *)request.owner);
}

/* What a member of an acquisition may be, as JSON; an error names the member. */
static const struct {
	const char *member;
	bool good;
	const char *values[20];
} members[] = {
	{"ttl_ms", true, {"100"}},
	{"owner", true, {"\"\""}},
	{"resource",
	 false,
	 {"\"\"", "1", "null", "true", "[\"a\"]", "{\"name\":\"a\"}", "\"redlockd:x\"", "\"a\\n\"", "\"\\u0085\"",
	  "\"a\\u007f\""}},
	{"ttl_ms",
	 false,
	 {"99", "60001", "0", "-1", "-0", "1000.5", "1e5", "1000.0000001", "1e19", "-1e308", "\"1000\"", "true", "null",
	  "[1000]", "4294968296", "18446744073709552616"}},
	{"wait_ms", true, {"0", "-0", "1", "50000"}},
	{"wait_ms",
	 false,
	 {"-1", "0.5", "1000.5", "1e-3", "\"1000\"", "true", "null", "[1000]", "{}", "18446744073709552616"}},
	{"owner", false, {"1", "null", "\"a\\tb\""}},
	{"hold", true, {"false"}},
	{"hold", false, {"null", "1", "\"true\"", "[]"}},
	{"resources", true, {"[\"b\",\"a\"]", "[\"\\u00e9\",\"a/b\",\"c\"]"}},
	{"resources",
	 false,
	 {"null", "1", "\"a\"", "{}", "[\"a\"]", "[\"a\",1]", "[\"a\",\"a\"]", "[\"a\",\"\"]", "[\"a\",\"b\\n\"]",
	  "[\"a\",\"redlockd:x\"]", "[[\"a\"],\"b\"]"}},
	{"metadata", true, {"{}", "{\"a\":{\"b\":[null,1,\"c\"]}}", "{\"a\":9223372036854775807}"}},
	{"metadata", false, {"null", "1", "\"{}\"", "[]", "true", "{\"a\":9223372036854775808}"}},
};

TEST_EACH(test_members, 0, sizeof(members) / sizeof(members[0]))
{
	const char *name = members[_i].member, *const *value = members[_i].values;
	const char *resource = strncmp(name, "resource", 8) == 0 ? "" : "\"resource\":\"a\",";

	for (; *value != NULL; value++) {
		struct lease_request request = {.operation = LEASE_ACQUIRE};
		struct field_errors errors = {0};
		char text[128];
		int len = snprintf(text, sizeof text, "{%s\"%s\":%s}", resource, name, *value);
		bool good = body_parse(text, (size_t)len, NULL, &limits, &request, &errors);
		ck_assert_msg(good == members[_i].good, "%s", text);
		ck_assert_uint_eq(errors.count, good ? 0 : 1);
		ck_assert_mem_eq(errors.items[0].field, good ? "" : name, good ? 1 : strlen(name));
		free_texts(&request);
	}
}

/* Bodies beside a path without a resource. */
static const struct {
	enum lease_operation operation;
	const char *body, *header, *error, *resource;
	unsigned count;
} named[] = {
	{LEASE_EXTEND, "{\"resource\":\"b\",\"token\":\"" TOKEN "\"}", NULL, NULL, "b", 0},
	{LEASE_EXTEND, "{\"resource\":\"b\"}", TOKEN, NULL, "b", 0},
	{LEASE_EXTEND, "{\"resource\":\"\\u0062\"}", TOKEN, NULL, "b", 0},
	{LEASE_EXTEND, "{\"resources\":[\"b\",\"a\"]}", TOKEN, NULL, "a\nb", 2},
	{LEASE_RELEASE, "{\"resource\":\"b\",\"token\":\"" TOKEN "\"}", NULL, NULL, "b", 0},
	{LEASE_RELEASE, "{\"resource\":\"b\"}", TOKEN, NULL, "b", 0},
	{LEASE_FORCE, "{\"resource\":\"b\"}", NULL, NULL, "b", 0},
	{LEASE_EXTEND, "{}", TOKEN, "resource", NULL, 0},
	{LEASE_EXTEND, "", TOKEN, "resource", NULL, 0},
	{LEASE_RELEASE, "null", TOKEN, "resource", NULL, 0},
	{LEASE_FORCE, "", NULL, "resource", NULL, 0},
	{LEASE_EXTEND, "{\"resource\":\"b\"}", NULL, "token", NULL, 0},
	{LEASE_EXTEND, "{\"resource\":\"a\",\"resource\":\"b\"}", TOKEN, "resource", NULL, 0},
	{LEASE_EXTEND, "{\"resource\":\"a\",\"resources\":[\"a\",\"b\"]}", TOKEN, "resources", NULL, 0},
	{LEASE_RELEASE, "{\"resources\":[\"a\",\"b\"],\"resource\":\"a\"}", TOKEN, "resources", NULL, 0},
	{LEASE_RELEASE, "{\"resource\":\"a/../b\"}", TOKEN, "resource", NULL, 0},
	{LEASE_RELEASE, "{\"resource\":\"b\",\"ttl_ms\":1000}", TOKEN, "ttl_ms", NULL, 0},
	{LEASE_FORCE, "{\"resources\":[\"a\",\"b\"]}", NULL, "resources", NULL, 0},
	{LEASE_FORCE, "{\"resource\":\"b\",\"token\":\"" TOKEN "\"}", NULL, "token", NULL, 0},
	{LEASE_FORCE, "{\"resource\":\"b\",\"ttl_ms\":1000}", NULL, "ttl_ms", NULL, 0},
};

TEST_EACH(test_named, 0, sizeof named / sizeof named[0])
{
	struct lease_request request = {.operation = named[_i].operation, .fence = 7}, before = request;
	struct field_errors errors = {.count = 0};
	bool good = body_parse(named[_i].body, strlen(named[_i].body), named[_i].header, &limits, &request, &errors);

	ck_assert_int_eq(good, named[_i].error == NULL);
	if (!good) {
		ck_assert_str_eq(errors.items[0].field, named[_i].error);
		ck_assert_mem_eq(&request, &before, sizeof request);
		return;
	}
	ck_assert_uint_eq(request.resource_len, strlen(named[_i].resource));
	ck_assert_mem_eq(request.resource, named[_i].resource, request.resource_len);
	ck_assert_uint_eq(request.set_count, named[_i].count);
	ck_assert_uint_eq(request.fence, 7);
	ck_assert_uint_eq(request.ttl_ms, request.operation == LEASE_EXTEND ? 30000 : 0);
	ck_assert_mem_eq(request.token, request.operation == LEASE_FORCE ? before.token : TOKEN, LEASE_TOKEN_LEN);
	free_texts(&request);
}

/* Generated clients send an empty list where a program gave none. */
TEST(test_no_resources)
{
	static const struct {
		enum lease_operation operation;
		const char *text, *field; /* NULL: it is good */
	} rows[] = {
		{LEASE_ACQUIRE, "{\"resource\":\"a\",\"resources\":[]}", NULL},
		{LEASE_ACQUIRE, "{\"resources\":[],\"slots\":2,\"resource\":\"a\"}", NULL},
		{LEASE_ACQUIRE, "{\"resources\":[]}", "resources"},
		{LEASE_ACQUIRE, "{\"resources\":[],\"resource\":\"a\",\"resources\":[]}", "resources"},
		{LEASE_RELEASE, "{\"token\":\"" TOKEN "\",\"resources\":[]}", "resources"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lease_request request = {.operation = rows[i].operation};
		struct field_errors errors = {0};
		bool good = body_parse(rows[i].text, strlen(rows[i].text), NULL, &limits, &request, &errors);
		ck_assert_msg(good == !rows[i].field, "%s", rows[i].text);
		ck_assert_str_eq(good ? "" : errors.items[0].field, good ? "" : rows[i].field);
		if (good)
			ck_assert_mem_eq(request.resource, "a", 1);
		ck_assert_uint_eq(request.set_count, 0);
		free_texts(&request);
	}
}

/* The reason names the type or the bound. A longer wait than the server allows is shortened. */
TEST(test_wait_reasons)
{
	static const struct {
		const char *value;
		uint32_t max_wait_ms;
		const char *reason; /* NULL: good … */
		uint32_t wait_ms;   /* … and this is what it means */
	} waits[] = {{"\"5\"", 50000, "must be an integer", 0},
		     {"5.5", 50000, "must be an integer", 0},
		     {"49999", 50000, NULL, 49999},
		     {"50001", 50000, NULL, 50000},
		     {"-1", 50000, "must not be negative", 0},
		     {"1", 0, NULL, 0},
		     {"0", 0, NULL, 0},
		     {"86400000", 86400000, NULL, 86400000},
		     {"9007199254740992", 86400000, NULL, 86400000}};
	char text[100];

	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		struct body_limits own = limits;
		struct lease_request request = {.operation = LEASE_ACQUIRE};
		struct field_errors errors = {.count = 0};
		own.max_wait_ms = waits[i].max_wait_ms;
		int len = snprintf(text, sizeof(text), "{\"resource\":\"a\",\"wait_ms\":%s}", waits[i].value);
		ck_assert_int_eq(body_parse(text, (size_t)len, NULL, &own, &request, &errors), waits[i].reason == NULL);
		ck_assert_uint_eq(errors.count, waits[i].reason != NULL);
		free_texts(&request);
		if (waits[i].reason == NULL) {
			ck_assert_uint_eq(request.wait_ms, waits[i].wait_ms);
			continue;
		}
		ck_assert_str_eq(errors.items[0].field, "wait_ms");
		ck_assert_str_eq(errors.items[0].reason, waits[i].reason);
	}
}

/* One answer names several mistakes. */
TEST(test_several)
{
	static const char text[] = "{\"resource\":1,\"ttl_ms\":\"x\",\"owner\":2,\"wait_ms\":\"y\",\"foo\":0}";
	struct lease_request request = {.operation = LEASE_ACQUIRE};
	struct field_errors errors = {.count = 0};
	static const char *const fields[] = {"resource", "ttl_ms", "owner", "wait_ms", "foo"};

	ck_assert(!body_parse(text, sizeof(text) - 1, NULL, &limits, &request, &errors));
	ck_assert_uint_eq(errors.count, 5);
	for (size_t i = 0; i < 5; i++) {
		bool found = false;
		for (size_t j = 0; j < errors.count; j++)
			found = found || strcmp(errors.items[j].field, fields[i]) == 0;
		ck_assert(found);
	}
}

/* The bounds in bytes: 256 of a resource, 128 of an owner. */
TEST(test_lengths)
{
	static const struct {
		size_t resource, owner;
		bool good;
	} lengths[] = {{256, 128, true}, {257, 128, false}, {256, 129, false}};

	for (size_t i = 0; i < 3; i++) {
		char text[512], resource[300], owner[300];
		struct lease_request request = {.operation = LEASE_ACQUIRE};
		struct field_errors errors = {.count = 0};
		memset(resource, 'r', sizeof(resource));
		memset(owner, 'o', sizeof(owner));
		int len = snprintf(text, sizeof(text), "{\"resource\":\"%.*s\",\"owner\":\"%.*s\"}",
				   (int)lengths[i].resource, resource, (int)lengths[i].owner, owner);
		ck_assert_int_eq(body_parse(text, (size_t)len, NULL, &limits, &request, &errors), lengths[i].good);
		free_texts(&request);
	}
}

/* The deepest nesting that fits into a body is rejected without a crash. */
TEST(test_depth)
{
	static char text[REQUEST_BODY_MAX];
	struct lease_request request = {.operation = LEASE_ACQUIRE};
	struct field_errors errors = {.count = 0};
	memset(text, '[', sizeof(text));
	ck_assert(!body_parse(text, sizeof(text), NULL, &limits, &request, &errors));
	ck_assert_str_eq(errors.items[0].field, "body");
	errors.count = 0;
	for (size_t i = 0; i + 5 <= sizeof(text); i += 5)
		memcpy(text + i, "{\"a\":", 5);
	ck_assert(!body_parse(text, sizeof(text), NULL, &limits, &request, &errors));
	ck_assert_str_eq(errors.items[0].field, "body");
}

/* In the order in which the members came, without blanks, and at most 1 KiB so. */
TEST(test_metadata)
{
	char text[3000], value[1100];
	struct lease_request request = {.operation = LEASE_ACQUIRE};
	struct field_errors errors = {.count = 0};
	const char *body = "{\"resource\":\"r\",\"metadata\": {\"z\" : 1, \"a\":[ \"\\u00e9\\n\", 0.5 ] } }";
	ck_assert(body_parse(body, strlen(body), NULL, &limits, &request, &errors));
	ck_assert_mem_eq(request.metadata, "{\"z\":1,\"a\":[\"\xc3\xa9\\n\",0.5]}", request.metadata_len);
	ck_assert_uint_eq(request.metadata_len, strlen(request.metadata));
	free_texts(&request);
	memset(value, 'v', sizeof value);
	for (int len = 1016; len <= 1017; len++) {
		request = (struct lease_request){.operation = LEASE_ACQUIRE};
		int size = snprintf(text, sizeof text, "{\"resource\":\"r\",\"metadata\":{ \"a\" : \"%.*s\" }}", len,
				    value);
		ck_assert_int_eq(body_parse(text, (size_t)size, NULL, &limits, &request, &errors), len == 1016);
		ck_assert_uint_eq(request.metadata_len, len == 1016 ? LEASE_METADATA_MAX : 0);
		free_texts(&request);
	}
	ck_assert_str_eq(errors.items[0].field, "metadata");
}
