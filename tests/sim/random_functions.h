/* The functions that the files of the seeded simulator share. Included by random_world.h, which has the structures. */
#ifndef RANDOM_FUNCTIONS_H
#define RANDOM_FUNCTIONS_H

/* ---- random_queue.c ---- */

void queue_init(struct world *world);
/* A new event, all zero but for its kind; to be filled in and pushed. */
struct event *event_new(struct world *world, enum event_kind kind);
void event_push(struct world *world, struct event *event, uint64_t at);
struct event *event_pop(struct world *world); /* moves `now` on; NULL: nothing is to come */
void event_free(struct world *world, struct event *event);
/* splitmix64. */
static inline uint64_t random_u64(struct world *world)
{
	uint64_t z = (world->random += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
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

/* small ones more often: every size has its turn */
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

/* ---- random_net.c ---- */

void net_init(struct world *world);
/* a command, over the present connection */
void net_send(struct world *world, unsigned proc, unsigned node, struct event *event);
/* if nothing is in its way; it is carried out */
bool net_send_at_once(struct world *world, unsigned proc, unsigned node, struct event *event);
/* a reply, over the connection of the command */
void net_answer(struct world *world, const struct event *command, struct event *reply);
/* the master's end of the connection is gone */
void net_reset(struct world *world, unsigned proc, unsigned node);
/* the process's end is gone; hard: with all that is in it */
void net_cut(struct world *world, unsigned proc, unsigned node, bool hard);
void net_arrive(struct world *world, struct event *event); /* EVENT_COMMAND, EVENT_REPLY */
void net_flow_to_node(struct world *world, unsigned node); /* it runs again */
void net_flow_to_proc(struct world *world, unsigned proc);
void net_unblock(struct world *world, unsigned proc, unsigned node);
/* when a message arrives that is sent now over a connection whose last one does so at *last_at */
uint64_t net_in_order(struct world *world, uint64_t *last_at);
void net_hold(struct world *world, struct held *held, struct event *event);

/* ---- random_notifications.c: the second connections ---- */

/* where it is not there, or leads to a server before */
void ear_open(struct world *world, unsigned proc, unsigned node);
void ear_drop(struct world *world, unsigned proc, unsigned node);
void ear_reset(struct world *world, unsigned proc, unsigned node); /* the master's end is gone */
void ear_publish(struct world *world, unsigned node, const struct notification *notification);
bool ear_arrive(struct world *world, struct event *event); /* EVENT_SUBSCRIBE, EVENT_HEARD; false: held up */
void ear_flow(struct world *world, unsigned proc, unsigned node);

/* ---- random_node.c ---- */

void node_init(struct world *world, unsigned node);
void node_command(struct world *world, struct event *event);
void node_crash(struct world *world, unsigned node, unsigned memory); /* 0: none; 1: all; 2: but for the last writes */
void node_start(struct world *world, unsigned node);
void node_roll_back(struct world *world, unsigned node, bool clock_too);
void node_snapshot(struct world *world, unsigned node);
void node_jump(struct world *world, unsigned node, int64_t by_us);
void node_forget(struct world *world, unsigned node); /* before its memory goes: whatever anybody told it */
void node_evict(struct world *world, unsigned node, unsigned key);
void node_delete(struct world *world, unsigned node, unsigned key); /* by hand */
void node_sync(struct world *world, unsigned node);                 /* model.now_us is now */

/* ---- random_daemon.c ---- */

void proc_start(struct world *world, unsigned proc, bool bootstrap);
void proc_crash(struct world *world, unsigned proc);
uint64_t proc_now(const struct world *world, const struct proc *proc);
uint64_t proc_wall(const struct world *world, const struct proc *proc);
void proc_round(struct world *world, struct proc *proc);   /* once more round its loop */
bool proc_timer(struct world *world, struct event *event); /* false: kept until the pause ends */
void proc_continue(struct world *world, unsigned proc);
uint64_t proc_true_after(const struct proc *proc, uint64_t us); /* how long `us` of its clock take */
struct op *op_begin(struct world *world, unsigned proc, enum redlock_kind kind, unsigned key, uint64_t ttl_ms,
		    uint64_t token);
void op_wait(struct op *op, uint64_t wait_us);
void op_start(struct world *world, unsigned proc, struct op *op);
void op_drive(struct world *world, unsigned proc, struct op *op, const struct redlock_event *event);
uint64_t fence_guess(struct world *world, struct proc *proc);
void op_cancel(struct world *world, unsigned proc, struct op *op);
void op_vote(struct world *world, unsigned proc, const struct request *request, unsigned node, enum redlock_vote vote,
	     const struct model_reply *reply);
void op_timer(struct world *world, unsigned proc, struct event *event);
uint64_t drift_of(const struct world *world, uint64_t ttl_us);

/* ---- random_waiters.c: those who wait at a process ---- */

void queue_start(struct world *world, unsigned proc);
void queue_join(struct world *world, unsigned proc, struct op *op, struct redlock_event *start);
void queue_leave(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);
void queue_tick(struct world *world, unsigned proc, uint32_t serial);
void queue_forgotten(struct world *world, unsigned proc, unsigned node); /* the master did not know that it lives */
void queue_missed(struct world *world, unsigned proc);
void queue_heard(struct world *world, unsigned proc, unsigned node, const struct notification *notification);
/* NULL: nobody waits there who came then */
struct op *queue_find(struct world *world, unsigned proc, unsigned key, uint64_t arrival);

/* ---- random_link.c ---- */

enum sent { SENT, SENT_NOT, SENT_QUARANTINED };
void link_start(struct world *world, unsigned proc, unsigned node);
void link_connect(struct world *world, unsigned proc, unsigned node, uint32_t serial);
void link_handshake_over(struct world *world, unsigned proc, unsigned node, uint32_t serial);
void link_heartbeat(struct world *world, unsigned proc, unsigned node, uint32_t serial);
void link_lost(struct world *world, unsigned proc, unsigned node, bool hard);
void link_reply(struct world *world, struct event *event);
void link_note_silence(struct world *world, unsigned proc, unsigned node);
bool link_push(struct world *world, unsigned proc, unsigned node, const struct request *request,
	       const struct model_command *command);
enum sent link_send(struct world *world, unsigned proc, unsigned node, const struct request *request,
		    struct model_command *command);
void link_pend(struct world *world, unsigned proc, unsigned node, const struct request *request);
bool link_is_reachable(const struct link *link); /* up, and not hung */

/* ---- random_guard.c ---- */

void guarding_pump(struct world *world, unsigned proc);
void guarding_tick(struct world *world, unsigned proc);
void guarding_connected(struct world *world, unsigned proc, unsigned node, const struct answer *answer);
void guarding_event(struct world *world, unsigned proc, unsigned node, enum guard_event_kind kind);
void guarding_answer(struct world *world, unsigned proc, unsigned node, const struct request *request,
		     const struct event *event);
enum guard_clock guarding_time(struct world *world, unsigned proc, uint64_t sent_us, const struct event *event);
void guarding_mismatch(struct world *world, unsigned proc, unsigned node, uint64_t epoch);

/* ---- random_client.c ---- */

void clients_init(struct world *world);
void client_step(struct world *world, unsigned client, uint32_t serial);
void client_answer(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);
void client_forsaken(struct world *world, unsigned client); /* its redlockd is gone */
void client_retire(struct world *world);
bool clients_busy(const struct world *world);

/* ---- random_fault.c ---- */

void config_random(struct world *world);
void fault_next(struct world *world);
void fault_mend(struct world *world, const struct event *event);
void fault_heal(struct world *world);
const char *fault_name(enum fault fault);

/* ---- random_check.c ---- */

void check_init(struct world *world);
void check_set(struct world *world, const struct event *event, const struct model_reply *reply);
/* an answer that carried the time was read */
void check_looked(struct world *world, unsigned proc, unsigned node, uint64_t run_at);
void check_jumped(struct world *world, unsigned node, int64_t by_us);
void check_jump_seen(struct world *world, unsigned proc, unsigned node, enum guard_clock clock);
/* before guard_time() */
void check_counted(struct world *world, unsigned proc, const struct event *event, struct op *op);
void check_granted(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);
void check_extended(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);
void check_released(struct world *world, uint16_t lease); /* from now on nobody relies on it */
void check_nothing_left(struct world *world);
const char *excuse_name(enum excuse excuse);

/* ---- random_order.c ---- */

bool is_calm(const struct world *world);   /* no fault is in force, and none has effects any more */
bool is_smooth(const struct world *world); /* nor is any message late by much */
void order_init(struct world *world);
void order_calm(struct world *world, uint64_t after_us); /* from then on */
void order_trouble(struct world *world);                 /* from now on */
void order_begin(struct world *world, unsigned proc, struct op *op);
void order_before(struct world *world, const struct event *event); /* a command is about to be carried out */
void order_after(struct world *world, const struct event *event);
void order_notified(struct op *op, unsigned node, const struct notification *notification);
void order_passed(const struct world *world, struct op *op, unsigned node);
void order_attempt(struct world *world, unsigned proc, struct op *op);
void order_granted(struct world *world, unsigned proc, const struct op *op);
void order_done(struct world *world, unsigned proc, const struct op *op, const struct redlock_result *result);
void order_watch(struct world *world);
unsigned order_waiting(const struct world *world);
void order_check_queue_empty(struct world *world, unsigned key);

/* ---- random_trial.c ---- */

void trial_alone(struct world *world);
void trial_together(struct world *world);
void trial_queue(struct world *world);
void trial_step(struct world *world, const struct event *event); /* EVENT_TRIAL */
void trial_answer(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);

/* ---- random_run.c ---- */

/* Plays one seed; true if nothing is violated. `tell`: NULL, or gets the story. */
bool world_run(struct world *world, uint64_t seed, struct figures *figures, void (*tell)(const char *line));

#endif
