/* SPDX-License-Identifier: MIT */
/* The options of both programs: one type of table, one parser, one writer of help.
 *
 * A table defines the options; the values go into a struct of the caller. Precedence: flag, environment variable, key
 * of the configuration file, default. An overridden value is not checked. `--max-ttl-ms` of redlockd is
 * REDLOCKD_MAX_TTL_MS is "max_ttl_ms". No message repeats a value that may be a password: it names the option as it was
 * given and, in a list, the position. One thread; the parser is getopt_long(). */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- address.c: "scheme://user:pass@host:port/db", "host:port", "unix:/path?db=1" ---- */

enum { ADDRESS_HOST_MAX = 256, ADDRESS_USER_MAX = 128, ADDRESS_TEXT_MAX = 2048, ADDRESS_UNIX_MAX = 107 };

/* The schemes that an address may have, in small letters; then its other parts. */
enum address_part {
	ADDRESS_PLAIN = 1, /* no scheme; a port alone, with or without its colon, is one of 127.0.0.1 */
	ADDRESS_UNIX = 2,
	ADDRESS_HTTP = 4,
	ADDRESS_HTTPS = 8,
	ADDRESS_REDIS = 16,
	ADDRESS_REDISS = 32,
	ADDRESS_PASSWORD = 64,
	ADDRESS_SLASH = 128,      /* a / may follow */
	ADDRESS_DB = 256,         /* or /N, a database; of a Unix socket ?db=N */
	ADDRESS_NEEDS_PORT = 512, /* a port is required, except for a Unix socket */
	ADDRESS_ZERO_PORT = 1024, /* the port may be 0 */
};

struct address {
	enum address_part scheme;
	bool is_unix, is_v6, has_port, tls;                      /* tls: by its scheme */
	char user[ADDRESS_USER_MAX], password[ADDRESS_HOST_MAX]; /* decoded; "": none */
	char host[ADDRESS_HOST_MAX];                             /* without brackets; or the path of a Unix socket */
	uint16_t port, db;
	char shown[300]; /* for people, without user and password; set by the caller */
};

/* NULL, or the reason (static, so it never holds a part of the text). *ret_address is written only on success. */
const char *address_parse(const char *text, unsigned parts, struct address *ret_address)
	__attribute__((warn_unused_result));

/* ---- the table ---- */

enum { OPTIONS_MAX = 64, OPTIONS_NAME_MAX = 64, OPTIONS_ALLOWED_MAX = 160, OPTIONS_PATH_MAX = 1024 };

/* Properties of an option besides its value; the types that it may have in JSON. */
enum options_trait {
	OPTIONS_OPTIONAL = 1, /* a flag may leave the value out: it is "true" */
	OPTIONS_LIST = 2,     /* items separated by commas, at most `max`; the value begins with their size_t count */
	OPTIONS_REPEATED = 4, /* the flag may be repeated; a repeated flag with a value is otherwise a mistake */
	OPTIONS_NO_FLAG = 8,  /* only a variable */
	OPTIONS_SHOWN = 16,   /* a bad value is shown, unless it looks like an address or a secret */
	OPTIONS_ENDS = 32,    /* --help, --version: nothing else counts */
	OPTIONS_FILE = 64,    /* the configuration file, which cannot name another one */
	OPTIONS_INTEGER = 128,
	OPTIONS_REAL = 256,
	OPTIONS_TRUTH = 512,
	OPTIONS_STRING = 1024,
	OPTIONS_UNITS = 2048 /* a number in milliseconds: 500ms, 60s, 5m, 1h or a number alone */
};

struct options_entry {
	const char *name;     /* as a flag, without its dashes */
	char letter;          /* '\0': none */
	const char *argument; /* name of the value in the help; NULL: takes none */
	unsigned traits;
	/* Stores the value in its member; NULL, or the reason (static, so it never holds a part of the value). */
	const char *(*parse)(const struct options_entry *entry, const char *text, void *values);
	size_t offset, size;        /* of the member */
	uint64_t min, max;          /* numbers; bytes of texts; items of lists */
	const char *standard;       /* the default, as text; NULL: none */
	const char *allowed;        /* as text, a printf() format of min and max; NULL: range, times or choices */
	const char *const *choices; /* NULL at the end */
	unsigned scope;             /* a bit for each command that has it; 0: all */
	const char *variable;       /* NULL: follows from the name, unless table->names_variables; "": none */
	const char *help;           /* a sentence or more */
};

#define OPTIONS_AT(type, member) .offset = offsetof(type, member), .size = sizeof((type *)NULL)->member
#define OPTIONS_RANGE "%" PRIu64 " to %" PRIu64
#define OPTIONS_NUMBER(least, most)                                                                              \
	.argument = "N", .traits = OPTIONS_SHOWN | OPTIONS_INTEGER, .parse = options_parse_number, .min = least, \
	.max = most
#define OPTIONS_TIME(least, most, function)                                                             \
	.argument = "TIME", .traits = OPTIONS_SHOWN | OPTIONS_UNITS | OPTIONS_INTEGER | OPTIONS_STRING, \
	.parse = function, .min = least, .max = most
#define OPTIONS_CHOICE(what, trait, texts) \
	.argument = what, .traits = OPTIONS_SHOWN | (trait), .parse = options_parse_choice, .choices = texts
#define OPTIONS_END(flag, initial, texts) \
	.name = flag, .letter = initial, .traits = OPTIONS_ENDS, .allowed = "no value", .help = texts

struct options_reader;

struct options_table {
	const char *program;
	const char *variables; /* the beginning of their names; an unknown one is a mistake */
	bool names_variables;  /* only entries that name their variable have one; an empty variable counts as unset */
	const struct options_entry *entries;
	size_t count; /* of the entries */
	/* Handles a word that is no option. False: the message was written. NULL: such a word is a mistake. */
	bool (*operand)(struct options_reader *reader, const char *word);
	/* Checks the configuration file that was read. False: the message was written. NULL: nothing to check. */
	bool (*check_file)(struct options_reader *reader);
	const char *usage; /* the head of --help */
};

enum options_source { OPTIONS_FROM_DEFAULT, OPTIONS_FROM_FILE, OPTIONS_FROM_ENVIRONMENT, OPTIONS_FROM_FLAG };

struct options_reader {
	const struct options_table *table;
	void *values; /* zeroed by the caller */
	char *message;
	size_t message_size;
	/* ---- set by options_read(), for checks afterwards ---- */
	enum options_source origins[OPTIONS_MAX]; /* of the values, by index in the table */
	enum options_source source;               /* being read; for messages */
	unsigned scope;                           /* the command; 0: none. Set by table->operand, as its name */
	const char *command;
	const struct options_entry *end; /* the option with OPTIONS_ENDS that was given, or NULL */
	char **rest;      /* the words after --, or those of another program; for table->operand those that follow */
	bool is_rest;     /* set by table->operand: the words from this one on are those of another program */
	const char *path; /* of the configuration file; NULL: none */
	struct stat file; /* its owner and mode */
};

/* Reads all sources; `environment` holds "NAME=value", NULL at the end. False: one line in reader->message. */
bool options_read(struct options_reader *reader, int argc, char **argv, char *const environment[])
	__attribute__((warn_unused_result));

/* ---- for checks of several options ---- */

/* The entry of that name, which must exist. */
const struct options_entry *options_entry_of(const struct options_table *table, const char *name);
enum options_source options_origin(const struct options_reader *reader, const char *name);

/* Writes "<option as it was given>[, address N][=value]: <reason>; allowed are …". `item` 0, `value` NULL: without.
 * Always false. */
bool options_reject_value(struct options_reader *reader, const struct options_entry *entry, size_t item,
			  const char *value, const char *reason);
/* The same without what is allowed, by the spelling of the source that set the option. */
bool options_reject_option(struct options_reader *reader, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Writes a message of another form, as one line. Always false. */
bool options_reject(struct options_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True if this source may set this option. */
bool options_is_in_source(const struct options_table *table, const struct options_entry *entry,
			  enum options_source source);

/* Writes the name as that source spells it: --max-ttl-ms, REDLOCKD_MAX_TTL_MS, max_ttl_ms. */
void options_spell(const struct options_table *table, const struct options_entry *entry, enum options_source source,
		   char name[OPTIONS_NAME_MAX]);
/* Writes the allowed values as text. */
void options_allowed(const struct options_entry *entry, char allowed[OPTIONS_ALLOWED_MAX]);

/* How many letters must be inserted, deleted or changed to turn one word into the other, which is shorter than a
 * name. */
size_t options_distance(const char *word, const char *name);
/* True if a word may be shown: a few small letters and dashes are hardly ever a secret. */
bool options_is_harmless(const char *word);

/* ---- parsers of values, for tables ----
 *
 * Whole numbers from min to max, in 1, 4 or 8 bytes; numbers from min to max thousandths, as a double; one of the
 * choices, as its index in 1 or 4 bytes; UTF-8 of min to max bytes without control characters, copied, or as a pointer
 * to `text` where the member has the size of one. */
const char *options_parse_number(const struct options_entry *entry, const char *text, void *values);
const char *options_parse_fraction(const struct options_entry *entry, const char *text, void *values);
const char *options_parse_choice(const struct options_entry *entry, const char *text, void *values);
const char *options_parse_text(const struct options_entry *entry, const char *text, void *values);

extern const char *const options_truths[]; /* false, true */

/* --help; and a text as there, broken into indented lines. */
void options_print_wrapped(FILE *to, const char *text);
void options_print_help(const struct options_table *table, FILE *to);

#endif
