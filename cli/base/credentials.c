/* See credentials.h.
 *
 * libcurl gets the names of the TLS files and not their bytes: certificates of services live for hours, and a command
 * that runs under a lock for a day has to use the new ones. Here it is only checked, before a lock is acquired, that
 * the files are there and who else can read the private key. */
#include "credentials.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/base/base.h"

enum { PEM_MAX = 4 * 1024 * 1024 };

static bool credentials_check_secret(const char *path, char ret_reason[API_KEY_MESSAGE_MAX])
{
	struct text text;

	assert(path);
	text_init(&text);
	bool done = secret_file_read(path, SECRET_FILE_SECRET, PEM_MAX, &text, ret_reason, API_KEY_MESSAGE_MAX);
	secret_file_wipe(&text);
	text_fini(&text);
	return done;
}

static bool credentials_check_readable(const char *path, char ret_reason[API_KEY_MESSAGE_MAX])
{
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (file < 0)
		snprintf(ret_reason, API_KEY_MESSAGE_MAX, "%.200s: %s", path, strerror(errno));
	else
		close(file);
	return file >= 0;
}

/* False: *ret_option is the option whose file is rejected. */
static bool credentials_check_all(struct credentials *credentials, const char **ret_option,
				  char ret_reason[API_KEY_MESSAGE_MAX])
{
	const char *cert = credentials->cert_file, *cert_key = credentials->cert_key_file;

	*ret_option = "--cacert";
	if (credentials->ca_file && !credentials_check_readable(credentials->ca_file, ret_reason))
		return false;
	*ret_option = "--cert";
	if (cert &&
	    !(cert_key ? credentials_check_readable(cert, ret_reason) : credentials_check_secret(cert, ret_reason)))
		return false;
	*ret_option = "--key";
	if (cert_key && !credentials_check_secret(cert_key, ret_reason))
		return false;
	*ret_option = "--key-file";
	return !credentials->api_key_file || api_key_read(credentials->api_key_file, credentials->api_key, ret_reason);
}

bool credentials_load(struct credentials *credentials, char ret_message[CREDENTIALS_MESSAGE_MAX])
{
	const char *option;
	char reason[API_KEY_MESSAGE_MAX];
	bool done = credentials_check_all(credentials, &option, reason);

	if (!done)
		snprintf(ret_message, CREDENTIALS_MESSAGE_MAX, "%s: %s", option, reason);
	return done;
}
