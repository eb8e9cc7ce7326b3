/* The commands that go to a master: EVALSHA of a script with the key and arguments that its file describes, EVAL if the
 * master has lost the script, and SCAN for listings. They are written into the caller's buffer, without allocations. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum {
	KEY_MAX = sizeof((struct options *)0)->key_prefix + LEASE_RESOURCE_MAX,
	PATTERN_MAX = 2 * KEY_MAX + 2,
	ARGUMENT_ROOM = 2 + TEXT_DECIMAL_MAX + 3 /* of an argument, without its bytes */
};

static size_t key_write(const struct options *options, const char *resource, size_t resource_len, char ret_key[KEY_MAX])
{
	size_t prefix_len = strlen(options->key_prefix);
	assert(prefix_len + resource_len <= KEY_MAX);
	memcpy(ret_key, options->key_prefix, prefix_len);
	memcpy(ret_key + prefix_len, resource, resource_len);
	return prefix_len + resource_len;
}

/* A command as it grows, in the Redis protocol. */
struct command {
	char *bytes;
	size_t len, size;
};

static void put_number(struct command *command, char kind, size_t number)
{
	command->bytes[command->len++] = kind;
	command->len += text_decimal(number, command->bytes + command->len);
	memcpy(command->bytes + command->len, "\r\n", 2);
	command->len += 2;
}

static void begin(struct command *command, char *bytes, size_t size, size_t arguments)
{
	assert(size > ARGUMENT_ROOM);
	*command = (struct command){.bytes = bytes, .size = size};
	put_number(command, '*', arguments);
}

static void add(struct command *command, const char *value, size_t len)
{
	assert(command->len <= command->size && len + ARGUMENT_ROOM <= command->size - command->len);
	put_number(command, '$', len);
	memcpy(command->bytes + command->len, value, len);
	memcpy(command->bytes + command->len + len, "\r\n", 2);
	command->len += len + 2;
}

static void add_text(struct command *command, const char *value)
{
	add(command, value, strlen(value));
}

static void add_number(struct command *command, uint64_t number)
{
	char digits[TEXT_DECIMAL_MAX];
	add(command, digits, text_decimal(number, digits));
}

unsigned lease_command_bucket(const char *resource, size_t len)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, folded: the same on all replicas, for ever */
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)resource[i]) * UINT64_C(0x100000001b3);
	return (unsigned)((hash ^ hash >> 32) % MASTER_FENCE_BUCKETS);
}

static bool is_fenced(enum redlock_script script)
{
	return script == REDLOCK_SCRIPT_ACQUIRE || script == REDLOCK_SCRIPT_RAISE;
}

/* The number of arguments of the script's command, with the command's own name. */
static size_t argument_count(enum redlock_script script)
{
	switch (script) {
	case REDLOCK_SCRIPT_ACQUIRE: return 14;
	case REDLOCK_SCRIPT_RAISE: return 10;
	case REDLOCK_SCRIPT_EXTEND:
	case REDLOCK_SCRIPT_RELEASE: return 9;
	case REDLOCK_SCRIPT_INSPECT: return 7;
	case REDLOCK_SCRIPT_NONE: break;
	}
	assert(false);
	return 0;
}

/* EVALSHA sha1 2 key master-key token, or EVAL with the source. */
static void begin_script(struct command *command, const struct options *options, const struct lease_request *request,
			 const struct lease_command *what)
{
	static const char master[] = "redlockd:master";
	char key[KEY_MAX];
	add_text(command, what->with_source ? "EVAL" : "EVALSHA");
	add_text(command, what->with_source ? scripts[what->script].source : scripts[what->script].sha1);
	add(command, "2", 1);
	add(command, key, key_write(options, request->resource, request->resource_len, key));
	add(command, key, key_write(options, master, sizeof master - 1, key));
	if (what->script != REDLOCK_SCRIPT_INSPECT)
		add(command, what->token, what->token[0] ? LEASE_TOKEN_LEN : 0);
}

size_t lease_command_format(const struct options *options, const struct lease_request *request,
			    const struct lease_command *what, char *ret_bytes, size_t size)
{
	enum redlock_script script = what->script;
	struct command command;
	assert(script != REDLOCK_SCRIPT_NONE && (script == REDLOCK_SCRIPT_INSPECT || what->token));
	assert(!is_fenced(script) || (what->fence > 0 && what->fence < REDLOCK_FENCE_LIMIT));
	begin(&command, ret_bytes, size, argument_count(script));
	begin_script(&command, options, request, what);
	if (script == REDLOCK_SCRIPT_ACQUIRE || script == REDLOCK_SCRIPT_EXTEND)
		add_number(&command, request->ttl_ms);
	if (script == REDLOCK_SCRIPT_ACQUIRE) {
		add_number(&command, options->max_hold_ms);
		add(&command, request->owner, request->owner_len);
	}
	if (is_fenced(script)) {
		add_number(&command, lease_command_bucket(request->resource, request->resource_len));
		add_number(&command, what->fence);
	}
	if (script == REDLOCK_SCRIPT_ACQUIRE || script == REDLOCK_SCRIPT_RELEASE)
		add_text(&command, what->entry ? what->entry : "");
	/* placeholders: the epoch and deadline of each master are written over them (masters_send) */
	add(&command, "----------------", 16);
	add(&command, "9999999999999999", 16);
	return command.len;
}

void lease_command_write_entry(const struct leases *leases, uint64_t arrival, uint64_t wait_ms,
			       char ret_entry[LEASE_ENTRY_MAX])
{
	int len = snprintf(ret_entry, LEASE_ENTRY_MAX, "%s:%016llu %llu", masters_replica(leases->masters),
			   (unsigned long long)arrival, (unsigned long long)wait_ms);
	assert(len > 0 && len < LEASE_ENTRY_MAX);
}

/* Escapes the characters that have a meaning in a Redis pattern. */
static size_t pattern_write(const char *key, size_t len, char ret_pattern[PATTERN_MAX])
{
	size_t at = 0;
	assert(2 * len + 1 <= PATTERN_MAX);
	for (size_t i = 0; i < len; i++) {
		if (memchr("*?[]^\\-", key[i], 7))
			ret_pattern[at++] = '\\';
		ret_pattern[at++] = key[i];
	}
	ret_pattern[at++] = '*';
	return at;
}

unsigned lease_command_scan_keys(const struct lease_list_request *request)
{
	/* SCAN may return more than it is asked for, and a step has to fit into a page */
	assert(request->limit >= 1 && request->limit <= LEASE_LIST_MAX);
	unsigned half = (request->limit + 1U) / 2;
	return half < LEASE_SCAN_KEYS ? half : LEASE_SCAN_KEYS;
}

size_t lease_command_scan(const struct options *options, const struct lease_list_request *request, uint64_t cursor,
			  char ret_bytes[LEASE_COMMAND_MAX])
{
	char key[KEY_MAX], pattern[PATTERN_MAX];
	size_t key_len = key_write(options, request->prefix, request->prefix_len, key);
	struct command command;
	begin(&command, ret_bytes, LEASE_COMMAND_MAX, 6);
	add_text(&command, "SCAN");
	add_number(&command, cursor);
	add_text(&command, "MATCH");
	add(&command, pattern, pattern_write(key, key_len, pattern));
	add_text(&command, "COUNT");
	add_number(&command, lease_command_scan_keys(request));
	return command.len;
}
