/* The line of the log for each request. See request_log.h. */
#include "request_log.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "hold_stream.h"
#include "api/http/http_internal.h"
#include "server/base/base.h"

/* The health of the service is asked for every few seconds, and so are its figures while somebody looks at the page. */
static bool is_quiet(const struct route *route)
{
	static const char *const quiet[] = {"healthz", "readyz", "metrics", "stats", "masters"};

	for (size_t i = 0; route != NULL && i < sizeof(quiet) / sizeof(quiet[0]); i++)
		if (strcmp(route->name, quiet[i]) == 0)
			return true;
	return false;
}

void request_log_address(const struct request *request)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(request->connection->mhd,
								       MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *address = info != NULL ? info->client_addr : NULL;
	char text[INET6_ADDRSTRLEN] = "unix";

	if (address != NULL && address->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, text, sizeof(text));
	else if (address != NULL && address->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, text,
			  sizeof(text));
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

void request_log(const struct request *request, unsigned status, const char *ended, enum MHD_RequestTerminationCode how)
{
	const struct redlock_votes *votes = &request->reply.votes;
	bool no_quorum = status != 0 && votes->needed > 0;
	enum log_level level = is_quiet(request->route) ? LOG_DEBUG : no_quorum ? LOG_WARN : LOG_INFO;

	if (!log_wants(level))
		return;
	log_begin(level, "request");
	log_text("id", request->id[0] != '\0' ? request->id : NULL);
	log_text("method", http_method_name(request->method));
	log_text("route", route_name(route_index(request->route)));
	if (request->has_resource)
		log_str("resource", request->lease.resource, request->lease.resource_len);
	if (request->caller.known)
		log_text("caller", request->caller.name);
	if (status == 401 || status == 403 || status == 429)
		request_log_address(request);
	if (status != 0)
		log_num("status", status);
	log_text("code", status != 0 ? request->reply.code : NULL);
	if (no_quorum)
		log_votes(votes);
	log_text("ended", ended);
	if (request->stream != NULL)
		hold_stream_log(request, how);
	log_num("us", (int64_t)(api_now_us() - request->started_us));
	log_end();
}
