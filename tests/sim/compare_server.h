/* SPDX-License-Identifier: MIT */
/* A real redis-server on a Unix socket in a temporary folder, with the scripts that redlockd sends loaded. It ends with
 * this program in every case. A second connection receives what is published. */
#ifndef COMPARE_SERVER_H
#define COMPARE_SERVER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum compare_script {
	COMPARE_ACQUIRE,
	COMPARE_RAISE,
	COMPARE_EXTEND,
	COMPARE_RELEASE,
	COMPARE_INSPECT,
	COMPARE_EPOCH,
	COMPARE_QUARANTINE,
	COMPARE_FENCES,
	COMPARE_WRITE_EPOCH,
	COMPARE_ACQUIRE_SET,
	COMPARE_RAISE_SET,
	COMPARE_EXTEND_SET,
	COMPARE_RELEASE_SET,
	COMPARE_ACQUIRE_SHARED,
	COMPARE_SCRIPTS
};

struct compare_server {
	pid_t pid;
	char folder[64], socket[80], clock[80];
	int64_t *now_us; /* of its clock, which stands still in between */
	redisContext *redis, *listener;
	void (*on_difference)(void);
	bool tells; /* prints what it should send, and no server is there */
};

/* NULL `program`: redis-server or valkey-server from PATH. False with a message on stderr if there is none or it does
 * not start. `on_difference`: called before the program ends because the store has given another answer. */
bool compare_server_start(struct compare_server *server, const char *program, void (*on_difference)(void));
void compare_server_stop(struct compare_server *server);
#define COMPARE_BEGIN_US UINT64_C(1800000000000000)
/* The time of the server and of the store; no answer is outstanding. */
void compare_server_set_time(struct compare_server *server, uint64_t now_us);

/* Sends one command more down the pipeline. */
void compare_append(struct compare_server *server, int argc, const char **argv);
/* A format of redisCommand(). */
void compare_send(struct compare_server *server, const char *format, ...);
/* The next answer; free it. Without one the program ends. */
redisReply *compare_take(struct compare_server *server);
/* The next message on any channel: its last two elements are channel and text. Waits for it. Free it. */
redisReply *compare_take_message(struct compare_server *server);

#endif
