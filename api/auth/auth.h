/* SPDX-License-Identifier: MIT */
/* Identity, rights and rates of callers: keys, certificates, origins, addresses. Any thread.
 *
 * The one header of this folder. The data of a request come as plain structs. */
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

/* Takes one of `per_second` (0: no bound); a burst of as many is allowed. False: the limit is reached, and one can be
 * taken after *ret_retry_ms (at least 1). `now_us` is a clock that does not go back. */
bool rate_take(struct rate *rate, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* Takes `count` more for an event for which rate_take() took one. More than a burst are taken, too, if the rate is not
 * used otherwise; the next event then waits until their time is over. False: the event is refused, so that one is given
 * back, and it can be repeated after *ret_retry_ms. */
bool rate_take_more(struct rate *rate, uint32_t per_second, uint32_t count, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* True if it has no more effect than all zeros, and can be dropped. */
bool rate_is_idle(const struct rate *rate, uint64_t now_us);

/* One client address: all of an IPv4 address (also as ::ffff:a.b.c.d), or the first 64 bits of an IPv6 address, since
 * one host usually has the rest of the network. Unix sockets have none: NULL, without bounds. One table for the
 * process. */
struct peer;

enum { PEERS_MAX = 65536 };

/* Counts a connection from `address`, which may have `max_connections` (0: no bound). True: pass *ret_peer to
 * peer_leave() when the connection is closed. False: too many, and nothing is counted. */
bool peer_arrive(const struct sockaddr *address, socklen_t address_len, uint32_t max_connections, uint64_t now_us,
		 struct peer **ret_peer) __attribute__((warn_unused_result));
void peer_leave(struct peer *peer, uint64_t now_us);

/* Counts a request, like rate_take(). Takes no lock. */
bool peer_take(struct peer *peer, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* The same for rate_take_more(). */
bool peer_take_more(struct peer *peer, uint32_t per_second, uint32_t count, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* Counts a request of the address whose token waits to be verified; `max` may at one time, on all workers. False: too
 * many, and nothing is counted. True: call peer_verify_end() before peer_leave(). */
bool peer_verify_begin(struct peer *peer, uint32_t max) __attribute__((warn_unused_result));
void peer_verify_end(struct peer *peer);

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
	KEY_SECRET_MAX = 256,
	ISSUERS_MAX = 16,
	ISSUER_RULES_MAX = 256, /* `callers` of one issuer */
	ISSUER_MATCH_MAX = 16,  /* claims that one rule names */
	ISSUER_TEXT_MAX =
		256, /* bytes of an issuer, an audience, a claim, a pattern, or a caller's name with its claims */
	JWKS_FILE_MAX = 1 << 18 /* bytes */
};

/* The state of a caller that outlives a reload of the file. It belongs to the caller's name (usages.c). */
struct key_usage {
	struct rate rate;
	_Atomic uint32_t waiting; /* requests under way that may wait */
	unsigned references;      /* only usages.c, under its lock */
	char kind;                /* of usages.c */
	char name[];
};

struct key_prefix {
	const char *bytes; /* UTF-8 without NUL */
	size_t len;        /* 0: every resource */
};

struct key {
	const char *name;
	unsigned rights;                        /* a set of ACCESS_RIGHT() */
	uint32_t max_ttl_ms, rate, max_waiting; /* 0: no bound of its own; rate: requests per second */
	size_t prefix_count, hash_count, certificate_count;
	struct key_prefix *prefixes;
	unsigned char hashes[KEY_HASHES_MAX][KEY_HASH_LEN];
	const char *certificates[KEY_CERTIFICATES_MAX]; /* names */
	struct key_usage *usage;                        /* NULL in a rule, which stands for many callers */
};

/* A claim that a rule names, and the pattern that its value must match. */
struct issuer_match {
	const char *claim, *pattern;
};

/* Callers of one kind: `name` and `prefixes` may have claims in braces. */
struct issuer_rule {
	struct key key;
	size_t match_count;
	struct issuer_match *matches; /* all must hold */
};

/* Signs tokens (JWT) of callers. */
struct issuer {
	const char *name, *audience, *jwks_file;
	struct jwks *jwks; /* NULL until keys_load() has read the file */
	size_t rule_count;
	struct issuer_rule *rules; /* the first that matches counts */
};

/* Made by keys_parse.c, counted and freed by keys.c. */
struct keys {
	atomic_uint references;
	size_t count, issuer_count;
	struct json_t *root; /* owns the texts of the keys and issuers */
	struct issuer *issuers;
	uint64_t files_mark; /* keys_files_mark() before their files were read */
	struct key keys[];   /* in the order of the file */
};

/* Reads the keys file and the files of its issuers (SECRET_FILE_TRUSTED). Returns one reference; or NULL and a message
 * of one line that names file and member and never holds a hash. Blocking: for the start and for SIGHUP.
 *
 * `before`: the keys until now, or NULL. If a file of an issuer is bad, the issuer has the public keys of the same
 * issuer and file in `before`, and there is a message, too; otherwise the message is empty. So a bad file keeps nobody
 * from the removal of a key, nor other issuers from their new keys. */
struct keys *keys_load(const char *path, const struct keys *before, char *message, size_t message_size)
	__attribute__((warn_unused_result));

/* The same with the keys file as it was read for `before`, and the files of its issuers as they are now; never NULL.
 * The message begins with the member. keys_files_mark(): changes with these files; 0: there are none. */
struct keys *keys_load_issuers(const struct keys *before, char *message, size_t message_size)
	__attribute__((warn_unused_result));
uint64_t keys_files_mark(const struct keys *keys);

/* The same for `bytes`, at most KEYS_FILE_MAX, without the files of issuers; the message begins with the member. */
struct keys *keys_parse(const char *bytes, size_t len, char *message, size_t message_size)
	__attribute__((warn_unused_result));

/* Why jansson rejected a text (static). Its own message repeats parts of the text. */
const char *keys_json_reason(const struct json_error_t *error);

/* The last keys_unref() frees the keys. keys_unref(NULL) does nothing. */
struct keys *keys_ref(struct keys *keys);
void keys_unref(struct keys *keys);

/* ---- jwks.c: the public keys of an issuer (RFC 7517) ---- */

/* Parses a set of keys, at most JWKS_FILE_MAX bytes. NULL: a message that begins with the member. */
struct jwks *jwks_parse(const char *bytes, size_t len, char *message, size_t message_size)
	__attribute__((warn_unused_result));
void jwks_free(struct jwks *jwks); /* NULL: does nothing */

/* ---- token.c: tokens (JWT, RFC 7519) that an issuer has signed, and the callers that they stand for ---- */

enum { TOKEN_MAX = 8192 /* bytes */, TOKEN_SKEW_S = 60 /* clocks of issuers may differ by this */ };

/* Why a token is refused; each has a counter. */
enum token_refusal {
	TOKEN_GOOD,
	TOKEN_MALFORMED,
	TOKEN_TOO_LARGE,
	TOKEN_ALGORITHM,
	TOKEN_CRITICAL,
	TOKEN_ISSUER,
	TOKEN_AUDIENCE,
	TOKEN_NO_EXPIRY,
	TOKEN_EXPIRED,
	TOKEN_EARLY,
	TOKEN_KEY,
	TOKEN_SIGNATURE,
	TOKEN_NO_RULE,
	TOKEN_REFUSALS
};

/* A token with a good signature. It belongs to one thread. */
struct token {
	unsigned references;
	int64_t end_s;                      /* it is valid until then, in seconds since 1970 */
	struct key key;                     /* the caller; owns its texts. Without a name: no rule matches */
	char *unmatched;                    /* then: the claims that came, for an answer */
	unsigned char signer[KEY_HASH_LEN]; /* identifies the key that has signed it */
	LIST_ENTRY(token) others;           /* of token_cache.c */
	TAILQ_ENTRY(token) entry;
	size_t len;
	char bytes[]; /* as it came */
};

/* True for three parts with full stops between them. */
bool token_is_like(const char *bytes, size_t len);

/* Checks all but the signature. TOKEN_GOOD: verifying it is worth its time. `now_s`: seconds since 1970. */
enum token_refusal token_check(const struct keys *keys, const char *bytes, size_t len, int64_t now_s);

/* The same with the signature, which takes 0.03 to 0.3 ms. TOKEN_GOOD, also if no rule matches: *ret_token is a new
 * reference. */
enum token_refusal token_verify(const struct keys *keys, const char *bytes, size_t len, int64_t now_s,
				struct token **ret_token);

/* After a reload: the same for a token that was verified before, whose signer must still be there. */
enum token_refusal token_review(const struct keys *keys, const struct token *before, int64_t now_s,
				struct token **ret_token);

/* The explanation for an answer (static). */
const char *token_reason(enum token_refusal refusal);

void token_unref(struct token *token); /* NULL: does nothing */
static inline struct token *token_ref(struct token *token)
{
	token->references++;
	return token;
}

/* ---- token_cache.c: the tokens that one worker has verified with its present keys ---- */

enum { TOKEN_CACHE_MAX = 8192 };

struct token_cache *token_cache_new(void);
void token_cache_free(struct token_cache *cache);

/* A new reference to the token with these bytes, or NULL. Other keys than before empty the cache. */
struct token *token_cache_find(struct token_cache *cache, struct keys *keys, const char *bytes, size_t len,
			       int64_t now_s);

/* Adds a token that token_cache_find() did not find; the one that was not used for longest may have to go. */
void token_cache_add(struct token_cache *cache, struct token *token);

/* ---- token_newer.c: newer tokens of callers whose connection holds a lease ----
 *
 * A connection lasts longer than the token with which it began. Its client sends a newer one with an extension of the
 * lease. Only the holder knows the token of the lease, so nobody else who has an earlier token of the caller can go on
 * with it. Any thread. */

struct token_newer;

/* A reference to the entry of the lease with this text, for which a newer token may come. NULL: put does nothing. */
struct token_newer *token_newer_get(const char *lease, size_t len);
void token_newer_put(struct token_newer *newer);

/* True if a newer token may come for some lease. Takes no lock. */
bool token_newer_is_expected(void);

/* A caller that knows the text of the lease has sent this verified token. It is kept if the lease has an entry, and if
 * it ends later than an earlier one. */
void token_newer_offer(const char *lease, size_t len, const struct token *token);

/* A copy of the one that ends last, on the heap, for access_identify(); NULL: none has come. */
char *token_newer_copy(struct token_newer *newer, size_t *ret_len);

/* ---- access.c: the caller of a request, and what it may do: the only place that decides it; everything that is not
 * allowed is denied ----
 *
 * A caller is known by a key or a token (Authorization: Bearer, or X-Api-Key) or by a name in its client certificate.
 * Authentication is required with --keys, and over HTTPS with --tls-client-ca; otherwise everybody may do
 * everything. */

/* The key whose text the caller sent, or NULL; *ret_hash is for keys_find_hash(). The result lives as long as a
 * reference to `keys`. */
const struct key *keys_find(const struct keys *keys, const char *secret, size_t len,
			    unsigned char ret_hash[KEY_HASH_LEN]);
const struct key *keys_find_hash(const struct keys *keys, const unsigned char hash[KEY_HASH_LEN]);

/* The key with the first of a certificate's names (terminated) that is in the file, or NULL. */
const struct key *keys_find_certificate(const struct keys *keys, const char *const names[], size_t count);

/* True if the bytes begin with one of the key's prefixes. The bytes are a decoded resource, or the prefix of a
 * listing. */
bool key_allows_prefix(const struct key *key, const char *bytes, size_t len);

/* Counts a request that may wait. False: the key has reached its limit, and nothing is counted. True: call
 * key_wait_end() once, and keep the reference to the keys until then. */
bool key_wait_begin(const struct key *key) __attribute__((warn_unused_result));
void key_wait_end(const struct key *key);

/* After a reload: a request that was counted with `from` is counted with `to`, even beyond the limit of `to`. */
void key_wait_move(const struct key *from, const struct key *to);

enum {
	TLS_PEER_NAMES_MAX = 16,  /* of one client certificate; more are ignored */
	TLS_PEER_BYTES_MAX = 4096 /* of all its names, each with a NUL */
};

/* The certificate of a client (api/http/tls.c examines it). */
struct tls_peer {
	enum { TLS_PEER_NONE, TLS_PEER_BAD, TLS_PEER_KNOWN } state;
	const char *reason; /* BAD: why it cannot be trusted (static) */
	size_t count;       /* KNOWN: its names, visible ASCII; there may be none */
	const char *names[TLS_PEER_NAMES_MAX];
	char bytes[TLS_PEER_BYTES_MAX]; /* of the names */
};

/* Rights that an operation requires of its caller. */
enum access_need {
	ACCESS_NOTHING, /* open to all: health and version */
	ACCESS_TOKEN,   /* the token in the request, from any caller */
	ACCESS_KNOWN,   /* any key or certificate */
	ACCESS_ACQUIRE, /* the right of that name, and a prefix that the resource begins with */
	ACCESS_INSPECT,
	ACCESS_LIST, /* the same, and a prefix that the listed prefix begins with */
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
	const struct tls_peer *certificate; /* NULL: the client was not asked for a certificate */
	struct token_cache *tokens;         /* NULL: no token was verified before */
};

struct access_caller {
	bool controlled; /* authentication is required; false: nothing below matters */
	bool known;
	const struct key *key; /* NULL: a certificate of the authority gives every right but admin, for all resources */
	const char *name;      /* known: for the log; as long as `key`, or the certificate, lives */
	const char *reason;    /* not known: why (static, or the token's) */
	struct token *token;   /* a reference, if known by one, or if no rule matches it; access_forget() drops it */
	bool unverified;       /* by a token whose signature has not been verified: not known yet */
	enum token_refusal refusal; /* by a token, and not known: why */
	bool by_key;                /* by a key, whose hash is `hash`; false: by a token or a certificate */
	unsigned char hash[KEY_HASH_LEN];
};

enum access_verdict { ACCESS_ALLOWED, ACCESS_UNKNOWN, ACCESS_NO_RULE, ACCESS_NO_RIGHT, ACCESS_NO_PREFIX };

/* Finds the caller of a request. `keys` NULL: there is no --keys. A key takes precedence over a certificate. After a
 * reload, `before` is the former caller, which is found again by the hash of its key, by its token or by its
 * certificate. */
void access_identify(struct keys *keys, const struct access_credentials *credentials,
		     const struct access_caller *before, struct access_caller *ret_caller);

/* Verifies the token of an `unverified` caller, which is known then, or not. */
void access_verify(struct keys *keys, const struct access_credentials *credentials, struct access_caller *caller);

void access_forget(struct access_caller *caller);

/* Decides; not for an `unverified` caller. `bytes` is the resource or the prefix of a listing; NULL: not known yet, and
 * only the right counts. */
enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len) __attribute__((warn_unused_result));

/* The rights of the caller, a set of ACCESS_RIGHT(). With a key they count only for its prefixes. */
unsigned access_rights(const struct access_caller *caller);

/* A part of a request, without NUL. */
struct access_text {
	const char *bytes;
	size_t len; /* 0: there is none */
};

/* The number that Redis stores for an Idempotency-Key: the first 64 bits of a SHA-256 over the key (the first text),
 * the other texts of the request, and the caller. It is never 0, and the same on all replicas. A key, a token
 * and a certificate with the same name are three callers. */
uint64_t access_hash_idempotency_key(const struct access_caller *caller, const struct access_text texts[],
				     size_t count);

/* The name of a right, "acquire" …; NULL for a need that is not a right. Static. */
const char *access_right_name(enum access_need need);

/* ---- origin.c: the headers Origin and Host: the page that a request comes from, and the name that it was sent to
 * ---- */

/* True if a request may name this host (the value of Host, with or without a port): localhost and names below it,
 * loopback addresses, and `allowed`. Any other name may belong to a page whose DNS record points here (DNS
 * rebinding). */
bool origin_is_local_host(const char *host, size_t len, const struct options_names *allowed);

/* True if the host is an address, [v6] or v4, and not a name. */
bool origin_is_address(const char *host, size_t len);

/* True if an Origin is that of the service itself, by the request's Host. The scheme does not count, because a proxy
 * may end TLS. */
bool origin_is_same(const char *origin, size_t origin_len, const char *host, size_t host_len);

/* The item of `allowed` that equals the Origin, byte by byte; or NULL. */
const char *origin_find(const char *origin, size_t len, const struct options_names *allowed);

#endif
