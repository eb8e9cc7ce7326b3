/* The decision itself, without a request and without a reply: see auth.h. Pure functions; any thread. */
#include <assert.h>
#include <string.h>

#include "auth.h"

/* Every right but admin: what a certificate of the authority gives where there is no keys file. */
enum { CERTIFICATE_RIGHTS = ACCESS_RIGHT(ACCESS_ACQUIRE) | ACCESS_RIGHT(ACCESS_INSPECT) | ACCESS_RIGHT(ACCESS_LIST) };

const char *access_right_name(enum access_need need)
{
	static const char *const names[ACCESS_NEED_COUNT] = {
		[ACCESS_ACQUIRE] = "acquire",
		[ACCESS_INSPECT] = "inspect",
		[ACCESS_LIST] = "list",
		[ACCESS_ADMIN] = "admin",
	};

	assert(need < ACCESS_NEED_COUNT);
	return names[need];
}

void access_identify(const struct keys *keys, const struct access_credentials *credentials,
		     const struct access_caller *before, struct access_caller *ret_caller)
{
	bool by_key = before ? before->by_key : credentials->key && (keys || !credentials->has_certificate);
	bool controlled = before ? before->controlled : keys || credentials->asks_certificate;
	struct access_caller caller = {.controlled = controlled, .by_key = controlled && by_key};

	static const char unknown_key[] = "The key is not known to this server. Check it, or ask the operator for one.";
	assert(credentials->asks_certificate || !credentials->has_certificate);
	assert(credentials->has_certificate || !credentials->untrusted);
	assert(!before || !before->controlled || (before->known && (by_key || credentials->has_certificate)));
	assert(!before || !by_key || keys); /* --keys is there from the start or never */
	if (!controlled) {
		*ret_caller = caller;
		return;
	}
	if (by_key && before) {
		memcpy(caller.hash, before->hash, KEY_HASH_LEN);
		caller.key = keys_find_hash(keys, caller.hash);
		caller.reason = unknown_key;
	} else if (by_key) {
		caller.key = keys ? keys_find(keys, credentials->key, credentials->key_len, caller.hash) : NULL;
		caller.reason = keys ? unknown_key : "This server takes a client certificate, not a key.";
	} else if (credentials->untrusted) {
		caller.reason = credentials->untrusted;
	} else if (credentials->has_certificate && keys) {
		caller.key = keys_find_certificate(keys, credentials->names, credentials->name_count);
		caller.reason = "No name in the client certificate is in the keys file. Ask the operator to add one.";
	} else if (credentials->has_certificate) {
		caller.name = credentials->name_count > 0 ? credentials->names[0] : "certificate";
	} else if (credentials->other_scheme) {
		caller.reason = "The scheme of Authorization must be Bearer. Send Authorization: Bearer KEY.";
	} else {
		caller.reason =
			keys ? "A key is needed. Send Authorization: Bearer KEY, or X-Api-Key: KEY."
			     : "A client certificate is needed. Send one of an authority that this server trusts.";
	}
	if (caller.key)
		caller.name = caller.key->name;
	caller.known = caller.name != NULL;
	if (caller.known)
		caller.reason = NULL;
	*ret_caller = caller;
}

unsigned access_rights(const struct access_caller *caller)
{
	assert(!caller->known || caller->controlled);
	if (!caller->controlled)
		return CERTIFICATE_RIGHTS | ACCESS_RIGHT(ACCESS_ADMIN);
	return caller->key ? caller->key->rights : caller->known ? CERTIFICATE_RIGHTS : 0;
}

enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len)
{
	assert(need < ACCESS_NEED_COUNT && (!caller->known || caller->controlled));
	if (!caller->controlled || need == ACCESS_NOTHING || need == ACCESS_TOKEN)
		return ACCESS_ALLOWED;
	if (!caller->known)
		return ACCESS_UNKNOWN;
	if (need == ACCESS_KNOWN)
		return ACCESS_ALLOWED;
	if ((access_rights(caller) & ACCESS_RIGHT(need)) == 0)
		return ACCESS_NO_RIGHT;
	if (!bytes || !caller->key)
		return ACCESS_ALLOWED;
	return key_allows_prefix(caller->key, bytes, len) ? ACCESS_ALLOWED : ACCESS_NO_PREFIX;
}
