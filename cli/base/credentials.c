/* SPDX-License-Identifier: MIT */
/* See credentials.h.
 *
 * libcurl gets the names of the TLS files, not their bytes: some certificates are valid for hours only, and a command
 * that runs under a lock for a day must use the new ones. This file only checks, before a lock is acquired, that the
 * files exist and that nobody else can read the private key. */
#include "credentials.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/base/base.h"

enum { PEM_MAX = 4 * 1024 * 1024 };

static bool credentials_check(const char *path, bool is_secret, char ret_reason[API_KEY_MESSAGE_MAX])
{
	struct text text;
	assert(path);
	if (is_secret) {
		text_init(&text);
		bool done = secret_file_read(path, SECRET_FILE_SECRET, PEM_MAX, &text, ret_reason, API_KEY_MESSAGE_MAX);
		secret_file_wipe(&text);
		text_fini(&text);
		return done;
	}
	if (access(path, R_OK) == 0)
		return true;
	snprintf(ret_reason, API_KEY_MESSAGE_MAX, "%.200s: %s", path, strerror(errno));
	return false;
}

bool credentials_load(struct credentials *credentials, char ret_message[CREDENTIALS_MESSAGE_MAX])
{
	const struct {
		const char *option, *path;
		bool is_secret;
	} files[] = {
		{"--cacert", credentials->ca_file, false},
		{"--cert", credentials->cert_file, !credentials->cert_key_file},
		{"--key", credentials->cert_key_file, true},
	};
	char reason[API_KEY_MESSAGE_MAX];
	const char *bad = NULL;
	for (size_t i = 0; i < sizeof files / sizeof *files && !bad; i++)
		if (files[i].path && !credentials_check(files[i].path, files[i].is_secret, reason))
			bad = files[i].option;
	if (!bad && credentials->api_key_file && !api_key_read(credentials->api_key_file, credentials->api_key, reason))
		bad = "--key-file";
	if (bad)
		snprintf(ret_message, CREDENTIALS_MESSAGE_MAX, "%s: %s", bad, reason);
	return !bad;
}

bool token_is_valid(const char *text)
{
	assert(text);
	return strlen(text) == TOKEN_LEN && hex_is_lower(text, TOKEN_LEN);
}
