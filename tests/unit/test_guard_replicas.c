/* Several redlockd (guards) beside each other on the same masters, which are modelled with their real scripts
 * (tests/sim/model_master.c), in random order: connections are lost, masters flushed, restarted, exchanged for older
 * images.
 *
 * Watched throughout: no master has its epoch before the longest lease has passed since it last forgot something, and
 * the fences that are given on majorities only grow. At the end all connections stand, and every guard must see every
 * master vote, in one cluster, by itself. */
#include <check.h>
#include <string.h>

#include "../sim/model_master.h"
#include "guard_cases.h"

enum { GUARDS = 3, MASTERS_MOST = 5, QUEUE = 64, ROUNDS = 4000, TTL_MS = 1000 };
#define SHORT_QUARANTINE (SECOND + SECOND / 100 + MARGIN)
#define LONG_AGO (-(int64_t)(3600 * SECOND))

/* A command under way, or its answer. */
struct parcel {
	struct guard_action action;
	uint64_t sent_us;
	struct guard_event answer;
	uint64_t master_us; /* of the answer */
};

/* From one guard to one master: parcels [0, done) have been carried out. */
struct wire {
	bool up;
	unsigned count, done;
	struct parcel parcels[QUEUE];
	uint64_t beat_us, down_us;
};

struct play {
	uint64_t random, now_us, ids, client_id[MASTERS_MOST];
	unsigned guards, masters;
	struct guard guard[GUARDS];
	struct model_master master[MASTERS_MOST], image[MASTERS_MOST];
	uint64_t image_client_id[MASTERS_MOST];
	struct wire wire[GUARDS][MASTERS_MOST];
	int64_t forgot_us[MASTERS_MOST];
	bool created; /* a first epoch was given: from now on losses count */
	uint64_t last_fence, grants, rolled_back;
	const char *wrong;
};

static uint64_t random_below(struct play *play, uint64_t bound)
{
	uint64_t word = play->random += UINT64_C(0x9e3779b97f4a7c15);
	word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (word ^ (word >> 31)) % bound;
}

static void play_init(struct play *play, uint64_t seed, bool bootstrap)
{
	memset(play, 0, sizeof *play);
	play->random = seed;
	play->now_us = START;
	play->ids = 100;
	play->guards = 2 + (unsigned)random_below(play, GUARDS - 1);
	play->masters = 1 + 2 * (unsigned)random_below(play, 3);
	for (unsigned g = 0; g < play->guards; g++) {
		struct guard_params params = {
			.masters = (uint8_t)play->masters,
			.max_ttl_us = TTL_MS * MS,
			.drift_ppm = 10000,
			.margin_us = MARGIN,
			.digest = DIGEST,
			.bootstrap = bootstrap && (g == 0 || random_below(play, 2) == 0),
			.seed = seed * GUARDS + g + 1,
		};
		guard_init(&play->guard[g], &params);
	}
	for (unsigned i = 0; i < play->masters; i++) {
		play->master[i].server_run_id = ++play->ids * 7919 % 10007 + 1;
		play->forgot_us[i] = LONG_AGO;
	}
}

static void note(struct play *play, const char *what)
{
	if (!play->wrong)
		play->wrong = what;
}

/* ---- wires ---- */

static void tell_guard(struct play *play, unsigned g, unsigned i, struct guard_event event)
{
	event.master = (uint8_t)i;
	event.now_us = play->now_us;
	guard_event(&play->guard[g], &event);
}

static void send(struct play *play, unsigned g, unsigned i, const struct guard_action *action)
{
	struct wire *wire = &play->wire[g][i];
	ck_assert_uint_lt(wire->count, QUEUE);
	wire->parcels[wire->count++] = (struct parcel){.action = *action, .sent_us = play->now_us};
}

static void go_up(struct play *play, unsigned g, unsigned i)
{
	struct guard_event event = {
		.kind = GUARD_CONNECTED, .run_id = play->master[i].server_run_id, .client_id = ++play->client_id[i]};
	play->wire[g][i] = (struct wire){.up = true, .beat_us = play->now_us};
	tell_guard(play, g, i, event);
}

static void go_down(struct play *play, unsigned g, unsigned i)
{
	if (play->wire[g][i].up)
		tell_guard(play, g, i, (struct guard_event){.kind = GUARD_LOST});
	play->wire[g][i] = (struct wire){.up = false, .down_us = play->now_us};
}

static void pump(struct play *play, unsigned g)
{
	for (unsigned i = 0; i < play->masters; i++) {
		struct guard_action action;
		if (!play->wire[g][i].up)
			continue;
		guard_next(&play->guard[g], i, play->now_us, WALL + play->now_us, &action);
		if (action.kind != GUARD_NOTHING)
			send(play, g, i, &action);
	}
}

static void beat(struct play *play, unsigned g, unsigned i)
{
	struct wire *wire = &play->wire[g][i];
	const struct guard_action read = {.kind = GUARD_READ};
	if (!wire->up || play->now_us - wire->beat_us < SECOND || !play->guard[g].masters[i].read)
		return;
	wire->beat_us = play->now_us;
	send(play, g, i, &read);
}

/* ---- masters ---- */

static void check_epoch_written(struct play *play, unsigned i)
{
	if ((int64_t)play->now_us - play->forgot_us[i] < (int64_t)SHORT_QUARANTINE)
		note(play, "a master was epoch_written before the longest lease had passed");
	play->created = true;
}

static struct guard_event carry_out(struct play *play, unsigned i, const struct parcel *parcel)
{
	static const enum guard_event_kind kinds[] = {
		[GUARD_READ] = GUARD_EPOCH,
		[GUARD_QUARANTINE] = GUARD_QUARANTINED,
		[GUARD_SURVEY] = GUARD_FENCES,
		[GUARD_WRITE_EPOCH] = GUARD_EPOCH_WRITTEN,
	};
	const struct guard_action *action = &parcel->action;
	struct model_master *master = &play->master[i];
	struct model_command command = {
		.epoch = action->epoch,
		.marker = action->marker,
		.run_id = master->server_run_id,
		.cluster = action->cluster,
		.digest = DIGEST,
		.ttl_ms = action->kind == GUARD_READ ? TTL_MS : action->ttl_us / 1000,
		.fence = action->fence,
		.last_bucket = MODEL_BUCKETS - 1,
		.kept = action->kept,
		.clocked = action->clocked,
		.deadline_us = UINT64_MAX,
	};
	struct model_reply reply;
	master->now_us = WALL + play->now_us;
	switch (action->kind) {
	case GUARD_READ: model_epoch(master, &command, &reply); break;
	case GUARD_QUARANTINE: model_quarantine(master, &command, &reply); break;
	case GUARD_SURVEY: model_fences(master, &command, &reply); break;
	default: model_write_epoch(master, &command, &reply); break;
	}
	if (action->kind == GUARD_WRITE_EPOCH && reply.code == 1)
		check_epoch_written(play, i);
	return (struct guard_event){
		.kind = kinds[action->kind],
		.done = reply.code == 1,
		.beat = reply.beat,
		.epoch = reply.epoch,
		.epoch_run_id = reply.run_id,
		.cluster = reply.cluster,
		.digest = reply.digest,
		.ttl_us = reply.ttl_ms * 1000,
		.marker = reply.marker,
		.marker_run_id = reply.marker_run_id,
		.kept = reply.kept,
		.clocked_us = reply.clocked_us,
		.fence = reply.fence,
	};
}

static void execute(struct play *play, unsigned g, unsigned i)
{
	struct wire *wire = &play->wire[g][i];
	if (!wire->up || wire->done == wire->count)
		return;
	struct parcel *parcel = &wire->parcels[wire->done++];
	parcel->answer = carry_out(play, i, parcel);
	parcel->master_us = play->master[i].now_us;
}

static void deliver(struct play *play, unsigned g, unsigned i)
{
	struct wire *wire = &play->wire[g][i];
	if (!wire->up || wire->done == 0)
		return;
	struct parcel parcel = wire->parcels[0];
	memmove(wire->parcels, wire->parcels + 1, (--wire->count) * sizeof *wire->parcels);
	wire->done--;
	if (guard_time(&play->guard[g], i, parcel.sent_us, play->now_us, parcel.master_us) != GUARD_CLOCK_STEADY)
		note(play, "a steady clock was called a jump");
	tell_guard(play, g, i, parcel.answer);
}

static void forgets(struct play *play, unsigned i)
{
	if (play->created)
		play->forgot_us[i] = (int64_t)play->now_us;
}

/* Every redlockd has seen the master some heartbeats younger than its image is. If not, an image put back is not found
 * by those that have not, until one that has comes by. */
static bool is_old_image(const struct play *play, unsigned i)
{
	for (unsigned g = 0; g < play->guards; g++)
		if (play->guard[g].masters[i].beat < play->image[i].beat + 2 * GUARDS)
			return false;
	return play->image[i].server_run_id == play->master[i].server_run_id;
}

/* What happens to a master: flushed; restarted with its data, empty, with older data; exchanged for an older image of
 * the machine. */
static void happens(struct play *play, unsigned i)
{
	struct model_master *master = &play->master[i];
	uint64_t kind = random_below(play, 5), run_id = ++play->ids * 7919 % 10007 + 1;
	if (kind == 4 && !is_old_image(play, i))
		return;
	forgets(play, i);
	master->now_us = WALL + play->now_us;
	for (unsigned g = 0; g < play->guards && kind > 0; g++)
		go_down(play, g, i);
	switch (kind) {
	case 0: model_flushall(master); break;
	case 1: model_restart(master, NULL, run_id); break;
	case 2: model_restart(master, master, run_id); break;
	case 3: model_restart(master, &play->image[i], run_id); break;
	default:
		*master = play->image[i];
		play->client_id[i] = play->image_client_id[i];
		play->rolled_back++;
		break;
	}
	play->image[i] = *master;
	play->image_client_id[i] = play->client_id[i];
}

/* A lease is given by one guard: on a majority that it may ask, and that accepts its epochs, the next number after all
 * of theirs. */
static void grant(struct play *play, unsigned g)
{
	unsigned first = (unsigned)random_below(play, play->masters), chosen[MASTERS_MOST], count = 0;
	uint64_t fence = 0;
	for (unsigned k = 0; k < play->masters && count < redlock_majority((uint8_t)play->masters); k++) {
		unsigned i = (first + k) % play->masters;
		const struct guard_master *seen = &play->guard[g].masters[i];
		if (!play->wire[g][i].up || !guard_may_vote(&play->guard[g], i))
			continue;
		if (seen->epoch == play->master[i].epoch)
			chosen[count++] = i;
		else if (play->wire[g][i].count == 0) /* in order */
			tell_guard(play, g, i, (struct guard_event){.kind = GUARD_MISMATCH, .epoch = seen->epoch});
	}
	if (count < redlock_majority((uint8_t)play->masters))
		return;
	for (unsigned k = 0; k < count; k++)
		fence = model_number(&play->master[chosen[k]], 0) > fence ? model_number(&play->master[chosen[k]], 0)
									  : fence;
	for (unsigned k = 0; k < count; k++)
		play->master[chosen[k]].buckets[0] = fence + 1;
	if (fence + 1 <= play->last_fence)
		note(play, "a fence that is not larger than one before");
	play->last_fence = fence + 1;
	play->grants++;
}

/* ---- the play ---- */

static void step(struct play *play, bool trouble)
{
	unsigned g = (unsigned)random_below(play, play->guards), i = (unsigned)random_below(play, play->masters);
	struct wire *wire = &play->wire[g][i];
	switch (random_below(play, 12)) {
	case 0:
	case 1: execute(play, g, i); break;
	case 2:
	case 3: deliver(play, g, i); break;
	case 4:
	case 5: pump(play, g); break;
	case 6: beat(play, g, i); break;
	case 7: grant(play, g); break;
	case 8: play->now_us += random_below(play, 20 * MS); break;
	case 9:
		if (!wire->up && (play->now_us - wire->down_us > random_below(play, 1500 * MS)))
			go_up(play, g, i);
		break;
	case 10:
		if (wire->up && random_below(play, 20) == 0)
			go_down(play, g, i);
		break;
	default:
		if (trouble && random_below(play, 40) == 0)
			happens(play, i);
		else if (random_below(play, 20) == 0) {
			play->image[i] = play->master[i];
			play->image_client_id[i] = play->client_id[i];
		}
		break;
	}
	if (wire->count >= QUEUE - 2)
		go_down(play, g, i);
}

static bool all_vote(const struct play *play)
{
	for (unsigned g = 0; g < play->guards; g++)
		for (unsigned i = 0; i < play->masters; i++)
			if (!guard_may_vote(&play->guard[g], i) ||
			    play->guard[g].masters[i].epoch != play->master[i].epoch ||
			    play->master[i].cluster != play->master[0].cluster)
				return false;
	return true;
}

static void calm_round(struct play *play)
{
	for (unsigned k = 0; k < 12; k++)
		for (unsigned g = 0; g < play->guards; g++) {
			pump(play, g);
			for (unsigned i = 0; i < play->masters; i++) {
				beat(play, g, i);
				for (unsigned n = play->wire[g][i].count; n > 0; n--)
					execute(play, g, i);
				for (unsigned n = play->wire[g][i].done; n > 0; n--)
					deliver(play, g, i);
			}
		}
	play->now_us += SECOND;
}

/* Everything is well again: how many seconds until all vote. */
static unsigned heal(struct play *play)
{
	unsigned seconds = 0;
	for (unsigned g = 0; g < play->guards; g++)
		for (unsigned i = 0; i < play->masters; i++)
			if (!play->wire[g][i].up)
				go_up(play, g, i);
	for (; seconds < 60; seconds++) {
		calm_round(play);
		if (seconds > 2 && all_vote(play))
			break;
	}
	return seconds;
}

static void run(struct play *play, uint64_t seed, bool bootstrap)
{
	play_init(play, seed, bootstrap);
	for (unsigned n = 0; n < ROUNDS / 4; n++)
		step(play, false);
	unsigned seconds = heal(play);
	if (seconds > 15)
		note(play, "a new cluster did not come up by itself");
	for (unsigned n = 0; n < ROUNDS; n++)
		step(play, true);
	seconds = heal(play);
	if (seconds > 25)
		note(play, "it did not come back by itself");
}

START_TEST(test_several_redlockd_on_the_same_masters)
{
	static struct play play;
	uint64_t grants = 0, rolled_back = 0;
	for (uint64_t seed = 1 + 400 * (uint64_t)_i; seed <= 400 * (uint64_t)(_i + 1); seed++) {
		run(&play, seed, _i % 2 == 0);
		if (play.wrong)
			ck_abort_msg("seed %llu: %s", (unsigned long long)seed, play.wrong);
		grants += play.grants;
		rolled_back += play.rolled_back;
	}
	ck_assert_uint_gt(grants, 1000);
	ck_assert_uint_gt(rolled_back, 10);
}
END_TEST

static void add(TCase *tcase)
{
	tcase_add_loop_test(tcase, test_several_redlockd_on_the_same_masters, 0, 8);
}

int main(void)
{
	return guard_run("guard_replicas", add);
}
