/* SPDX-License-Identifier: MIT */
/* API keys: checked, made, hashed, saved and read. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/credentials.h"
#include "suite.h"

static char folder[] = "/tmp/test_cli_api_key.XXXXXX", path[sizeof(folder) + 8];

static void set_up(void)
{
	memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/key", folder);
}

static void tear_down(void)
{
	unlink(path);
	rmdir(folder);
}

static void put(const char *text, size_t len, mode_t mode)
{
	FILE *file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, len, file), len);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

#define SIXTEEN "0123456789abcdef"

static const struct {
	const char *text;
	size_t len;
	const char *key; /* NULL: none */
} texts[] = {
	{SIXTEEN, 16, SIXTEEN},
	{" \t" SIXTEEN "\r\n\n", 21, SIXTEEN},
	{"!~[]{}\"'\\,;:=+-_", 16, "!~[]{}\"'\\,;:=+-_"},
	{"", 0, NULL},
	{"\n", 1, NULL},
	{"0123456789abcde", 15, NULL},
	{SIXTEEN "\n" SIXTEEN, 33, NULL},
	{SIXTEEN " x", 18, NULL},
	{SIXTEEN "\0", 17, NULL},
	{"0123456\0789abcdef", 16, NULL},
	{SIXTEEN "\x7f", 17, NULL},
	{SIXTEEN "\xc3\xa9", 18, NULL},
};

TEST_EACH(what_a_key_is, 0, sizeof(texts) / sizeof(*texts))
{
	char key[BEARER_MAX + 1] = "as it was";
	const char *reason = api_key_parse(texts[_i].text, texts[_i].len, key);
	ck_assert_msg((reason == NULL) == (texts[_i].key != NULL), "%s: %s", texts[_i].text, reason);
	ck_assert_str_eq(key, texts[_i].key == NULL ? "as it was" : texts[_i].key);
	ck_assert(reason == NULL || strstr(reason, "0123") == NULL);
}

TEST(lengths)
{
	char text[BEARER_MAX + 2], key[BEARER_MAX + 1];
	memset(text, 'x', sizeof(text));
	ck_assert_ptr_null(api_key_parse(text, API_KEY_MAX, key));
	ck_assert_uint_eq(strlen(key), API_KEY_MAX);
	ck_assert_ptr_nonnull(api_key_parse(text, API_KEY_MAX + 1, key));
	text[20] = text[30] = '.'; /* a token of an issuer */
	ck_assert_ptr_null(api_key_parse(text, BEARER_MAX, key));
	ck_assert_uint_eq(strlen(key), BEARER_MAX);
	ck_assert_ptr_nonnull(api_key_parse(text, BEARER_MAX + 1, key));
	text[40] = '.';
	ck_assert_ptr_nonnull(api_key_parse(text, BEARER_MAX, key));
}

/* As Kubernetes makes it. */
TEST(the_file_of_a_token_may_be_read_by_others)
{
	char key[BEARER_MAX + 1], message[API_KEY_MESSAGE_MAX];
	put("header.claims.signature\n", 24, 0644);
	ck_assert(api_key_read(path, key, message));
	ck_assert_str_eq(key, "header.claims.signature");
	put("header.claims.signature\n", 24, 0666);
	ck_assert(!api_key_read(path, key, message));
}

/* The same as sha256sum gives. */
TEST(hashes)
{
	char hex[API_KEY_HEX_LEN + 1];
	api_key_hash("abc", hex);
	ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	api_key_hash("", hex);
	ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* Each new key differs from all others. Every digit occurs at every place; the last place has four bits only. */
TEST(new_keys)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	static char keys[1500][API_KEY_MAX + 1];
	bool seen[43][128] = {{false}};
	size_t count = sizeof(keys) / sizeof(*keys);

	for (size_t i = 0; i < count; i++) {
		api_key_make(keys[i]);
		ck_assert_uint_eq(strlen(keys[i]), 47);
		ck_assert(strncmp(keys[i], "rlk_", 4) == 0);
		ck_assert_uint_eq(strspn(keys[i] + 4, digits), 43);
		for (size_t place = 0; place < 43; place++)
			seen[place][(unsigned char)keys[i][4 + place]] = true;
		for (size_t j = 0; j < i; j++)
			if (strcmp(keys[i], keys[j]) == 0)
				ck_abort_msg("%s twice", keys[i]);
	}
	for (size_t place = 0; place < 43; place++)
		for (size_t digit = 0; digit < 64; digit += place == 42 ? 4 : 1)
			if (!seen[place][(unsigned char)digits[digit]])
				ck_abort_msg("no %c at %zu", digits[digit], place);
}

TEST(saved_and_read)
{
	char key[API_KEY_MAX + 1], read[BEARER_MAX + 1], message[API_KEY_MESSAGE_MAX];
	struct stat file;
	umask(0);
	api_key_make(key);
	ck_assert(api_key_save(path, key));
	ck_assert_int_eq(stat(path, &file), 0);
	ck_assert_uint_eq(file.st_mode & 0777, 0600);
	ck_assert_int_eq(file.st_size, 48);
	ck_assert_msg(api_key_read(path, read, message), "%s", message);
	ck_assert_str_eq(read, key);
	ck_assert(!api_key_save(path, SIXTEEN));
	ck_assert_int_eq(errno, EEXIST);
	ck_assert(api_key_read(path, read, message));
	ck_assert_str_eq(read, key);
}

static const struct {
	const char *text;
	mode_t mode;
	const char *reason;
} rejected[] = {
	{SIXTEEN "\n", 0644, "others"},
	{SIXTEEN "\n", 0620, "writable"},
	{SIXTEEN "\n" SIXTEEN, 0600, "more"},
	{"", 0600, "no key"},
	{NULL, 0600, "large"}, /* a file of the largest size and one byte */
};

static void check_rejected(const char *reason)
{
	char key[BEARER_MAX + 1] = "as it was", message[API_KEY_MESSAGE_MAX] = "";
	ck_assert(!api_key_read(path, key, message));
	ck_assert_str_eq(key, "as it was");
	ck_assert_msg(strstr(message, path) && strstr(message, reason) && !strstr(message, "0123"), "%s", message);
}

TEST_EACH(rejected_files, 0, sizeof(rejected) / sizeof(*rejected))
{
	static char large[BEARER_FILE_MAX + 2];
	memset(large, ' ', sizeof large - 1);
	const char *text = rejected[_i].text ? rejected[_i].text : large;
	check_rejected("No such file");
	put(text, strlen(text), rejected[_i].mode);
	check_rejected(rejected[_i].reason);
}

FIXTURE(set_up, tear_down)
