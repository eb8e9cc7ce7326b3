/* Text for the real server: see compare_text.h. */
#include "compare_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compare_random.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum { PLACE_NEAR_MS = 50 };

/* The separator of the value, blanks, Lua's and printf's magic signs, a line break, more than ASCII. */
static const char *const owners[COMPARE_OWNERS] = {
	"",
	"worker 7",
	"a:b:12:c",
	"100%d %s %1",
	"two\tlines",
	"\xc3\xa9t\xc3\xa9",
	/* with a caller, with metadata, with both */
	"w\ncaller",
	"\n\n{\"a\":1}",
	"w;1\nme\n{}",
};

/* Of other libraries. None begins with a token of ours, though one nearly does. */
static const char *const foreign[COMPARE_OTHER_LIBRARY_TEXTS] = {
	"", "b3f1c2d4e5a697887766", "0", "000000000000000000000000000000000000001:0:0:", "::::", "-1", ";;\n\n\n",
};

static void print_to(char *text, const char *format, uint64_t number)
{
	int len = snprintf(text, COMPARE_TEXT, format, number);
	assert(len > 0 && len < COMPARE_TEXT);
}

const char *compare_bucket_name(unsigned bucket)
{
	static const char *const names[] = {"0", "255", "7", "100"};
	assert(bucket < MODEL_BUCKETS && bucket < sizeof names / sizeof *names);
	return names[bucket];
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

void compare_decimal_text(char *text, uint64_t number)
{
	text[0] = '\0';
	if (number != 0)
		print_to(text, "%" PRIu64, number);
}

void compare_evicted_text(char *text, uint32_t evicted)
{
	text[0] = '\0';
	if (evicted != 0)
		print_to(text, "%" PRIu64, evicted - 1);
}

/* Of a set: "key0\nkey2" */
static void names_text(char *text, uint32_t names)
{
	size_t len = 0;
	MODEL_FOR_EACH_KEY (key, names)
		len += (size_t)snprintf(text + len, COMPARE_TEXT - len, "%skey%u", len > 0 ? "\n" : "", key);
}

/* +, #N or nothing */
static void kind_text(char *text, unsigned kind, unsigned slot)
{
	strcpy(text, kind == MODEL_PLUS ? "+" : "");
	if (kind == MODEL_SLOT)
		print_to(text, "#%" PRIu64, slot);
}

void compare_value_text(char *text, const struct model_value *value)
{
	if (value->token == 0) {
		strcpy(text, foreign[value->owner]);
		return;
	}
	const char *owner = owners[value->owner];
	char names[COMPARE_TEXT] = "", kind[COMPARE_TEXT];
	unsigned lines = 0;
	for (const char *at = owner; *at; at++)
		lines += *at == '\n';
	if (value->names != 0)
		names_text(names, value->names);
	kind_text(kind, value->kind, value->slot);
	int len = snprintf(text, COMPARE_TEXT, "%040" PRIx64 "%s%c%" PRIu64 ":%" PRIu64 ":%s%.*" PRIx64 ":%s%.*s%s",
			   value->token, kind, value->names != 0 ? ';' : ':', value->hold_until_ms, value->fence,
			   value->key != 0 && !value->noted ? "?" : "", value->key != 0 ? 16 : 0, value->key, owner,
			   value->names != 0 ? (int)(3 - lines) : 0, "\n\n\n", names);
	assert(len > 0 && len < COMPARE_TEXT);
}

void compare_entry_text(char *text, struct model_entry entry)
{
	text[0] = '\0';
	if (entry.replica != 0)
		snprintf(text, COMPARE_TEXT, "%016" PRIx64 "%c%016" PRIu64 "%s%.*u", entry.replica, ":+#"[entry.kind],
			 entry.arrival,
			 entry.kind == MODEL_EXCLUSIVE ? ""
			 : entry.of_set                ? ";"
						       : ":",
			 entry.kind == MODEL_EXCLUSIVE ? 0 : 1, entry.most);
}

static void notified_text(char *text, struct model_entry entry, uint32_t free, uint64_t last)
{
	compare_entry_text(text, entry);
	if (last != 0)
		snprintf(text + strlen(text), 32, ">%016" PRIu64, last);
	if (free != 0)
		snprintf(text + strlen(text), 16, "@%u", free - 1);
}

void compare_notification_text(char text[COMPARE_NOTIFICATIONS], unsigned sequence, const struct model_reply *reply)
{
	char entry[COMPARE_TEXT];
	size_t len = 0;
	text[0] = '\0';
	for (unsigned key = 0; key < MODEL_KEYS; key++) {
		if (reply->watched & (UINT32_C(1) << key))
			len += (size_t)snprintf(text + len, COMPARE_NOTIFICATIONS - len, "watch " COMPARE_KEY_NAME "|",
						sequence, key);
		notified_text(entry, reply->notified[key], reply->free[key], reply->last[key]);
		if (reply->notified[key].replica != 0)
			len += (size_t)snprintf(text + len, COMPARE_NOTIFICATIONS - len, "%s " COMPARE_KEY_NAME "|",
						entry, sequence, key);
	}
	assert(len < COMPARE_NOTIFICATIONS);
}

const char *compare_other_library_text(unsigned i)
{
	return foreign[i];
}

/* ---- commands ---- */

/* ARGV of the scripts, a letter each: see argument_text(). Those of leases begin alike. */
#define LEASE(arguments) "eDXU" arguments
static const struct {
	const char *name; /* for people */
	unsigned number;  /* in `scripts` */
	const char *arguments;
} layouts[COMPARE_SCRIPTS] = {
	[COMPARE_ACQUIRE] = {"acquire", REDLOCK_SCRIPT_ACQUIRE, LEASE("tlobfq")},
	[COMPARE_RAISE] = {"raise", REDLOCK_SCRIPT_RAISE, LEASE("tbf")},
	[COMPARE_EXTEND] = {"extend", REDLOCK_SCRIPT_EXTEND, LEASE("tlnb")},
	[COMPARE_RELEASE] = {"release", REDLOCK_SCRIPT_RELEASE, LEASE("tq")},
	[COMPARE_INSPECT] = {"inspect", REDLOCK_SCRIPT_INSPECT, LEASE("lM")},
	[COMPARE_EPOCH] = {"epoch", REDLOCK_SCRIPT_EPOCH, "dlvpOreD"},
	[COMPARE_QUARANTINE] = {"quarantine", REDLOCK_SCRIPT_QUARANTINE, "emrkldW"},
	[COMPARE_FENCES] = {"fences", REDLOCK_SCRIPT_FENCES, "ebB"},
	[COMPARE_WRITE_EPOCH] = {"epoch_write", REDLOCK_SCRIPT_EPOCH_WRITE, "mrcdlfuOD"},
	[COMPARE_ACQUIRE_SET] = {"acquire_set", REDLOCK_SCRIPT_ACQUIRE, LEASE("tlobfq")},
	[COMPARE_RAISE_SET] = {"raise_set", REDLOCK_SCRIPT_RAISE, LEASE("tbf")},
	[COMPARE_EXTEND_SET] = {"extend_set", REDLOCK_SCRIPT_EXTEND, LEASE("tlnb")},
	[COMPARE_RELEASE_SET] = {"release_set", REDLOCK_SCRIPT_RELEASE, LEASE("tq")},
	[COMPARE_ACQUIRE_SHARED] = {"acquire_shared", REDLOCK_SCRIPT_ACQUIRE, LEASE("tlobfq")},
};

const struct script *compare_script_of(enum compare_script script)
{
	return &compare_scripts[layouts[script].number];
}

const char *compare_script_name(enum compare_script script)
{
	return layouts[script].name;
}

/* With a comma between each two. */
static void buckets_text(char *text, uint32_t names, const uint64_t buckets[MODEL_KEYS])
{
	text[0] = '\0';
	MODEL_FOR_EACH_KEY (key, names) {
		compare_decimal_text(text + strlen(text), buckets[key]);
		strcat(text, names >> key > 1 ? "," : "");
	}
}

/* !hold_ms seen */
static void repair_text(char *text, const struct model_command *command)
{
	uint32_t names = command->names != 0 ? command->names : UINT32_C(1) << command->key;
	print_to(text, "!%" PRIu64 " ", command->max_hold_ms);
	buckets_text(text + strlen(text), names, command->named);
}

/* replica:arrival wait_ms place */
static void waiter_text(char *text, const struct model_command *command)
{
	char entry[COMPARE_TEXT];
	if (command->repair) {
		repair_text(text, command);
		return;
	}
	compare_entry_text(entry, command->entry);
	if (command->entry.replica != 0)
		snprintf(text, COMPARE_TEXT, "%.100s %u%s%.*" PRIx64, entry, command->wait_ms,
			 command->place != 0 ? " " : "", command->place != 0 ? 16 : 0, command->place);
}

/* The names of the buckets, with a comma between each two. */
static void bucket_names_text(char *text, const struct model_command *command)
{
	if (command->names == 0)
		strcpy(text, compare_bucket_name(command->bucket));
	MODEL_FOR_EACH_KEY (key, command->names) {
		strcat(text, text[0] ? "," : "");
		strcat(text, compare_bucket_name(command->buckets[key]));
	}
}

/* The number of names, kind and most. */
static void mode_text(char *text, const struct model_command *command, bool acquires)
{
	if (command->names != 0)
		print_to(text, "%" PRIu64, (uint64_t)__builtin_popcount(command->names));
	if (!acquires || command->kind == MODEL_EXCLUSIVE)
		return;
	strcat(text, text[0] ? " " : "");
	kind_text(text + strlen(text), command->kind, command->slot);
	print_to(text + strlen(text), " %" PRIu64, command->most);
}

static void argument_text(char *text, char letter, const struct model_command *command)
{
	text[0] = '\0';
	switch (letter) {
	case 't':
		if (command->token != 0)
			print_to(text, "%040" PRIx64, command->token);
		break;
	case 'l': print_to(text, "%" PRIu64, command->ttl_ms); break;
	case 'o':
		snprintf(text, COMPARE_TEXT, "%s%.*" PRIx64 ":%s", command->noted != 0 && !command->is_noted ? "?" : "",
			 command->noted != 0 ? 16 : 0, command->noted, owners[command->owner]);
		break;
	case 'n':
		if (command->noted != 0)
			snprintf(text, COMPARE_TEXT, "%" PRIu64 ":%016" PRIx64, command->fence, command->noted);
		break;
	case 'M': print_to(text, "%" PRIu64, command->most); break;
	case 'b': bucket_names_text(text, command); break;
	case 'B': strcpy(text, compare_bucket_name(command->last_bucket)); break;
	case 'f': print_to(text, "%" PRIu64, command->fence); break;
	case 'q': waiter_text(text, command); break;
	case 'e': compare_number_text(text, command->epoch); break;
	case 'D': print_to(text, "%" PRIu64, command->deadline_us); break;
	case 'U':
		if (command->until_s != 0 || command->max_hold_ms != 0)
			snprintf(text, COMPARE_TEXT, "%" PRIu64 " %" PRIu64, command->until_s, command->max_hold_ms);
		break;
	case 'd': compare_number_text(text, command->digest); break;
	case 'W':
		if (command->takes_over)
			print_to(text, "%016" PRIx64, command->taken);
		break;
	case 'O': print_to(text, "%u", command->timeout_ms); break;
	case 'v': compare_evicted_text(text, command->evicted); break;
	case 'p': strcpy(text, command->compared ? "1" : "0"); break;
	case 'm': compare_number_text(text, command->marker); break;
	case 'r': compare_number_text(text, command->run_id); break;
	case 'c': compare_number_text(text, command->cluster); break;
	case 'k': strcpy(text, command->kept ? "1" : "0"); break;
	default: assert(letter == 'u'); strcpy(text, command->clocked ? "1" : "0");
	}
}

/* Where the text of the next argument belongs. */
static char *next(struct compare_args *args)
{
	assert(args->count < COMPARE_ARGS);
	args->text[args->count][0] = '\0';
	args->at[args->count] = args->text[args->count];
	return args->text[args->count++];
}

void compare_command(struct compare_args *args, enum compare_script script, unsigned sequence,
		     const struct model_command *command)
{
	uint32_t names = command->names != 0 ? command->names : UINT32_C(1) << command->key;
	args->count = 0;
	strcpy(next(args), "EVALSHA");
	strcpy(next(args), compare_script_of(script)->sha1);
	if (!compare_is_lock(script))
		names = 0;
	print_to(next(args), "%" PRIu64, (uint64_t)__builtin_popcount(names) + 1);
	MODEL_FOR_EACH_KEY (key, names)
		snprintf(next(args), COMPARE_TEXT, COMPARE_KEY_NAME, sequence, key);
	snprintf(next(args), COMPARE_TEXT, COMPARE_HASH_NAME, sequence);
	bool acquires = layouts[script].number == REDLOCK_SCRIPT_ACQUIRE;
	for (const char *letter = layouts[script].arguments; *letter; letter++)
		if (*letter == 'X')
			mode_text(next(args), command, acquires);
		else
			argument_text(next(args), *letter, command);
}

/* ---- answers, as text ---- */

static void put(struct compare_answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct compare_answer *answer, const char *format, ...)
{
	size_t len = strlen(answer->text);
	va_list list;
	va_start(list, format);
	int more = vsnprintf(answer->text + len, sizeof answer->text - len, format, list);
	va_end(list);
	assert(more >= 0 && len + (size_t)more < sizeof answer->text);
}

static void put_quoted(struct compare_answer *answer, const char *text)
{
	put(answer, "\"");
	for (const char *end; (end = strchr(text, '\n')); text = end + 1)
		put(answer, "%.*s\\n", (int)(end - text), text);
	put(answer, "%s\"", text);
}

static void put_reply(struct compare_answer *answer, const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_INTEGER: put(answer, "%lld", reply->integer); break;
	case REDIS_REPLY_NIL: put(answer, "nil"); break;
	case REDIS_REPLY_ARRAY:
		put(answer, "{");
		for (size_t i = 0; i < reply->elements; i++) {
			put(answer, "%s", i > 0 ? ", " : "");
			put_reply(answer, reply->element[i]);
		}
		put(answer, "}");
		break;
	case REDIS_REPLY_STRING: put_quoted(answer, reply->str); break;
	default: put(answer, "%s", reply->str ? reply->str : "?"); break;
	}
}

void compare_reply_text(struct compare_answer *answer, const redisReply *reply)
{
	answer->text[0] = '\0';
	put_reply(answer, reply);
}

/* The elements of an answer behind the code and the time, a letter each: see put_element(). `several`: leases
 * hold it. */
static const char *elements_of(enum compare_script script, int code, bool several)
{
	bool acquire = script == COMPARE_ACQUIRE || script == COMPARE_ACQUIRE_SET || script == COMPARE_ACQUIRE_SHARED,
	     release = script == COMPARE_RELEASE || script == COMPARE_RELEASE_SET;
	if (compare_is_lock(script) && code == 0)
		return script == COMPARE_INSPECT                        ? several ? "pvwNHY" : "pvw"
		       : script == COMPARE_ACQUIRE_SHARED               ? "pvT"
		       : compare_is_set(script) && (acquire || release) ? "pvi"
									: "pv";
	if (script == COMPARE_INSPECT && code == -1)
		return "w";
	if ((script == COMPARE_EXTEND || script == COMPARE_EXTEND_SET) && code == -1)
		return "G";
	if (acquire && code == 2)
		return compare_is_set(script) ? "aqi" : "aq";
	if (release && code == 1)
		return "v";
	if (release && code == 2)
		return "A";
	if ((acquire && code == 1) || ((script == COMPARE_RAISE || script == COMPARE_RAISE_SET) && code == 2))
		return "o";
	if ((script == COMPARE_EXTEND || script == COMPARE_EXTEND_SET) && code == 1)
		return "tv";
	if (script == COMPARE_EPOCH)
		return "hercdLmRkuE";
	if (script == COMPARE_QUARANTINE && code == 1)
		return "mkL";
	return script == COMPARE_FENCES && code == 1 ? "flsO" : "";
}

/* An integer that depends on the clock by which the server expires keys: the server's, if it is near. */
static void put_about(struct compare_answer *answer, int64_t number, const redisReply *its, struct compare_near near)
{
	bool fits = its && its->type == REDIS_REPLY_INTEGER && its->integer >= number - near.below &&
		    its->integer <= number + near.above;
	put(answer, "%lld", fits ? its->integer : (long long)number);
}

/* {value or token, score, …}: the ends are in the scripts' own time, so they are compared exactly. */
static void put_listed(struct compare_answer *answer, const struct model_reply *reply)
{
	char text[COMPARE_TEXT];
	put(answer, "{");
	for (uint32_t i = 0; i < reply->listed_count; i++) {
		compare_value_text(text, &reply->listed[i].value);
		put(answer, "%s", i > 0 ? ", " : "");
		if (reply->tokens_alone)
			text[RANDOM_TOKEN_LEN] = '\0';
		put_quoted(answer, text);
		put(answer, ", \"%" PRIu64 "\"", reply->listed[i].ends_ms);
	}
	put(answer, "}");
}

static void put_element(struct compare_answer *answer, char letter, const struct model_reply *reply,
			const redisReply *its, struct compare_near near)
{
	static const struct compare_near exactly = {0, 0};
	char text[COMPARE_TEXT] = "";
	switch (letter) {
	case 'p': put_about(answer, reply->remaining_ms, its, reply->remaining_ms < 0 ? exactly : near); return;
	case 'a':
		if (reply->first.replica >> 32 != 0) { /* a place, whose end nobody has compared with the server's */
			near.below += PLACE_NEAR_MS;
			near.above += PLACE_NEAR_MS;
		}
		put_about(answer, reply->remaining_ms, its, near);
		return;
	case 't': put_about(answer, (int64_t)reply->ttl_ms, its, near); return;
	case 'w': put(answer, "%u", reply->waiters); return;
	case 'N': put(answer, "%u", reply->holder_count); return;
	case 'H': print_to(text, "%" PRIu64, reply->digest_of_tokens); break;
	case 'Y': put_listed(answer, reply); return;
	case 'i': put(answer, "%u", reply->which); return;
	case 'o': put(answer, "%" PRIu64, reply->old); return;
	case 'A': put(answer, "%" PRIu64, reply->arrival); return;
	case 'h': put(answer, "%" PRIu64, reply->beat); return;
	case 'f': put(answer, "%" PRIu64, reply->fence); return;
	case 'l': put(answer, "%" PRIu64, reply->ttl_ms); return;
	case 's': put(answer, "%" PRIu64, reply->leases); return;
	case 'O': put(answer, "%" PRIu64, reply->timeout_ms); return;
	case 'v':
		if (!reply->has_value) {
			put(answer, "nil");
			return;
		}
		compare_value_text(text, &reply->value);
		break;
	case 'T':
		for (unsigned i = 0; i < reply->slots; i++)
			text[i] = (char)('0' + (reply->taken >> i & 1));
		break;
	case 'G': buckets_text(text, reply->gone, reply->buckets); break;
	case 'q': compare_entry_text(text, reply->first); break;
	case 'e': compare_number_text(text, reply->epoch); break;
	case 'r': compare_number_text(text, reply->run_id); break;
	case 'c': compare_number_text(text, reply->cluster); break;
	case 'd': compare_number_text(text, reply->digest); break;
	case 'm': compare_number_text(text, reply->marker); break;
	case 'R': compare_number_text(text, reply->marker_run_id); break;
	case 'L': compare_decimal_text(text, reply->ttl_ms); break;
	case 'u': compare_decimal_text(text, reply->clocked_us); break;
	case 'k': strcpy(text, reply->marker == 0 ? "" : reply->kept ? "1" : "0"); break;
	default: assert(letter == 'E'); compare_evicted_text(text, reply->evicted);
	}
	put_quoted(answer, text);
}

void compare_expect(struct compare_answer *answer, enum compare_script script, const struct model_reply *reply,
		    const redisReply *its, struct compare_near near)
{
	const char *letters = elements_of(script, reply->code, reply->value.kind != MODEL_EXCLUSIVE);
	answer->text[0] = '\0';
	put(answer, "{%d, %" PRIu64, reply->code, reply->now_us);
	for (size_t i = 0; letters[i]; i++) {
		bool has = its && its->type == REDIS_REPLY_ARRAY && i + 2 < its->elements;
		put(answer, ", ");
		put_element(answer, letters[i], reply, has ? its->element[i + 2] : NULL, near);
	}
	put(answer, "}");
}

/* ---- for people ---- */

void compare_print_args(const struct compare_args *args)
{
	for (int i = 0; i < args->count; i++) {
		struct compare_answer text = {""};
		if (args->at[i][0] == '\0' || strpbrk(args->at[i], " \n"))
			put_quoted(&text, args->at[i]);
		printf("%s%s", i > 0 ? " " : "", text.text[0] ? text.text : args->at[i]);
	}
}
