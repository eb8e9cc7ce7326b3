/* One address as the value of an option of redlockd, for the unit test and the fuzz target of addresses. */
#ifndef PARSE_ADDRESS_H
#define PARSE_ADDRESS_H

#include <assert.h>
#include <string.h>

#include "server/config/config.h"

/* NULL, or the reason. It is added on success alone. */
static inline const char *parse_address(const char *option, const char *text, struct options *ret_options)
{
	const struct options_entry *entry = options_entry_of(&config_table, option);

	memset(ret_options, 0, sizeof *ret_options);
	const char *reason = entry->parse(entry, text, ret_options);
	assert(ret_options->listen_count + ret_options->master_count == (reason == NULL));
	assert(!reason || reason[0] != '\0');
	return reason;
}

static inline const char *parse_listen(const char *text, struct address *ret_address)
{
	static struct options options;
	const char *reason = parse_address("listen", text, &options);

	*ret_address = options.listen[0];
	return reason;
}

static inline const char *parse_master(const char *text, struct address *ret_address)
{
	static struct options options;
	const char *reason = parse_address("masters", text, &options);

	*ret_address = options.masters[0];
	return reason;
}

#endif
