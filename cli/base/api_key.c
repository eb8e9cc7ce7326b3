/* See api_key.h. The rules for files are those of the daemon's secrets (server/base/secret_file.h). */
#include "api_key.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "server/base/base.h"

enum { RANDOM_BYTES = 32, HASH_BYTES = 32 };

static bool api_key_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static const char *api_key_check(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] < 0x21 || text[i] > 0x7e)
			return "it holds more than one key, or characters that no key has";
	if (len == 0)
		return "it holds no key";
	if (len < API_KEY_MIN)
		return "too short for a key (16 characters)";
	return len > API_KEY_MAX ? "too long for a key (256 characters)" : NULL;
}

const char *api_key_parse(const char *text, size_t len, char ret_key[API_KEY_MAX + 1])
{
	assert(text || len == 0);
	while (len > 0 && api_key_is_blank(text[len - 1]))
		len--;
	while (len > 0 && api_key_is_blank(*text)) {
		text++;
		len--;
	}
	const char *reason = api_key_check(text, len);
	if (reason)
		return reason;
	memcpy(ret_key, text, len);
	ret_key[len] = '\0';
	return NULL;
}

bool api_key_read(const char *path, char ret_key[API_KEY_MAX + 1], char ret_message[API_KEY_MESSAGE_MAX])
{
	struct text text;

	assert(path);
	text_init(&text);
	bool done = secret_file_read(path, SECRET_FILE_SECRET, API_KEY_FILE_MAX, &text, ret_message,
				     API_KEY_MESSAGE_MAX);
	if (done) {
		const char *reason = api_key_parse(text.len == 0 ? "" : text.bytes, text.len, ret_key);
		done = !reason;
		if (!done)
			snprintf(ret_message, API_KEY_MESSAGE_MAX, "%.200s: %s", path, reason);
	}
	secret_file_wipe(&text);
	text_fini(&text);
	return done;
}

const char *api_key_read_stdin(char ret_key[API_KEY_MAX + 1])
{
	char bytes[API_KEY_FILE_MAX];
	size_t len = 0;
	ssize_t got;

	do {
		got = read(STDIN_FILENO, bytes + len, sizeof bytes - len);
		len += got > 0 ? (size_t)got : 0;
	} while (len < sizeof bytes && (got > 0 || (got < 0 && errno == EINTR)));
	const char *reason = got < 0 ? strerror(errno) : api_key_parse(bytes, len, ret_key);
	explicit_bzero(bytes, sizeof bytes);
	return reason;
}

/* Base64 for URLs, without padding. The text is terminated. */
static void api_key_encode(const uint8_t *bytes, size_t len, char *text)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	uint32_t bits = 0;
	unsigned count = 0;

	assert(len > 0);
	for (size_t i = 0; i < len; i++) {
		bits = bits << 8 | bytes[i];
		for (count += 8; count >= 6; count -= 6)
			*text++ = digits[bits >> (count - 6) & 63];
	}
	if (count > 0)
		*text++ = digits[bits << (6 - count) & 63];
	*text = '\0';
}

bool api_key_make(char ret_key[API_KEY_MAX + 1])
{
	uint8_t bytes[RANDOM_BYTES];
	ssize_t got;

	do
		got = getrandom(bytes, sizeof bytes, 0); /* so few come all at once */
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)sizeof bytes)
		return false;
	strcpy(ret_key, API_KEY_START);
	api_key_encode(bytes, sizeof bytes, ret_key + strlen(API_KEY_START));
	explicit_bzero(bytes, sizeof bytes);
	return true;
}

bool api_key_hash(const char *key, char ret_hex[API_KEY_HEX_LEN + 1])
{
	uint8_t hash[HASH_BYTES];

	assert(gnutls_hash_get_len(GNUTLS_DIG_SHA256) == sizeof hash);
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, key, strlen(key), hash) != 0)
		return false;
	for (size_t i = 0; i < sizeof hash; i++)
		snprintf(ret_hex + 2 * i, 3, "%02x", hash[i]);
	return true;
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
