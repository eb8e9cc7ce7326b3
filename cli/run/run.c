/* Sets up `run`: signals, the shared page, the socket, the two processes. See run_shared.h.
 *
 * Foreground process and supervisor block all signals and read them from descriptors; the command gets the signals
 * (blocked, ignored) as redlockctl got them. */
#include "run.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "descriptors.h"
#include "foreground.h"
#include "supervisor.h"

static int run_fail(const char *what)
{
	assert(what);
	report_complain("%s: %s", what, strerror(errno));
	return EXIT_STATUS_SYSTEM;
}

/* SIGCHLD must not be ignored: the kernel would reap the command and drop its exit status. */
static void run_block_signals(struct run *run)
{
	sigset_t all;
	struct sigaction usual = {.sa_handler = SIG_DFL};

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &run->inherited_mask);
	sigaction(SIGCHLD, &usual, &run->inherited_child);
}

static struct run_shared *run_share(void)
{
	void *page = mmap(NULL, sizeof(struct run_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return page == MAP_FAILED ? NULL : page;
}

/* The owner if none was given: enough to find the process. */
static const char *run_owner(char owner[ARGUMENTS_OWNER_MAX + 1])
{
	char host[96] = "";

	if (gethostname(host, sizeof host - 1) != 0)
		strcpy(host, "unknown");
	snprintf(owner, ARGUMENTS_OWNER_MAX + 1, "%s:%ld", host, (long)getpid());
	return owner;
}

static int run_fork(struct run *run, int sockets[2])
{
	pid_t supervisor = fork();

	assert(sockets[0] >= 0 && sockets[1] >= 0);
	if (supervisor < 0)
		return run_fail("fork");
	run->socket = sockets[supervisor == 0];
	close(sockets[supervisor != 0]);
	return supervisor == 0 ? supervisor_run(run) : foreground_run(run, supervisor);
}

int run_command(const struct arguments *arguments)
{
	char owner[ARGUMENTS_OWNER_MAX + 1];
	struct arguments with_owner = *arguments;
	struct run run = {.arguments = &with_owner, .shared = run_share(), .foreground = getpid()};
	int sockets[2];

	assert(arguments->command == COMMAND_RUN && arguments->argv);
	if (!run.shared)
		return run_fail("mmap");
	if (!arguments->owner)
		with_owner.owner = run_owner(owner);
	descriptors_note();
	run_block_signals(&run);
	terminal_open(&run.terminal);
	/* Processes that the command leaves behind become children of the supervisor, or of the foreground process if
	 * the supervisor has ended. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		return run_fail("prctl");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		return run_fail("socketpair");
	int status = run_fork(&run, sockets);
	munmap(run.shared, sizeof *run.shared);
	return status;
}
