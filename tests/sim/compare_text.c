/* SPDX-License-Identifier: MIT */
/* Text for the real server: see compare_text.h. */
#include "compare_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store_internal.h"

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

static void number_text(char *text, uint64_t number)
{
	if (number == COMPARE_ANY_EPOCH)
		strcpy(text, "----------------");
	else if (number == 0)
		text[0] = '\0';
	else
		print_to(text, "%016" PRIx64, number);
}

static void decimal_text(char *text, uint64_t number)
{
	text[0] = '\0';
	if (number != 0)
		print_to(text, "%" PRIu64, number);
}

static void entry_text(char *text, const struct compare_entry *entry)
{
	char most[16] = "";
	text[0] = '\0';
	if (entry->kind != ':')
		snprintf(most, sizeof most, "%c%u", entry->of_set ? ';' : ':', entry->most);
	if (entry->replica != 0)
		snprintf(text, COMPARE_TEXT, "%016" PRIx64 "%c%016" PRIu64 "%s", entry->replica, entry->kind,
			 entry->arrival, most);
}

const char *compare_other_library_text(unsigned i)
{
	return foreign[i];
}

bool compare_is_ours(const char *value)
{
	for (unsigned i = 0; i < COMPARE_OTHER_LIBRARY_TEXTS; i++)
		if (strcmp(value, foreign[i]) == 0)
			return false;
	return true;
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
	[COMPARE_EXTEND] = {"extend", REDLOCK_SCRIPT_EXTEND, LEASE("tlnbA")},
	[COMPARE_RELEASE] = {"release", REDLOCK_SCRIPT_RELEASE, LEASE("tql")},
	[COMPARE_INSPECT] = {"inspect", REDLOCK_SCRIPT_INSPECT, LEASE("lM")},
	[COMPARE_EPOCH] = {"epoch", REDLOCK_SCRIPT_EPOCH, "dlvpOreD"},
	[COMPARE_QUARANTINE] = {"quarantine", REDLOCK_SCRIPT_QUARANTINE, "emrkldW"},
	[COMPARE_FENCES] = {"fences", REDLOCK_SCRIPT_FENCES, "ebB"},
	[COMPARE_WRITE_EPOCH] = {"epoch_write", REDLOCK_SCRIPT_EPOCH_WRITE, "mrcdlfuOD"},
	[COMPARE_ACQUIRE_SET] = {"acquire_set", REDLOCK_SCRIPT_ACQUIRE, LEASE("tlobfq")},
	[COMPARE_RAISE_SET] = {"raise_set", REDLOCK_SCRIPT_RAISE, LEASE("tbf")},
	[COMPARE_EXTEND_SET] = {"extend_set", REDLOCK_SCRIPT_EXTEND, LEASE("tlnbA")},
	[COMPARE_RELEASE_SET] = {"release_set", REDLOCK_SCRIPT_RELEASE, LEASE("tql")},
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
static void buckets_text(char *text, uint32_t names, const uint64_t buckets[COMPARE_KEYS])
{
	text[0] = '\0';
	FOR_EACH_KEY (key, names) {
		decimal_text(text + strlen(text), buckets[key]);
		strcat(text, names >> key > 1 ? "," : "");
	}
}

/* !hold_ms seen */
static void repair_text(char *text, const struct compare_command *command)
{
	uint32_t names = command->names != 0 ? command->names : UINT32_C(1) << command->key;
	print_to(text, "!%" PRIu64 " ", command->max_hold_ms);
	buckets_text(text + strlen(text), names, command->named);
}

/* replica:arrival wait_ms place */
static void waiter_text(char *text, const struct compare_command *command)
{
	char entry[COMPARE_TEXT];
	if (command->repair) {
		repair_text(text, command);
		return;
	}
	entry_text(entry, &command->entry);
	if (command->entry.replica != 0)
		snprintf(text, COMPARE_TEXT, "%.100s %u%s%.*" PRIx64, entry, command->wait_ms,
			 command->place != 0 ? " " : "", command->place != 0 ? 16 : 0, command->place);
}

/* The names of the buckets, with a comma between each two. */
static void bucket_names_text(char *text, const struct compare_command *command)
{
	if (command->names == 0)
		strcpy(text, compare_bucket_name(command->bucket));
	FOR_EACH_KEY (key, command->names) {
		strcat(text, text[0] ? "," : "");
		strcat(text, compare_bucket_name(command->buckets[key]));
	}
}

/* The number of names, kind and most. */
static void mode_text(char *text, const struct compare_command *command, bool acquires)
{
	if (command->names != 0)
		print_to(text, "%" PRIu64, (uint64_t)__builtin_popcount(command->names));
	if (!acquires || command->kind == ':')
		return;
	strcat(text, text[0] ? " " : "");
	strcat(text, command->kind == '#' ? "#" : "+");
	if (command->kind == '#')
		print_to(text + strlen(text), "%" PRIu64, command->slot);
	print_to(text + strlen(text), " %" PRIu64, command->most);
}

static void argument_text(char *text, char letter, const struct compare_command *command)
{
	text[0] = '\0';
	switch (letter) {
	case 't':
		if (command->token != 0)
			print_to(text, "%040" PRIx64, command->token);
		if (command->token != 0 && command->of_kept)
			store_sha1hex(text, strlen(text), text);
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
	case 'A': strcpy(text, command->asks ? "1" : ""); break;
	case 'M': print_to(text, "%" PRIu64, command->most); break;
	case 'b': bucket_names_text(text, command); break;
	case 'B': strcpy(text, compare_bucket_name(command->last_bucket)); break;
	case 'f': print_to(text, "%" PRIu64, command->fence); break;
	case 'q': waiter_text(text, command); break;
	case 'e': number_text(text, command->epoch); break;
	case 'D': print_to(text, "%" PRIu64, command->deadline_us); break;
	case 'U':
		if (command->until_s != 0 || command->max_hold_ms != 0)
			snprintf(text, COMPARE_TEXT, "%" PRIu64 " %" PRIu64, command->until_s, command->max_hold_ms);
		break;
	case 'd': number_text(text, command->digest); break;
	case 'W':
		if (command->takes_over)
			print_to(text, "%016" PRIx64, command->taken);
		break;
	case 'O': print_to(text, "%u", command->timeout_ms); break;
	case 'v':
		if (command->evicted != 0)
			print_to(text, "%" PRIu64, command->evicted - 1);
		break;
	case 'p': strcpy(text, command->compared ? "1" : "0"); break;
	case 'm': number_text(text, command->marker); break;
	case 'r': number_text(text, command->run_id); break;
	case 'c': number_text(text, command->cluster); break;
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
		     const struct compare_command *command)
{
	uint32_t names = command->names != 0 ? command->names : UINT32_C(1) << command->key;
	args->count = 0;
	strcpy(next(args), "EVALSHA");
	strcpy(next(args), compare_script_of(script)->sha1);
	if (!compare_is_lock(script))
		names = 0;
	print_to(next(args), "%" PRIu64, (uint64_t)__builtin_popcount(names) + 1);
	FOR_EACH_KEY (key, names)
		snprintf(next(args), COMPARE_TEXT, COMPARE_KEY_NAME, sequence, key);
	snprintf(next(args), COMPARE_TEXT, COMPARE_HASH_NAME, sequence);
	bool acquires = layouts[script].number == REDLOCK_SCRIPT_ACQUIRE;
	for (const char *letter = layouts[script].arguments; *letter; letter++)
		if (*letter == 'X')
			mode_text(next(args), command, acquires);
		else
			argument_text(next(args), *letter, command);
}
