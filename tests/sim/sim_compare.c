/* SPDX-License-Identifier: MIT */
/* Compares the store (store.h) and the scripts that it runs with a real redis-server: random sequences of commands on
 * few keys and tokens, each answer, each message, and at the end of each sequence all that the server has.
 *
 *   sim_compare [--sequences N] [--seed N] [--server PROGRAM]
 *
 * Many sequences run side by side, each with its own keys, one step of each in a round: so commands are pipelined, and
 * time passes between rounds. The first difference is told as a story, with exit status 1 (2: no server). Notifications
 * (PUBLISH) arrive on a second connection and are compared, too.
 *
 * Time: the clock of the server stands still between two rounds, and the store has the same. PEXPIRETIME tells the end
 * of a key (Redis 7.0). compare_server.c sends all commands to both and compares the answers. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare_sequence.h"
#include "compare_store.h"
#include "compare_text.h"
#include "server/leases/lease_internal.h"
#include "server/redlock/redlock.h"

enum { BATCH = 250, CODES = 7, CODE_MIN = -4, TEXT_MAX = 320 };

#define END_CHANNEL "end"

/* What a step published. */
struct published {
	unsigned notified, watched, wanted; /* waiters; watchers; holders */
	bool run;                           /* several waiters as one */
};

static struct {
	unsigned sequences;
	uint64_t seed;
	const char *server;
} options = {.sequences = 20000, .seed = 1};

static struct compare_server server;
static struct compare_sequence batch[BATCH];
static redisReply *answers[BATCH];
static struct published published[BATCH];
static bool values_read = true; /* the daemon reads all values that the scripts wrote */
static struct {
	uint64_t commands;
	/* inspections that counted somebody; releases that gave up an entry of several */
	uint64_t counted, left, several; /* steps that notified several waiters */
	uint64_t codes[COMPARE_SCRIPTS][CODES];
	uint64_t notifications[COMPARE_SCRIPTS], watched[COMPARE_SCRIPTS]; /* of waiters; of watchers */
	uint64_t wanted;                                                   /* messages of first waiters */
	/* done to one of several leases; several waiters notified as one; the next one by who took a slot; answers
	 * that name the slots; that refuse a key's second request */
	uint64_t shared[COMPARE_SCRIPTS], runs, passed_on, taken, again, sets, sets_extended;
	/* leases that are kept after their release, and those whose keeping was ended by force; of each mode */
	uint64_t kept[3], unkept[3];
} figures;

/* ---- answers ---- */

static uint64_t take_time(void)
{
	redisReply *reply = compare_take(&server);
	assert(reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
	uint64_t now_us = strtoull(reply->element[0]->str, NULL, 10) * 1000000 +
			  strtoull(reply->element[1]->str, NULL, 10);
	freeReplyObject(reply);
	return now_us;
}

static void drop_answers(unsigned count)
{
	while (count-- > 0)
		freeReplyObject(compare_take(&server));
}

static redisReply *take_step(const struct compare_step *step)
{
	drop_answers(compare_step_replies(step) - 1);
	redisReply *reply = compare_take(&server);
	FOR_EACH_KEY (key, compare_keys(step))
		drop_answers(COMPARE_KEY_REPLIES);
	return reply;
}

/* All that was published in the round, whose end a message marks. A channel's name begins with the number of its
 * sequence. */
static void take_messages(void)
{
	memset(published, 0, sizeof published);
	for (bool is_end = false; !is_end;) {
		redisReply *message = compare_take_message(&server);
		const char *channel = message->element[2]->str, *text = message->element[3]->str;
		unsigned long i = strtoul(channel, NULL, 10) - batch[0].number;
		is_end = strcmp(channel, END_CHANNEL) == 0;
		assert(is_end || i < BATCH);
		bool watches = strncmp(text, "watch ", 6) == 0, wants = strncmp(text, "wanted ", 7) == 0;
		if (!is_end) {
			published[i].watched += watches;
			published[i].wanted += wants;
			published[i].notified += !watches && !wants;
			published[i].run |= strchr(text, '>') != NULL;
		}
		freeReplyObject(message);
	}
}

/* ---- what was seen ---- */

static bool is_acquisition(unsigned kind)
{
	return kind == COMPARE_ACQUIRE || kind == COMPARE_ACQUIRE_SET || kind == COMPARE_ACQUIRE_SHARED;
}

/* The value of a lease in an answer; "": it has none. */
static const char *value_in(const redisReply *reply)
{
	for (size_t i = 2; i < reply->elements; i++)
		if (reply->element[i]->type == REDIS_REPLY_STRING && reply->element[i]->len > RANDOM_TOKEN_LEN)
			return reply->element[i]->str;
	return "";
}

static bool is_shared(const char *value)
{
	return strlen(value) > RANDOM_TOKEN_LEN && strchr("+#", value[RANDOM_TOKEN_LEN]);
}

static void count_acquisition(const struct compare_step *step, const redisReply *reply, long long code,
			      const struct published *messages)
{
	bool is_set = step->kind == COMPARE_ACQUIRE_SET, is_several = step->kind == COMPARE_ACQUIRE_SHARED;
	char key[TEXT_MAX];
	snprintf(key, sizeof key, "%016" PRIx64 ":", step->command.noted);
	figures.passed_on += is_several && code == 1 && messages->notified > 0;
	figures.taken += is_several && code == 0 && reply->element[4]->type == REDIS_REPLY_STRING &&
			 strchr(reply->element[4]->str, '1');
	figures.sets += is_set && code == 1 && step->command.kind == '+';
	figures.again += is_several && code == 0 && step->command.noted != 0 && strstr(value_in(reply), key);
}

static void count_release(const struct compare_step *step, const char *value)
{
	unsigned mode = value[RANDOM_TOKEN_LEN] == '+' ? 1 : value[RANDOM_TOKEN_LEN] == '#' ? 2 : 0;
	bool was_kept = value[strcspn(value, ":;=")] == '=';
	figures.kept[mode] += !was_kept && step->command.ttl_ms > 0;
	figures.unkept[mode] += was_kept;
}

static void count_script(const struct compare_sequence *sequence, const redisReply *reply,
			 const struct published *messages)
{
	const struct compare_step *step = &sequence->steps[sequence->step_count - 1];
	bool release = step->kind == COMPARE_RELEASE || step->kind == COMPARE_RELEASE_SET;
	assert(reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2);
	long long code = reply->element[0]->integer;
	const char *value = value_in(reply);
	FOR_EACH_KEY (key, compare_keys(step))
		figures.left += release && step->command.entry.replica != 0 && step->command.wait_ms == 0 &&
				sequence->before.queues[key].count > 1;
	if (release && code == 1)
		count_release(step, value);
	figures.commands++;
	figures.codes[step->kind][code - CODE_MIN]++;
	figures.notifications[step->kind] += messages->notified;
	figures.several += messages->notified > 1;
	figures.watched[step->kind] += messages->watched > 0;
	figures.wanted += messages->wanted > 0;
	figures.runs += messages->run;
	figures.shared[step->kind] += is_shared(value) ||
				      (is_acquisition(step->kind) && code == 1 && step->command.kind != ':');
	FOR_EACH_KEY (key, code == 1 ? compare_keys(step) : 0) /* its answer has no value */
		figures.shared[step->kind] += step->kind == COMPARE_RAISE || step->kind == COMPARE_RAISE_SET
						      ? sequence->before.keys[key].is_several
						      : 0;
	figures.sets_extended += step->kind == COMPARE_EXTEND_SET && code == 1 && is_shared(value);
	if (step->kind == COMPARE_INSPECT && code >= -1)
		figures.counted += reply->element[code == 0 ? 4 : 2]->integer > 0;
	if (is_acquisition(step->kind))
		count_acquisition(step, reply, code, messages);
}

/* ---- a round: one step of each sequence ---- */

static bool has_step(const struct compare_sequence *sequence, unsigned round)
{
	return round < sequence->planned;
}

/* Between two steps: often none at all, mostly a few ms, rarely as long as leases last. */
static uint64_t random_time(uint64_t *random)
{
	uint64_t kind = compare_random(random, 10);
	return kind < 2 ? 0 : compare_random(random, kind < 9 ? 5000 : 400000);
}

/* *now_us: the time before and after. */
static void run_round(unsigned count, unsigned round, uint64_t *random, uint64_t *now_us)
{
	*now_us += random_time(random);
	compare_server_set_time(&server, *now_us);
	for (unsigned i = 0; i < count; i++) {
		struct compare_sequence *sequence = &batch[i];
		if (!has_step(sequence, round))
			continue;
		struct compare_step *step = &sequence->steps[sequence->step_count++];
		compare_master_read(compare_store(), sequence->number, &sequence->before);
		compare_random_step(step, random, &sequence->before, *now_us, sequence->crowded);
		compare_append_step(&server, sequence, step);
	}
	compare_send(&server, "PUBLISH %s %s", END_CHANNEL, "");
	for (unsigned i = 0; i < count; i++)
		if (has_step(&batch[i], round))
			answers[i] = take_step(&batch[i].steps[round]);
	drop_answers(1);
	take_messages();
	for (unsigned i = 0; i < count; i++) {
		if (!has_step(&batch[i], round))
			continue;
		if (compare_is_script(&batch[i].steps[round]))
			count_script(&batch[i], answers[i], &published[i]);
		freeReplyObject(answers[i]);
	}
}

/* The daemon reads the parts of a value that the scripts put together. */
static bool is_read(const redisReply *value)
{
	struct lease_holder holder;
	char text[TEXT_MAX];
	lease_value_read_holder(value->str, value->len, &holder);
	bool is_set = holder.set_count > 0, is_ours = compare_is_ours(value->str);
	const char *owner = holder.owner ? holder.owner : "", *caller = owner + holder.owner_len,
		   *metadata = caller + holder.caller_len, *names = metadata + holder.metadata_len;
	int lines = is_set || holder.metadata_len > 0 ? 2 : holder.caller_len > 0;
	snprintf(text, sizeof text, "%.*s%s%c%" PRIu64 ":%" PRIu64 ":%s%.*" PRIx64 ":%.*s%.*s%.*s%.*s%.*s%s%.*s",
		 LEASE_TOKEN_LEN, value->str, holder.kept ? "=" : "", is_set ? ';' : ':',
		 lease_value_hold_until_ms(value->str, value->len), holder.fence,
		 holder.key != 0 && !holder.confirmed ? "?" : "", holder.key != 0 ? 16 : 0, holder.key,
		 holder.owner_len, owner, lines > 0, "\n", holder.caller_len, caller, lines > 1, "\n",
		 holder.metadata_len, metadata, is_set ? "\n" : "", holder.names_len, names);
	lease_holder_fini(&holder);
	return holder.known == is_ours && (!is_ours || strcmp(text, value->str) == 0);
}

/* ---- all of it ---- */

static void run_batch(unsigned first, unsigned count, uint64_t *random)
{
	compare_send(&server, "FLUSHALL");
	compare_send(&server, "TIME");
	drop_answers(1);
	uint64_t now_us = take_time();
	for (unsigned i = 0; i < count; i++) {
		batch[i].number = first + i;
		batch[i].step_count = 0;
		batch[i].crowded = compare_random(random, 2) == 0;
		batch[i].planned = COMPARE_STEPS_MIN +
				   (unsigned)compare_random(random, COMPARE_STEPS_MAX - COMPARE_STEPS_MIN + 1);
	}
	for (unsigned round = 0; round < COMPARE_STEPS_MAX; round++)
		run_round(count, round, random, &now_us);
	for (unsigned i = 0; i < count; i++)
		compare_append_state(&server, &batch[i]);
	for (unsigned j = 0; j < count * COMPARE_STATE_REPLIES; j++) {
		redisReply *reply = compare_take(&server);
		values_read = values_read && (reply->type != REDIS_REPLY_STRING || is_read(reply));
		freeReplyObject(reply);
	}
}

/* The answer or message that was another one belongs to this sequence. */
static void on_difference(void)
{
	for (unsigned i = 0; i < BATCH; i++)
		if (batch[i].number == compare_store_differing())
			compare_tell(&batch[i]);
	printf("found after %llu commands\n", (unsigned long long)figures.commands);
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
	printf("kept");
	for (unsigned i = 0; i < 3; i++) {
		printf(", of mode %u: %llu, ended %llu", i, (unsigned long long)figures.kept[i],
		       (unsigned long long)figures.unkept[i]);
		complete = complete && figures.kept[i] > 0 && (figures.unkept[i] > 0 || options.sequences < 20000);
	}
	printf("\n");
	printf("holders told of a first waiter: %llu\n", (unsigned long long)figures.wanted);
	complete = complete && (figures.wanted > 0 || options.sequences < 20000);
	complete = complete && figures.several > 0 && figures.left > 0 && figures.counted > 0;
	if (!complete)
		printf("an answer was never seen: too few sequences, or they do not meet\n");
	return complete;
}

static int compare_all(void)
{
	uint64_t random = options.seed;
	for (unsigned done = 0; done < options.sequences && values_read; done += BATCH)
		run_batch(done, options.sequences - done < BATCH ? options.sequences - done : BATCH, &random);
	if (!values_read) {
		printf("found after %llu commands: a value that the daemon reads otherwise\n",
		       (unsigned long long)figures.commands);
		return 1;
	}
	bool complete = saw_all() || options.sequences < 1000;
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
	if (!compare_server_start(&server, options.server, on_difference))
		return 2;
	int status = compare_all();
	compare_server_stop(&server);
	return status;
}
