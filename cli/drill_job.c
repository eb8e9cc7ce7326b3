/* SPDX-License-Identifier: MIT */
/* A run of the job for redlockctl drill: starts, freezes, continues and ends it. See drill.h. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drill.h"
#include "server/base/base.h"

enum { FREEZE_US = 10000000, FREEZE_PAUSE_MS = 1 };

bool drill_job_init(struct drill_job *job)
{
	void *page = mmap(NULL, sizeof *job->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	*job = (struct drill_job){.page = page == MAP_FAILED ? NULL : page};
	return job->page;
}

/* Runs in the new process, and does not return. */
static void drill_job_become(struct drill_page *page, const sigset_t *mask, pid_t drill)
{
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	setpgid(0, 0); /* the keys of a terminal are for the drill */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != drill || nothing < 0)
		_exit(EXIT_STATUS_SYSTEM);
	dup2(nothing, STDIN_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout is for the report */
	sigprocmask(SIG_SETMASK, mask, NULL);
	_exit(run_command_shared(&page->arguments, &page->run));
}

bool drill_job_start(struct drill_job *job, const struct arguments *arguments, uint64_t wait_ms, const sigset_t *mask)
{
	struct arguments *of_run = &job->page->arguments;
	pid_t drill = getpid();
	assert(job->foreground == 0);
	memset(job->page, 0, sizeof *job->page);
	*of_run = *arguments;
	of_run->command = COMMAND_RUN;
	of_run->json = false;
	of_run->wait_ms = wait_ms;
	of_run->no_wait = wait_ms == 0;
	fflush(stdout);
	job->foreground = fork();
	if (job->foreground == 0)
		drill_job_become(job->page, mask, drill);
	if (job->foreground > 0)
		return true;
	job->foreground = 0;
	return false;
}

bool drill_job_has_ended(struct drill_job *job)
{
	int status;
	assert(job->foreground > 0);
	if (waitpid(job->foreground, &status, WNOHANG) <= 0)
		return false;
	job->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_STATUS_SIGNALLED + WTERMSIG(status);
	job->foreground = 0;
	return true;
}

/* ---- stopped processes: none is waited for by its parent, so their pids are not free ---- */

bool drill_job_freeze(struct drill_job *job)
{
	uint64_t until_us = clock_now_us() + FREEZE_US;
	int times = 0;
	assert(job->foreground > 0);
	job->page->arguments.quiet = true; /* the loss is no news */
	kill(job->foreground, SIGSTOP);
	/* twice, since the first time may have missed the signal of a process that was just forked */
	while (times < 2 && clock_now_us() < until_us) {
		process_tree_signal(job->foreground, 0, SIGSTOP);
		bool halted = process_is_halted(process_state(job->foreground)) &&
			      process_tree_is_stopped(job->foreground);
		times = halted ? times + 1 : 0;
		poll(NULL, 0, halted ? 0 : FREEZE_PAUSE_MS);
	}
	return times == 2;
}

/* True for a process that has ended. */
static bool drill_job_is_over(pid_t pid)
{
	char state = process_state(pid);
	return state == 'Z' || state == 'X' || state == '\0';
}

bool drill_job_is_frozen(const struct drill_job *job)
{
	pid_t command = job->page->run.group;
	return command > 0 && job->page->run.ended_us == 0 && !drill_job_is_over(job->foreground) &&
	       !drill_job_is_over(command);
}

void drill_job_continue(struct drill_job *job)
{
	assert(job->foreground > 0);
	job->page->arguments.quiet = false;
	process_tree_signal(job->foreground, 0, SIGCONT);
	kill(job->foreground, SIGCONT);
}

void drill_job_continue_alone(const struct drill_job *job)
{
	assert(job->page->run.supervisor > 0);
	process_tree_signal(job->page->run.supervisor, 0, SIGCONT);
}

bool drill_job_has_finished(const struct drill_job *job)
{
	return drill_job_is_over(job->page->run.group);
}

void drill_job_continue_supervisor(const struct drill_job *job)
{
	assert(job->page->run.supervisor > 0);
	kill(job->page->run.supervisor, SIGCONT);
}

bool drill_job_is_released(const struct drill_job *job)
{
	return drill_job_is_over(job->page->run.supervisor);
}

/* ---- the end ---- */

static void drill_job_wait(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}

void drill_job_end(struct drill_job *job)
{
	if (job->foreground == 0)
		return;
	job->page->arguments.quiet = true;
	kill(job->foreground, SIGKILL);
	drill_job_wait(job->foreground);
	if (job->page->run.supervisor > 0)
		drill_job_wait(job->page->run.supervisor); /* it has become a child of the drill, a subreaper */
	job->foreground = 0;
}
