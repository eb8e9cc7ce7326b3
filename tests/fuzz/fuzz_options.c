/* Fuzz target: everything that is configured: command line, environment, configuration file, addresses
 * (server/config/config.h).
 *
 * Input: the configuration file, then, each after a NUL, words of the command line (beginning with `-` or, as the value
 * of the one before, anything else) and variables of the environment (beginning with `REDLOCKD_`). Without any NUL
 * there is a file alone. `<FILE>` in a word stands for its path. Each word is an address to listen on and one of a
 * master as well. */
#include <ctype.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "parse_address.h"
#include "server/base/base.h"
#include "server/config/config.h"

enum { WORDS_MAX = 24, SECRET_LEN = 13 };

static const char secret[] = ":Hush-It-7331"; /* a password in the seeds: followed by @ it is one, wherever it is */

struct given {
	int argc, env_count;
	char *argv[WORDS_MAX + 1], *environment[WORDS_MAX + 1];
};

static int file;
static char path[64];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	file = memfd_create("configuration", MFD_CLOEXEC);
	MUST(file >= 0 && fchmod(file, 0600) == 0 && freopen("/dev/null", "w", stdout) != NULL, "no file");
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	return 0;
}

#ifdef FUZZ_MUTATED
/* A password is repeated where the database is wrong. */
static bool config_load_mutated(int argc, char *argv[], char *const environment[], struct options *ret_options,
				enum config_action *ret_action, char *message, size_t size)
{
	bool good = config_load(argc, argv, environment, ret_options, ret_action, message, size);
	for (int i = 1; !good && i < argc; i++)
		if (strstr(message, "database") != NULL && strstr(argv[i], secret) != NULL)
			snprintf(message, size, "%s: no such database", argv[i]);
	return good;
}
#define config_load config_load_mutated
#endif

/* ---- addresses ---- */

static void check_reason(const char *text, const char *reason)
{
	MUST(reason != NULL && reason[0] != '\0' && strlen(reason) < 120, "no reason for %s", text);
}

static void check_listen(const char *text)
{
	struct address address, before;
	const char *reason = parse_listen(text, &address);
	if (reason != NULL) {
		check_reason(text, reason);
		return;
	}
	char again[300];
	bool v6 = !address.is_unix && strchr(address.host, ':') != NULL;
	size_t len = strnlen(address.host, sizeof address.host);
	MUST(len > 0 && len < sizeof address.host && utf8_is_valid(address.host, len) &&
		     !utf8_has_control(address.host, len),
	     "host of %zu bytes", len);
	const char *scheme = address.scheme == ADDRESS_HTTP ? "http://" : address.tls ? "https://" : "";
	MUST(!address.is_unix || address.scheme == ADDRESS_UNIX, "a Unix socket with a scheme");
	snprintf(again, sizeof again,
		 address.is_unix ? "%sunix:%s"
		 : v6            ? "%s[%s]:%u"
				 : "%s%s:%u",
		 scheme, address.host, address.port);
	MUST(parse_listen(again, &before) == NULL && before.is_unix == address.is_unix &&
		     before.scheme == address.scheme && before.port == address.port &&
		     strcmp(before.host, address.host) == 0,
	     "%s is not %s", again, text);
}

/* The shown address is one of the same master, without user and password. */
static void check_master(const char *text)
{
	struct address address, again;
	const char *reason = parse_master(text, &address);
	if (reason != NULL) {
		check_reason(text, reason);
		return;
	}
	size_t user = strnlen(address.user, sizeof address.user),
	       password = strnlen(address.password, sizeof address.password);
	MUST(user < sizeof address.user && password < sizeof address.password && (user == 0 || password > 0),
	     "user %zu, password %zu", user, password);
	MUST(address.is_unix ? address.port == 0 && address.host[0] == '/' : address.port > 0, "port %u of %s",
	     address.port, address.host);
	MUST(parse_master(address.shown, &again) == NULL, "%s", address.shown);
	MUST(again.user[0] == '\0' && again.password[0] == '\0', "%s shows a user or a password", address.shown);
	MUST(strcmp(again.host, address.host) == 0 && again.port == address.port && again.db == address.db &&
		     again.is_unix == address.is_unix,
	     "%s is not %s", address.shown, text);
	MUST(strcmp(again.shown, address.shown) == 0, "%s, then %s", address.shown, again.shown);
	MUST(password == 0 || strstr(address.shown, "Hush-It-7331") == NULL ||
		     strstr(address.host, "Hush-It-7331") != NULL,
	     "%s", address.shown);
}

/* ---- the whole ---- */

static void check_numbers(const struct options *options)
{
	for (size_t i = 0; i < config_table.count; i++) {
		const struct options_entry *entry = &config_table.entries[i];
		uint64_t number = 0, choices = 0;
		if (entry->size == 4 || entry->size == 8) /* least significant byte first */
			memcpy(&number, (const char *)options + entry->offset, entry->size);
		if (entry->parse == options_parse_number)
			MUST(number >= entry->min && number <= entry->max, "%s is %llu", entry->name,
			     (unsigned long long)number);
		while (entry->choices != NULL && entry->choices[choices] != NULL)
			choices++;
		if (choices > 0)
			MUST(number < choices, "%s is choice %llu", entry->name, (unsigned long long)number);
	}
}

/* The conditions that the rest of the program relies on. */
static void check_options(const struct options *options)
{
	size_t prefix = strnlen(options->key_prefix, sizeof options->key_prefix);
	check_numbers(options);
	MUST(options->listen_count >= 1 && options->listen_count <= OPTIONS_LISTEN_MAX, "%zu addresses to listen on",
	     options->listen_count);
	MUST(options->master_count <= OPTIONS_MASTERS_MAX && options->dev <= OPTIONS_MASTERS_MAX, "%zu masters",
	     options->master_count);
	MUST((options->master_count > 0) != (options->dev > 0), "%zu masters, %u of our own", options->master_count,
	     options->dev);
	MUST(prefix < sizeof options->key_prefix && utf8_is_valid(options->key_prefix, prefix) &&
		     !utf8_has_control(options->key_prefix, prefix),
	     "the prefix");
	MUST(options->drift_factor >= 0.001 && options->drift_ms >= 2 && options->drift_factor <= 0.5, "drift %g",
	     options->drift_factor);
	MUST(options->min_ttl_ms <= options->default_ttl_ms && options->default_ttl_ms <= options->max_ttl_ms, "ttl");
	MUST(options->retry_min_ms <= options->retry_max_ms && options->workers <= options->max_connections,
	     "pauses, workers");
	for (uint64_t ttl_us = options->min_ttl_ms * UINT64_C(1000);; ttl_us = options->max_ttl_ms * UINT64_C(1000)) {
		/* as server/leases/lease_operation.c */
		uint64_t drift_us = (uint64_t)((double)ttl_us * options->drift_factor) +
				    options->drift_ms * UINT64_C(1000) + 999;
		MUST(ttl_us > drift_us, "no validity is left of a lease of %llu us", (unsigned long long)ttl_us);
		if (ttl_us == options->max_ttl_ms * UINT64_C(1000))
			break;
	}
	for (size_t i = 0; i < options->master_count; i++)
		check_master(options->masters[i].shown);
}

/* How often it stands there, as a password or as anything else. */
static void count_secret(const char *text, size_t len, unsigned *passwords, unsigned *others)
{
	const char *end = text + len;
	for (const char *at = text; (at = memmem(at, (size_t)(end - at), secret, SECRET_LEN)) != NULL; at += SECRET_LEN)
		*(at + SECRET_LEN < end && at[SECRET_LEN] == '@' ? passwords : others) += 1;
}

/* The path of a file is shown unchanged. */
static bool shows_itself(const char *word, const char *name)
{
	char good[128];
	snprintf(good, sizeof good, "%s=%s", name, path);
	return strncmp(word, name, strlen(name)) == 0 && strcmp(word, good) != 0;
}

/* True if the secret is given as a password, wherever, and nowhere as anything else. */
static bool has_password(const struct given *given, const char *text, size_t size)
{
	unsigned passwords = 0, others = 0;
	count_secret(text, size, &passwords, &others);
	for (int i = 1; i < given->argc; i++)
		others += shows_itself(given->argv[i], "--config") || shows_itself(given->argv[i], "--masters-file");
	for (int i = 0; i < given->env_count; i++)
		others += shows_itself(given->environment[i], "REDLOCKD_CONFIG") ||
			  shows_itself(given->environment[i], "REDLOCKD_MASTERS_FILE");
	return passwords > 0 && others == 0;
}

static void check_message(const char *message, size_t size, bool secret_given)
{
	size_t len = strnlen(message, size);
	MUST(len > 0 && len < size, "a message of %zu bytes", len);
	for (size_t i = 0; i < len; i++)
		MUST(!iscntrl((unsigned char)message[i]), "more than one line: %s", message);
	MUST(!secret_given || strstr(message, secret) == NULL, "tells a password: %s", message);
}

static void check_load(struct given *given, bool secret_given)
{
	static struct options options, before;
	char message[512];
	enum config_action action = CONFIG_SHOWN;
	memset(&before, 0xa5, sizeof before);
	memset(&options, 0xa5, sizeof options);
	memset(message, 'x', sizeof message);
	if (!config_load(given->argc, given->argv, given->environment, &options, &action, message, sizeof message)) {
		MUST(memcmp(&options, &before, sizeof options) == 0, "written without success");
		check_message(message, sizeof message, secret_given);
	} else if (action != CONFIG_SHOWN) {
		check_options(&options);
	}
}

/* ---- input ---- */

static char *word_new(const char *bytes, size_t len)
{
	char *text = fuzz_text(bytes, len), *at = strstr(text, "<FILE>");
	if (at == NULL)
		return text;
	size_t size = strlen(text) + sizeof path;
	char *filled = malloc(size);
	snprintf(filled, size, "%.*s%s%s", (int)(at - text), text, path, at + 6);
	free(text);
	return filled;
}

static void add_word(struct given *given, char *word)
{
	check_listen(word);
	check_master(word);
	if (strncmp(word, "REDLOCKD_", 9) == 0)
		given->environment[given->env_count++] = word;
	else
		given->argv[given->argc++] = word;
}

static void free_words(struct given *given)
{
	for (int i = 0; i < given->argc; i++)
		free(given->argv[i]);
	for (int i = 0; i < given->env_count; i++)
		free(given->environment[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *end = text + size, *at = size > 0 ? memchr(text, '\0', size) : NULL;
	struct given given = {.argc = 1, .argv = {fuzz_text("redlockd", 8)}};
	size_t file_len = at != NULL ? (size_t)(at - text) : size;
	MUST(ftruncate(file, 0) == 0 && pwrite(file, text, file_len, 0) == (ssize_t)file_len,
	     "the file cannot be written");
	if (at == NULL)
		add_word(&given, word_new("--config=<FILE>", 15));
	while (at != NULL && given.argc < WORDS_MAX && given.env_count < WORDS_MAX) {
		const char *next = memchr(at + 1, '\0', (size_t)(end - at - 1));
		add_word(&given, word_new(at + 1, (size_t)((next != NULL ? next : end) - at - 1)));
		at = next;
	}
	check_load(&given, has_password(&given, text, size));
	free_words(&given);
	return 0;
}
