/* SPDX-License-Identifier: MIT */
/* The private masters of --dev, with real servers: they answer, are configured for locks, and end with their folder
 * however the program that started them ends. "Ended" means that no process in /proc has the folder in its command
 * line. */
#include <check.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/daemon/daemon.h"
#include "suite.h"

static struct options options;
static struct dev_masters dev;
static char message[600];

/* How many processes have `text` in their command line; the first of them in *ret_pid. */
static int count_processes(const char *text, pid_t *ret_pid)
{
	DIR *proc = opendir("/proc");
	int count = 0;

	for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
		char path[300], line[4096];
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t len = fd < 0 ? 0 : read(fd, line, sizeof(line));
		if (fd >= 0)
			close(fd);
		if (len <= 0 || memmem(line, (size_t)len, text, strlen(text)) == NULL)
			continue;
		if (count++ == 0 && ret_pid != NULL)
			*ret_pid = atoi(entry->d_name);
	}
	closedir(proc);
	return count;
}

static bool exists(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0;
}

/* Waits, at most a minute, until neither servers nor folder are left. */
static void assert_gone(const char *folder)
{
	time_t end = time(NULL) + 60;

	while ((exists(folder) || count_processes(folder, NULL) > 0) && time(NULL) < end)
		poll(NULL, 0, 10);
	ck_assert_msg(!exists(folder), "%s is left", folder);
	ck_assert_int_eq(count_processes(folder, NULL), 0);
}

static void start(uint32_t count)
{
	memset(&options, 0, sizeof(options));
	bool ok = dev_masters_start(&dev, count, &options, message, sizeof(message));
	ck_assert_msg(ok, "%s", message);
	ck_assert_uint_eq(options.master_count, count);
}

static int connect_to(const struct address *address)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert(address->is_unix);
	strcpy(name.sun_path, address->host);
	if (connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Sends an inline command and returns the start of the answer. */
static const char *ask(const struct address *address, const char *command)
{
	static char answer[4096];
	struct timeval wait = {.tv_sec = 60};
	int fd = connect_to(address);

	ck_assert_int_ge(fd, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	dprintf(fd, "%s\r\n", command);
	ssize_t len = recv(fd, answer, sizeof(answer) - 1, 0);
	ck_assert_int_gt(len, 0);
	answer[len] = '\0';
	close(fd);
	return answer;
}

TEST_EACH(they_answer_and_are_set_up_for_locks, 1, 4)
{
	start((uint32_t)_i);
	for (int i = 0; i < _i; i++) {
		struct address *master = &options.masters[i];
		char expected[400];
		snprintf(expected, sizeof(expected), "unix:%s", master->host);
		ck_assert_str_eq(master->shown, expected);
		ck_assert_str_eq(master->user, "");
		ck_assert_str_eq(ask(master, "PING"), "+PONG\r\n");
		ck_assert_ptr_nonnull(strstr(ask(master, "CONFIG GET maxmemory-policy"), "\r\nnoeviction\r\n"));
		ck_assert_ptr_nonnull(strstr(ask(master, "CONFIG GET appendonly"), "\r\nno\r\n"));
		ck_assert_ptr_nonnull(strstr(ask(master, "CONFIG GET save"), "\r\n$0\r\n"));
		ck_assert_ptr_nonnull(strstr(ask(master, "CONFIG GET port"), "\r\n$1\r\n0\r\n"));
	}
	struct stat status;
	char folder[DEV_MASTERS_FOLDER_MAX];
	strcpy(folder, dev.folder);
	ck_assert_int_eq(stat(folder, &status), 0);
	ck_assert_int_eq(status.st_mode & 07777, 0700);
	ck_assert_int_eq(count_processes(folder, NULL), _i);
	dev_masters_stop(&dev);
	ck_assert_msg(!exists(folder), "stop() returned before the folder was gone");
	ck_assert_int_eq(count_processes(folder, NULL), 0);
}

TEST(the_folder_is_made_in_tmpdir)
{
	char base[] = "/tmp/dev-masters-test-XXXXXX", longer[200];

	ck_assert_ptr_nonnull(mkdtemp(base));
	setenv("TMPDIR", base, 1);
	start(1);
	ck_assert_int_eq(strncmp(dev.folder, base, strlen(base)), 0);
	dev_masters_stop(&dev);
	/* one that leaves no room for the path of a socket is not used */
	snprintf(longer, sizeof(longer), "%s/%0100d", base, 0);
	ck_assert_int_eq(mkdir(longer, 0700), 0);
	setenv("TMPDIR", longer, 1);
	start(1);
	ck_assert_int_eq(strncmp(dev.folder, "/tmp/redlockd-dev-", 18), 0);
	dev_masters_stop(&dev);
	rmdir(longer);
	ck_assert_int_eq(rmdir(base), 0);
}

/* A program that starts masters, as redlockd does, writes their folder to `out`, and waits. */
static _Noreturn void be_parent(int out)
{
	for (int number = 1; number < 32; number++)
		signal(number, SIG_DFL); /* not those of the test runner or a sanitizer */
	setpgid(0, 0);
	if (!dev_masters_start(&dev, 3, &options, message, sizeof(message)))
		_exit(1);
	dprintf(out, "%s\n", dev.folder);
	for (;;)
		pause();
}

/* Forks one. Returns its process id. */
static pid_t fork_parent(char folder[DEV_MASTERS_FOLDER_MAX])
{
	char line[200] = "";
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0)
		be_parent(fds[1]);
	close(fds[1]);
	ck_assert_int_gt(read(fds[0], line, sizeof(line) - 1), 0);
	ck_assert_int_eq(sscanf(line, "%95s", folder), 1);
	/* Only the parent has the pipe: a sweeper or server that kept it open would make a reader hang. */
	struct pollfd end = {.fd = fds[0]};
	ck_assert_int_eq(count_processes(folder, NULL), 3);
	ck_assert_int_eq(poll(&end, 1, 0), 0);
	close(fds[0]);
	return pid;
}

TEST_EACH(they_go_with_a_parent_that_is_killed, 0, 5)
{
	static const struct {
		int signal;
		bool group;
	} cases[] = {{SIGKILL, false}, {SIGKILL, true}, {SIGTERM, false}, {SIGSEGV, false}, {SIGHUP, true}};
	char folder[DEV_MASTERS_FOLDER_MAX];
	pid_t parent = fork_parent(folder);

	ck_assert_int_eq(kill(cases[_i].group ? -parent : parent, cases[_i].signal), 0);
	ck_assert_int_eq(waitpid(parent, NULL, 0), parent);
	assert_gone(folder);
}

TEST(also_one_that_is_stopped_goes)
{
	char folder[DEV_MASTERS_FOLDER_MAX];
	pid_t server = 0, parent = fork_parent(folder);

	count_processes(folder, &server);
	ck_assert_int_eq(kill(server, SIGSTOP), 0);
	kill(parent, SIGKILL);
	ck_assert_int_eq(waitpid(parent, NULL, 0), parent);
	assert_gone(folder);
}

TEST(ctrl_c_is_for_the_parent_alone)
{
	char folder[DEV_MASTERS_FOLDER_MAX];

	start(2);
	strcpy(folder, dev.folder);
	ck_assert_int_ne(getpgid(dev.sweeper), getpgrp());
	for (size_t i = 0; i < 2; i++)
		ck_assert_int_ne(getsid(dev.servers[i]), getsid(0));
	ck_assert_str_eq(ask(&options.masters[1], "PING"), "+PONG\r\n");
	ck_assert_int_eq(count_processes(folder, NULL), 2);
	dev_masters_stop(&dev);
	assert_gone(folder);
}

/* How many of the masters take connections. */
static size_t count_masters(void)
{
	size_t alive = 0;

	for (size_t i = 0; i < options.master_count; i++) {
		int fd = connect_to(&options.masters[i]);
		alive += fd >= 0;
		if (fd >= 0)
			close(fd);
	}
	return alive;
}

TEST(one_that_dies_leaves_the_others)
{
	char folder[DEV_MASTERS_FOLDER_MAX];
	pid_t server = 0;

	start(3);
	strcpy(folder, dev.folder);
	ck_assert_int_eq(count_processes(folder, &server), 3);
	kill(server, SIGKILL);
	for (time_t end = time(NULL) + 60; count_masters() > 2 && time(NULL) < end;)
		poll(NULL, 0, 10);
	ck_assert_uint_eq(count_masters(), 2);
	dev_masters_stop(&dev);
	assert_gone(folder);
}

TEST(nothing_of_the_parent_stays_open_in_them)
{
	int fds[2];
	struct pollfd end;

	ck_assert_int_eq(pipe(fds), 0); /* inheritable on purpose */
	start(1);
	close(fds[1]);
	end = (struct pollfd){.fd = fds[0], .events = POLLIN};
	ck_assert_int_eq(poll(&end, 1, 60000), 1);
	ck_assert(end.revents & POLLHUP);
	dev_masters_stop(&dev);
	close(fds[0]);
}

/* A folder for PATH with a file of this name and content. */
static void make_program(char folder[64], const char *name, const char *content)
{
	char path[128];

	strcpy(folder, "/tmp/dev-masters-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	ck_assert_int_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
	close(fd);
	setenv("PATH", folder, 1);
}

static void remove_program(const char *folder, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	unlink(path);
	rmdir(folder);
}

TEST(without_a_server_it_says_what_to_install)
{
	setenv("PATH", "/nowhere:", 1);
	ck_assert(!dev_masters_start(&dev, 3, &options, message, sizeof(message)));
	ck_assert_str_eq(message, "--dev needs redis-server: install it with: apt-get install redis-server");
}

TEST(a_server_that_ends_at_once_is_reported)
{
	char folder[64];

	make_program(folder, "redis-server", "#!/bin/sh\necho first\necho it is broken >&2\nexit 7\n");
	ck_assert(!dev_masters_start(&dev, 3, &options, message, sizeof(message)));
	remove_program(folder, "redis-server");
	ck_assert_msg(strstr(message, folder) != NULL && strstr(message, "status 7: it is broken") != NULL, "%s",
		      message);
	ck_assert_uint_eq(options.master_count, 0);
}

TEST(a_server_that_cannot_be_run_is_reported)
{
	char folder[64];

	make_program(folder, "valkey-server", "#!/no/such/interpreter\n");
	ck_assert(!dev_masters_start(&dev, 1, &options, message, sizeof(message)));
	remove_program(folder, "valkey-server");
	ck_assert_msg(strstr(message, "valkey-server ended with status 127") != NULL &&
			      strstr(message, "No such file") != NULL,
		      "%s", message);
}

TEST(a_server_that_never_answers_is_given_up)
{
	char folder[64], base[] = "/tmp/dev-masters-test-XXXXXX";

	make_program(folder, "redis-server", "#!/bin/sh\nexec /bin/sleep 60\n");
	ck_assert_ptr_nonnull(mkdtemp(base));
	setenv("TMPDIR", base, 1);
	ck_assert(!dev_masters_start(&dev, 2, &options, message, sizeof(message)));
	remove_program(folder, "redis-server");
	ck_assert_msg(strstr(message, "did not answer within 5 s") != NULL, "%s", message);
	ck_assert_msg(rmdir(base) == 0, "a folder is left in %s", base);
}
