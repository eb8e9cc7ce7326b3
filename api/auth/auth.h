/* Identity, rights and rates of callers: rates, keys, certificates, rights, origins, addresses. Any thread.
 *
 * The one header of this folder. What a request holds comes in as plain structs. */
#ifndef AUTH_H
#define AUTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "server/config/config.h"

struct json_error_t; /* of jansson */

/* ---- peers.c: bounds per second, and on connections ---- */

/* All zeros: nothing has been taken yet. */
struct rate {
	_Atomic uint64_t next_ns; /* when the last share ends: see peers.c */
};

/* Takes one of `per_second` (0: no bound), which may also come all at once. False: it would be one too many, and after
 * *ret_retry_ms (at least 1) one can be taken. `now_us` is a clock that does not go back. */
bool rate_take(struct rate *rate, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* True if it has the effect of all zeros, and can be forgotten. */
bool rate_is_rested(const struct rate *rate, uint64_t now_us);

/* One client address: all of an IPv4 address (also as ::ffff:a.b.c.d), the first 64 bits of an IPv6 address, since one
 * host usually has all the others. Unix sockets have none: NULL, without bounds. One table for the process. */
struct peer;

enum { PEERS_MAX = 65536 };

/* One connection more from `address`, which may have `max_connections` (0: no bound). True: pass *ret_peer to
 * peer_leave() when the connection is closed. False: too many, and nothing is counted. */
bool peer_arrive(const struct sockaddr *address, socklen_t address_len, uint32_t max_connections, uint64_t now_us,
		 struct peer **ret_peer) __attribute__((warn_unused_result));
void peer_leave(struct peer *peer, uint64_t now_us);

/* One request more; as rate_take(). Takes no lock. */
bool peer_take(struct peer *peer, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* How many addresses the table holds now. */
size_t peers_count(void);

/* ---- keys_parse.c: the keys file (docs/how-to/secure.md has the members) ----
 *
 * Loaded keys never change: a reload makes another `struct keys`, and requests keep a reference to theirs. */

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

/* State of a key that outlives a reload of the file; found by the key's name. */
struct key_usage {
	struct rate rate;
	_Atomic uint32_t waiting; /* requests under way that may wait */
	/* only keys_parse.c, under its lock: */
	unsigned references;
	LIST_ENTRY(key_usage) others;
	char name[KEY_NAME_MAX + 1];
};

struct key_prefix {
	const char *bytes; /* UTF-8 without NUL */
	size_t len;        /* 0: every resource */
};

struct key {
	const char *name;
	unsigned rights;                        /* a set of ACCESS_RIGHT() */
	uint32_t max_ttl_ms, rate, max_waiting; /* 0: no bound of its own; rate: requests a second */
	size_t prefix_count, hash_count, certificate_count;
	struct key_prefix *prefixes;
	unsigned char hashes[KEY_HASHES_MAX][KEY_HASH_LEN];
	const char *certificates[KEY_CERTIFICATES_MAX]; /* names */
	struct key_usage *usage;
};

/* Made, counted and freed by keys_parse.c alone. */
struct keys {
	atomic_uint references;
	size_t count;
	struct json_t *root; /* owns the texts of the keys */
	struct key keys[];   /* in the order of the file */
};

/* Reads the keys file (SECRET_FILE_TRUSTED). Returns one reference; or NULL and a message of one line that names file
 * and member and never holds a hash. Blocking: for the start and for SIGHUP. */
struct keys *keys_load(const char *path, char *message, size_t message_size) __attribute__((warn_unused_result));

/* The same from memory, at most KEYS_FILE_MAX bytes; the message begins with the member. */
struct keys *keys_parse(const char *bytes, size_t len, char *message, size_t message_size)
	__attribute__((warn_unused_result));

/* Why jansson rejected a text (static). Its own message repeats parts of the text. */
const char *keys_json_reason(const struct json_error_t *error);

/* With the last reference they are freed. keys_unref(NULL) does nothing. */
struct keys *keys_ref(struct keys *keys);
void keys_unref(struct keys *keys);

/* ---- access.c: the caller of a request, and what it may do: decided here alone; what is not allowed is denied ----
 *
 * A caller is known by a key (Authorization: Bearer, or X-Api-Key) or by a name in its client certificate. Callers are
 * asked who they are with --keys always, with --tls-client-ca over HTTPS; otherwise everybody may do everything. */

/* The key whose text the caller shows, or NULL; *ret_hash is for keys_find_hash(). The result lives as long as a
 * reference to `keys`. */
const struct key *keys_find(const struct keys *keys, const char *secret, size_t len,
			    unsigned char ret_hash[KEY_HASH_LEN]);
const struct key *keys_find_hash(const struct keys *keys, const unsigned char hash[KEY_HASH_LEN]);

/* The key of the first of a certificate's names (terminated) that is in the file, or NULL. */
const struct key *keys_find_certificate(const struct keys *keys, const char *const names[], size_t count);

/* True if the bytes begin with one of the key's prefixes. For a resource, decoded, and for the prefix of a list. */
bool key_allows_prefix(const struct key *key, const char *bytes, size_t len);

/* Counts one request more that may wait; false, and it is not counted, where the key has reached its limit. After true,
 * key_wait_end() once; until then the caller keeps its reference to the keys. */
bool key_wait_begin(const struct key *key) __attribute__((warn_unused_result));
void key_wait_end(const struct key *key);

/* After a reload: a request that was counted with `from` is counted with `to`, even beyond the limit of `to`. */
void key_wait_move(const struct key *from, const struct key *to);

enum {
	TLS_PEER_NAMES_MAX = 16,  /* of one client certificate; more are ignored */
	TLS_PEER_BYTES_MAX = 4096 /* of all its names, each with a NUL */
};

/* The certificate that a client has shown (api/http/tls.c examines it). */
struct tls_peer {
	enum { TLS_PEER_NONE, TLS_PEER_BAD, TLS_PEER_KNOWN } state;
	const char *reason; /* BAD: why it cannot be trusted (static) */
	size_t count;       /* KNOWN: its names, visible ASCII; there may be none */
	const char *names[TLS_PEER_NAMES_MAX];
	char bytes[TLS_PEER_BYTES_MAX]; /* of the names */
};

/* Rights that an operation requires of its caller. */
enum access_need {
	ACCESS_NOTHING, /* open to all: is it alive, and what is it */
	ACCESS_TOKEN,   /* the token in the request is the right; whose it is does not matter */
	ACCESS_KNOWN,   /* any key or certificate */
	ACCESS_ACQUIRE, /* the right of that name, and a prefix that the resource begins with */
	ACCESS_INSPECT,
	ACCESS_LIST, /* … that the listed prefix begins with */
	ACCESS_ADMIN,
	ACCESS_NEED_COUNT
};

/* A right in key.rights; `need` is ACCESS_ACQUIRE or a later one. */
#define ACCESS_RIGHT(need) (1u << ((need)-ACCESS_ACQUIRE))

/* Credentials and origin of a request and its connection. Nothing is copied. */
struct access_credentials {
	const char *key; /* NULL: none */
	size_t key_len;
	bool other_scheme;                  /* an Authorization that is not Bearer */
	const struct tls_peer *certificate; /* NULL: the client was not asked for one */
};

struct access_caller {
	bool controlled; /* callers are asked who they are; false: nothing below matters */
	bool known;
	const struct key *key; /* NULL: a certificate of the authority alone gives every right but admin, everywhere */
	const char *name;      /* known: for the log; as long as `key`, or the certificate, lives */
	const char *reason;    /* not known: why (static) */
	bool by_key;           /* `hash` is that of the key that was shown; false: a certificate was */
	unsigned char hash[KEY_HASH_LEN];
};

enum access_verdict { ACCESS_ALLOWED, ACCESS_UNKNOWN, ACCESS_NO_RIGHT, ACCESS_NO_PREFIX };

/* Finds the caller of a request. `keys` NULL: there is no --keys. A key takes precedence over a certificate. After a
 * reload, `before` is the caller as it was known, found again by the hash of its key or by its certificate. */
void access_identify(const struct keys *keys, const struct access_credentials *credentials,
		     const struct access_caller *before, struct access_caller *ret_caller);

/* Decides. `bytes` is the resource or the prefix of a listing; NULL: not known yet, and only the right counts. */
enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len) __attribute__((warn_unused_result));

/* The rights of the caller, a set of ACCESS_RIGHT(). With a key they count only for its prefixes. */
unsigned access_rights(const struct access_caller *caller);

/* A part of a request, without NUL. */
struct access_text {
	const char *bytes;
	size_t len; /* 0: there is none */
};

/* The number that Redis stores for an Idempotency-Key: made of the first text, which is the key, the other texts of the
 * request, and the caller. It is the first 64 bits of a SHA-256, never 0, and always the same on all replicas. A key
 * and a certificate with the same name are two callers. */
uint64_t access_hash_idempotency_key(const struct access_caller *caller, const struct access_text texts[],
				     size_t count);

/* The name of a right, "acquire" …; NULL for a need that is not a right. Static. */
const char *access_right_name(enum access_need need);

/* ---- origin.c: the headers Origin and Host: from which page a request comes, and to which name it was sent ---- */

/* True if a request may name this host (the value of Host, with or without a port): localhost and names below it,
 * loopback addresses, and `allowed`. Another name may be that of a page which made its name point here (DNS
 * rebinding). */
bool origin_is_local_host(const char *host, size_t len, const struct options_names *allowed);

/* True if the host is an address, [v6] or v4, and not a name. */
bool origin_is_address(const char *host, size_t len);

/* True if an Origin is that of the service itself, as the request's Host names it. The scheme does not count: a proxy
 * may have ended TLS. */
bool origin_is_same(const char *origin, size_t origin_len, const char *host, size_t host_len);

/* The item of `allowed` that equals the Origin, byte by byte; or NULL. */
const char *origin_find(const char *origin, size_t len, const struct options_names *allowed);

#endif
