/* SPDX-License-Identifier: MIT */
/* A master that has lost a script, and says so of its source, too. */
#include "lease_queue_world.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"

/* The second command has the source, so a master that misses the script again does not tell the truth. */
TEST(a_lost_script_is_sent_once)
{
	static const struct master_reply no_script = {
		.vote = REDLOCK_VOTE_FAILED, .error = MASTER_ERROR_OTHER, .no_script = true};
	struct lease_request request = {.operation = LEASE_RELEASE, .resource_len = 1, .resource = "r"};
	memcpy(request.token, TOKEN, LEASE_TOKEN_LEN);
	asked[0] = (struct asked){.answered = false};
	lease_submit(leases, &request, on_done, &asked[0]);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &no_script); /* also what is sent meanwhile */
	leases_dispatch(leases);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, false), 2 * FAKE_MASTERS);
	ck_assert_uint_eq(masters.pending_count, FAKE_MASTERS);
	ck_assert_int_eq(asked[0].answer.status, LEASE_NO_QUORUM);
}
