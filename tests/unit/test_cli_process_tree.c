/* SPDX-License-Identifier: MIT */
/* Signals to descendants: with any name, of any depth, while they fork and end; never to another process that has the
 * pid of one that has ended. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/run/run_internal.h"
#include "suite.h"

/* ---- system calls that are replaced by the linker (--wrap) ---- */

static void (*before_open)(void), (*before_send)(void);
static void (*before_read)(const char *path); /* before each file is opened, of /proc too */
static bool no_pidfds;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __real_pidfd_open(pid_t pid, unsigned flags);
int __wrap_pidfd_open(pid_t pid, unsigned flags);
int __real_pidfd_send_signal(int file, int signal_number, siginfo_t *info, unsigned flags);
int __wrap_pidfd_send_signal(int file, int signal_number, siginfo_t *info, unsigned flags);
int __real_kill(pid_t pid, int signal_number);
int __wrap_kill(pid_t pid, int signal_number);

static void once(void (**hook)(void))
{
	void (*called)(void) = *hook;
	*hook = NULL;
	if (called != NULL)
		called();
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list rest;

	va_start(rest, flags);
	mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	if (before_read)
		before_read(path);
	return __real_open(path, flags, mode);
}

int __wrap_pidfd_open(pid_t pid, unsigned flags)
{
	if (no_pidfds) {
		errno = ENOSYS;
		return -1;
	}
	once(&before_open);
	return __real_pidfd_open(pid, flags);
}

int __wrap_pidfd_send_signal(int file, int signal_number, siginfo_t *info, unsigned flags)
{
	once(&before_send);
	return __real_pidfd_send_signal(file, signal_number, info, flags);
}

int __wrap_kill(pid_t pid, int signal_number)
{
	once(&before_open);
	once(&before_send);
	return __real_kill(pid, signal_number);
}

/* ---- processes ---- */

static int told[2]; /* a pipe: a process that is ready writes a byte */

static void tell(void)
{
	ck_assert_int_eq(write(told[1], "", 1), 1);
}

static void be_told(void)
{
	char byte;
	ck_assert_int_eq(read(told[0], &byte, 1), 1);
}

static void *shared(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void block(void)
{
	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL); /* it stays pending, so that has_signal() finds it */
	ck_assert_int_eq(pipe(told), 0);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

static pid_t child(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void sleep_for_ever(void)
{
	for (;;)
		pause();
}

static bool has_signal(pid_t pid)
{
	unsigned long long pending = 0;
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "ShdPnd: %llx", &pending) == 1)
			break;
	fclose(file);
	return (pending >> (SIGUSR1 - 1) & 1) != 0;
}

static void end(pid_t pid)
{
	__real_kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- names ---- */

static const char *const names[] = {"plain", "a\nb", "\n", "a)\nb", ") Z 0 0", "\n1 (x) Z 0 0 0",
				    "))((",  "( ",   " ",  "",      ")",       "1 (x) X 1 1 1 1"};

/* A child with the name, and a grandchild with it in another session. */
TEST_EACH(any_name, 0, sizeof(names) / sizeof(*names))
{
	pid_t *below = shared(sizeof *below);

	block();
	pid_t named = child();
	if (named == 0) {
		prctl(PR_SET_NAME, names[_i]);
		if (child() == 0) {
			*below = getpid();
			prctl(PR_SET_NAME, names[_i]);
			setsid();
			tell();
		}
		sleep_for_ever();
	}
	be_told();
	process_tree_signal(getpid(), 0, SIGUSR1);
	ck_assert(has_signal(named) && has_signal(*below));
	end(named);
	end(*below);
}

static void *sleeper(void *arg)
{
	(void)arg;
	sleep_for_ever();
	return NULL;
}

static bool looks_ended(pid_t pid)
{
	char path[64], text[512] = "";

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	(void)!fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	return strstr(text, ") Z ") != NULL;
}

/* /proc shows a zombie, but another thread of the process runs. */
TEST(one_whose_first_thread_has_ended)
{
	block();
	pid_t threaded = child();
	if (threaded == 0) {
		pthread_t thread;
		pthread_create(&thread, NULL, sleeper, NULL);
		tell();
		pthread_exit(NULL);
	}
	be_told();
	while (!looks_ended(threaded))
		sched_yield();
	process_tree_signal(getpid(), 0, SIGKILL);
	ck_assert_int_eq(waitpid(threaded, NULL, 0), threaded);
}

/* ---- an ancestor that ends while it is looked for ---- */

static pid_t parent_process, child_process;
static bool child_was_read;

/* Ends the parent when the child was read, and before the parent is read for it. */
static void end_parent(const char *path)
{
	char of_child[64], of_parent[64];

	snprintf(of_child, sizeof of_child, "/proc/%d/stat", (int)child_process);
	snprintf(of_parent, sizeof of_parent, "/proc/%d/stat", (int)parent_process);
	child_was_read |= strcmp(path, of_child) == 0;
	if (!child_was_read || strcmp(path, of_parent) != 0)
		return;
	before_read = NULL;
	end(parent_process);
}

/* The child belongs to the subreaper from then on: it is found when its ancestors are read anew. */
TEST(ancestor_that_ends)
{
	pid_t *below = shared(sizeof *below);
	pid_t root = getpid();

	block();
	parent_process = fork();
	ck_assert_int_ge(parent_process, 0);
	if (parent_process == 0) {
		if (fork() == 0) {
			*below = getpid();
			tell();
		}
		sleep_for_ever();
	}
	be_told();
	child_process = *below;
	before_read = end_parent;
	process_tree_signal(root, 0, SIGUSR1);
	ck_assert_msg(!before_read, "the parent did not end meanwhile");
	bool found = has_signal(child_process);
	end(child_process);
	ck_assert(found);
}

/* ---- pids that are used again ---- */

static pid_t victim, stranger;
static int stranger_error;

/* The victim ends and its parent reaps it; then a process that is not below that parent gets its pid. */
static void swap(void)
{
	struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&victim, .set_tid_size = 1};

	__real_kill(victim, SIGKILL);
	be_told();
	stranger = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
	stranger_error = errno;
	if (stranger == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sleep_for_ever();
	}
}

TEST_EACH(no_stranger_is_hit, 0, 2)
{
	pid_t *below = shared(sizeof *below);

	block();
	pid_t root = child();
	if (root == 0) {
		pid_t pid = child();
		if (pid == 0)
			sleep_for_ever();
		*below = pid;
		tell();
		waitpid(pid, NULL, 0);
		tell();
		sleep_for_ever();
	}
	be_told();
	victim = *below;
	before_open = _i == 0 ? swap : NULL;
	before_send = _i == 1 ? swap : NULL;
	process_tree_signal(root, 0, SIGUSR1);
	if (stranger < 0 && (stranger_error == EPERM || stranger_error == ENOSYS)) {
		fprintf(stderr, "no_stranger_is_hit: skipped, no process may choose a pid here\n");
	} else {
		ck_assert_int_eq(stranger, victim);
		ck_assert_msg(!has_signal(stranger), "a stranger got the signal");
		end(stranger);
	}
	end(root);
}

/* ---- without pidfds: a filter of system calls, an old kernel ---- */

TEST(without_pidfds_children_alone)
{
	pid_t *below = shared(sizeof *below);

	block();
	no_pidfds = true;
	pid_t direct = child();
	if (direct == 0) {
		pid_t pid = child();
		if (pid == 0)
			sleep_for_ever();
		*below = pid;
		tell();
		sleep_for_ever();
	}
	be_told();
	process_tree_signal(getpid(), 0, SIGUSR1);
	ck_assert(has_signal(direct) && !has_signal(*below));
	for (int calls = 0; waitpid(-1, NULL, WNOHANG) >= 0; calls++) { /* one level of the tree after the other */
		ck_assert_int_lt(calls, 100000);
		process_tree_signal(getpid(), 0, SIGKILL);
	}
	ck_assert_int_eq(errno, ECHILD);
}

/* ---- processes that fork while they are killed ---- */

enum { FORKS_MAX = 48, FORKS_SECONDS = 60 };

/* Each process forks others, in sessions of their own, as long as there are fewer than FORKS_MAX. */
static void fork_for_ever(atomic_int *room)
{
	for (;;) {
		if (atomic_fetch_sub(room, 1) <= 0) {
			atomic_fetch_add(room, 1);
			sched_yield();
		} else if (fork() == 0) {
			setsid();
		}
	}
}

/* Each process that is reaped makes room for another one, which the others fork at once. */
TEST(processes_that_fork)
{
	atomic_int *room = shared(sizeof *room);
	time_t until = time(NULL) + FORKS_SECONDS;

	block();
	atomic_store(room, FORKS_MAX);
	if (child() == 0)
		fork_for_ever(room);
	while (atomic_load(room) > 0)
		sched_yield();
	for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) >= 0;)
		if (pid > 0)
			atomic_fetch_add(room, 1);
		else
			process_tree_signal(getpid(), 0, SIGKILL);
	ck_assert_int_eq(errno, ECHILD);
	ck_assert(time(NULL) < until);
}

/* ---- stopped processes ---- */

/* A child and its child, in a session of its own: none, one, both are stopped; a zombie does not run. */
TEST(stopped)
{
	pid_t *below = shared(sizeof *below);

	block();
	ck_assert(process_tree_is_stopped(getpid()));
	pid_t top = child();
	if (top == 0) {
		if (child() == 0) {
			*below = getpid();
			setsid();
			tell();
		}
		sleep_for_ever();
	}
	be_told();
	ck_assert(!process_tree_is_stopped(getpid()));
	__real_kill(top, SIGSTOP);
	ck_assert_int_eq(waitpid(top, NULL, WUNTRACED), top);
	ck_assert_int_eq(process_state(top), 'T');
	ck_assert(!process_tree_is_stopped(getpid()) && !process_tree_is_stopped(top));
	process_tree_signal(getpid(), 0, SIGSTOP);
	while (process_state(*below) != 'T')
		sched_yield();
	ck_assert(process_tree_is_stopped(getpid()) && process_tree_is_stopped(top));
	__real_kill(*below, SIGKILL);
	while (process_state(*below) != 'Z')
		sched_yield();
	ck_assert(process_tree_is_stopped(getpid()));
	end(top);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	ck_assert_int_eq(process_state(top), 0);
}

#ifndef __SANITIZE_THREAD__ /* its vfork() is a fork() */
/* A shell between vfork() and the exec() of its child does not stop while that is stopped. */
TEST(stopped_in_vfork)
{
	block();
	pid_t top = child();
	if (top == 0) {
		if (vfork() == 0) {
			tell();
			sleep_for_ever();
		}
		_exit(0);
	}
	be_told();
	ck_assert(!process_tree_is_stopped(getpid()));
	process_tree_signal(getpid(), 0, SIGSTOP);
	while (!process_tree_is_stopped(getpid()))
		sched_yield();
	ck_assert_int_eq(process_state(top), 'D');
	process_tree_signal(getpid(), 0, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
}
#endif
