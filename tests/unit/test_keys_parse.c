/* SPDX-License-Identifier: MIT */
/* The keys file: which files are rejected, with which message; the most keys and prefixes; permissions. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/auth/auth.h"
#include "keys_world.h"
#include "server/base/base.h"

#define ONE(members) "{\"keys\":[{" members "}]}"
#define WITH(members) ONE("\"name\":\"a\",\"sha256\":\"" A "\"" REST "," members)
#define NAMED(member) ONE("\"name\":" member ",\"sha256\":\"" A "\"" REST)
#define HASHED(member) ONE("\"name\":\"a\",\"sha256\":" member REST)
#define CERTIFIED(member) ONE("\"name\":\"a\",\"certificates\":" member REST)
#define PREFIXED(member) ONE("\"name\":\"a\",\"sha256\":\"" A "\",\"rights\":[\"list\"],\"prefixes\":" member)
#define ALLOWED(member) ONE("\"name\":\"a\",\"sha256\":\"" A "\",\"prefixes\":[\"\"],\"rights\":" member)

#define NAME_RULE "keys[0].name: must be a string of 1 to 64 letters, digits, full stops, underscores and hyphens"
#define HASH_RULE "must be a string of 64 hexadecimal digits"
#define CERTIFICATE_RULE "must be a string of 1 to 1024 bytes without control characters"
#define PREFIX_RULE "must be a string of at most 256 bytes without control characters"
#define RIGHT_RULE "must be \"acquire\", \"inspect\", \"list\" or \"admin\""
#define LIST_RULE "keys: must be a list of 1 to 1000 keys"
#define WHOLE_RULE "line 1: must be a JSON object with the members \"keys\", \"issuers\" or both, and no other"

static const struct {
	const char *bytes;
	size_t len;
	const char *message; /* NULL: the file is good */
} files[] = {
	/* good */
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
	{S("{\"keys\":[]}"), LIST_RULE}, /* nobody could call */
	{S("{\"keys\":{}}"), LIST_RULE},
	{S("{\"keys\":null}"), LIST_RULE},
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
	{S("{\"keys\":[" KEY("a", A) "," KEY("a", B) "]}"), "keys[1].name: is also that of keys[0]"},
	{S("{\"keys\":[" KEY("a", A) "," KEY("b", A) "]}"), "keys[1].sha256: is in the file already"},
	{S(WITH("\"enabled\":true")), "keys[0]: has the unknown member \"enabled\""},
	{S(WITH("\"Rights\":[\"admin\"]")), "keys[0]: has the unknown member \"Rights\""},
	{S(WITH("\"" A "\":true")), "keys[0]: has an unknown member"},
	{S(WITH("\"\":true")), "keys[0]: has an unknown member"},
	{S(WITH("\"\\n\":true")), "keys[0]: has an unknown member"},
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

TEST_EACH(files_are_good_or_rejected_with_the_position, 0, COUNT(files))
{
	if (files[_i].message != NULL)
		bad(files[_i].bytes, files[_i].len, files[_i].message);
	else
		keys_unref(good(files[_i].bytes, files[_i].len));
}

TEST(no_message_holds_a_hash_or_a_key)
{
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (files[i].message != NULL) {
			ck_assert_ptr_null(keys_parse(files[i].bytes, files[i].len, message, sizeof message));
			ck_assert_ptr_null(strstr(message, "aaaaaaaa"));
			ck_assert_ptr_null(strstr(message, "AAAAAAAA"));
			ck_assert_ptr_null(strstr(message, "rlk_"));
		}
}

TEST(all_members_of_the_file_are_kept)
{
	struct keys *keys = good(S("{\"keys\":[{\"rights\":[\"list\",\"acquire\"],\"prefixes\":[\"orders/"
				   "\",\"\xc3\xa9\"],\"max_ttl_ms\":60000,\"rate\":100,"
				   "\"max_waiting\":50,\"certificates\":\"billing.example\",\"sha256\":[\"" A
				   "\",\"0123456789abcdef" R16 R16 R16 "\"],\"name\":\"billing\"}," KEY("b", B) "]}"));

	ck_assert_uint_eq(keys->count, 2);
	const struct key *key = &keys->keys[0];
	ck_assert_str_eq(key->name, "billing");
	ck_assert_uint_eq(key->rights, ACCESS_RIGHT(ACCESS_LIST) | ACCESS_RIGHT(ACCESS_ACQUIRE));
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
}

TEST(the_number_of_keys_is_bounded)
{
	struct text text;

	write_keys(&text, KEYS_MAX);
	struct keys *keys = good(text.bytes, text.len);
	ck_assert_uint_eq(keys->count, KEYS_MAX);
	static const char *const names[] = {"nobody", "c999", "c0"};
	ck_assert_str_eq(keys_find_certificate(keys, names, 3)->name, "key-999"); /* in the order of the certificate */
	keys_unref(keys);
	text_fini(&text);
	write_keys(&text, KEYS_MAX + 1);
	bad(text.bytes, text.len, LIST_RULE);
	text_fini(&text);
}

TEST(the_number_of_prefixes_is_bounded)
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

TEST(deep_nesting_is_rejected)
{
	struct text text;

	text_init(&text);
	while (text.len < KEYS_FILE_MAX - 1)
		text_append(&text, "[", 1);
	bad(text.bytes, text.len, "line 1, column 2049: nested too deeply");
	text_fini(&text);
}

/* ---- from a file ---- */

TEST(from_a_file)
{
	char folder[] = "/tmp/redlockd-keys-XXXXXX", path[64], expected[256];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/keys.json", folder);
	ck_assert_ptr_null(keys_load(path, NULL, message, sizeof message));
	snprintf(expected, sizeof expected, "%s: No such file or directory", path);
	ck_assert_str_eq(message, expected);
	FILE *file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs("{\"keys\":[" KEY("a", A) "]}\n", file);
	fclose(file);
	ck_assert_int_eq(chmod(path, 0644), 0); /* hashes are no secrets */
	struct keys *keys = keys_load(path, NULL, message, sizeof message);
	ck_assert_msg(keys != NULL, "%s", message);
	keys_unref(keys);
	ck_assert_int_eq(chmod(path, 0664), 0);
	ck_assert_ptr_null(keys_load(path, NULL, message, sizeof message));
	ck_assert_ptr_nonnull(strstr(message, "must not be writable by its group"));
	ck_assert_int_eq(chmod(path, 0600), 0);
	file = fopen(path, "w");
	fputs("{\"keys\":[" KEY("a", "") "]}\n", file);
	fclose(file);
	ck_assert_ptr_null(keys_load(path, NULL, message, sizeof message));
	snprintf(expected, sizeof expected, "%s: keys[0].sha256: " HASH_RULE, path);
	ck_assert_str_eq(message, expected);
	ck_assert_int_eq(truncate(path, KEYS_FILE_MAX + 1), 0);
	ck_assert_ptr_null(keys_load(path, NULL, message, sizeof message));
	ck_assert_ptr_nonnull(strstr(message, "is too large"));
	unlink(path);
	rmdir(folder);
}
