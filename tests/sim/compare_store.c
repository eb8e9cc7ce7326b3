/* SPDX-License-Identifier: MIT */
/* See compare_store.h. */
#include "compare_store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "compare_text.h"
#include "server/base/base.h"
#include "store.h"

enum { ARGS_MAX = 64, SHOWN_MAX = 4096 };

/* What was sent and is not answered yet, or a message that is not compared yet. */
struct noted {
	STAILQ_ENTRY(noted) entry;
	char *command;     /* as in the protocol; of a message: its channel, a blank, its text */
	redisReply *reply; /* the store's; of a message: NULL */
};
STAILQ_HEAD(noted_list, noted);

static struct store *store;
static unsigned differing;
static struct noted_list commands = STAILQ_HEAD_INITIALIZER(commands), messages = STAILQ_HEAD_INITIALIZER(messages);

static struct noted *note(struct noted_list *list, const char *bytes, size_t len, redisReply *reply)
{
	struct noted *noted = memory_alloc(sizeof *noted);
	noted->command = memory_alloc(len + 1);
	memcpy(noted->command, bytes, len);
	noted->command[len] = '\0';
	noted->reply = reply;
	STAILQ_INSERT_TAIL(list, noted, entry);
	return noted;
}

static void drop_first(struct noted_list *list)
{
	struct noted *noted = STAILQ_FIRST(list);
	STAILQ_REMOVE_HEAD(list, entry);
	free(noted->command);
	free(noted->reply);
	free(noted);
}

static void on_published(void *arg, const char *channel, size_t channel_len, const char *text, size_t len)
{
	struct text both;
	(void)arg;
	text_init(&both);
	text_printf(&both, "%.*s %.*s", (int)channel_len, channel, (int)len, text);
	note(&messages, both.bytes, both.len, NULL);
	text_fini(&both);
}

void compare_store_start(void)
{
	store = store_new(on_published, NULL);
}

void compare_store_stop(void)
{
	while (!STAILQ_EMPTY(&commands))
		drop_first(&commands);
	while (!STAILQ_EMPTY(&messages))
		drop_first(&messages);
	store_free(store);
}

const struct store *compare_store(void)
{
	return store;
}

unsigned compare_store_differing(void)
{
	return differing;
}

void compare_store_set_time(uint64_t now_us)
{
	store_set_time(store, now_us);
}

/* The script of the store with the number of the server's. */
static redisReply *run_script(size_t argc, const char *const argv[], const size_t lens[])
{
	size_t keys = strtoul(argv[2], NULL, 10);
	unsigned script = 1;
	while (memcmp(argv[1], compare_scripts[script].sha1, lens[1]) != 0)
		script++;
	assert(script < SCRIPTS_COUNT && argc >= 3 + keys);
	return store_run_script(store, script, keys, argc - 3, argv + 3, lens + 3);
}

/* "*2\r\n$4\r\nTYPE\r\n…" */
void compare_store_note_command(const char *bytes, size_t len)
{
	const char *argv[ARGS_MAX], *at = bytes;
	size_t lens[ARGS_MAX], argc = strtoul(at + 1, NULL, 10);
	assert(*at == '*' && argc > 0 && argc <= ARGS_MAX);
	at = strchr(at, '\n') + 1;
	for (size_t i = 0; i < argc; i++) {
		lens[i] = strtoul(at + 1, NULL, 10);
		argv[i] = strchr(at, '\n') + 1;
		at = argv[i] + lens[i] + 2;
	}
	assert(at == bytes + len);
	bool is_script = lens[0] == 7 && memcmp(argv[0], "EVALSHA", lens[0]) == 0;
	note(&commands, bytes, len, is_script ? run_script(argc, argv, lens) : store_command(store, argc, argv, lens));
}

/* ---- comparing ---- */

static int compare_pairs(const void *a, const void *b)
{
	return strcmp((*(redisReply *const *)a)->str, (*(redisReply *const *)b)->str);
}

/* Fields and values in the order of the fields: a hash has none of its own. */
static void sort_pairs(redisReply *all)
{
	struct pair {
		redisReply *field, *value;
	};
	if (all->type == REDIS_REPLY_ARRAY && all->elements > 0)
		qsort(all->element, all->elements / 2, sizeof(struct pair), compare_pairs);
}

static bool is_same(const redisReply *ours, const redisReply *its)
{
	if (ours->type != its->type)
		return false;
	switch (ours->type) {
	case REDIS_REPLY_INTEGER: return ours->integer == its->integer;
	case REDIS_REPLY_NIL: return true;
	case REDIS_REPLY_ERROR: { /* the code; of errors of Lua, Redis says more */
		size_t code = strcspn(ours->str, " ");
		return code > 0 && code == strcspn(its->str, " ") && memcmp(ours->str, its->str, code) == 0;
	}
	case REDIS_REPLY_ARRAY:
		for (size_t i = 0; i < ours->elements && ours->elements == its->elements; i++)
			if (!is_same(ours->element[i], its->element[i]))
				return false;
		return ours->elements == its->elements;
	default: return ours->len == its->len && memcmp(ours->str, its->str, ours->len) == 0;
	}
}

static void describe(struct text *text, const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_INTEGER: text_printf(text, "%lld", reply->integer); break;
	case REDIS_REPLY_NIL: text_printf(text, "nil"); break;
	case REDIS_REPLY_ARRAY:
		text_printf(text, "{");
		for (size_t i = 0; i < reply->elements; i++) {
			text_printf(text, "%s", i > 0 ? ", " : "");
			describe(text, reply->element[i]);
		}
		text_printf(text, "}");
		break;
	default: text_printf(text, "\"%s\"", reply->str);
	}
}

/* Behind the first line feed or blank that a number and a colon follow. */
static unsigned sequence_of(const char *command)
{
	for (const char *at = command; (at = strpbrk(at, "\n "));) {
		char *end;
		unsigned long number = strtoul(++at, &end, 10);
		if (end > at && *end == ':')
			return (unsigned)number;
	}
	return (unsigned)strtoul(command, NULL, 10);
}

static void tell(const char *what, const struct noted *noted, const redisReply *ours, const redisReply *its)
{
	struct text text;
	differing = noted ? sequence_of(noted->command) : (unsigned)strtoul(its->element[2]->str, NULL, 10);
	text_init(&text);
	text_printf(&text, "%s %s\n  the store: ", what, noted ? noted->command : "(none)");
	if (ours)
		describe(&text, ours);
	text_printf(&text, "\n  redis:     ");
	describe(&text, its);
	printf("%.*s\n", SHOWN_MAX, text.bytes);
	text_fini(&text);
}

/* The protocol: "*3\r\n$7\r\nPUBLISH\r\n…" */
static bool is_command(const struct noted *noted, const char *word)
{
	const char *length = strchr(noted->command, '$'), *name = length ? strchr(length, '\n') : NULL;
	return name && strncmp(name + 1, word, strlen(word)) == 0 && name[1 + strlen(word)] == '\r';
}

bool compare_store_check(const redisReply *its)
{
	struct noted *noted = STAILQ_FIRST(&commands);
	assert(noted);
	if (is_command(noted, "HGETALL")) {
		sort_pairs(noted->reply);
		sort_pairs((redisReply *)its);
	}
	bool same = is_command(noted, "PUBLISH") || is_same(noted->reply, its); /* how many listen is another matter */
	if (!same)
		tell("the store answers otherwise to", noted, noted->reply, its);
	drop_first(&commands);
	return same;
}

bool compare_store_check_message(const redisReply *message)
{
	struct noted *noted = STAILQ_FIRST(&messages);
	const redisReply *channel = message->element[2], *text = message->element[3];
	struct text both;
	text_init(&both);
	text_printf(&both, "%s %s", channel->str, text->str);
	bool same = noted && strcmp(noted->command, both.bytes) == 0;
	if (!same)
		tell("the store publishes otherwise:", noted, NULL, message);
	text_fini(&both);
	if (noted)
		drop_first(&messages);
	return same;
}
