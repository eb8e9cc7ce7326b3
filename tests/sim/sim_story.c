/* SPDX-License-Identifier: MIT */
/* The world in words, for the story of a violation. */
#include <stdio.h>

#include "sim_world.h"

static const char *const script_names[] = {"nothing", "ACQUIRE", "RAISE", "EXTEND", "RELEASE", "INSPECT"};
static const char *const vote_names[] = {"GRANTED", "HELD",        "GONE",   "FAILED",
					 "UNSENT",  "QUARANTINED", "BEHIND", "QUEUED"};
static const char *const state_names[] = {"idle", "voting", "raising", "pausing", "waiting", "leaving", "decided"};
static const char *const outcome_names[] = {"OK", "LOCKED", "NOT_OWNER", "EXPIRED", "NO_QUORUM", "SPLIT", "CANCELLED"};

static char op_name(unsigned o)
{
	return (char)('A' + o);
}

static void tell_command(const struct sim_command *command)
{
	printf("%s%s", script_names[command->script],
	       command->entry == REDLOCK_ENTRY_LEAVE ? ", leaving the queue" : "");
	if (command->tokenless)
		printf(" and nothing else");
	if (command->script != REDLOCK_SCRIPT_RELEASE)
		printf(" %u", command->fence);
	if (command->round > 0)
		printf(" (round %u)", command->round);
}

static void tell_reply(const struct sim_reply *reply)
{
	printf("%s to %s", vote_names[reply->vote], script_names[reply->script]);
	if (reply->vote == REDLOCK_VOTE_STALE ||
	    (reply->vote == REDLOCK_VOTE_GRANTED && reply->script == REDLOCK_SCRIPT_ACQUIRE))
		printf(", the bucket held %u", reply->fence);
	if (reply->round > 0)
		printf(" (round %u)", reply->round);
}

static void tell_event(const struct sim_world *before, const struct sim_event *event, const struct sim_config *config)
{
	const struct sim_op *op = &before->ops[event->op];
	const struct sim_link *link = &op->links[event->master];
	char name = op_name(event->op);
	unsigned master = event->master + 1U;
	switch ((enum sim_kind)event->kind) {
	case SIM_START: printf("%c begins, with the guess %u", name, config->guesses[event->arg]); break;
	case SIM_EXECUTE:
		printf("master %u carries out %c's ", master, name);
		tell_command(&link->commands[0]);
		break;
	case SIM_DELIVER:
		printf("%c hears from master %u: ", name, master);
		tell_reply(&link->replies[0]);
		break;
	case SIM_TIMER:
		printf("%c's timer", name);
		if (sim_is_between(op))
			printf(": the next try, with the guess %u", config->guesses[event->arg]);
		break;
	case SIM_CANCEL: printf("%c is cancelled", name); break;
	case SIM_RELEASE: printf("%c gives its lock back", name); break;
	case SIM_LATE: printf("%c stands still until no validity is left", name); break;
	case SIM_DROP:
		printf("master %u drops the lock of %c", master,
		       op_name(sim_token_op(sim_event_token(before, config, event))));
		break;
	case SIM_DOWN: printf("master %u is down for %c", master, name); break;
	case SIM_HANG: printf("master %u counts as hung for %c", master, name); break;
	case SIM_LOSE: printf("%c loses its connection to master %u with all that is in it", name, master); break;
	case SIM_LOSE_FOR_GOOD: printf("%c loses its connection to master %u for good", name, master); break;
	case SIM_LOSE_LATE:
		printf("%c loses its connection to master %u, what is in it may come late", name, master);
		break;
	case SIM_STALE:
		printf("master %u carries out, from %c's %s connection, ", master, name,
		       config->extends ? "other" : "lost");
		tell_command(&link->stale[0]);
		break;
	case SIM_WIPE: printf("master %u loses its memory", master); break;
	case SIM_SURVEY: printf("master %u tells of its leases", master); break;
	case SIM_RUN_OUT: printf("%c's lease runs out", name); break;
	case SIM_EXPIRE:
		printf("on master %u the key of %c runs out", master,
		       op_name(sim_token_op(sim_event_token(before, config, event))));
		break;
	case SIM_WRITE_EPOCH: printf("master %u may vote again", master); break;
	case SIM_NOTIFY: printf("%c hears that master %u notified it", name, master); break;
	case SIM_END: printf("%c's wait is over", name); break;
	case SIM_KINDS: break;
	}
}

static void tell_op(const struct sim_world *world, unsigned o)
{
	const struct sim_op *op = &world->ops[o];
	printf("  %c %s", op_name(o), state_names[op->core.state]);
	if (op->core.state == REDLOCK_RAISING)
		printf(" to %u, round %u", (unsigned)op->core.fence, op->core.round);
	if (op->done)
		printf(" %s", outcome_names[op->outcome]);
	if (op->done && op->outcome == REDLOCK_OK)
		printf(" %u%s", op->fence, op->released ? ", given back" : "");
}

static void tell_world(const struct sim_world *world, const struct sim_config *config)
{
	printf("     ");
	for (unsigned o = 0; o < SIM_OPS; o++)
		tell_op(world, o);
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		const struct sim_master *master = sim_master(world->masters[i]);
		printf("  | %u:", i + 1);
		for (unsigned key = 0; key < (config->sets ? 3 : config->two_resources ? 2 : 1); key++) {
			uint8_t token = master->tokens[key][0];
			printf(" %c%s", token == 0 ? '-' : op_name(sim_token_op(token)),
			       token & SIM_KEPT_TOKEN ? "=" : "");
			if (token != 0 && config->tries > 1)
				printf("%u", sim_token_attempt(token));
		}
		for (unsigned key = 0; key < (config->sets ? 3 : 1); key++) {
			for (unsigned k = 0; master->queues[key][k] != 0; k++)
				printf("%c%c", k == 0 ? '<' : ',', op_name(master->queues[key][k] - 1U));
			printf(" %u", master->numbers[key]);
		}
		printf("%s", master->epoch == 0 ? " quarantined" : "");
	}
	printf("\n");
}

void sim_tell(unsigned number, const struct sim_world *before, const struct sim_event *event,
	      const struct sim_world *after, const struct sim_config *config)
{
	printf("%3u. ", number);
	tell_event(before, event, config);
	printf("\n");
	tell_world(after, config);
}
