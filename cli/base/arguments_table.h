/* The table of options. For arguments.c alone. */
#ifndef ARGUMENTS_TABLE_H
#define ARGUMENTS_TABLE_H

#include "arguments.h"

enum {
	IN_ACQUIRE = 1 << COMMAND_ACQUIRE,
	IN_EXTEND = 1 << COMMAND_EXTEND,
	IN_RELEASE = 1 << COMMAND_RELEASE,
	IN_STATUS = 1 << COMMAND_STATUS,
	IN_LIST = 1 << COMMAND_LIST,
	IN_MASTERS = 1 << COMMAND_MASTERS,
	IN_HEALTH = 1 << COMMAND_HEALTH,
	IN_RUN = 1 << COMMAND_RUN,
	IN_KEY_NEW = 1 << COMMAND_KEY_NEW,
	IN_KEY_HASH = 1 << COMMAND_KEY_HASH,
	IN_NAMED = IN_ACQUIRE | IN_EXTEND | IN_RELEASE | IN_STATUS | IN_RUN,
	IN_ALL = IN_NAMED | IN_LIST | IN_MASTERS | IN_HEALTH /* that ask a server */
};

struct arguments_row {
	const char *name;
	char letter; /* 0: none */
	bool has_value, secret;
	unsigned commands;
	/* NULL, or the reason (static) why the value is rejected */
	const char *(*parse)(struct arguments *, const char *value);
};

/* The row of an argument that begins with a dash, or NULL; *ret_inline is the value after its "=", or NULL. */
const struct arguments_row *arguments_table_find(const char *argument, const char **ret_inline);

/* True if the text looks like a key of redlockctl, which must be neither on a command line nor in a message. */
bool arguments_is_api_key(const char *text);

#endif
