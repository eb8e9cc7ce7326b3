/* SPDX-License-Identifier: MIT */
/* See credentials.h. The rules for files are those of the daemon's secrets (server/base/base.h). */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "credentials.h"
#include "server/base/base.h"

enum { RANDOM_BYTES = 32, HASH_BYTES = 32 };

const char *api_key_trim(const char *text, size_t *len)
{
	assert(text || *len == 0);
	while (*len > 0 && memchr(" \t\r\n", text[*len - 1], 4))
		--*len;
	for (; *len > 0 && memchr(" \t\r\n", *text, 4); --*len)
		text++;
	return text;
}

static bool api_key_is_token(const char *text, size_t len)
{
	size_t stops = 0;
	for (size_t i = 0; i < len; i++)
		stops += text[i] == '.';
	return stops == 2;
}

const char *api_key_parse(const char *text, size_t len, char ret_key[BEARER_MAX + 1])
{
	assert(text || len == 0);
	text = api_key_trim(text, &len);
	for (size_t i = 0; i < len; i++)
		if (text[i] < 0x21 || text[i] > 0x7e)
			return "it holds more than one key, or characters that no key has";
	if (len == 0)
		return "it holds no key";
	if (len < API_KEY_MIN)
		return "too short for a key (16 characters)";
	if (len > API_KEY_MAX && !api_key_is_token(text, len))
		return "too long for a key (256 characters)";
	if (len > BEARER_MAX)
		return "too long for a token of an issuer (8192 characters)";
	memcpy(ret_key, text, len);
	ret_key[len] = '\0';
	return NULL;
}

static bool api_key_read_kind(const char *path, enum secret_file_kind kind, char ret_key[BEARER_MAX + 1],
			      char ret_message[API_KEY_MESSAGE_MAX])
{
	struct text text;
	text_init(&text);
	bool done = secret_file_read(path, kind, BEARER_FILE_MAX, &text, ret_message, API_KEY_MESSAGE_MAX);
	const char *reason = done ? api_key_parse(text.len == 0 ? "" : text.bytes, text.len, ret_key) : NULL;
	if (reason)
		snprintf(ret_message, API_KEY_MESSAGE_MAX, "%.200s: %s", path, reason);
	secret_file_wipe(&text);
	text_fini(&text);
	return done && !reason;
}

bool api_key_read(const char *path, char ret_key[BEARER_MAX + 1], char ret_message[API_KEY_MESSAGE_MAX])
{
	char token[BEARER_MAX + 1], unused[API_KEY_MESSAGE_MAX];
	assert(path);
	if (api_key_read_kind(path, SECRET_FILE_SECRET, ret_key, ret_message))
		return true;
	bool done = api_key_read_kind(path, SECRET_FILE_TRUSTED, token, unused) &&
		    api_key_is_token(token, strlen(token));
	if (done)
		memcpy(ret_key, token, strlen(token) + 1);
	explicit_bzero(token, sizeof token);
	return done;
}

const char *api_key_read_stdin(char ret_key[BEARER_MAX + 1])
{
	char bytes[BEARER_FILE_MAX];
	size_t len;
	const char *reason = file_read(STDIN_FILENO, bytes, sizeof bytes, &len) ? api_key_parse(bytes, len, ret_key)
										: strerror(errno);
	explicit_bzero(bytes, sizeof bytes);
	return reason;
}

/* Base64 for URLs, without padding. */
void api_key_make(char ret_key[API_KEY_MAX + 1])
{
	uint8_t bytes[RANDOM_BYTES];
	gnutls_datum_t random = {bytes, sizeof bytes}, digits;
	random_bytes(bytes, sizeof bytes);
	if (gnutls_base64_encode2(&random, &digits) != 0)
		memory_exhausted("key");
	for (unsigned i = 0; i < digits.size; i++)
		if (digits.data[i] == '+' || digits.data[i] == '/')
			digits.data[i] = digits.data[i] == '+' ? '-' : '_';
	int len = (int)strcspn((char *)digits.data, "=");
	snprintf(ret_key, API_KEY_MAX + 1, API_KEY_START "%.*s", len, digits.data);
	explicit_bzero(bytes, sizeof bytes);
	explicit_bzero(digits.data, digits.size);
	gnutls_free(digits.data);
}

void api_key_hash(const char *key, char ret_hex[API_KEY_HEX_LEN + 1])
{
	uint8_t hash[HASH_BYTES];
	assert(gnutls_hash_get_len(GNUTLS_DIG_SHA256) == sizeof hash);
	int failed = gnutls_hash_fast(GNUTLS_DIG_SHA256, key, strlen(key), hash);
	assert(!failed);
	hex_write(hash, sizeof hash, ret_hex);
	ret_hex[2 * sizeof hash] = '\0';
}

bool api_key_save(const char *path, const char *key)
{
	char line[API_KEY_MAX + 2];
	int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
	assert(strlen(key) >= API_KEY_MIN && strlen(key) <= API_KEY_MAX);
	if (file < 0)
		return false;
	int len = snprintf(line, sizeof line, "%s\n", key);
	errno = ENOSPC; /* the reason of a short write */
	bool done = write(file, line, (size_t)len) == len;
	explicit_bzero(line, sizeof line);
	if (close(file) != 0)
		done = false;
	int error = errno;
	if (!done)
		unlink(path);
	errno = error;
	return done;
}
