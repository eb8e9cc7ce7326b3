/* Fuzz target: the restart guard (server/redlock/guard/guard.h) under any events in any order.
 *
 * The input decides how many masters there are and every event: connections that come and go, answers and failures in
 * any order, what is changed on a server behind the guard's back (restarted, flushed, another redlockd's marker, an
 * older image), clocks that jump. A server carries the guard's scripts out as server/scripts/ do. The caller's duties
 * are kept: each action has one answer, of its kind or FAILED; time does not go back.
 *
 * Checked without looking at how the guard does it: who votes has shown an epoch that fits, over this very connection,
 * and nothing has been said against it since; a quarantine lasts as long as the longest lease, seen without a gap, or
 * as long as N-Q+1 others say; a floor is as high as the fences of N-Q+1 others that were asked when the quarantine was
 * over, or rests on clocks and says so. When the input is over all is well for a while, and every master must vote
 * again. */
#include "fuzz_guard.h"

/* ---- events ---- */

/* FUZZ_STORY=1: what happens, for whoever looks at a crash. */
static void narrate(const struct world *world, unsigned i, const char *what, int kind)
{
	static int told = -1;
	const struct guard_master *guarded = &world->guard.masters[i];
	if (told < 0)
		told = getenv("FUZZ_STORY") != NULL;
	if (told)
		fprintf(stderr,
			"%llu master %u: %s %d: state %d busy %d marker %llx epoch %llx skip %d since %llu recovery "
			"%llu\n",
			(unsigned long long)world->now_us, i, what, kind, (int)guarded->state, (int)guarded->busy,
			(unsigned long long)guarded->marker, (unsigned long long)guarded->epoch, guarded->skip,
			(unsigned long long)guarded->since_us, (unsigned long long)guarded->recovery_us);
}

static void tell(struct world *world, unsigned i, struct guard_event *event, bool fits)
{
	uint16_t before = voters(world);
	event->master = (uint8_t)i;
	event->now_us = world->now_us;
	guard_event(&world->guard, event);
	narrate(world, i, "event", (int)event->kind);
	check_votes(world, before, i, fits);
	check_skips(world);
}

static void lose(struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	server->connected = false;
	server->trusted = server->seen_marker = 0;
	server->action.kind = GUARD_NOTHING;
	tell(world, i, &(struct guard_event){.kind = GUARD_LOST}, false);
	MUST(!guard_may_vote(&world->guard, i), "votes without a connection");
}

static void connect_to(struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	if (server->connected)
		lose(world, i);
	server->connected = true;
	server->other = false;
	server->heard_us = world->now_us;
	tell(world, i,
	     &(struct guard_event){.kind = GUARD_CONNECTED, .run_id = server->run_id, .client_id = ++server->client_id},
	     false);
	MUST(!guard_may_vote(&world->guard, i), "votes before it was asked");
}

static void see_marker(struct world *world, struct server *server, uint64_t marker)
{
	if (marker != server->seen_marker) {
		server->since_us = server->marked_us = world->now_us;
		memset(server->ends_us, 0, sizeof server->ends_us);
	}
	server->seen_marker = marker;
}

/* Another version, or one with another number of masters, wrote the hash. */
static bool is_other(const struct server *server)
{
	return (server->epoch != 0 || server->marker != 0 || server->digest != 0) && server->digest != DIGEST;
}

static void see_other(const struct world *world, struct server *server)
{
	bool other = is_other(server), same = server->other && server->other_digest == server->digest;
	if (!same || server->other_beat != server->beat)
		server->still_us = world->now_us;
	server->other = other;
	server->other_digest = server->digest;
	server->other_beat = server->beat;
}

/* epoch.lua, answered to READ and to the heartbeat. */
static void answer_read(struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	const struct guard_master *guarded = &world->guard.masters[i];
	bool other = is_other(server), noted = server->epoch != 0 || (server->marker != 0 && server->ttl_us != 0);
	if (!other && noted && guard_longest_us(&world->guard) > server->ttl_us)
		server->ttl_us = guard_longest_us(&world->guard);
	struct guard_event event = {.kind = GUARD_EPOCH,
				    .beat = other ? server->beat : ++server->beat,
				    .epoch = server->epoch,
				    .epoch_run_id = server->epoch_run_id,
				    .cluster = server->cluster,
				    .digest = server->digest,
				    .ttl_us = server->ttl_us,
				    .marker = server->marker,
				    .marker_run_id = server->marker_run_id,
				    .kept = server->kept,
				    .clocked_us = server->clocked_us};
	bool told_more = guarded->busy == GUARD_QUARANTINE || guarded->busy == GUARD_WRITE_EPOCH;
	bool fits = event.epoch != 0 && event.epoch_run_id == server->run_id && !other && !told_more;
	if (world->now_us - server->heard_us > GAP_US)
		server->since_us = world->now_us;
	server->heard_us = world->now_us;
	if (server->action.kind == GUARD_READ)
		/* whichever of the two was answered: the other one will be as well */
		server->action.kind = GUARD_NOTHING;
	world->seen_any = world->seen_any || event.epoch != 0 || event.cluster != 0 || other;
	if (!told_more) {
		server->trusted = fits ? event.epoch : 0;
		see_other(world, server);
		if (!other) /* another cluster's epoch says nothing about ours */
			see_marker(world, server,
				   event.epoch == 0 && event.marker_run_id == server->run_id ? event.marker : 0);
	}
	tell(world, i, &event, fits);
	MUST(fits || !guard_may_vote(&world->guard, i), "votes, and its epoch does not fit");
}

/* quarantine.lua */
static void answer_quarantine(struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	bool other = is_other(server),
	     may_replace = server->action.takes_over && server->action.digest == server->digest;
	struct guard_event event = {.kind = GUARD_QUARANTINED,
				    .done = server->epoch == server->action.epoch && (!other || may_replace)};
	if (event.done) {
		bool same = !other && server->marker != 0 && server->marker_run_id == server->run_id;
		if ((server->ttl_us != 0 || (server->marker == 0 && !other)) && server->action.ttl_us > server->ttl_us)
			server->ttl_us = server->action.ttl_us;
		server->kept = server->action.kept && (!same || server->kept);
		server->marker = same ? server->marker : server->action.marker;
		server->marker_run_id = server->run_id;
		server->digest = DIGEST;
		server->cluster = other && server->cluster == 0 ? server->action.marker : server->cluster;
		server->epoch = 0;
		event.marker = server->marker;
		event.kept = server->kept;
		event.ttl_us = server->ttl_us;
		server->since_us = server->marked_us = world->now_us;
		memset(server->ends_us, 0, sizeof server->ends_us);
	}
	server->trusted = 0;
	server->seen_marker = event.marker;
	tell(world, i, &event, false);
}

/* What it remembers of the leases that others may have forgotten. */
static void note_leases(struct world *world, unsigned i)
{
	const struct server *witness = &world->servers[i];
	uint64_t end_us = world->now_us + witness->leases_us;
	for (unsigned j = 0; j < world->params.masters; j++) {
		struct server *lost = &world->servers[j];
		bool in_time = witness->action_us >= lost->marked_us + world->params.timeout_us + ASKED_AFTER_US;
		if (j != i && witness->epoch == witness->action.epoch && in_time &&
		    (lost->ends_us[i] == 0 || end_us < lost->ends_us[i]))
			lost->ends_us[i] = end_us;
	}
}

/* fences.lua */
static void answer_survey(struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	uint64_t asked = server->action.epoch;
	struct guard_event event = {.kind = GUARD_FENCES,
				    .done = server->epoch == asked || (server->marker == asked && server->kept)};
	if (event.done) {
		event.fence = server->fence;
		event.ttl_us = server->ttl_us;
		event.leases_us = server->leases_us;
		note_leases(world, i);
		if (server->action.slice == 0) { /* a survey counts from its first slice */
			server->told_us = server->action_us;
			server->told_fence = 0;
		}
		server->told_fence = event.fence > server->told_fence ? event.fence : server->told_fence;
	} else {
		server->trusted = 0;
	}
	tell(world, i, &event, false);
}

/* epoch_write.lua */
static void answer_write_epoch(struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	const struct guard_action *action = &server->action;
	struct guard_event event = {.kind = GUARD_EPOCH_WRITTEN,
				    .done = server->marker == action->marker &&
					    server->marker_run_id == server->run_id && server->digest == DIGEST &&
					    server->ttl_us <= action->ttl_us};
	if (event.done) {
		server->epoch = action->marker;
		server->epoch_run_id = server->run_id;
		server->cluster = action->cluster;
		server->digest = DIGEST;
		server->ttl_us = action->ttl_us;
		server->fence = action->fence > server->fence ? action->fence : server->fence;
		server->clocked_us = action->clocked ? world->now_us + (uint64_t)server->ahead_us : server->clocked_us;
		server->marker = server->marker_run_id = 0;
		server->kept = false;
		world->seen_any = true;
	}
	server->trusted = event.done ? server->epoch : 0;
	server->seen_marker = event.done ? 0 : server->seen_marker;
	tell(world, i, &event, event.done);
}

static void answer(struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	enum guard_action_kind kind = server->action.kind;
	switch (kind) {
	case GUARD_NOTHING:
	case GUARD_READ: answer_read(world, i); return;
	case GUARD_QUARANTINE: answer_quarantine(world, i); break;
	case GUARD_SURVEY: answer_survey(world, i); break;
	case GUARD_WRITE_EPOCH: answer_write_epoch(world, i); break;
	}
	server->action.kind = GUARD_NOTHING;
}

static void fail(struct world *world, unsigned i, bool heartbeat)
{
	struct server *server = &world->servers[i];
	enum guard_action_kind kind = heartbeat ? GUARD_READ : server->action.kind;
	if (kind == GUARD_NOTHING)
		return;
	if (!heartbeat || server->action.kind == GUARD_READ)
		server->action.kind = GUARD_NOTHING;
	tell(world, i, &(struct guard_event){.kind = GUARD_FAILED, .action = kind}, false);
}

static void act(struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	struct guard_action action;
	uint16_t before = voters(world);
	guard_next(&world->guard, i, world->now_us, WALL_US + world->now_us, &action);
	MUST(voters(world) == before, "a vote by looking");
	if (action.kind == GUARD_NOTHING)
		return;
	narrate(world, i, "action", (int)action.kind);
	MUST(server->connected && server->action.kind == GUARD_NOTHING, "action %d, %d is under way", (int)action.kind,
	     (int)server->action.kind);
	check_action(world, i, &action);
	server->action = action;
	server->action_us = world->now_us;
}

/* An answer with the master's time, which took so long. */
static void look_at_clock(struct world *world, unsigned i, uint64_t flight_us, uint64_t master_us)
{
	uint16_t before = voters(world);
	uint64_t sent_us = flight_us < world->now_us ? world->now_us - flight_us : 0;
	enum guard_clock clock = guard_time(&world->guard, i, sent_us, world->now_us, master_us);
	check_votes(world, before, i, false);
	MUST(clock != GUARD_CLOCK_JUMPED_FORWARD || !guard_may_vote(&world->guard, i), "votes after its clock jumped");
	if (clock == GUARD_CLOCK_JUMPED_FORWARD)
		world->servers[i].trusted = 0;
}

/* ---- what the input decides ---- */

static void random_world(struct feed *feed, struct world *world)
{
	memset(world, 0, sizeof *world);
	world->now_us = 1000 * SECOND;
	world->params = (struct guard_params){
		.masters = (uint8_t)(1 + feed_below(feed, 5)),
		.max_ttl_us = 1000 + feed_scaled(feed, 28),
		.drift_ppm = feed_u16(feed),
		.margin_us = feed_scaled(feed, 22),
		.slices = 3,
		.digest = DIGEST,
		.bootstrap = feed_below(feed, 2) == 1,
		.seed = 1 + feed_u8(feed),
		.waits_longest = feed_below(feed, 2) == 0,
		.timeout_us = feed_scaled(feed, 20),
	};
	guard_init(&world->guard, &world->params);
	for (unsigned i = 0; i < world->params.masters; i++) {
		world->servers[i].run_id = 100 + i;
		world->servers[i].leases_us = world->params.waits_longest ? 0 : feed_scaled(feed, 28);
	}
}

/* Servers that have served for a while. */
static void write_all_epochs(struct world *world)
{
	for (unsigned i = 0; i < world->params.masters; i++) {
		struct server *server = &world->servers[i];
		server->epoch = 1000 + i;
		server->epoch_run_id = server->run_id;
		server->cluster = 77;
		server->digest = DIGEST;
		server->ttl_us = world->params.max_ttl_us;
		server->fence = 5000 + i;
	}
}

/* Restarted, with or without its memory; its clients are counted anew. */
static void restart(struct world *world, unsigned i, bool empty)
{
	struct server *server = &world->servers[i];
	if (server->connected)
		lose(world, i);
	uint64_t run_id = server->run_id + 100;
	if (empty)
		*server = (struct server){
			.ahead_us = server->ahead_us, .told_us = server->told_us, .told_fence = server->told_fence};
	server->run_id = run_id;
	server->client_id = 0;
}

/* Something is done to a server behind the guard's back. */
static void disturb(struct feed *feed, struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	switch (feed_below(feed, 16)) {
	case 0: restart(world, i, true); break;
	case 1: restart(world, i, false); break;
	/* flushed */
	case 2:
		server->epoch = server->marker = server->cluster = server->beat = server->ttl_us = server->fence = 0;
		server->digest = 0;
		break;
	case 3: server->epoch = feed_below(feed, 4); break;
	case 4: server->epoch = 0; break;
	case 5: server->marker = feed_below(feed, 4); break;
	case 6: server->marker_run_id = feed_below(feed, 2) == 1 ? server->run_id : 99; break;
	case 7: server->epoch_run_id = feed_below(feed, 2) == 1 ? server->run_id : 99; break;
	case 8: server->cluster = feed_below(feed, 4); break;
	case 9: server->digest = feed_below(feed, 4) == 0 ? 0xd2 : DIGEST; break;
	case 10: server->ttl_us = feed_scaled(feed, 40) % TTL_MAX_US; break;
	case 11: server->kept = feed_below(feed, 2) == 1; break;
	case 12: server->fence = feed_scaled(feed, 53) % (REDLOCK_FENCE_LIMIT - 1); break;
	case 13: server->beat -= server->beat > 3 ? 3 : 0; break;
	case 14: server->clocked_us = feed_scaled(feed, 50); break;
	default: server->client_id -= server->client_id > 2 ? 2 : 0; break;
	}
}

static void look_at_drawn_clock(struct feed *feed, struct world *world, unsigned i)
{
	struct server *server = &world->servers[i];
	uint64_t flight_us = feed_scaled(feed, 24);
	unsigned how = feed_below(feed, 8);
	if (how == 0)
		server->ahead_us = (int64_t)feed_scaled(feed, 52) - (int64_t)(world->now_us / 2);
	else if (how == 1)
		server->ahead_us += (int64_t)feed_scaled(feed, 30) - (1 << 29);
	uint64_t master_us = world->now_us + (uint64_t)server->ahead_us;
	if (server->connected && (int64_t)master_us > 0)
		look_at_clock(world, i, flight_us, master_us);
}

static void mismatch(struct world *world, unsigned i, bool old)
{
	struct server *server = &world->servers[i];
	uint64_t epoch = old ? 12345 : world->guard.masters[i].epoch;
	bool trusted = guard_may_vote(&world->guard, i);
	tell(world, i, &(struct guard_event){.kind = GUARD_MISMATCH, .epoch = epoch}, false);
	MUST(old || !guard_may_vote(&world->guard, i), "votes after another epoch was found");
	if (trusted && !old)
		server->trusted = 0;
}

static void drop_keys(struct world *world, unsigned i)
{
	tell(world, i, &(struct guard_event){.kind = GUARD_DROPPED_KEYS}, false);
	MUST(!guard_may_vote(&world->guard, i), "votes after it dropped keys");
	world->servers[i].trusted = 0;
}

static void step(struct feed *feed, struct world *world)
{
	unsigned what = feed_below(feed, 32), i = feed_below(feed, world->params.masters);
	bool connected = world->servers[i].connected;
	if (what < 2 || (!connected && what < 20))
		connect_to(world, i);
	else if (what == 2)
		lose(world, i);
	else if (what < 6)
		world->now_us += what == 5 ? feed_scaled(feed, 34) : feed_scaled(feed, 23);
	else if (what < 10)
		disturb(feed, world, i);
	else if (what < 12)
		look_at_drawn_clock(feed, world, i);
	else if (!connected)
		;
	else if (what == 12)
		mismatch(world, i, feed_below(feed, 4) == 0);
	else if (what == 13)
		drop_keys(world, i);
	else if (what == 14)
		fail(world, i, feed_below(feed, 2) == 1);
	else if (what < 18)
		answer_read(world, i);
	else
		answer(world, i);
	for (unsigned j = 0; j < world->params.masters; j++)
		act(world, j);
}

/* ---- the end ---- */

static bool is_well(const struct world *world)
{
	return voters(world) == (1U << world->params.masters) - 1;
}

static void describe(const struct world *world)
{
	for (unsigned i = 0; i < world->params.masters; i++) {
		const struct guard_master *guarded = &world->guard.masters[i];
		fprintf(stderr,
			"master %u: state %d, %s, found %d, busy %d, cluster %llu, quarantine %llu us, "
			"quarantine left %llu us, fences missing %u\n",
			i, (int)guarded->state, guard_reason_name(guarded->reason), (int)guarded->hazard,
			(int)guarded->busy, (unsigned long long)guarded->cluster,
			(unsigned long long)quarantine_us(world),
			(unsigned long long)guard_quarantine_left_us(&world->guard, i, world->now_us),
			guard_fences_missing(&world->guard, i));
	}
}

/* How far apart heartbeats may be, so that the longest quarantine that anybody knows of takes some fifty of them, or
 * more. */
static uint64_t round_us(const struct world *world)
{
	uint64_t longest_us = 0;
	for (unsigned i = 0; i < world->params.masters; i++) {
		longest_us = world->servers[i].ttl_us > longest_us ? world->servers[i].ttl_us : longest_us;
		longest_us = world->guard.masters[i].ttl_us > longest_us ? world->guard.masters[i].ttl_us : longest_us;
	}
	longest_us += quarantine_us(world);
	return longest_us / 50 > GAP_US - SECOND ? GAP_US - SECOND : longest_us / 50 + 20000;
}

/* A time at which nothing more happens: heartbeats, answers, the longest quarantine. Every master must vote in the end,
 * in one cluster. */
static void heal(struct world *world)
{
	for (unsigned i = 0; i < world->params.masters; i++) {
		struct server *server = &world->servers[i];
		server->digest = DIGEST;
		/* a marker without any is waited for a day */
		server->ttl_us = server->ttl_us == 0 ? world->params.max_ttl_us : server->ttl_us;
		server->cluster = server->cluster == 0 && server->epoch == 0 ? 0 : 7;
		connect_to(world, i); /* what is under way may carry another cluster */
	}
	uint64_t step_us = round_us(world);
	for (unsigned rounds = 0; !is_well(world); rounds++) {
		if (rounds == ROUNDS_MAX)
			describe(world);
		MUST(rounds < ROUNDS_MAX, "%x of %u masters vote", voters(world), world->params.masters);
		for (unsigned i = 0; i < world->params.masters; i++) {
			answer_read(world, i);
			for (unsigned j = 0; j < world->params.masters; j++)
				act(world, j);
			if (world->servers[i].action.kind != GUARD_NOTHING)
				answer(world, i);
		}
		world->now_us += step_us;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	struct feed feed = {data, size};
	random_world(&feed, &world);
	if (feed_below(&feed, 2) == 1)
		write_all_epochs(&world);
	for (unsigned steps = 0; feed.left > 0 && steps < STEPS_MAX; steps++)
		step(&feed, &world);
	heal(&world);
	return 0;
}
