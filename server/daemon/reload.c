/* SPDX-License-Identifier: MIT */
/* Reads certificates, keys and the masters, at the start and on SIGHUP. See daemon.h. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth/auth.h"
#include "api/http/http.h"
#include "daemon.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"
#include "server/transport/transport.h"

enum { MESSAGE_MAX = OPTIONS_PATH_MAX + 512, HOUR_S = 60 * 60 };

/* Reads and keeps the certificate, its key and the authorities. False: a message. */
static bool reload_tls(struct reload *reload, const struct options *options, char *message, size_t size)
{
	struct tls *tls = tls_load(options->tls_cert, options->tls_key, options->tls_client_ca, message, size);
	if (!tls)
		return false;
	tls_unref(reload->tls);
	reload->tls = tls;
	return true;
}

/* True, and a message: a file of an issuer is bad, and its public keys stay as they were. */
static bool reload_keys(struct reload *reload, const struct options *options, char *message, size_t size)
{
	struct keys *keys = keys_load(options->keys, reload->keys, message, size);
	if (!keys)
		return false;
	keys_unref(reload->keys);
	reload->keys = keys;
	return true;
}

static void free_masters(struct options *options)
{
	if (options) /* the addresses have passwords */
		explicit_bzero(options, sizeof *options);
	free(options);
}

/* Like tls_announce(). */
static void announce_masters_file(const char *path, const struct transport_tls_dates *dates)
{
	int64_t now_s = (int64_t)(clock_wall_us() / 1000000);
	const char *event = dates->expiry_s <= now_s                                ? "masters-certificate-expired"
			    : dates->expiry_s - now_s < TLS_WARN_DAYS * 24 * HOUR_S ? "masters-certificate-expires-soon"
			    : dates->activation_s > now_s ? "masters-certificate-not-valid-yet"
							  : NULL;
	if (dates->expiry_s == 0 || !event)
		return;
	log_begin(LOG_WARN, event);
	log_text("certificate", path);
	log_num("hours_left", (dates->expiry_s - now_s) / HOUR_S);
	log_end();
}

static void announce_masters(const struct options *options)
{
	struct transport_tls_dates authority, own;
	transport_tls_dates(&authority, &own);
	announce_masters_file(options->masters_ca, &authority);
	announce_masters_file(options->masters_cert, &own);
	metrics_set_masters_expiry((uint64_t)authority.expiry_s, (uint64_t)own.expiry_s);
}

bool reload_init(struct reload *reload, const struct options *options, char *message, size_t size)
{
	char reason[MESSAGE_MAX];
	*reload = (struct reload){0};
	if (options->tls_cert[0] && !reload_tls(reload, options, message, size))
		return false;
	if (options->keys[0] && !reload_keys(reload, options, reason, sizeof reason)) {
		snprintf(message, size, "--keys: %s", reason);
		reload_fini(reload);
		return false;
	}
	reload->issuers_mark = reload->keys ? reload->keys->files_mark : 0;
	if (reload->tls)
		tls_announce(reload->tls);
	announce_masters(options);
	metrics_count_reload(true);
	return true;
}

void reload_fini(struct reload *reload)
{
	tls_unref(reload->tls);
	keys_unref(reload->keys);
	free_masters(reload->masters);
	*reload = (struct reload){0};
}

static void reload_log_failure(const char *event, const char *message)
{
	log_begin(LOG_ERROR, event);
	log_text("message", message);
	log_text("note", "what was read before stays in use");
	log_end();
}

/* `moved`: for each master whose address has changed: the old one, an arrow and the new one. */
static void log_masters(const struct options *before, const struct options *after)
{
	struct text moved;
	text_init(&moved);
	for (size_t i = 0; i < after->master_count; i++) {
		const char *from = before->masters[i].shown, *to = after->masters[i].shown;
		if (strcmp(from, to) == 0)
			continue;
		text_printf(&moved, "%s%s -> %s", moved.len > 0 ? ", " : "", from, to);
		metrics_set_address(i, to);
	}
	log_begin(LOG_INFO, "masters-reloaded");
	log_text("file", after->masters_file[0] ? after->masters_file : NULL);
	log_text("authorities", after->masters_ca[0] ? after->masters_ca : NULL);
	log_text("certificate", after->masters_cert[0] ? after->masters_cert : NULL);
	log_text("moved", moved.len > 0 ? moved.bytes : NULL);
	log_end();
	text_fini(&moved);
}

static bool again_tls(struct reload *reload, const struct options *options)
{
	char message[MESSAGE_MAX];
	if (!reload_tls(reload, options, message, sizeof message)) {
		reload_log_failure("tls-reload-failed", message);
		return false;
	}
	log_begin(LOG_INFO, "tls-reloaded");
	log_text("certificate", options->tls_cert);
	log_end();
	tls_announce(reload->tls);
	return true;
}

/* *ret_complete: false after any mistake, also one in a file of an issuer. */
static bool again_keys(struct reload *reload, const struct options *options, bool *ret_complete)
{
	char message[MESSAGE_MAX];
	*ret_complete = false;
	if (!reload_keys(reload, options, message, sizeof message)) {
		reload_log_failure("keys-reload-failed", message);
		return false;
	}
	*ret_complete = message[0] == '\0';
	if (!*ret_complete)
		reload_log_failure("issuers-reload-failed", message);
	log_begin(LOG_INFO, "keys-reloaded");
	log_text("file", options->keys);
	log_num("keys", (int64_t)reload->keys->count);
	if (reload->keys->issuer_count > 0)
		log_num("issuers", (int64_t)reload->keys->issuer_count);
	log_end();
	return true;
}

static bool again_masters(struct reload *reload, const struct options *options)
{
	char message[MESSAGE_MAX];
	const struct options *before = reload->masters ? reload->masters : options;
	struct options *masters = (struct options *)(void *)memory_copy((const char *)before, sizeof *before);
	if ((options->masters_file[0] && !config_reload_masters(masters, message, sizeof message)) ||
	    !transport_tls_load(masters, message, sizeof message)) {
		reload_log_failure("masters-reload-failed", message);
		free_masters(masters);
		return false;
	}
	log_masters(before, masters);
	free_masters(reload->masters);
	reload->masters = masters;
	announce_masters(options);
	return true;
}

void reload_again(struct reload *reload, const struct options *options, struct worker *const workers[], size_t count)
{
	assert(workers || count == 0);
	bool has_tls = options->tls_cert[0], has_keys = options->keys[0],
	     has_masters = options->masters_file[0] || transport_tls_is_used(options);
	bool tls = has_tls && again_tls(reload, options);
	bool complete = true, keys = has_keys && again_keys(reload, options, &complete);
	reload->issuers_mark = reload->keys ? reload->keys->files_mark : 0;
	bool masters = has_masters && again_masters(reload, options);
	if (!has_tls && !has_keys && !has_masters) {
		log_begin(LOG_INFO, "nothing-to-reload");
		log_text("note",
			 "SIGHUP reads the files of --tls-cert, --keys, --masters-file and of rediss:// masters "
			 "anew; none of them is given");
		log_end();
	}
	metrics_count_reload(tls == has_tls && complete && masters == has_masters);
	for (size_t i = 0; i < count; i++)
		worker_reload(workers[i], tls ? reload->tls : NULL, keys ? reload->keys : NULL,
			      masters ? reload->masters->masters : NULL);
	log_flush();
}

void reload_issuers(struct reload *reload, struct worker *const workers[], size_t count)
{
	char message[MESSAGE_MAX];
	uint64_t mark = reload->keys ? keys_files_mark(reload->keys) : 0;
	if (mark == reload->issuers_mark)
		return;
	reload->issuers_mark = mark; /* a bad file is reported once */
	struct keys *keys = keys_load_issuers(reload->keys, message, sizeof message);
	bool complete = message[0] == '\0';
	metrics_count_reload(complete);
	keys_unref(reload->keys);
	reload->keys = keys;
	if (complete) {
		log_begin(LOG_INFO, "issuers-reloaded");
		log_num("issuers", (int64_t)keys->issuer_count);
		log_end();
	} else {
		reload_log_failure("issuers-reload-failed", message);
	}
	for (size_t i = 0; i < count; i++)
		worker_reload(workers[i], NULL, keys, NULL);
	log_flush();
}
