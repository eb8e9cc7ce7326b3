/* SPDX-License-Identifier: MIT */
/* See commands.h. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "commands.h"

bool interrupt_begin(struct interrupt *interrupt, struct client *client)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction action;
	sigset_t signals;
	interrupt->number = 0;
	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&signals, numbers[i]);
	interrupt->file = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (interrupt->file < 0) {
		report_error("signalfd: %s", strerror(errno));
		return false;
	}
	sigprocmask(SIG_BLOCK, &signals, &interrupt->before);
	client->fds[CLIENT_ORDERS].fd = interrupt->file;
	client->read_order = interrupt_read_order;
	client->context = interrupt;
	return true;
}

enum client_order interrupt_read_order(void *context)
{
	struct interrupt *interrupt = context;
	struct signalfd_siginfo info;
	assert(interrupt->file >= 0);
	if (interrupt->number == 0 && read(interrupt->file, &info, sizeof info) == (ssize_t)sizeof info)
		interrupt->number = (int)info.ssi_signo;
	return interrupt->number != 0 ? CLIENT_STOP : CLIENT_GO_ON;
}

void interrupt_end(struct interrupt *interrupt)
{
	assert(interrupt->file >= 0);
	close(interrupt->file);
	if (interrupt->number != 0)
		kill(getpid(), interrupt->number);
	sigprocmask(SIG_SETMASK, &interrupt->before, NULL);
}
