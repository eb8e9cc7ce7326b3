/* SPDX-License-Identifier: MIT */
/* Chains of certificates with keys that nobody needs and that are expensive to check. */
#ifndef ABSURD_CERTIFICATE_H
#define ABSURD_CERTIFICATE_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

enum { ABSURD_CHAIN_MAX = 128 };

/* Each names the next one as its issuer. */
struct absurd_chain {
	gnutls_datum_t certs[ABSURD_CHAIN_MAX]; /* DER; the first is the client's */
	unsigned count;
	void (*edit)(gnutls_datum_t *der); /* changes what the client presents of each, not its length; NULL: nothing */
};

/* Makes the chain that a text describes, a word for each certificate:
 *
 *     ec                        a P-256 key; the client has the private one
 *     rsa:MODULUS:EXPONENT      an RSA key of so many bits each; nobody has the private one
 *     pss:MODULUS:EXPONENT      the same for RSA-PSS alone
 *     ed25519, ed448, dsa, gost other kinds of keys
 *     names:N, purposes:N       ec, with so many alternative names; with so many purposes of the key
 *     units:N, constraints:N    ec, with a subject of so many parts; with so many constraints of names
 *
 * A word WORD*N stands for N of them. Numbers have bounds, and other words are taken for ec, so that any text will do.
 * The authority signs the last one; NULL: a stranger does. */
void absurd_chain_init(struct absurd_chain *chain, const char *words, gnutls_x509_crt_t authority,
		       gnutls_privkey_t authority_key);
void absurd_chain_fini(struct absurd_chain *chain);

/* Credentials of a client that presents the chain, one at a time. It signs with its private key, or rubbish if there is
 * none. */
gnutls_certificate_credentials_t absurd_credentials_new(const struct absurd_chain *chain);
void absurd_credentials_free(gnutls_certificate_credentials_t credentials);

#endif
