/* SPDX-License-Identifier: MIT */
/* What the tests of the keys file share: pieces of files, and files that must be good or bad. */
#ifndef KEYS_WORLD_H
#define KEYS_WORLD_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth/auth.h"
#include "suite.h"

#define S(literal) literal, sizeof(literal) - 1
/* Four hashes. */
#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
#define D "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"
#define REST ",\"prefixes\":[\"\"],\"rights\":[\"list\"]"
#define KEY(name, hash) "{\"name\":\"" name "\",\"sha256\":\"" hash "\"" REST "}"
#define R16 "aaaaaaaaaaaaaaaa"
#define R64 R16 R16 R16 R16
#define R256 R64 R64 R64 R64
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static char message[KEYS_MESSAGE_MAX];

/* A good file, or the test fails. */
static inline struct keys *good(const char *bytes, size_t len)
{
	message[0] = '\0';
	struct keys *keys = keys_parse(bytes, len, message, sizeof message);
	ck_assert_msg(keys != NULL, "%s", message);
	ck_assert_str_eq(message, "");
	return keys;
}

static inline void bad(const char *bytes, size_t len, const char *expected)
{
	struct keys *keys = keys_parse(bytes, len, message, sizeof message);
	ck_assert_msg(keys == NULL, "accepted: %.*s", (int)len, bytes);
	ck_assert_msg(strcmp(message, expected) == 0, "%s\ninstead of %s\nfor %.*s", message, expected, (int)len,
		      bytes);
}

#endif
