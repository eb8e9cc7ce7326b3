/* Who may do what. The one place that decides, before any handler runs, and what it does not allow is denied.
 *
 * A caller is known by a key (Authorization: Bearer, or X-Api-Key) or by the name in his client certificate. Whether
 * anybody is asked at all is a matter of the connection: with --keys always, with --tls-client-ca over HTTPS; else
 * everybody may do everything. */
#ifndef ACCESS_H
#define ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "keys.h"

struct headers;
struct tls_peer;

/* What a call asks of its caller. */
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

struct access_caller {
	bool controlled; /* callers are asked who they are; false: nothing below matters */
	bool known;
	/* of --keys; NULL: known by a certificate of the authority alone, which gives every right but admin,
	 * everywhere */
	const struct key *key;
	const char *name;   /* known: for the log; as long as `key`, or the connection, lives */
	const char *reason; /* not known: why (static) */
	bool by_key;        /* `hash` is that of the key that was shown; false: a certificate was */
	unsigned char hash[KEY_HASH_LEN];
};

enum access_verdict { ACCESS_ALLOWED, ACCESS_UNKNOWN, ACCESS_NO_RIGHT, ACCESS_NO_PREFIX };

/* Finds out who calls. `keys` NULL: there is no --keys; `peer` NULL: not over TLS with --tls-client-ca. A key goes
 * before a certificate. */
void access_identify(const struct keys *keys, const struct headers *headers, const struct tls_peer *peer,
		     struct access_caller *ret_caller);

/* The same after a reload, for a caller that was known before: by the hash of the key that it showed then, or by its
 * certificate. */
void access_identify_again(const struct keys *keys, const struct access_caller *before, const struct tls_peer *peer,
			   struct access_caller *ret_caller);

/* Decides. `bytes` is the resource or the prefix of a listing; NULL: not known yet, and only the right counts. */
enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len) __attribute__((warn_unused_result));

/* The name of a right, "acquire" …; NULL for a need that is none. */
const char *access_right_name(enum access_need need);

#endif
