/* The service's own state: health, metrics, masters, description of the interface, version, and the status page.
 * See calls_internal.h.
 *
 * All of it is answered at once, from what this worker knows. Worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "api/page/embedded.h"
#include "calls_internal.h"
#include "server/masters/masters.h"
#include "server/metrics/metrics.h"

static json_t *quorum_new(const struct quorum_status *quorum)
{
	assert(quorum->voting <= quorum->masters);
	return json_pack("{s:i, s:i, s:i}", "needed", (int)quorum->needed, "voting", (int)quorum->voting, "masters",
			 (int)quorum->masters);
}

void info_call_healthz(struct call *call)
{
	static const char ok[] = "{\"status\":\"ok\"}";

	reply_static(call->request, 200, "application/json", ok, sizeof ok - 1);
}

/* True if callers need not authenticate, and so may see the addresses of the masters. */
static bool shows_masters(const struct call *call)
{
	return !call->request->context->keys && !call->request->tls_peer;
}

/* Rejects with the number of missing masters, the reason of each, and for how long if time alone ends that. */
static void readyz_no_quorum(struct call *call, const struct quorum_status *quorum)
{
	const struct masters *masters = call->request->context->config->masters;
	struct text detail;
	struct master_status status;
	json_t *extra = json_pack("{s:o}", "quorum", quorum_new(quorum));

	assert(quorum->voting < quorum->needed);
	text_init(&detail);
	text_printf(&detail, "%u of %u masters may vote, %u are needed.", (unsigned)quorum->voting,
		    (unsigned)quorum->masters, (unsigned)quorum->needed);
	if (quorum->has_wait)
		text_printf(&detail, " In %.1f s enough will.", (double)quorum->wait_ms / 1000);
	for (size_t i = 0; shows_masters(call) && i < masters_count(masters); i++) {
		masters_status(masters, i, &status);
		if (status.state != MASTER_VOTING)
			text_printf(&detail, " %s is %s: %s.", status.address, master_state_name(status.state),
				    status.reason);
	}
	if (quorum->has_wait)
		json_object_set_new(extra, "retry_after_ms", json_integer((json_int_t)quorum->wait_ms));
	call_reject(call, PROBLEM_NO_QUORUM, detail.failed ? "Too few masters may vote." : detail.bytes, extra, NULL);
	if (quorum->has_wait)
		call->request->reply.retry_after_s = (uint32_t)((quorum->wait_ms + 999) / 1000);
	text_fini(&detail);
}

void info_call_readyz(struct call *call)
{
	struct quorum_status quorum;

	masters_quorum(call->request->context->config->masters, &quorum);
	if (call->request->context->draining) {
		call_reject(call, PROBLEM_DRAINING, "The service is shutting down.",
			    json_pack("{s:o}", "quorum", quorum_new(&quorum)), NULL);
	} else if (quorum.voting < quorum.needed) {
		readyz_no_quorum(call, &quorum);
	} else {
		call_reply_json(call, 200, json_pack("{s:s, s:o}", "status", "ready", "quorum", quorum_new(&quorum)));
	}
}

/* request_visit_fn */
static void info_visit_accept(void *arg, const char *value, size_t len)
{
	accept_read(arg, value, len);
}

void info_call_metrics(struct call *call)
{
	struct accept accept = ACCEPT_NOTHING;
	struct exposition page;

	request_visit_header(call->request, "Accept", info_visit_accept, &accept);
	page.format = accept_prefers_openmetrics(&accept) ? EXPOSITION_OPENMETRICS : EXPOSITION_PROMETHEUS;
	text_init(&page.text);
	metrics_render(&page);
	http_metrics_render(&page);
	exposition_end(&page);
	if (page.text.failed) {
		text_fini(&page.text);
		reply_fail(call->request);
		return;
	}
	reply_owned(call->request, 200, exposition_type(page.format), page.text.bytes, page.text.len);
}

/* null for "not known" */
static json_t *known_text(const char *text)
{
	json_t *string = text[0] != '\0' ? json_string(text) : NULL;

	return string ? string : json_null();
}

static json_t *master_new(const struct master_status *status)
{
	json_t *warnings = json_array();

	assert(status->warning_count <= STATUS_WARNINGS_MAX);
	for (size_t i = 0; i < status->warning_count; i++)
		json_array_append_new(warnings, known_text(status->warnings[i]));
	return json_pack(
		"{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "address", known_text(status->address), "state",
		master_state_name(status->state), "reason", known_text(status->reason), "quarantine_remaining_ms",
		status->has_quarantine ? json_integer((json_int_t)status->quarantine_remaining_ms) : json_null(),
		"rtt_us", status->has_rtt ? json_integer((json_int_t)status->rtt_us) : json_null(), "version",
		known_text(status->version), "run_id", known_text(status->run_id), "warnings", warnings);
}

void info_call_masters(struct call *call)
{
	const struct masters *masters = call->request->context->config->masters;
	json_t *list = json_array();
	struct quorum_status quorum;
	struct master_status status;

	masters_quorum(masters, &quorum);
	for (size_t i = 0; i < masters_count(masters); i++) {
		masters_status(masters, i, &status);
		json_array_append_new(list, master_new(&status));
	}
	call_reply_json(call, 200, json_pack("{s:o, s:o}", "masters", list, "quorum", quorum_new(&quorum)));
}

void info_call_openapi(struct call *call)
{
	reply_static(call->request, 200, "application/yaml", embedded_openapi_yaml, embedded_openapi_yaml_len);
}

void info_call_version(struct call *call)
{
	size_t count = 0;
	const struct build_library *libraries = build_libraries(&count);
	json_t *versions = json_object();

	for (size_t i = 0; i < count; i++)
		json_object_set_new(versions, libraries[i].name, json_string(libraries[i].version));
	call_reply_json(
		call, 200,
		json_pack("{s:s, s:s, s:o}", "version", build_version, "commit", build_commit, "libraries", versions));
}

/* A number used once: only the styles and scripts that carry it may run. */
static bool make_nonce(char ret_nonce[CALL_NONCE_LEN + 1])
{
	unsigned char bytes[CALL_NONCE_LEN / 2];

	if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes)
		return false;
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(ret_nonce + 2 * i, 3, "%02x", bytes[i]);
	return true;
}

void info_call_page(struct call *call)
{
	static const char mark[] = "@NONCE@";
	const char *at = embedded_page_html, *end = embedded_page_html + embedded_page_html_len, *next;
	char nonce[CALL_NONCE_LEN + 1];
	struct text text;

	if (!make_nonce(nonce)) {
		reply_fail(call->request);
		return;
	}
	text_init(&text);
	while ((next = memmem(at, (size_t)(end - at), mark, sizeof mark - 1)) != NULL) {
		text_append(&text, at, (size_t)(next - at));
		text_append(&text, nonce, CALL_NONCE_LEN);
		at = next + sizeof mark - 1;
	}
	text_append(&text, at, (size_t)(end - at));
	if (text.failed) {
		text_fini(&text);
		reply_fail(call->request);
		return;
	}
	reply_owned(call->request, 200, "text/html; charset=utf-8", text.bytes, text.len);
	memcpy(call->nonce, nonce, sizeof nonce);
}
