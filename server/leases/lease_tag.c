/* The tag of a state, for watchers: see lease_tag_write() in leases.h. Pure. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "leases.h"

/* A holder that has no majority, and cannot have one with the masters that did not answer: no lease is valid, but the
 * resource cannot be acquired either. */
static bool is_split(const struct lease_answer *answer)
{
	const struct redlock_votes *votes = &answer->votes;
	if (answer->several && answer->several->listed == 0)
		return true;
	return answer->held && votes->granted + votes->failed + votes->quarantined < votes->needed;
}

void lease_tag_write(const struct lease_answer *answer, char ret_tag[LEASE_TAG_MAX])
{
	assert(answer->status == LEASE_OK || answer->status == LEASE_NO_QUORUM);
	if (answer->status != LEASE_OK)
		strcpy(ret_tag, "unknown");
	else if (!answer->held)
		strcpy(ret_tag, "free");
	else if (is_split(answer))
		strcpy(ret_tag, "split");
	else if (answer->several)
		snprintf(ret_tag, LEASE_TAG_MAX, "s%" PRIu32 ".%" PRIx64, answer->several->count,
			 answer->several->digest);
	else if (answer->holder.known)
		snprintf(ret_tag, LEASE_TAG_MAX, "%" PRIu64, answer->holder.fence);
	else /* half of the hash: the value may be a secret of the other program's */
		snprintf(ret_tag, LEASE_TAG_MAX, "x%08" PRIx32,
			 (uint32_t)(answer->holder_id ^ answer->holder_id >> 32));
}
