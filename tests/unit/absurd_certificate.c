/* SPDX-License-Identifier: MIT */
/* See absurd_certificate.h. Failures end the program. */
#include "absurd_certificate.h"

#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST_DO(call) must_do(call, #call)

static void must_do(int result, const char *call)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s: %s\n", call, gnutls_strerror(result));
	abort();
}

enum key_kind { KEY_EC, KEY_ED25519, KEY_ED448, KEY_DSA, KEY_GOST, KEY_KINDS };

/* One of each kind for the process: making them is slow. */
static gnutls_privkey_t key_of(enum key_kind kind)
{
	static const struct {
		gnutls_pk_algorithm_t algorithm;
		unsigned bits;
	} kinds[KEY_KINDS] = {
		[KEY_EC] = {GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1)},
		[KEY_ED25519] = {GNUTLS_PK_EDDSA_ED25519, 256},
		[KEY_ED448] = {GNUTLS_PK_EDDSA_ED448, 448},
		[KEY_DSA] = {GNUTLS_PK_DSA, 1024},
		[KEY_GOST] = {GNUTLS_PK_GOST_12_256, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_GOST256CPA)},
	};
	static gnutls_privkey_t keys[KEY_KINDS];
	if (!keys[kind]) {
		MUST_DO(gnutls_privkey_init(&keys[kind]));
		MUST_DO(gnutls_privkey_generate(keys[kind], kinds[kind].algorithm, kinds[kind].bits, 0));
	}
	return keys[kind];
}

/* An odd number of so many bits. The same each time, so that a fuzz target has the same inputs. */
static gnutls_datum_t number_of(unsigned bits)
{
	gnutls_datum_t number = {.size = bits / 8 + 1};
	number.data = malloc(number.size);
	for (unsigned i = 0; i < number.size; i++)
		number.data[i] = (unsigned char)(i * 151 + 77);
	number.data[0] = (unsigned char)(bits % 8 ? 1u << (bits % 8 - 1) : 0);
	number.data[1 % number.size] |= bits % 8 ? 0 : 0x80;
	number.data[number.size - 1] |= 1;
	return number;
}

static void set_rsa(gnutls_pubkey_t key, unsigned modulus_bits, unsigned exponent_bits)
{
	gnutls_datum_t modulus = number_of(modulus_bits), exponent = number_of(exponent_bits);
	MUST_DO(gnutls_pubkey_import_rsa_raw(key, &modulus, &exponent));
	free(modulus.data);
	free(exponent.data);
}

static void make_pss(gnutls_pubkey_t key)
{
	gnutls_x509_spki_t spki;
	MUST_DO(gnutls_x509_spki_init(&spki));
	gnutls_x509_spki_set_rsa_pss_params(spki, GNUTLS_DIG_SHA256, 32);
	MUST_DO(gnutls_pubkey_set_spki(key, spki, 0));
	gnutls_x509_spki_deinit(spki);
}

/* An extension of so many times the same item. By hand: GnuTLS takes time that grows with the square of their number,
 * or refuses. `inner` is a tag between the sequence and the items; 0: there is none. */
static void set_repeated(gnutls_x509_crt_t cert, const char *oid, unsigned char inner, const char *item, unsigned count)
{
	const size_t item_len = strlen(item), len = item_len * count, head = inner ? 8 : 4;
	unsigned char *der = malloc(head + len);
	memcpy(der,
	       (unsigned char[]){0x30, 0x82, (unsigned char)((head - 4 + len) >> 8), (unsigned char)(head - 4 + len)},
	       4);
	if (inner)
		memcpy(der + 4, (unsigned char[]){inner, 0x82, (unsigned char)(len >> 8), (unsigned char)len}, 4);
	for (unsigned i = 0; i < count; i++)
		memcpy(der + head + item_len * i, item, item_len);
	MUST_DO(gnutls_x509_crt_set_extension_by_oid(cert, oid, der, head + len, 0));
	free(der);
}

static void set_common_name(gnutls_x509_crt_t cert, unsigned number)
{
	char name[32];
	int len = snprintf(name, sizeof name, "absurd %u", number);
	MUST_DO(gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, name, (unsigned)len));
}

/* Without a key and a signature. */
static gnutls_x509_crt_t cert_of(unsigned number)
{
	gnutls_x509_crt_t cert;
	MUST_DO(gnutls_x509_crt_init(&cert));
	MUST_DO(gnutls_x509_crt_set_version(cert, 3));
	MUST_DO(gnutls_x509_crt_set_serial(cert, "\x01", 1));
	MUST_DO(gnutls_x509_crt_set_activation_time(cert, time(NULL) - 60));
	MUST_DO(gnutls_x509_crt_set_expiration_time(cert, time(NULL) + 3600));
	set_common_name(cert, number);
	return cert;
}

static gnutls_privkey_t pair_of(const char *word)
{
	static const char *const names[KEY_KINDS] = {
		[KEY_ED25519] = "ed25519", [KEY_ED448] = "ed448", [KEY_DSA] = "dsa", [KEY_GOST] = "gost"};
	for (enum key_kind kind = 0; kind < KEY_KINDS; kind++)
		if (names[kind] && strncmp(word, names[kind], strlen(names[kind])) == 0)
			return key_of(kind);
	return key_of(KEY_EC);
}

static unsigned within(unsigned number, unsigned low, unsigned high)
{
	return number < low ? low : number > high ? high : number;
}

static void set_key(gnutls_x509_crt_t cert, const char *word)
{
	unsigned modulus_bits, exponent_bits;
	gnutls_pubkey_t key;
	MUST_DO(gnutls_pubkey_init(&key));
	bool pss = sscanf(word, "pss:%u:%u", &modulus_bits, &exponent_bits) == 2;
	if (pss || sscanf(word, "rsa:%u:%u", &modulus_bits, &exponent_bits) == 2) {
		modulus_bits = within(modulus_bits, 1024, 200000);
		set_rsa(key, modulus_bits, within(exponent_bits, 2, modulus_bits));
	} else {
		MUST_DO(gnutls_pubkey_import_privkey(key, pair_of(word), 0, 0));
	}
	if (pss)
		make_pss(key);
	MUST_DO(gnutls_x509_crt_set_pubkey(cert, key));
	gnutls_pubkey_deinit(key);
}

static void set_subject(gnutls_x509_crt_t cert, const char *word)
{
	unsigned count = 0;
	set_key(cert, word);
	if (sscanf(word, "names:%u", &count) == 1)
		set_repeated(cert, GNUTLS_X509EXT_OID_SAN, 0, "\x82\x01\x61", within(count, 100, 5000));
	if (sscanf(word, "purposes:%u", &count) == 1)
		set_repeated(cert, GNUTLS_X509EXT_OID_EXTENDED_KEY_USAGE, 0, "\x06\x02\x2a\x03",
			     within(count, 100, 4000));
	if (sscanf(word, "constraints:%u", &count) == 1)
		set_repeated(cert, GNUTLS_X509EXT_OID_NAME_CONSTRAINTS, 0xa1, "\x30\x03\x82\x01\x62",
			     within(count, 100, 2000));
	if (sscanf(word, "units:%u", &count) == 1)
		for (unsigned i = within(count, 1, 1400); i > 0; i--)
			MUST_DO(gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_ORGANIZATIONAL_UNIT_NAME, 0, "a",
							      1));
}

/* ---- a key that signs rubbish ---- */

static int sign_rubbish(gnutls_datum_t *ret_signature, unsigned bits)
{
	ret_signature->size = bits / 8;
	ret_signature->data = gnutls_malloc(ret_signature->size);
	memset(ret_signature->data, 1, ret_signature->size);
	return 0;
}

/* gnutls_privkey_sign_data_func, and for hashes: `arg` is the public key. */
static int sign_data(gnutls_privkey_t key, gnutls_sign_algorithm_t algorithm, void *arg, unsigned flags,
		     const gnutls_datum_t *data, gnutls_datum_t *ret_signature)
{
	unsigned bits = 0;
	(void)key, (void)algorithm, (void)flags, (void)data;
	gnutls_pubkey_get_pk_algorithm(arg, &bits);
	return sign_rubbish(ret_signature, bits);
}

/* gnutls_privkey_info_func */
static int describe_key(gnutls_privkey_t key, unsigned flags, void *arg)
{
	unsigned bits = 0;
	int algorithm = gnutls_pubkey_get_pk_algorithm(arg, &bits);
	(void)key;
	if ((flags & GNUTLS_PRIVKEY_INFO_PK_ALGO) != 0)
		return algorithm;
	if ((flags & GNUTLS_PRIVKEY_INFO_PK_ALGO_BITS) != 0)
		return (int)bits;
	return (flags & GNUTLS_PRIVKEY_INFO_HAVE_SIGN_ALGO) != 0 ? 1 : -1;
}

static void free_key(gnutls_privkey_t key, void *arg)
{
	(void)key;
	gnutls_pubkey_deinit(arg);
}

static gnutls_privkey_t rubbish_key(gnutls_x509_crt_t cert)
{
	gnutls_privkey_t key;
	gnutls_pubkey_t public;
	MUST_DO(gnutls_privkey_init(&key));
	MUST_DO(gnutls_pubkey_init(&public));
	MUST_DO(gnutls_pubkey_import_x509(public, cert, 0));
	MUST_DO(gnutls_privkey_import_ext4(key, public, sign_data, sign_data, NULL, free_key, describe_key, 0));
	return key;
}

/* The private key that belongs to a certificate; where nobody has it, one that signs rubbish of the right length. */
static gnutls_privkey_t private_key_of(gnutls_x509_crt_t cert)
{
	gnutls_privkey_t key;
	gnutls_x509_privkey_t pair;
	if (gnutls_x509_crt_get_pk_algorithm(cert, NULL) != GNUTLS_PK_ECDSA)
		return rubbish_key(cert);
	MUST_DO(gnutls_privkey_export_x509(key_of(KEY_EC), &pair));
	MUST_DO(gnutls_privkey_init(&key));
	MUST_DO(gnutls_privkey_import_x509(key, pair, GNUTLS_PRIVKEY_IMPORT_AUTO_RELEASE));
	return key;
}

/* Signs certificate number `number` by the next one, or as if by that one: with any key, if its kind of key cannot sign
 * with SHA-256. */
static void sign(gnutls_x509_crt_t *certs, unsigned number)
{
	const int algorithm = gnutls_x509_crt_get_pk_algorithm(certs[number + 1], NULL);
	const bool able = algorithm == GNUTLS_PK_ECDSA || algorithm == GNUTLS_PK_RSA || algorithm == GNUTLS_PK_RSA_PSS;
	gnutls_x509_crt_t other = cert_of(number + 1);
	set_subject(other, "ec");
	gnutls_x509_crt_t issuer = able ? certs[number + 1] : other;
	gnutls_privkey_t key = private_key_of(issuer);
	MUST_DO(gnutls_x509_crt_privkey_sign(certs[number], issuer, key, GNUTLS_DIG_SHA256, 0));
	gnutls_privkey_deinit(key);
	gnutls_x509_crt_deinit(other);
}

/* The certificates that the words describe, without signatures; returns how many. */
static unsigned make_subjects(gnutls_x509_crt_t *ret_certs, const char *words)
{
	char word[64];
	unsigned count = 0;
	int used;
	for (; sscanf(words, "%63s%n", word, &used) == 1; words += used) {
		const char *times = strchr(word, '*');
		for (int i = times ? atoi(times + 1) : 1; i > 0 && count < ABSURD_CHAIN_MAX; i--) {
			ret_certs[count] = cert_of(count);
			if (count > 0)
				MUST_DO(gnutls_x509_crt_set_ca_status(ret_certs[count], 1));
			set_subject(ret_certs[count++], word);
		}
	}
	if (count == 0)
		set_subject(ret_certs[count++] = cert_of(0), "ec");
	return count;
}

void absurd_chain_init(struct absurd_chain *chain, const char *words, gnutls_x509_crt_t authority,
		       gnutls_privkey_t authority_key)
{
	gnutls_x509_crt_t certs[ABSURD_CHAIN_MAX + 1];
	*chain = (struct absurd_chain){.count = make_subjects(certs, words)};
	certs[chain->count] = cert_of(chain->count);
	set_subject(certs[chain->count], "ec");
	for (unsigned i = 0; i < chain->count; i++) {
		if (i + 1 == chain->count && authority)
			MUST_DO(gnutls_x509_crt_privkey_sign(certs[i], authority, authority_key, GNUTLS_DIG_SHA256, 0));
		else
			sign(certs, i);
		MUST_DO(gnutls_x509_crt_export2(certs[i], GNUTLS_X509_FMT_DER, &chain->certs[i]));
	}
	for (unsigned i = 0; i <= chain->count; i++)
		gnutls_x509_crt_deinit(certs[i]);
}

void absurd_chain_fini(struct absurd_chain *chain)
{
	for (unsigned i = 0; i < chain->count; i++)
		gnutls_free(chain->certs[i].data);
	chain->count = 0;
}

/* ---- a client ---- */

/* The chain as GnuTLS wants it; of the process, since one client at a time presents one. */
static struct {
	gnutls_pcert_st certs[ABSURD_CHAIN_MAX];
	unsigned count;
	gnutls_privkey_t key;
} presented;

/* gnutls_certificate_retrieve_function2: unlike certificates that are set, these are not parsed again. */
static int present(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
		   const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **ret_certs,
		   unsigned *ret_count, gnutls_privkey_t *ret_key)
{
	(void)session, (void)authorities, (void)authority_count, (void)algorithms, (void)algorithm_count;
	*ret_certs = presented.certs;
	*ret_count = presented.count;
	*ret_key = presented.key;
	return 0;
}

gnutls_certificate_credentials_t absurd_credentials_new(const struct absurd_chain *chain)
{
	gnutls_certificate_credentials_t credentials;
	gnutls_x509_crt_t leaf;
	MUST_DO(gnutls_certificate_allocate_credentials(&credentials));
	for (unsigned i = 0; i < chain->count; i++) {
		MUST_DO(gnutls_pcert_import_x509_raw(&presented.certs[i], &chain->certs[i], GNUTLS_X509_FMT_DER, 0));
		if (chain->edit)
			chain->edit(&presented.certs[i].cert);
	}
	presented.count = chain->count;
	MUST_DO(gnutls_x509_crt_init(&leaf));
	MUST_DO(gnutls_x509_crt_import(leaf, &chain->certs[0], GNUTLS_X509_FMT_DER));
	presented.key = private_key_of(leaf);
	gnutls_x509_crt_deinit(leaf);
	gnutls_certificate_set_retrieve_function2(credentials, present);
	return credentials;
}

void absurd_credentials_free(gnutls_certificate_credentials_t credentials)
{
	gnutls_certificate_free_credentials(credentials);
	for (unsigned i = 0; i < presented.count; i++)
		gnutls_pcert_deinit(&presented.certs[i]);
	gnutls_privkey_deinit(presented.key);
}
