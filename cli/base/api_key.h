/* API keys: the text by which redlockd knows a caller. Made, read, hashed. No message of these functions holds a part
 * of a key.
 *
 * redlockd's file of keys (--keys) holds hashes alone: a random text of 256 bits needs no salt and no slow hash. */
#ifndef API_KEY_H
#define API_KEY_H

#include <stdbool.h>
#include <stddef.h>

enum { API_KEY_MIN = 16, API_KEY_MAX = 256, API_KEY_HEX_LEN = 64, API_KEY_FILE_MAX = 4096, API_KEY_MESSAGE_MAX = 400 };

/* What all that are made here begin with: those who search a repository for secrets find them by it. */
#define API_KEY_START "rlk_"

/* The key in a text: white space around it is allowed. NULL, or the reason (static) why there is none. */
const char *api_key_parse(const char *text, size_t len, char ret_key[API_KEY_MAX + 1])
	__attribute__((warn_unused_result));

/* The key in a file that nobody else may read or write. False: a message that names the file. */
bool api_key_read(const char *path, char ret_key[API_KEY_MAX + 1], char ret_message[API_KEY_MESSAGE_MAX])
	__attribute__((warn_unused_result));

/* The key on stdin. NULL, or the reason why there is none. */
const char *api_key_read_stdin(char ret_key[API_KEY_MAX + 1]) __attribute__((warn_unused_result));

/* A new one: "rlk_" and 32 random bytes. False: errno. */
bool api_key_make(char ret_key[API_KEY_MAX + 1]) __attribute__((warn_unused_result));

/* Its SHA-256, as in the file of keys. False: GnuTLS does not let us. */
bool api_key_hash(const char *key, char ret_hex[API_KEY_HEX_LEN + 1]) __attribute__((warn_unused_result));

/* Writes the key and a line feed into a new file that its owner alone may read. False: errno; then there is no such
 * file, or the old one. */
bool api_key_save(const char *path, const char *key) __attribute__((warn_unused_result));

#endif
