/* The program: options, private masters for --dev, listening sockets, workers; then it waits for signals.
 *
 * The main thread owns everything that outlives the workers: options, sockets, metrics. While they run it reads the
 * files of SIGHUP again (reload.h) and watches the loops (watchdog.h). Exit status: 0 after SIGTERM or SIGINT, 2 for a
 * mistake in the configuration, 1 for another failure at the start. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "api/calls/calls.h"
#include "api/http/http.h"
#include "dev_masters.h"
#include "listen.h"
#include "reload.h"
#include "server/base/base.h"
#include "server/config/config.h"
#include "server/masters/masters.h"
#include "server/metrics/metrics.h"
#include "systemd.h"
#include "watchdog.h"
#include "worker.h"

extern char **environ;

enum { EXIT_MISCONFIGURED = 2, MESSAGE_MAX = 1024, QUIET_MS = 1000 };

struct program {
	struct options options;
	struct dev_masters dev;
	struct reload reload;
	struct systemd systemd;
	struct watchdog watchdog;
	bool had_terminal, hangups_ignored;   /* at the start */
	int (*listeners)[OPTIONS_LISTEN_MAX]; /* per worker */
	struct worker **workers;
	size_t running;
};

/* Keys, certificates and passwords are in memory and some in the environment: no core dump, and no other process of the
 * same user may read them (ptrace, /proc/PID/mem, environ, fd). */
static void keep_secrets(void)
{
	const struct rlimit none = {0, 0};
	prctl(PR_SET_DUMPABLE, 0);
	setrlimit(RLIMIT_CORE, &none);
}

static void complain(const char *message)
{
	fprintf(stderr, "redlockd: %s\n", message);
}

/* ---- before the workers ---- */

/* Only the main thread receives signals, by sigtimedwait(); a closed connection is an error value, not a signal. */
static void set_up_signals(sigset_t *ret_waited)
{
	sigemptyset(ret_waited);
	sigaddset(ret_waited, SIGTERM);
	sigaddset(ret_waited, SIGINT);
	sigaddset(ret_waited, SIGHUP); /* the terminal was closed, or: read the files again */
	int failed = pthread_sigmask(SIG_BLOCK, ret_waited, NULL);
	assert(!failed);
	signal(SIGPIPE, SIG_IGN);
}

/* Raises the limit to its maximum: --max-connections is the bound that counts. */
static void raise_descriptor_limit(const struct options *options)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	/* two for each MHD daemon of 512 connections (api/http/daemon_pool.c) */
	if (limit.rlim_cur >= options->max_connections + options->max_connections / 256U + 64U + 32U * options->workers)
		return;
	log_begin(LOG_WARN, "few-descriptors");
	log_num("limit", (int64_t)limit.rlim_cur);
	log_num("max_connections", options->max_connections);
	log_end();
}

static void set_up_metrics(const struct options *options)
{
	assert(options->workers > 0 && options->master_count > 0);
	const char *addresses[OPTIONS_MASTERS_MAX];
	for (size_t i = 0; i < options->master_count; i++)
		addresses[i] = options->masters[i].shown;
	metrics_init(options->workers, options->master_count, addresses);
	stats_init(options->master_count, clock_now_us());
	calls_setup(options->workers);
}

static void log_start(const struct options *options)
{
	log_begin(LOG_INFO, "start");
	log_text("version", build_version);
	log_text("commit", build_commit);
	log_num("pid", getpid());
	log_num("masters", (int64_t)options->master_count);
	log_num("workers", options->workers);
	log_end();
	size_t count;
	const struct build_library *libraries = build_libraries(&count);
	log_begin(LOG_INFO, "libraries");
	for (size_t i = 0; i < count; i++)
		log_text(libraries[i].name, libraries[i].version);
	log_text("libmicrohttpd_note", api_library_note());
	log_end();
	if (options->master_count % 2 == 0) {
		log_begin(LOG_WARN, "even-masters");
		log_num("masters", (int64_t)options->master_count);
		log_text("note", "an even number of masters survives no more failures than one master less");
		log_end();
	}
	log_flush();
}

static void warn_of_listener(const struct listen_address *address, const char *event, const char *note)
{
	log_begin(LOG_WARN, event);
	log_text("host", address->host);
	log_num("port", address->port);
	log_text("note", note);
	log_end();
}

/* A listener that is open to the network must be intended. Returns an exit status, 0 to go on. */
static int check_danger(const struct options *options, char *message, size_t size)
{
	assert(options->listen_count > 0);
	for (size_t i = 0; i < options->listen_count; i++) {
		const struct listen_address *address = &options->listen[i];
		bool local;
		if (!listen_find_local(address, &local, message, size))
			return EXIT_FAILURE;
		switch (listen_danger(local, address->scheme == LISTEN_HTTPS, options->keys[0],
				      options->tls_client_ca[0])) {
		case LISTEN_OPEN:
			if (!options->insecure) {
				snprintf(message, size,
					 "--listen: %s is not a loopback address, and whoever reaches it could take "
					 "and break locks: give --keys, or --tls-cert "
					 "with --tls-client-ca; --insecure starts without",
					 address->host);
				return EXIT_MISCONFIGURED;
			}
			warn_of_listener(address, "listener-open",
					 "--insecure: whoever reaches this address may take and break locks");
			break;
		case LISTEN_READABLE:
			warn_of_listener(address, "keys-in-the-clear",
					 "keys and tokens go over the network without encryption: give --tls-cert");
			break;
		case LISTEN_SAFE: break;
		}
	}
	return EXIT_SUCCESS;
}

/* SO_REUSEPORT lets several workers listen on one port, but also a second redlockd that was started by mistake. So the
 * port is first opened without it. */
static bool check_port_is_free(const struct options *options, const struct listen_address *address, char *message,
			       size_t size)
{
	if (options->workers == 1 || address->is_unix || address->port == 0)
		return true;
	int fd = listen_open(address, false, message, size);
	if (fd >= 0)
		listen_close(address, fd);
	return fd >= 0;
}

/* Each worker has a listener of its own for TCP, so that the kernel spreads connections; a Unix socket is one for
 * all. */
static bool open_listeners(struct program *program, char *message, size_t size)
{
	assert(!program->listeners);
	struct options *options = &program->options;
	program->listeners = calloc(options->workers, sizeof *program->listeners);
	if (!program->listeners) {
		snprintf(message, size, "out of memory");
		return false;
	}
	for (size_t i = 0; i < options->listen_count; i++) {
		struct listen_address *address = &options->listen[i];
		if (!check_port_is_free(options, address, message, size))
			return false;
		for (size_t w = 0; w < options->workers; w++) {
			bool shared = w > 0 && address->is_unix;
			int fd = shared ? program->listeners[0][i]
					: listen_open(address, options->workers > 1, message, size);
			if (fd < 0)
				return false;
			program->listeners[w][i] = fd;
			if (!address->is_unix)
				/* port 0: all workers use the port that the first worker got */
				address->port = listen_port(fd);
		}
	}
	return true;
}

static void close_listeners(struct program *program)
{
	const struct options *options = &program->options;
	for (size_t i = 0; program->listeners && i < options->listen_count; i++)
		for (size_t w = 0; w < options->workers; w++)
			if (program->listeners[w][i] > 0 && (w == 0 || !options->listen[i].is_unix))
				listen_close(&options->listen[i], program->listeners[w][i]);
	free(program->listeners);
}

/* ---- workers ---- */

static void drain_workers(struct program *program, uint32_t quiet_ms)
{
	for (size_t i = 0; i < program->running; i++)
		worker_drain(program->workers[i], quiet_ms);
}

/* Starts all and waits until they serve. Returns an exit status, 0 if they do. */
static int start_workers(struct program *program)
{
	assert(!program->workers && program->running == 0);
	const struct options *options = &program->options;
	program->workers = calloc(options->workers, sizeof *program->workers);
	for (size_t i = 0; program->workers && i < options->workers; i++) {
		program->workers[i] = worker_start(i, options, program->listeners[i], program->reload.tls,
						   program->reload.keys);
		if (!program->workers[i])
			break;
		program->running++;
	}
	int status = program->running == options->workers ? EXIT_SUCCESS : EXIT_FAILURE;
	for (size_t i = 0; i < program->running; i++) {
		enum worker_state state = worker_wait_started(program->workers[i]);
		if (state == WORKER_MISCONFIGURED)
			status = EXIT_MISCONFIGURED;
		else if (state != WORKER_SERVING && status == EXIT_SUCCESS)
			status = EXIT_FAILURE;
	}
	return status;
}

static void join_workers(struct program *program)
{
	assert(program->running <= program->options.workers);
	for (size_t i = 0; i < program->running; i++)
		worker_join(program->workers[i]);
	for (size_t i = 0; i < program->running; i++)
		worker_free(program->workers[i]);
	free(program->workers);
}

static void log_addresses(const struct program *program)
{
	assert(program->listeners);
	const struct options *options = &program->options;
	for (size_t i = 0; i < options->listen_count; i++) {
		char shown[300] = "https://";
		size_t len = options->listen[i].scheme == LISTEN_HTTPS ? strlen(shown) : 0;
		listen_shown(program->listeners[0][i], shown + len, sizeof shown - len);
		log_begin(LOG_INFO, "listening");
		log_text("address", shown);
		log_end();
	}
	log_flush();
}

/* For --dev: three lines to paste. */
static void print_first_steps(const struct program *program)
{
	const struct listen_address *address = &program->options.listen[0];
	char to[OPTIONS_PATH_MAX + 400];
	int len = 0;
	if (address->scheme == LISTEN_HTTPS)
		len = snprintf(to, sizeof to, "--cacert %s https", program->options.tls_cert);
	else if (!address->is_unix)
		len = snprintf(to, sizeof to, "http");
	if (address->is_unix)
		snprintf(to, sizeof to, "--unix-socket %s http://localhost", address->host);
	else
		snprintf(to + len, sizeof to - (size_t)len, strchr(address->host, ':') ? "://[%s]:%u" : "://%s:%u",
			 address->host, address->port);
	printf("\nredlockd runs on %u private Redis servers. Try, in another terminal:\n\n", program->options.dev);
	printf("  curl -i %s/locks -d '{\"resource\":\"hello\",\"ttl_ms\":60000,\"owner\":\"me\"}'\n", to);
	printf("  curl -i %s/locks/hello\n", to);
	printf("  curl -i %s/masters\n\n", to);
	printf("Ctrl-C ends it all.\n\n");
	fflush(stdout);
}

/* A second Ctrl-C, or the end of --drain-ms with something that cannot be interrupted, such as a name server that does
 * not answer. Leases run out by themselves, private masters end with the program. */
static void end_at_once(int number)
{
	_exit(number == SIGALRM ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void bound_the_end(const sigset_t *waited, int first, uint32_t drain_ms)
{
	assert(first == SIGTERM || first == SIGINT || first == SIGHUP);
	uint32_t bound_ms = drain_ms > 0 ? drain_ms : 1;
	struct sigaction action = {.sa_handler = end_at_once};
	struct itimerval timer = {
		.it_value = {.tv_sec = bound_ms / 1000, .tv_usec = (suseconds_t)(bound_ms % 1000) * 1000}};
	sigaction(SIGALRM, &action, NULL);
	if (first == SIGINT)
		sigaction(SIGINT, &action, NULL);
	else
		signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN); /* a second SIGTERM changes nothing */
	signal(SIGHUP, SIG_IGN);
	setitimer(ITIMER_REAL, &timer, NULL);
	pthread_sigmask(SIG_UNBLOCK, waited, NULL);
}

static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool ignores_hangups(void)
{
	struct sigaction action;
	return sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* SIGHUP has two meanings: the terminal was closed and its programs are to end, or an operator has changed files. The
 * rule is in the manual page (SIGNALS). For a closed terminal the kernel sends it, or the leader of the session, a
 * shell, to its jobs; any other sender means the files. */
static bool is_hangup(const struct program *program, const siginfo_t *info)
{
	assert(info->si_signo == SIGHUP);
	if (program->hangups_ignored)
		return false;
	if (program->options.dev)
		return true;
	bool from_terminal = info->si_code == SI_KERNEL || (info->si_code == SI_USER && info->si_pid == getsid(0));
	return from_terminal && program->had_terminal && !has_terminal();
}

/* SIGTERM: /readyz answers 503 for a while, then the program ends. SIGINT, or the end of the terminal: it ends as soon
 * as nothing is in flight. */
static void wait_for_the_end(struct program *program, const sigset_t *waited)
{
	assert(program->running == program->options.workers);
	uint32_t drain_ms = program->options.drain_ms;
	siginfo_t info;
	int number;
	while ((number = watchdog_wait(&program->watchdog, waited, &info)) == SIGHUP && !is_hangup(program, &info)) {
		watchdog_reloading(&program->watchdog);
		reload_again(&program->reload, &program->options, program->workers, program->running);
		watchdog_reloaded(&program->watchdog);
	}
	watchdog_end(&program->watchdog);
	log_begin(LOG_INFO, "draining");
	log_text("signal", number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "SIGHUP");
	log_num("drain_ms", drain_ms);
	log_end();
	log_flush();
	drain_workers(program, number == SIGTERM ? (drain_ms < QUIET_MS ? drain_ms : QUIET_MS) : 0);
	bound_the_end(waited, number, drain_ms);
}

static int serve(struct program *program, const sigset_t *waited)
{
	assert(program->listeners && waited);
	int status = start_workers(program);
	if (status == EXIT_SUCCESS) {
		log_addresses(program);
		if (program->options.dev)
			print_first_steps(program);
		watchdog_begin(&program->watchdog, &program->systemd, program->workers, program->running,
			       program->options.master_count);
		wait_for_the_end(program, waited);
	} else {
		drain_workers(program, 0);
	}
	join_workers(program);
	return status;
}

static int run(struct program *program)
{
	char message[MESSAGE_MAX];
	sigset_t waited;
	struct options *options = &program->options;
	log_setup(options->log_level, options->log_format);
	systemd_init(&program->systemd);
	program->had_terminal = has_terminal();
	program->hangups_ignored = ignores_hangups();
	int status = check_danger(options, message, sizeof message);
	if (status != EXIT_SUCCESS) {
		complain(message);
		return status;
	}
	if (!master_tls_load(options, message, sizeof message) ||
	    !reload_init(&program->reload, options, message, sizeof message)) {
		complain(message);
		return EXIT_MISCONFIGURED;
	}
	if (options->dev && !dev_masters_start(&program->dev, options->dev, options, message, sizeof message)) {
		complain(message);
		return EXIT_FAILURE;
	}
	set_up_signals(&waited);
	raise_descriptor_limit(options);
	set_up_metrics(options);
	log_start(options);
	status = EXIT_FAILURE;
	if (open_listeners(program, message, sizeof message))
		status = serve(program, &waited);
	else
		complain(message);
	close_listeners(program);
	reload_fini(&program->reload);
	master_tls_unload();
	if (options->dev)
		dev_masters_stop(&program->dev);
	log_begin(status ? LOG_ERROR : LOG_INFO, "end");
	log_num("status", status);
	log_end();
	log_fini();
	return status;
}

int main(int argc, char *argv[])
{
	static struct program program;
	char message[MESSAGE_MAX];
	enum options_action action;
	keep_secrets();
	/* for the test that compares openapi.yaml with the code */
	if (argc == 2 && strcmp(argv[1], "--help=routes") == 0) {
		calls_print_routes(stdout);
		return EXIT_SUCCESS;
	}
	if (!options_load(argc, argv, environ, &program.options, &action, message, sizeof message)) {
		complain(message);
		return EXIT_MISCONFIGURED;
	}
	return action == OPTIONS_SHOWN ? EXIT_SUCCESS : run(&program);
}
