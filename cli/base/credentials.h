/* SPDX-License-Identifier: MIT */
/* The credentials for a server (a key, a certificate), and the CA that must have signed the server's certificate. */
#ifndef CREDENTIALS_H
#define CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

/* ---- api_key.c: the text that identifies a client to redlockd ----
 *
 * No message of these functions has a part of a key. The keys file of redlockd (--keys) has only plain hashes: a random
 * text of 256 bits needs no salt and no slow hash. */

enum { API_KEY_MIN = 16, API_KEY_MAX = 256, API_KEY_HEX_LEN = 64, API_KEY_MESSAGE_MAX = 400 };

/* A token of an issuer (JWT) may stand in place of a key. */
enum { BEARER_MAX = 8192, BEARER_FILE_MAX = 2 * BEARER_MAX };

/* The beginning of every key that is made here, for programs that search repositories for secrets. */
#define API_KEY_START "rlk_"

/* Returns the text without the white space around it. */
const char *api_key_trim(const char *text, size_t *len);

/* Finds the key, or the token of an issuer, in a text that may have white space around it. Returns NULL, or the reason
 * (static) why there is none. */
const char *api_key_parse(const char *text, size_t len, char ret_key[BEARER_MAX + 1])
	__attribute__((warn_unused_result));

/* Reads the key in a file that nobody else may read or write; the file of a token may be read by others, as Kubernetes
 * makes it. False: a message that names the file. */
bool api_key_read(const char *path, char ret_key[BEARER_MAX + 1], char ret_message[API_KEY_MESSAGE_MAX])
	__attribute__((warn_unused_result));

/* Reads the key from stdin. Returns NULL, or the reason why there is none. */
const char *api_key_read_stdin(char ret_key[BEARER_MAX + 1]) __attribute__((warn_unused_result));

/* Makes a new key: "rlk_" and 32 random bytes. */
void api_key_make(char ret_key[API_KEY_MAX + 1]);

/* The SHA-256 of a key, as in the keys file. */
void api_key_hash(const char *key, char ret_hex[API_KEY_HEX_LEN + 1]);

/* Writes the key and a line feed into a new file that only its owner may read. False: errno, and no file was made or
 * changed. */
bool api_key_save(const char *path, const char *key) __attribute__((warn_unused_result));

/* ---- credentials.c: the files, before anything is sent ---- */

enum { CREDENTIALS_MESSAGE_MAX = API_KEY_MESSAGE_MAX + 32 };

struct credentials {
	/* PEM; NULL: not given. libcurl reads them again for each connection */
	const char *ca_file, *cert_file, *cert_key_file;
	const char *api_key_file;     /* NULL: not given */
	char api_key[BEARER_MAX + 1]; /* empty: none */
};

/* Reads the key from its file, and checks that the other files can be read and that nobody else can read a private key.
 * Blocking, before anything is sent. False: a message that names the option. */
bool credentials_load(struct credentials *credentials, char ret_message[CREDENTIALS_MESSAGE_MAX])
	__attribute__((warn_unused_result));

/* ---- the token of a lease ---- */

enum { TOKEN_LEN = 40 };

/* True if the text is a token: 40 digits, 0 to 9 and a to f. */
bool token_is_valid(const char *text);

#endif
