/* See absurd_certificate.h. Failures end the program. */
#include "absurd_certificate.h"

#include <gnutls/crypto.h>
#include <gnutls/x509-ext.h>
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

static void set_names(gnutls_x509_crt_t cert, unsigned count)
{
	gnutls_subject_alt_names_t names;
	gnutls_datum_t name = {.data = (unsigned char *)"a", .size = 1}, extension;
	MUST_DO(gnutls_subject_alt_names_init(&names));
	for (unsigned i = 0; i < count; i++)
		MUST_DO(gnutls_subject_alt_names_set(names, GNUTLS_SAN_DNSNAME, &name, NULL));
	MUST_DO(gnutls_x509_ext_export_subject_alt_names(names, &extension));
	MUST_DO(gnutls_x509_crt_set_extension_by_oid(cert, GNUTLS_X509EXT_OID_SAN, extension.data, extension.size, 0));
	gnutls_free(extension.data);
	gnutls_subject_alt_names_deinit(names);
}

/* By hand: GnuTLS takes no more than a few. */
static void set_purposes(gnutls_x509_crt_t cert, unsigned count)
{
	static const unsigned char purpose[] = {6, 2, 42, 3};
	const size_t len = sizeof purpose * count;
	unsigned char *extension = malloc(4 + len);
	memcpy(extension, (unsigned char[]){0x30, 0x82, (unsigned char)(len >> 8), (unsigned char)len}, 4);
	for (unsigned i = 0; i < count; i++)
		memcpy(extension + 4 + sizeof purpose * i, purpose, sizeof purpose);
	MUST_DO(gnutls_x509_crt_set_extension_by_oid(cert, GNUTLS_X509EXT_OID_EXTENDED_KEY_USAGE, extension, 4 + len,
						     0));
	free(extension);
}

static void set_constraints(gnutls_x509_crt_t cert, unsigned count)
{
	gnutls_x509_name_constraints_t constraints;
	gnutls_datum_t name = {.data = (unsigned char *)"b", .size = 1};
	MUST_DO(gnutls_x509_name_constraints_init(&constraints));
	for (unsigned i = 0; i < count; i++)
		MUST_DO(gnutls_x509_name_constraints_add_excluded(constraints, GNUTLS_SAN_DNSNAME, &name));
	MUST_DO(gnutls_x509_crt_set_name_constraints(cert, constraints, 1));
	gnutls_x509_name_constraints_deinit(constraints);
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

static void set_subject(gnutls_x509_crt_t cert, const char *word)
{
	unsigned modulus_bits, exponent_bits, count = 0;
	gnutls_pubkey_t key;
	MUST_DO(gnutls_pubkey_init(&key));
	if (sscanf(word, "rsa:%u:%u", &modulus_bits, &exponent_bits) == 2 ||
	    sscanf(word, "pss:%u:%u", &modulus_bits, &exponent_bits) == 2)
		set_rsa(key, modulus_bits, exponent_bits);
	else
		MUST_DO(gnutls_pubkey_import_privkey(key, pair_of(word), 0, 0));
	if (strncmp(word, "pss", 3) == 0)
		make_pss(key);
	MUST_DO(gnutls_x509_crt_set_pubkey(cert, key));
	gnutls_pubkey_deinit(key);
	if (sscanf(word, "names:%u", &count) == 1)
		set_names(cert, count);
	if (sscanf(word, "purposes:%u", &count) == 1)
		set_purposes(cert, count);
	if (sscanf(word, "constraints:%u", &count) == 1)
		set_constraints(cert, count);
	if (sscanf(word, "units:%u", &count) == 1)
		for (unsigned i = 0; i < count; i++)
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

static void sign(gnutls_x509_crt_t cert, gnutls_x509_crt_t issuer)
{
	gnutls_privkey_t key = private_key_of(issuer);
	MUST_DO(gnutls_x509_crt_privkey_sign(cert, issuer, key, GNUTLS_DIG_SHA256, 0));
	gnutls_privkey_deinit(key);
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
	return count;
}

void absurd_chain_init(struct absurd_chain *chain, const char *words, gnutls_x509_crt_t authority,
		       gnutls_privkey_t authority_key)
{
	gnutls_x509_crt_t certs[ABSURD_CHAIN_MAX + 1];
	chain->count = make_subjects(certs, words);
	certs[chain->count] = cert_of(chain->count);
	set_subject(certs[chain->count], "ec");
	for (unsigned i = 0; i < chain->count; i++) {
		if (i + 1 == chain->count && authority)
			MUST_DO(gnutls_x509_crt_privkey_sign(certs[i], authority, authority_key, GNUTLS_DIG_SHA256, 0));
		else
			sign(certs[i], certs[i + 1]);
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

gnutls_certificate_credentials_t absurd_credentials(const struct absurd_chain *chain)
{
	gnutls_certificate_credentials_t credentials;
	gnutls_pcert_st certs[ABSURD_CHAIN_MAX];
	gnutls_x509_crt_t leaf;
	MUST_DO(gnutls_certificate_allocate_credentials(&credentials));
	for (unsigned i = 0; i < chain->count; i++)
		MUST_DO(gnutls_pcert_import_x509_raw(&certs[i], &chain->certs[i], GNUTLS_X509_FMT_DER, 0));
	gnutls_certificate_set_flags(credentials, GNUTLS_CERTIFICATE_SKIP_KEY_CERT_MATCH);
	MUST_DO(gnutls_pcert_export_x509(&certs[0], &leaf));
	gnutls_privkey_t key = private_key_of(leaf);
	gnutls_x509_crt_deinit(leaf);
	MUST_DO(gnutls_certificate_set_key(credentials, NULL, 0, certs, (int)chain->count, key));
	return credentials;
}
