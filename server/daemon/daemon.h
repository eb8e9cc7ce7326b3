/* SPDX-License-Identifier: MIT */
/* The parts of the program, all for the main thread unless they say otherwise. A section for each file. */
#ifndef DAEMON_H
#define DAEMON_H

#include <signal.h>
#include <sys/types.h>
#include <sys/un.h>

#include "server/config/config.h"

struct keys;
struct tls;

/* ---- worker.c: a thread with one libuv loop, which serves HTTP, one connection to each master, and timers ----
 *
 * Workers share no state of locks, so two workers in a process are like two replicas. They share counters, the data of
 * /stats, the log, the limits of addresses and keys, and certificates. */

struct worker;

/* Starts the thread of worker `index`. `listeners` are its own descriptors, in the order of options->listen; the caller
 * closes them after worker_join(). Takes references to `tls` and `keys`, which may be NULL. *options outlives the
 * worker. Ends the process if there are too few descriptors, threads or memory (see the log). */
struct worker *worker_start(size_t index, const struct options *options, const int listeners[], struct tls *tls,
			    struct keys *keys);

/* Waits until the worker serves; before that it tries all masters once. False: the masters cannot be used together (see
 * the log), and the worker has ended. */
bool worker_wait_serving(struct worker *worker) __attribute__((warn_unused_result));

/* From any thread: starts the drain; then the worker ends. The worker answers for at least `quiet_ms`, so that load
 * balancers see /readyz at 503. */
void worker_drain(struct worker *worker, uint32_t quiet_ms);

/* From any thread: sets the certificate of new connections and the keys of new requests (references are taken), and the
 * addresses and passwords of all masters (copied). NULL: no change. */
void worker_reload(struct worker *worker, struct tls *tls, struct keys *keys, const struct address masters[]);

/* From any thread: makes the loop run once; worker_loop_ran(): true if it has run since. A loop that hangs has not. */
void worker_ping(struct worker *worker);
bool worker_loop_ran(struct worker *worker);

void worker_join(struct worker *worker);

/* Frees the worker. Call it after worker_join() of every worker: it closes descriptors, and another thread could get
 * their numbers. */
void worker_free(struct worker *worker);

/* ---- dev_masters.c: the private masters of --dev ----
 *
 * redis-server (else valkey-server) processes on Unix sockets in a temporary folder. Processes and folder are removed
 * soon after redlockd ends, also after kill -9. */

enum { DEV_MASTERS_FOLDER_MAX = 96 };

struct dev_masters {
	uint32_t count;
	pid_t servers[OPTIONS_MASTERS_MAX], sweeper; /* 0: not started, or ended and waited for */
	int alive_fd;                                /* the sweeper waits for its end */
	char folder[DEV_MASTERS_FOLDER_MAX];
};

/* Starts `count` (1 … OPTIONS_MASTERS_MAX) masters, waits until each listens, at most 5 s, and writes their addresses
 * into options->masters[]. False: a message, and nothing is left. Call it in the main thread, before any other exists:
 * it forks. */
bool dev_masters_start(struct dev_masters *dev, uint32_t count, struct options *options, char *message, size_t size)
	__attribute__((warn_unused_result));

/* Ends the masters and waits until they have ended and the folder is removed. */
void dev_masters_stop(struct dev_masters *dev);

/* ---- listen.c: listening sockets, TCP over IPv4 and IPv6, and Unix sockets ----
 *
 * For the start and the end of the program: names are resolved with a blocking getaddrinfo(). */

/* Opens a listening socket, non-blocking and close-on-exec. With `reuse_port` several sockets may listen on one TCP
 * port, one for each worker; Unix sockets do not support that. If a name has several addresses, the first that works is
 * used. A Unix socket file on which nobody listens is replaced. Its mode is 0660. Returns the descriptor, or -1 and a
 * message that names the address. */
int listen_open(const struct address *address, bool reuse_port, char *message, size_t size)
	__attribute__((warn_unused_result));

/* Writes the address in use: "127.0.0.1:43211", "[::1]:8080", "unix:/path". */
void listen_shown(int fd, char *shown, size_t size);

/* Finds out whether only this machine can reach the address: a Unix socket, or a name whose addresses are all loopback.
 * With `resolve` asks the resolver (blocking); else names count as local until the start resolves them. False: a
 * message that names the address. */
bool listen_find_local(const struct address *address, bool resolve, bool *ret_local, char *message, size_t size)
	__attribute__((warn_unused_result));

/* The risk of a listener for its clients. */
enum listen_danger {
	LISTEN_SAFE,
	LISTEN_READABLE, /* other machines can reach it, and keys are sent without encryption */
	LISTEN_OPEN      /* other machines can reach it, and no authentication is required */
};
enum listen_danger listen_danger(bool local, bool tls, bool has_keys, bool has_client_ca);

/* The port in use; 0 for a Unix socket. */
uint16_t listen_port(int fd);

/* Closes it; removes the file of a Unix socket. */
void listen_close(const struct address *address, int fd);

/* ---- reload.c: the files that SIGHUP reads again: the certificate with its key and authorities, the keys file, and
 * the files of the masters ----
 *
 * Each of the three is replaced completely or not at all: if a file is bad, the old one stays in use, and the log
 * reports it. No connection is dropped but those to a master whose address has changed: open connections keep their
 * certificate and password; authorities of clients and keys apply at once, also to requests under way. */

struct reload {
	struct tls *tls;         /* a reference; NULL: no --tls-cert */
	struct keys *keys;       /* a reference; NULL: no --keys */
	uint64_t issuers_mark;   /* keys_files_mark() when they were read last, also without success */
	struct options *masters; /* NULL until SIGHUP: as given, but with the masters that were read last */
};

/* Reads all files for the first time, except those of the masters, which were read before. False: a message of one
 * line; then nothing needs to be freed. */
bool reload_init(struct reload *reload, const struct options *options, char *message, size_t size)
	__attribute__((warn_unused_result));
void reload_fini(struct reload *reload);

/* Reads all files again and passes the good ones to the workers. */
void reload_again(struct reload *reload, const struct options *options, struct worker *const workers[], size_t count);

/* Reads the files of issuers again if one of them has changed. Call it every few seconds. */
void reload_issuers(struct reload *reload, struct worker *const workers[], size_t count);

/* ---- show.c: the line in the log when the program serves, --check, and the first steps of --dev. No secrets. ---- */

/* Logs that the program serves: its listeners, its masters, and the options that differ from their defaults.
 * `listeners`: the descriptors of one worker, in the order of options->listen. */
void show_start(const struct options *options, const int listeners[]);

/* Prints commands to try, and the address of the status page. `tls`: the certificate of https listeners; may be
 * NULL. */
void show_first_steps(const struct options *options, const struct tls *tls);

/* Prints what would run. */
void show_check(const struct options *options, const struct reload *reload);

/* ---- watchdog.c: the main thread while the workers serve ----
 *
 * It waits for signals and adds up the figures of GET /stats every two seconds. If systemd started the program with
 * Type=notify (sd_notify(3)), it sends messages to it: ready, reloading, stopping, how many masters vote, and that the
 * program is alive. The last one is sent only if every worker's loop has run since the previous one. So systemd
 * restarts a program with a hung loop. */

struct watchdog {
	struct sockaddr_un manager;
	socklen_t manager_len; /* 0: no service manager, nothing is sent */
	uint64_t interval_us;  /* the longest time between two messages that the program is alive; 0: none are wanted */
	struct worker *const *workers;
	size_t worker_count, master_count;
	uint64_t look_at_us; /* when to check the loops again */
	uint64_t alive_us;   /* time of the last message */
	size_t voting;       /* as last reported */
	bool stuck;          /* a loop hangs, and that was logged */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the environment: they are not for child
 * processes. */
void watchdog_init(struct watchdog *watchdog);

/* Reports READY. All arguments outlive the watchdog. */
void watchdog_begin(struct watchdog *watchdog, struct worker *const workers[], size_t worker_count,
		    size_t master_count);

/* Waits for one of the signals in *waited, which are blocked, and returns its number; *ret_info describes the
 * sender. 0: none came within a pause of two seconds at most. */
int watchdog_wait(struct watchdog *watchdog, const sigset_t *waited, siginfo_t *ret_info);

/* Before and after a reload. */
void watchdog_reloading(struct watchdog *watchdog);
void watchdog_reloaded(struct watchdog *watchdog);

/* Reports STOPPING. */
void watchdog_end(struct watchdog *watchdog);

#endif
