/* SPDX-License-Identifier: MIT */
/* route.c: a forced release, a selection by the query, and the table of routes and answers. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls.h"
#include "api/calls/calls_internal.h"
#include "suite.h"

static const struct {
	const char *method, *query;
	enum lease_operation operation;
} queries[] = {
	{"DELETE", "force=true", LEASE_FORCE},  {"DELETE", "force=", LEASE_FORCE},
	{"DELETE", "a=b&force=1", LEASE_FORCE}, {"DELETE", "", LEASE_RELEASE},
	{"DELETE", NULL, LEASE_RELEASE},        {"DELETE", "force", LEASE_RELEASE},
	{"DELETE", "aforce=1", LEASE_RELEASE},  {"DELETE", "forced=1", LEASE_RELEASE},
	{"DELETE", "a=force=1", LEASE_RELEASE}, {"DELETE", "%66orce=true", LEASE_RELEASE},
	{"PUT", "force=true", LEASE_EXTEND},    {"GET", "force=true", LEASE_INSPECT},
	{"DELETE", "fence=1", LEASE_RELEASE},   {"DELETE", "fence=1&force=true", LEASE_FORCE},
};

/* A forced release is an operation of its own, with another right, whether the name is in the path or in the body. */
TEST_EACH(test_force, 0, sizeof queries / sizeof queries[0])
{
	static const char *const paths[] = {"/locks/a", "/locks"};
	const char *rest = NULL;
	char allow[ROUTE_ALLOW_MAX];

	for (size_t i = 0; i < 2; i++) {
		const struct route *route = route_find(queries[_i].method, paths[i], queries[_i].query, &rest, allow);
		ck_assert_ptr_nonnull(route);
		ck_assert_int_eq(route->operation, queries[_i].operation);
		ck_assert_str_eq(allow, "");
		if (strcmp(queries[_i].method, "DELETE") == 0) {
			ck_assert_str_eq(route->name, "release");
			ck_assert_int_eq(route->need, route->operation == LEASE_FORCE ? ACCESS_ADMIN : ACCESS_TOKEN);
		}
	}
}

/* With the parameter `resource`, GET /locks is an inspection, with its right, and counted as one. */
TEST(test_selection)
{
	static const struct {
		const char *query, *name;
	} selections[] = {{"resource=a", "inspect"}, {"limit=1&resource=", "inspect"}, {"resource", "list"},
			  {"resources=a", "list"},   {"prefix=resource=a", "list"},    {"%72esource=a", "list"}};

	for (size_t i = 0; i < sizeof selections / sizeof *selections; i++) {
		const char *rest = NULL;
		char allow[ROUTE_ALLOW_MAX];
		const struct route *route = route_find("GET", "/locks", selections[i].query, &rest, allow);
		ck_assert_str_eq(route->name, selections[i].name);
		ck_assert_ptr_null(rest);
		ck_assert_str_eq(route_name(route_index(route)), selections[i].name);
		ck_assert_int_eq(route->need, strcmp(route->name, "list") == 0 ? ACCESS_LIST : ACCESS_INSPECT);
	}
}

TEST(test_table)
{
	for (size_t i = 0; i < ROUTE_COUNT; i++) {
		const struct route *route = &route_table[i];
		ck_assert_str_eq(route_name(route_index(route)), route->name);
		ck_assert_str_eq(route_name(i), route->name);
		ck_assert_ptr_nonnull(route->handle);
		ck_assert(route->status >= 200 && route->status < 300);
		ck_assert_uint_lt(route->problems, UINT32_C(1) << PROBLEM_COUNT);
		for (size_t j = 0; j < i; j++) {
			const struct route *before = &route_table[j];
			bool variant = before->selector && j + 1 == i; /* of the same route, by its query */
			ck_assert((route_index(before) == route_index(route)) ==
				  (strcmp(before->name, route->name) == 0));
			ck_assert(variant == (strcmp(before->method, route->method) == 0 &&
					      strcmp(before->pattern, route->pattern) == 0));
		}
	}
	ck_assert_ptr_null(route_name(ROUTE_COUNT));
}

TEST(test_may_answer)
{
	const struct route *acquire = &route_table[0], *force = &route_table[5], *release = &route_table[6];

	ck_assert(route_may_answer(acquire, 201, NULL));
	ck_assert(route_may_answer(acquire, 409, "locked"));
	ck_assert(route_may_answer(acquire, 400, "invalid-request"));
	ck_assert(route_may_answer(acquire, 200, NULL)); /* the same request again */
	ck_assert(!route_may_answer(release, 200, NULL));
	ck_assert(route_may_answer(force, 401, "unauthorized"));
	ck_assert(!route_may_answer(release, 401, "unauthorized"));
	ck_assert(!route_may_answer(acquire, 409, "not-owner"));
	ck_assert(!route_may_answer(acquire, 409, NULL));
	ck_assert(!route_may_answer(acquire, 201, "locked"));
	ck_assert(!route_may_answer(acquire, 404, "not-found"));
	ck_assert(route_may_answer(NULL, 404, "not-found"));
	ck_assert(route_may_answer(NULL, 431, "too-large"));
	ck_assert(!route_may_answer(NULL, 200, NULL));
}

TEST(test_print)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	calls_print_routes(to);
	fclose(to);
	ck_assert_ptr_nonnull(strstr(text, "POST /locks 201 -\n"));
	ck_assert_ptr_nonnull(strstr(text, "POST /locks 409 locked\n"));
	ck_assert_ptr_nonnull(strstr(text, "DELETE /locks/{resource} 410 lease-expired\n"));
	ck_assert_ptr_nonnull(strstr(text, "GET /locks 304 -\n"));
	ck_assert_ptr_nonnull(strstr(text, "DELETE /locks 401 unauthorized\n"));
	ck_assert_ptr_nonnull(strstr(text, "GET / 400 invalid-request\n"));
	ck_assert_ptr_nonnull(strstr(text, "* * 404 not-found\n"));
	free(text);
}
