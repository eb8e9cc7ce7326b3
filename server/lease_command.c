/* The commands that go to a master: EVALSHA of a script with the key and the arguments that its file describes, EVAL where
 * the master has forgotten it, and SCAN for listings. They are written into a buffer of the caller's: a release must not be lost for want of memory. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lease_internal.h"
#include "scripts.h"

enum { KEY_MAX = sizeof((struct options *)0)->key_prefix + LEASE_RESOURCE_MAX, PATTERN_MAX = 2 * KEY_MAX + 2, ARGUMENTS_MAX = 14, LEASE_BUCKETS = 16384 };

static size_t key_write(const struct options *options, const char *resource, size_t resource_len, char ret_key[KEY_MAX])
{
	size_t prefix_len = strlen(options->key_prefix);
	assert(prefix_len + resource_len <= KEY_MAX);
	memcpy(ret_key, options->key_prefix, prefix_len);
	memcpy(ret_key + prefix_len, resource, resource_len);
	return prefix_len + resource_len;
}

struct arguments {
	int count;
	const char *values[ARGUMENTS_MAX];
	size_t lens[ARGUMENTS_MAX];
};

static void add(struct arguments *arguments, const char *value, size_t len)
{
	assert(arguments->count < ARGUMENTS_MAX);
	arguments->values[arguments->count] = value;
	arguments->lens[arguments->count++] = len;
}

static void add_text(struct arguments *arguments, const char *value)
{
	add(arguments, value, strlen(value));
}

/* In the Redis protocol. */
static size_t format(const struct arguments *arguments, char *ret_bytes, size_t size)
{
	size_t at = (size_t)snprintf(ret_bytes, size, "*%d\r\n", arguments->count);
	for (int i = 0; i < arguments->count; i++) {
		size_t len = arguments->lens[i];
		assert(at + len + sizeof "$12345\r\n\r\n" <= size && len < 100000);
		at += (size_t)sprintf(ret_bytes + at, "$%zu\r\n", len);
		memcpy(ret_bytes + at, arguments->values[i], len);
		memcpy(ret_bytes + at + len, "\r\n", 2);
		at += len + 2;
	}
	return at;
}

unsigned lease_command_bucket(const char *resource, size_t len)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, folded: what all replicas must agree on */
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)resource[i]) * UINT64_C(0x100000001b3);
	return (unsigned)((hash ^ hash >> 32) % LEASE_BUCKETS);
}

static bool is_fenced(enum redlock_script script)
{
	return script == REDLOCK_SCRIPT_ACQUIRE || script == REDLOCK_SCRIPT_RAISE;
}

size_t lease_command_format(const struct options *options, const struct lease_request *request, const struct lease_command *command, char *ret_bytes,
			    size_t size)
{
	enum redlock_script script = command->script;
	assert(script != REDLOCK_SCRIPT_NONE);
	char key[KEY_MAX], master_key[KEY_MAX], ttl_ms[24], hold_ms[24], bucket[8], fence[24];
	static const char master[] = "redlockd:master";
	size_t key_len = key_write(options, request->resource, request->resource_len, key);
	struct arguments arguments = { .count = 0 };
	snprintf(ttl_ms, sizeof ttl_ms, "%u", request->ttl_ms);
	snprintf(hold_ms, sizeof hold_ms, "%llu", (unsigned long long)options->max_hold_ms);
	snprintf(fence, sizeof fence, "%llu", (unsigned long long)command->fence);
	snprintf(bucket, sizeof bucket, "%u", lease_command_bucket(request->resource, request->resource_len));
	add_text(&arguments, command->with_source ? "EVAL" : "EVALSHA");
	add_text(&arguments, command->with_source ? scripts[script].source : scripts[script].sha1);
	add_text(&arguments, "2");
	add(&arguments, key, key_len);
	add(&arguments, master_key, key_write(options, master, sizeof master - 1, master_key));
	if (script != REDLOCK_SCRIPT_INSPECT)
		add(&arguments, command->token, command->token[0] ? LEASE_TOKEN_LEN : 0);
	if (script == REDLOCK_SCRIPT_ACQUIRE || script == REDLOCK_SCRIPT_EXTEND)
		add_text(&arguments, ttl_ms);
	if (script == REDLOCK_SCRIPT_ACQUIRE) {
		add_text(&arguments, hold_ms);
		add(&arguments, request->owner, request->owner_len);
	}
	if (is_fenced(script)) {
		add_text(&arguments, bucket);
		add_text(&arguments, fence);
	}
	if (script == REDLOCK_SCRIPT_ACQUIRE || script == REDLOCK_SCRIPT_RELEASE)
		add_text(&arguments, command->place ? command->place : "");
	add_text(&arguments, "----------------"); /* certificate and deadline: each master's own are written over it (master_guard_stamp) */
	add_text(&arguments, "9999999999999999");
	return format(&arguments, ret_bytes, size);
}

void lease_place_write(const struct leases *leases, uint64_t arrival, uint64_t wait_ms, char ret_place[LEASE_PLACE_MAX])
{
	snprintf(ret_place, LEASE_PLACE_MAX, "%s:%016llu %llu", masters_replica(leases->masters), (unsigned long long)arrival, (unsigned long long)wait_ms);
}

/* The characters that mean something in a Redis pattern stand for themselves. */
static size_t pattern_write(const char *key, size_t len, char ret_pattern[PATTERN_MAX])
{
	size_t at = 0;
	for (size_t i = 0; i < len; i++) {
		if (memchr("*?[]^\\-", key[i], 7))
			ret_pattern[at++] = '\\';
		ret_pattern[at++] = key[i];
	}
	ret_pattern[at++] = '*';
	return at;
}

size_t lease_command_scan(const struct options *options, const struct lease_list_request *request, uint64_t cursor, char ret_bytes[LEASE_COMMAND_MAX])
{
	char key[KEY_MAX], pattern[PATTERN_MAX], from[24], count[8];
	size_t key_len = key_write(options, request->prefix, request->prefix_len, key);
	struct arguments arguments = { .count = 0 };
	snprintf(from, sizeof from, "%llu", (unsigned long long)cursor);
	snprintf(count, sizeof count, "%u", request->limit);
	add_text(&arguments, "SCAN");
	add_text(&arguments, from);
	add_text(&arguments, "MATCH");
	add(&arguments, pattern, pattern_write(key, key_len, pattern));
	add_text(&arguments, "COUNT");
	add_text(&arguments, count);
	add_text(&arguments, "TYPE");
	add_text(&arguments, "string");
	return format(&arguments, ret_bytes, LEASE_COMMAND_MAX);
}
