/* Which caller may do what. The decision is made here alone, before any handler runs; what it does not allow is denied.
 *
 * A caller is known by a key (Authorization: Bearer, or X-Api-Key) or by a name in its client certificate. Callers are
 * asked who they are with --keys always, with --tls-client-ca over HTTPS; otherwise everybody may do everything. */
#ifndef ACCESS_H
#define ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "keys.h"

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

/* Finds out who calls. `keys` NULL: there is no --keys. A key takes precedence over a certificate. */
void access_identify(const struct keys *keys, const struct access_credentials *credentials,
		     struct access_caller *ret_caller);

/* The same after a reload, for a caller that was known before: by the hash of the key that it showed then, or by its
 * certificate. The key of `credentials` does not count. */
void access_identify_again(const struct keys *keys, const struct access_caller *before,
			   const struct access_credentials *credentials, struct access_caller *ret_caller);

/* Decides. `bytes` is the resource or the prefix of a listing; NULL: not known yet, and only the right counts. */
enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len) __attribute__((warn_unused_result));

/* The name of a right, "acquire" …; NULL for a need that is none. */
const char *access_right_name(enum access_need need);

#endif
