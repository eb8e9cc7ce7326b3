/* SPDX-License-Identifier: MIT */
/* Private to this folder: the parser of the keys file, claims and their patterns, the keys of issuers.
 *
 * The files use each other in this order only, each the ones before it:
 *     json_reason, usages, claims, jwks, keys, token, token_cache, access, key_members, issuers_parse, keys_parse */
#ifndef AUTH_INTERNAL_H
#define AUTH_INTERNAL_H

#include <jansson.h>

#include "auth.h"
#include "server/base/base.h"

/* ---- usages.c: a usage for each name of a caller that some key or token has ---- */

/* The usage of the caller with this name, an existing or a new one. Adds a reference. `kind`: a key and a token with
 * the same name are two callers. */
enum usage_kind { USAGE_KEY = 'k', USAGE_TOKEN = 't' };
struct key_usage *usage_get(enum usage_kind kind, const char *name);
void usage_put(struct key_usage *usage); /* NULL: does nothing */

/* ---- claims.c ----
 *
 * A claim is named by the names of members from the outside to the inside, with slashes between them; %2F stands for
 * a slash within a name, %25 for a percent sign. In a pattern, `*` stands for any number of characters but colons, `**`
 * for any number of characters. In a template, {claim} stands for the value of a claim. */

/* NULL, or why it is none (static). A `prefix` needs a slash after each claim, so that a value does not include those
 * that begin with it. */
const char *claims_check_name(const char *name);
const char *claims_check_template(const char *text, bool prefix);

/* The value of a claim, or NULL. */
const json_t *claims_find(const json_t *claims, const char *name, size_t len);

/* True if the claim is a string that matches, or a list with such a string. */
bool claims_match(const json_t *claims, const struct issuer_match *match);

/* The text of a template, on the heap; NULL if a claim is missing, is not a string, or may not stand there: control
 * characters, nothing at all, and in a `prefix` slashes or only full stops. */
char *claims_fill(const json_t *claims, const char *text, bool prefix);

/* ---- jwks.c ---- */

struct jwk {
	const char *kid; /* NULL: none */
	enum { JWK_RS256, JWK_ES256 } algorithm;
	struct _cjose_jwk_int *key;         /* of cjose */
	unsigned char digest[KEY_HASH_LEN]; /* of its public values */
};

struct jwks {
	atomic_uint references;
	json_t *root; /* owns the texts */
	size_t count;
	struct jwk keys[];
};

/* True for base64url without padding that is not empty. cjose aborts on other lengths. */
bool jwks_is_base64url(const char *text, size_t len);

/* jwks_free() drops a reference. */
struct jwks *jwks_ref(struct jwks *jwks);

/* Reads the file. NULL: a message that begins with the path. */
struct jwks *jwks_load(const char *path, char *message, size_t message_size);

/* ---- key_members.c: members of the keys file ---- */

/* The position of the parser. */
struct reading {
	struct keys *keys;
	struct key *key;          /* that is being read */
	struct issuer_rule *rule; /* the key is a part of it; NULL: of none */
	char where[64];           /* keys[2], issuers[0].callers[1] */
	const char *member;       /* NULL: all of it */
	int item;                 /* of a member that is a list; -1: the member as a whole */
	char reason[160];         /* for a reason that is not static */
};

/* All return NULL, or the reason why a value is rejected, static or in reading->reason. */
const char *parse_explain(struct reading *reading, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *parse_member(struct reading *reading, const char *name, const json_t *value);
const char *parse_unknown(struct reading *reading, const char *name);

/* True for 1 to `max` letters, digits, full stops, underscores and hyphens. */
bool parse_is_name(const char *text, size_t len, size_t max);

/* Writes the message. */
void parse_write(const struct reading *reading, const char *reason, char *message, size_t message_size);

/* ---- issuers_parse.c: `issuers` in the keys file ---- */

/* False: a message. keys_unref() frees what was read until then. */
bool issuers_parse(struct keys *keys, const json_t *list, char *message, size_t message_size)
	__attribute__((warn_unused_result));
/* Reads the files; `before` as for keys_load(). False: an issuer has no public keys. */
bool issuers_load(struct keys *keys, const struct keys *before, char *message, size_t message_size)
	__attribute__((warn_unused_result));

#endif
