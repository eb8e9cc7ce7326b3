/* The numbers of the modelled master as text for a real one: commands, expected answers, stories. */
#ifndef COMPARE_TEXT_H
#define COMPARE_TEXT_H

#include <stddef.h>

#include "compare_server.h"
#include "model_master.h"

enum {
	COMPARE_TEXT = 160,
	COMPARE_ARGS = 16,
	COMPARE_ELEMENTS = 13,
	COMPARE_OTHER_LIBRARY_TEXTS = 6,
	COMPARE_OWNERS = 6
};

/* The arguments of one command. */
struct compare_args {
	int count;
	const char *at[COMPARE_ARGS];
	char text[COMPARE_ARGS][COMPARE_TEXT];
};

enum compare_kind {
	COMPARE_INTEGER,
	/* an integer that depends on the clock by which the server expires keys: number − below … number + above */
	COMPARE_ABOUT,
	COMPARE_STRING,
	COMPARE_NIL
};

struct compare_element {
	enum compare_kind kind;
	long long number;
	char text[COMPARE_TEXT];
};

/* An answer as it must be. */
struct compare_expected {
	unsigned count;
	struct compare_element elements[COMPARE_ELEMENTS];
};

/* Names of one sequence's keys and hash fields. */
void compare_key_name(char *text, unsigned sequence, unsigned key);
void compare_hash_name(char *text, unsigned sequence);
const char *compare_bucket_name(unsigned bucket);
void compare_queue_name(char *text, unsigned sequence, unsigned key);
void compare_alive_name(char *text, unsigned sequence, uint64_t replica);

/* 16 hex digits; "" for 0. */
void compare_number_text(char *text, uint64_t number);
/* The value of a key; without a token it is the string of another library of number `owner`. */
void compare_value_text(char *text, const struct model_value *value);
const char *compare_other_library_text(unsigned i);

/* replica:arrival; "" for none. */
void compare_entry_text(char *text, struct model_entry entry);
/* The message that notifies that entry of a key; "" for none. */
void compare_notification_text(char *text, unsigned sequence, unsigned key, struct model_entry entry);

void compare_add(struct compare_args *args, const char *text);
/* EVALSHA … */
void compare_command(struct compare_args *args, const struct compare_server *server, enum compare_script script,
		     unsigned sequence, const struct model_command *command);

void compare_expect(struct compare_expected *expected, enum compare_script script, const struct model_reply *reply);
/* True if the answer is as expected. `below`, `above`: see COMPARE_ABOUT. */
bool compare_is_alike(const struct compare_expected *expected, const redisReply *reply, long long below,
		      long long above);

/* For people. */
void compare_print_args(const struct compare_args *args);
void compare_print_expected(const struct compare_expected *expected);
void compare_print_reply(const redisReply *reply);

#endif
