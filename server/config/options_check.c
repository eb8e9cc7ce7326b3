/* Checks that concern several options. A message names the option of the highest precedence among them. See
 * options_loader.h. */
#include <assert.h>
#include <string.h>

#include "masters_file.h"
#include "options_loader.h"

/* The one of several options that the message names: of the highest precedence, since the others may be defaults. */
static const struct options_entry *options_blame(struct options_loader *loader, const char *const names[], size_t count)
{
	const struct options_entry *blamed = options_entry_of(names[0]);

	assert(count > 0);
	for (size_t i = 1; i < count; i++) {
		const struct options_entry *entry = options_entry_of(names[i]);
		if (loader->origins[entry - options_table] > loader->origins[blamed - options_table])
			blamed = entry;
	}
	loader->source = loader->origins[blamed - options_table];
	return blamed;
}

/* Of two numbers the first must not be above the second. */
static bool options_check_order(struct options_loader *loader, const char *low_name, uint32_t low,
				const char *high_name, uint32_t high)
{
	const char *names[] = {low_name, high_name};
	char value[16], reason[96 + 2 * OPTIONS_NAME_MAX], other[OPTIONS_NAME_MAX];

	assert(strcmp(low_name, high_name) != 0);
	if (low <= high)
		return true;
	const struct options_entry *blamed = options_blame(loader, names, 2);
	bool is_low = strcmp(blamed->name, low_name) == 0;
	const struct options_entry *second = options_entry_of(is_low ? high_name : low_name);
	options_spell(second, loader->origins[second - options_table], other);
	snprintf(value, sizeof value, "%u", is_low ? low : high);
	snprintf(reason, sizeof reason, "%s than %s=%u%s", is_low ? "more" : "less", other, is_low ? high : low,
		 loader->origins[second - options_table] == OPTIONS_FROM_DEFAULT ? " (the default)" : "");
	return options_complain(loader, blamed, value, reason);
}

/* The shortest lease must have some validity left. */
static bool options_check_drift(struct options_loader *loader)
{
	const char *names[] = {"drift-ms", "drift-factor", "min-ttl-ms"};
	const struct options *options = loader->options;
	char reason[200];

	/* a whole ms must be left */
	if (options->min_ttl_ms * options->drift_factor + options->drift_ms + 1 < options->min_ttl_ms)
		return true;
	snprintf(reason, sizeof reason,
		 "no validity is left of the shortest lease: min-ttl-ms %u * drift-factor %g + drift-ms %u must be "
		 "less than min-ttl-ms by more than 1",
		 options->min_ttl_ms, options->drift_factor, options->drift_ms);
	return options_complain(loader, options_blame(loader, names, 3), NULL, reason);
}

/* The masters come from one place. */
static bool options_check_one_source(struct options_loader *loader)
{
	const struct options *options = loader->options;
	const char *given[3];
	size_t count = 0;

	assert(loader->options);
	if (options->master_count > 0)
		given[count++] = "masters";
	if (options->masters_file[0] != '\0')
		given[count++] = "masters-file";
	if (options->dev > 0)
		given[count++] = "dev";
	if (count == 1)
		return true;
	if (count == 0)
		return options_complain(loader, options_entry_of("masters"), NULL,
					"missing, and neither --masters-file nor --dev is given");
	char reason[64 + OPTIONS_NAME_MAX], other[OPTIONS_NAME_MAX];
	const struct options_entry *blamed = options_blame(loader, given, count);
	const struct options_entry *second = options_entry_of(strcmp(blamed->name, given[0]) == 0 ? given[1]
												  : given[0]);
	options_spell(second, loader->origins[second - options_table], other);
	snprintf(reason, sizeof reason, "cannot be used together with %s", other);
	return options_complain(loader, blamed, NULL, reason);
}

bool options_have_password(const struct options *options)
{
	for (size_t i = 0; i < options->master_count; i++)
		if (options->masters[i].password[0] != '\0')
			return true;
	return false;
}

static bool options_check_masters(struct options_loader *loader)
{
	const struct options_entry *masters = options_entry_of("masters"), *file = options_entry_of("masters-file");
	char name[OPTIONS_NAME_MAX], fault[OPTIONS_PATH_MAX + 256];

	if (!options_check_one_source(loader))
		return false;
	if (loader->origins[masters - options_table] == OPTIONS_FROM_FLAG && options_have_password(loader->options)) {
		loader->source = OPTIONS_FROM_FLAG;
		return options_complain(
			loader, masters, NULL,
			"a password on the command line can be seen by everybody on this host (ps): "
			"give the masters by --masters-file, --config or the variable REDLOCKD_MASTERS");
	}
	if (loader->options->masters_file[0] == '\0' || masters_file_load(loader->options, fault, sizeof fault))
		return true;
	options_spell(file, loader->origins[file - options_table], name);
	options_complain_text(loader, "%s: %s", name, fault);
	return false;
}

/* Two options that must be given together. */
static bool options_check_pair(struct options_loader *loader, const char *name, const char *value,
			       const char *other_name, const char *other_value)
{
	const struct options_entry *entry = options_entry_of(value[0] != '\0' ? name : other_name);
	char reason[64 + OPTIONS_NAME_MAX];

	assert(name && other_name);
	if ((value[0] == '\0') == (other_value[0] == '\0'))
		return true;
	snprintf(reason, sizeof reason, "--%s is needed with it", value[0] != '\0' ? other_name : name);
	loader->source = loader->origins[entry - options_table];
	return options_complain(loader, entry, value[0] != '\0' ? value : other_value, reason);
}

/* The TLS options fit together; addresses without a scheme get theirs. */
static bool options_check_tls(struct options_loader *loader)
{
	struct options *options = loader->options;
	const struct options_entry *ca = options_entry_of("tls-client-ca"), *listen = options_entry_of("listen");
	bool tls = options->tls_cert[0] != '\0';

	if (!options_check_pair(loader, "tls-cert", options->tls_cert, "tls-key", options->tls_key) ||
	    !options_check_pair(loader, "masters-cert", options->masters_cert, "masters-key", options->masters_key))
		return false;
	if (options->tls_client_ca[0] != '\0' && !tls) {
		loader->source = loader->origins[ca - options_table];
		return options_complain(loader, ca, options->tls_client_ca, "--tls-cert is needed with it");
	}
	for (size_t i = 0; i < options->listen_count; i++) {
		struct listen_address *address = &options->listen[i];
		if (address->scheme == LISTEN_HTTPS && !tls) {
			loader->source = loader->origins[listen - options_table];
			return options_complain(loader, listen, address->host, "https:// needs --tls-cert");
		}
		if (address->scheme == LISTEN_DEFAULT)
			address->scheme = tls && !address->is_unix ? LISTEN_HTTPS : LISTEN_HTTP;
	}
	return true;
}

bool options_check(struct options_loader *loader)
{
	const struct options *options = loader->options;

	assert(loader->options && loader->message);
	return options_check_masters(loader) &&
	       options_check_order(loader, "min-ttl-ms", options->min_ttl_ms, "default-ttl-ms",
				   options->default_ttl_ms) &&
	       options_check_order(loader, "default-ttl-ms", options->default_ttl_ms, "max-ttl-ms",
				   options->max_ttl_ms) &&
	       options_check_order(loader, "retry-min-ms", options->retry_min_ms, "retry-max-ms",
				   options->retry_max_ms) &&
	       options_check_order(loader, "workers", options->workers, "max-connections", options->max_connections) &&
	       options_check_drift(loader) && options_check_tls(loader);
}
