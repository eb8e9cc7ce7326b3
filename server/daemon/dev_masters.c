/* The private masters of --dev, and the supervisor process that ends them.
 *
 *   redlockd ── life pipe ──►  supervisor ── fork ──► redis-server × N
 *            ◄─ report pipe ──     (setsid)             (PR_SET_PDEATHSIG)
 *
 * redlockd holds the write end of the life pipe and never writes. When redlockd ends, in whatever way, the kernel
 * closes that end. The supervisor then ends the servers by their process ids (SIGTERM, after 500 ms SIGKILL), waits for
 * them, removes the folder, and ends. If the supervisor is killed, the kernel kills the servers (PR_SET_PDEATHSIG), and
 * only the folder stays.
 *
 * The supervisor has left the process group and the terminal (setsid), and has another name than redlockd: Ctrl-C, or a
 * kill -9 to the process group or by name, does not end the servers before redlockd has drained. It also makes the
 * folder, so that each folder has a supervisor that removes it. Through the report pipe it sends a `struct dev_report`
 * when the servers were started, and one when a server ends; the end of file means that everything is removed.
 *
 * The supervisor is forked before there are threads, so it may use all of the C library. */
#include "dev_masters.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEV_START_MS = 5000, DEV_TERM_MS = 500, DEV_STOP_MS = 3000, DEV_PING_MS = 10, DEV_FD_MAX = 65536 };

/* A report of the supervisor. Smaller than PIPE_BUF, so it arrives whole. */
struct dev_report {
	bool failed;
	char folder[DEV_MASTERS_FOLDER_MAX];
	char message[256];
};

struct dev_supervisor {
	int life_fd, report_fd, signal_fd;
	const char *program; /* path of the server program */
	uint32_t count;
	pid_t pids[OPTIONS_MASTERS_MAX]; /* 0: ended */
	char folder[DEV_MASTERS_FOLDER_MAX];
};

static uint64_t dev_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- the supervisor: starting ---- */

static void dev_report_send(const struct dev_supervisor *self, bool failed, const char *message)
{
	struct dev_report report = {.failed = failed};

	assert(self->report_fd >= 0);
	snprintf(report.folder, sizeof report.folder, "%s", self->folder);
	snprintf(report.message, sizeof report.message, "%s", message);
	if (write(self->report_fd, &report, sizeof report) < 0)
		return; /* redlockd has ended: the life pipe shows it too */
}

/* Closes all descriptors of redlockd: its sockets, and the pipe from which somebody reads its output. /dev/null becomes
 * 0 to 2, the life pipe 3 and the report pipe 4. */
static void dev_close_others(struct dev_supervisor *self)
{
	int null_fd = open("/dev/null", O_RDWR), life_fd = fcntl(self->life_fd, F_DUPFD, 5),
	    report_fd = fcntl(self->report_fd, F_DUPFD, 5);

	assert(self->life_fd >= 0 && self->report_fd >= 0);
	assert(null_fd >= 0 && life_fd > 4 && report_fd > 4);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null_fd, fd);
	self->life_fd = dup3(life_fd, 3, O_CLOEXEC);
	self->report_fd = dup3(report_fd, 4, O_CLOEXEC);
	if (close_range(5, ~0U, 0) == 0)
		return;
	for (int fd = 5; fd < DEV_FD_MAX; fd++) /* a kernel without close_range() */
		close(fd);
}

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

/* Becomes a server. */
static _Noreturn void dev_exec(const struct dev_supervisor *self, uint32_t i, pid_t supervisor)
{
	char log[DEV_MASTERS_FOLDER_MAX + 16], path[DEV_MASTERS_FOLDER_MAX + 16];
	sigset_t none;

	assert(i < self->count);
	/* From here on the kernel kills this process with the supervisor, unless the supervisor has ended before. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != supervisor)
		_exit(127);
	signal(SIGINT, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(log, sizeof log, "%s/%u.log", self->folder, i + 1);
	snprintf(path, sizeof path, "%s/%u.sock", self->folder, i + 1);
	int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log_fd < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0)
		_exit(127);
	execl(self->program, self->program, "--port", "0", "--unixsocket", path, "--unixsocketperm", "600", "--dir",
	      self->folder, "--daemonize", "no", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
	      "--loglevel", "warning", (char *)NULL);
	dprintf(2, "%s: %s\n", self->program, strerror(errno));
	_exit(127);
}

static const char *dev_spawn_all(struct dev_supervisor *self)
{
	pid_t supervisor = getpid();

	assert(self->count > 0 && self->count <= OPTIONS_MASTERS_MAX);
	for (uint32_t i = 0; i < self->count; i++) {
		self->pids[i] = fork();
		if (self->pids[i] == 0)
			dev_exec(self, i, supervisor);
		if (self->pids[i] < 0) {
			self->pids[i] = 0;
			return "--dev cannot fork";
		}
	}
	return NULL;
}

/* Makes the folder below $TMPDIR, or below /tmp where that is not set or too long for the path of a socket. */
static const char *dev_make_folder(struct dev_supervisor *self)
{
	static char message[128];
	const char *base = getenv("TMPDIR");

	if (!base || base[0] != '/' || strlen(base) + sizeof("/redlockd-dev-XXXXXX") > sizeof self->folder)
		base = "/tmp";
	snprintf(self->folder, sizeof self->folder, "%s/redlockd-dev-XXXXXX", base);
	if (mkdtemp(self->folder))
		return NULL;
	self->folder[0] = '\0';
	snprintf(message, sizeof message, "--dev cannot make a folder below %.64s: %s", base, strerror(errno));
	return message;
}

/* ---- the supervisor: watching and ending ---- */

static size_t dev_alive(const struct dev_supervisor *self)
{
	size_t alive = 0;

	for (uint32_t i = 0; i < self->count; i++)
		alive += self->pids[i] > 0;
	return alive;
}

static void dev_kill_all(const struct dev_supervisor *self, int number)
{
	assert(number == SIGTERM || number == SIGKILL);
	for (uint32_t i = 0; i < self->count; i++)
		if (self->pids[i] > 0)
			kill(self->pids[i], number); /* not reaped yet, so the number is still its own */
}

/* Reaps the servers that ended and, if `report`, reports them. */
static void dev_reap(struct dev_supervisor *self, bool report)
{
	char line[160], message[256];
	int status;
	pid_t pid;

	assert(self->count <= OPTIONS_MASTERS_MAX);
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (uint32_t i = 0; i < self->count; i++) {
			if (self->pids[i] != pid)
				continue;
			self->pids[i] = 0;
			dev_last_line(self, i, line, sizeof line);
			snprintf(message, sizeof message, "--dev: %.60s ended with %s %d%s", self->program,
				 WIFSIGNALED(status) ? "signal" : "status",
				 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), line);
			if (report)
				dev_report_send(self, true, message);
		}
	}
}

/* Waits for an event, timeout_ms at most. True if the masters are not wanted any more. */
static bool dev_wait(struct dev_supervisor *self, int timeout_ms, bool wanted)
{
	struct pollfd fds[2] = {{.fd = self->signal_fd, .events = POLLIN},
				{.fd = wanted ? self->life_fd : -1, .events = POLLIN}};
	struct signalfd_siginfo info;
	bool end = false;

	if (poll(fds, 2, timeout_ms) <= 0)
		return false;
	while (read(self->signal_fd, &info, sizeof info) == sizeof info)
		end = end || info.ssi_signo == SIGTERM;
	dev_reap(self, wanted && !end);
	return end || fds[1].revents != 0;
}

static int dev_remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status, (void)kind, (void)place;
	remove(path);
	return 0;
}

/* Removes the folder and its contents, if there is one; follows no link. */
static void dev_remove_folder(const char *folder)
{
	if (folder[0] != '\0')
		nftw(folder, dev_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void dev_end_all(struct dev_supervisor *self)
{
	uint64_t deadline_ms = dev_now_ms() + DEV_TERM_MS;

	assert(self->count > 0);
	dev_kill_all(self, SIGTERM);
	for (uint64_t now_ms = dev_now_ms(); dev_alive(self) > 0 && now_ms < deadline_ms; now_ms = dev_now_ms())
		dev_wait(self, (int)(deadline_ms - now_ms), false);
	dev_kill_all(self, SIGKILL);
	for (uint32_t i = 0; i < self->count; i++)
		if (self->pids[i] > 0)
			waitpid(self->pids[i], NULL, 0);
	dev_remove_folder(self->folder);
}

/* Signals for redlockd must not end its supervisor first; SIGTERM and SIGCHLD are read from a descriptor. */
static bool dev_set_up_signals(struct dev_supervisor *self)
{
	sigset_t wanted;

	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* if inherited as ignored, waitpid() would not work */
	signal(SIGTERM, SIG_DFL); /* a server may get it before it has become one */
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGCHLD);
	sigprocmask(SIG_SETMASK, &wanted, NULL);
	self->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	return self->signal_fd >= 0;
}

static _Noreturn void dev_supervise(struct dev_supervisor *self)
{
	setsid();
	prctl(PR_SET_NAME, "dev-masters");
	dev_close_others(self);
	const char *reason = dev_set_up_signals(self) ? dev_make_folder(self) : "--dev cannot watch for signals";
	if (!reason)
		reason = dev_spawn_all(self);
	dev_report_send(self, reason, reason ? reason : "");
	if (!reason)
		while (!dev_wait(self, -1, true))
			;
	dev_end_all(self);
	_exit(0);
}

/* ---- redlockd's side ---- */

/* Looks for a program in PATH. */
static bool dev_find_program(const char *name, char path[4096])
{
	const char *folders = getenv("PATH");

	if (!folders)
		folders = "/usr/local/bin:/usr/bin:/bin";
	for (;;) {
		size_t len = strcspn(folders, ":");
		int n = snprintf(path, 4096, "%.*s/%s", (int)len, folders, name);
		struct stat status;
		if (len > 0 && n < 4096 && access(path, X_OK) == 0 && stat(path, &status) == 0 &&
		    S_ISREG(status.st_mode))
			return true;
		if (folders[len] == '\0')
			return false;
		folders += len + 1;
	}
}

/* Waits for a report of the supervisor. 1: it came; 0: time is up; -1: the supervisor has ended. */
static int dev_report_receive(const struct dev_masters *dev, struct dev_report *report, uint64_t timeout_ms)
{
	struct pollfd fd = {.fd = dev->report_fd, .events = POLLIN};

	assert(dev->report_fd >= 0);
	if (poll(&fd, 1, (int)timeout_ms) <= 0)
		return 0;
	return read(dev->report_fd, report, sizeof *report) == (ssize_t)sizeof *report ? 1 : -1;
}

/* True if a server answers PING at this socket. */
static bool dev_ping(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	char answer[16] = "";
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert(strlen(path) < sizeof name.sun_path);
	strcpy(name.sun_path, path);
	if (fd < 0)
		return false;
	struct pollfd in = {.fd = fd, .events = POLLIN};
	bool ok = connect(fd, (const struct sockaddr *)&name, sizeof name) == 0 &&
		  send(fd, "PING\r\n", 6, MSG_NOSIGNAL) == 6 && poll(&in, 1, 10 * DEV_PING_MS) == 1 &&
		  recv(fd, answer, sizeof answer - 1, 0) > 0;
	close(fd);
	return ok && strncmp(answer, "+PONG", 5) == 0;
}

static void dev_fill_address(const struct dev_masters *dev, uint32_t i, struct master_address *address)
{
	*address = (struct master_address){.is_unix = true};
	int len = snprintf(address->host, sizeof address->host, "%s/%u.sock", dev->folder, i + 1);

	assert(dev->folder[0] == '/' && i < OPTIONS_MASTERS_MAX);
	assert(len > 0 && len < (int)sizeof(((struct sockaddr_un *)NULL)->sun_path));
	snprintf(address->shown, sizeof address->shown, "unix:%.200s", address->host);
}

/* Waits until all answer. NULL, or why not (in *report, or static). */
static const char *dev_wait_ready(const struct dev_masters *dev, uint32_t count, const struct options *options,
				  struct dev_report *report)
{
	uint64_t deadline_ms = dev_now_ms() + DEV_START_MS;

	assert(count > 0 && count <= OPTIONS_MASTERS_MAX);
	for (uint32_t i = 0; i < count;) {
		if (dev_ping(options->masters[i].host)) {
			i++;
			continue;
		}
		if (dev_now_ms() >= deadline_ms)
			return "--dev: the servers did not answer within 5 s";
		int said = dev_report_receive(dev, report, DEV_PING_MS);
		if (said != 0)
			return said > 0 ? report->message : "--dev: the supervisor of the servers was killed";
	}
	return NULL;
}

/* Forks the supervisor. NULL or a reason. */
static const char *dev_fork(struct dev_masters *dev, uint32_t count, const char *program)
{
	int life[2], report[2];

	assert(count > 0 && program[0] != '\0');
	if (pipe2(life, O_CLOEXEC) != 0)
		return "--dev cannot make a pipe";
	if (pipe2(report, O_CLOEXEC) != 0) {
		close(life[0]);
		close(life[1]);
		return "--dev cannot make a pipe";
	}
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct dev_supervisor self = {
			.life_fd = life[0], .report_fd = report[1], .program = program, .count = count};
		dev_supervise(&self);
	}
	close(life[0]);
	close(report[1]);
	*dev = (struct dev_masters){.supervisor = pid, .life_fd = life[1], .report_fd = report[0]};
	if (pid > 0)
		return NULL;
	close(dev->life_fd);
	close(dev->report_fd);
	return "--dev cannot fork";
}

bool dev_masters_start(struct dev_masters *dev, uint32_t count, struct options *options, char *message,
		       size_t message_size)
{
	struct dev_report report;
	char program[4096];

	assert(count >= 1 && count <= OPTIONS_MASTERS_MAX);
	if (!dev_find_program("redis-server", program) && !dev_find_program("valkey-server", program)) {
		snprintf(message, message_size,
			 "--dev needs redis-server: install it with: apt-get install redis-server");
		return false;
	}
	const char *reason = dev_fork(dev, count, program);
	if (reason) {
		snprintf(message, message_size, "%s", reason);
		return false;
	}
	if (dev_report_receive(dev, &report, DEV_START_MS) != 1)
		reason = "--dev: the supervisor of the servers does not answer";
	else if (report.failed)
		reason = report.message;
	if (!reason) {
		memcpy(dev->folder, report.folder, sizeof dev->folder);
		for (uint32_t i = 0; i < count; i++)
			dev_fill_address(dev, i, &options->masters[i]);
		reason = dev_wait_ready(dev, count, options, &report);
	}
	options->master_count = reason ? 0 : count;
	if (!reason)
		return true;
	snprintf(message, message_size, "%s", reason);
	dev_masters_stop(dev);
	return false;
}

void dev_masters_stop(struct dev_masters *dev)
{
	struct dev_report report;
	uint64_t deadline_ms = dev_now_ms() + DEV_STOP_MS;
	int said = 0;

	assert(dev->supervisor > 0);
	close(dev->life_fd);
	for (uint64_t now_ms = dev_now_ms(); said >= 0 && now_ms < deadline_ms; now_ms = dev_now_ms())
		said = dev_report_receive(dev, &report, deadline_ms - now_ms);
	if (said >= 0)
		kill(dev->supervisor, SIGKILL); /* stuck; the kernel then kills the servers */
	waitpid(dev->supervisor, NULL, 0);
	dev_remove_folder(dev->folder); /* is still there if the supervisor was killed */
	close(dev->report_fd);
	*dev = (struct dev_masters){.life_fd = -1, .report_fd = -1};
}
