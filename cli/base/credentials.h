/* The credentials for a server (a key, a certificate), and the CA that the server's certificate must come from. */
#ifndef CREDENTIALS_H
#define CREDENTIALS_H

#include <stdbool.h>

#include "api_key.h"

enum { CREDENTIALS_MESSAGE_MAX = API_KEY_MESSAGE_MAX + 32 };

struct credentials {
	/* PEM; NULL: not given. libcurl reads them again for each connection */
	const char *ca_file, *cert_file, *cert_key_file;
	const char *api_key_file;      /* NULL: not given */
	char api_key[API_KEY_MAX + 1]; /* empty: none */
};

/* Reads the key from its file, and checks that the other files can be read and that nobody else can read a private key.
 * Blocking, before anything is sent. False: a message that names the option. */
bool credentials_load(struct credentials *credentials, char ret_message[CREDENTIALS_MESSAGE_MAX])
	__attribute__((warn_unused_result));

#endif
