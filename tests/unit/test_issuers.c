/* SPDX-License-Identifier: MIT */
/* `issuers` in the keys file, and sets of their public keys: what is taken, and the message for each mistake. */
#include "keys_world.h"

#define ISSUER "\"issuer\":\"i\",\"audience\":\"a\",\"jwks_file\":\"/f\""
#define RULE "{\"match\":{\"sub\":\"*\"},\"name\":\"{sub}\"" REST "}"
#define FILE_OF(issuers) "{\"issuers\":[" issuers "]}"
#define RULED(rule) FILE_OF("{" ISSUER ",\"callers\":[" rule "]}")
#define MATCHED(match) RULED("{\"match\":" match ",\"name\":\"n\"" REST "}")
#define NAMED(name) RULED("{\"match\":{\"sub\":\"*\"},\"name\":" name REST "}")
#define PREFIXED(prefix) \
	RULED("{\"match\":{\"sub\":\"*\"},\"name\":\"n\",\"prefixes\":[" prefix "],\"rights\":[\"list\"]}")
#define AT "issuers[0].callers[0]"
#define CLAIM_RULE                                                                                                  \
	"must name a claim: 1 to 256 bytes without control characters, where %2F stands for a slash within a name " \
	"and %25 for a percent sign"
#define BRACE_RULE "must have each claim in braces, as in \"{sub}\", and no other brace"
#define SLASH_RULE "must have a slash after each claim, as in \"{sub}/\", so that \"shop\" is not also \"shopping\""
#define NAME_RULE "must be a string of at most 256 bytes, not empty"
#define TEXT_RULE "must be a string of 1 to 256 bytes without control characters"

static const struct {
	const char *bytes;
	size_t len;
	const char *message; /* NULL: the file is good */
} files[] = {
	{S(RULED(RULE)), NULL},
	{S("{\"keys\":[" KEY("a", A) "],\"issuers\":[{" ISSUER ",\"callers\":[" RULE "]}]}"), NULL},
	{S(MATCHED("{\"kubernetes.io/namespace\":\"a**b\",\"x%2Fy%25\":\"*\"}")), NULL},
	{S(NAMED("\"github {repository}@{a/b%2Fc}\"")), NULL},
	{S(PREFIXED("\"\",\"plain\",\"{a}/{b}/x\"")), NULL},
	{S(RULED("{\"match\":{\"sub\":\"*\"},\"name\":\"n\",\"max_ttl_ms\":1,\"rate\":2,\"max_waiting\":3" REST "}")),
	 NULL},
	{S("{\"issuers\":[]}"), "issuers: must be a list of 1 to 16 issuers"},
	{S("{\"issuers\":{}}"), "issuers: must be a list of 1 to 16 issuers"},
	{S(FILE_OF("1")), "issuers[0]: must be a JSON object"},
	{S(FILE_OF("{}")), "issuers[0].issuer: is required"},
	{S(FILE_OF("{\"issuer\":\"i\"}")), "issuers[0].audience: is required"},
	{S(FILE_OF("{\"issuer\":\"i\",\"audience\":\"a\"}")), "issuers[0].jwks_file: is required"},
	{S(FILE_OF("{\"issuer\":\"\"}")), "issuers[0].issuer: " TEXT_RULE},
	{S(FILE_OF("{\"audience\":[\"a\"]}")), "issuers[0].audience: " TEXT_RULE},
	{S(FILE_OF("{\"jwks_file\":\"a\\n\"}")), "issuers[0].jwks_file: " TEXT_RULE},
	{S(FILE_OF("{\"jwks_uri\":\"a\"}")), "issuers[0]: has the unknown member \"jwks_uri\""},
	{S(FILE_OF("{" ISSUER "}")), "issuers[0].callers: must be a list of 1 to 256 rules"},
	{S(FILE_OF("{" ISSUER ",\"callers\":[]}")), "issuers[0].callers: must be a list of 1 to 256 rules"},
	{S(FILE_OF("{" ISSUER ",\"callers\":[" RULE "]},{" ISSUER ",\"callers\":[" RULE "]}")),
	 "issuers[1].issuer: is also that of issuers[0]"},
	{S(RULED("1")), AT ": must be a JSON object"},
	{S(RULED(RULE ",{}")), "issuers[0].callers[1].match: is required"},
	{S(RULED("{\"match\":{\"sub\":\"*\"}}")), AT ".name: is required"},
	{S(RULED("{\"match\":{\"sub\":\"*\"},\"name\":\"n\"}")), AT ".prefixes: is required"},
	{S(RULED("{\"match\":{\"sub\":\"*\"},\"name\":\"n\",\"prefixes\":[\"\"]}")), AT ".rights: is required"},
	{S(RULED("{\"match\":{\"sub\":\"*\"},\"name\":\"n\",\"sha256\":\"" A "\"" REST "}")),
	 AT ": has the unknown member \"sha256\""},
	{S(RULED("{\"match\":{\"sub\":\"*\"},\"name\":\"n\",\"rights\":[\"all\"]}")),
	 AT ".rights[0]: must be \"acquire\", \"inspect\", \"list\" or \"admin\""},
	{S(MATCHED("{}")), AT ".match: must be a JSON object with 1 to 16 claims"},
	{S(MATCHED("[]")), AT ".match: must be a JSON object with 1 to 16 claims"},
	{S(MATCHED("{\"sub\":1}")), AT ".match.sub: must be a string of 1 to 256 bytes"},
	{S(MATCHED("{\"sub\":[\"a\"]}")), AT ".match.sub: must be a string of 1 to 256 bytes"},
	{S(MATCHED("{\"sub\":\"\"}")), AT ".match.sub: must be a string of 1 to 256 bytes"},
	{S(MATCHED("{\"\":\"*\"}")), AT ".match: " CLAIM_RULE},
	{S(MATCHED("{\"a//b\":\"*\"}")), AT ".match: " CLAIM_RULE},
	{S(MATCHED("{\"/a\":\"*\"}")), AT ".match: " CLAIM_RULE},
	{S(MATCHED("{\"a/\":\"*\"}")), AT ".match: " CLAIM_RULE},
	{S(MATCHED("{\"a%2f\":\"*\"}")), AT ".match: " CLAIM_RULE},
	{S(MATCHED("{\"a%\":\"*\"}")), AT ".match: " CLAIM_RULE},
	{S(NAMED("\"\"")), AT ".name: " NAME_RULE},
	{S(NAMED("1")), AT ".name: " NAME_RULE},
	{S(NAMED("\"" R256 "a\"")), AT ".name: " NAME_RULE},
	{S(NAMED("\"a\\n\"")), AT ".name: must not have control characters"},
	{S(NAMED("\"{sub\"")), AT ".name: " BRACE_RULE},
	{S(NAMED("\"sub}\"")), AT ".name: " BRACE_RULE},
	{S(NAMED("\"{}\"")), AT ".name: " BRACE_RULE},
	{S(NAMED("\"{a{b}}\"")), AT ".name: " BRACE_RULE},
	{S(NAMED("\"{a//b}\"")), AT ".name: " BRACE_RULE},
	{S(PREFIXED("\"{sub}\"")), AT ".prefixes[0]: " SLASH_RULE},
	{S(PREFIXED("\"\",\"{sub}-{x}/\"")), AT ".prefixes[1]: " SLASH_RULE},
};

TEST_EACH(issuers_are_good_or_rejected_with_the_position, 0, COUNT(files))
{
	if (files[_i].message)
		bad(files[_i].bytes, files[_i].len, files[_i].message);
	else
		keys_unref(good(files[_i].bytes, files[_i].len));
}

/* ---- sets of keys; the values are those of RFC 7517 ---- */

#define N                                                                                                            \
	"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4" \
	"n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0" \
	"zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-c" \
	"sFCur-kEgU8awapJzKnqDKgw"
#define X "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4"
#define Y "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"
#define RSA(n, e, more) "{\"kty\":\"RSA\",\"n\":\"" n "\",\"e\":\"" e "\"" more "}"
#define EC(x, y, more) "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" x "\",\"y\":\"" y "\"" more "}"
#define SET(keys) "{\"keys\":[" keys "]}"
#define XY_RULE "must be a number of 32 bytes in base64url, with the zeros at its beginning"
#define N_RULE "must be a number of 2048 to 8192 bits in base64url"
#define E_RULE "must be an odd number of 2 to 32 bits in base64url"
#define NONE_RULE "keys: must have a key for signatures by RS256 or ES256"

static const struct {
	const char *bytes;
	size_t len;
	const char *message; /* NULL: the set is good */
} sets[] = {
	{S(SET(RSA(N, "AQAB", ",\"kid\":\"1\",\"use\":\"sig\",\"alg\":\"RS256\",\"x5c\":[]"))), NULL},
	{S(SET(EC(X, Y, ""))), NULL},
	{S(SET(RSA(N, "AQAB", ",\"kid\":\"1\"") "," EC(X, Y, ",\"kid\":\"1\"") "," RSA(N, "AQAB", ""))), NULL},
	{S(SET("{\"kty\":\"OKP\"},{\"kty\":\"EC\",\"crv\":\"P-384\"}," RSA(N, "AQAB", ""))), NULL},
	{S("{\"keys\":[" EC(X, Y, "") "],\"more\":1}"), NULL},
	{S(""), "line 1, column 0: not valid JSON"},
	{S("[]"), "keys: must be a list of 1 to 64 keys"},
	{S(SET("")), "keys: must be a list of 1 to 64 keys"},
	{S(SET("1")), "keys[0]: must be a JSON object"},
	{S(SET("{}")), "keys[0].kty: must be a string"},
	{S(SET("{\"kty\":\"OKP\"}")), NONE_RULE},
	{S(SET(RSA(N, "AQAB", ",\"use\":\"enc\""))), NONE_RULE},
	{S(SET(RSA(N, "AQAB", ",\"alg\":\"RS512\""))), NONE_RULE},
	{S(SET("{\"kty\":\"oct\",\"k\":\"AAAA\"}")),
	 "keys[0].kty: must not be \"oct\": a shared secret does not belong here"},
	{S(SET(EC(X, Y, ",\"d\":\"AAAA\""))), "keys[0].d: must not be there: a private key does not belong here"},
	{S(SET(RSA("AQAB", "AQAB", ""))), "keys[0].n: " N_RULE},
	{S(SET("{\"kty\":\"RSA\",\"e\":\"AQAB\"}")), "keys[0].n: " N_RULE},
	{S(SET(RSA("!!!!", "AQAB", ""))), "keys[0].n: " N_RULE},
	{S(SET(RSA(N, "AQABAQAB", ""))), "keys[0].e: " E_RULE},
	{S(SET(RSA(N, "", ""))), "keys[0].e: " E_RULE},
	{S(SET(RSA(N, "AQ", ""))), "keys[0].e: " E_RULE}, /* 1: everybody can sign */
	{S(SET(RSA(N, "AAAB", ""))), "keys[0].e: " E_RULE},
	{S(SET(RSA(N, "AQAA", ""))), "keys[0].e: " E_RULE}, /* 65536 */
	{S(SET(RSA(N, "Aw", ""))), NULL},
	{S(SET(EC("AAAA", Y, ""))), "keys[0].x: " XY_RULE},
	{S(SET(EC(X, X Y, ""))), "keys[0].y: " XY_RULE},
	{S(SET(EC(X, X, ""))), "keys[0]: is not a public key"}, /* no point of the curve */
	{S(SET(EC(X, Y, ",\"kid\":1"))), "keys[0].kid: must be a string of 1 to 256 bytes"},
	{S(SET(EC(X, Y, ",\"kid\":\"1\"") "," EC(X, Y, ",\"kid\":\"1\""))), "keys[1].kid: is that of another key, too"},
};

TEST_EACH(sets_of_keys_are_good_or_rejected_with_the_position, 0, COUNT(sets))
{
	message[0] = '\0';
	struct jwks *jwks = jwks_parse(sets[_i].bytes, sets[_i].len, message, sizeof message);
	ck_assert_msg((jwks == NULL) == (sets[_i].message != NULL), "%s", message);
	ck_assert_str_eq(message, sets[_i].message ? sets[_i].message : "");
	jwks_free(jwks);
}

/* Over HTTP the bound of all headers comes first. */
TEST(a_token_has_at_most_8192_bytes)
{
	struct keys *keys = good(S(RULED(RULE)));
	char token[TOKEN_MAX + 1];
	memset(token, 'a', sizeof token);
	token[4] = token[8] = '.';
	ck_assert_int_eq(token_check(keys, token, TOKEN_MAX, 1), TOKEN_MALFORMED);
	ck_assert_int_eq(token_check(keys, token, TOKEN_MAX + 1, 1), TOKEN_TOO_LARGE);
	ck_assert_str_eq(token_reason(TOKEN_TOO_LARGE), "The token is larger than 8192 bytes.");
	keys_unref(keys);
}
