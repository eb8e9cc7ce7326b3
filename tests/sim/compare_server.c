/* SPDX-License-Identifier: MIT */
/* Starting and ending a redis-server: see compare_server.h. */
#include "compare_server.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compare_store.h"
#include "compare_text.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum { START_MS = 10000, POLL_MS = 5 };

/* The table of scripts has the same order, after one that stands for none. */
_Static_assert(REDLOCK_SCRIPT_ACQUIRE == COMPARE_ACQUIRE + 1 && REDLOCK_SCRIPT_INSPECT == COMPARE_INSPECT + 1 &&
		       (int)REDLOCK_SCRIPT_EPOCH_WRITE == COMPARE_WRITE_EPOCH + 1,
	       "another order");

/* Becomes the server. */
static _Noreturn void become_server(const struct compare_server *server, const char *program, pid_t parent)
{
	const char *names[] = {program ? program : "redis-server", program ? NULL : "valkey-server"};
	char log[80];
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(127);
	snprintf(log, sizeof log, "%s/log", server->folder);
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		_exit(127);
	setenv("LD_PRELOAD", COMPARE_CLOCK_LIBRARY, 1);
	setenv("REDIS_CLOCK_FILE", server->clock, 1);
	setenv("REDIS_CLOCK_FROZEN", "1", 1);
	for (unsigned i = 0; i < 2 && names[i]; i++)
		execlp(names[i], names[i], "--port", "0", "--unixsocket", server->socket, "--dir", server->folder,
		       "--daemonize", "no", "--save", "", "--appendonly", "no", "--maxmemory", "0", "--loglevel",
		       "warning", "--enable-debug-command", "local", (char *)NULL);
	_exit(127);
}

static bool connect_to(struct compare_server *server)
{
	struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
	for (unsigned waited_ms = 0; waited_ms < START_MS; waited_ms += POLL_MS) {
		server->redis = redisConnectUnix(server->socket);
		if (server->redis && server->redis->err == 0)
			return true;
		if (server->redis)
			redisFree(server->redis);
		server->redis = NULL;
		if (waitpid(server->pid, NULL, WNOHANG) != 0) {
			server->pid = 0;
			break;
		}
		nanosleep(&pause, NULL);
	}
	fprintf(stderr,
		"no redis-server or valkey-server that starts: install one with: apt-get install redis-server\n");
	return false;
}

/* As redlockd has it: the whole text, under the name that was computed at build time. */
static bool load(struct compare_server *server, enum compare_script script)
{
	const struct script *made = compare_script_of(script);
	redisReply *reply = redisCommand(server->redis, "SCRIPT LOAD %s", made->source);
	bool ok = reply && reply->type == REDIS_REPLY_STRING && strcmp(reply->str, made->sha1) == 0;
	if (!ok)
		fprintf(stderr, "script %d: %s\n", script, reply && reply->str ? reply->str : "no answer");
	freeReplyObject(reply);
	return ok;
}

/* Redis 8 removes on its own, now and then, what ends in this very ms, although a command still sees it. */
static bool stop_removals(struct compare_server *server)
{
	redisReply *reply = redisCommand(server->redis, "DEBUG SET-ACTIVE-EXPIRE 0");
	bool ok = reply && reply->type == REDIS_REPLY_STATUS;
	freeReplyObject(reply);
	return ok;
}

static bool listen_to_all(struct compare_server *server)
{
	server->listener = redisConnectUnix(server->socket);
	if (!server->listener || server->listener->err != 0)
		return false;
	redisReply *reply = redisCommand(server->listener, "PSUBSCRIBE *");
	bool ok = reply && reply->type == REDIS_REPLY_ARRAY;
	freeReplyObject(reply);
	return ok;
}

static bool make_clock(struct compare_server *server)
{
	snprintf(server->clock, sizeof server->clock, "%s/clock", server->folder);
	int file = open(server->clock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0 || ftruncate(file, sizeof *server->now_us) != 0)
		return false;
	server->now_us = mmap(NULL, sizeof *server->now_us, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	return server->now_us != MAP_FAILED;
}

void compare_server_set_time(struct compare_server *server, uint64_t now_us)
{
	__atomic_store_n(server->now_us, (int64_t)now_us, __ATOMIC_RELAXED);
	compare_store_set_time(now_us);
}

bool compare_server_start(struct compare_server *server, const char *program, void (*on_difference)(void))
{
	const char *base = getenv("TMPDIR");
	memset(server, 0, sizeof *server);
	server->on_difference = on_difference;
	if (!base || base[0] != '/' || strlen(base) > 32)
		base = "/tmp";
	snprintf(server->folder, sizeof server->folder, "%s/sim-compare-XXXXXX", base);
	if (!mkdtemp(server->folder)) {
		perror(server->folder);
		return false;
	}
	snprintf(server->socket, sizeof server->socket, "%s/sock", server->folder);
	compare_store_start();
	if (!make_clock(server)) {
		perror(server->clock);
		return false;
	}
	compare_server_set_time(server, COMPARE_BEGIN_US);
	pid_t parent = getpid();
	fflush(NULL);
	server->pid = fork();
	if (server->pid == 0)
		become_server(server, program, parent);
	bool ok = server->pid > 0 && connect_to(server) && stop_removals(server) && listen_to_all(server);
	for (unsigned i = 0; i < COMPARE_SCRIPTS && ok; i++)
		ok = load(server, (enum compare_script)i);
	if (!ok)
		compare_server_stop(server);
	return ok;
}

void compare_server_stop(struct compare_server *server)
{
	char log[80];
	if (server->redis)
		redisFree(server->redis);
	if (server->listener)
		redisFree(server->listener);
	if (server->pid > 0) {
		kill(server->pid, SIGKILL);
		waitpid(server->pid, NULL, 0);
	}
	snprintf(log, sizeof log, "%s/log", server->folder);
	unlink(log);
	unlink(server->clock);
	compare_store_stop();
	unlink(server->socket);
	rmdir(server->folder);
	memset(server, 0, sizeof *server);
}

/* Without the lines of the protocol that count what follows. */
static void print_sent(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i += strcspn(bytes + i, "\n") + 1)
		if (!strchr("*$", bytes[i]))
			printf(" %.*s", bytes[i] == '\r' ? 2 : (int)strcspn(bytes + i, "\r\n"),
			       bytes[i] == '\r' ? "\"\"" : bytes + i);
	printf("\n");
}

static void append(struct compare_server *server, char *bytes, size_t len)
{
	if (server->tells) {
		print_sent(bytes, len);
		redisFreeCommand(bytes);
		return;
	}
	int status = redisAppendFormattedCommand(server->redis, bytes, len);
	assert(status == REDIS_OK);
	compare_store_note_command(bytes, len);
	redisFreeCommand(bytes);
}

void compare_append(struct compare_server *server, int argc, const char **argv)
{
	char *bytes;
	long long len = redisFormatCommandArgv(&bytes, argc, argv, NULL);
	assert(len > 0);
	append(server, bytes, (size_t)len);
}

void compare_send(struct compare_server *server, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	char *bytes;
	int len = redisvFormatCommand(&bytes, format, list);
	va_end(list);
	assert(len > 0);
	append(server, bytes, (size_t)len);
}

static redisReply *take_from(struct compare_server *server, redisContext *connection)
{
	void *reply = NULL;
	if (redisGetReply(connection, &reply) != REDIS_OK) {
		fprintf(stderr, "the server does not answer any more: %s\n", connection->errstr);
		compare_server_stop(server);
		exit(2);
	}
	return reply;
}

static _Noreturn void end_found(struct compare_server *server)
{
	server->on_difference();
	compare_server_stop(server);
	exit(1);
}

redisReply *compare_take(struct compare_server *server)
{
	redisReply *reply = take_from(server, server->redis);
	if (!compare_store_check(reply))
		end_found(server);
	return reply;
}

redisReply *compare_take_message(struct compare_server *server)
{
	redisReply *message = take_from(server, server->listener);
	assert(message->type == REDIS_REPLY_ARRAY && message->elements == 4); /* pmessage, pattern, channel, text */
	if (!compare_store_check_message(message))
		end_found(server);
	return message;
}
