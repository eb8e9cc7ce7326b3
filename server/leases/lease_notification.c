/* Notifications of the masters, passed on to the operations that wait.
 *
 * A master notifies the replica whose waiter is next for a free resource. Notifications can be missed (a connection
 * broke, a master dropped entries): then the first waiter of each resource tries by itself. */
#include <assert.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

static void ignore_reply(void *arg, const struct master_reply *reply)
{
	(void)arg;
	(void)reply;
}

/* The notified waiter is not here any more: its entry has to go, or all behind it wait for nothing. */
static void drop_stale_entry(struct leases *leases, const struct masters_notification *notification)
{
	struct lease_request request = {.operation = LEASE_RELEASE,
					.resource_len = (uint16_t)notification->resource_len};
	char entry[LEASE_ENTRY_MAX], bytes[LEASE_COMMAND_MAX];
	assert(notification->ours);
	memcpy(request.resource, notification->resource, notification->resource_len);
	lease_command_write_entry(leases, notification->arrival, 0, entry);
	struct lease_command command = {.script = REDLOCK_SCRIPT_RELEASE, .token = "", .entry = entry};
	size_t len = lease_command_format(leases->options, &request, &command, bytes, sizeof bytes);
	masters_send(leases->masters, notification->master, REDLOCK_SCRIPT_RELEASE, bytes, len, REDLOCK_NEVER,
		     ignore_reply, NULL);
}

static void notify_waiter(struct lease_op *op, const struct masters_notification *notification)
{
	struct redlock_event event = {.kind = REDLOCK_NOTIFIED,
				      .now_us = clock_now_us(),
				      .master = notification->master,
				      .fence = lease_fence_guess(op->leases)};
	if (op->notified_us == 0)
		op->notified_us = event.now_us;
	lease_op_dispatch(op, &event);
}

static void on_notified(void *arg, const struct masters_notification *notification)
{
	struct leases *leases = arg;
	const char *resource = notification->resource;
	size_t len = notification->resource_len;
	assert(notification->master < masters_count(leases->masters));
	if (len > LEASE_RESOURCE_MAX)
		return;
	if (notification->ours) {
		struct lease_op *op = lease_queue_find(leases, resource, len, notification->arrival);
		if (op)
			notify_waiter(op, notification);
		else
			/* often a late notification; then the entry is gone, and the release finds nothing */
			drop_stale_entry(leases, notification);
		return;
	}
	struct lease_op *first = lease_queue_find_first(leases, resource, len);
	if (first)
		lease_op_dispatch(first, &(struct redlock_event){.kind = REDLOCK_PASSED,
								 .now_us = clock_now_us(),
								 .master = notification->master});
}

static void try_now(struct lease_op *first)
{
	lease_op_dispatch_first(first, clock_now_us(), 0);
}

/* The first waiter of each resource tries at once, which writes its entry again; the others do so when they become
 * the first. */
static void on_missed(void *arg)
{
	struct leases *leases = arg;
	leases->missed_notifications++;
	lease_queues_visit_first(leases, try_now);
}

void lease_notification_listen(struct leases *leases)
{
	masters_set_notification_events(
		leases->masters,
		&(struct masters_notification_events){.notified = on_notified, .missed = on_missed, .arg = leases});
}
