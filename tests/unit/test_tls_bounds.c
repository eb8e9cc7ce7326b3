/* SPDX-License-Identifier: MIT */
/* Bounds on the certificates of clients: their keys and sizes. In a handshake: tests/e2e/test_tls_absurd.py. */
#include <check.h>
#include <gnutls/x509.h>

#include "absurd_certificate.h"
#include "api/http/http.h"
#include "suite.h"

static const struct {
	const char *words, *reason; /* NULL: it is taken */
} certificates[] = {
	{"ec", NULL},
	{"rsa:2048:17", NULL},
	{"rsa:8192:64", NULL},
	{"rsa:8193:17", "RSA modulus over 8192 bits"},
	{"rsa:8192:65", "RSA exponent over 64 bits"},
	{"rsa:2048:2047", "RSA exponent over 64 bits"},
	{"rsa:60000:17", "RSA modulus over 8192 bits"},
	{"rsa:70000:17", "certificate over 8 KiB"},
	{"pss:4096:17", NULL},
	{"pss:16384:17", "RSA modulus over 8192 bits"},
	{"ed25519", NULL},
	{"ed448", NULL},
	{"dsa", "key neither RSA, ECDSA nor EdDSA"},
	{"gost", "key neither RSA, ECDSA nor EdDSA"},
	{"names:1000", NULL},
	{"names:3000", "certificate over 8 KiB"},
	{"purposes:100", NULL},
	{"purposes:200", "too many key purposes"},
};
enum { CERTIFICATES = sizeof certificates / sizeof *certificates };

TEST_EACH(a_certificate, 0, CERTIFICATES)
{
	struct absurd_chain chain;
	absurd_chain_init(&chain, certificates[_i].words, NULL, NULL);
	const char *reason = tls_bounds_examine(chain.certs[0].data, chain.certs[0].size);
	ck_assert_pstr_eq(reason, certificates[_i].reason);
	absurd_chain_fini(&chain);
}

TEST(rubbish_is_refused)
{
	ck_assert_ptr_nonnull(tls_bounds_examine("no certificate", 14));
	ck_assert_ptr_nonnull(tls_bounds_examine("", 0));
}
