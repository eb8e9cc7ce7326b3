/* SPDX-License-Identifier: MIT */
/* The public keys of an issuer: a set of JSON Web Keys (RFC 7517). See auth.h.
 *
 * Keys of other kinds than RS256 and ES256 need are left out, since a set may have some for other uses. A secret in the
 * file (a symmetric key, a private part) is an error: such a file is not for this purpose. cjose makes the keys. Any
 * thread. */
#include <assert.h>
#include <cjose/cjose.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

enum {
	JWKS_MAX = 64,
	RSA_MIN = 256,
	RSA_MAX = 1024,
	RSA_EXPONENT_MAX = 4,
	RSA_EXPONENT_LEAST = 3, /* with 1 everybody can sign */
	P256_DIGITS = 43        /* 32 bytes in base64url */
};

bool jwks_is_base64url(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' &&
		    c != '_')
			return false;
	}
	return len > 0 && len % 4 != 1;
}

static const char *jwk_text(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/* The length in bytes of a number in base64url, without zeros at its beginning; 0: malformed. *ret_low: its last 32
 * bits. */
static size_t jwk_number_len(const json_t *object, const char *name, uint32_t *ret_low)
{
	const json_t *value = json_object_get(object, name);
	uint8_t *bytes = NULL;
	size_t len = 0, zeros = 0;
	cjose_err error;
	if (!json_is_string(value) || !jwks_is_base64url(json_string_value(value), json_string_length(value)) ||
	    !cjose_base64url_decode(json_string_value(value), json_string_length(value), &bytes, &len, &error))
		return 0;
	while (zeros < len && bytes[zeros] == 0)
		zeros++;
	for (size_t i = zeros; i < len; i++)
		*ret_low = *ret_low << 8 | bytes[i];
	cjose_get_dealloc()(bytes);
	return len - zeros;
}

/* True for a number of P-256 in its full length (RFC 7518, 6.2.1.2): some programs drop zeros, and cjose takes none of
 * theirs. */
static bool jwk_is_coordinate(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);
	return json_string_length(value) == P256_DIGITS &&
	       jwks_is_base64url(json_string_value(value), json_string_length(value));
}

/* True if the key is of no use here, and is left out. */
static bool jwk_is_other(const json_t *object)
{
	const char *kty = jwk_text(object, "kty"), *use = jwk_text(object, "use"), *alg = jwk_text(object, "alg"),
		   *crv = jwk_text(object, "crv");
	bool rsa = strcmp(kty, "RSA") == 0, ec = strcmp(kty, "EC") == 0 && crv && strcmp(crv, "P-256") == 0;
	return (!rsa && !ec) || (use && strcmp(use, "sig") != 0) || (alg && strcmp(alg, rsa ? "RS256" : "ES256") != 0);
}

/* NULL, or the member that is wrong, and *ret_reason. */
static const char *jwk_check(const json_t *object, const char **ret_reason)
{
	const json_t *kid = json_object_get(object, "kid");
	bool rsa = strcmp(jwk_text(object, "kty"), "RSA") == 0;
	uint32_t exponent = 0, unused = 0;
	size_t n = rsa ? jwk_number_len(object, "n", &unused) : 0, e = rsa ? jwk_number_len(object, "e", &exponent) : 0;
	*ret_reason = "must be a string of 1 to 256 bytes";
	if (kid && (json_string_length(kid) < 1 || json_string_length(kid) > ISSUER_TEXT_MAX))
		return "kid";
	*ret_reason = "must be a number of 2048 to 8192 bits in base64url";
	if (rsa && (n < RSA_MIN || n > RSA_MAX))
		return "n";
	*ret_reason = "must be an odd number of 2 to 32 bits in base64url";
	if (rsa && (e > RSA_EXPONENT_MAX || exponent < RSA_EXPONENT_LEAST || exponent % 2 == 0))
		return "e";
	*ret_reason = "must be a number of 32 bytes in base64url, with the zeros at its beginning";
	if (!rsa && !jwk_is_coordinate(object, "x"))
		return "x";
	return !rsa && !jwk_is_coordinate(object, "y") ? "y" : NULL;
}

/* The public values as one text, so that a key with another value is another signer. */
static void jwk_digest(const json_t *object, unsigned char digest[KEY_HASH_LEN])
{
	static const char *const names[] = {"kty", "n", "e", "x", "y"};
	struct text text;
	text_init(&text);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		text_printf(&text, "%s ", jwk_text(object, names[i]) ? jwk_text(object, names[i]) : "");
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text.bytes, text.len, digest) != 0)
		memory_exhausted("hash");
	text_fini(&text);
}

static bool jwks_has(const struct jwks *jwks, const struct jwk *key)
{
	for (size_t i = 0; i < jwks->count; i++)
		if (jwks->keys[i].algorithm == key->algorithm && jwks->keys[i].kid && key->kid &&
		    strcmp(jwks->keys[i].kid, key->kid) == 0)
			return true;
	return false;
}

/* Adds a key to the set, or leaves it out. Returns NULL, or why it is rejected; *ret_member: of this member, or
 * NULL. */
static const char *jwks_add(struct jwks *jwks, json_t *object, const char **ret_member)
{
	struct jwk key = {.kid = jwk_text(object, "kid")};
	const char *kty = jwk_text(object, "kty"), *reason;
	cjose_err error;
	*ret_member = NULL;
	if (!json_is_object(object))
		return "must be a JSON object";
	*ret_member = "kty";
	if (!kty)
		return "must be a string";
	if (strcmp(kty, "oct") == 0)
		return "must not be \"oct\": a shared secret does not belong here";
	*ret_member = "d";
	if (json_object_get(object, "d"))
		return "must not be there: a private key does not belong here";
	if (jwk_is_other(object))
		return NULL;
	if ((*ret_member = jwk_check(object, &reason)))
		return reason;
	key.algorithm = strcmp(kty, "RSA") == 0 ? JWK_RS256 : JWK_ES256;
	*ret_member = "kid";
	if (jwks_has(jwks, &key))
		return "is that of another key, too";
	*ret_member = NULL;
	key.key = cjose_jwk_import_json((cjose_header_t *)object, &error);
	if (!key.key)
		return "is not a public key";
	jwk_digest(object, key.digest);
	jwks->keys[jwks->count++] = key;
	return NULL;
}

/* Takes over `root`. */
static struct jwks *jwks_make(json_t *root, char *message, size_t size)
{
	json_t *list = json_object_get(root, "keys");
	const char *member, *reason;
	if (json_array_size(list) < 1 || json_array_size(list) > JWKS_MAX) {
		snprintf(message, size, "keys: must be a list of 1 to %d keys", JWKS_MAX);
		json_decref(root);
		return NULL;
	}
	struct jwks *jwks = memory_zeroed(1, sizeof *jwks + json_array_size(list) * sizeof jwks->keys[0]);
	atomic_init(&jwks->references, 1);
	jwks->root = root;
	for (size_t i = 0; i < json_array_size(list); i++) {
		reason = jwks_add(jwks, json_array_get(list, i), &member);
		if (!reason)
			continue;
		snprintf(message, size, "keys[%zu]%s%s: %s", i, member ? "." : "", member ? member : "", reason);
		jwks_free(jwks);
		return NULL;
	}
	if (jwks->count > 0)
		return jwks;
	snprintf(message, size, "keys: must have a key for signatures by RS256 or ES256");
	jwks_free(jwks);
	return NULL;
}

struct jwks *jwks_parse(const char *bytes, size_t len, char *message, size_t size)
{
	json_error_t error;
	assert(len <= JWKS_FILE_MAX && size > 0);
	json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &error);
	if (root)
		return jwks_make(root, message, size);
	snprintf(message, size, "line %d, column %d: %s", error.line, error.column, keys_json_reason(&error));
	return NULL;
}

struct jwks *jwks_ref(struct jwks *jwks)
{
	unsigned before = atomic_fetch_add_explicit(&jwks->references, 1, memory_order_relaxed);
	assert(before > 0);
	return jwks;
}

void jwks_free(struct jwks *jwks)
{
	if (!jwks || atomic_fetch_sub_explicit(&jwks->references, 1, memory_order_acq_rel) > 1)
		return;
	for (size_t i = 0; i < jwks->count; i++)
		cjose_jwk_release(jwks->keys[i].key);
	json_decref(jwks->root);
	free(jwks);
}

struct jwks *jwks_load(const char *path, char *message, size_t size)
{
	char wrong[KEYS_MESSAGE_MAX];
	struct jwks *jwks = NULL;
	struct text text;
	text_init(&text);
	if (secret_file_read(path, SECRET_FILE_TRUSTED, JWKS_FILE_MAX, &text, message, size)) {
		jwks = jwks_parse(text.bytes, text.len, wrong, sizeof wrong);
		if (!jwks)
			snprintf(message, size, "%s: %s", path, wrong);
	}
	text_fini(&text);
	return jwks;
}
