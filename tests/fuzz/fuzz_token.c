/* SPDX-License-Identifier: MIT */
/* Fuzz target: tokens (api/auth/token.c, claims.c), sets of keys (jwks.c) and issuers in a keys file.
 *
 * Input: a letter and a text. j: a set of keys; k: a keys file; r: a token as it comes; t: header and claims of a
 * token, with a line feed between them, which are encoded, and after another one the signature as it comes; v: the
 * same with a good signature, as far as the rules see. */
#include <jansson.h>

#include "api/auth/auth_internal.h"
#include "fuzz.h"

#define X "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4"
#define Y "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"

enum { NOW_S = 1800000000, SIGNATURE_LEN = 86 };

static const char file[] =
	"{\"issuers\":[{\"issuer\":\"i\",\"audience\":\"a\",\"jwks_file\":\"/f\",\"callers\":["
	"{\"match\":{\"sub\":\"a*b:**:*c\",\"x/y%2Fz\":\"*\"},\"name\":\"n-{sub}\",\"prefixes\":[\"{x/y%2Fz}/\"],"
	"\"rights\":[\"list\"]},"
	"{\"match\":{\"sub\":\"**\"},\"name\":\"{sub}\",\"prefixes\":[\"p/{g}/\",\"\"],\"rights\":[\"acquire\"]}]}]}";
static const char set[] = "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"1\",\"x\":\"" X "\",\"y\":\"" Y
			  "\"}]}";

#ifdef FUZZ_MUTATED
/* Takes a token with an extension. */
static enum token_refusal token_check_mutated(const struct keys *keys, const char *bytes, size_t len, int64_t now_s)
{
	enum token_refusal refusal = token_check(keys, bytes, len, now_s);
	return refusal == TOKEN_CRITICAL ? TOKEN_GOOD : refusal;
}
#define token_check token_check_mutated
#endif

/* ---- the callers ---- */

static void check_token(const struct token *token)
{
	const struct key *key = &token->key;
	MUST((key->name != NULL) != (token->unmatched != NULL), "a name or the claims");
	if (!key->name) {
		MUST(utf8_is_valid(token->unmatched, strlen(token->unmatched)), "claims that are no UTF-8");
		return;
	}
	MUST(key->name[0] != '\0' && strlen(key->name) <= ISSUER_TEXT_MAX &&
		     !utf8_has_control(key->name, strlen(key->name)),
	     "a name of %zu bytes", strlen(key->name));
	for (size_t i = 0; i < key->prefix_count; i++) {
		const char *bytes = key->prefixes[i].bytes;
		size_t len = key->prefixes[i].len, slashes = 0;
		MUST(!utf8_has_control(bytes, len), "a prefix of %zu bytes", len);
		for (size_t at = 0; at < len; at++)
			slashes += bytes[at] == '/';
		MUST(len == 0 || (slashes == (bytes[0] == 'p' && key->prefix_count == 2 ? 2 : 1) &&
				  bytes[len - 1] == '/' && !strstr(bytes, "/../") && strncmp(bytes, "../", 3) != 0),
		     "the prefix %s", bytes);
	}
}

/* ---- tokens ---- */

static size_t encode(const uint8_t *bytes, size_t len, char *at)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	size_t written = 0;
	for (size_t bit = 0; bit < 8 * len; bit += 6) {
		unsigned pair = (unsigned)bytes[bit / 8] << 8 | (bit / 8 + 1 < len ? bytes[bit / 8 + 1] : 0U);
		at[written++] = digits[pair >> (10 - bit % 8) & 63];
	}
	return written;
}

/* A token whose signature is that of the input, or of the right length; in any case wrong. */
static char *make_token(const uint8_t *data, size_t size, size_t *ret_len)
{
	const uint8_t *line = memchr(data, '\n', size), *end = data + size,
		      *more = line ? memchr(line + 1, '\n', (size_t)(end - line) - 1) : NULL;
	size_t header_len = line ? (size_t)(line - data) : size,
	       rest = line ? (size_t)((more ? more : end) - line) - 1 : 0;
	char *token = malloc(2 * size + SIGNATURE_LEN + 8);
	size_t len = encode(data, header_len, token);
	token[len++] = '.';
	len += encode(line ? line + 1 : data, rest, token + len);
	token[len++] = '.';
	size_t signature_len = more ? strnlen((const char *)more + 1, (size_t)(end - more) - 1) : SIGNATURE_LEN;
	memset(token + len, 'A', SIGNATURE_LEN);
	if (more)
		memcpy(token + len, more + 1, signature_len);
	*ret_len = len + signature_len;
	token[*ret_len] = '\0';
	return token;
}

/* True if the header has such a member, by another way than the code under test. */
static bool has_member(const uint8_t *data, size_t size, const char *name)
{
	const uint8_t *line = memchr(data, '\n', size);
	json_t *header = json_loadb((const char *)data, line ? (size_t)(line - data) : size, 0, NULL);
	bool has = json_object_get(header, name);
	json_decref(header);
	return has;
}

static void try_token(const struct keys *keys, const char *bytes, size_t len)
{
	struct token *token = NULL;
	enum token_refusal refusal = token_check(keys, bytes, len, NOW_S);
	MUST(refusal < TOKEN_REFUSALS, "refusal %d", (int)refusal);
	MUST(token_verify(keys, bytes, len, NOW_S, &token) != TOKEN_GOOD && !token, "a signature of nobody");
}

static void try_rules(const struct keys *keys, const char *bytes, size_t len)
{
	struct token *before = memory_zeroed(1, sizeof *before + len + 1), *token = NULL;
	before->len = len;
	memcpy(before->bytes, bytes, len);
	memcpy(before->signer, keys->issuers[0].jwks->keys[0].digest, KEY_HASH_LEN);
	if (token_review(keys, before, NOW_S, &token) == TOKEN_GOOD)
		check_token(token);
	token_unref(token);
	free(before);
}

static struct keys *make_keys(void)
{
	char message[KEYS_MESSAGE_MAX];
	struct keys *keys = keys_parse(file, sizeof file - 1, message, sizeof message);
	MUST(keys, "%s", message);
	keys->issuers[0].jwks = jwks_parse(set, sizeof set - 1, message, sizeof message);
	MUST(keys->issuers[0].jwks, "%s", message);
	return keys;
}

static void try_files(uint8_t kind, const uint8_t *data, size_t size)
{
	char message[KEYS_MESSAGE_MAX] = "", *text = fuzz_copy(data, size);
	struct jwks *jwks = kind == 'j' ? jwks_parse(text, size, message, sizeof message) : NULL;
	struct keys *keys = kind == 'k' ? keys_parse(text, size, message, sizeof message) : NULL;
	MUST((jwks || keys) == (message[0] == '\0') && !strchr(message, '\n'), "the message %s", message);
	MUST(!jwks || (jwks->count > 0 && !memmem(data, size, "\"oct\"", 5)), "%zu keys", jwks->count);
	jwks_free(jwks);
	keys_unref(keys);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0 || !strchr("jkrtv", data[0]) || data[0] == '\0')
		return 0;
	uint8_t kind = *data++;
	size--;
	if (kind == 'j' || kind == 'k') {
		try_files(kind, data, size);
		return 0;
	}
	struct keys *keys = make_keys();
	size_t len = size;
	char *token = kind == 'r' ? fuzz_text(data, size) : make_token(data, size, &len);
	if (kind == 'r')
		len = strlen(token);
	if (kind == 'v')
		try_rules(keys, token, len);
	else
		try_token(keys, token, len);
	if (kind == 't')
		MUST(!has_member(data, size, "crit") || token_check(keys, token, len, NOW_S) != TOKEN_GOOD, "crit");
	free(token);
	keys_unref(keys);
	return 0;
}
