/* Reads certificate and keys, at the start and on SIGHUP. See reload.h. */
#include "reload.h"

#include <assert.h>

#include "api/auth/auth.h"
#include "api/http/http.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"
#include "worker.h"

enum { MESSAGE_MAX = 1024 };

static struct tls *reload_load_tls(const struct options *options, char *message, size_t size)
{
	return tls_load(options->tls_cert, options->tls_key, options->tls_client_ca, message, size);
}

bool reload_init(struct reload *reload, const struct options *options, char *message, size_t size)
{
	*reload = (struct reload){0};
	json_memory_setup(); /* before the first JSON, the keys */
	if (options->tls_cert[0]) {
		reload->tls = reload_load_tls(options, message, size);
		if (!reload->tls)
			return false;
	}
	if (options->keys[0]) {
		reload->keys = keys_load(options->keys, message, size);
		if (!reload->keys) {
			reload_fini(reload);
			return false;
		}
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

static bool reload_tls(struct reload *reload, const struct options *options)
{
	assert(reload->tls);
	char message[MESSAGE_MAX];
	struct tls *tls = reload_load_tls(options, message, sizeof message);
	if (!tls) {
		reload_log_failure("tls-reload-failed", message);
		return false;
	}
	tls_unref(reload->tls);
	reload->tls = tls;
	log_begin(LOG_INFO, "tls-reloaded");
	log_text("certificate", options->tls_cert);
	log_end();
	tls_announce(tls);
	return true;
}

static bool reload_keys(struct reload *reload, const struct options *options)
{
	assert(reload->keys);
	char message[MESSAGE_MAX];
	struct keys *keys = keys_load(options->keys, message, sizeof message);
	if (!keys) {
		reload_log_failure("keys-reload-failed", message);
		return false;
	}
	keys_unref(reload->keys);
	reload->keys = keys;
	log_begin(LOG_INFO, "keys-reloaded");
	log_text("file", options->keys);
	log_num("keys", (int64_t)keys_count(keys));
	log_end();
	return true;
}

void reload_again(struct reload *reload, const struct options *options, struct worker *const workers[], size_t count)
{
	assert(workers || count == 0);
	bool tls = options->tls_cert[0] && reload_tls(reload, options);
	bool keys = options->keys[0] && reload_keys(reload, options);
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
