/* SPDX-License-Identifier: MIT */
/* The trail of leases (--log-leases): a line of the log for each grant, and for each end of a lease that somebody or
 * redlockd caused. Nobody sees the moment at which a lease runs out, so that has no line. Tokens and Idempotency-Keys
 * are never in a line. See calls_internal.h. Worker's thread. */
#include <assert.h>
#include <string.h>

#include "calls_internal.h"

/* A lease, as far as it is known. */
struct trail_lease {
	uint8_t set_count; /* 0: one resource */
	uint16_t owner_len, caller_len;
	size_t names_len;
	uint64_t fence; /* 0: not known */
	const char *names, *owner, *caller;
};

/* `by`: the caller who ended the lease of another one; NULL: none. */
static void trail_write(const struct call *call, const char *event, const struct trail_lease *lease, const char *by,
			const char *reason)
{
	uint64_t held_ms;
	log_begin(LOG_INFO, event);
	call_log_id(call);
	call_log_names(lease->names, lease->names_len, lease->set_count);
	if (lease->caller_len > 0)
		log_str("caller", lease->caller, lease->caller_len);
	if (lease->owner_len > 0)
		log_str("owner", lease->owner, lease->owner_len);
	if (lease->fence > 0)
		log_num("fence", (int64_t)lease->fence);
	if (state_held_ms(lease->fence, &held_ms))
		log_num("held_ms", (int64_t)held_ms);
	log_text("by", by);
	log_text("reason", reason);
	log_end();
}

/* The lease that a request asks for, or names. */
static struct trail_lease trail_asked(const struct call *call, const struct lease_request *lease, uint64_t fence)
{
	const char *caller = call->caller.known ? call->caller.name : "";
	return (struct trail_lease){.set_count = lease->set_count,
				    .names = lease->resource,
				    .names_len = lease->resource_len,
				    .owner = lease->owner,
				    .owner_len = lease->owner_len,
				    .caller = caller,
				    .caller_len = (uint16_t)strnlen(caller, LEASE_CALLER_MAX),
				    .fence = fence};
}

/* The lease of a holder. A set has all of its resources, even if the request names one. */
static struct trail_lease trail_held(const struct call *call, const struct lease_request *request,
				     const struct lease_holder *holder)
{
	struct trail_lease lease = trail_asked(call, request, holder->fence);
	lease.owner = holder->owner;
	lease.owner_len = holder->owner_len;
	lease.caller = holder->owner + holder->owner_len;
	lease.caller_len = holder->caller_len;
	if (holder->set_count == 0)
		return lease;
	lease.set_count = holder->set_count;
	lease.names = lease.caller + holder->caller_len + holder->metadata_len;
	lease.names_len = holder->names_len;
	return lease;
}

static void trail_forced(const struct call *call, const struct lease_holder *holder)
{
	struct trail_lease lease = trail_held(call, &call->lease, holder);
	trail_write(call, "lease-forced", &lease, call->caller.known ? call->caller.name : NULL, NULL);
}

static void trail_ok(const struct call *call, const struct lease_request *request, const struct lease_answer *answer)
{
	const struct lease_holders *several = answer->several;
	struct trail_lease lease;
	switch (request->operation) {
	case LEASE_ACQUIRE:
		lease = trail_asked(call, request, answer->fence);
		trail_write(call, "lease-granted", &lease, NULL, answer->again ? "again" : NULL);
		break;
	case LEASE_RELEASE:
		lease = trail_held(call, request, &answer->holder);
		trail_write(call, request->keep_ms > 0 ? "lease-kept" : "lease-released", &lease, NULL, NULL);
		break;
	case LEASE_FORCE:
		for (uint32_t i = 0; several && i < several->listed; i++)
			trail_forced(call, &several->list[i].holder);
		if (!several)
			trail_forced(call, &answer->holder);
		break;
	default: break;
	}
}

void trail_answer(const struct call *call, const struct lease_request *request, const struct lease_answer *answer)
{
	bool is_over = answer->status == LEASE_NOT_OWNER || answer->status == LEASE_EXPIRED;
	assert(trail_is_on(call));
	if (answer->status == LEASE_OK) {
		trail_ok(call, request, answer);
	} else if (request->operation == LEASE_EXTEND && is_over) {
		struct trail_lease lease = trail_asked(call, request, 0);
		trail_write(call, "lease-lost", &lease, NULL, problem_code(problem_of_lease(answer->status)));
	}
}

void trail_lost(const struct call *call, const char *reason)
{
	struct trail_lease lease = trail_asked(call, &call->lease, call->fence);
	assert(trail_is_on(call) && reason);
	trail_write(call, "lease-lost", &lease, NULL, reason);
}

void trail_left(const struct call *call)
{
	struct trail_lease lease = trail_asked(call, &call->lease, call->fence);
	assert(trail_is_on(call) && call->fence > 0);
	trail_write(call, "lease-released", &lease, NULL, CALL_CLIENT_GONE);
}

void trail_refused(const struct call *call)
{
	unsigned status = call->request->reply.status;
	bool is_lease = call->route && call->route->takes_body;
	assert(trail_is_on(call));
	if (!is_lease || (status != 401 && status != 403) || !log_allows("lease-refused", status))
		return;
	struct trail_lease lease = trail_asked(call, &call->lease, 0);
	trail_write(call, "lease-refused", &lease, NULL, call->request->reply.code);
}
