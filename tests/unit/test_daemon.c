/* SPDX-License-Identifier: MIT */
/* One worker with a private master, watched as by main(): it serves, drains, takes what is reloaded, and the service
 * manager gets its messages. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/auth/auth.h"
#include "api/http/http.h"
#include "options_given.h"
#include "server/base/base.h"
#include "server/daemon/daemon.h"
#include "server/metrics/metrics.h"
#include "suite.h"

#define FIRST "first-key-0123456789"
#define SECOND "second-key-0123456789"
#define FIRST_HASH "ed60d7524db22ad19f689c46a00a2727410202cbc0741c6dd703bab53473c348"
#define SECOND_HASH "cdc8bf8583da505da0340b103c182d172408e4a68698993e485475e2f7e74b36"

static char folder[64], socket_path[80], text_path[80], manager_path[80], logged[65536];
static struct dev_masters dev;
static struct reload reload;
static struct watchdog watchdog;
static struct worker *worker;
static int listener, log_file, manager;
static unsigned stuck_looks; /* how often a loop has been looked at that does not turn; 0: all turn */

bool __real_worker_loop_ran(struct worker *looked_at);
bool __wrap_worker_loop_ran(struct worker *looked_at);

bool __wrap_worker_loop_ran(struct worker *looked_at)
{
	if (stuck_looks == 0)
		return __real_worker_loop_ran(looked_at);
	if (++stuck_looks == 4)
		raise(SIGTERM); /* enough: watchdog_wait() returns it */
	return false;
}

/* Reads all that was logged. */
static const char *read_log(void)
{
	log_flush();
	ssize_t len = pread(log_file, logged, sizeof logged - 1, 0);
	ck_assert_int_ge(len, 0);
	logged[len] = '\0';
	return logged;
}

static void write_text(const char *text)
{
	int fd = open(text_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_gt(dprintf(fd, "%s", text), 0);
	close(fd);
}

static void write_key(const char *hash)
{
	char text[300];
	snprintf(text, sizeof text,
		 "{\"keys\":[{\"name\":\"a\",\"sha256\":\"%s\",\"prefixes\":[\"\"],\"rights\":[\"acquire\"]}]}", hash);
	write_text(text);
}

static void set_up(void)
{
	options_set_up();
	strcpy(folder, "/tmp/redlockd-unit-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
	snprintf(text_path, sizeof text_path, "%s/keys", folder);
	snprintf(manager_path, sizeof manager_path, "%s/manager", folder);
	log_file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_eq(dup2(log_file, STDERR_FILENO), STDERR_FILENO);
	log_setup(LOG_INFO, LOG_LOGFMT);
}

static void tear_down(void)
{
	unlink(manager_path);
	unlink(text_path);
	ck_assert_msg(rmdir(folder) == 0, "something is left in %s", folder);
	options_tear_down();
}

FIXTURE(set_up, tear_down)

/* As main() does it. Returns when the master votes: a worker may serve before. */
static void serve_with_master(void)
{
	give_flag("--listen=unix:%s", socket_path);
	give_flag("--dev=1");
	give_flag("--workers=1");
	if (access(text_path, F_OK) == 0)
		give_flag("--keys=%s", text_path);
	assert_loads();
	ck_assert_msg(reload_init(&reload, &options, message, sizeof message), "%s", message);
	ck_assert_msg(dev_masters_start(&dev, 1, &options, message, sizeof message), "%s", message);
	metrics_init(1, 1, (const char *[]){options.masters[0].shown});
	stats_init(clock_now_us());
	listener = listen_open(&options.listen[0], false, message, sizeof message);
	ck_assert_msg(listener >= 0, "%s", message);
	worker = worker_start(0, &options, &listener, reload.tls, reload.keys);
	ck_assert(worker_wait_serving(worker));
	while (metrics_voting() == 0)
		sched_yield();
}

static void end_worker(void)
{
	worker_drain(worker, 0);
	worker_join(worker);
	worker_free(worker);
	listen_close(&options.listen[0], listener);
	reload_fini(&reload);
	dev_masters_stop(&dev);
}

/* Sends a request, and returns the status of the answer. */
static int ask_worker(const char *method, const char *path, const char *key, const char *body)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	char answer[8192] = "";
	size_t len = 0;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), status = 0;
	strcpy(name.sun_path, socket_path);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
	dprintf(fd, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n", method, path,
		key);
	dprintf(fd, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
	for (ssize_t got; (got = read(fd, answer + len, sizeof answer - 1 - len)) > 0;)
		len += (size_t)got;
	close(fd);
	ck_assert_msg(sscanf(answer, "HTTP/1.1 %d", &status) == 1, "%s %s: %s", method, path, answer);
	return status;
}

static int acquire_with(const char *key, const char *resource)
{
	char body[100];
	snprintf(body, sizeof body, "{\"resource\":\"%s\",\"ttl_ms\":60000}", resource);
	return ask_worker("POST", "/locks", key, body);
}

TEST(a_worker_serves_and_drains)
{
	serve_with_master();
	ck_assert_int_eq(acquire_with("", "a"), 201);
	ck_assert_int_eq(acquire_with("", "a"), 409);
	ck_assert_int_eq(ask_worker("GET", "/readyz", "", ""), 200);
	worker_drain(worker, UINT32_MAX); /* load balancers see it for as long */
	while (ask_worker("GET", "/readyz", "", "") == 200)
		;
	ck_assert_int_eq(ask_worker("GET", "/readyz", "", ""), 503);
	ck_assert_int_eq(acquire_with("", "b"), 503);
	end_worker();
}

TEST(keys_are_reloaded_or_stay)
{
	write_key(FIRST_HASH);
	serve_with_master();
	ck_assert_int_eq(acquire_with(SECOND, "a"), 401);
	ck_assert_int_eq(acquire_with(FIRST, "a"), 201);
	write_key(SECOND_HASH);
	reload_again(&reload, &options, &worker, 1);
	ck_assert_ptr_nonnull(strstr(read_log(), "event=keys-reloaded"));
	while (acquire_with(FIRST, "a") != 401) /* the worker applies it when its loop turns */
		;
	ck_assert_int_eq(acquire_with(SECOND, "b"), 201);
	write_text("{");
	reload_again(&reload, &options, &worker, 1);
	ck_assert_ptr_nonnull(strstr(read_log(), "event=keys-reload-failed"));
	ck_assert_int_eq(acquire_with(SECOND, "c"), 201);
	end_worker();
}

TEST(an_address_of_a_master_is_reloaded)
{
	write_text("redis://127.0.0.1:1\n");
	give_flag("--masters-file=%s", text_path);
	assert_loads();
	metrics_init(1, 1, (const char *[]){"redis://127.0.0.1:1"});
	ck_assert(reload_init(&reload, &options, message, sizeof message));
	write_text("redis://127.0.0.1:2\n");
	reload_again(&reload, &options, NULL, 0);
	ck_assert_ptr_nonnull(strstr(read_log(), "moved=\"redis://127.0.0.1:1 -> redis://127.0.0.1:2\""));
	write_text("redis://\n");
	reload_again(&reload, &options, NULL, 0);
	ck_assert_ptr_nonnull(strstr(read_log(), "event=masters-reload-failed"));
	ck_assert_str_eq(reload.masters->masters[0].shown, "redis://127.0.0.1:2");
	reload_fini(&reload);
}

/* ---- the service manager ---- */

/* Reads its next message. */
static const char *next_message(void)
{
	static char text[600];
	ssize_t len = recv(manager, text, sizeof text - 1, 0);
	ck_assert_int_gt(len, 0);
	text[len] = '\0';
	return text;
}

static void start_manager(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	strcpy(name.sun_path, manager_path);
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(manager, (struct sockaddr *)&name, sizeof name), 0);
	setenv("NOTIFY_SOCKET", manager_path, 1);
	setenv("WATCHDOG_USEC", "20000", 1);
	unsetenv("WATCHDOG_PID");
	watchdog_init(&watchdog);
	ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
	ck_assert_ptr_null(getenv("WATCHDOG_USEC"));
}

static void *hang_up_when_alive(void *arg)
{
	while (strcmp(next_message(), "WATCHDOG=1") != 0)
		;
	kill(getpid(), SIGHUP);
	return arg;
}

static void block_signals(sigset_t *ret_signals)
{
	sigemptyset(ret_signals);
	sigaddset(ret_signals, SIGHUP);
	sigaddset(ret_signals, SIGTERM);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, ret_signals, NULL), 0);
}

static int wait_for_signal(siginfo_t *info, const sigset_t *signals)
{
	int number = 0;
	while (number == 0)
		number = watchdog_wait(&watchdog, signals, info);
	return number;
}

TEST(the_service_manager_hears_of_every_state)
{
	sigset_t signals;
	siginfo_t info;
	pthread_t thread;
	start_manager();
	block_signals(&signals);
	serve_with_master();
	watchdog_begin(&watchdog, &worker, 1, 1);
	ck_assert_str_eq(next_message(), "READY=1\nSTATUS=1 of 1 masters voting\n");
	ck_assert_int_eq(pthread_create(&thread, NULL, hang_up_when_alive, NULL), 0);
	ck_assert_int_eq(wait_for_signal(&info, &signals), SIGHUP);
	pthread_join(thread, NULL);
	watchdog_reloading(&watchdog);
	watchdog_reloaded(&watchdog);
	watchdog_end(&watchdog);
	const char *text = next_message();
	while (strcmp(text, "WATCHDOG=1") == 0)
		text = next_message();
	ck_assert_msg(strncmp(text, "RELOADING=1\nMONOTONIC_USEC=", 27) == 0, "%s", text);
	ck_assert_str_eq(next_message(), "READY=1\nSTATUS=1 of 1 masters voting\n");
	ck_assert_str_eq(next_message(), "STOPPING=1\nSTATUS=draining");
	end_worker();
}

/* The service manager restarts the program, since it hears nothing. */
TEST(a_loop_that_hangs_is_no_sign_of_life)
{
	sigset_t signals;
	siginfo_t info;
	start_manager();
	block_signals(&signals);
	serve_with_master();
	stuck_looks = 1;
	watchdog_begin(&watchdog, &worker, 1, 1);
	ck_assert_int_eq(wait_for_signal(&info, &signals), SIGTERM);
	ck_assert_str_eq(next_message(), "READY=1\nSTATUS=1 of 1 masters voting\n");
	char more;
	ck_assert_int_lt(recv(manager, &more, 1, MSG_DONTWAIT), 0);
	const char *first = strstr(read_log(), "event=worker-stuck");
	ck_assert_msg(first && !strstr(first + 1, "event=worker-stuck"), "%s", logged);
	end_worker();
}

static const struct {
	const char *socket, *pid, *interval;
	bool is_used;
} managers[] = {
	{NULL, NULL, "1000", false},  {"relative", NULL, "1000", false}, {"/x", "1", "1000", false},
	{"/x", NULL, "1000x", false}, {"/x", NULL, "-1", false},         {"/x", NULL, NULL, false},
	{"@x", NULL, "1000", true},   {"/", NULL, "1000", false},
};

TEST_EACH(a_manager_is_used_if_it_is_for_this_process, 0, COUNT(managers))
{
	static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"};
	const char *const values[] = {managers[_i].socket, managers[_i].pid, managers[_i].interval};
	for (size_t i = 0; i < COUNT(names); i++)
		if (values[i])
			setenv(names[i], values[i], 1);
		else
			unsetenv(names[i]);
	watchdog_init(&watchdog);
	ck_assert_uint_eq(watchdog.interval_us, managers[_i].is_used ? 1000 : 0);
	ck_assert_int_eq(watchdog.manager.sun_path[0] == '\0', managers[_i].is_used || watchdog.manager_len == 0);
}
