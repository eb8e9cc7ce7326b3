/* The keys file: what is refused and with which words, who is found, what a prefix covers, what lives on over a
 * reload. */
#include <check.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/auth/keys_internal.h"
#include "server/base/text.h"

#define S(literal) literal, sizeof(literal) - 1
/* Four hashes. */
#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
#define D "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"
#define REST ",\"prefixes\":[\"\"],\"rights\":[\"list\"]"
#define KEY(name, hash) "{\"name\":\"" name "\",\"sha256\":\"" hash "\"" REST "}"
#define ONE(members) "{\"keys\":[{" members "}]}"
#define WITH(members) ONE("\"name\":\"a\",\"sha256\":\"" A "\"" REST "," members)
#define NAMED(member) ONE("\"name\":" member ",\"sha256\":\"" A "\"" REST)
#define HASHED(member) ONE("\"name\":\"a\",\"sha256\":" member REST)
#define CERTIFIED(member) ONE("\"name\":\"a\",\"certificates\":" member REST)
#define PREFIXED(member) ONE("\"name\":\"a\",\"sha256\":\"" A "\",\"rights\":[\"list\"],\"prefixes\":" member)
#define ALLOWED(member) ONE("\"name\":\"a\",\"sha256\":\"" A "\",\"prefixes\":[\"\"],\"rights\":" member)
#define R16 "aaaaaaaaaaaaaaaa"
#define R64 R16 R16 R16 R16
#define R256 R64 R64 R64 R64

#define NAME_RULE "keys[0].name: must be a string of 1 to 64 letters, digits, full stops, underscores and hyphens"
#define HASH_RULE "must be a string of 64 hexadecimal digits"
#define CERTIFICATE_RULE "must be a string of 1 to 1024 bytes without control characters"
#define PREFIX_RULE "must be a string of at most 256 bytes without control characters"
#define RIGHT_RULE "must be \"acquire\", \"inspect\", \"list\" or \"admin\""
#define WHOLE_RULE "line 1: must be a JSON object with the one member \"keys\""

static const struct {
	const char *bytes;
	size_t len;
	const char *message; /* NULL: the file is good */
} files[] = {
	/* good */
	{S("{\"keys\":[]}"), NULL},
	{S("{\"keys\":[" KEY("a", A) "]}\n"), NULL},
	{S("{\"keys\":[" KEY("a", A) "," KEY("A", B) "]}"), NULL},
	{S(HASHED("\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"")), NULL},
	{S(HASHED("[\"" A "\",\"" B "\",\"" C "\",\"" D "\"]")), NULL},
	{S(CERTIFIED("\"spiffe://x/a b\"")), NULL},
	{S(CERTIFIED("[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\"]")), NULL},
	{S(CERTIFIED("\"c\",\"sha256\":\"" A "\"")), NULL},
	{S(NAMED("\"" R64 "\"")), NULL},
	{S(NAMED("\"._-\"")), NULL},
	{S(PREFIXED("[\"" R256 "\",\"\",\"\xc3\xa9\",\"e\xcc\x81\",\"a\",\"a\"]")), NULL},
	{S(ALLOWED("[\"admin\",\"list\",\"inspect\",\"acquire\"]")), NULL},
	{S(WITH("\"max_ttl_ms\":1,\"rate\":1,\"max_waiting\":1")), NULL},
	{S(WITH("\"max_ttl_ms\":86400000,\"rate\":1000000,\"max_waiting\":1000000")), NULL},
	/* not the right kind of file */
	{S(""), "line 1, column 0: not valid JSON"},
	{S(" "), "line 1, column 1: not valid JSON"},
	{S("keys: []\n"), "line 1, column 4: not valid JSON"},
	{S("[]"), WHOLE_RULE},
	{S("{}"), WHOLE_RULE},
	{S("{\"Keys\":[]}"), WHOLE_RULE},
	{S("{\"keys\":[],\"version\":1}"), WHOLE_RULE},
	{S("{\"keys\":{}}"), "keys: must be a list"},
	{S("{\"keys\":null}"), "keys: must be a list"},
	{S("{\"keys\":[]"), "line 1, column 10: not valid JSON"},
	{S("{\"keys\":[\n" KEY("a", A) ",\n]}"), "line 3, column 1: not valid JSON"},
	{S("{\"keys\":[]}\n{}"), "line 2, column 1: text after the end of the object"},
	{S("{\"keys\":[]}\0"), "line 1, column 12: text after the end of the object"},
	{S("{\"keys\":[],\n\"keys\":[]}"), "line 2, column 6: a member is given twice"},
	{S("\xef\xbb\xbf{\"keys\":[]}"), "line 1, column 1: not valid JSON"},
	{S("{\"keys\":[] // none\n}"), "line 1, column 12: not valid JSON"},
	{S(WITH("\"rate\":99999999999999999999")), "line 1, column 158: a number that is too large"},
	/* keys */
	{S("{\"keys\":[1]}"), "keys[0]: must be a JSON object"},
	{S("{\"keys\":[" KEY("a", A) ",[]]}"), "keys[1]: must be a JSON object"},
	{S("{\"keys\":[" KEY("a", A) ",{}]}"), "keys[1].name: is required"},
	{S("{\"keys\":[" KEY("a", A) "," KEY("a", B) "]}"), "keys[1].name: is that of keys[0] too"},
	{S("{\"keys\":[" KEY("a", A) "," KEY("b", A) "]}"), "keys[1].sha256: is in the file already"},
	{S(WITH("\"enabled\":true")), "keys[0]: has a member \"enabled\", which there is not"},
	{S(WITH("\"Rights\":[\"admin\"]")), "keys[0]: has a member \"Rights\", which there is not"},
	{S(WITH("\"" A "\":true")), "keys[0]: has a member that there is not"},
	{S(WITH("\"\":true")), "keys[0]: has a member that there is not"},
	{S(WITH("\"\\n\":true")), "keys[0]: has a member that there is not"},
	{S(WITH("\"x\":1,\"x\":1")), "line 1, column 140: a member is given twice"},
	{S(WITH("\"x\\u0000\":1")), "line 1, column 140: NUL is not allowed"},
	{S(WITH("\"rate\":1,\"rate\":1")), "line 1, column 146: a member is given twice"},
	{S(ONE("\"name\":\"a\"" REST)), "keys[0]: needs \"sha256\" or \"certificates\""},
	/* name */
	{S(ONE("\"sha256\":\"" A "\"" REST)), "keys[0].name: is required"},
	{S(NAMED("1")), NAME_RULE},
	{S(NAMED("null")), NAME_RULE},
	{S(NAMED("[\"a\"]")), NAME_RULE},
	{S(NAMED("\"\"")), NAME_RULE},
	{S(NAMED("\"" R64 "a\"")), NAME_RULE},
	{S(NAMED("\"a b\"")), NAME_RULE},
	{S(NAMED("\"a\\n\"")), NAME_RULE},
	{S(NAMED("\"a/b\"")), NAME_RULE},
	{S(NAMED("\"\xc3\xa9\"")), NAME_RULE},
	{S(NAMED("\"a\\u0000\"")), "line 1, column 26: NUL is not allowed"},
	/* sha256 */
	{S(HASHED("1")), "keys[0].sha256: must be a string or a list of strings"},
	{S(HASHED("null")), "keys[0].sha256: must be a string or a list of strings"},
	{S(HASHED("{}")), "keys[0].sha256: must be a string or a list of strings"},
	{S(HASHED("\"\"")), "keys[0].sha256: " HASH_RULE},
	{S(HASHED("\"rlk_" R16 R16 "aaaaaaaaaaa\"")), "keys[0].sha256: " HASH_RULE},
	{S(HASHED("\"" A "a\"")), "keys[0].sha256: " HASH_RULE},
	{S(HASHED("\" " R16 R16 R16 "aaaaaaaaaaaaaaa\"")), "keys[0].sha256: " HASH_RULE},
	{S(HASHED("\"g" R16 R16 R16 "aaaaaaaaaaaaaaa\"")), "keys[0].sha256: " HASH_RULE},
	{S(HASHED("\"0x" R16 R16 R16 "aaaaaaaaaaaaaa\"")), "keys[0].sha256: " HASH_RULE},
	{S(HASHED("[]")), "keys[0].sha256: must have 1 to 4 items"},
	{S(HASHED("[\"" A "\",\"" B "\",\"" C "\",\"" D "\",\"e" R16 R16 R16 "aaaaaaaaaaaaaaa\"]")),
	 "keys[0].sha256: must have 1 to 4 items"},
	{S(HASHED("[\"" A "\",1]")), "keys[0].sha256[1]: " HASH_RULE},
	{S(HASHED("[\"" A "\",[\"" B "\"]]")), "keys[0].sha256[1]: " HASH_RULE},
	{S(HASHED("[\"" A "\",\"" A "\"]")), "keys[0].sha256[1]: is in the file already"},
	{S(HASHED("[\"" A "\",\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"]")),
	 "keys[0].sha256[1]: is in the file already"},
	/* certificates */
	{S(CERTIFIED("1")), "keys[0].certificates: must be a string or a list of strings"},
	{S(CERTIFIED("\"\"")), "keys[0].certificates: " CERTIFICATE_RULE},
	{S(CERTIFIED("\"" R256 R256 R256 R256 "\"")), NULL},
	{S(CERTIFIED("\"" R256 R256 R256 R256 "a\"")), "keys[0].certificates: " CERTIFICATE_RULE},
	{S(CERTIFIED("[]")), "keys[0].certificates: must have 1 to 8 items"},
	{S(CERTIFIED("[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]")),
	 "keys[0].certificates: must have 1 to 8 items"},
	{S(CERTIFIED("[\"a\",\"b\\u0085\"]")), "keys[0].certificates[1]: " CERTIFICATE_RULE},
	{S(CERTIFIED("[\"a\",\"b\",\"a\"]")), "keys[0].certificates[2]: is in the file already"},
	/* prefixes */
	{S(ONE("\"name\":\"a\",\"sha256\":\"" A "\",\"rights\":[\"list\"]")),
	 "keys[0].prefixes: is required (\"\" stands for every resource)"},
	{S(PREFIXED("[]")), "keys[0].prefixes: must be a list of 1 to 64 strings"},
	{S(PREFIXED("\"orders/\"")), "keys[0].prefixes: must be a list of 1 to 64 strings"},
	{S(PREFIXED("null")), "keys[0].prefixes: must be a list of 1 to 64 strings"},
	{S(PREFIXED("{\"a\":1}")), "keys[0].prefixes: must be a list of 1 to 64 strings"},
	{S(PREFIXED("[\"a\",1]")), "keys[0].prefixes[1]: " PREFIX_RULE},
	{S(PREFIXED("[\"a\",null]")), "keys[0].prefixes[1]: " PREFIX_RULE},
	{S(PREFIXED("[\"" R256 "a\"]")), "keys[0].prefixes[0]: " PREFIX_RULE},
	{S(PREFIXED("[\"a\\u007f\"]")), "keys[0].prefixes[0]: " PREFIX_RULE},
	{S(PREFIXED("[\"a\\u0000\"]")), "line 1, column 136: NUL is not allowed"},
	{S(PREFIXED("[\"\xc3\"]")), "line 1, column 128: not valid UTF-8"}, /* ends within a sequence */
	{S(PREFIXED("[\"\xe2\x82\"]")), "line 1, column 128: not valid UTF-8"},
	{S(PREFIXED("[\"\xc0\xaf\"]")), "line 1, column 128: not valid UTF-8"},
	{S(PREFIXED("[\"\xed\xa0\x80\"]")), "line 1, column 128: not valid UTF-8"},
	{S(PREFIXED("[\"\\ud83d\"]")), "line 1, column 135: not valid JSON"},
	/* rights */
	{S(ONE("\"name\":\"a\",\"sha256\":\"" A "\",\"prefixes\":[\"\"]")), "keys[0].rights: is required"},
	{S(ALLOWED("[]")), "keys[0].rights: must be a list with at least one right"},
	{S(ALLOWED("\"admin\"")), "keys[0].rights: must be a list with at least one right"},
	{S(ALLOWED("[\"acquire\",\"Admin\"]")), "keys[0].rights[1]: " RIGHT_RULE},
	{S(ALLOWED("[\"\"]")), "keys[0].rights[0]: " RIGHT_RULE},
	{S(ALLOWED("[\"*\"]")), "keys[0].rights[0]: " RIGHT_RULE},
	{S(ALLOWED("[15]")), "keys[0].rights[0]: " RIGHT_RULE},
	{S(ALLOWED("[\"list\",\"admin\",\"list\"]")), "keys[0].rights[2]: is given twice"},
	/* bounds */
	{S(WITH("\"max_ttl_ms\":0")), "keys[0].max_ttl_ms: must be a whole number from 1 to 86400000"},
	{S(WITH("\"max_ttl_ms\":86400001")), "keys[0].max_ttl_ms: must be a whole number from 1 to 86400000"},
	{S(WITH("\"max_ttl_ms\":\"60000\"")), "keys[0].max_ttl_ms: must be a whole number from 1 to 86400000"},
	{S(WITH("\"max_ttl_ms\":null")), "keys[0].max_ttl_ms: must be a whole number from 1 to 86400000"},
	/* 1 in 32 bits */
	{S(WITH("\"max_ttl_ms\":4294967297")), "keys[0].max_ttl_ms: must be a whole number from 1 to 86400000"},
	{S(WITH("\"rate\":0")), "keys[0].rate: must be a whole number from 1 to 1000000"},
	{S(WITH("\"rate\":-1")), "keys[0].rate: must be a whole number from 1 to 1000000"},
	{S(WITH("\"rate\":1.0")), "keys[0].rate: must be a whole number from 1 to 1000000"},
	{S(WITH("\"rate\":1000001")), "keys[0].rate: must be a whole number from 1 to 1000000"},
	{S(WITH("\"max_waiting\":0")), "keys[0].max_waiting: must be a whole number from 1 to 1000000"},
	{S(WITH("\"max_waiting\":true")), "keys[0].max_waiting: must be a whole number from 1 to 1000000"},
	{S(WITH("\"max_waiting\":1000001")), "keys[0].max_waiting: must be a whole number from 1 to 1000000"},
};

static char message[KEYS_MESSAGE_MAX];

/* A good file, or the test fails. */
static struct keys *good(const char *bytes, size_t len)
{
	message[0] = '\0';
	struct keys *keys = keys_parse(bytes, len, message, sizeof(message));
	ck_assert_msg(keys != NULL, "%s", message);
	ck_assert_str_eq(message, "");
	return keys;
}

static void bad(const char *bytes, size_t len, const char *expected)
{
	struct keys *keys = keys_parse(bytes, len, message, sizeof(message));
	ck_assert_msg(keys == NULL, "taken: %.*s", (int)len, bytes);
	ck_assert_msg(strcmp(message, expected) == 0, "%s\ninstead of %s\nfor %.*s", message, expected, (int)len,
		      bytes);
}

START_TEST(files_are_taken_or_refused_with_the_place)
{
	if (files[_i].message != NULL)
		bad(files[_i].bytes, files[_i].len, files[_i].message);
	else
		keys_unref(good(files[_i].bytes, files[_i].len));
}
END_TEST

START_TEST(no_message_holds_a_hash_or_a_key)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (files[i].message != NULL) {
			ck_assert_ptr_null(keys_parse(files[i].bytes, files[i].len, message, sizeof(message)));
			ck_assert_ptr_null(strstr(message, "aaaaaaaa"));
			ck_assert_ptr_null(strstr(message, "AAAAAAAA"));
			ck_assert_ptr_null(strstr(message, "rlk_"));
		}
}
END_TEST

START_TEST(what_the_file_says_is_there)
{
	struct keys *keys = good(S("{\"keys\":[{\"rights\":[\"list\",\"acquire\"],\"prefixes\":[\"orders/"
				   "\",\"\xc3\xa9\"],\"max_ttl_ms\":60000,\"rate\":100,"
				   "\"max_waiting\":50,\"certificates\":\"billing.example\",\"sha256\":[\"" A
				   "\",\"0123456789abcdef" R16 R16 R16 "\"],\"name\":\"billing\"}," KEY("b", B) "]}"));

	ck_assert_uint_eq(keys_count(keys), 2);
	const struct key *key = &keys->keys[0];
	ck_assert_str_eq(key->name, "billing");
	ck_assert_uint_eq(key->rights, KEY_LIST | KEY_ACQUIRE);
	ck_assert_uint_eq(key->max_ttl_ms, 60000);
	ck_assert_uint_eq(key->rate, 100);
	ck_assert_uint_eq(key->max_waiting, 50);
	ck_assert_uint_eq(key->prefix_count, 2);
	ck_assert_str_eq(key->prefixes[0].bytes, "orders/");
	ck_assert_uint_eq(key->prefixes[1].len, 2);
	ck_assert_uint_eq(key->hash_count, 2);
	ck_assert_mem_eq(key->hashes[1], "\x01\x23\x45\x67\x89\xab\xcd\xef\xaa\xaa", 10);
	ck_assert_uint_eq(key->certificate_count, 1);
	ck_assert_str_eq(key->certificates[0], "billing.example");
	ck_assert_str_eq(key->usage->name, "billing");
	const struct key *other = &keys->keys[1];
	ck_assert_uint_eq(other->max_ttl_ms + other->rate + other->max_waiting, 0); /* no bounds */
	ck_assert_ptr_ne(key->usage, other->usage);
	keys_unref(keys);
}
END_TEST

/* ---- how many ---- */

/* A file of `count` keys; the hash of each begins with its number. */
static void write_keys(struct text *text, size_t count)
{
	text_init(text);
	text_printf(text, "{\"keys\":[");
	for (size_t i = 0; i < count; i++)
		text_printf(text,
			    "%s{\"name\":\"key-%zu\",\"sha256\":\"%016zx" R16 R16 R16
			    "\",\"certificates\":[\"c%zu\"]" REST "}",
			    i > 0 ? "," : "", i, i, i);
	text_printf(text, "]}");
	ck_assert(!text->failed);
}

START_TEST(so_many_keys_and_no_more)
{
	struct text text;

	write_keys(&text, KEYS_MAX);
	struct keys *keys = good(text.bytes, text.len);
	ck_assert_uint_eq(keys_count(keys), KEYS_MAX);
	static const char *const names[] = {"nobody", "c999", "c0"};
	ck_assert_str_eq(keys_find_certificate(keys, names, 3)->name, "key-999"); /* in the order of the certificate */
	keys_unref(keys);
	text_fini(&text);
	write_keys(&text, KEYS_MAX + 1);
	bad(text.bytes, text.len, "keys: must have at most 1000 items");
	text_fini(&text);
}
END_TEST

START_TEST(so_many_prefixes_and_no_more)
{
	struct text text;

	for (size_t count = KEY_PREFIXES_MAX; count <= KEY_PREFIXES_MAX + 1; count++) {
		text_init(&text);
		text_printf(&text,
			    "{\"keys\":[{\"name\":\"a\",\"sha256\":\"" A "\",\"rights\":[\"list\"],\"prefixes\":[");
		for (size_t i = 0; i < count; i++)
			text_printf(&text, "%s\"%zu/\"", i > 0 ? "," : "", i);
		text_printf(&text, "]}]}");
		if (count <= KEY_PREFIXES_MAX) {
			struct keys *keys = good(text.bytes, text.len);
			ck_assert(key_allows_prefix(&keys->keys[0], S("63/x")));
			ck_assert(!key_allows_prefix(&keys->keys[0], S("64/x")));
			keys_unref(keys);
		} else {
			bad(text.bytes, text.len, "keys[0].prefixes: must be a list of 1 to 64 strings");
		}
		text_fini(&text);
	}
}
END_TEST

START_TEST(deep_nesting_is_no_trouble)
{
	struct text text;

	text_init(&text);
	while (text.len < KEYS_FILE_MAX - 1)
		text_append(&text, "[", 1);
	bad(text.bytes, text.len, "line 1, column 2049: nested too deeply");
	text_fini(&text);
}
END_TEST

/* ---- finding ---- */

#define SECRET "correct-horse-battery"

static void append_hash(struct text *text, const char *secret, size_t len)
{
	unsigned char hash[KEY_HASH_LEN];

	ck_assert_int_eq(gnutls_hash_fast(GNUTLS_DIG_SHA256, secret, len, hash), 0);
	for (size_t i = 0; i < KEY_HASH_LEN; i++)
		text_printf(text, "%02x", hash[i]);
}

/* One key whose text is `secret`, after `before`, which ends with a comma or is empty. */
static struct keys *keys_with(const char *before, const char *secret, size_t len)
{
	struct text text;

	text_init(&text);
	text_printf(&text, "{\"keys\":[%s{\"name\":\"mine\",\"sha256\":\"", before);
	append_hash(&text, secret, len);
	text_printf(&text, "\"" REST "}]}");
	struct keys *keys = good(text.bytes, text.len);
	text_fini(&text);
	return keys;
}

static unsigned char its_hash[KEY_HASH_LEN]; /* of what was looked for last */

START_TEST(a_key_is_found_by_its_hash)
{
	/* known from elsewhere: printf %s abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq | sha256sum (FIPS
	 * 180) */
	static const char known[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	struct keys *keys = good(S("{\"keys\":[" KEY("a", A) "," KEY(
		"k", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1") "," KEY("b", B) "]}"));

	ck_assert_str_eq(keys_find(keys, known, strlen(known), its_hash)->name, "k");
	ck_assert_str_eq(keys_find_hash(keys, its_hash)->name, "k");
	its_hash[31] ^= 1;
	ck_assert_ptr_null(keys_find_hash(keys, its_hash));
	ck_assert_ptr_null(keys_find(keys, known, strlen(known) - 1, its_hash));
	ck_assert_ptr_null(keys_find(keys, S(A), its_hash)); /* the hash is not the key */
	ck_assert_ptr_null(keys_find(keys, S(""), its_hash));
	keys_unref(keys);
	keys = good(S("{\"keys\":[]}"));
	ck_assert_ptr_null(keys_find(keys, known, strlen(known), its_hash));
	keys_unref(keys);
}
END_TEST

START_TEST(every_bit_of_the_hash_counts)
{
	struct keys *keys = keys_with("", S(SECRET));

	for (size_t bit = 0; bit < 8 * KEY_HASH_LEN; bit++) {
		unsigned char *byte = &keys->keys[0].hashes[0][bit / 8];
		*byte ^= (unsigned char)(1 << bit % 8);
		ck_assert_ptr_null(keys_find(keys, S(SECRET), its_hash));
		*byte ^= (unsigned char)(1 << bit % 8);
	}
	ck_assert_ptr_eq(keys_find(keys, S(SECRET), its_hash), &keys->keys[0]);
	keys_unref(keys);
}
END_TEST

START_TEST(each_of_its_hashes_will_do)
{
	static const char *secrets[] = {"first-key-of-four", "second-key-of-four", "third-key-of-four",
					"fourth-key-of-four"};
	struct text text;

	text_init(&text);
	text_printf(&text, "{\"keys\":[" KEY("a", A) ",{\"name\":\"mine\",\"sha256\":[\"");
	for (int i = 0; i < 4; i++) {
		text_printf(&text, i > 0 ? "\",\"" : "");
		append_hash(&text, secrets[i], strlen(secrets[i]));
	}
	text_printf(&text, "\"]" REST "}]}");
	struct keys *keys = good(text.bytes, text.len);
	for (int i = 0; i < 4; i++)
		ck_assert_str_eq(keys_find(keys, secrets[i], strlen(secrets[i]), its_hash)->name, "mine");
	keys_unref(keys);
	text_fini(&text);
}
END_TEST

static const struct {
	const char *secret;
	size_t len;
	bool is_key;
} secrets[] = {
	{S("0123456789abcdef"), true},
	{S("0123456789abcde"), false}, /* 15 */
	{S(R256), true},
	{S(R256 "a"), false},
	{S("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), true},
	{S("0123456789 abcdef"), false},
	{S("0123456789abcdef\n"), false},
	{S("0123456789abcde\x7f"), false},
	{S("0123456789abcd\xc3\xa9"), false},
	{S("0123456789abcdef\0"), false},
};

START_TEST(a_key_is_visible_ascii_whatever_its_hash)
{
	struct keys *keys = keys_with("", secrets[_i].secret, secrets[_i].len);

	ck_assert_int_eq(keys_find(keys, secrets[_i].secret, secrets[_i].len, its_hash) != NULL, secrets[_i].is_key);
	keys_unref(keys);
}
END_TEST

START_TEST(a_certificate_is_found_by_its_names)
{
	struct keys *keys = good(S("{\"keys\":[{\"name\":\"a\",\"certificates\":[\"a.example\",\"spiffe://x/a\"]" REST
				   "},"
				   "{\"name\":\"b\",\"certificates\":\"b.example\"" REST "}," KEY("c", C) "]}"));
	static const char *const both[] = {"b.example", "a.example"}, *const second[] = {"z", "spiffe://x/a"};
	static const char *const none[] = {"A.example", "a.example.", "a", "", "spiffe://x/a/", "c", A};

	ck_assert_str_eq(keys_find_certificate(keys, both, 2)->name, "b");
	ck_assert_str_eq(keys_find_certificate(keys, both + 1, 1)->name, "a");
	ck_assert_str_eq(keys_find_certificate(keys, second, 2)->name, "a");
	ck_assert_ptr_null(keys_find_certificate(keys, none, sizeof(none) / sizeof(none[0])));
	ck_assert_ptr_null(keys_find_certificate(keys, NULL, 0));
	keys_unref(keys);
}
END_TEST

/* ---- prefixes ---- */

static const struct {
	const char *prefixes, *bytes;
	size_t len;
	bool allowed;
} covers[] = {
	{"\"orders/\"", S("orders/42"), true},
	{"\"orders/\"", S("orders/"), true},
	{"\"orders/\"", S("orders"), false},
	{"\"orders/\"", S("orders2/42"), false},
	{"\"orders/\"", S("Orders/42"), false},
	{"\"orders/\"", S(" orders/42"), false},
	{"\"orders/\"", S("a/orders/42"), false},
	{"\"orders/\"", S(""), false},
	{"\"orders\"", S("orders2"), true}, /* bytes, not parts of a path */
	{"\"orders\"", S("order"), false},
	{"\"\"", S(""), true},
	{"\"\"", S("anything"), true},
	{"\"a/\",\"b/\"", S("b/x"), true},
	{"\"a/\",\"b/\"", S("c/x"), false},
	{"\"\xc3\xa9\"", S("\xc3\xa9t\xc3\xa9"), true},
	{"\"\xc3\xa9\"", S("e\xcc\x81t\xc3\xa9"), false}, /* looks the same */
	{"\"e\xcc\x81\"", S("\xc3\xa9t\xc3\xa9"), false},
	{"\"e\xcc\x81\"", S("e\xcc\x81t\xc3\xa9"), true},
	{"\"e\"", S("e\xcc\x81"), true},
	{"\"\\u00e9\"", S("\xc3\xa9"), true},
	{"\"\xc3\xa9\"", S("\xc3"), false},
	{"\"\xc3\xa9\"", S("\xc3\xa8"), false},
	{"\"orders%2F\"", S("orders/42"), false},
	{"\"orders/\"", S("orders%2F42"), false},
	{"\"orders/\"", S("orders/../billing"), true}, /* a name is a name: nobody resolves it */
	{"\"orders/\"", S("orders\0/"), false},
};

START_TEST(a_prefix_covers_whole_bytes)
{
	struct text text;

	text_init(&text);
	text_printf(&text, "{\"keys\":[{\"name\":\"a\",\"sha256\":\"" A "\",\"rights\":[\"list\"],\"prefixes\":[%s]}]}",
		    covers[_i].prefixes);
	struct keys *keys = good(text.bytes, text.len);
	ck_assert_int_eq(key_allows_prefix(&keys->keys[0], covers[_i].bytes, covers[_i].len), covers[_i].allowed);
	keys_unref(keys);
	text_fini(&text);
}
END_TEST

/* ---- usage ---- */

#define WAITERS(name, hash, count) "{\"name\":\"" name "\",\"sha256\":\"" hash "\",\"max_waiting\":" count REST "}"

START_TEST(usage_lives_on_over_a_reload)
{
	uint32_t retry_ms = 0;
	struct keys *old = good(S("{\"keys\":[" WAITERS("a", A, "2") "," WAITERS("b", B, "2") "]}"));
	ck_assert(key_wait_begin(&old->keys[0]));
	ck_assert(rate_take(&old->keys[0].usage->rate, 1, 1000000, &retry_ms));
	/* the other way round, another hash, another bound: the name counts */
	struct keys *new = good(S("{\"keys\":[" WAITERS("b", D, "1") "," WAITERS("a", C, "3") "]}"));
	ck_assert_ptr_eq(new->keys[1].usage, old->keys[0].usage);
	ck_assert_ptr_eq(new->keys[0].usage, old->keys[1].usage);
	ck_assert(!rate_take(&new->keys[1].usage->rate, 1, 1000000, &retry_ms));
	ck_assert(key_wait_begin(&new->keys[1]));
	ck_assert(key_wait_begin(&new->keys[1]));
	ck_assert(!key_wait_begin(&new->keys[1]));
	ck_assert(!key_wait_begin(&old->keys[0]));
	key_wait_end(&old->keys[0]); /* who began under the old file ends under it */
	keys_unref(old);
	ck_assert(key_wait_begin(&new->keys[1]));
	ck_assert(!key_wait_begin(&new->keys[1]));
	for (int i = 0; i < 3; i++)
		key_wait_end(&new->keys[1]);
	keys_unref(new);
}
END_TEST

START_TEST(a_file_that_is_refused_changes_nothing)
{
	struct keys *old = good(S("{\"keys\":[" WAITERS("a", A, "1") "]}"));

	ck_assert(key_wait_begin(&old->keys[0]));
	bad(S("{\"keys\":[" WAITERS("a", A, "1") "," WAITERS("b", B, "1") ",{}]}"), "keys[2].name: is required");
	ck_assert(!key_wait_begin(&old->keys[0]));
	ck_assert_uint_eq(old->keys[0].usage->references, 1);
	key_wait_end(&old->keys[0]);
	keys_unref(old);
}
END_TEST

START_TEST(without_a_bound_all_may_wait)
{
	struct keys *keys = good(S("{\"keys\":[" KEY("a", A) "]}"));

	for (int i = 0; i < 10000; i++)
		ck_assert(key_wait_begin(&keys->keys[0]));
	for (int i = 0; i < 10000; i++)
		key_wait_end(&keys->keys[0]);
	keys_unref(keys);
}
END_TEST

START_TEST(references_keep_them)
{
	struct keys *keys = keys_with("", S(SECRET));

	ck_assert_ptr_eq(keys_ref(keys), keys);
	keys_unref(keys);
	ck_assert_ptr_nonnull(keys_find(keys, S(SECRET), its_hash));
	keys_unref(keys);
	keys_unref(NULL);
}
END_TEST

/* ---- threads: some find while one reloads ---- */

enum { FINDERS = 3, RELOADS = 300, WAITERS_MAX = 2 };

static struct {
	pthread_mutex_t lock; /* as those who share the pointer have one */
	struct keys *keys;
	atomic_bool end;
	atomic_uint found, waiting, refused;
} shared;

static struct keys *shared_ref(void)
{
	pthread_mutex_lock(&shared.lock);
	struct keys *keys = keys_ref(shared.keys);
	pthread_mutex_unlock(&shared.lock);
	return keys;
}

static void *find_often(void *unused)
{
	unsigned char found[KEY_HASH_LEN];
	(void)unused;
	while (!atomic_load(&shared.end)) {
		struct keys *keys = shared_ref();
		const struct key *key = keys_find(keys, S(SECRET), found);
		uint32_t retry_ms;
		ck_assert(key != NULL && strcmp(key->name, "mine") == 0 && key_allows_prefix(key, S("x")));
		if (!rate_take(&key->usage->rate, KEY_RATE_MAX, 1000000, &retry_ms))
			atomic_fetch_add(&shared.refused, 1);
		if (key_wait_begin(key)) {
			unsigned waiting = atomic_fetch_add(&shared.waiting, 1);
			ck_assert_uint_lt(waiting, WAITERS_MAX);
			atomic_fetch_sub(&shared.waiting, 1);
			key_wait_end(key);
		}
		atomic_fetch_add(&shared.found, 1);
		keys_unref(keys);
	}
	return NULL;
}

START_TEST(threads_find_while_another_reloads)
{
	pthread_t threads[FINDERS];
	struct text text;
	char hash[2 * KEY_HASH_LEN + 1];

	text_init(&text);
	append_hash(&text, S(SECRET));
	strcpy(hash, text.bytes);
	text_fini(&text);
	text_printf(&text,
		    "{\"keys\":[" KEY("a", A) ",{\"name\":\"mine\",\"sha256\":\"%s\",\"max_waiting\":%d" REST
					      "}," KEY("b", B) "]}",
		    hash, WAITERS_MAX);
	pthread_mutex_init(&shared.lock, NULL);
	shared.keys = good(text.bytes, text.len);
	for (int i = 0; i < FINDERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, find_often, NULL), 0);
	for (int i = 0; i < RELOADS || atomic_load(&shared.found) < RELOADS; i++) {
		struct keys *new = good(text.bytes, text.len);
		pthread_mutex_lock(&shared.lock);
		struct keys *old = shared.keys;
		shared.keys = new;
		pthread_mutex_unlock(&shared.lock);
		keys_unref(old);
	}
	atomic_store(&shared.end, true);
	for (int i = 0; i < FINDERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(atomic_load(&shared.keys->keys[1].usage->waiting), 0);
	ck_assert_uint_eq(shared.keys->keys[1].usage->references, 1);
	keys_unref(shared.keys);
	text_fini(&text);
}
END_TEST

/* ---- from a file ---- */

START_TEST(from_a_file)
{
	char folder[] = "/tmp/redlockd-keys-XXXXXX", path[64], expected[256];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/keys.json", folder);
	ck_assert_ptr_null(keys_load(path, message, sizeof(message)));
	snprintf(expected, sizeof(expected), "%s: No such file or directory", path);
	ck_assert_str_eq(message, expected);
	FILE *file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs("{\"keys\":[" KEY("a", A) "]}\n", file);
	fclose(file);
	ck_assert_int_eq(chmod(path, 0644), 0); /* hashes are no secrets */
	struct keys *keys = keys_load(path, message, sizeof(message));
	ck_assert_msg(keys != NULL, "%s", message);
	keys_unref(keys);
	ck_assert_int_eq(chmod(path, 0664), 0);
	ck_assert_ptr_null(keys_load(path, message, sizeof(message)));
	ck_assert_ptr_nonnull(strstr(message, "must not be writable by its group"));
	ck_assert_int_eq(chmod(path, 0600), 0);
	file = fopen(path, "w");
	fputs("{\"keys\":[" KEY("a", "") "]}\n", file);
	fclose(file);
	ck_assert_ptr_null(keys_load(path, message, sizeof(message)));
	snprintf(expected, sizeof(expected), "%s: keys[0].sha256: " HASH_RULE, path);
	ck_assert_str_eq(message, expected);
	ck_assert_int_eq(truncate(path, KEYS_FILE_MAX + 1), 0);
	ck_assert_ptr_null(keys_load(path, message, sizeof(message)));
	ck_assert_ptr_nonnull(strstr(message, "is too large"));
	unlink(path);
	rmdir(folder);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	Suite *suite = suite_create("keys");
	TCase *all = tcase_create("all");

	tcase_add_loop_test(all, files_are_taken_or_refused_with_the_place, 0, COUNT(files));
	tcase_add_test(all, no_message_holds_a_hash_or_a_key);
	tcase_add_test(all, what_the_file_says_is_there);
	tcase_add_test(all, so_many_keys_and_no_more);
	tcase_add_test(all, so_many_prefixes_and_no_more);
	tcase_add_test(all, deep_nesting_is_no_trouble);
	tcase_add_test(all, a_key_is_found_by_its_hash);
	tcase_add_test(all, every_bit_of_the_hash_counts);
	tcase_add_test(all, each_of_its_hashes_will_do);
	tcase_add_loop_test(all, a_key_is_visible_ascii_whatever_its_hash, 0, COUNT(secrets));
	tcase_add_test(all, a_certificate_is_found_by_its_names);
	tcase_add_loop_test(all, a_prefix_covers_whole_bytes, 0, COUNT(covers));
	tcase_add_test(all, usage_lives_on_over_a_reload);
	tcase_add_test(all, a_file_that_is_refused_changes_nothing);
	tcase_add_test(all, without_a_bound_all_may_wait);
	tcase_add_test(all, references_keep_them);
	tcase_add_test(all, threads_find_while_another_reloads);
	tcase_add_test(all, from_a_file);
	suite_add_tcase(suite, all);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
