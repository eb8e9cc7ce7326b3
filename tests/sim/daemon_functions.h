/* SPDX-License-Identifier: MIT */
/* The functions that the files of the seeded simulator share. Included by daemon_world.h, which has the structures. */
#ifndef DAEMON_FUNCTIONS_H
#define DAEMON_FUNCTIONS_H

/* ---- daemon_queue.c ---- */

void queue_init(struct world *world);
/* A new event, all zero except its kind; fill it in and push it. */
struct event *event_new(struct world *world, enum event_kind kind);
void event_push(struct world *world, struct event *event, uint64_t at);
struct event *event_pop(struct world *world); /* moves `now` on; NULL: nothing is to come */
void event_free(struct world *world, struct event *event);
static inline uint64_t random_u64(struct world *world)
{
	return redlock_random(&world->random);
}

/* 0 … bound−1; bound > 0. */
static inline uint64_t below(struct world *world, uint64_t bound)
{
	return bound <= UINT32_MAX ? (random_u64(world) >> 32) * bound >> 32 : random_u64(world) % bound;
}

static inline bool one_of(struct world *world, uint32_t chances)
{
	return below(world, chances) == 0;
}

/* small values more often, but every size occurs */
uint64_t spread(struct world *world, uint64_t least, uint64_t most);
static inline uint64_t clock_read(const struct clock *clock, uint64_t now)
{
	int64_t passed = (int64_t)(now - clock->from);
	return clock->base + (uint64_t)(passed + passed * clock->ppm / 1000000);
}

void clock_shift(struct clock *clock, uint64_t now, int64_t by_us);
void trace(struct world *world, uint64_t a, uint64_t b, uint64_t c);
void tell(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define TELL(world, ...)                            \
	do {                                        \
		if ((world)->telling)               \
			tell((world), __VA_ARGS__); \
	} while (0)
void fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- daemon_net.c ---- */

void commands_init(struct world *world);
struct command *command_new(struct world *world);
void command_free(struct world *world, struct command *command); /* not while it waits or travels */
/* The next operation of a batch, by `also` of the last one; NULL: there is none. */
static inline struct command *command_part(struct world *world, uint16_t also)
{
	return also != NONE ? &world->commands[also] : NULL;
}

void commands_drop(struct world *world, uint16_t slot); /* of a message: they travel no further */
struct transport_connection *connection_new(struct world *world, unsigned proc, unsigned node);
void connection_free(struct world *world, struct transport_connection *connection); /* when nothing refers to it */
struct event *net_message(struct world *world, struct transport_connection *connection, enum event_kind kind);
void net_there(struct world *world, struct event *event);
void net_back(struct world *world, struct event *event);
/* the master's end of the connection is gone */
void net_reset(struct world *world, struct transport_connection *connection);
void net_reset_all(struct world *world, unsigned node);
/* the process's end is gone; hard: with all that is in it */
void net_cut(struct world *world, struct transport_connection *connection, bool hard);
void net_lose(struct world *world, unsigned proc, unsigned node, bool first, bool second, bool hard);
void net_arrive(struct world *world, struct event *event);
/* Lets held messages go on. PROCS, NODES: those of all. */
void net_flow(struct world *world, unsigned proc, unsigned node);
void net_unblock(struct world *world, unsigned proc, unsigned node);

/* ---- daemon_transport.c: for the network and the loop ---- */

bool transport_timer_is_due(const struct event *event);
void transport_timer_fire(const struct event *event);
void transport_arrive(struct world *world, struct transport_connection *connection, const struct event *event);
void transport_lose(struct world *world, struct transport_connection *connection, bool hard);
void transport_flush_all(void);

/* ---- daemon_words.c ---- */

void words_init(void);
const char *key_name(const struct world *world, unsigned key);
unsigned key_find(const struct world *world, const char *bytes, size_t len);
/* The keys of a request, a bit each. */
uint32_t names_find(const struct world *world, const struct lease_request *request);
/* The first of them. */
static inline unsigned first_key(uint32_t names)
{
	return (unsigned)__builtin_ctz(names);
}

static inline bool is_set(uint32_t names)
{
	return (names & (names - 1)) != 0;
}

struct command *words_parse(struct world *world, const struct transport_connection *connection, size_t count,
			    const struct transport_word words[]);

/* ---- daemon_field.c ---- */

uint64_t hex_number(const char digits[16]);
uint64_t field_decimal(const struct transport_word *word);
uint64_t field_token(const struct transport_word *word);
struct entry field_entry(const char *bytes);
void field_wait(const struct transport_word *word, struct script_request *request);
void field_note(const struct transport_word *word, struct script_request *request);
void field_notification(const struct world *world, const struct store_text *text, struct notification *notification);

/* ---- daemon_reply.c ---- */

const redisReply *reply_make(const struct command *command);
const redisReply *reply_make_message(const struct notification *notification);
/* Reads command->reply for the checks, of each command of a batch. */
void reply_read(struct world *world, struct command *command);
void digits_write(char to[16], uint64_t value);
void token_write(uint64_t token, char ret_token[RANDOM_TOKEN_LEN]);

/* ---- daemon_node.c ---- */

void node_init(struct world *world, unsigned node);
void node_commands(struct world *world, struct transport_connection *connection, uint16_t slot);
void node_crash(struct world *world, unsigned node, unsigned memory); /* 0: none; 1: all; 2: without the last writes */
/* Restricts `memory` to losses that --durable-masters can notice (assumptions: docs/explanation/proofs.md). */
unsigned node_durable_memory(const struct world *world, unsigned node, unsigned memory);
void node_start(struct world *world, unsigned node);
void node_roll_back(struct world *world, unsigned node, bool clock_too);
void node_snapshot(struct world *world, unsigned node);
void node_jump(struct world *world, unsigned node, int64_t by_us);
void node_forget(struct world *world, unsigned node);                          /* call it before its memory is lost */
void node_drop(struct world *world, unsigned node, unsigned key, bool evicts); /* false: by hand */
void node_drop_lasting(struct world *world, unsigned node);
void node_sync(struct world *world, unsigned node); /* server.now_us is now */

/* ---- daemon_store.c: the data of a master ---- */

/* The token of the i-th lease on a resource; 0: there are no more. */
uint64_t node_token(const struct node *node, unsigned key, unsigned i);
bool node_has_token(const struct node *node, unsigned key, uint64_t token);
/* For how long it has the lease of the token, by its own clock; 0: not at all. */
uint64_t node_left_ms(const struct node *node, unsigned key, uint64_t token);
/* True if a confirmed lease with that Idempotency-Key holds the resource. */
bool node_has_asked(const struct node *node, unsigned key, uint64_t asked);
/* A queue that is not empty, or NULL; and its entry i. */
const struct store_key *node_queue(const struct node *node, unsigned key);
struct entry node_entry(const struct store_key *queue, size_t i);
bool node_is_alive(const struct node *node, uint64_t replica);
/* The number in a field of the hash; 0: it is not there. */
uint64_t server_number(const struct server *server, const char *field, int base);
bool entry_is_place(struct entry entry); /* kept for a wait that goes on */
/* Removes keys: false: there was none. */
bool node_remove(struct node *node, const char *name);
/* Removes all keys with this prefix that end after this time. */
void node_remove_lasting(struct node *node, const char *prefix, uint64_t after_ms);

/* ---- daemon_proc.c ---- */

void proc_start(struct world *world, unsigned proc, bool bootstrap);
void proc_drain(struct world *world, unsigned proc);
void proc_end(struct world *world, unsigned proc, bool in_order);
uint64_t proc_now(const struct world *world, const struct proc *proc);
uint64_t proc_wall(const struct world *world, const struct proc *proc);
uint64_t proc_true_after(const struct proc *proc, uint64_t us); /* how long `us` of its clock take */
void proc_turn_to(struct world *world, unsigned proc); /* whose clocks and random numbers are used; PROCS: none */
void proc_enter(struct world *world, unsigned proc);
void proc_leave(struct world *world);                      /* the end of the round */
bool proc_timer(struct world *world, struct event *event); /* false: kept until the pause ends */
void proc_continue(struct world *world, unsigned proc);

/* ---- daemon_face.c ---- */

struct call *call_of(struct world *world, const void *arg);
struct call *call_waiting(struct world *world, unsigned key, struct entry entry);
struct call *call_begin(struct world *world, unsigned proc, enum lease_operation operation, uint32_t names,
			uint64_t ttl_ms, uint16_t lease);
void call_start(struct world *world, struct call *call);
void call_list(struct world *world, struct call *call);
void call_leave(struct world *world, struct call *call);
void call_notice(struct world *world, const struct event *event);
void calls_end(struct world *world, unsigned proc, bool in_order);

/* ---- daemon_client.c ---- */

void clients_init(struct world *world);
void client_step(struct world *world, unsigned client, uint32_t serial);
void client_answer(struct world *world, struct call *call, const struct lease_answer *answer);
/* the stream of a held lease has ended; it may go on with the lease, or not */
void client_streamed(struct world *world, struct call *call, bool goes_on);
void client_forsaken(struct world *world, struct call *call); /* its redlockd has ended */
void client_retire(struct world *world);
bool clients_busy(const struct world *world);

/* ---- daemon_shape.c, daemon_fault.c ---- */

void config_random(struct world *world, bool is_rolling, bool is_durable);
/* daemon_run.c: all masters vote at each redlockd. */
bool is_recovered(const struct world *world);
/* True if the history is of PROFILE_ROLLING, and was handled. */
bool shape_rolls(struct world *world);
void fault_any(struct world *world);
void fault_next(struct world *world);
void fault_mend(struct world *world, const struct event *event);
void fault_heal(struct world *world);
const char *fault_name(enum fault fault);

/* ---- daemon_check.c ---- */

void check_init(struct world *world);
/* `had`: some key of the set had its token before. */
void check_set(struct world *world, unsigned node, const struct command *command, bool had);
void check_granted(struct world *world, struct call *call, const struct redlock *core,
		   const struct lease_answer *answer);
void check_extended(struct world *world, struct call *call, const struct lease_op *op, uint32_t validity_ms,
		    uint64_t fence);
void check_released(struct world *world, uint16_t lease); /* from now on nobody relies on it */
/* daemon_kept.c */
/* The token with those digits, or the one that is kept under them; 0: none. */
uint64_t token_read(const struct world *world, const char digits[RANDOM_TOKEN_LEN]);
/* True if some release of the token had keep_ms. */
bool kept_is_asked(const struct world *world, uint64_t token);
/* Some releases get keep_ms. */
void kept_choose(struct world *world, struct call *call);
/* A release was answered: what it keeps must stay kept, and it must not be of a lease that is kept. */
void kept_released(struct world *world, const struct call *call, const struct redlock *core);
/* If the lease is kept, somebody who has its token tries to go on with it, once. */
void kept_try(struct world *world, uint16_t lease);
/* True if it is an extension of a lease that is kept, which must have begun before; these masters voted for it. */
bool kept_extended(struct world *world, const struct call *call, uint16_t quorum);
/* daemon_check.c */
/* The masters whose votes count. */
uint16_t check_counted(const struct redlock *core, const struct world *world);
/* An operator takes one of them away, or has done so since. */
bool check_is_forced_since(const struct world *world, uint32_t names, uint64_t since);
/* Nobody else may get its resources until its `until`. */
void check_make_active(struct world *world, uint16_t lease);
void check_given(struct world *world, unsigned proc, uint64_t token); /* a process is to release it */
void check_pending(struct world *world, const struct transport_connection *connection);
/* daemon_memory.c */
/* Sets the end of a lease, and counts the time for which it is held. */
void check_set_end(struct world *world, struct lease *lease, uint64_t until);
void check_votes_again(struct world *world, unsigned index);
void check_remembers(struct world *world, const struct transport_connection *connection, const struct command *command);
void check_repaired(struct world *world, unsigned index, const struct command *command);
void check_round(struct world *world, struct lease *lease, uint16_t votes, const struct trail *trail);
void check_force(struct world *world, unsigned key); /* an operator begins a forced release */
void check_forced(struct world *world, unsigned key);
void check_nothing_left(struct world *world);
const char *excuse_name(enum excuse excuse);

/* ---- daemon_keyed.c ---- */

void check_keyed(struct world *world, struct call *call, const struct lease_answer *answer);
void check_renewed(struct world *world, struct call *call);
void check_own(struct world *world, struct call *call);

/* ---- daemon_sight.c ---- */

void sight_of_quorum(struct world *world, unsigned index);
void sight_before(struct world *world, const struct transport_connection *connection, const struct command *command);
void sight_after(struct world *world, const struct transport_connection *connection, const struct command *command);
void sight_sent(struct world *world, const struct command *command);
void notification_before(struct world *world, const struct transport_connection *connection,
			 const struct notification *notification);
void check_jumped(struct world *world, unsigned node, int64_t by_us);
/* True if some master keeps a place for a wait that continues. Each wait may leave one. */
bool sight_has_place(const struct world *world, unsigned key);
/* False for places that have ended, since the next script removes them. */
bool sight_is_left(const struct node *node, const struct store_key *queue);

/* ---- daemon_order.c ---- */

bool is_calm(const struct world *world);   /* no fault is in force, and none has effects any more */
bool is_smooth(const struct world *world); /* nor is any message late by much */
void order_init(struct world *world);
void order_calm(struct world *world, uint64_t after_us); /* from then on */
void order_trouble(struct world *world);                 /* from now on */
void order_begin(struct world *world, struct call *call);
/* before and after a command is carried out */
void order_before(struct world *world, const struct transport_connection *connection, const struct command *command);
void order_after(struct world *world, const struct transport_connection *connection, const struct command *command);
void order_notified(struct call *call, unsigned node, const struct notification *notification);
/* The first waiter of a process for the key; NULL: none. */
struct lease_op *first_of(const struct world *world, unsigned proc, unsigned key);
void order_passed(const struct world *world, struct call *call, const struct redlock *core, unsigned node);
void order_first(struct world *world, unsigned proc, uint32_t names);
void order_attempt(struct world *world, struct call *call, const struct redlock *core);
void order_granted(struct world *world, const struct call *call);
void order_done(struct world *world, const struct call *call, const struct lease_answer *answer);
void order_watch(struct world *world);
unsigned order_waiting(const struct world *world);
void order_check_queue_empty(struct world *world, unsigned key);

/* ---- daemon_trial.c ---- */

void trial_alone(struct world *world);
void trial_together(struct world *world);
void trial_queue(struct world *world);
void trial_step(struct world *world, const struct event *event); /* EVENT_TRIAL */
void trial_answer(struct world *world, struct call *call, const struct lease_answer *answer);

/* ---- daemon_run.c ---- */

/* Plays one seed; true if nothing is violated. `tell`: NULL, or gets the story. */
bool world_run(struct world *world, uint64_t seed, struct figures *figures, void (*tell)(const char *line));

#endif
