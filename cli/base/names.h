/* The NAMEs of a command: the one resource, or those of a set. They are the words of the command line, never copies. */
#ifndef NAMES_H
#define NAMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct options_reader;

enum { NAMES_MAX = 16 };

struct names {
	const char *items[NAMES_MAX]; /* sorted by names_join() */
	size_t count;
	const char *joined; /* for messages: of several all, with commas between them; NULL: none */
};

/* run: true if a -- is still to come: the words before it are names, otherwise the command begins here. */
bool names_go_on(const struct options_reader *reader, const char *word);

/* Adds one. False: the message was written, since there may be one only, there are too many, or where `command_follows`
 * the second one is a program, as execvp() finds it, that was meant to be run. */
bool names_add(struct options_reader *reader, struct names *names, const char *name, bool may_be_several,
	       bool command_follows);

/* Sorts and joins them, as servers answer them. False: the message was written, since one is given twice. The text
 * that is joined is static. */
bool names_join(struct options_reader *reader, struct names *names);

/* The member of a request for the names: "resource", or "resources" with the array of several. The reference is the
 * caller's. */
const char *names_member(const struct names *names);
json_t *names_json(const struct names *names);

#endif
