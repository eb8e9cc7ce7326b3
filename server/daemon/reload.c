/* Reads certificate and keys, at the start and on SIGHUP. See daemon.h. */
#include <assert.h>
#include <stdio.h>

#include "api/auth/auth.h"
#include "api/http/http.h"
#include "daemon.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"

enum { MESSAGE_MAX = 1024 };

/* Reads the certificate, its key and the authorities, and keeps them. False: a message. */
static bool reload_tls(struct reload *reload, const struct options *options, char *message, size_t size)
{
	struct tls *tls = tls_load(options->tls_cert, options->tls_key, options->tls_client_ca, message, size);
	if (!tls)
		return false;
	tls_unref(reload->tls);
	reload->tls = tls;
	return true;
}

/* The same for the keys. */
static bool reload_keys(struct reload *reload, const struct options *options, char *message, size_t size)
{
	struct keys *keys = keys_load(options->keys, message, size);
	if (!keys)
		return false;
	keys_unref(reload->keys);
	reload->keys = keys;
	return true;
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
	if (reload->tls)
		tls_announce(reload->tls);
	metrics_note_reload(true);
	return true;
}

void reload_fini(struct reload *reload)
{
	tls_unref(reload->tls);
	keys_unref(reload->keys);
	*reload = (struct reload){0};
}

static void reload_log_failure(const char *event, const char *message)
{
	log_begin(LOG_ERROR, event);
	log_text("message", message);
	log_text("note", "what was read before stays in use");
	log_end();
}

void reload_again(struct reload *reload, const struct options *options, struct worker *const workers[], size_t count)
{
	assert(workers || count == 0);
	char message[MESSAGE_MAX];
	bool tls = options->tls_cert[0] && reload_tls(reload, options, message, sizeof message);
	if (tls) {
		log_begin(LOG_INFO, "tls-reloaded");
		log_text("certificate", options->tls_cert);
		log_end();
		tls_announce(reload->tls);
	} else if (options->tls_cert[0]) {
		reload_log_failure("tls-reload-failed", message);
	}
	bool keys = options->keys[0] && reload_keys(reload, options, message, sizeof message);
	if (keys) {
		log_begin(LOG_INFO, "keys-reloaded");
		log_text("file", options->keys);
		log_num("keys", (int64_t)reload->keys->count);
		log_end();
	} else if (options->keys[0]) {
		reload_log_failure("keys-reload-failed", message);
	}
	if (!options->tls_cert[0] && !options->keys[0]) {
		log_begin(LOG_INFO, "nothing-to-reload");
		log_text("note",
			 "SIGHUP reads --tls-cert, --tls-key, --tls-client-ca and --keys anew; none of them is given");
		log_end();
	}
	metrics_note_reload(tls == (options->tls_cert[0] != '\0') && keys == (options->keys[0] != '\0'));
	for (size_t i = 0; i < count; i++)
		worker_reload(workers[i], tls ? reload->tls : NULL, keys ? reload->keys : NULL);
	log_flush();
}
