/* SPDX-License-Identifier: MIT */
/* The private masters of --dev, and the sweeper, a process that removes their folder.
 *
 *   redlockd ── fork ──►  redis-server × N (setsid, PR_SET_PDEATHSIG)
 *            ── fork ──►  sweeper (setpgid)
 *
 * When redlockd ends, in whatever way, the kernel kills the servers, which have nothing to save. The sweeper then reads
 * the end of file from a pipe that redlockd alone can write to, removes the folder, and ends.
 *
 * All of them have left the process group, and the sweeper has another name than redlockd: Ctrl-C, or a kill -9 to the
 * process group or by name, does not end the servers before redlockd has drained.
 *
 * They are forked before there are threads, so they may use all of the C library. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
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

enum { DEV_START_US = 5000000, DEV_LOOK_MS = 10 };

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

/* ---- the other processes ---- */

/* In the new process: closes all descriptors of redlockd, its sockets and the pipe from which somebody reads its
 * output. `in` becomes 0, `out` 1 and 2. */
static void dev_set_descriptors(int in, int out)
{
	if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(127);
	closefrom(3);
}

/* Becomes server `i`. */
static _Noreturn void dev_serve(const struct dev_masters *dev, uint32_t i, const char *program, pid_t parent)
{
	char log[DEV_MASTERS_FOLDER_MAX + 16], path[DEV_MASTERS_FOLDER_MAX + 16];
	assert(i < dev->count);
	/* From here on the kernel kills this process with redlockd, unless redlockd has ended before. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(127);
	setsid();
	snprintf(log, sizeof log, "%s/%u.log", dev->folder, i + 1);
	snprintf(path, sizeof path, "%s/%u.sock", dev->folder, i + 1);
	dev_set_descriptors(open("/dev/null", O_RDONLY), open(log, O_WRONLY | O_CREAT | O_APPEND, 0600));
	execl(program, program, "--port", "0", "--unixsocket", path, "--unixsocketperm", "600", "--dir", dev->folder,
	      "--daemonize", "no", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--hz",
	      "100", "--loglevel", "warning", (char *)NULL);
	dprintf(2, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

/* Becomes the sweeper. */
static _Noreturn void dev_sweep(const struct dev_masters *dev, int alive)
{
	char byte;
	prctl(PR_SET_NAME, "dev-masters");
	signal(SIGTERM, SIG_IGN); /* of a manager that ends all processes of the service */
	dev_set_descriptors(alive, open("/dev/null", O_WRONLY));
	while (read(0, &byte, 1) < 0)
		continue;
	dev_remove_folder(dev->folder);
	_exit(0);
}

/* ---- redlockd ---- */

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

/* Forks the sweeper and the servers. False: errno. */
static bool dev_fork(struct dev_masters *dev, const char *program)
{
	pid_t parent = getpid();
	int alive[2];
	assert(dev->count > 0 && program[0] != '\0');
	if (pipe2(alive, O_CLOEXEC) != 0)
		return false;
	fflush(NULL);
	signal(SIGCHLD, SIG_DFL); /* if inherited as ignored, waitpid() would not work */
	dev->sweeper = fork();
	if (dev->sweeper == 0)
		dev_sweep(dev, alive[0]);
	setpgid(dev->sweeper, dev->sweeper);
	close(alive[0]);
	dev->alive_fd = alive[1];
	for (uint32_t i = 0; i < dev->count; i++) {
		dev->servers[i] = fork();
		if (dev->servers[i] == 0)
			dev_serve(dev, i, program, parent);
		if (dev->servers[i] < 0)
			return false;
	}
	return dev->sweeper > 0;
}

/* The last line that a server wrote: most likely why it ended. */
static void dev_last_line(const struct dev_masters *dev, uint32_t i, char *line, size_t size)
{
	char path[DEV_MASTERS_FOLDER_MAX + 16], bytes[512];
	assert(i < dev->count && size > 0);
	line[0] = '\0';
	snprintf(path, sizeof path, "%s/%u.log", dev->folder, i + 1);
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	while (fgets(bytes, sizeof bytes, file))
		if (bytes[strspn(bytes, " \t\r\n")] != '\0')
			snprintf(line, size, ": %.*s", (int)strcspn(bytes, "\r\n"), bytes);
	fclose(file);
}

/* True, and a message, if a server has ended. */
static bool dev_has_ended(struct dev_masters *dev, const char *program, char *message, size_t size)
{
	char line[160];
	int status;
	for (uint32_t i = 0; i < dev->count; i++) {
		if (waitpid(dev->servers[i], &status, WNOHANG) <= 0)
			continue;
		dev->servers[i] = 0;
		dev_last_line(dev, i, line, sizeof line);
		bool killed = WIFSIGNALED(status);
		snprintf(message, size, "--dev: %.60s ended with %s %d%s", program, killed ? "signal" : "status",
			 killed ? WTERMSIG(status) : WEXITSTATUS(status), line);
		return true;
	}
	return false;
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
static bool dev_wait_ready(struct dev_masters *dev, const char *program, const struct options *options, char *message,
			   size_t size)
{
	uint64_t deadline_us = clock_now_us() + DEV_START_US;
	for (uint32_t i = 0; i < dev->count;) {
		if (dev_listens(options->masters[i].host)) {
			i++;
			continue;
		}
		if (dev_has_ended(dev, program, message, size))
			return false;
		if (clock_now_us() >= deadline_us) {
			snprintf(message, size, "--dev: the servers did not answer within 5 s");
			return false;
		}
		poll(NULL, 0, DEV_LOOK_MS);
	}
	return true;
}

bool dev_masters_start(struct dev_masters *dev, uint32_t count, struct options *options, char *message, size_t size)
{
	char program[PATH_MAX];
	assert(count >= 1 && count <= OPTIONS_MASTERS_MAX);
	*dev = (struct dev_masters){.count = count, .alive_fd = -1};
	options->master_count = 0;
	if (!dev_find_program("redis-server", program) && !dev_find_program("valkey-server", program)) {
		snprintf(message, size, "--dev needs redis-server: install it with: apt-get install redis-server");
		return false;
	}
	if (!dev_make_folder(dev->folder, message, size))
		return false;
	for (uint32_t i = 0; i < count; i++) {
		struct address *address = &options->masters[i];
		*address = (struct address){.is_unix = true};
		snprintf(address->host, sizeof address->host, "%s/%u.sock", dev->folder, i + 1);
		snprintf(address->shown, sizeof address->shown, "unix:%.200s", address->host);
	}
	bool forked = dev_fork(dev, program);
	if (!forked)
		snprintf(message, size, "--dev cannot start a process: %s", strerror(errno));
	if (!forked || !dev_wait_ready(dev, program, options, message, size)) {
		dev_masters_stop(dev);
		return false;
	}
	options->master_count = count;
	return true;
}

void dev_masters_stop(struct dev_masters *dev)
{
	for (uint32_t i = 0; i < dev->count; i++)
		if (dev->servers[i] > 0 && kill(dev->servers[i], SIGKILL) == 0)
			waitpid(dev->servers[i], NULL, 0);
	dev_remove_folder(dev->folder);
	if (dev->alive_fd >= 0)
		close(dev->alive_fd);
	if (dev->sweeper > 0)
		waitpid(dev->sweeper, NULL, 0);
}
