/* SPDX-License-Identifier: MIT */
/* Tokens (JWT, RFC 7519): checks, the signature, and the caller by the rules of the issuer. See auth.h.
 *
 * Everything that costs little is checked first, so that a signature is verified only for a token that an issuer of the
 * keys file may have signed: with a key of its set, for this audience, and at this time. cjose verifies signatures; it
 * never chooses the algorithm: a key has only one. The thread of one worker for each token. */
#include <assert.h>
#include <cjose/cjose.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

enum { CLAIMS_SHOWN_MAX = 600 /* bytes */ };

/* A token that was taken apart. */
struct draft {
	const char *bytes;
	size_t len;
	json_t *header, *claims;
	const struct issuer *issuer;
	const struct jwk *key;
	int64_t end_s;
};

const char *token_reason(enum token_refusal refusal)
{
	static const char *const reasons[TOKEN_REFUSALS] = {
		[TOKEN_MALFORMED] = "The token is malformed: it must be a signed JWT in compact form.",
		[TOKEN_TOO_LARGE] = "The token is larger than 8192 bytes.",
		[TOKEN_ALGORITHM] = "The token must be signed by RS256 or ES256.",
		[TOKEN_CRITICAL] = "The token has a header crit, and no such extension is understood.",
		[TOKEN_ISSUER] = "The issuer of the token (iss) is not in the keys file.",
		[TOKEN_AUDIENCE] = "The token is for another audience (aud) than the one in the keys file.",
		[TOKEN_NO_EXPIRY] = "The token has no time of its end (exp).",
		[TOKEN_EXPIRED] = "The token has expired (exp). Send a new one.",
		[TOKEN_EARLY] = "The token is not valid yet (nbf). Check the clocks.",
		[TOKEN_KEY] = "No key of the issuer is for this token (kid, alg). The jwks_file may be too old.",
		[TOKEN_SIGNATURE] = "The signature of the token is wrong.",
		[TOKEN_NO_RULE] = "No rule of the keys file is for the token any more.",
	};
	assert(refusal > TOKEN_GOOD && refusal < TOKEN_REFUSALS);
	return reasons[refusal];
}

/* ---- the parts ---- */

bool token_is_like(const char *bytes, size_t len)
{
	const char *end = bytes + len, *first = memchr(bytes, '.', len),
		   *second = first ? memchr(first + 1, '.', (size_t)(end - first) - 1) : NULL;
	return second && !memchr(second + 1, '.', (size_t)(end - second) - 1);
}

/* A part that is a JSON object in base64url without padding, or NULL. */
static json_t *token_read_part(const char *bytes, size_t len)
{
	json_t *part = NULL;
	json_error_t error;
	cjose_err failure;
	uint8_t *text = NULL;
	size_t text_len = 0;
	if (!jwks_is_base64url(bytes, len) || !cjose_base64url_decode(bytes, len, &text, &text_len, &failure))
		return NULL;
	part = json_loadb((const char *)text, text_len, JSON_REJECT_DUPLICATES, &error);
	cjose_get_dealloc()(text);
	if (json_is_object(part))
		return part;
	json_decref(part);
	return NULL;
}

static void token_free_draft(struct draft *draft)
{
	json_decref(draft->header);
	json_decref(draft->claims);
}

static const char *token_text(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/* ---- the checks ---- */

static enum token_refusal token_check_header(const struct draft *draft, bool *ret_rsa)
{
	const char *alg = token_text(draft->header, "alg");
	*ret_rsa = alg && strcmp(alg, "RS256") == 0;
	if (!*ret_rsa && (!alg || strcmp(alg, "ES256") != 0))
		return TOKEN_ALGORITHM;
	return json_object_get(draft->header, "crit") ? TOKEN_CRITICAL : TOKEN_GOOD;
}

/* Seconds since 1970; fractions count. False: it is not there, or not such a number. */
static bool token_time(const json_t *claims, const char *name, double *ret_s)
{
	const json_t *value = json_object_get(claims, name);
	*ret_s = json_number_value(value);
	return json_is_number(value) && *ret_s >= 0 && *ret_s < 1e15;
}

static enum token_refusal token_check_times(struct draft *draft, int64_t now_s)
{
	double exp_s, nbf_s, now = (double)now_s;
	if (!token_time(draft->claims, "exp", &exp_s))
		return TOKEN_NO_EXPIRY;
	draft->end_s = (int64_t)exp_s + TOKEN_SKEW_S;
	if (now_s >= draft->end_s)
		return TOKEN_EXPIRED;
	if (json_object_get(draft->claims, "nbf") &&
	    (!token_time(draft->claims, "nbf", &nbf_s) || nbf_s > now + TOKEN_SKEW_S))
		return TOKEN_EARLY;
	return TOKEN_GOOD;
}

static bool token_is_for(const struct draft *draft, const char *audience)
{
	const json_t *aud = json_object_get(draft->claims, "aud");
	if (json_is_string(aud))
		return strcmp(json_string_value(aud), audience) == 0;
	for (size_t i = 0; i < json_array_size(aud); i++) {
		const char *one = json_string_value(json_array_get(aud, i));
		if (one && strcmp(one, audience) == 0)
			return true;
	}
	return false;
}

static const struct issuer *token_find_issuer(const struct keys *keys, const struct draft *draft)
{
	const char *iss = token_text(draft->claims, "iss");
	for (size_t i = 0; iss && i < keys->issuer_count; i++)
		if (strcmp(keys->issuers[i].name, iss) == 0)
			return &keys->issuers[i];
	return NULL;
}

/* The key that the token names; without a kid, the only one of its kind. */
static const struct jwk *token_find_key(const struct draft *draft, bool rsa)
{
	const struct jwks *jwks = draft->issuer->jwks;
	const json_t *kid = json_object_get(draft->header, "kid");
	const struct jwk *found = NULL;
	if (kid && !json_is_string(kid))
		return NULL;
	for (size_t i = 0; jwks && i < jwks->count; i++) {
		const struct jwk *key = &jwks->keys[i];
		if ((key->algorithm == JWK_RS256) != rsa)
			continue;
		if (!kid && found)
			return NULL;
		if (!kid || (key->kid && strcmp(key->kid, json_string_value(kid)) == 0))
			found = key;
	}
	return found;
}

/* Takes the token apart and checks all but its signature. Free the draft also if it is refused. */
static enum token_refusal token_draft(const struct keys *keys, const char *bytes, size_t len, int64_t now_s,
				      struct draft *draft)
{
	enum token_refusal refusal;
	bool rsa;
	*draft = (struct draft){.bytes = bytes, .len = len};
	if (len > TOKEN_MAX)
		return TOKEN_TOO_LARGE;
	if (!token_is_like(bytes, len))
		return TOKEN_MALFORMED;
	size_t header_len = strcspn(bytes, "."), claims_len = strcspn(bytes + header_len + 1, ".");
	draft->header = token_read_part(bytes, header_len);
	draft->claims = token_read_part(bytes + header_len + 1, claims_len);
	if (!draft->header || !draft->claims)
		return TOKEN_MALFORMED;
	if ((refusal = token_check_header(draft, &rsa)) != TOKEN_GOOD)
		return refusal;
	const char *signature = bytes + header_len + 1 + claims_len + 1; /* `none` has an empty one */
	if (!jwks_is_base64url(signature, (size_t)(bytes + len - signature)))
		return TOKEN_MALFORMED;
	if (!(draft->issuer = token_find_issuer(keys, draft)))
		return TOKEN_ISSUER;
	if (!token_is_for(draft, draft->issuer->audience))
		return TOKEN_AUDIENCE;
	if ((refusal = token_check_times(draft, now_s)) != TOKEN_GOOD)
		return refusal;
	draft->key = token_find_key(draft, rsa);
	return draft->key ? TOKEN_GOOD : TOKEN_KEY;
}

static bool token_is_signed(const struct draft *draft)
{
	cjose_err error;
	cjose_jws_t *jws = cjose_jws_import(draft->bytes, draft->len, &error);
	bool good = jws && cjose_jws_verify(jws, draft->key->key, &error);
	cjose_jws_release(jws);
	return good;
}

/* ---- the caller ---- */

/* Fills a copy of the rule's key with the claims. False: some claim cannot stand there. */
static bool token_fill_key(const json_t *claims, const struct issuer_rule *rule, struct key *key)
{
	char *name = claims_fill(claims, rule->key.name, false);
	bool good = name;
	*key = rule->key;
	key->name = name;
	key->prefix_count = 0;
	key->prefixes = memory_zeroed(rule->key.prefix_count, sizeof *key->prefixes);
	for (size_t i = 0; good && i < rule->key.prefix_count; i++) {
		char *bytes = claims_fill(claims, rule->key.prefixes[i].bytes, true);
		good = bytes;
		if (good)
			key->prefixes[key->prefix_count++] = (struct key_prefix){bytes, strlen(bytes)};
	}
	return good;
}

static void token_clear_key(struct key *key)
{
	for (size_t i = 0; i < key->prefix_count; i++)
		free((char *)key->prefixes[i].bytes);
	free(key->prefixes);
	free((char *)key->name);
	usage_put(key->usage);
	*key = (struct key){0};
}

/* Sets the key by the first rule that matches. False: none does. */
static bool token_map(const struct draft *draft, struct key *key)
{
	for (size_t i = 0; i < draft->issuer->rule_count; i++) {
		const struct issuer_rule *rule = &draft->issuer->rules[i];
		size_t held = 0;
		while (held < rule->match_count && claims_match(draft->claims, &rule->matches[held]))
			held++;
		if (held < rule->match_count)
			continue;
		if (token_fill_key(draft->claims, rule, key)) {
			key->usage = usage_get(USAGE_TOKEN, key->name);
			return true;
		}
		token_clear_key(key);
	}
	return false;
}

static void token_add_shown(json_t *shown, const struct draft *draft, const char *name)
{
	const json_t *value = claims_find(draft->claims, name, strlen(name));
	json_object_set_new(shown, name, value ? json_deep_copy(value) : json_null());
}

/* The claims that rules are about, for the answer to a caller that no rule matches. */
static char *token_unmatched(const struct draft *draft)
{
	static const char *const always[] = {"iss", "sub", "aud"};
	json_t *shown = json_object();
	struct text text;
	for (size_t i = 0; i < sizeof always / sizeof *always; i++)
		token_add_shown(shown, draft, always[i]);
	for (size_t i = 0; i < draft->issuer->rule_count; i++)
		for (size_t j = 0; j < draft->issuer->rules[i].match_count; j++)
			token_add_shown(shown, draft, draft->issuer->rules[i].matches[j].claim);
	char *claims = json_dumps(shown, JSON_ENSURE_ASCII | JSON_COMPACT);
	json_decref(shown);
	text_init(&text);
	text_printf(&text, "The token is valid, but no rule of the keys file matches it. Its claims: %.*s%s",
		    CLAIMS_SHOWN_MAX, claims, strlen(claims) > CLAIMS_SHOWN_MAX ? "..." : "");
	free(claims);
	return text.bytes;
}

static struct token *token_make(const struct draft *draft)
{
	struct token *token = memory_zeroed(1, sizeof *token + draft->len);
	token->references = 1;
	token->end_s = draft->end_s;
	token->len = draft->len;
	memcpy(token->bytes, draft->bytes, draft->len);
	memcpy(token->signer, draft->key->digest, KEY_HASH_LEN);
	if (!token_map(draft, &token->key))
		token->unmatched = token_unmatched(draft);
	return token;
}

void token_unref(struct token *token)
{
	if (!token || --token->references > 0)
		return;
	token_clear_key(&token->key);
	explicit_bzero(token->bytes, token->len);
	free(token->unmatched);
	free(token);
}

enum token_refusal token_check(const struct keys *keys, const char *bytes, size_t len, int64_t now_s)
{
	struct draft draft;
	enum token_refusal refusal = token_draft(keys, bytes, len, now_s, &draft);
	token_free_draft(&draft);
	return refusal;
}

enum token_refusal token_verify(const struct keys *keys, const char *bytes, size_t len, int64_t now_s,
				struct token **ret_token)
{
	struct draft draft;
	enum token_refusal refusal = token_draft(keys, bytes, len, now_s, &draft);
	if (refusal == TOKEN_GOOD && !token_is_signed(&draft))
		refusal = TOKEN_SIGNATURE;
	if (refusal == TOKEN_GOOD)
		*ret_token = token_make(&draft);
	token_free_draft(&draft);
	return refusal;
}

enum token_refusal token_review(const struct keys *keys, const struct token *before, int64_t now_s,
				struct token **ret_token)
{
	struct draft draft;
	enum token_refusal refusal = token_draft(keys, before->bytes, before->len, now_s, &draft);
	if (refusal == TOKEN_GOOD && memcmp(draft.key->digest, before->signer, KEY_HASH_LEN) != 0)
		refusal = TOKEN_KEY;
	if (refusal == TOKEN_GOOD)
		*ret_token = token_make(&draft);
	token_free_draft(&draft);
	return refusal;
}
