/* The numbers of the modelled master as text for a real one: commands, expected answers, stories. */
#ifndef COMPARE_TEXT_H
#define COMPARE_TEXT_H

#include <stddef.h>

#include "compare_server.h"
#include "model_master.h"
#include "server/scripts/scripts.h"

enum {
	COMPARE_TEXT = 160,
	COMPARE_ARGS = 24,
	COMPARE_NOTIFICATIONS = 512,
	COMPARE_OTHER_LIBRARY_TEXTS = 7,
	COMPARE_OWNERS = 9
};

/* The arguments of one command. */
struct compare_args {
	int count;
	const char *at[COMPARE_ARGS];
	char text[COMPARE_ARGS][COMPARE_TEXT];
};

/* An answer as text, of the server or as it must be. */
struct compare_answer {
	char text[13 * COMPARE_TEXT];
};

/* How far an integer may differ that depends on the clock by which the server expires keys. */
struct compare_near {
	long long below, above;
};

/* Formats of the names of one sequence's keys: its number; its number and that of the key, or the replica; the queue,
 * the watch and the holders have its number twice. */
#define COMPARE_HASH_NAME "%u:redlockd:master"
#define COMPARE_KEY_NAME "%u:key%u"
#define COMPARE_QUEUE_NAME "%u:redlockd:queue:%u:key%u"
#define COMPARE_WATCH_NAME "%u:redlockd:watch:%u:key%u"
#define COMPARE_HOLDERS_NAME "%u:redlockd:holders:%u:key%u"
#define COMPARE_ALIVE_NAME "%u:redlockd:alive:%016llx"
/* A field of the hash. */
const char *compare_bucket_name(unsigned bucket);

/* 16 hex digits; "" for 0. */
void compare_number_text(char *text, uint64_t number);
/* Decimal; "" for 0. What `evicted` stands for. */
void compare_decimal_text(char *text, uint64_t number);
void compare_evicted_text(char *text, uint32_t evicted);
/* The value of a key; without a token it is the string of another library of number `owner`. */
void compare_value_text(char *text, const struct model_value *value);
const char *compare_other_library_text(unsigned i);

/* replica:arrival; "" for none. */
void compare_entry_text(char *text, struct model_entry entry);
/* All messages that a script publishes, in their order, with a bar behind each. */
void compare_notification_text(char text[COMPARE_NOTIFICATIONS], unsigned sequence, const struct model_reply *reply);

const char *compare_script_name(enum compare_script script);
/* The scripts of the server: `scripts`, but without what a mutation changes there. */
extern const struct script compare_scripts[SCRIPTS_COUNT];
/* What redlockd sends for it: one script for all cases of a verb. */
const struct script *compare_script_of(enum compare_script script);
/* EVALSHA … */
void compare_command(struct compare_args *args, enum compare_script script, unsigned sequence,
		     const struct model_command *command);

void compare_reply_text(struct compare_answer *answer, const redisReply *reply);
/* The model's answer. An integer that may differ is taken from the server's answer `its` (NULL: none) if it is near. */
void compare_expect(struct compare_answer *answer, enum compare_script script, const struct model_reply *reply,
		    const redisReply *its, struct compare_near near);

/* For people. */
void compare_print_args(const struct compare_args *args);

#endif
