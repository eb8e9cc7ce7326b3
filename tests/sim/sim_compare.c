/* Compares the modelled master (model_master.c) with the real scripts on a real redis-server: random sequences of
 * commands on few keys and tokens, each answer, and at the end of each sequence all that the server has.
 *
 *   sim_compare [--sequences N] [--seed N] [--server PROGRAM]
 *
 * Many sequences run side by side, each with its own keys, one step of each in a round: so commands are pipelined, and
 * time passes between rounds. The first difference is told as a story, with exit status 1 (2: no server). Notifications
 * (PUBLISH) arrive on a second connection and are compared, too.
 *
 * Time: the clock of the server stands still between two rounds, and the model has the same. So all that follows from
 * it must be exactly equal. PEXPIRETIME tells the end of a key (Redis 7.0). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare_sequence.h"
#include "server/redlock/redlock.h"

enum { BATCH = 250, CODES = 7, CODE_MIN = -4 };

#define END_CHANNEL "end"

/* The answers of the server to one step. */
struct answer {
	redisReply *reply;
	redisReply *expiry;                          /* of an alive key */
	struct compare_key_answers keys[MODEL_KEYS]; /* of those of the step */
	char notifications[COMPARE_NOTIFICATIONS];   /* all that it published */
};

static struct {
	unsigned sequences;
	uint64_t seed;
	const char *server;
} options = {.sequences = 20000, .seed = 1};

static struct compare_server server;
static struct compare_sequence batch[BATCH];
static struct answer answers[BATCH];
static struct {
	uint64_t commands, run_out;
	/* inspections that counted somebody; releases that gave up an entry of several */
	uint64_t counted, left, several; /* steps that notified several waiters */
	uint64_t codes[COMPARE_SCRIPTS][CODES];
	uint64_t notifications[COMPARE_SCRIPTS], watched[COMPARE_SCRIPTS]; /* of waiters; of watchers */
	/* done to one of several leases; several waiters notified as one; the next one by who took a slot; answers
	 * that name the slots; that refuse a key's second request */
	uint64_t shared[COMPARE_SCRIPTS], runs, passed_on, taken, again, sets, sets_extended;
} figures;

typedef void model_function(struct model_master *, const struct model_command *, struct model_reply *);

static model_function *const models[COMPARE_SCRIPTS] = {
	model_acquire,   model_raise,      model_extend,      model_release,        model_inspect,
	model_epoch,     model_quarantine, model_fences,      model_write_epoch,    model_acquire_set,
	model_raise_set, model_extend_set, model_release_set, model_acquire_shared,
};

/* ---- sending ---- */

static uint64_t take_time(void)
{
	redisReply *reply = compare_take(&server);
	assert(reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
	uint64_t now_us = strtoull(reply->element[0]->str, NULL, 10) * 1000000 +
			  strtoull(reply->element[1]->str, NULL, 10);
	freeReplyObject(reply);
	return now_us;
}

static void take_key(struct compare_key_answers *ret_answers)
{
	ret_answers->expiry = compare_take(&server);
	assert(ret_answers->expiry->type == REDIS_REPLY_INTEGER); /* PEXPIRETIME: Redis 7.0 */
	ret_answers->entries = compare_take(&server);
	ret_answers->queue_expiry = compare_take(&server);
	ret_answers->watch_expiry = compare_take(&server);
}

static void take_step(const struct compare_step *step, struct answer *ret_answer)
{
	for (unsigned i = compare_is_script(step) ? 1 : compare_outside_replies(step); i > 1; i--)
		freeReplyObject(compare_take(&server));
	ret_answer->reply = compare_take(&server);
	ret_answer->expiry = compare_is_alive_step(step) ? compare_take(&server) : NULL;
	MODEL_FOR_EACH_KEY (key, compare_keys(step))
		take_key(&ret_answer->keys[key]);
	ret_answer->notifications[0] = '\0';
}

/* All that was published in the round, whose end a message marks. A channel's name begins with the number of its
 * sequence. */
static void take_calls(void)
{
	for (bool is_end = false; !is_end;) {
		redisReply *message = compare_take_message(&server);
		const char *channel = message->element[2]->str, *text = message->element[3]->str;
		char *rest;
		unsigned long i = strtoul(channel, &rest, 10) - batch[0].number;
		is_end = strcmp(channel, END_CHANNEL) == 0;
		if (!is_end) {
			assert(i < BATCH);
			char *all = answers[i].notifications;
			size_t len = strlen(all);
			snprintf(all + len, COMPARE_NOTIFICATIONS - len, "%s|",
				 strcmp(rest, ":redlockd:wake") == 0 ? text : channel);
		}
		freeReplyObject(message);
	}
}

static void free_answer(const struct compare_step *step, struct answer *answer)
{
	freeReplyObject(answer->reply);
	freeReplyObject(answer->expiry);
	MODEL_FOR_EACH_KEY (key, compare_keys(step)) {
		freeReplyObject(answer->keys[key].expiry);
		freeReplyObject(answer->keys[key].entries);
		freeReplyObject(answer->keys[key].queue_expiry);
		freeReplyObject(answer->keys[key].watch_expiry);
	}
}

/* ---- comparing a step ---- */

/* In which way the model and the server differ, if they do. */
enum difference { ALIKE, OTHER_REPLY, OTHER_CALL, OTHER_QUEUE };

static enum difference try_script(struct compare_sequence *sequence, const struct answer *answer,
				  struct compare_span span, struct compare_answer *expected)
{
	struct compare_step *step = &sequence->steps[sequence->step_count - 1];
	uint64_t now_ms = compare_ms(sequence->master.now_us);
	char notifications[COMPARE_NOTIFICATIONS];
	models[step->kind](&sequence->master, &step->command, &step->reply);
	struct compare_answer its;
	struct compare_near near = {(long long)(compare_ms(span.hi_us) - now_ms),
				    (long long)(now_ms - compare_ms(span.lo_us))};
	compare_expect(expected, (enum compare_script)step->kind, &step->reply, answer->reply, near);
	compare_reply_text(&its, answer->reply);
	compare_notification_text(notifications, sequence->number, &step->reply);
	if (strcmp(expected->text, its.text) != 0)
		return OTHER_REPLY;
	if (strcmp(notifications, answer->notifications) != 0)
		return OTHER_CALL;
	MODEL_FOR_EACH_KEY (key, compare_keys(step))
		if (!compare_entries_are_alike(sequence, key, answer->keys[key].entries, span))
			return OTHER_QUEUE;
	return ALIKE;
}

static void count_script(const struct compare_step *step, const struct model_master *before, struct compare_span span)
{
	bool release = step->kind == COMPARE_RELEASE || step->kind == COMPARE_RELEASE_SET;
	unsigned notified = 0;
	MODEL_FOR_EACH_KEY (key, compare_keys(step)) {
		const struct model_key *found = &before->keys[key];
		figures.run_out += found->type != MODEL_NONE && found->expires_ms != 0 &&
				   found->expires_ms < compare_ms(span.lo_us);
		figures.left += release && step->command.entry.replica != 0 && step->command.wait_ms == 0 &&
				before->queues[key].count > 1;
		notified += step->reply.notified[key].replica != 0;
	}
	figures.codes[step->kind][step->reply.code - CODE_MIN]++;
	figures.notifications[step->kind] += notified;
	figures.several += notified > 1;
	figures.watched[step->kind] += step->reply.watched != 0;
	figures.shared[step->kind] += step->reply.value.kind != MODEL_EXCLUSIVE;
	for (unsigned key = 0; key < MODEL_KEYS; key++)
		figures.runs += step->reply.last[key] != 0;
	figures.passed_on += step->kind == COMPARE_ACQUIRE_SHARED && step->reply.code == 1 && notified > 0;
	figures.taken += step->reply.taken != 0;
	figures.sets += step->kind == COMPARE_ACQUIRE_SET && step->reply.code == 1 && step->command.kind == MODEL_PLUS;
	figures.sets_extended += step->kind == COMPARE_EXTEND_SET && step->reply.code == 1 &&
				 step->reply.value.kind == MODEL_PLUS;
	figures.again += step->kind == COMPARE_ACQUIRE_SHARED && step->reply.value.key != 0 &&
			 step->reply.value.key == step->command.noted;
	figures.counted += step->reply.waiters > 0;
}

static bool compare_script(struct compare_sequence *sequence, const struct answer *answer, uint64_t now_us,
			   struct compare_span span)
{
	const struct compare_step *step = &sequence->steps[sequence->step_count - 1];
	struct compare_answer expected, its;
	char notifications[COMPARE_NOTIFICATIONS];
	sequence->master.now_us = now_us;
	struct model_master before = sequence->master;
	switch (try_script(sequence, answer, span, &expected)) {
	case ALIKE:
	case OTHER_QUEUE: /* told where the queue is compared once more */
		count_script(step, &before, span);
		return true;
	case OTHER_REPLY:
		compare_reply_text(&its, answer->reply);
		compare_tell_reply(sequence, &expected, &its);
		break;
	case OTHER_CALL:
		compare_notification_text(notifications, sequence->number, &step->reply);
		compare_tell_notification(sequence, notifications, answer->notifications);
		break;
	}
	return false;
}

static bool compare_step(struct compare_sequence *sequence, const struct answer *answer, uint64_t now_us,
			 struct compare_span span)
{
	const struct compare_step *step = &sequence->steps[sequence->step_count - 1];
	struct compare_key_ends was[MODEL_KEYS];
	bool may_be_new = !compare_is_script(step) || step->kind == COMPARE_ACQUIRE || step->kind == COMPARE_EXTEND ||
			  step->kind == COMPARE_ACQUIRE_SET || step->kind == COMPARE_EXTEND_SET ||
			  step->kind == COMPARE_ACQUIRE_SHARED;
	if (compare_is_alive_step(step))
		return compare_alive_step(sequence, answer->reply, answer->expiry, span);
	bool releases = step->kind == COMPARE_RELEASE || step->kind == COMPARE_RELEASE_SET;
	MODEL_FOR_EACH_KEY (key, compare_keys(step)) {
		was[key] = compare_key_ends(sequence, key);
		may_be_new |= releases && sequence->master.keys[key].type == MODEL_SHARED; /* one of several ends */
	}
	if (compare_is_script(step)) {
		figures.commands++;
		if (!compare_script(sequence, answer, now_us, span))
			return false;
	} else {
		sequence->master.now_us = span.lo_us;
		compare_apply_outside(&sequence->master, step);
	}
	MODEL_FOR_EACH_KEY (key, compare_keys(step))
		if (!compare_key(sequence, key, &was[key], may_be_new, true, &answer->keys[key], span))
			return false;
	return true;
}

/* ---- a round: one step of each sequence ---- */

static bool has_step(const struct compare_sequence *sequence, unsigned round)
{
	return round < sequence->planned;
}

/* The second element, if the answer is one of a script. */
static uint64_t answer_time(const struct answer *answer)
{
	const redisReply *reply = answer->reply;
	bool has = reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
		   reply->element[1]->type == REDIS_REPLY_INTEGER;
	return has ? (uint64_t)reply->element[1]->integer : 0;
}

/* When the server had done a step: known from the next script's answer, or from the end of the round. */
static uint64_t time_after(unsigned count, unsigned i, unsigned round, uint64_t end_us)
{
	for (unsigned next = i + 1; next < count; next++)
		if (has_step(&batch[next], round) && answer_time(&answers[next]) != 0)
			return answer_time(&answers[next]);
	return end_us;
}

static bool compare_round(unsigned count, unsigned round, uint64_t begin_us, uint64_t end_us)
{
	bool alike = true;
	uint64_t lo_us = begin_us;
	for (unsigned i = 0; i < count; i++) {
		if (!has_step(&batch[i], round))
			continue;
		uint64_t now_us = answer_time(&answers[i]);
		struct compare_span span = {lo_us, time_after(count, i, round, end_us)};
		alike = alike && compare_step(&batch[i], &answers[i], now_us, span);
		lo_us = now_us != 0 ? now_us : lo_us;
		free_answer(&batch[i].steps[round], &answers[i]);
	}
	return alike;
}

/* Between two steps: often none at all, mostly a few ms, rarely as long as leases last. */
static uint64_t random_time(uint64_t *random)
{
	uint64_t kind = compare_random(random, 10);
	return kind < 2 ? 0 : compare_random(random, kind < 9 ? 5000 : 400000);
}

/* False at the first difference. *now_us: the time before and after. */
static bool run_round(unsigned count, unsigned round, uint64_t *random, uint64_t *now_us)
{
	*now_us += random_time(random);
	compare_server_set_time(&server, *now_us);
	compare_send(&server, "TIME");
	for (unsigned i = 0; i < count; i++) {
		struct compare_sequence *sequence = &batch[i];
		if (!has_step(sequence, round))
			continue;
		struct compare_step *step = &sequence->steps[sequence->step_count++];
		compare_random_step(step, random, &sequence->master, *now_us, sequence->crowded);
		compare_append_step(&server, sequence, step);
	}
	compare_send(&server, "TIME");
	compare_send(&server, "PUBLISH %s %s", END_CHANNEL, "");
	uint64_t begin_us = take_time();
	for (unsigned i = 0; i < count; i++)
		if (has_step(&batch[i], round))
			take_step(&batch[i].steps[round], &answers[i]);
	*now_us = take_time();
	freeReplyObject(compare_take(&server));
	take_calls();
	return compare_round(count, round, begin_us, *now_us);
}

static bool compare_states(unsigned count)
{
	static redisReply *replies[BATCH][COMPARE_STATE_REPLIES];
	struct compare_span span;
	bool alike = true;
	compare_send(&server, "TIME");
	for (unsigned i = 0; i < count; i++)
		compare_append_state(&server, &batch[i]);
	compare_send(&server, "TIME");
	span.lo_us = take_time();
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < COMPARE_STATE_REPLIES; j++)
			replies[i][j] = compare_take(&server);
	span.hi_us = take_time();
	for (unsigned i = 0; i < count; i++) {
		alike = alike && compare_state(&batch[i], span, replies[i]);
		for (unsigned j = 0; j < COMPARE_STATE_REPLIES; j++)
			freeReplyObject(replies[i][j]);
	}
	return alike;
}

/* ---- all of it ---- */

static bool run_batch(unsigned first, unsigned count, uint64_t *random)
{
	bool alike = true;
	compare_send(&server, "FLUSHALL");
	compare_send(&server, "TIME");
	freeReplyObject(compare_take(&server));
	uint64_t now_us = take_time();
	for (unsigned i = 0; i < count; i++) {
		batch[i].number = first + i;
		batch[i].step_count = 0;
		batch[i].crowded = compare_random(random, 2) == 0;
		batch[i].planned = COMPARE_STEPS_MIN +
				   (unsigned)compare_random(random, COMPARE_STEPS_MAX - COMPARE_STEPS_MIN + 1);
		memset(&batch[i].master, 0, sizeof batch[i].master);
	}
	for (unsigned round = 0; round < COMPARE_STEPS_MAX && alike; round++)
		alike = run_round(count, round, random, &now_us);
	return alike && compare_states(count);
}

/* The number of sequences that were alike before the first difference, rounded to batches; all of them if there is
 * none. */
static unsigned run(unsigned sequences)
{
	uint64_t random = options.seed;
	memset(&figures, 0, sizeof figures);
	for (unsigned done = 0; done < sequences; done += BATCH) {
		unsigned count = sequences - done < BATCH ? sequences - done : BATCH;
		if (!run_batch(done, count, &random))
			return done;
	}
	return sequences;
}

/* Every answer that a script has must have been seen, or little was compared. */
static bool saw_all(void)
{
	static const struct {
		enum compare_script script;
		const char *codes;
	} all[] = {
		{COMPARE_ACQUIRE, "2 1 0 -2 -3 -4"},   {COMPARE_RAISE, "2 1 0 -1 -2 -3"},
		{COMPARE_EXTEND, "1 0 -1 -2 -3"},      {COMPARE_RELEASE, "2 1 0 -1 -3"},
		{COMPARE_INSPECT, "0 -1 -3"},          {COMPARE_EPOCH, "1"},
		{COMPARE_QUARANTINE, "1 0"},           {COMPARE_FENCES, "1 -3"},
		{COMPARE_WRITE_EPOCH, "1 0 -2"},       {COMPARE_ACQUIRE_SET, "2 1 0 -2 -3 -4"},
		{COMPARE_RAISE_SET, "2 1 0 -1 -2 -3"}, {COMPARE_EXTEND_SET, "1 0 -1 -2 -3"},
		{COMPARE_RELEASE_SET, "2 1 0 -1 -3"},  {COMPARE_ACQUIRE_SHARED, "2 1 0 -2 -3 -4"},
	};
	static const uint8_t notify[] = {COMPARE_ACQUIRE, COMPARE_RELEASE, COMPARE_ACQUIRE_SET, COMPARE_RELEASE_SET},
			     tell[] = {COMPARE_ACQUIRE,     COMPARE_RAISE,     COMPARE_RELEASE,
				       COMPARE_ACQUIRE_SET, COMPARE_RAISE_SET, COMPARE_RELEASE_SET};
	static const uint8_t share[] = {COMPARE_ACQUIRE,       COMPARE_RAISE,      COMPARE_EXTEND,
					COMPARE_RELEASE,       COMPARE_INSPECT,    COMPARE_ACQUIRE_SET,
					COMPARE_RAISE_SET,     COMPARE_EXTEND_SET, COMPARE_RELEASE_SET,
					COMPARE_ACQUIRE_SHARED};
	bool complete = true;
	for (unsigned i = 0; i < COMPARE_SCRIPTS; i++) {
		printf("%-15s", compare_script_name(all[i].script));
		for (const char *at = all[i].codes; *at; at += strspn(at, " ")) {
			long code = strtol(at, (char **)&at, 10);
			uint64_t times = figures.codes[all[i].script][code - CODE_MIN];
			printf("%3ld: %-8llu", code, (unsigned long long)times);
			complete = complete && times > 0;
		}
		printf("\n");
	}
	for (unsigned i = 0; i < sizeof notify; i++) {
		printf("%s notified %llu; ", compare_script_name(notify[i]),
		       (unsigned long long)figures.notifications[notify[i]]);
		complete = complete && figures.notifications[notify[i]] > 0;
	}
	printf("several at once %llu\n", (unsigned long long)figures.several);
	for (unsigned i = 0; i < sizeof tell; i++) {
		printf("%s told watchers %llu; ", compare_script_name(tell[i]),
		       (unsigned long long)figures.watched[tell[i]]);
		/* one in a thousand sequences raises what is watched */
		complete = complete && (figures.watched[tell[i]] > 0 || options.sequences < 20000);
	}
	for (unsigned i = 0; i < sizeof share; i++) {
		printf("%s%s met shared leases %llu", i > 0 ? "; " : "\n", compare_script_name(share[i]),
		       (unsigned long long)figures.shared[share[i]]);
		complete = complete && figures.shared[share[i]] > 0;
	}
	printf("\nseveral shared waiters notified at once %llu; next waiter of a slot %llu; slots named %llu; same key "
	       "again %llu; shared sets %llu, extended %llu",
	       (unsigned long long)figures.runs, (unsigned long long)figures.passed_on,
	       (unsigned long long)figures.taken, (unsigned long long)figures.again, (unsigned long long)figures.sets,
	       (unsigned long long)figures.sets_extended);
	complete = complete && figures.runs > 0 && (figures.passed_on > 0 || options.sequences < 20000) &&
		   figures.taken > 0 && figures.again > 0 && figures.sets > 0 && figures.sets_extended > 0;
	printf("\nentries given up of several: %llu; inspections that counted somebody: %llu\n",
	       (unsigned long long)figures.left, (unsigned long long)figures.counted);
	complete = complete && figures.several > 0 && figures.left > 0 && figures.counted > 0;
	if (!complete)
		printf("an answer was never seen: too few sequences, or they do not meet\n");
	return complete;
}

static int compare_all(void)
{
	if (run(options.sequences) < options.sequences) {
		printf("found after %llu commands\n", (unsigned long long)figures.commands);
		return 1;
	}
	bool complete = saw_all() || options.sequences < 1000;
	printf("a key had run out before %llu commands\n", (unsigned long long)figures.run_out);
	printf("%u sequences, %llu commands: all alike\n", options.sequences, (unsigned long long)figures.commands);
	return complete ? 0 : 1;
}

static void read_arguments(int argc, char **argv)
{
	for (int i = 1; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (value && strcmp(argv[i], "--sequences") == 0)
			options.sequences = (unsigned)strtoul(value, NULL, 10);
		else if (value && strcmp(argv[i], "--seed") == 0)
			options.seed = strtoull(value, NULL, 10);
		else if (value && strcmp(argv[i], "--server") == 0)
			options.server = value;
		else {
			fprintf(stderr, "sim_compare [--sequences N] [--seed N] [--server PROGRAM]\n");
			exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	read_arguments(argc, argv);
	if (!compare_server_start(&server, options.server))
		return 2;
	int status = compare_all();
	compare_server_stop(&server);
	return status;
}
