/* The decision itself, without a request and without a reply: see access.h. Pure functions; any thread. */
#include "access.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* Every right but admin: what a certificate of the authority gives where there is no keys file. */
enum { CERTIFICATE_RIGHTS = KEY_ACQUIRE | KEY_INSPECT | KEY_LIST };

/* The right that a need asks for; 0: none. */
static unsigned right_of(enum access_need need)
{
	static const unsigned rights[ACCESS_NEED_COUNT] = {
		[ACCESS_ACQUIRE] = KEY_ACQUIRE,
		[ACCESS_INSPECT] = KEY_INSPECT,
		[ACCESS_LIST] = KEY_LIST,
		[ACCESS_ADMIN] = KEY_ADMIN,
	};

	assert(need < ACCESS_NEED_COUNT);
	return rights[need];
}

const char *access_right_name(enum access_need need)
{
	unsigned right = right_of(need);

	return right != 0 ? key_right_name((enum key_right)right) : NULL;
}

static void identify_by_key(const struct key *key, struct access_caller *caller)
{
	assert(!caller->known && !caller->name);
	caller->by_key = true;
	caller->key = key;
	if (key)
		caller->name = key->name;
	else
		caller->reason = "The key is not known.";
}

static void identify_by_certificate(const struct keys *keys, const struct access_credentials *credentials,
				    struct access_caller *caller)
{
	assert(!caller->known && !caller->name);
	assert(credentials->has_certificate);
	if (credentials->untrusted) {
		caller->reason = credentials->untrusted;
		return;
	}
	if (!keys) {
		caller->name = credentials->name_count > 0 ? credentials->names[0] : "certificate";
		return;
	}
	caller->key = keys_find_certificate(keys, credentials->names, credentials->name_count);
	if (caller->key)
		caller->name = caller->key->name;
	else
		caller->reason = "No name in the client certificate is in the keys file.";
}

void access_identify(const struct keys *keys, const struct access_credentials *credentials,
		     struct access_caller *ret_caller)
{
	assert(credentials->asks_certificate || !credentials->has_certificate);
	*ret_caller = (struct access_caller){.controlled = keys || credentials->asks_certificate};
	if (!ret_caller->controlled)
		return;
	if (credentials->key && (keys || !credentials->has_certificate))
		identify_by_key(keys ? keys_find(keys, credentials->key, credentials->key_len, ret_caller->hash) : NULL,
				ret_caller);
	else if (credentials->has_certificate)
		identify_by_certificate(keys, credentials, ret_caller);
	else if (credentials->other_scheme)
		ret_caller->reason = "The Authorization scheme must be Bearer.";
	else
		ret_caller->reason = keys ? "A key is needed, as Authorization: Bearer KEY or X-Api-Key: KEY."
					  : "A client certificate is needed.";
	ret_caller->known = ret_caller->name != NULL;
	assert(ret_caller->known == !ret_caller->reason);
}

void access_identify_again(const struct keys *keys, const struct access_caller *before,
			   const struct access_credentials *credentials, struct access_caller *ret_caller)
{
	assert(!before->controlled || before->known);
	assert(!before->by_key || keys); /* --keys is there from the start or never */
	*ret_caller = (struct access_caller){.controlled = before->controlled};
	if (before->by_key) {
		memcpy(ret_caller->hash, before->hash, KEY_HASH_LEN);
		identify_by_key(keys_find_hash(keys, before->hash), ret_caller);
	} else if (before->controlled) {
		identify_by_certificate(keys, credentials, ret_caller);
	}
	ret_caller->known = ret_caller->name != NULL;
}

enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len)
{
	unsigned right = right_of(need);

	assert(!caller->known || caller->controlled);
	if (!caller->controlled || need == ACCESS_NOTHING || need == ACCESS_TOKEN)
		return ACCESS_ALLOWED;
	if (!caller->known)
		return ACCESS_UNKNOWN;
	if (need == ACCESS_KNOWN)
		return ACCESS_ALLOWED;
	assert(right != 0);
	if (((caller->key ? caller->key->rights : CERTIFICATE_RIGHTS) & right) == 0)
		return ACCESS_NO_RIGHT;
	if (!bytes || !caller->key)
		return ACCESS_ALLOWED;
	return key_allows_prefix(caller->key, bytes, len) ? ACCESS_ALLOWED : ACCESS_NO_PREFIX;
}
