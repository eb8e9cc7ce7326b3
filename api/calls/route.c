/* SPDX-License-Identifier: MIT */
/* The route table, and the search in it. See calls_internal.h.
 *
 * Each route lists its problems, so that a test can compare them with openapi.yaml; every answer is checked against the
 * list of its route. Constant data, any thread. */
#include <assert.h>
#include <string.h>

#include "calls_internal.h"

/* Sets of problems: bits of enum problem. */
#define BIT(problem) (UINT32_C(1) << PROBLEM_##problem)
#define TOO_FEW (BIT(NO_QUORUM) | BIT(DRAINING))
#define NOT_HELD (BIT(NOT_OWNER) | BIT(LEASE_EXPIRED))

/* The problems that any request can get, whatever its route. */
#define COMMON \
	(BIT(INVALID_REQUEST) | BIT(FORBIDDEN) | BIT(URL_TOO_LONG) | BIT(HEADERS_TOO_LARGE) | BIT(TOO_MANY_REQUESTS))

/* Requests without a route: 413 for a body beyond its bound on an unknown path. */
#define ROUTELESS (BIT(NOT_FOUND) | BIT(METHOD_NOT_ALLOWED) | BIT(BODY_TOO_LARGE))
enum { ROUTELESS_STATUS = 204 }; /* for a preflight, and for OPTIONS of "*" */

#define PARAMS_OF_LOCKS                                                                             \
	{                                                                                           \
		[PARAM_WAIT] = "wait_ms", [PARAM_RESOURCE] = "resource", [PARAM_PREFIX] = "prefix", \
		[PARAM_OWNER] = "owner", [PARAM_LIMIT] = "limit", [PARAM_CURSOR] = "cursor"         \
	}

/* clang-format off */
const struct route route_table[ROUTE_COUNT] = {
	{"acquire", "POST", "/locks", ACCESS_ACQUIRE, lock_call_submit, .status = 201, .again = 200,
	 .problems = TOO_FEW | BIT(LOCKED) | BIT(SPLIT_VOTE), .operation = LEASE_ACQUIRE, .takes_body = true},
	/* A route that names the resource elsewhere, or has a selector, is counted as a route below it. */
	{"extend", "PUT", "/locks", ACCESS_TOKEN, lock_call_submit, 200, 0, TOO_FEW | NOT_HELD,
	 .operation = LEASE_EXTEND, .takes_body = true, .takes_leases = true, .counted_offset = 1},
	{"extend", "PUT", "/locks/{resource}", ACCESS_TOKEN, lock_call_submit, 200, 0, TOO_FEW | NOT_HELD,
	 .operation = LEASE_EXTEND, .takes_body = true},
	/* The route below one with a selector also takes its parameters, so that errors name them. */
	{"release", "DELETE", "/locks", ACCESS_ADMIN, lock_call_submit, 204, 0, TOO_FEW | NOT_HELD,
	 .operation = LEASE_FORCE, .takes_body = true, .params = {"force", "fence", "keep_ms"}, .selector = "force",
	 .counted_offset = 3},
	{"release", "DELETE", "/locks", ACCESS_TOKEN, lock_call_submit, 204, 200, TOO_FEW | NOT_HELD,
	 .operation = LEASE_RELEASE, .takes_body = true, .params = {"force", "fence", "keep_ms"}, .takes_leases = true,
	 .counted_offset = 2},
	{"release", "DELETE", "/locks/{resource}", ACCESS_ADMIN, lock_call_submit, 204, 0, TOO_FEW | NOT_HELD,
	 .operation = LEASE_FORCE, .takes_body = true, .params = {"force", "fence", "keep_ms"}, .selector = "force",
	 .counted_offset = 1},
	{"release", "DELETE", "/locks/{resource}", ACCESS_TOKEN, lock_call_submit, 204, 0, TOO_FEW | NOT_HELD,
	 .operation = LEASE_RELEASE, .takes_body = true, .params = {"force", "fence", "keep_ms"}},
	{"inspect", "GET", "/locks", ACCESS_INSPECT, watch_call, 200, 304, TOO_FEW,
	 .operation = LEASE_INSPECT, .params = PARAMS_OF_LOCKS, .selector = "resource", .counted_offset = 2},
	{"list", "GET", "/locks", ACCESS_LIST, lock_call_list, 200, 0, TOO_FEW,
	 .operation = LEASE_INSPECT, .params = PARAMS_OF_LOCKS},
	{"inspect", "GET", "/locks/{resource}", ACCESS_INSPECT, watch_call, 200, 304, TOO_FEW,
	 .operation = LEASE_INSPECT, .params = {"wait_ms", "resource"}},
	{"healthz", "GET", "/healthz", ACCESS_NOTHING, info_call_healthz, .status = 200, .quiet = true},
	{"readyz", "GET", "/readyz", ACCESS_NOTHING, info_call_readyz, .status = 200, .problems = TOO_FEW,
	 .quiet = true},
	{"metrics", "GET", "/metrics", ACCESS_KNOWN, info_call_metrics, .status = 200, .quiet = true},
	{"masters", "GET", "/masters", ACCESS_KNOWN, info_call_masters, .status = 200, .quiet = true},
	{"stats", "GET", "/stats", ACCESS_KNOWN, info_call_stats, .status = 200, .quiet = true},
	{"whoami", "GET", "/whoami", ACCESS_KNOWN, info_call_whoami, .status = 200},
	{"openapi", "GET", "/openapi.yaml", ACCESS_NOTHING, info_call_openapi, .status = 200},
	{"docs", "GET", "/docs/errors", ACCESS_NOTHING, info_call_errors, .status = 200},
	{"version", "GET", "/version", ACCESS_KNOWN, info_call_version, .status = 200},
	{"page", "GET", "/", ACCESS_NOTHING, info_call_page, .status = 200},
};
/* clang-format on */
_Static_assert((int)ROUTE_COUNT <= (int)HTTP_ROUTES_MAX, "there is a counter for each");

static const char resource_mark[] = "{resource}";

const char *route_name(size_t i)
{
	assert(i <= HTTP_ROUTES_MAX);
	return i < ROUTE_COUNT ? route_table[i].name : NULL;
}

size_t route_index(const struct route *route)
{
	assert(route >= route_table && route < route_table + ROUTE_COUNT);
	return (size_t)(route - route_table) + route->counted_offset;
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

static bool query_has(const char *query, const char *name)
{
	size_t name_len = strlen(name);
	for (; query; query = strchr(query, '&')) {
		query += *query == '&';
		if (strncmp(query, name, name_len) == 0 && query[name_len] == '=')
			return true;
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

const struct route *route_find(const char *method, const char *path, const char *query, const char **ret_rest,
			       char ret_allow[ROUTE_ALLOW_MAX])
{
	ret_allow[0] = '\0';
	for (const struct route *route = route_table; route < route_table + ROUTE_COUNT; route++) {
		if (!pattern_matches(route->pattern, path, ret_rest) ||
		    (route->selector && !query_has(query, route->selector)))
			continue;
		if (method_matches(route, method)) {
			ret_allow[0] = '\0';
			return route;
		}
		if (!route->selector)
			allow_add(ret_allow, ROUTE_ALLOW_MAX, route->method);
	}
	return NULL;
}

size_t route_body_max(const char *method, const char *path, const char *query)
{
	const char *rest;
	char allow[ROUTE_ALLOW_MAX];
	const struct route *route = route_find(method, path, query, &rest, allow);
	return route && route->takes_leases ? REQUEST_LARGE_BODY_MAX : REQUEST_BODY_MAX;
}

/* All problems of a route; NULL: of requests without one. */
static uint32_t route_problems(const struct route *route)
{
	if (!route)
		return COMMON | ROUTELESS;
	return COMMON | route->problems | (route->need > ACCESS_TOKEN ? BIT(UNAUTHORIZED) : 0) |
	       (route->takes_body ? BIT(BODY_TOO_LARGE) | BIT(BODY_ENCODED) : 0);
}

bool route_may_answer(const struct route *route, unsigned status, const char *code)
{
	bool may = !code && (status == (route ? route->status : ROUTELESS_STATUS) || (route && status == route->again));
	assert(status >= 200 && status < 600);
	for (enum problem problem = 0; code && !may && problem < PROBLEM_COUNT; problem++)
		may = (route_problems(route) & UINT32_C(1) << problem) != 0 && problem_status(problem) == status &&
		      strcmp(problem_code(problem), code) == 0;
	return may;
}

static void print_answers(FILE *to, const char *method, const char *pattern, unsigned status, uint32_t problems)
{
	fprintf(to, "%s %s %u -\n", method, pattern, status);
	for (enum problem problem = 0; problem < PROBLEM_COUNT; problem++)
		if (problems & UINT32_C(1) << problem)
			fprintf(to, "%s %s %u %s\n", method, pattern, problem_status(problem), problem_code(problem));
}

void calls_print_routes(FILE *to)
{
	for (const struct route *route = route_table; route < route_table + ROUTE_COUNT; route++) {
		/* with a selector or without: the description of the interface has one operation for both */
		const struct route *variant = route->selector ? route++ : route;
		uint16_t again = variant->again != 0 ? variant->again : route->again;
		if (again != 0)
			print_answers(to, route->method, route->pattern, again, 0);
		print_answers(to, route->method, route->pattern, route->status,
			      route_problems(variant) | route_problems(route));
	}
	print_answers(to, "*", "*", ROUTELESS_STATUS, ROUTELESS);
}
