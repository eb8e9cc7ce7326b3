/* SPDX-License-Identifier: MIT */
/* Keys: finding the key of a caller, and the usage that outlives a reload. */
#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdio.h>

#include "keys_world.h"
#include "server/base/base.h"

/* ---- finding ---- */

#define SECRET "correct-horse-battery"

static void append_hash(struct text *text, const char *secret, size_t len)
{
	unsigned char hash[KEY_HASH_LEN];
	char digits[2 * KEY_HASH_LEN];

	ck_assert_int_eq(gnutls_hash_fast(GNUTLS_DIG_SHA256, secret, len, hash), 0);
	hex_write(hash, KEY_HASH_LEN, digits);
	text_append(text, digits, sizeof digits);
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

static unsigned char last_hash[KEY_HASH_LEN]; /* of the last key that was looked for */

TEST(a_key_may_have_several_hashes)
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
		ck_assert_str_eq(keys_find(keys, secrets[i], strlen(secrets[i]), last_hash)->name, "mine");
	keys_unref(keys);
	text_fini(&text);
}

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

TEST_EACH(a_key_is_visible_ascii_whatever_its_hash, 0, COUNT(secrets))
{
	struct keys *keys = keys_with("", secrets[_i].secret, secrets[_i].len);

	ck_assert_int_eq(keys_find(keys, secrets[_i].secret, secrets[_i].len, last_hash) != NULL, secrets[_i].is_key);
	keys_unref(keys);
}

TEST(a_certificate_is_found_by_its_names)
{
	struct keys *keys = good(S("{\"keys\":[{\"name\":\"a\",\"certificates\":[\"a.example\",\"spiffe://x/a\"]" REST
				   "},"
				   "{\"name\":\"b\",\"certificates\":\"b.example\"" REST "}," KEY("c", C) "]}"));
	static const char *const both[] = {"b.example", "a.example"}, *const second[] = {"z", "spiffe://x/a"};
	static const char *const none[] = {"A.example", "a.example.", "a", "", "spiffe://x/a/", "c", A};

	ck_assert_str_eq(keys_find_certificate(keys, both, 2)->name, "b");
	ck_assert_str_eq(keys_find_certificate(keys, both + 1, 1)->name, "a");
	ck_assert_str_eq(keys_find_certificate(keys, second, 2)->name, "a");
	ck_assert_ptr_null(keys_find_certificate(keys, none, sizeof none / sizeof *none));
	ck_assert_ptr_null(keys_find_certificate(keys, NULL, 0));
	keys_unref(keys);
}

/* ---- usage ---- */

#define WAITERS(name, hash, count) "{\"name\":\"" name "\",\"sha256\":\"" hash "\",\"max_waiting\":" count REST "}"

TEST(usage_lives_on_over_a_reload)
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
	key_wait_end(&old->keys[0]); /* a wait ends under the file under which it began */
	keys_unref(old);
	ck_assert(key_wait_begin(&new->keys[1]));
	ck_assert(!key_wait_begin(&new->keys[1]));
	for (int i = 0; i < 3; i++)
		key_wait_end(&new->keys[1]);
	keys_unref(new);
}

TEST(a_rejected_file_changes_nothing)
{
	struct keys *old = good(S("{\"keys\":[" WAITERS("a", A, "1") "]}"));

	ck_assert(key_wait_begin(&old->keys[0]));
	bad(S("{\"keys\":[" WAITERS("a", A, "1") "," WAITERS("b", B, "1") ",{}]}"), "keys[2].name: is required");
	ck_assert(!key_wait_begin(&old->keys[0]));
	ck_assert_uint_eq(old->keys[0].usage->references, 1);
	key_wait_end(&old->keys[0]);
	keys_unref(old);
}

TEST(without_a_bound_all_may_wait)
{
	struct keys *keys = good(S("{\"keys\":[" KEY("a", A) "]}"));

	for (int i = 0; i < 10000; i++)
		ck_assert(key_wait_begin(&keys->keys[0]));
	for (int i = 0; i < 10000; i++)
		key_wait_end(&keys->keys[0]);
	keys_unref(keys);
}

/* ---- threads: some look for keys while one reloads ---- */

enum { FINDERS = 3, RELOADS = 300, WAITERS_MAX = 2 };

static struct {
	pthread_mutex_t lock; /* guards the pointer */
	struct keys *keys;
	atomic_bool end;
	atomic_uint found, waiting, rejected;
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
			atomic_fetch_add(&shared.rejected, 1);
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

TEST(threads_find_while_another_reloads)
{
	pthread_t threads[FINDERS];
	struct text text;

	text_init(&text);
	text_printf(&text, "{\"keys\":[" KEY("a", A) ",{\"name\":\"mine\",\"max_waiting\":%d,\"sha256\":\"",
		    WAITERS_MAX);
	append_hash(&text, S(SECRET));
	text_printf(&text, "\"" REST "}," KEY("b", B) "]}");
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
