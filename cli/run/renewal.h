/* The life of a lease that is held: when to extend it, when to give it up, when to end the command. Pure: a state
 * machine of times (CLOCK_BOOTTIME) and answers, without processes.
 *
 *   0        1/3 of the validity                     terminate          kill       deadline
 *   |-----------|--------------------------------------|-------------------|----------|
 *   sent        ASK; if that fails: ASK others,        TERMINATE           KILL       somebody else may
 *               pause, ASK again ...                   |<- --kill-after -->|<-margin->| hold the lock
 *
 * An extension moves all times: they count from before its request was sent. It never brings the deadline nearer. */
#ifndef RENEWAL_H
#define RENEWAL_H

#include <stddef.h>
#include <stdint.h>

struct renewal_config {
	uint64_t ttl_us, kill_after_us, timeout_us;
	size_t servers;
};

enum renewal_state {
	RENEWAL_HOLDING, /* until renew_us */
	RENEWAL_ASKING,  /* a request is under way */
	RENEWAL_PAUSING, /* all servers failed; the next try is at renew_us */
	RENEWAL_ENDING,  /* SIGTERM was sent; SIGKILL follows at kill_us */
	RENEWAL_KILLING
};

enum renewal_why {
	RENEWAL_WHY_NONE,
	RENEWAL_WHY_LOST,        /* a server answered so: somebody else holds it, or nobody */
	RENEWAL_WHY_UNREACHABLE, /* it could not be extended in time */
	RENEWAL_WHY_BOUND,       /* the server extends it no further: its --max-hold-ms */
	RENEWAL_WHY_LATE,        /* not tried in time: the machine slept, or redlockctl was stopped */
	RENEWAL_WHY_REQUESTED    /* renewal_end() was called */
};

enum renewal_action { RENEWAL_NOTHING, RENEWAL_ASK, RENEWAL_TERMINATE, RENEWAL_KILL };

struct renewal {
	struct renewal_config config;
	enum renewal_state state;
	enum renewal_why why;
	size_t server;     /* the one to ask */
	unsigned failures; /* in a row */
	uint64_t deadline_us, renew_us, kill_us;
};

void renewal_init(struct renewal *renewal, const struct renewal_config *config, size_t server, uint64_t sent_us,
		  uint64_t validity_us);

/* The events. Each returns what to do now; renewal_next_us() is the latest time for the next renewal_time(). */
enum renewal_action renewal_time(struct renewal *renewal, uint64_t now_us);
void renewal_extended(struct renewal *renewal, uint64_t sent_us, uint64_t validity_us);
enum renewal_action renewal_failed(struct renewal *renewal, uint32_t random, uint64_t now_us);
enum renewal_action renewal_lost(struct renewal *renewal, uint64_t now_us);
enum renewal_action renewal_end(struct renewal *renewal, uint64_t now_us);

uint64_t renewal_next_us(const struct renewal *renewal, uint64_t now_us);

/* The time limit of the next request: all servers are asked before the command gets SIGTERM. */
uint64_t renewal_timeout_us(const struct renewal *renewal, uint64_t now_us);

/* When the command must get SIGTERM, and SIGKILL. */
uint64_t renewal_terminate_us(const struct renewal *renewal);
uint64_t renewal_kill_us(const struct renewal *renewal);

/* Between SIGKILL and the deadline: a process that is killed takes a moment to end. */
uint64_t renewal_margin_us(const struct renewal *renewal);

#endif
