/* Signals to descendants: whatever their names look like, however fast they fork, and never to a stranger that has the
 * pid of one that ended. */
#include <check.h>
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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

#include "cli/run/process_tree.h"

/* ---- system calls that the linker leads through here ---- */

static void (*before_open)(void), (*before_send)(void);
static bool no_pidfds;

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

static int told[2]; /* a byte from a process that is ready */

static void tell(void)
{
	ck_assert_int_eq(write(told[1], "", 1), 1);
}

static void be_told(void)
{
	char byte;
	ck_assert_int_eq(read(told[0], &byte, 1), 1);
}

static void block(void)
{
	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL); /* so it stays pending where it was sent */
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

/* A child with such a name, and a child of that which left its group. */
START_TEST(any_name)
{
	pid_t *below = mmap(NULL, sizeof(*below), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

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
	ck_assert_uint_eq(process_tree_signal(getpid(), 0, SIGUSR1), 2);
	ck_assert(has_signal(named) && has_signal(*below));
	end(named);
	end(*below);
}
END_TEST

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

/* To the kernel it is a zombie, and it works on. */
START_TEST(one_whose_first_thread_has_ended)
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
	ck_assert_uint_eq(process_tree_signal(getpid(), 0, SIGKILL), 1);
	ck_assert_int_eq(waitpid(threaded, NULL, 0), threaded);
}
END_TEST

/* ---- pids that are used again ---- */

static pid_t victim, stranger;
static int stranger_error;

/* The victim ends, its parent collects it, and a process that is not below that parent gets its pid. */
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

START_TEST(no_stranger_is_hit)
{
	pid_t *below = mmap(NULL, sizeof(*below), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

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
	unsigned count = process_tree_signal(root, 0, SIGUSR1);
	if (stranger < 0 && (stranger_error == EPERM || stranger_error == ENOSYS)) {
		fprintf(stderr, "no_stranger_is_hit: skipped, no process may choose a pid here\n");
	} else {
		ck_assert_int_eq(stranger, victim);
		ck_assert_uint_eq(count, 0);
		ck_assert_msg(!has_signal(stranger), "a stranger got the signal");
		end(stranger);
	}
	end(root);
}
END_TEST

/* ---- no pidfds: a filter of system calls, an old kernel ---- */

START_TEST(without_pidfds_children_alone)
{
	pid_t *below = mmap(NULL, sizeof(*below), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

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
	ck_assert_uint_eq(process_tree_signal(getpid(), 0, SIGUSR1), 1);
	ck_assert(has_signal(direct) && !has_signal(*below));
	for (int calls = 0; waitpid(-1, NULL, WNOHANG) >= 0; calls++) { /* level by level */
		ck_assert_int_lt(calls, 100000);
		process_tree_signal(getpid(), 0, SIGKILL);
	}
	ck_assert_int_eq(errno, ECHILD);
}
END_TEST

/* ---- those that fork while they are killed ---- */

enum { HYDRA_HEADS = 48, HYDRA_SECONDS = 60 };

/* Each head makes others, in sessions of their own, whenever there is room for one. */
static void hydra(atomic_int *room)
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

/* Room comes back with each head that is collected: the survivors fill it at once. */
START_TEST(faster_than_a_hydra)
{
	atomic_int *room = mmap(NULL, sizeof(*room), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	time_t until = time(NULL) + HYDRA_SECONDS;

	block();
	atomic_store(room, HYDRA_HEADS);
	if (child() == 0)
		hydra(room);
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
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_tree");
	TCase *tests = tcase_create("cli_tree");
	tcase_set_timeout(tests, HYDRA_SECONDS * 2);
	tcase_add_loop_test(tests, any_name, 0, sizeof(names) / sizeof(*names));
	tcase_add_test(tests, one_whose_first_thread_has_ended);
	tcase_add_loop_test(tests, no_stranger_is_hit, 0, 2);
	tcase_add_test(tests, without_pidfds_children_alone);
	tcase_add_test(tests, faster_than_a_hydra);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
