/* SPDX-License-Identifier: MIT */
/* Access: each combination of need, kind of caller, set of rights, and relation of prefix and resource, compared with a
 * second implementation of the rule; the need of each route, compared with the documentation. */
#include <check.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <string.h>

#include "api/auth/auth.h"
#include "api/calls/calls_internal.h"
#include "suite.h"

#define SECRET "rlk_a-key-for-these-tests-alone"

/* A prefix, a resource (or the prefix of a listing), and whether the one allows the other: by bytes alone. */
static const struct {
	const char *prefix, *resource;
	bool within;
} relations[] = {
	{"orders/", "orders/1", true},
	{"orders/", "orders/", true},
	{"orders/", "orders", false},
	{"orders/", "orders2/1", false},
	{"orders", "orders2", true},
	{"orders/1", "orders/1", true},
	{"orders/1", "orders/12", true},
	{"orders/12", "orders/1", false},
	{"orders/", "Orders/1", false},
	{"orders/", "/orders/1", false},
	{"orders/", "orders/../invoices/1", true},
	{"orders/", "invoices/1", false},
	{"orders/", "orders%2f1", false},
	{"orders/", "", false},
	{"", "", true},
	{"", "anything at all", true},
	{"caf\\u00e9/", "caf\xc3\xa9/1", true},
	{"caf\\u00e9/", "cafe\xcc\x81/1", false},
};
enum { RELATIONS = sizeof relations / sizeof *relations };

static struct keys *make_keys(const char *prefix, unsigned rights)
{
	char text[1024], list[128] = "", hash[2 * KEY_HASH_LEN + 1] = "", message[KEYS_MESSAGE_MAX];
	unsigned char digest[KEY_HASH_LEN];

	ck_assert_int_eq(gnutls_hash_fast(GNUTLS_DIG_SHA256, SECRET, sizeof SECRET - 1, digest), 0);
	hex_write(digest, sizeof digest, hash);
	for (enum access_need need = ACCESS_ACQUIRE; need < ACCESS_NEED_COUNT; need++)
		if (rights & ACCESS_RIGHT(need))
			snprintf(list + strlen(list), sizeof list - strlen(list), "%s\"%s\"",
				 list[0] != '\0' ? "," : "", access_right_name(need));
	snprintf(text, sizeof text,
		 "{\"keys\":[{\"name\":\"k\",\"sha256\":\"%s\",\"certificates\":[\"a.example\"],\"prefixes\":[\"%s\"],"
		 "\"rights\":[%s]}]}",
		 hash, prefix, list);
	struct keys *keys = keys_parse(text, strlen(text), message, sizeof message);
	ck_assert_msg(keys != NULL, "%s", message);
	return keys;
}

/* The rule again, from the documentation. */
static enum access_verdict expected(enum access_need need, bool known, unsigned rights, bool within)
{
	static const unsigned wanted[ACCESS_NEED_COUNT] = {
		[ACCESS_ACQUIRE] = 1, [ACCESS_INSPECT] = 2, [ACCESS_LIST] = 4, [ACCESS_ADMIN] = 8};

	if (need == ACCESS_NOTHING || need == ACCESS_TOKEN)
		return ACCESS_ALLOWED;
	if (!known)
		return ACCESS_UNKNOWN;
	if (need == ACCESS_KNOWN)
		return ACCESS_ALLOWED;
	if ((rights & wanted[need]) == 0)
		return ACCESS_NO_RIGHT;
	return within ? ACCESS_ALLOWED : ACCESS_NO_PREFIX;
}

static void check_needs(const struct access_caller *caller, bool known, unsigned rights, const char *resource,
			bool within, unsigned *cases)
{
	for (enum access_need need = 0; need < ACCESS_NEED_COUNT; need++, ++*cases) {
		enum access_verdict verdict = access_decide(need, caller, resource, strlen(resource));
		ck_assert_msg(verdict == expected(need, known, rights, within), "need %d, rights %u, %s: %d", (int)need,
			      rights, resource, (int)verdict);
		/* The decision by the right alone is the same before the resource is known. */
		verdict = access_decide(need, caller, NULL, 0);
		ck_assert_int_eq(verdict, expected(need, known, rights, true));
	}
}

#define KEY(text) .key = text, .key_len = sizeof text - 1
#define SHOWN(...)                              \
	.certificate = &(const struct tls_peer) \
	{                                       \
		__VA_ARGS__                     \
	}
#define TRUSTED(name) SHOWN(.state = TLS_PEER_KNOWN, .names = {name}, .count = 1)
#define EXPIRED SHOWN(.state = TLS_PEER_BAD, .reason = "The client certificate has expired.")
#define NONE SHOWN(.state = TLS_PEER_NONE)

TEST(every_need_right_and_prefix)
{
	const struct {
		struct access_credentials credentials;
		bool known;
	} callers[] = {
		{{KEY(SECRET)}, true},
		{{KEY(SECRET), NONE}, true},
		{{KEY(SECRET), EXPIRED}, true},
		{{TRUSTED("a.example")}, true},
		{{0}, false},
		{{.other_scheme = true}, false},
		{{NONE}, false},
		{{TRUSTED("b.example")}, false},
		{{EXPIRED}, false},
		{{KEY("rlk_a-key-that-nobody-has")}, false},
		{{KEY("rlk_a-key-that-nobody-has"), TRUSTED("a.example")}, false},
		{{.key = SECRET, .key_len = sizeof SECRET - 2}, false},
	};
	enum { CALLERS = sizeof callers / sizeof *callers };
	struct access_caller caller;
	unsigned cases = 0;

	for (unsigned rights = 1; rights < 16; rights++)
		for (size_t r = 0; r < RELATIONS; r++) {
			struct keys *keys = make_keys(relations[r].prefix, rights);
			for (size_t c = 0; c < CALLERS; c++) {
				access_identify(keys, &callers[c].credentials, NULL, &caller);
				ck_assert(caller.controlled && caller.known == callers[c].known);
				ck_assert(caller.known ? strcmp(caller.name, "k") == 0 : caller.reason != NULL);
				ck_assert_uint_eq(access_rights(&caller), caller.known ? rights : 0);
				check_needs(&caller, callers[c].known, rights, relations[r].resource,
					    relations[r].within, &cases);
			}
			keys_unref(keys);
		}
	ck_assert_uint_eq(cases, 15 * RELATIONS * CALLERS * ACCESS_NEED_COUNT);
}

/* With --tls-client-ca alone, a certificate gives every right but admin. */
TEST(a_certificate_without_a_keys_file)
{
	const struct {
		struct access_credentials credentials;
		const char *name; /* NULL: not known */
	} callers[] = {
		{{TRUSTED("a.example")}, "a.example"},
		{{KEY(SECRET), TRUSTED("a.example")}, "a.example"}, /* no keys: the certificate counts */
		{{SHOWN(.state = TLS_PEER_KNOWN)}, "certificate"},
		{{NONE}, NULL},
		{{KEY(SECRET), NONE}, NULL},
		{{EXPIRED}, NULL},
	};
	struct access_caller caller;
	unsigned cases = 0;

	for (size_t c = 0; c < sizeof callers / sizeof *callers; c++) {
		access_identify(NULL, &callers[c].credentials, NULL, &caller);
		ck_assert_pstr_eq(caller.name, callers[c].name);
		check_needs(&caller, callers[c].name != NULL, callers[c].name ? 1 | 2 | 4 : 0, "anything", true,
			    &cases);
	}
	ck_assert_uint_eq(cases, sizeof callers / sizeof *callers * ACCESS_NEED_COUNT);
}

TEST(nobody_is_asked_without_keys_and_certificates)
{
	const struct access_credentials wrong = {KEY("whatever-it-is-16")};
	struct access_caller caller;

	access_identify(NULL, &wrong, NULL, &caller);
	ck_assert(!caller.controlled);
	for (enum access_need need = 0; need < ACCESS_NEED_COUNT; need++)
		ck_assert_int_eq(access_decide(need, &caller, "x", 1), ACCESS_ALLOWED);
}

/* After a reload, the hash of the key or the certificate is looked up in the new file; the key itself is not kept. */
TEST(a_known_caller_is_identified_again)
{
	char message[KEYS_MESSAGE_MAX];
	const struct access_credentials key = {KEY(SECRET)}, certificate = {TRUSTED("a.example")}, expired = {EXPIRED},
					nothing = {0};
	struct keys *before = make_keys("orders/", ACCESS_RIGHT(ACCESS_LIST)),
		    *after = make_keys("bills/", ACCESS_RIGHT(ACCESS_ACQUIRE));
	const char other[] = "{\"keys\":[{\"name\":\"other\",\"certificates\":[\"b.example\"],\"prefixes\":[\"\"],"
			     "\"rights\":[\"list\"]}]}";
	struct keys *without = keys_parse(other, sizeof other - 1, message, sizeof message);
	struct access_caller first, again;

	access_identify(before, &key, NULL, &first);
	access_identify(after, &nothing, &first, &again);
	ck_assert(again.known && again.by_key && again.key->rights == ACCESS_RIGHT(ACCESS_ACQUIRE));
	ck_assert_mem_eq(again.hash, first.hash, KEY_HASH_LEN);
	access_identify(without, &nothing, &first, &again);
	ck_assert(!again.known && again.controlled);
	ck_assert_ptr_nonnull(strstr(again.reason, "The key is not known"));

	access_identify(before, &certificate, NULL, &first);
	access_identify(after, &certificate, &first, &again);
	ck_assert(again.known && !again.by_key && again.key->rights == ACCESS_RIGHT(ACCESS_ACQUIRE));
	access_identify(after, &expired, &first, &again);
	ck_assert_str_eq(again.reason, "The client certificate has expired.");
	access_identify(without, &certificate, &first, &again);
	ck_assert_ptr_nonnull(strstr(again.reason, "No name in the client certificate is in the keys file."));

	access_identify(NULL, &key, NULL, &first);
	access_identify(NULL, &nothing, &first, &again);
	ck_assert(!again.controlled && !again.known);
	keys_unref(before);
	keys_unref(after);
	keys_unref(without);
}

/* The need of each route, as in README and openapi.yaml. A new route must be added here. */
TEST(what_the_routes_need)
{
	static const struct {
		const char *name;
		enum access_need need;
	} documented[] = {
		{"acquire", ACCESS_ACQUIRE}, {"extend", ACCESS_TOKEN},    {"extend", ACCESS_TOKEN},
		{"release", ACCESS_ADMIN},                              /* forced */
		{"release", ACCESS_TOKEN},   {"release", ACCESS_ADMIN}, /* forced */
		{"release", ACCESS_TOKEN},   {"inspect", ACCESS_INSPECT}, {"list", ACCESS_LIST},
		{"inspect", ACCESS_INSPECT}, {"healthz", ACCESS_NOTHING}, {"readyz", ACCESS_NOTHING},
		{"metrics", ACCESS_KNOWN},   {"masters", ACCESS_KNOWN},   {"stats", ACCESS_KNOWN},
		{"whoami", ACCESS_KNOWN},    {"openapi", ACCESS_NOTHING}, {"docs", ACCESS_NOTHING},
		{"version", ACCESS_KNOWN},   {"page", ACCESS_NOTHING},
	};

	ck_assert_uint_eq(sizeof documented / sizeof *documented, ROUTE_COUNT);
	for (size_t i = 0; i < ROUTE_COUNT; i++) {
		ck_assert_str_eq(route_table[i].name, documented[i].name);
		ck_assert_int_eq(route_table[i].need, documented[i].need);
		bool can_be_refused = documented[i].need != ACCESS_NOTHING && documented[i].need != ACCESS_TOKEN;
		ck_assert_int_eq(route_may_answer(&route_table[i], 401, "unauthorized"), can_be_refused);
		ck_assert(route_may_answer(&route_table[i], 403, "forbidden"));
	}
}

TEST(rights_have_names)
{
	static const char *const names[ACCESS_NEED_COUNT] = {[ACCESS_ACQUIRE] = "acquire",
							     [ACCESS_INSPECT] = "inspect",
							     [ACCESS_LIST] = "list",
							     [ACCESS_ADMIN] = "admin"};

	for (enum access_need need = 0; need < ACCESS_NEED_COUNT; need++)
		ck_assert_pstr_eq(access_right_name(need), names[need]);
}
