/* key new and key hash: see key_command.h. The key goes to stdout, or into a file and nowhere else; the entry for the
 * server holds only its hash. */
#include "key_command.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/cli_base.h"
#include "print.h"

/* acquire and inspect. */
enum { RIGHTS_USUAL = 1 << 0 | 1 << 1, NAME_HEX = 8 };

static json_t *key_command_prefixes(const struct arguments *arguments)
{
	json_t *list = json_array();

	assert(arguments->prefix_count <= ARGUMENTS_PREFIXES_MAX);
	for (size_t i = 0; i < arguments->prefix_count; i++)
		json_array_append_new(list, json_string(arguments->prefixes[i]));
	if (arguments->prefix_count == 0)
		json_array_append_new(list, json_string(""));
	return list;
}

static json_t *key_command_rights(const struct arguments *arguments)
{
	unsigned rights = arguments->rights == 0 ? RIGHTS_USUAL : arguments->rights;
	json_t *list = json_array();

	for (unsigned right = 0; right < ARGUMENTS_RIGHTS; right++)
		if ((rights & 1U << right) != 0)
			json_array_append_new(list, json_string(arguments_rights[right]));
	return list;
}

/* The entry for the keys file. Names there are unique: without --name it is a part of the hash. */
static json_t *key_command_entry(const struct arguments *arguments, const char *hash)
{
	char name[ARGUMENTS_KEY_NAME_MAX + 1];

	assert(strlen(hash) == API_KEY_HEX_LEN);
	if (arguments->key_name)
		snprintf(name, sizeof name, "%s", arguments->key_name);
	else
		snprintf(name, sizeof name, "key-%.*s", NAME_HEX, hash);
	return json_pack("{s:s, s:s, s:o, s:o}", "name", name, "sha256", hash, "prefixes",
			 key_command_prefixes(arguments), "rights", key_command_rights(arguments));
}

static int key_command_end(bool printed)
{
	if (!printed)
		report_complain("stdout: %s", strerror(errno));
	return printed ? EXIT_STATUS_OK : EXIT_STATUS_SYSTEM;
}

static int key_command_hash_failed(void)
{
	report_complain("SHA-256: GnuTLS failed");
	return EXIT_STATUS_SYSTEM;
}

static int key_command_save(const struct arguments *arguments, const char *key, const char *hash)
{
	if (arguments->out && !api_key_save(arguments->out, key)) {
		report_complain("--out '%s': %s", arguments->out, strerror(errno));
		return EXIT_STATUS_USAGE;
	}
	json_t *entry = key_command_entry(arguments, hash);
	int status = key_command_end(print_key(arguments->out ? NULL : key, hash, entry, arguments->json));
	json_decref(entry);
	return status;
}

int key_command_new(const struct arguments *arguments)
{
	char key[API_KEY_MAX + 1], hash[API_KEY_HEX_LEN + 1];

	assert(arguments->command == COMMAND_KEY_NEW);
	if (!api_key_make(key)) {
		report_complain("getrandom: %s", strerror(errno));
		return EXIT_STATUS_SYSTEM;
	}
	int status = api_key_hash(key, hash) ? key_command_save(arguments, key, hash) : key_command_hash_failed();
	explicit_bzero(key, sizeof key);
	return status;
}

/* From --key-file, or stdin where that is "-" or not given. */
static bool key_command_read(const char *path, char ret_key[API_KEY_MAX + 1])
{
	char message[API_KEY_MESSAGE_MAX];
	const char *reason = NULL;

	if (path && strcmp(path, "-") != 0)
		reason = api_key_read(path, ret_key, message) ? NULL : message;
	else
		reason = api_key_read_stdin(ret_key);
	if (reason)
		report_complain("%s: %s", path ? "--key-file" : "stdin", reason);
	return !reason;
}

int key_command_hash(const struct arguments *arguments)
{
	char key[API_KEY_MAX + 1], hash[API_KEY_HEX_LEN + 1];

	assert(arguments->command == COMMAND_KEY_HASH);
	if (!key_command_read(arguments->credentials.api_key_file, key))
		return EXIT_STATUS_USAGE;
	bool hashed = api_key_hash(key, hash);
	explicit_bzero(key, sizeof key);
	return hashed ? key_command_end(print_key(NULL, hash, NULL, arguments->json)) : key_command_hash_failed();
}
