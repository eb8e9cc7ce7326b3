/* SPDX-License-Identifier: MIT */
/* The output of the program about itself. See daemon.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/auth/auth.h"
#include "api/http/http.h"
#include "daemon.h"
#include "server/base/base.h"

enum { URL_MAX = OPTIONS_PATH_MAX + 20 };

/* ---- the line of the start ---- */

/* Appends " --name=value". Texts and lists are larger than any number. */
static void append_option(struct text *text, const struct options_entry *entry, const void *value)
{
	const struct options_names *names = value;
	text_printf(text, "%s--%s=", text->len > 0 ? " " : "", entry->name);
	if (entry->traits & OPTIONS_LIST)
		for (size_t i = 0; i < names->count; i++)
			text_printf(text, "%s%s", i > 0 ? "," : "", names->items[i]);
	else if (entry->traits & OPTIONS_REAL)
		text_printf(text, "%g", *(const double *)value);
	else if (entry->choices)
		text_printf(text, "%s", entry->choices[*(const uint32_t *)value]);
	else if (entry->size == sizeof(uint32_t))
		text_printf(text, "%" PRIu32, *(const uint32_t *)value);
	else if (entry->size == sizeof(uint64_t))
		text_printf(text, "%" PRIu64, *(const uint64_t *)value);
	else
		text_printf(text, "%s", (const char *)value);
}

/* Appends the options that differ from their defaults. Listeners and masters have members of their own in the line. */
static void append_changed(struct text *text, const struct options *options)
{
	static struct options standard;
	for (size_t i = 0; i < config_table.count; i++) {
		const struct options_entry *entry = &config_table.entries[i];
		const char *value = (const char *)options + entry->offset;
		const char *usual = (const char *)&standard + entry->offset;
		if (!entry->parse || usual == (char *)&standard.listen_count || usual == (char *)&standard.master_count)
			continue;
		const char *reason = entry->standard ? entry->parse(entry, entry->standard, &standard) : NULL;
		assert(!reason);
		bool is_text = entry->size > sizeof(uint64_t) && !(entry->traits & OPTIONS_LIST);
		if (is_text ? strcmp(value, usual) != 0 : memcmp(value, usual, entry->size) != 0)
			append_option(text, entry, value);
	}
}

void show_start(const struct options *options, const int listeners[])
{
	struct text text;
	char shown[300];
	assert(options->listen_count > 0 && options->master_count > 0);
	text_init(&text);
	log_begin(LOG_INFO, "listening");
	for (size_t i = 0; i < options->listen_count; i++) {
		listen_shown(listeners[i], shown, sizeof shown);
		text_printf(&text, "%s%s%s", i > 0 ? "," : "", options->listen[i].tls ? "https://" : "", shown);
	}
	log_text("address", text.bytes);
	log_text("version", build_version);
	log_text("commit", build_commit);
	log_num("pid", getpid());
	log_num("quorum", (int64_t)options->master_count / 2 + 1);
	text.len = 0;
	for (size_t i = 0; i < options->master_count; i++)
		text_printf(&text, "%s%s", i > 0 ? "," : "", options->masters[i].shown);
	log_text("masters", text.bytes);
	text.len = 0;
	append_changed(&text, options);
	log_text("options", text.len > 0 ? text.bytes : NULL);
	log_end();
	log_flush();
	text_fini(&text);
}

/* ---- for people ---- */

static void write_url(const struct address *address, const char *host, char url[URL_MAX])
{
	const char *scheme = address->tls ? "https" : "http";
	if (address->is_unix)
		snprintf(url, URL_MAX, "unix:%s", host);
	else
		snprintf(url, URL_MAX, strchr(host, ':') ? "%s://[%s]:%u" : "%s://%s:%u", scheme, host, address->port);
}

void show_first_steps(const struct options *options, const struct tls *tls)
{
	const struct address *address = &options->listen[0];
	char url[URL_MAX], to[OPTIONS_PATH_MAX + URL_MAX + 20];
	const char *key = options->keys[0] ? "-H \"Authorization: Bearer KEY\" " : "";
	assert(options->dev > 0);
	/* 0.0.0.0 and :: cannot be called; a certificate may be for the name of this machine alone */
	bool everywhere = strcmp(address->host, "0.0.0.0") == 0 || strcmp(address->host, "::") == 0,
	     other = address->tls && !tls_is_for(tls, address->host) && tls_is_for(tls, "localhost");
	write_url(address, everywhere || other ? "localhost" : address->host, url);
	if (address->is_unix)
		snprintf(to, sizeof to, "--unix-socket %s http://localhost", address->host);
	else if (address->tls)
		snprintf(to, sizeof to, "--cacert %s %s", options->tls_cert, url);
	else
		snprintf(to, sizeof to, "%s", url);
	printf("\nredlockd runs on %u private Redis servers. Try, in another terminal:\n\n", options->dev);
	printf("  curl -i %s%s/locks -d '{\"resource\":\"hello\",\"ttl_ms\":60000,\"owner\":\"me\"}'\n", key, to);
	printf("  curl -i %s%s/locks/hello\n", key, to);
	printf("  curl -i %s%s/masters\n\n", key, to);
	if (!address->is_unix)
		printf("The status page: %s/\n\n", url);
	printf("Ctrl-C ends it all.\n\n");
	fflush(stdout);
}

/* `bound`: 0: none. */
static void show_bound(const char *name, uint32_t bound)
{
	if (bound > 0)
		printf("; %s: %" PRIu32, name, bound);
}

/* Prints the rights, prefixes and limits of the tokens that the rule matches. */
static void show_rule(const struct issuer_rule *rule)
{
	const struct key *key = &rule->key;
	const char *before = "";
	printf("  %s, if", key->name);
	for (size_t i = 0; i < rule->match_count; i++)
		printf("%s %s is %s", i > 0 ? " and" : "", rule->matches[i].claim, rule->matches[i].pattern);
	printf("; rights:");
	for (enum access_need need = ACCESS_ACQUIRE; need < ACCESS_NEED_COUNT; need++)
		if (key->rights & ACCESS_RIGHT(need)) {
			printf("%s %s", before, access_right_name(need));
			before = ",";
		}
	printf("; prefixes:");
	for (size_t i = 0; i < key->prefix_count; i++)
		printf("%s %s", i > 0 ? "," : "", key->prefixes[i].len > 0 ? key->prefixes[i].bytes : "(all names)");
	show_bound("max_ttl_ms", key->max_ttl_ms);
	show_bound("rate", key->rate);
	show_bound("max_waiting", key->max_waiting);
	printf("\n");
}

void show_check(const struct options *options, const struct reload *reload)
{
	assert(options->listen_count > 0);
	for (size_t i = 0; i < options->listen_count; i++) {
		char url[URL_MAX];
		write_url(&options->listen[i], options->listen[i].host, url);
		printf("listen: %s\n", url);
	}
	for (size_t i = 0; i < options->master_count; i++)
		printf("master: %s\n", options->masters[i].shown);
	if (options->dev)
		printf("masters: %u private Redis servers\n", options->dev);
	printf("leases: %u to %u ms, %u ms if the request names none\n", options->min_ttl_ms, options->max_ttl_ms,
	       options->default_ttl_ms);
	printf("workers: %u\n", options->workers);
	if (reload->keys)
		printf("keys: %zu in %s\n", reload->keys->count, options->keys);
	for (size_t i = 0; reload->keys && i < reload->keys->issuer_count; i++) {
		const struct issuer *issuer = &reload->keys->issuers[i];
		printf("issuer: %s for %s, rules: %zu, keys in %s\n", issuer->name, issuer->audience,
		       issuer->rule_count, issuer->jwks_file);
		for (size_t j = 0; j < issuer->rule_count; j++)
			show_rule(&issuer->rules[j]);
	}
	if (reload->tls)
		printf("certificate: %s\n", options->tls_cert);
	printf("The configuration is good. Nothing was started.\n");
	fflush(stdout);
}
