/* What the files of the options share: the table and the parsing of one value. For server/config and its tests only.
 *
 * options_table.c has the table; options.c reads the sources (flags, environment, file); options_check.c checks what
 * concerns several options; options_parse.c turns a text into a value, with options_address.c for addresses and
 * options_words.c for numbers; options_message.c writes the messages; options_help.c prints the table. */
#ifndef OPTIONS_TABLE_H
#define OPTIONS_TABLE_H

#include "config.h"

enum options_kind {
	OPTIONS_KIND_LISTEN,  /* a list of listen addresses */
	OPTIONS_KIND_MASTERS, /* a list of masters */
	OPTIONS_KIND_DEV,     /* true, false or a number; a flag may leave the value out */
	OPTIONS_KIND_PREFIX,  /* a text */
	OPTIONS_KIND_PATH,    /* of a file */
	OPTIONS_KIND_HOSTS,   /* a list of names of hosts */
	OPTIONS_KIND_ORIGINS, /* a list of origins */
	OPTIONS_KIND_U32,     /* whole numbers, with bounds */
	OPTIONS_KIND_U64,
	OPTIONS_KIND_FRACTION, /* a number from 0 to 0.5 */
	OPTIONS_KIND_SWITCH,   /* true or false; a flag may leave the value out */
	OPTIONS_KIND_CHOICE,   /* one of `choices`, stored as its index */
	OPTIONS_KIND_CONFIG,   /* this and the two below: nothing is stored */
	OPTIONS_KIND_HELP,
	OPTIONS_KIND_VERSION
};

struct options_entry {
	const char *name;     /* as a flag, without its dashes */
	const char *argument; /* name of the value in the help; NULL: takes none */
	enum options_kind kind;
	size_t offset;              /* of the member of struct options that receives it */
	uint64_t min, max;          /* numbers */
	const char *standard;       /* the default, as text; NULL: none */
	const char *allowed;        /* in words; NULL: made from min, max or choices */
	const char *const *choices; /* NULL at the end */
	const char *help;           /* a sentence or more */
};

enum { OPTIONS_COUNT = 44, OPTIONS_NAME_MAX = 64, OPTIONS_ALLOWED_MAX = 160 };
extern const struct options_entry options_table[OPTIONS_COUNT];

/* Where a value came from, in rising precedence. */
enum options_source { OPTIONS_FROM_DEFAULT, OPTIONS_FROM_FILE, OPTIONS_FROM_ENVIRONMENT, OPTIONS_FROM_FLAG };

/* The option with this name (len bytes) in this source, or NULL. */
const struct options_entry *options_find(const char *given, size_t len, enum options_source source);
/* The option with this name in the table, which it must have. */
const struct options_entry *options_entry_of(const char *name);

/* True for the variables that Kubernetes sets in every pod: a service called redlockd makes REDLOCKD_SERVICE_HOST,
 * REDLOCKD_PORT=tcp://… and REDLOCKD_PORT_8080_TCP_ADDR. They are ignored. */
bool options_is_service_link(const char *name, size_t len, const char *value);

/* True if the value is a list, separated by commas. */
bool options_is_list(const struct options_entry *entry);
/* True if a flag may leave the value out. */
bool options_value_optional(const struct options_entry *entry);
/* True if the option has an environment variable; all but --help and --version have. */
bool options_in_environment(const struct options_entry *entry);
/* True if the option is a key of the configuration file; --config is not. */
bool options_in_file(const struct options_entry *entry);

/* Writes the option's name as that source spells it: --default-ttl-ms, REDLOCKD_DEFAULT_TTL_MS, default_ttl_ms. */
void options_spell(const struct options_entry *entry, enum options_source source, char name[OPTIONS_NAME_MAX]);

/* What is allowed, in words. Returns `buffer` or a static string. */
const char *options_allowed(const struct options_entry *entry, char buffer[OPTIONS_ALLOWED_MAX]);

/* Parses one value (of a list: one address, which is added) and stores it in *options. False and a reason, a static
 * string, if it is not one. */
bool options_parse_value(const struct options_entry *entry, const char *text, struct options *options,
			 const char **ret_reason) __attribute__((warn_unused_result));

/* A whole number within bounds; false and a reason if it is none. */
bool options_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number, const char **ret_reason)
	__attribute__((warn_unused_result));

/* True for whole UTF-8 without control characters. */
bool options_is_plain_text(const char *text);

/* NULL, or why it cannot be the name of a host or an IPv4 address (with `bracket`: an IPv6 address; its brackets are
 * not in the text). */
const char *options_check_host(const char *host, bool bracket);

/* Writes a bad address of a master for a message, without anything that could be (part of) a password. `next` is the
 * rest of its list, "" for none: a comma within a password looks like the end of an address. */
void options_redact(const char *text, const char *next, char *shown, size_t size);

#endif
