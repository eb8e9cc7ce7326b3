/* The route table, and the search in it. See route.h.
 *
 * The answers stand next to the routes so that the description of the interface can be compared with them; every
 * answer is checked against its route's list when it is given. Constant data, any thread. */
#include "route.h"

#include <assert.h>
#include <string.h>

#include "calls.h"

static const char *const no_params[] = {NULL};
static const char *const list_params[] = {"prefix", "limit", "cursor", NULL};
static const char *const release_params[] = {"force", NULL};

#define NO_QUORUM                \
	{                        \
		503, "no-quorum" \
	}
#define DRAINING                \
	{                       \
		503, "draining" \
	}
#define BODY_TOO_LARGE           \
	{                        \
		413, "too-large" \
	}
#define BODY_ENCODED                   \
	{                              \
		415, "invalid-request" \
	}
#define UNAUTHORIZED                \
	{                           \
		401, "unauthorized" \
	}

static const struct route routes[] = {
	{"acquire",
	 "POST",
	 "/locks",
	 ACCESS_ACQUIRE,
	 LEASE_ACQUIRE,
	 lock_call_acquire,
	 true,
	 no_params,
	 {{201, NULL},
	  {409, "locked"},
	  UNAUTHORIZED,
	  BODY_TOO_LARGE,
	  BODY_ENCODED,
	  NO_QUORUM,
	  {503, "split-vote"},
	  DRAINING}},
	{"extend",
	 "PUT",
	 "/locks/{resource}",
	 ACCESS_TOKEN,
	 LEASE_EXTEND,
	 lock_call_extend,
	 true,
	 no_params,
	 {{200, NULL}, {409, "not-owner"}, {410, "lease-expired"}, BODY_TOO_LARGE, BODY_ENCODED, NO_QUORUM, DRAINING}},
	{"release",
	 "DELETE",
	 "/locks/{resource}",
	 ACCESS_TOKEN,
	 LEASE_RELEASE,
	 lock_call_release,
	 true,
	 release_params,
	 {{204, NULL},
	  UNAUTHORIZED,
	  {409, "not-owner"},
	  {410, "lease-expired"},
	  BODY_TOO_LARGE,
	  BODY_ENCODED,
	  NO_QUORUM,
	  DRAINING}},
	{"inspect",
	 "GET",
	 "/locks/{resource}",
	 ACCESS_INSPECT,
	 LEASE_INSPECT,
	 lock_call_inspect,
	 false,
	 no_params,
	 {{200, NULL}, UNAUTHORIZED, NO_QUORUM, DRAINING}},
	{"list",
	 "GET",
	 "/locks",
	 ACCESS_LIST,
	 LEASE_INSPECT,
	 lock_call_list,
	 false,
	 list_params,
	 {{200, NULL}, UNAUTHORIZED, NO_QUORUM, DRAINING}},
	{"healthz", "GET", "/healthz", ACCESS_NOTHING, 0, info_call_healthz, false, no_params, {{200, NULL}}},
	{"readyz",
	 "GET",
	 "/readyz",
	 ACCESS_NOTHING,
	 0,
	 info_call_readyz,
	 false,
	 no_params,
	 {{200, NULL}, NO_QUORUM, DRAINING}},
	{"metrics",
	 "GET",
	 "/metrics",
	 ACCESS_KNOWN,
	 0,
	 info_call_metrics,
	 false,
	 no_params,
	 {{200, NULL}, UNAUTHORIZED}},
	{"masters",
	 "GET",
	 "/masters",
	 ACCESS_KNOWN,
	 0,
	 info_call_masters,
	 false,
	 no_params,
	 {{200, NULL}, UNAUTHORIZED}},
	{"stats", "GET", "/stats", ACCESS_KNOWN, 0, info_call_stats, false, no_params, {{200, NULL}, UNAUTHORIZED}},
	{"openapi", "GET", "/openapi.yaml", ACCESS_NOTHING, 0, info_call_openapi, false, no_params, {{200, NULL}}},
	{"version",
	 "GET",
	 "/version",
	 ACCESS_KNOWN,
	 0,
	 info_call_version,
	 false,
	 no_params,
	 {{200, NULL}, UNAUTHORIZED}},
	{"page", "GET", "/", ACCESS_NOTHING, 0, info_call_page, false, no_params, {{200, NULL}}},
};
_Static_assert(sizeof(routes) / sizeof(routes[0]) == ROUTE_NONE, "ROUTE_NONE is the number of routes");

/* What any request can be answered, whatever its route. */
static const struct route_answer common[] = {{400, "invalid-request"},
					     {403, "forbidden"},
					     {414, "too-large"},
					     {429, "too-many-requests"},
					     {431, "too-large"}};
enum { COMMON_COUNT = sizeof(common) / sizeof(common[0]) };

/* What is answered where no route was found: a browser's question whether it may call (204), and a body that passed its
 * bound on a route that is none. */
static const struct route_answer routeless[] = {{204, NULL},
						{404, "not-found"},
						{405, "method-not-allowed"},
						BODY_TOO_LARGE};
enum { ROUTELESS_COUNT = sizeof(routeless) / sizeof(routeless[0]) };

static const char resource_mark[] = "{resource}";

const struct route *route_get(size_t i)
{
	assert(i < ROUTE_NONE);
	return &routes[i];
}

const char *route_name(size_t i)
{
	assert(i <= ROUTE_NONE);
	return i < ROUTE_NONE ? routes[i].name : "none";
}

size_t route_index(const struct route *route)
{
	return route != NULL ? (size_t)(route - routes) : ROUTE_NONE;
}

/* True if the path is one of the pattern; *ret_rest: where its resource begins, or its end. */
static bool pattern_matches(const char *pattern, const char *path, const char **ret_rest)
{
	const char *mark = strstr(pattern, resource_mark);
	size_t fixed_len = mark != NULL ? (size_t)(mark - pattern) : strlen(pattern);

	if (strncmp(pattern, path, fixed_len) != 0 || (mark == NULL && path[fixed_len] != '\0'))
		return false;
	*ret_rest = path + fixed_len;
	return true;
}

static bool method_matches(const struct route *route, const char *method)
{
	return strcmp(route->method, method) == 0 || (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static void allow_add(char *allow, size_t size, const char *method)
{
	size_t len = strlen(allow);

	assert(len + strlen(method) + sizeof(", , HEAD") < size);
	snprintf(allow + len, size - len, "%s%s%s", len > 0 ? ", " : "", method,
		 strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

enum route_match route_find(const char *method, const char *path, const struct route **ret_route, const char **ret_rest,
			    char *ret_allow, size_t allow_size)
{
	const char *rest;
	bool path_found = false;

	ret_allow[0] = '\0';
	for (size_t i = 0; i < ROUTE_NONE; i++) {
		if (!pattern_matches(routes[i].pattern, path, &rest))
			continue;
		if (method_matches(&routes[i], method)) {
			*ret_route = &routes[i];
			*ret_rest = rest;
			return ROUTE_FOUND;
		}
		path_found = true;
		allow_add(ret_allow, allow_size, routes[i].method);
	}
	return path_found ? ROUTE_NO_METHOD : ROUTE_NO_PATH;
}

static bool answers_hold(const struct route_answer *answers, size_t count, unsigned status, const char *code)
{
	for (size_t i = 0; i < count && answers[i].status != 0; i++)
		if (answers[i].status == status &&
		    (code == NULL || answers[i].code == NULL ? code == answers[i].code
							     : strcmp(code, answers[i].code) == 0))
			return true;
	return false;
}

bool route_may_answer(const struct route *route, unsigned status, const char *code)
{
	if (answers_hold(common, COMMON_COUNT, status, code))
		return true;
	if (route == NULL)
		return answers_hold(routeless, ROUTELESS_COUNT, status, code);
	return answers_hold(route->answers, ROUTE_ANSWERS_MAX, status, code);
}

static void print_answers(FILE *to, const char *method, const char *pattern, const struct route_answer *answers,
			  size_t count)
{
	for (size_t i = 0; i < count && answers[i].status != 0; i++)
		fprintf(to, "%s %s %u %s\n", method, pattern, (unsigned)answers[i].status,
			answers[i].code != NULL ? answers[i].code : "-");
}

void route_print(FILE *to)
{
	for (size_t i = 0; i < ROUTE_NONE; i++) {
		print_answers(to, routes[i].method, routes[i].pattern, routes[i].answers, ROUTE_ANSWERS_MAX);
		print_answers(to, routes[i].method, routes[i].pattern, common, COMMON_COUNT);
	}
	print_answers(to, "*", "*", routeless, ROUTELESS_COUNT);
}
