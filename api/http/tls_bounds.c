/* SPDX-License-Identifier: MIT */
/* Bounds on the certificates of clients. See http.h.
 *
 * GnuTLS checks a signature with any key of a certificate, which a stranger may choose: an RSA key of 60,000 bits costs
 * ten seconds of the loop. So every certificate of the chain is examined before the first signature is checked. GnuTLS
 * also parses the purposes of a key once for each of them. Any thread. */
#include <assert.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "http_internal.h"

enum {
	CHAIN_MAX = 8,
	CERTIFICATE_MAX = 8 * 1024, /* bytes */
	MODULUS_BITS_MAX = 8192,
	EXPONENT_BITS_MAX = 64,
	PURPOSES_MAX = 512 /* bytes of the extended key usage */
};

/* The length of a number without a sign. */
static size_t bits_of(const gnutls_datum_t *number)
{
	size_t zeros = 0;
	while (zeros < number->size && number->data[zeros] == 0)
		zeros++;
	return (number->size - zeros) * 8;
}

static const char *examine_rsa(gnutls_x509_crt_t cert)
{
	gnutls_datum_t modulus, exponent;
	if (gnutls_x509_crt_get_pk_rsa_raw(cert, &modulus, &exponent) < 0)
		return "RSA key unreadable";
	size_t modulus_bits = bits_of(&modulus), exponent_bits = bits_of(&exponent);
	gnutls_free(modulus.data);
	gnutls_free(exponent.data);
	return modulus_bits > MODULUS_BITS_MAX     ? "RSA modulus over 8192 bits"
	       : exponent_bits > EXPONENT_BITS_MAX ? "RSA exponent over 64 bits"
						   : NULL;
}

/* The curves that GnuTLS knows are all cheap. */
static const char *examine_key(gnutls_x509_crt_t cert)
{
	switch (gnutls_x509_crt_get_pk_algorithm(cert, NULL)) {
	case GNUTLS_PK_ECDSA:
	case GNUTLS_PK_EDDSA_ED25519:
	case GNUTLS_PK_EDDSA_ED448: return NULL;
	case GNUTLS_PK_RSA:
	case GNUTLS_PK_RSA_PSS: return examine_rsa(cert);
	default: return "key neither RSA, ECDSA nor EdDSA";
	}
}

static const char *examine_purposes(gnutls_x509_crt_t cert)
{
	gnutls_datum_t purposes;
	if (gnutls_x509_crt_get_extension_by_oid2(cert, GNUTLS_X509EXT_OID_EXTENDED_KEY_USAGE, 0, &purposes, NULL) < 0)
		return NULL;
	size_t len = purposes.size;
	gnutls_free(purposes.data);
	return len > PURPOSES_MAX ? "too many key purposes" : NULL;
}

const char *tls_bounds_examine(const void *der, size_t len)
{
	gnutls_datum_t raw = {.data = (unsigned char *)(uintptr_t)der, .size = (unsigned)len};
	gnutls_x509_crt_t cert;
	assert(der || len == 0);
	if (len > CERTIFICATE_MAX)
		return "certificate over 8 KiB";
	if (gnutls_x509_crt_init(&cert) < 0)
		memory_exhausted("tls");
	const char *reason = gnutls_x509_crt_import(cert, &raw, GNUTLS_X509_FMT_DER) < 0 ? "certificate unreadable"
											 : examine_key(cert);
	if (!reason)
		reason = examine_purposes(cert);
	gnutls_x509_crt_deinit(cert);
	return reason;
}

const char *tls_bounds_examine_peer(gnutls_session_t session)
{
	unsigned count = 0;
	const gnutls_datum_t *certs = gnutls_certificate_get_peers(session, &count);
	const char *reason = count > CHAIN_MAX ? "more than 8 certificates" : NULL;
	for (unsigned i = 0; i < count && !reason; i++)
		reason = tls_bounds_examine(certs[i].data, certs[i].size);
	return reason;
}
