/* Who calls, what the caller may do, and how often: rates, keys, certificates, rights, origins, addresses. Any thread.
 *
 * The one header of this folder. It uses server/base alone: what a request holds comes in as plain structs. */
#ifndef AUTH_H
#define AUTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

struct json_error_t; /* of jansson */

/* ---- rate.c: a bound on how often something may happen in a second ---- */

/* All zeros: nothing has been taken yet. */
struct rate {
	_Atomic uint64_t next_ns; /* when the last share ends: see rate.c */
};

/* Takes one of `per_second` (0: no bound), which may also come all at once. `now_us` is a clock that does not go back,
 * less than 500 years old. False: it would be one too many, nothing is taken, and after *ret_retry_ms (at least 1) one
 * can be taken. */
bool rate_take(struct rate *rate, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* True if it has the effect of all zeros, and can be forgotten. */
bool rate_is_rested(const struct rate *rate, uint64_t now_us);

/* ---- keys.c, keys_parse.c: which caller has which rights (docs/how-to/secure.md has the members) ----
 *
 * Loaded keys never change. A reload makes another `struct keys`; a request that still uses the old one keeps a
 * reference to it. Only the usage of a key, its rate and the number of its waiting requests, lives on from one file to
 * the next. */

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

/* The part of a key that outlives a reload; found by the name of the key. */
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

/* Reads the keys file (file.h: SECRET_FILE_TRUSTED). Returns the keys with one reference, the caller's; or NULL
 * and a message of one line that names the file, the member and what is wrong, and never holds a hash. Blocking: for
 * the start and for SIGHUP. */
struct keys *keys_load(const char *path, char *message, size_t message_size) __attribute__((warn_unused_result));

/* The same from memory, at most KEYS_FILE_MAX bytes; the message begins with the member. */
struct keys *keys_parse(const char *bytes, size_t len, char *message, size_t message_size)
	__attribute__((warn_unused_result));

/* Why jansson rejected a text, for files and for bodies (static). Its own message repeats parts of the text. */
const char *keys_json_reason(const struct json_error_t *error);

/* One reference more or less; with the last one they are freed. keys_unref(NULL) does nothing. */
struct keys *keys_ref(struct keys *keys);
void keys_unref(struct keys *keys);

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

/* Counts one request more that may wait; false, and it is not counted, where the key has reached its limit. After true,
 * key_wait_end() once; until then the caller keeps its reference to the keys. */
bool key_wait_begin(const struct key *key) __attribute__((warn_unused_result));
void key_wait_end(const struct key *key);

/* After a reload: a request that was counted with `from` is counted with `to` from now on, even beyond the limit of
 * `to`. */
void key_wait_move(const struct key *from, const struct key *to);

/* ---- access.c: the decision what a caller may do; it is made here alone, and what it does not allow is denied ----
 *
 * A caller is known by a key (Authorization: Bearer, or X-Api-Key) or by a name in its client certificate. Callers are
 * asked who they are with --keys always, with --tls-client-ca over HTTPS; otherwise everybody may do everything. */

/* What an operation requires of its caller. */
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

/* What a request and its connection show of their caller. Nothing of it is copied. */
struct access_credentials {
	const char *key; /* NULL: none */
	size_t key_len;
	bool other_scheme;        /* an Authorization that is not Bearer */
	bool asks_certificate;    /* over HTTPS with --tls-client-ca */
	bool has_certificate;     /* only where one was asked for */
	const char *untrusted;    /* why the certificate cannot be trusted (static); NULL: it can */
	const char *const *names; /* of the certificate */
	size_t name_count;
};

struct access_caller {
	bool controlled; /* callers are asked who they are; false: nothing below matters */
	bool known;
	/* of --keys; NULL: known by a certificate of the authority alone, which gives every right but admin,
	 * everywhere */
	const struct key *key;
	const char *name;   /* known: for the log; as long as `key`, or the certificate, lives */
	const char *reason; /* not known: why (static) */
	bool by_key;        /* `hash` is that of the key that was shown; false: a certificate was */
	unsigned char hash[KEY_HASH_LEN];
};

enum access_verdict { ACCESS_ALLOWED, ACCESS_UNKNOWN, ACCESS_NO_RIGHT, ACCESS_NO_PREFIX };

/* Finds out who calls. `keys` NULL: there is no --keys. A key takes precedence over a certificate.
 *
 * `before` is NULL, or the caller as it was known before a reload: then it is found by the hash of the key that it
 * showed then, or by its certificate, and the key of `credentials` does not count. */
void access_identify(const struct keys *keys, const struct access_credentials *credentials,
		     const struct access_caller *before, struct access_caller *ret_caller);

/* Decides. `bytes` is the resource or the prefix of a listing; NULL: not known yet, and only the right counts. */
enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len) __attribute__((warn_unused_result));

/* The rights that the caller has, a set of ACCESS_RIGHT(); none if it is not known. With a key they count only for its
 * prefixes, else for every resource. */
unsigned access_rights(const struct access_caller *caller);

/* The name of a right, "acquire" …; NULL for a need that is none. Static. */
const char *access_right_name(enum access_need need);

/* ---- origin.c: the headers Origin and Host: from which page a request comes, and to which name it was sent ---- */

enum { ORIGIN_NAMES_MAX = 16 };

/* Names of hosts, or origins, from the options. The texts are borrowed and outlive this. */
struct origin_names {
	size_t count;
	const char *items[ORIGIN_NAMES_MAX];
};

/* True if a request may name this host (the value of Host, with or without a port): localhost and names below it,
 * loopback addresses, and `allowed`. Another name may be that of a page which made its name point here (DNS
 * rebinding). */
bool origin_is_local_host(const char *host, size_t len, const struct origin_names *allowed);

/* True if the host is an address, [v6] or v4, and not a name. */
bool origin_is_address(const char *host, size_t len);

/* True if an Origin is that of the service itself, as the request's Host names it. The scheme does not count: a proxy
 * may have ended TLS. */
bool origin_is_same(const char *origin, size_t origin_len, const char *host, size_t host_len);

/* The item of `allowed` that equals the Origin, byte by byte; or NULL. */
const char *origin_find(const char *origin, size_t len, const struct origin_names *allowed);

/* ---- peers.c: how many connections each client address has open, and how often it sends requests ----
 *
 * One table for the process. An address is the whole of an IPv4 address, also in the form ::ffff:a.b.c.d, and the first
 * 64 bits of an IPv6 address, since one host usually has all the others. Unix sockets have none: their struct peer is
 * NULL and has no bounds. */

/* One address. It stays valid from peer_arrive() to the peer_leave() that belongs to it. */
struct peer;

enum { PEERS_MAX = 65536 };

/* One connection more from `address`, which may have `max_connections` (0: no bound); `now_us` as for rate_take().
 * True: pass *ret_peer (NULL for a Unix socket) to peer_leave() when the connection is closed. False: too many, and
 * nothing is counted. Takes the table's lock. */
bool peer_arrive(const struct sockaddr *address, socklen_t address_len, uint32_t max_connections, uint64_t now_us,
		 struct peer **ret_peer) __attribute__((warn_unused_result));

/* One of its connections is closed (NULL: nothing happens). Takes the table's lock. */
void peer_leave(struct peer *peer, uint64_t now_us);

/* One request more from this address (NULL: always true), which may make `per_second` (0: no bound); as rate_take().
 * Takes no lock. */
bool peer_take(struct peer *peer, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* How many addresses the table holds now. */
size_t peers_count(void);

#endif
