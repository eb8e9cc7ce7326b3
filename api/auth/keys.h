/* The keys file: which caller has which rights on which resources (JSON; its members are listed in docs/security.md).
 *
 * Loaded keys never change. A reload makes another `struct keys`; a request that still uses the old one keeps a
 * reference to it. Only the usage of a key, its rate and the number of its waiting requests, lives on from one file to
 * the next. All functions may be called from any thread. */
#ifndef KEYS_H
#define KEYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rate.h"

enum {
	KEYS_MAX = 1000,
	KEYS_FILE_MAX = 1 << 20, /* bytes */
	KEYS_MESSAGE_MAX = 512,  /* enough for every message but those with a very long path */
	KEY_NAME_MAX = 64,
	KEY_HASHES_MAX = 4,
	KEY_HASH_LEN = 32, /* bytes of SHA-256 */
	KEY_CERTIFICATES_MAX = 8,
	KEY_CERTIFICATE_MAX = 1024, /* bytes of a certificate's name */
	KEY_PREFIXES_MAX = 64,
	KEY_PREFIX_MAX = 256, /* bytes */
	KEY_TTL_MAX = 86400000,
	KEY_RATE_MAX = 1000000,
	KEY_WAITING_MAX = 1000000,
	KEY_SECRET_MIN = 16, /* characters of a key itself */
	KEY_SECRET_MAX = 256
};

/* Bits of key.rights. */
enum key_right { KEY_ACQUIRE = 1, KEY_INSPECT = 2, KEY_LIST = 4, KEY_ADMIN = 8 };
enum { KEY_RIGHT_COUNT = 4 };

/* The part of a key that outlives a reload; found by the name of the key. */
struct key_usage {
	struct rate rate;
	_Atomic uint32_t waiting; /* requests under way that may wait */
	/* only keys.c, under its lock: */
	unsigned references;
	struct key_usage *next;
	char name[KEY_NAME_MAX + 1];
};

struct key_prefix {
	const char *bytes; /* UTF-8 without NUL */
	size_t len;        /* 0: every resource */
};

struct key {
	const char *name;
	unsigned rights;                        /* enum key_right */
	uint32_t max_ttl_ms, rate, max_waiting; /* 0: no bound of its own; rate: requests a second */
	size_t prefix_count, hash_count, certificate_count;
	struct key_prefix *prefixes;
	unsigned char hashes[KEY_HASHES_MAX][KEY_HASH_LEN];
	const char *certificates[KEY_CERTIFICATES_MAX]; /* names */
	struct key_usage *usage;
};

struct keys;

/* Reads the keys file (secret_file.h: SECRET_FILE_TRUSTED). Returns the keys with one reference, the caller's; or NULL
 * and a message of one line that names the file, the member and what is wrong, and never holds a hash. Blocking: for
 * the start and for SIGHUP. */
struct keys *keys_load(const char *path, char *message, size_t message_size) __attribute__((warn_unused_result));

/* The same from memory, at most KEYS_FILE_MAX bytes; the message begins with the member. */
struct keys *keys_parse(const char *bytes, size_t len, char *message, size_t message_size)
	__attribute__((warn_unused_result));

/* One reference more or less; with the last one they are freed. keys_unref(NULL) does nothing. */
struct keys *keys_ref(struct keys *keys);
void keys_unref(struct keys *keys);

size_t keys_count(const struct keys *keys);

/* The key whose text the caller shows, or NULL. Its SHA-256 is compared with all hashes of the file, in a time that
 * depends neither on the position of the match nor on how many bytes match. The result lives as long as a reference to
 * `keys`; *ret_hash is for keys_find_hash(). */
const struct key *keys_find(const struct keys *keys, const char *secret, size_t len,
			    unsigned char ret_hash[KEY_HASH_LEN]);

/* The same by the hash that keys_find() gave, in other keys: those of a reload. */
const struct key *keys_find_hash(const struct keys *keys, const unsigned char hash[KEY_HASH_LEN]);

/* The key of a client certificate: that of the first of its names (terminated, compared byte by byte) which is in the
 * file; or NULL. Names that hold a NUL must have been left out. */
const struct key *keys_find_certificate(const struct keys *keys, const char *const names[], size_t count);

/* True if the bytes begin with one of the key's prefixes. For a resource, decoded, and for the prefix of a list. */
bool key_allows_prefix(const struct key *key, const char *bytes, size_t len);

/* "acquire" and so on. Static. */
const char *key_right_name(enum key_right right);

/* Counts one request more that may wait; false, and it is not counted, where the key has reached its limit. After true,
 * key_wait_end() once; until then the caller keeps its reference to the keys. */
bool key_wait_begin(const struct key *key) __attribute__((warn_unused_result));
void key_wait_end(const struct key *key);

/* After a reload: a request that was counted with `from` is counted with `to` from now on, even beyond the limit of
 * `to`. */
void key_wait_move(const struct key *from, const struct key *to);

#endif
