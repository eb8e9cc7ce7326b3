/* SPDX-License-Identifier: MIT */
/* The NAMEs of a command: one resource, or those of a set. They point into the command line. */
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
	const char *joined; /* for messages: all names, separated by commas; NULL: none */
};

/* run: true if a -- follows, so that this word is a name. False: the command begins here. */
bool names_go_on(const struct options_reader *reader, const char *word);

/* Adds a name. False, with a message: only one is allowed, there are too many, or (with `command_follows`) the second
 * one is a program that execvp() finds, so it was meant to be run. */
bool names_add(struct options_reader *reader, struct names *names, const char *name, bool may_be_several,
	       bool command_follows);

/* Sorts the names, as servers answer them, and joins them into a static text. False, with a message: one is given
 * twice. */
bool names_join(struct options_reader *reader, struct names *names);

/* The member of a request for the names: "resource", or "resources" with the array of several. The reference is the
 * caller's. */
const char *names_member(const struct names *names);
json_t *names_json(const struct names *names);

#endif
