/* SPDX-License-Identifier: MIT */
/* The files of a key and of certificates, which are checked before anything is sent. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/credentials.h"
#include "suite.h"

#define KEY "0123456789abcdef"

static char folder[] = "/tmp/test_cli_credentials.XXXXXX", path[sizeof(folder) + 8];
static struct credentials credentials;
static char message[CREDENTIALS_MESSAGE_MAX];

static void set_up(void)
{
	memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	FILE *file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	fputs(KEY "\n", file);
	ck_assert_int_eq(fclose(file), 0);
	credentials = (struct credentials){.ca_file = NULL};
}

static void tear_down(void)
{
	unlink(path);
	rmdir(folder);
}

static void good(mode_t mode)
{
	ck_assert_int_eq(chmod(path, mode), 0);
	ck_assert_msg(credentials_load(&credentials, message), "%s", message);
}

static void bad(mode_t mode, const char *option)
{
	ck_assert_int_eq(chmod(path, mode), 0);
	ck_assert(!credentials_load(&credentials, message));
	ck_assert_msg(strncmp(message, option, strlen(option)) == 0 && message[strlen(option)] == ':', "%s", message);
	ck_assert_ptr_null(strstr(message, KEY));
}

TEST(nothing)
{
	good(0600);
	ck_assert_str_eq(credentials.api_key, "");
}

TEST(key_file)
{
	credentials.api_key_file = path;
	bad(0644, "--key-file");
	ck_assert_str_eq(credentials.api_key, "");
	good(0640);
	ck_assert_str_eq(credentials.api_key, KEY);
}

/* Others may read a certificate, but no private key, whether it has a file of its own or not. */
TEST(certificates)
{
	credentials.ca_file = path;
	good(0644);
	credentials.cert_file = path;
	bad(0644, "--cert");
	good(0600);
	credentials.cert_key_file = path;
	bad(0644, "--key");
	good(0600);
}

TEST(files_that_are_not_there)
{
	credentials.cert_key_file = "/nowhere/3";
	bad(0600, "--key");
	credentials.cert_file = "/nowhere/2";
	bad(0600, "--cert");
	credentials.ca_file = "/nowhere/1";
	bad(0600, "--cacert");
	ck_assert_ptr_nonnull(strstr(message, "/nowhere/1"));
}

FIXTURE(set_up, tear_down)
