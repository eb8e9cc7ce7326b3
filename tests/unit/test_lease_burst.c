/* SPDX-License-Identifier: MIT */
/* A burst: no more operations are under way at once than the masters surely answer within --master-timeout-ms; the
 * others start in their order. Answers that have arrived are read before a timeout counts, however long the loop was
 * blocked. */
#include "lease_queue_world.h"

enum { ROOM = 64, BURST = 100 }; /* with the timeout that set_room() sets */

static struct asked burst[BURST];

static void set_room(void)
{
	options.master_timeout_ms = 1; /* no loop runs here, so no timer fires */
	memset(burst, 0, sizeof burst);
}

static void begin(size_t i, enum lease_operation operation, uint32_t wait_ms)
{
	char name[24];
	struct lease_request request = {.operation = operation, .ttl_ms = 30000, .wait_ms = wait_ms, .resource = name};
	request.resource_len = (uint16_t)snprintf(name, sizeof name, "r%zu", i);
	memset(request.token, 'a', sizeof request.token);
	burst[i].answered = false;
	burst[i].op = lease_submit(leases, &request, on_done, &burst[i]);
}

static void begin_some(size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		begin(i, LEASE_ACQUIRE, 0);
}

/* All commands to master 0 about r{i}. */
static size_t asked_about(size_t i)
{
	char key[16];
	size_t count = 0;
	snprintf(key, sizeof key, "r%zu", i);
	for (size_t j = 0; j < masters.command_count; j++)
		count += masters.commands[j].master == 0 && strcmp(masters.commands[j].key, key) == 0;
	return count;
}

/* The first `count` that are open at all masters are granted. */
static void grant(size_t count)
{
	for (int master = 0; master < FAKE_MASTERS; master++)
		(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_NONE, master, count, &granted);
	leases_dispatch(leases);
}

TEST(what_is_too_much_starts_when_there_is_room)
{
	set_room();
	begin_some(0, BURST);
	ck_assert_uint_eq(acquires(), ROOM * FAKE_MASTERS);
	ck_assert_uint_eq(asked_about(ROOM - 1), 1);
	ck_assert_uint_eq(asked_about(ROOM), 0);
	ck_assert_uint_eq(metrics_worker(0)->queued, BURST - ROOM);
	leases_dispatch(leases);
	ck_assert_uint_eq(acquires(), ROOM * FAKE_MASTERS); /* no master has answered */
	grant(10);
	leases_dispatch(leases);
	ck_assert_uint_eq(acquires(), (ROOM + 10) * FAKE_MASTERS);
	ck_assert_uint_eq(asked_about(ROOM + 9), 1);
	ck_assert_uint_eq(asked_about(ROOM + 10), 0);
	ck_assert(burst[9].answered && !burst[10].answered);
	ck_assert_uint_eq(metrics_worker(0)->queued, BURST - ROOM - 10);
	grant(ROOM);
	leases_dispatch(leases);
	grant(BURST);
	for (size_t i = 0; i < BURST; i++) {
		ck_assert(burst[i].answered);
		ck_assert_int_eq(burst[i].answer.status, LEASE_OK);
	}
	ck_assert_uint_eq(leases_waiting(leases), 0);
	ck_assert_uint_eq(metrics_worker(0)->queued, 0);
	masters.command_count = 0;
	begin_some(0, 1); /* there is room again */
	ck_assert_uint_eq(acquires(), FAKE_MASTERS);
}

TEST(nobody_overtakes)
{
	set_room();
	begin_some(0, ROOM + 1);
	/* room, but the one held back has not started yet */
	fake_masters_answer(&masters, REDLOCK_SCRIPT_ACQUIRE, &granted);
	begin(ROOM + 1, LEASE_RELEASE, 0);
	ck_assert_uint_eq(asked_about(ROOM + 1), 0);
	leases_dispatch(leases);
	ck_assert_uint_eq(asked_about(ROOM), 1);
	ck_assert_uint_eq(asked_about(ROOM + 1), 1);
}

/* Behind a crowd of acquisitions a lease would end before its extension starts. */
TEST(extensions_start_before_acquisitions)
{
	set_room();
	begin_some(0, ROOM + 2);
	begin(ROOM + 2, LEASE_EXTEND, 0);
	begin(ROOM + 3, LEASE_EXTEND, 0);
	ck_assert_uint_eq(metrics_worker(0)->queued, 4);
	grant(2);
	leases_dispatch(leases);
	ck_assert_uint_eq(asked_about(ROOM + 2), 1);
	ck_assert_uint_eq(asked_about(ROOM + 3), 1);
	ck_assert_uint_eq(asked_about(ROOM), 0);
	ck_assert_uint_eq(metrics_worker(0)->queued, 2);
	grant(2);
	leases_dispatch(leases);
	ck_assert_uint_eq(asked_about(ROOM), 1);
	ck_assert_uint_eq(asked_about(ROOM + 1), 1);
}

/* Waiters do not keep the masters busy, however many they are. */
TEST(waiters_take_no_room)
{
	set_room();
	options.max_waiters = BURST;
	for (size_t i = 0; i < ROOM; i++)
		begin(i, LEASE_ACQUIRE, 60000);
	answer_acquires(&held);
	ck_assert_int_eq(burst[ROOM - 1].op->core.state, REDLOCK_WAITING);
	begin_some(ROOM, ROOM + 1);
	ck_assert_uint_eq(asked_about(ROOM), 1);
}

TEST(given_up_before_it_started)
{
	set_room();
	begin_some(0, ROOM + 3);
	begin(ROOM + 3, LEASE_ACQUIRE, 60000);
	give_up(&burst[ROOM + 1]);
	give_up(&burst[ROOM + 3]);
	ck_assert_uint_eq(metrics_waiters(), 0);
	grant(ROOM);
	leases_dispatch(leases);
	ck_assert_uint_eq(asked_about(ROOM), 1);
	ck_assert_uint_eq(asked_about(ROOM + 1), 0);
	ck_assert_uint_eq(asked_about(ROOM + 2), 1);
	ck_assert_uint_eq(asked_about(ROOM + 3), 0);
	grant(2);
	ck_assert(burst[ROOM + 2].answered && !burst[ROOM + 1].answered && !burst[ROOM + 3].answered);
	ck_assert_uint_eq(leases_waiting(leases), 0);
}

/* The client of a release may disconnect at once: the release is carried out all the same. */
TEST(a_release_is_carried_out_whoever_hears_of_it)
{
	set_room();
	begin_some(0, ROOM);
	begin(ROOM, LEASE_RELEASE, 0);
	give_up(&burst[ROOM]);
	lease_release_abandoned(leases, &(struct lease_request){.resource_len = 4, .resource = "back"},
				"0123456789abcdef0123456789abcdef01234567");
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, false), 0);
	grant(2);
	leases_dispatch(leases);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, true), 2 * FAKE_MASTERS);
	ck_assert_uint_eq(asked_about(ROOM), 1);
	ck_assert_uint_eq(leases_waiting(leases), ROOM - 2);
}

TEST(a_wait_is_no_longer_for_it)
{
	set_room();
	begin_some(0, ROOM);
	begin(ROOM, LEASE_ACQUIRE, 60000);
	burst[ROOM].op->began_us -= 1000000;
	begin(ROOM + 1, LEASE_ACQUIRE, 500);
	burst[ROOM + 1].op->began_us -= 1000000;
	grant(2);
	leases_dispatch(leases);
	ck_assert_uint_le(burst[ROOM].op->core.params.wait_us, 59000000);
	ck_assert_uint_gt(burst[ROOM].op->core.params.wait_us, 50000000);
	ck_assert_uint_eq(burst[ROOM + 1].op->core.params.wait_us, 1);
	grant(ROOM); /* a free lock is granted all the same */
	ck_assert(burst[ROOM + 1].answered);
	ck_assert_int_eq(burst[ROOM + 1].answer.status, LEASE_OK);
}

/* Operations from before the drain are carried out, but for those that would have to wait. */
TEST(a_drain_answers_those_held_back)
{
	set_room();
	begin_some(0, ROOM + 1);
	begin(ROOM + 1, LEASE_ACQUIRE, 60000);
	leases_drain(leases);
	leases_dispatch(leases);
	ck_assert(burst[ROOM + 1].answered);
	ck_assert_int_eq(burst[ROOM + 1].answer.status, LEASE_DRAINING);
	grant(ROOM);
	leases_dispatch(leases);
	ck_assert_uint_eq(asked_about(ROOM), 1);
	ck_assert_uint_eq(asked_about(ROOM + 1), 0);
	grant(1);
	ck_assert_int_eq(burst[ROOM].answer.status, LEASE_OK);
	ck_assert_uint_eq(leases_waiting(leases), 0);
}

TEST(the_end_answers_those_held_back)
{
	set_room();
	begin_some(0, BURST);
	masters.down = 7;
	fake_masters_answer(&masters, REDLOCK_SCRIPT_ACQUIRE, &lost); /* as masters_close() */
	while (leases_dispatch(leases))
		;
	ck_assert_uint_eq(leases_waiting(leases), 0);
	ck_assert(burst[BURST - 1].answered);
	ck_assert_int_eq(burst[BURST - 1].answer.status, LEASE_NO_QUORUM);
}

/* ---- answers that nobody has read ---- */

/* Runs the loop until the timer of the first one has fired that many times in vain. On a busy machine it may fire once
 * more in the same round, which decides the operation. */
static void run_late(unsigned rounds)
{
	bool runs = true; /* false after the round that decides, too: no timer is left */
	while (burst[0].op->rounds_late < rounds && burst[0].op->state == LEASE_OP_RUNNING) {
		ck_assert(runs);
		runs = uv_run(&loop, UV_RUN_ONCE) != 0;
	}
}

/* Returns the rounds of the loop that it took. */
static unsigned run_until_answered(void)
{
	bool runs = true;
	unsigned rounds = 0;
	for (; !burst[0].answered; rounds++) {
		ck_assert(runs);
		runs = uv_run(&loop, UV_RUN_ONCE) != 0;
		leases_dispatch(leases);
	}
	return rounds;
}

TEST(what_lies_unread_is_no_silence)
{
	set_room();
	begin_some(0, 1);
	masters.unread = 1;
	run_late(5);
	leases_dispatch(leases);
	ck_assert(!burst[0].answered);
	ck_assert_uint_eq(masters.silent, 0);
	grant(1);
	ck_assert_int_eq(burst[0].answer.status, LEASE_OK);
}

TEST(silence_is_noticed_in_the_second_round)
{
	set_room();
	begin_some(0, 1);
	run_late(1);
	run_until_answered();
	ck_assert_int_eq(burst[0].answer.status, LEASE_NO_QUORUM);
	ck_assert_uint_eq(masters.silent, 7);
}

/* A master that has answered is not waited for. */
TEST(what_others_answer_is_of_no_interest)
{
	set_room();
	begin_some(0, 1);
	(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_ACQUIRE, 0, 1, &granted);
	masters.unread = 1;
	/* the timer fires twice; on a busy machine in one round */
	ck_assert_uint_le(run_until_answered(), 3);
	ck_assert_int_eq(burst[0].answer.status, LEASE_NO_QUORUM);
}

/* A master that sends other data without end is not waited for. */
TEST(it_is_not_waited_for_ever)
{
	set_room();
	begin_some(0, 1);
	masters.unread = 7;
	run_until_answered();
	ck_assert_int_eq(burst[0].answer.status, LEASE_NO_QUORUM);
}
