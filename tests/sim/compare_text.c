/* Text for the real server: see compare_text.h. */
#include "compare_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The separator of the value, blanks, Lua's and printf's magic signs, a line break, more than ASCII. */
static const char *const owners[COMPARE_OWNERS] = {"",           "worker 7",         "a:b:12:c", "100%d %s %1",
						   "two\nlines", "\xc3\xa9t\xc3\xa9"};

/* Of other libraries. None begins with a token of ours, though one nearly does. */
static const char *const foreign[COMPARE_OTHER_LIBRARY_TEXTS] = {
	"", "b3f1c2d4e5a697887766", "0", "000000000000000000000000000000000000001:0:0:", "::::", "-1",
};

static void print_to(char *text, const char *format, uint64_t number)
{
	int len = snprintf(text, COMPARE_TEXT, format, number);
	assert(len > 0 && len < COMPARE_TEXT);
}

void compare_key_name(char *text, unsigned sequence, unsigned key)
{
	snprintf(text, COMPARE_TEXT, "%u:key%u", sequence, key);
}

void compare_hash_name(char *text, unsigned sequence)
{
	snprintf(text, COMPARE_TEXT, "%u:redlockd:master", sequence);
}

const char *compare_bucket_name(unsigned bucket)
{
	static const char *const names[] = {"0", "255", "7", "100"};
	assert(bucket < MODEL_BUCKETS && bucket < sizeof names / sizeof *names);
	return names[bucket];
}

void compare_queue_name(char *text, unsigned sequence, unsigned key)
{
	snprintf(text, COMPARE_TEXT, "%u:redlockd:queue:%u:key%u", sequence, sequence, key);
}

void compare_alive_name(char *text, unsigned sequence, uint64_t replica)
{
	snprintf(text, COMPARE_TEXT, "%u:redlockd:alive:%016" PRIx64, sequence, replica);
}

void compare_number_text(char *text, uint64_t number)
{
	if (number == MODEL_ANY_EPOCH)
		strcpy(text, "----------------");
	else if (number == 0)
		text[0] = '\0';
	else
		print_to(text, "%016" PRIx64, number);
}

void compare_value_text(char *text, const struct model_value *value)
{
	if (value->token == 0) {
		strcpy(text, foreign[value->owner]);
		return;
	}
	int len = snprintf(text, COMPARE_TEXT, "%040" PRIx64 ":%" PRIu64 ":%" PRIu64 ":%s", value->token,
			   value->hold_until_ms, value->fence, owners[value->owner]);
	assert(len > 0 && len < COMPARE_TEXT);
}

void compare_entry_text(char *text, struct model_entry entry)
{
	text[0] = '\0';
	if (entry.replica != 0)
		snprintf(text, COMPARE_TEXT, "%016" PRIx64 ":%016" PRIu64, entry.replica, entry.arrival);
}

void compare_notification_text(char *text, unsigned sequence, unsigned key, struct model_entry entry)
{
	char name[COMPARE_TEXT];
	compare_entry_text(text, entry);
	if (entry.replica == 0)
		return;
	compare_key_name(name, sequence, key);
	strcat(strcat(text, " "), name);
}

const char *compare_other_library_text(unsigned i)
{
	return foreign[i];
}

/* ---- commands ---- */

void compare_add(struct compare_args *args, const char *text)
{
	assert(args->count < COMPARE_ARGS && strlen(text) < COMPARE_TEXT);
	char *to = args->text[args->count];
	strcpy(to, text);
	args->at[args->count++] = to;
}

static void add_decimal(struct compare_args *args, uint64_t number)
{
	char text[COMPARE_TEXT];
	print_to(text, "%" PRIu64, number);
	compare_add(args, text);
}

static void add_token(struct compare_args *args, uint64_t token)
{
	char text[COMPARE_TEXT] = "";
	if (token != 0)
		print_to(text, "%040" PRIx64, token);
	compare_add(args, text);
}

/* replica:arrival wait_ms */
static void add_entry(struct compare_args *args, const struct model_command *command)
{
	char text[COMPARE_TEXT];
	compare_entry_text(text, command->entry);
	if (command->entry.replica != 0) {
		size_t len = strlen(text);
		int more = snprintf(text + len, sizeof text - len, " %u", command->wait_ms);
		assert(more > 0 && (size_t)more < sizeof text - len);
	}
	compare_add(args, text);
}

static void add_number(struct compare_args *args, uint64_t number)
{
	char text[COMPARE_TEXT];
	compare_number_text(text, number);
	compare_add(args, text);
}

static void add_keys(struct compare_args *args, const struct compare_server *server, enum compare_script script,
		     unsigned sequence, unsigned key)
{
	char text[COMPARE_TEXT];
	bool lock = script <= COMPARE_INSPECT;
	args->count = 0;
	compare_add(args, "EVALSHA");
	compare_add(args, server->sha1[script]);
	compare_add(args, lock ? "2" : "1");
	if (lock) {
		compare_key_name(text, sequence, key);
		compare_add(args, text);
	}
	compare_hash_name(text, sequence);
	compare_add(args, text);
}

/* The last arguments of all lock scripts. */
static void add_last(struct compare_args *args, const struct model_command *command)
{
	add_number(args, command->epoch);
	add_decimal(args, command->deadline_us);
}

void compare_command(struct compare_args *args, const struct compare_server *server, enum compare_script script,
		     unsigned sequence, const struct model_command *command)
{
	char text[COMPARE_TEXT] = "";
	add_keys(args, server, script, sequence, command->key);
	switch (script) {
	case COMPARE_ACQUIRE:
		add_token(args, command->token);
		add_decimal(args, command->ttl_ms);
		add_decimal(args, command->max_hold_ms);
		compare_add(args, owners[command->owner]);
		compare_add(args, compare_bucket_name(command->bucket));
		add_decimal(args, command->fence);
		add_entry(args, command);
		add_last(args, command);
		break;
	case COMPARE_RAISE:
		add_token(args, command->token);
		compare_add(args, compare_bucket_name(command->bucket));
		add_decimal(args, command->fence);
		add_last(args, command);
		break;
	case COMPARE_EXTEND:
		add_token(args, command->token);
		add_decimal(args, command->ttl_ms);
		add_last(args, command);
		break;
	case COMPARE_RELEASE:
		add_token(args, command->token);
		add_entry(args, command);
		add_last(args, command);
		break;
	case COMPARE_INSPECT: add_last(args, command); break;
	case COMPARE_EPOCH:
		add_number(args, command->digest);
		add_decimal(args, command->ttl_ms);
		if (command->evicted != 0)
			print_to(text, "%" PRIu64, command->evicted - 1);
		compare_add(args, text);
		compare_add(args, command->compared ? "1" : "0");
		break;
	case COMPARE_QUARANTINE:
		add_number(args, command->epoch);
		add_number(args, command->marker);
		add_number(args, command->run_id);
		compare_add(args, command->kept ? "1" : "0");
		add_decimal(args, command->ttl_ms);
		break;
	case COMPARE_FENCES:
		add_number(args, command->epoch);
		compare_add(args, compare_bucket_name(command->bucket));
		compare_add(args, compare_bucket_name(command->last_bucket));
		break;
	case COMPARE_WRITE_EPOCH:
		add_number(args, command->marker);
		add_number(args, command->run_id);
		add_number(args, command->cluster);
		add_number(args, command->digest);
		add_decimal(args, command->ttl_ms);
		add_decimal(args, command->fence);
		compare_add(args, command->clocked ? "1" : "0");
		add_decimal(args, command->deadline_us);
		break;
	case COMPARE_SCRIPTS: assert(false);
	}
}

/* ---- answers ---- */

static struct compare_element *expect(struct compare_expected *expected, enum compare_kind kind, long long number)
{
	assert(expected->count < COMPARE_ELEMENTS);
	struct compare_element *element = &expected->elements[expected->count++];
	element->kind = kind;
	element->number = number;
	element->text[0] = '\0';
	return element;
}

static void expect_number(struct compare_expected *expected, uint64_t number)
{
	compare_number_text(expect(expected, COMPARE_STRING, 0)->text, number);
}

/* "" for 0. */
static void expect_decimal(struct compare_expected *expected, uint64_t number)
{
	struct compare_element *element = expect(expected, COMPARE_STRING, 0);
	if (number != 0)
		print_to(element->text, "%" PRIu64, number);
}

static void expect_kept(struct compare_expected *expected, const struct model_reply *reply)
{
	strcpy(expect(expected, COMPARE_STRING, 0)->text, reply->marker == 0 ? "" : reply->kept ? "1" : "0");
}

static void expect_value(struct compare_expected *expected, const struct model_reply *reply)
{
	if (reply->has_value)
		compare_value_text(expect(expected, COMPARE_STRING, 0)->text, &reply->value);
	else
		expect(expected, COMPARE_NIL, 0);
}

static void expect_epoch(struct compare_expected *expected, const struct model_reply *reply)
{
	char evicted[COMPARE_TEXT] = "";
	expect(expected, COMPARE_INTEGER, (long long)reply->beat);
	expect_number(expected, reply->epoch);
	expect_number(expected, reply->run_id);
	expect_number(expected, reply->cluster);
	expect_number(expected, reply->digest);
	expect_decimal(expected, reply->ttl_ms);
	expect_number(expected, reply->marker);
	expect_number(expected, reply->marker_run_id);
	expect_kept(expected, reply);
	expect_decimal(expected, reply->clocked_us);
	if (reply->evicted != 0)
		print_to(evicted, "%" PRIu64, reply->evicted - 1);
	strcpy(expect(expected, COMPARE_STRING, 0)->text, evicted);
}

void compare_expect(struct compare_expected *expected, enum compare_script script, const struct model_reply *reply)
{
	expected->count = 0;
	expect(expected, COMPARE_INTEGER, reply->code);
	expect(expected, COMPARE_INTEGER, (long long)reply->now_us);
	if (script <= COMPARE_INSPECT && reply->code == 0) {
		expect(expected, reply->remaining_ms < 0 ? COMPARE_INTEGER : COMPARE_ABOUT, reply->remaining_ms);
		expect_value(expected, reply);
		if (script == COMPARE_INSPECT)
			expect(expected, COMPARE_INTEGER, reply->waiters);
	} else if (script == COMPARE_INSPECT && reply->code == -1) {
		expect(expected, COMPARE_INTEGER, reply->waiters);
	} else if (script == COMPARE_ACQUIRE && reply->code == 2) {
		expect(expected, COMPARE_ABOUT, (long long)reply->remaining_ms);
		compare_entry_text(expect(expected, COMPARE_STRING, 0)->text, reply->notified);
	} else if (script == COMPARE_RELEASE && reply->code == 1) {
		expect_value(expected, reply);
	} else if ((script == COMPARE_ACQUIRE && reply->code == 1) || (script == COMPARE_RAISE && reply->code == 2)) {
		expect(expected, COMPARE_INTEGER, (long long)reply->old);
	} else if (script == COMPARE_EXTEND && reply->code == 1) {
		expect(expected, COMPARE_ABOUT, (long long)reply->ttl_ms);
		expect_value(expected, reply);
	} else if (script == COMPARE_EPOCH) {
		expect_epoch(expected, reply);
	} else if (script == COMPARE_QUARANTINE && reply->code == 1) {
		expect_number(expected, reply->marker);
		expect_kept(expected, reply);
		expect_decimal(expected, reply->ttl_ms);
	} else if (script == COMPARE_FENCES && reply->code == 1) {
		expect(expected, COMPARE_INTEGER, (long long)reply->fence);
		expect(expected, COMPARE_INTEGER, (long long)reply->ttl_ms);
	}
}

static bool element_is_alike(const struct compare_element *element, const redisReply *reply, long long below,
			     long long above)
{
	switch (element->kind) {
	case COMPARE_INTEGER: return reply->type == REDIS_REPLY_INTEGER && reply->integer == element->number;
	case COMPARE_ABOUT:
		return reply->type == REDIS_REPLY_INTEGER && reply->integer >= element->number - below &&
		       reply->integer <= element->number + above;
	case COMPARE_STRING:
		return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == strlen(element->text) &&
		       memcmp(reply->str, element->text, (size_t)reply->len) == 0;
	case COMPARE_NIL: break;
	}
	return reply->type == REDIS_REPLY_NIL;
}

bool compare_is_alike(const struct compare_expected *expected, const redisReply *reply, long long below,
		      long long above)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != expected->count)
		return false;
	for (unsigned i = 0; i < expected->count; i++)
		if (!element_is_alike(&expected->elements[i], reply->element[i], below, above))
			return false;
	return true;
}

/* ---- for people ---- */

static void print_quoted(const char *text)
{
	printf("\"");
	for (; *text; text++)
		if (*text == '\n')
			printf("\\n");
		else
			printf("%c", *text);
	printf("\"");
}

void compare_print_args(const struct compare_args *args)
{
	for (int i = 0; i < args->count; i++) {
		printf("%s", i > 0 ? " " : "");
		if (args->at[i][0] == '\0' || strpbrk(args->at[i], " \n"))
			print_quoted(args->at[i]);
		else
			printf("%s", args->at[i]);
	}
}

void compare_print_expected(const struct compare_expected *expected)
{
	printf("{");
	for (unsigned i = 0; i < expected->count; i++) {
		const struct compare_element *element = &expected->elements[i];
		printf("%s", i > 0 ? ", " : "");
		if (element->kind == COMPARE_STRING)
			print_quoted(element->text);
		else if (element->kind == COMPARE_NIL)
			printf("nil");
		else
			printf("%s%lld", element->kind == COMPARE_ABOUT ? "about " : "", element->number);
	}
	printf("}");
}

void compare_print_reply(const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_INTEGER: printf("%lld", reply->integer); break;
	case REDIS_REPLY_NIL: printf("nil"); break;
	case REDIS_REPLY_ARRAY:
		printf("{");
		for (size_t i = 0; i < reply->elements; i++) {
			printf("%s", i > 0 ? ", " : "");
			compare_print_reply(reply->element[i]);
		}
		printf("}");
		break;
	case REDIS_REPLY_STRING: print_quoted(reply->str); break;
	default: printf("%s", reply->str ? reply->str : "?"); break;
	}
}
