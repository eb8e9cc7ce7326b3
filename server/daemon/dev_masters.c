/* The private masters of --dev, and the supervisor process that ends them.
 *
 *   redlockd ── fork ──►  supervisor ── fork ──► redis-server × N
 *            ◄─ report pipe ── (setsid, PR_SET_PDEATHSIG)  (PR_SET_PDEATHSIG)
 *
 * When redlockd ends, in whatever way, the kernel sends SIGTERM to the supervisor. The supervisor then ends the servers
 * by their process ids (SIGTERM, after 500 ms SIGKILL), waits for them, removes the folder, and ends. If the supervisor
 * is killed, the kernel kills the servers, and only the folder stays.
 *
 * The supervisor has left the process group and the terminal (setsid), and has another name than redlockd: Ctrl-C, or a
 * kill -9 to the process group or by name, does not end the servers before redlockd has drained. Through the report
 * pipe it sends a line when a server ends; the end of file means that everything is removed.
 *
 * The supervisor is forked before there are threads, so it may use all of the C library. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon.h"
#include "server/base/base.h"

enum { DEV_START_MS = 5000, DEV_TERM_MS = 500, DEV_STOP_MS = 3000, DEV_LOOK_MS = 10 };
enum { DEV_REPORT_MAX = 256 }; /* below PIPE_BUF: a report arrives whole */

struct dev_supervisor {
	pid_t parent;
	int report_fd;
	const char *program, *folder; /* path of the server program; for its files */
	uint32_t count, alive;
	pid_t pids[OPTIONS_MASTERS_MAX]; /* 0: ended */
};

static uint64_t dev_now_ms(void)
{
	return clock_now_us() / 1000;
}

static int dev_remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status, (void)kind, (void)place;
	remove(path);
	return 0;
}

/* Removes the folder and its contents, if it is there; follows no link. */
static void dev_remove_folder(const char *folder)
{
	nftw(folder, dev_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- the supervisor: starting ---- */

static __attribute__((format(printf, 2, 3))) void dev_report_send(const struct dev_supervisor *self, const char *format,
								  ...)
{
	char report[DEV_REPORT_MAX];
	va_list args;
	va_start(args, format);
	vsnprintf(report, sizeof report - 1, format, args);
	va_end(args);
	strcat(report, "\n");
	if (write(self->report_fd, report, strlen(report)) < 0)
		return; /* redlockd has ended: the kernel sends SIGTERM */
}

/* Closes all descriptors of redlockd: its sockets, and the pipe from which somebody reads its output. /dev/null becomes
 * 0 to 2, the report pipe 3. */
static void dev_close_others(struct dev_supervisor *self)
{
	int null_fd = open("/dev/null", O_RDWR), report_fd = fcntl(self->report_fd, F_DUPFD, 4);
	assert(null_fd >= 0 && report_fd >= 4);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null_fd, fd);
	self->report_fd = dup3(report_fd, 3, O_CLOEXEC);
	closefrom(4);
}

/* Signals for redlockd must not end its supervisor first. */
static void dev_set_signals(void (*handler)(int))
{
	signal(SIGINT, handler);
	signal(SIGHUP, handler);
	signal(SIGQUIT, handler);
	signal(SIGPIPE, handler);
}

/* Becomes a server. */
static _Noreturn void dev_exec(const struct dev_supervisor *self, uint32_t i, pid_t supervisor)
{
	char log[DEV_MASTERS_FOLDER_MAX + 16], path[DEV_MASTERS_FOLDER_MAX + 16];
	sigset_t none;
	assert(i < self->count);
	/* From here on the kernel kills this process with the supervisor, unless the supervisor has ended before. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != supervisor)
		_exit(127);
	dev_set_signals(SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(log, sizeof log, "%s/%u.log", self->folder, i + 1);
	snprintf(path, sizeof path, "%s/%u.sock", self->folder, i + 1);
	int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log_fd < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0)
		_exit(127);
	execl(self->program, self->program, "--port", "0", "--unixsocket", path, "--unixsocketperm", "600", "--dir",
	      self->folder, "--daemonize", "no", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
	      "--hz", "100", "--loglevel", "warning", (char *)NULL);
	dprintf(2, "%s: %s\n", self->program, strerror(errno));
	_exit(127);
}

static bool dev_spawn_all(struct dev_supervisor *self)
{
	pid_t supervisor = getpid();
	assert(self->count > 0 && self->count <= OPTIONS_MASTERS_MAX);
	for (uint32_t i = 0; i < self->count; i++) {
		pid_t pid = fork();
		if (pid == 0)
			dev_exec(self, i, supervisor);
		if (pid < 0) {
			dev_report_send(self, "--dev cannot start a server: %s", strerror(errno));
			return false;
		}
		self->pids[i] = pid;
		self->alive++;
	}
	return true;
}

/* ---- the supervisor: watching and ending ---- */

/* The last line that a server wrote: most likely why it ended. */
static void dev_last_line(const struct dev_supervisor *self, uint32_t i, char *line, size_t size)
{
	char path[DEV_MASTERS_FOLDER_MAX + 16], bytes[512];
	assert(i < self->count && size > 0);
	line[0] = '\0';
	snprintf(path, sizeof path, "%s/%u.log", self->folder, i + 1);
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	while (fgets(bytes, sizeof bytes, file))
		if (bytes[strspn(bytes, " \t\r\n")] != '\0')
			snprintf(line, size, ": %.*s", (int)strcspn(bytes, "\r\n"), bytes);
	fclose(file);
}

static void dev_kill_all(const struct dev_supervisor *self, int number)
{
	assert(number == SIGTERM || number == SIGKILL);
	for (uint32_t i = 0; i < self->count; i++)
		if (self->pids[i] > 0)
			kill(self->pids[i], number); /* not reaped yet, so the number is still its own */
}

/* Reaps the servers that ended and reports them. */
static void dev_reap(struct dev_supervisor *self)
{
	char line[160];
	int status;
	pid_t pid;
	while (self->alive > 0 && (pid = waitpid(-1, &status, WNOHANG)) > 0) {
		uint32_t i = 0;
		while (i < self->count && self->pids[i] != pid)
			i++;
		assert(i < self->count);
		self->pids[i] = 0;
		self->alive--;
		dev_last_line(self, i, line, sizeof line);
		bool killed = WIFSIGNALED(status);
		dev_report_send(self, "--dev: %.60s ended with %s %d%s", self->program, killed ? "signal" : "status",
				killed ? WTERMSIG(status) : WEXITSTATUS(status), line);
	}
}

static void dev_end_all(struct dev_supervisor *self, const sigset_t *ended)
{
	uint64_t deadline_ms = dev_now_ms() + DEV_TERM_MS;
	assert(self->count > 0);
	dev_kill_all(self, SIGTERM);
	for (uint64_t now_ms = dev_now_ms(); self->alive > 0 && now_ms < deadline_ms; now_ms = dev_now_ms()) {
		struct timespec pause = {.tv_nsec = (long)(deadline_ms - now_ms) * 1000000};
		sigtimedwait(ended, NULL, &pause);
		dev_reap(self);
	}
	dev_kill_all(self, SIGKILL);
	for (uint32_t i = 0; i < self->count; i++)
		if (self->pids[i] > 0)
			waitpid(self->pids[i], NULL, 0);
	dev_remove_folder(self->folder);
}

static _Noreturn void dev_supervise(struct dev_supervisor *self)
{
	sigset_t ended, waited;
	dev_set_signals(SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* if inherited as ignored, waitpid() would not work */
	signal(SIGTERM, SIG_DFL); /* a server may get it before it has become one */
	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	waited = ended;
	sigaddset(&waited, SIGTERM);
	sigprocmask(SIG_SETMASK, &waited, NULL);
	bool wanted = prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == self->parent;
	setsid();
	prctl(PR_SET_NAME, "dev-masters");
	dev_close_others(self);
	wanted = wanted && dev_spawn_all(self);
	while (wanted && sigwaitinfo(&waited, NULL) != SIGTERM)
		dev_reap(self);
	dev_end_all(self, &ended);
	_exit(0);
}

/* ---- redlockd's side ---- */

/* Looks for a program in PATH. */
static bool dev_find_program(const char *name, char path[PATH_MAX])
{
	const char *folders = getenv("PATH");
	if (!folders)
		folders = "/usr/local/bin:/usr/bin:/bin";
	for (;; folders++) {
		size_t len = strcspn(folders, ":");
		int n = snprintf(path, PATH_MAX, "%.*s/%s", (int)len, folders, name);
		if (len > 0 && n < PATH_MAX && access(path, X_OK) == 0)
			return true;
		folders += len;
		if (*folders == '\0')
			return false;
	}
}

/* Makes the folder below $TMPDIR, or below /tmp where that is not set or too long for the path of a socket. */
static bool dev_make_folder(char folder[DEV_MASTERS_FOLDER_MAX], char *message, size_t size)
{
	const char *base = getenv("TMPDIR");
	if (!base || base[0] != '/' || strlen(base) + sizeof("/redlockd-dev-XXXXXX") > DEV_MASTERS_FOLDER_MAX)
		base = "/tmp";
	snprintf(folder, DEV_MASTERS_FOLDER_MAX, "%s/redlockd-dev-XXXXXX", base);
	if (mkdtemp(folder))
		return true;
	snprintf(message, size, "--dev cannot make a folder below %.64s: %s", base, strerror(errno));
	return false;
}

/* Forks the supervisor. False: errno. */
static bool dev_fork(struct dev_masters *dev, uint32_t count, const char *program)
{
	struct dev_supervisor self = {.parent = getpid(), .program = program, .folder = dev->folder, .count = count};
	int report[2];
	assert(count > 0 && program[0] != '\0');
	if (pipe2(report, O_CLOEXEC) != 0)
		return false;
	fflush(NULL);
	dev->supervisor = fork();
	if (dev->supervisor == 0) {
		self.report_fd = report[1];
		dev_supervise(&self);
	}
	close(report[1]);
	dev->report_fd = report[0];
	if (dev->supervisor < 0)
		close(dev->report_fd);
	return dev->supervisor > 0;
}

/* Waits for a report of the supervisor. 1: it came; 0: time is up; -1: the supervisor has ended. */
static int dev_report_receive(const struct dev_masters *dev, uint64_t timeout_ms, char report[DEV_REPORT_MAX])
{
	struct pollfd fd = {.fd = dev->report_fd, .events = POLLIN};
	assert(dev->report_fd >= 0);
	if (poll(&fd, 1, (int)timeout_ms) <= 0)
		return 0;
	ssize_t len = read(dev->report_fd, report, DEV_REPORT_MAX - 1);
	if (len <= 0)
		return -1;
	report[len] = '\0';
	report[strcspn(report, "\n")] = '\0'; /* of several the first */
	return 1;
}

/* True if a server listens at this socket. */
static bool dev_listens(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert(strlen(path) < sizeof name.sun_path);
	strcpy(name.sun_path, path);
	if (fd < 0)
		return false;
	bool listens = connect(fd, (const struct sockaddr *)&name, sizeof name) == 0;
	close(fd);
	return listens;
}

/* Waits until all listen. */
static bool dev_wait_ready(const struct dev_masters *dev, uint32_t count, const struct options *options, char *message,
			   size_t size)
{
	uint64_t deadline_ms = dev_now_ms() + DEV_START_MS;
	char report[DEV_REPORT_MAX];
	for (uint32_t i = 0; i < count;) {
		if (dev_listens(options->masters[i].host)) {
			i++;
			continue;
		}
		int said = dev_report_receive(dev, DEV_LOOK_MS, report);
		if (said == 0 && dev_now_ms() < deadline_ms)
			continue;
		snprintf(message, size, "%s",
			 said > 0   ? report
			 : said < 0 ? "--dev: the supervisor of the servers was killed"
				    : "--dev: the servers did not answer within 5 s");
		return false;
	}
	return true;
}

bool dev_masters_start(struct dev_masters *dev, uint32_t count, struct options *options, char *message, size_t size)
{
	char program[PATH_MAX];
	assert(count >= 1 && count <= OPTIONS_MASTERS_MAX);
	options->master_count = 0;
	if (!dev_find_program("redis-server", program) && !dev_find_program("valkey-server", program)) {
		snprintf(message, size, "--dev needs redis-server: install it with: apt-get install redis-server");
		return false;
	}
	if (!dev_make_folder(dev->folder, message, size))
		return false;
	if (!dev_fork(dev, count, program)) {
		snprintf(message, size, "--dev cannot start a process: %s", strerror(errno));
		dev_remove_folder(dev->folder);
		return false;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct address *address = &options->masters[i];
		*address = (struct address){.is_unix = true};
		snprintf(address->host, sizeof address->host, "%s/%u.sock", dev->folder, i + 1);
		snprintf(address->shown, sizeof address->shown, "unix:%.200s", address->host);
	}
	if (!dev_wait_ready(dev, count, options, message, size)) {
		dev_masters_stop(dev);
		return false;
	}
	options->master_count = count;
	return true;
}

void dev_masters_stop(struct dev_masters *dev)
{
	char report[DEV_REPORT_MAX];
	uint64_t deadline_ms = dev_now_ms() + DEV_STOP_MS;
	int said = 0;
	assert(dev->supervisor > 0);
	kill(dev->supervisor, SIGTERM);
	for (uint64_t now_ms = dev_now_ms(); said >= 0 && now_ms < deadline_ms; now_ms = dev_now_ms())
		said = dev_report_receive(dev, deadline_ms - now_ms, report);
	if (said >= 0)
		kill(dev->supervisor, SIGKILL); /* stuck; the kernel then kills the servers */
	waitpid(dev->supervisor, NULL, 0);
	dev_remove_folder(dev->folder); /* is still there if the supervisor was killed */
	close(dev->report_fd);
}
