/* SPDX-License-Identifier: MIT */
/* Extensions and releases of many leases in one call: PUT and DELETE on /locks with `leases`. See calls_internal.h.
 *
 * Each item is an operation of its own, as if it had come in a call of its own: all start in one turn of the loop, so
 * that they share the commands to the masters, and each is decided alone. The reply has the answers in the order of the
 * items. A body with an item that is not valid starts nothing. Worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"

struct bulk_item {
	struct request *request;    /* the first member, as in struct call */
	struct lease_request lease; /* owns its texts */
	struct lease_op *op;        /* under way, or NULL */
	char *text;                 /* of the answer, not terminated; NULL: none yet */
	size_t text_len;
};

static struct call *bulk_call(const struct bulk_item *item)
{
	return item->request->call;
}

/* ---- the body ---- */

/* Reads an item. Adds its errors with its number before the member. */
static void bulk_read_item(struct call *call, size_t i, const char *bytes, size_t len, struct field_errors *errors)
{
	struct field_errors own = {.count = 0};
	struct bulk_item *item = &call->bulk->items[i];
	assert(i < BODY_ITEMS_MAX);
	item->request = call->request;
	item->lease = call->lease;
	if (body_parse_item(bytes, len, &call->limits, &item->lease, &own))
		return;
	for (const struct field_error *error = own.items; error < own.items + own.count; error++) {
		char field[sizeof error->field];
		bool is_all = strcmp(error->field, "body") == 0;
		snprintf(field, sizeof field, "leases[%zu]%s%.*s", i, is_all ? "" : ".", FIELD_NAME_MAX,
			 is_all ? "" : error->field);
		field_errors_add(errors, field, "%s", error->reason);
	}
}

static bool bulk_begin(struct call *call, size_t count, struct field_errors *errors)
{
	if (call->request->headers.token_state != HEADERS_TOKEN_NONE)
		field_errors_add(errors, "Lock-Token", "must not be there beside leases, each of which has its token");
	if (call->lease.keep_ms > 0)
		field_errors_add(errors, "keep_ms", "must not be there beside leases, each of which may have its own");
	if (count < 1 || count > BODY_ITEMS_MAX) {
		field_errors_add(errors, "leases", "must be 1 to %d leases", BODY_ITEMS_MAX);
		return false;
	}
	call->bulk = memory_zeroed(1, sizeof *call->bulk);
	call->bulk->count = count;
	call->bulk->items = memory_zeroed(count, sizeof *call->bulk->items);
	return true;
}

static void bulk_read_value(struct call *call, size_t i, json_t *value, struct field_errors *errors)
{
	char field[FIELD_NAME_MAX];
	if (json_is_object(value)) {
		char *text = call_dump(json_incref(value));
		bulk_read_item(call, i, text, strlen(text), errors);
		free(text);
		return;
	}
	snprintf(field, sizeof field, "leases[%zu]", i);
	field_errors_add(errors, field, "must be an object");
}

/* Some generated clients always send both lists, one of them empty: that one is as if it were not there. */
static bool bulk_is_empty(const json_t *value)
{
	return json_is_array(value) && json_array_size(value) == 0;
}

/* The body goes on without `leases`. */
static void bulk_drop_list(struct request *request, json_t *root)
{
	json_object_del(root, "leases");
	free(request->body);
	request->body = call_dump(json_incref(root));
	request->body_len = strlen(request->body);
}

/* Any JSON object with `leases`: mostly one with a mistake. */
static void bulk_read_complete(struct call *call, json_t *root, struct field_errors *errors)
{
	json_t *list = json_object_get(root, "leases"), *value;
	const char *name;
	size_t i;
	if (bulk_is_empty(list) && json_object_size(root) > 1) {
		bulk_drop_list(call->request, root);
		return;
	}
	json_object_foreach(root, name, value)
	{
		if (value != list && !(bulk_is_empty(value) && strcmp(name, "resources") == 0))
			field_errors_add_name(errors, name, strlen(name), "must not be there beside leases");
	}
	if (!json_is_array(list)) {
		field_errors_add(errors, "leases", "must be an array of objects");
		return;
	}
	if (!bulk_begin(call, json_array_size(list), errors))
		return;
	json_array_foreach(list, i, value)
	{
		bulk_read_value(call, i, value, errors);
	}
}

bool bulk_decode(struct call *call)
{
	const char *bytes = call->request->body;
	size_t len = call->request->body_len;
	struct field_errors errors = {.count = 0};
	struct body_item items[BODY_ITEMS_MAX];
	assert(call->route->takes_leases && !call->bulk && !call_has_resource(call));
	if (len == 0)
		return true;
	size_t count = body_find_items(bytes, len, items);
	if (count > 0 && bulk_begin(call, count, &errors)) {
		for (size_t i = 0; i < count; i++)
			bulk_read_item(call, i, items[i].bytes, items[i].len, &errors);
	} else if (count == 0 && (memmem(bytes, len, "leases", 6) || memchr(bytes, '\\', len))) {
		/* the name of the member may be escaped; numbers of any size are for body.c */
		json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
		if (json_object_get(root, "leases"))
			bulk_read_complete(call, root, &errors);
		json_decref(root);
	}
	if (errors.count > 0)
		return call_reject_with(call, PROBLEM_INVALID_REQUEST, NULL, NULL, &errors);
	return !call->bulk || authorize_more(call, call->bulk->count - 1);
}

/* ---- the answers ---- */

static size_t bulk_write_problem(struct bulk_item *item, const struct lease_answer *answer, char *ret_text)
{
	enum lease_status status = answer->status;
	char *at = problem_write(problem_of_lease(status), lock_call_explain(&item->lease, answer), ret_text);
	if (status == LEASE_NO_QUORUM) { /* in place of the header Retry-After */
		at = stpcpy(at, ",\"retry_after_ms\":");
		at += text_decimal(answer->retry_after_ms, at);
		bulk_call(item)->votes = answer->votes;
	}
	if (status != LEASE_DRAINING)
		at = lease_votes_write(at, &answer->votes);
	*at++ = '}';
	bulk_call(item)->bulk->problems++;
	return (size_t)(at - ret_text);
}

static void bulk_write_item(struct bulk_item *item, const struct lease_answer *answer)
{
	enum { AROUND = PROBLEM_WRITTEN_MAX + LEASE_VOTES_MAX + 64 };
	struct lease_answer room;
	const struct lease_answer *shown = lock_call_disclose(bulk_call(item), answer, &room);
	char *text = memory_alloc(AROUND + lease_text_max(&item->lease));
	if (shown->status != LEASE_OK)
		item->text_len = bulk_write_problem(item, shown, text);
	else if (item->lease.operation == LEASE_EXTEND)
		item->text_len = lease_text_write(&item->lease, shown, text);
	else
		item->text_len = lease_released_write(&item->lease, text);
	item->text = memory_resize(text, item->text_len);
	bulk_call(item)->bulk->text_len += item->text_len;
}

static void bulk_reply(struct call *call)
{
	static const char head[] = "{\"leases\":";
	const struct bulk *bulk = call->bulk;
	char *text = memory_alloc(sizeof head + bulk->text_len + bulk->count + 2), *at = stpcpy(text, head);
	for (const struct bulk_item *item = bulk->items; item < bulk->items + bulk->count; item++) {
		*at++ = item == bulk->items ? '[' : ',';
		at = mempcpy(at, item->text, item->text_len);
	}
	at = stpcpy(at, "]}");
	reply_owned(call->request, 200, "application/json", text, (size_t)(at - text));
}

/* lease_done_fn */
static void bulk_item_done(void *arg, const struct lease_answer *answer)
{
	struct bulk_item *item = arg;
	struct call *call = bulk_call(item);
	assert(item->op && !item->text && call->bulk->under_way > 0);
	item->op = NULL;
	authorize_offer(call, &item->lease, answer);
	lock_call_count(call, &item->lease, answer);
	if (trail_is_on(call))
		trail_answer(call, &item->lease, answer);
	bulk_write_item(item, answer);
	if (--call->bulk->under_way > 0)
		return;
	bulk_reply(call);
	request_resume(call->request);
}

/* ---- operations ---- */

void bulk_submit(struct call *call)
{
	struct bulk *bulk = call->bulk;
	const struct request_context *context = call->request->context;
	assert(bulk->under_way == 0);
	if (context->ending) {
		call_reject(call, PROBLEM_DRAINING, NULL);
		return;
	}
	bulk->under_way = bulk->count;
	for (struct bulk_item *item = bulk->items; item < bulk->items + bulk->count; item++) {
		item->lease.more = item + 1 < bulk->items + bulk->count;
		item->op = lease_submit(context->config->leases, &item->lease, bulk_item_done, item);
	}
}

bool bulk_cancel(struct call *call)
{
	struct bulk *bulk = call->bulk;
	if (!bulk_is_under_way(bulk))
		return false;
	for (struct bulk_item *item = bulk->items; item < bulk->items + bulk->count; item++) {
		if (item->op)
			lease_cancel(item->op);
		item->op = NULL;
	}
	bulk->under_way = 0;
	return true;
}

void bulk_free(struct bulk *bulk)
{
	if (!bulk)
		return;
	for (struct bulk_item *item = bulk->items; item < bulk->items + bulk->count; item++) {
		free((char *)item->lease.resource);
		free(item->text);
	}
	free(bulk->items);
	free(bulk);
}
