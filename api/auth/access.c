/* SPDX-License-Identifier: MIT */
/* Finds the caller of a request among keys, tokens and certificates, and decides what it may do. See auth.h. No state;
 * any thread. */
#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <string.h>

#include "auth_internal.h"

/* ---- the decision ---- */

/* The rights of a certificate of the authority if there is no keys file: all but admin. */
enum { CERTIFICATE_RIGHTS = ACCESS_RIGHT(ACCESS_ACQUIRE) | ACCESS_RIGHT(ACCESS_INSPECT) | ACCESS_RIGHT(ACCESS_LIST) };

const char *access_right_name(enum access_need need)
{
	static const char *const names[ACCESS_NEED_COUNT] = {
		[ACCESS_ACQUIRE] = "acquire",
		[ACCESS_INSPECT] = "inspect",
		[ACCESS_LIST] = "list",
		[ACCESS_ADMIN] = "admin",
	};
	assert(need < ACCESS_NEED_COUNT);
	return names[need];
}

/* Why the caller is not known (static). */
static const char *access_reason(const struct keys *keys, const struct access_credentials *credentials, bool by_key)
{
	const struct tls_peer *certificate = credentials->certificate;
	assert(keys || certificate);
	if (by_key)
		return keys ? "The key is not known to this server. Check it, or ask the operator for one."
			    : "This server takes a client certificate, not a key.";
	if (certificate && certificate->state == TLS_PEER_BAD)
		return certificate->reason;
	if (certificate && certificate->state == TLS_PEER_KNOWN)
		return "No name in the client certificate is in the keys file. Ask the operator to add one.";
	if (credentials->other_scheme)
		return "The scheme of Authorization must be Bearer. Send Authorization: Bearer KEY.";
	return keys ? "A key is needed. Send Authorization: Bearer KEY, or X-Api-Key: KEY."
		    : "A client certificate is needed. Send one of an authority that this server trusts.";
}

static void access_set_refusal(struct access_caller *caller, enum token_refusal refusal)
{
	caller->refusal = refusal;
	caller->reason = token_reason(refusal);
}

/* Takes over the reference to a verified token. */
static void access_set_token(struct access_caller *caller, struct token *token)
{
	caller->token = token;
	caller->by_key = caller->unverified = false;
	caller->refusal = token->unmatched ? TOKEN_NO_RULE : TOKEN_GOOD;
	caller->reason = token->unmatched;
	if (!token->unmatched)
		caller->key = &token->key;
}

static int64_t access_now_s(void)
{
	return (int64_t)(clock_wall_us() / 1000000);
}

/* Looks for the token among those that were verified, else checks whether it is worth that. */
static void access_find_token(struct keys *keys, const struct access_credentials *credentials,
			      struct access_caller *caller)
{
	int64_t now_s = access_now_s();
	struct token *token = credentials->tokens ? token_cache_find(credentials->tokens, keys, credentials->key,
								     credentials->key_len, now_s)
						  : NULL;
	caller->by_key = false;
	if (token) {
		access_set_token(caller, token);
		return;
	}
	enum token_refusal refusal = token_check(keys, credentials->key, credentials->key_len, now_s);
	caller->unverified = refusal == TOKEN_GOOD;
	if (!caller->unverified)
		access_set_refusal(caller, refusal);
}

/* A key of the file may have the form of a token. */
static void access_find_key(struct keys *keys, const struct access_credentials *credentials,
			    struct access_caller *caller)
{
	caller->key = keys_find(keys, credentials->key, credentials->key_len, caller->hash);
	if (!caller->key && keys->issuer_count > 0 && token_is_like(credentials->key, credentials->key_len))
		access_find_token(keys, credentials, caller);
}

/* After a reload: finds the caller by what it was known by. */
static void access_find_again(const struct keys *keys, const struct access_caller *before, struct access_caller *caller)
{
	struct token *token;
	if (caller->by_key) {
		memcpy(caller->hash, before->hash, KEY_HASH_LEN);
		caller->key = keys_find_hash(keys, caller->hash);
		return;
	}
	enum token_refusal refusal = token_review(keys, before->token, access_now_s(), &token);
	if (refusal == TOKEN_GOOD && token->unmatched) {
		token_unref(token);
		refusal = TOKEN_NO_RULE;
	}
	if (refusal == TOKEN_GOOD)
		access_set_token(caller, token);
	else
		access_set_refusal(caller, refusal);
}

static void access_find_certificate(const struct keys *keys, const struct tls_peer *certificate,
				    struct access_caller *caller)
{
	if (keys)
		caller->key = keys_find_certificate(keys, certificate->names, certificate->count);
	else
		caller->name = certificate->count > 0 ? certificate->names[0] : "certificate";
}

void access_identify(struct keys *keys, const struct access_credentials *credentials,
		     const struct access_caller *before, struct access_caller *ret_caller)
{
	const struct tls_peer *certificate = credentials->certificate;
	bool shown = certificate && certificate->state != TLS_PEER_NONE, by_token = before && before->token;
	struct access_caller caller = {.controlled = before ? before->controlled : keys || certificate};
	if (!caller.controlled) {
		*ret_caller = caller;
		return;
	}
	caller.by_key = before ? before->by_key : credentials->key && (keys || !shown);
	assert(!before || (before->known && (caller.by_key || by_token || shown)));
	assert(!before || (!caller.by_key && !by_token) || keys); /* --keys was given at the start or never */
	if (before && (caller.by_key || by_token))
		access_find_again(keys, before, &caller);
	else if (caller.by_key && keys)
		access_find_key(keys, credentials, &caller);
	else if (!caller.by_key && shown && certificate->state == TLS_PEER_KNOWN)
		access_find_certificate(keys, certificate, &caller);
	if (caller.key)
		caller.name = caller.key->name;
	caller.known = caller.name != NULL;
	if (!caller.known && !caller.reason && !caller.unverified)
		caller.reason = access_reason(keys, credentials, caller.by_key);
	*ret_caller = caller;
}

void access_verify(struct keys *keys, const struct access_credentials *credentials, struct access_caller *caller)
{
	int64_t now_s = access_now_s();
	struct token *token = token_cache_find(credentials->tokens, keys, credentials->key, credentials->key_len,
					       now_s); /* the same token may have come twice */
	assert(caller->unverified && !caller->token);
	if (!token) {
		enum token_refusal refusal = token_verify(keys, credentials->key, credentials->key_len, now_s, &token);
		if (refusal != TOKEN_GOOD) {
			caller->unverified = false;
			access_set_refusal(caller, refusal);
			return;
		}
		token_cache_add(credentials->tokens, token);
	}
	access_set_token(caller, token);
	if (caller->key)
		caller->name = caller->key->name;
	caller->known = caller->name != NULL;
}

void access_forget(struct access_caller *caller)
{
	token_unref(caller->token);
	*caller = (struct access_caller){0};
}

unsigned access_rights(const struct access_caller *caller)
{
	assert(!caller->known || caller->controlled);
	if (!caller->controlled)
		return CERTIFICATE_RIGHTS | ACCESS_RIGHT(ACCESS_ADMIN);
	return caller->key ? caller->key->rights : caller->known ? CERTIFICATE_RIGHTS : 0;
}

enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len)
{
	assert(need < ACCESS_NEED_COUNT && (!caller->known || caller->controlled));
	if (!caller->controlled || need == ACCESS_NOTHING || need == ACCESS_TOKEN)
		return ACCESS_ALLOWED;
	assert(!caller->unverified);
	if (!caller->known)
		return caller->token ? ACCESS_NO_RULE : ACCESS_UNKNOWN;
	if (need == ACCESS_KNOWN)
		return ACCESS_ALLOWED;
	if ((access_rights(caller) & ACCESS_RIGHT(need)) == 0)
		return ACCESS_NO_RIGHT;
	if (!bytes || !caller->key)
		return ACCESS_ALLOWED;
	return key_allows_prefix(caller->key, bytes, len) ? ACCESS_ALLOWED : ACCESS_NO_PREFIX;
}

/* The hash is over the kind of the caller, its name, a NUL, and the key: neither of the two holds a NUL. */
uint64_t access_hash_idempotency_key(const struct access_caller *caller, const struct access_text texts[], size_t count)
{
	unsigned char digest[KEY_HASH_LEN];
	char kind = caller->token ? 't' : caller->key ? 'k' : caller->known ? 'c' : '-';
	gnutls_hash_hd_t hash;
	uint64_t number = 0;
	assert(count > 0 && texts[0].len > 0);
	if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) != 0)
		memory_exhausted("hash");
	gnutls_hash(hash, &kind, 1);
	if (caller->known)
		gnutls_hash(hash, caller->name, strlen(caller->name));
	for (size_t i = 0; i < count; i++) {
		gnutls_hash(hash, "", 1); /* no text has a NUL */
		gnutls_hash(hash, texts[i].bytes, texts[i].len);
	}
	gnutls_hash_deinit(hash, digest);
	for (size_t i = 0; i < sizeof number; i++)
		number = number << 8 | digest[i];
	return number > 0 ? number : 1;
}
