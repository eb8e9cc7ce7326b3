/* SPDX-License-Identifier: MIT */
/* key new and key hash: see commands.h. The key goes to stdout, or into a file and nowhere else; the entry for the
 * server holds only its hash. */
#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/cli_base.h"
#include "commands.h"

/* acquire and inspect. */
enum { RIGHTS_USUAL = 1 << 0 | 1 << 1, NAME_HEX = 8 };

/* The entry for the keys file. Names there are unique: without --name it is a part of the hash. */
static json_t *key_command_entry(const struct arguments *arguments, const char *hash)
{
	unsigned rights = arguments->rights == 0 ? RIGHTS_USUAL : arguments->rights;
	json_t *prefixes = json_array(), *names = json_array();
	char name[ARGUMENTS_KEY_NAME_MAX + 1];
	assert(strlen(hash) == API_KEY_HEX_LEN && arguments->prefix_count <= ARGUMENTS_PREFIXES_MAX);
	snprintf(name, sizeof name, "key-%.*s", NAME_HEX, hash);
	for (size_t i = 0; i < arguments->prefix_count; i++)
		json_array_append_new(prefixes, json_string(arguments->prefixes[i]));
	if (arguments->prefix_count == 0)
		json_array_append_new(prefixes, json_string(""));
	for (unsigned right = 0; right < ARGUMENTS_RIGHTS; right++)
		if ((rights & 1U << right) != 0)
			json_array_append_new(names, json_string(arguments_rights[right]));
	return json_pack("{s:s, s:s, s:o, s:o}", "name", arguments->key_name ? arguments->key_name : name, "sha256",
			 hash, "prefixes", prefixes, "rights", names);
}

int key_command_new(const struct arguments *arguments)
{
	char key[API_KEY_MAX + 1], hash[API_KEY_HEX_LEN + 1];
	const char *out = arguments->out;
	assert(arguments->command == COMMAND_KEY_NEW);
	api_key_make(key);
	api_key_hash(key, hash);
	json_t *entry = key_command_entry(arguments, hash);
	bool saved = !out || api_key_save(out, key);
	if (!saved) {
		report_error("--out '%s': %s", out, strerror(errno));
		json_decref(entry);
	} else if (arguments->json) {
		print_json(json_pack("{s:s*, s:s, s:o}", "key", out ? NULL : key, "sha256", hash, "entry", entry));
	} else {
		if (!out)
			printf("key     %s\n", key);
		printf("sha256  %s\nentry   ", hash);
		print_json(entry);
	}
	explicit_bzero(key, sizeof key);
	return saved ? print_end(true) : EXIT_STATUS_USAGE;
}

/* The key is in --key-file, or on stdin if that is "-" or not given. */
int key_command_hash(const struct arguments *arguments)
{
	const char *path = arguments->credentials.api_key_file, *reason = NULL;
	char key[BEARER_MAX + 1], hash[API_KEY_HEX_LEN + 1], message[API_KEY_MESSAGE_MAX];
	assert(arguments->command == COMMAND_KEY_HASH);
	if (!path || strcmp(path, "-") == 0)
		reason = api_key_read_stdin(key);
	else if (!api_key_read(path, key, message))
		reason = message;
	if (reason) {
		report_error("%s: %s", path ? "--key-file" : "stdin", reason);
		return EXIT_STATUS_USAGE;
	}
	api_key_hash(key, hash);
	explicit_bzero(key, sizeof key);
	if (arguments->json)
		print_json(json_pack("{s:s}", "sha256", hash));
	else
		puts(hash);
	return print_end(true);
}
