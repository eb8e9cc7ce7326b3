/* SPDX-License-Identifier: MIT */
/* Names in client certificates, and the files of a certificate; over a connection: tests/e2e/test_tls.py and
 * test_tls_clients.py. */
#include <check.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/http/http.h"
#include "server/base/base.h"
#include "suite.h"

#define S(literal) literal, sizeof(literal) - 1

static gnutls_x509_privkey_t key;
static gnutls_x509_crt_t cert;
static struct tls_peer peer;
static char folder[64], cert_path[128], key_path[128], message[2048];

/* A certificate without names. */
static void begin(void)
{
	time_t now = time(NULL);

	ck_assert_int_eq(gnutls_x509_privkey_init(&key), 0);
	ck_assert_int_eq(
		gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
		0);
	ck_assert_int_eq(gnutls_x509_crt_init(&cert), 0);
	gnutls_x509_crt_set_version(cert, 3);
	gnutls_x509_crt_set_serial(cert, "\x01", 1);
	gnutls_x509_crt_set_activation_time(cert, now - 60);
	gnutls_x509_crt_set_expiration_time(cert, now + 3600);
	gnutls_x509_crt_set_key(cert, key);
	strcpy(folder, "/tmp/tls-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(cert_path, sizeof(cert_path), "%s/cert", folder);
	snprintf(key_path, sizeof(key_path), "%s/key", folder);
	log_setup(LOG_ERROR, LOG_LOGFMT);
}

static void end(void)
{
	gnutls_x509_crt_deinit(cert);
	gnutls_x509_privkey_deinit(key);
	unlink(cert_path);
	unlink(key_path);
	ck_assert_int_eq(rmdir(folder), 0);
}

static void common_name(const char *name, size_t len)
{
	ck_assert_int_eq(gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, name, (unsigned)len), 0);
}

static void alternative(gnutls_x509_subject_alt_name_t type, const char *name, size_t len)
{
	ck_assert_int_eq(gnutls_x509_crt_set_subject_alt_name(cert, type, name, (unsigned)len, GNUTLS_FSAN_APPEND), 0);
}

/* GnuTLS writes no strange bytes into a name: each QXQ gets `strange` in its middle. */
static void read_strange_names(unsigned char strange)
{
	gnutls_datum_t der;
	unsigned char *at;

	ck_assert_int_eq(gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0), 0);
	ck_assert_int_eq(gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_DER, &der), 0);
	while ((at = memmem(der.data, der.size, "QXQ", 3)) != NULL)
		at[1] = strange;
	ck_assert(tls_peer_read_names(der.data, der.size, &peer));
	gnutls_free(der.data);
}

static void read_names(void)
{
	read_strange_names('-');
}

TEST(alternative_names_of_two_kinds_count)
{
	common_name(S("common"));
	alternative(GNUTLS_SAN_DNSNAME, S("worker.example"));
	alternative(GNUTLS_SAN_RFC822NAME, S("a@example"));
	alternative(GNUTLS_SAN_URI, S("spiffe://example/worker"));
	alternative(GNUTLS_SAN_IPADDRESS, S("\x0a\x00\x00\x01"));
	read_names();
	ck_assert_uint_eq(peer.count, 2);
	ck_assert_str_eq(peer.names[0], "worker.example");
	ck_assert_str_eq(peer.names[1], "spiffe://example/worker");
}

TEST(the_common_name_counts_where_there_is_no_other)
{
	common_name(S("worker-7"));
	read_names();
	ck_assert_uint_eq(peer.count, 1);
	ck_assert_str_eq(peer.names[0], "worker-7");
}

TEST(any_alternative_name_hides_the_common_name)
{
	common_name(S("admin"));
	alternative(GNUTLS_SAN_IPADDRESS, S("\x0a\x00\x00\x01"));
	read_names();
	ck_assert_uint_eq(peer.count, 0);
}

TEST(of_two_common_names_none_counts)
{
	ck_assert_int_eq(gnutls_x509_crt_set_dn(cert, "CN=worker,CN=admin", NULL), 0);
	read_names();
	ck_assert_uint_eq(peer.count, 0);
}

TEST(a_name_with_strange_bytes_is_left_out)
{
	static const unsigned char strange[] = {'\0', '\n', ' ', 0x7f, 0x80, 0xff};

	common_name(S("worker"));
	alternative(GNUTLS_SAN_URI, S("adminQXQ.evil.example"));
	alternative(GNUTLS_SAN_DNSNAME, S("adminQXQ.evil.example"));
	alternative(GNUTLS_SAN_URI, S("good"));
	for (size_t i = 0; i < sizeof(strange); i++) {
		read_strange_names(strange[i]);
		ck_assert_msg(peer.count == 1, "byte %02x: %zu names", strange[i], peer.count);
		ck_assert_str_eq(peer.names[0], "good");
	}
	read_names();
	ck_assert_uint_eq(peer.count, 3);
}

TEST(a_common_name_with_a_nul_is_not_cut_there)
{
	common_name(S("adminQXQ.evil.example"));
	read_strange_names('\0');
	ck_assert(peer.count == 0 || strcmp(peer.names[0], "adminQ") != 0);
}

TEST(names_are_bounded)
{
	static char name[2000];

	memset(name, 'x', sizeof(name));
	alternative(GNUTLS_SAN_URI, name, 1500); /* too long */
	for (int i = 0; i < 3 * TLS_PEER_NAMES_MAX; i++)
		alternative(GNUTLS_SAN_DNSNAME, name, 1 + (size_t)i * 20);
	read_names();
	ck_assert_uint_gt(peer.count, 10);
	ck_assert_uint_le(peer.count, TLS_PEER_NAMES_MAX);
	for (size_t i = 0; i < peer.count; i++)
		ck_assert_uint_eq(strlen(peer.names[i]), 1 + i * 20);
}

TEST(rubbish_is_no_certificate)
{
	ck_assert(!tls_peer_read_names(S("no certificate"), &peer));
	ck_assert(!tls_peer_read_names("", 0, &peer));
}

static void write_file(const char *path, mode_t mode, const gnutls_datum_t *bytes)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes->data, 1, bytes->size, file), bytes->size);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

static void write_pair(void)
{
	gnutls_datum_t pem;

	ck_assert_int_eq(gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0), 0);
	ck_assert_int_eq(gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &pem), 0);
	write_file(cert_path, 0644, &pem);
	gnutls_free(pem.data);
	ck_assert_int_eq(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &pem), 0);
	write_file(key_path, 0600, &pem);
	gnutls_free(pem.data);
}

TEST(a_pair_is_loaded)
{
	write_pair();
	struct tls *tls = tls_load(cert_path, key_path, "", message, sizeof(message));
	ck_assert_msg(tls != NULL, "%s", message);
	ck_assert(!tls_asks(tls));
	tls_unref(tls_ref(tls));
	tls_unref(tls);
	tls = tls_load(cert_path, key_path, cert_path, message, sizeof(message));
	ck_assert_msg(tls != NULL, "%s", message);
	ck_assert(tls_asks(tls));
	tls_unref(tls);
	tls_unref(NULL);
}

TEST(a_certificate_may_have_ended_before_1970)
{
	static const time_t ends[] = {-86400, 0, 1};

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		ck_assert_int_eq(gnutls_x509_crt_set_expiration_time(cert, ends[i]), 0);
		write_pair();
		struct tls *tls = tls_load(cert_path, key_path, "", message, sizeof(message));
		ck_assert_msg(tls != NULL, "%s", message);
		tls_announce(tls);
		tls_unref(tls);
	}
}

TEST(a_secret_must_be_one)
{
	write_pair();
	ck_assert_int_eq(chmod(key_path, 0644), 0);
	ck_assert_ptr_null(tls_load(cert_path, key_path, "", message, sizeof(message)));
	ck_assert_msg(strstr(message, "--tls-key") != NULL && strstr(message, key_path) != NULL, "%s", message);
	ck_assert_int_eq(chmod(key_path, 0640), 0);
	struct tls *tls = tls_load(cert_path, key_path, "", message, sizeof(message));
	ck_assert_msg(tls != NULL, "%s", message);
	tls_unref(tls);
	ck_assert_int_eq(chmod(cert_path, 0666), 0);
	ck_assert_ptr_null(tls_load(cert_path, key_path, "", message, sizeof(message)));
	ck_assert_msg(strstr(message, "--tls-cert") != NULL && strstr(message, cert_path) != NULL, "%s", message);
}

TEST(a_message_fits_wherever_it_is_cut)
{
	write_pair();
	ck_assert_int_eq(unlink(key_path), 0);
	for (size_t size = 1; size < 100; size++) {
		memset(message, 'x', sizeof(message));
		ck_assert_ptr_null(tls_load(cert_path, key_path, "", message, size));
		ck_assert_uint_lt(strlen(message), size);
	}
}

FIXTURE(begin, end)
