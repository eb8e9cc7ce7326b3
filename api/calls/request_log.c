/* The line of the log for each request. See calls_internal.h. */
#include <assert.h>
#include <string.h>

#include "calls_internal.h"
#include "server/base/base.h"

/* The health of the service is asked for every few seconds, and so are its figures while somebody looks at the page. */
static bool is_quiet(const struct route *route)
{
	static const char *const quiet[] = {"healthz", "readyz", "metrics", "stats", "masters"};

	for (size_t i = 0; route && i < sizeof quiet / sizeof quiet[0]; i++)
		if (strcmp(route->name, quiet[i]) == 0)
			return true;
	return false;
}

void request_log_address(const struct call *call)
{
	char text[REQUEST_ADDRESS_MAX];

	request_write_address(call->request, text);
	log_text("address", text);
}

static void log_votes(const struct redlock_votes *votes)
{
	log_num("needed", votes->needed);
	log_num("granted", votes->granted);
	log_num("refused", votes->refused);
	log_num("failed", votes->failed);
	log_num("quarantined", votes->quarantined);
	log_num("masters", votes->masters);
}

void request_log(const struct call *call, unsigned status, const char *ended, enum MHD_RequestTerminationCode how)
{
	const struct request *request = call->request;
	bool no_quorum = status != 0 && call->votes.needed > 0;
	enum log_level level = is_quiet(call->route) ? LOG_DEBUG : no_quorum ? LOG_WARN : LOG_INFO;

	assert(request->state != REQUEST_NONE);
	if (!log_wants(level))
		return;
	log_begin(level, "request");
	log_text("id", request->id[0] != '\0' ? request->id : NULL);
	log_text("method", http_method_name(request->method));
	log_text("route", call->route ? call->route->name : "none");
	if (call->has_resource)
		log_str("resource", call->lease.resource, call->lease.resource_len);
	if (call->caller.known)
		log_text("caller", call->caller.name);
	if (status == 401 || status == 403 || status == 429)
		request_log_address(call);
	if (status != 0)
		log_num("status", status);
	log_text("code", status != 0 ? request->reply.code : NULL);
	if (no_quorum)
		log_votes(&call->votes);
	log_text("ended", ended);
	if (call->stream)
		hold_stream_log(call, how);
	log_num("us", (int64_t)(clock_now_us() - request->started_us));
	log_end();
}
