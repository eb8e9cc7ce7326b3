/* The route table, and the search in it: the first stage of the pipeline. See calls_internal.h.
 *
 * Each route lists its answers, so that a test can compare them with openapi.yaml; every answer is checked against its
 * route's list when it is given. Constant data, any thread. */
#include <assert.h>
#include <string.h>

#include "calls.h"
#include "calls_internal.h"

static const char *const no_params[] = {NULL};
static const char *const list_params[] = {"prefix", "limit", "cursor", NULL};
/* of a release, so that its error names it, and of a forced one */
static const char *const release_params[] = {"force", NULL};

/* clang-format off */
#define UNAUTHORIZED {401, "unauthorized"}
#define NOT_OWNER {409, "not-owner"}
#define EXPIRED {410, "lease-expired"}
#define TOO_LARGE {413, "too-large"}
#define ENCODED {415, "invalid-request"}
#define NO_QUORUM {503, "no-quorum"}
#define SPLIT_VOTE {503, "split-vote"}
#define DRAINING {503, "draining"}

static const struct route routes[] = {
	{"acquire", "POST", "/locks", NULL, ACCESS_ACQUIRE, LEASE_ACQUIRE, lock_call_acquire, true, no_params,
	 {{201, NULL}, {409, "locked"}, UNAUTHORIZED, TOO_LARGE, ENCODED, NO_QUORUM, SPLIT_VOTE, DRAINING}},
	{"extend", "PUT", "/locks/{resource}", NULL, ACCESS_TOKEN, LEASE_EXTEND, lock_call_extend, true, no_params,
	 {{200, NULL}, NOT_OWNER, EXPIRED, TOO_LARGE, ENCODED, NO_QUORUM, DRAINING}},
	/* A route with a selector stands before the one with the same name, method and pattern. */
	{"release", "DELETE", "/locks/{resource}", "force", ACCESS_ADMIN, LEASE_FORCE, lock_call_force, true,
	 release_params,
	 {{204, NULL}, UNAUTHORIZED, NOT_OWNER, EXPIRED, TOO_LARGE, ENCODED, NO_QUORUM, DRAINING}},
	{"release", "DELETE", "/locks/{resource}", NULL, ACCESS_TOKEN, LEASE_RELEASE, lock_call_release, true,
	 release_params,
	 {{204, NULL}, NOT_OWNER, EXPIRED, TOO_LARGE, ENCODED, NO_QUORUM, DRAINING}},
	{"inspect", "GET", "/locks/{resource}", NULL, ACCESS_INSPECT, LEASE_INSPECT, lock_call_inspect, false,
	 no_params,
	 {{200, NULL}, UNAUTHORIZED, NO_QUORUM, DRAINING}},
	{"list", "GET", "/locks", NULL, ACCESS_LIST, LEASE_INSPECT, lock_call_list, false, list_params,
	 {{200, NULL}, UNAUTHORIZED, NO_QUORUM, DRAINING}},
	{"healthz", "GET", "/healthz", NULL, ACCESS_NOTHING, 0, info_call_healthz, false, no_params, {{200, NULL}}},
	{"readyz", "GET", "/readyz", NULL, ACCESS_NOTHING, 0, info_call_readyz, false, no_params,
	 {{200, NULL}, NO_QUORUM, DRAINING}},
	{"metrics", "GET", "/metrics", NULL, ACCESS_KNOWN, 0, info_call_metrics, false, no_params,
	 {{200, NULL}, UNAUTHORIZED}},
	{"masters", "GET", "/masters", NULL, ACCESS_KNOWN, 0, info_call_masters, false, no_params,
	 {{200, NULL}, UNAUTHORIZED}},
	{"stats", "GET", "/stats", NULL, ACCESS_KNOWN, 0, stats_call, false, no_params, {{200, NULL}, UNAUTHORIZED}},
	{"openapi", "GET", "/openapi.yaml", NULL, ACCESS_NOTHING, 0, info_call_openapi, false, no_params,
	 {{200, NULL}}},
	{"version", "GET", "/version", NULL, ACCESS_KNOWN, 0, info_call_version, false, no_params,
	 {{200, NULL}, UNAUTHORIZED}},
	{"page", "GET", "/", NULL, ACCESS_NOTHING, 0, info_call_page, false, no_params, {{200, NULL}}},
};
/* clang-format on */
_Static_assert(sizeof routes / sizeof routes[0] == ROUTE_COUNT, "ROUTE_COUNT is the number of routes");
_Static_assert((int)ROUTE_COUNT <= (int)HTTP_ROUTES_MAX, "there is a counter for each");

/* The answers that any request can get, whatever its route. */
static const struct route_answer common[] = {{400, "invalid-request"},
					     {403, "forbidden"},
					     {414, "too-large"},
					     {429, "too-many-requests"},
					     {431, "too-large"}};
enum { COMMON_COUNT = sizeof common / sizeof common[0] };

/* The answers without a route: 204 for a preflight, and 413 for a body beyond its bound on an unknown path. */
static const struct route_answer routeless[] = {{204, NULL},
						{404, "not-found"},
						{405, "method-not-allowed"},
						TOO_LARGE};
enum { ROUTELESS_COUNT = sizeof routeless / sizeof routeless[0] };

static const char resource_mark[] = "{resource}";

const struct route *route_get(size_t i)
{
	assert(i < ROUTE_COUNT);
	return &routes[i];
}

const char *route_name(size_t i)
{
	assert(i <= HTTP_ROUTES_MAX);
	return i < ROUTE_COUNT ? routes[i].name : NULL;
}

size_t route_index(const struct route *route)
{
	if (!route)
		return HTTP_ROUTE_NONE;
	assert(route >= routes && route < routes + ROUTE_COUNT);
	return (size_t)(route - routes) + (route->selector ? 1 : 0);
}

/* True if the path is one of the pattern; *ret_rest: where its resource begins, NULL if the pattern has none. */
static bool pattern_matches(const char *pattern, const char *path, const char **ret_rest)
{
	const char *mark = strstr(pattern, resource_mark);
	size_t fixed_len = mark ? (size_t)(mark - pattern) : strlen(pattern);

	assert(pattern[0] == '/');
	if (strncmp(pattern, path, fixed_len) != 0 || (!mark && path[fixed_len] != '\0'))
		return false;
	*ret_rest = mark ? path + fixed_len : NULL;
	return true;
}

static bool method_matches(const struct route *route, const char *method)
{
	return strcmp(route->method, method) == 0 || (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* True if a raw query has `name=`. */
static bool query_has(const char *query, const char *name)
{
	size_t name_len = strlen(name);

	assert(name);
	while (query) {
		if (strncmp(query, name, name_len) == 0 && query[name_len] == '=')
			return true;
		query = strchr(query, '&');
		if (query)
			query++;
	}
	return false;
}

static void allow_add(char *allow, size_t size, const char *method)
{
	size_t len = strlen(allow);

	assert(len + strlen(method) + sizeof(", , HEAD") < size);
	snprintf(allow + len, size - len, "%s%s%s", len > 0 ? ", " : "", method,
		 strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

enum route_match route_find(const char *method, const char *path, const char *query, const struct route **ret_route,
			    const char **ret_rest, char *ret_allow, size_t allow_size)
{
	const char *rest;

	if (strcmp(path, "*") == 0) { /* OPTIONS: what the server can do as a whole (RFC 9110, 9.3.7) */
		snprintf(ret_allow, allow_size, "GET, HEAD, POST, PUT, DELETE, OPTIONS");
		return ROUTE_SERVER;
	}
	ret_allow[0] = '\0';
	for (const struct route *route = routes; route < routes + ROUTE_COUNT; route++) {
		if (!pattern_matches(route->pattern, path, &rest) ||
		    (route->selector && !query_has(query, route->selector)))
			continue;
		if (method_matches(route, method)) {
			*ret_route = route;
			*ret_rest = rest;
			ret_allow[0] = '\0';
			return ROUTE_FOUND;
		}
		if (!route->selector)
			allow_add(ret_allow, allow_size, route->method);
	}
	return ret_allow[0] != '\0' ? ROUTE_NO_METHOD : ROUTE_NO_PATH;
}

static bool answers_hold(const struct route_answer *answers, size_t count, unsigned status, const char *code)
{
	for (size_t i = 0; i < count && answers[i].status != 0; i++)
		if (answers[i].status == status &&
		    (!code || !answers[i].code ? code == answers[i].code : strcmp(code, answers[i].code) == 0))
			return true;
	return false;
}

bool route_may_answer(const struct route *route, unsigned status, const char *code)
{
	assert(status >= 200 && status < 600);
	if (answers_hold(common, COMMON_COUNT, status, code))
		return true;
	if (!route)
		return answers_hold(routeless, ROUTELESS_COUNT, status, code);
	return answers_hold(route->answers, ROUTE_ANSWERS_MAX, status, code);
}

/* Except for those that `before` has, too (NULL: none). */
static void print_answers(FILE *to, const char *method, const char *pattern, const struct route_answer *answers,
			  size_t count, const struct route *before)
{
	for (size_t i = 0; i < count && answers[i].status != 0; i++)
		if (!before || !route_may_answer(before, answers[i].status, answers[i].code))
			fprintf(to, "%s %s %u %s\n", method, pattern, (unsigned)answers[i].status,
				answers[i].code ? answers[i].code : "-");
}

void calls_print_routes(FILE *to)
{
	for (const struct route *route = routes; route < routes + ROUTE_COUNT; route++) {
		/* with a selector or without: the description of the interface has one operation for both */
		const struct route *before = route > routes && route[-1].selector ? &route[-1] : NULL;
		print_answers(to, route->method, route->pattern, route->answers, ROUTE_ANSWERS_MAX, before);
		print_answers(to, route->method, route->pattern, common, COMMON_COUNT, before);
	}
	print_answers(to, "*", "*", routeless, ROUTELESS_COUNT, NULL);
}
