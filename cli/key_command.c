/* key new and key hash: see key_command.h. The key goes to stdout, or into a file and nowhere else; what the server is
 * to have of it is the entry, which holds its hash. */
#include "key_command.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/http/api_key.h"
#include "exit_status.h"
#include "print.h"
#include "report.h"

/* Enough to take locks and to see who has them. */
enum { RIGHTS_USUAL = 1 << 0 | 1 << 1, NAME_HEX = 8 };

static json_t *list_prefixes(const struct options *options)
{
	json_t *list = json_array();

	for (size_t i = 0; i < options->prefix_count; i++)
		json_array_append_new(list, json_string(options->prefixes[i]));
	if (options->prefix_count == 0)
		json_array_append_new(list, json_string(""));
	return list;
}

static json_t *list_rights(const struct options *options)
{
	unsigned rights = options->rights == 0 ? RIGHTS_USUAL : options->rights;
	json_t *list = json_array();

	for (unsigned right = 0; right < OPTIONS_RIGHTS; right++)
		if ((rights & 1U << right) != 0)
			json_array_append_new(list, json_string(options_rights[right]));
	return list;
}

/* As it stands in the file of keys. A name there is for one key alone: without one, a part of the hash. */
static json_t *make_entry(const struct options *options, const char *hash)
{
	char name[OPTIONS_KEY_NAME_MAX + 1];

	if (options->key_name != NULL)
		snprintf(name, sizeof(name), "%s", options->key_name);
	else
		snprintf(name, sizeof(name), "key-%.*s", NAME_HEX, hash);
	return json_pack("{s:s, s:s, s:o, s:o}", "name", name, "sha256", hash, "prefixes", list_prefixes(options),
			 "rights", list_rights(options));
}

static int end(bool printed)
{
	if (!printed)
		report_complain("stdout: %s", strerror(errno));
	return printed ? STATUS_OK : STATUS_SYSTEM;
}

static int hash_failed(void)
{
	report_complain("SHA-256: GnuTLS refuses");
	return STATUS_SYSTEM;
}

static int key_save_and_print(const struct options *options, const char *key, const char *hash)
{
	if (options->out != NULL && !api_key_save(options->out, key)) {
		report_complain("--out '%s': %s", options->out, strerror(errno));
		return STATUS_USAGE;
	}
	json_t *entry = make_entry(options, hash);
	int status = end(print_key(options->out == NULL ? key : NULL, hash, entry, options->json));
	json_decref(entry);
	return status;
}

int key_command_new(const struct options *options)
{
	char key[API_KEY_MAX + 1], hash[API_KEY_HEX_LEN + 1];

	if (!api_key_make(key)) {
		report_complain("getrandom: %s", strerror(errno));
		return STATUS_SYSTEM;
	}
	int status = api_key_hash(key, hash) ? key_save_and_print(options, key, hash) : hash_failed();
	explicit_bzero(key, sizeof(key));
	return status;
}

/* From --key-file, or stdin where that is "-" or not given. */
static bool key_read(const char *path, char ret_key[API_KEY_MAX + 1])
{
	char message[API_KEY_MESSAGE_MAX];
	const char *reason = NULL;

	if (path != NULL && strcmp(path, "-") != 0)
		reason = api_key_read(path, ret_key, message) ? NULL : message;
	else
		reason = api_key_read_stdin(ret_key);
	if (reason != NULL)
		report_complain("%s: %s", path == NULL ? "stdin" : "--key-file", reason);
	return reason == NULL;
}

int key_command_hash(const struct options *options)
{
	char key[API_KEY_MAX + 1], hash[API_KEY_HEX_LEN + 1];

	if (!key_read(options->credentials.api_key_file, key))
		return STATUS_USAGE;
	bool hashed = api_key_hash(key, hash);
	explicit_bzero(key, sizeof(key));
	return hashed ? end(print_key(NULL, hash, NULL, options->json)) : hash_failed();
}
