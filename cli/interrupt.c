/* Signals from a descriptor: see interrupt.h. A signal that was ignored when redlockctl was started (nohup) stays
 * ignored: it must not be blocked, since the kernel keeps blocked signals also if they are ignored. */
#include "interrupt.h"

#include <assert.h>
#include <sys/signalfd.h>
#include <unistd.h>

bool interrupt_begin(struct interrupt *interrupt)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction action;
	sigset_t signals;

	*interrupt = (struct interrupt){.file = {.fd = -1, .events = CURL_WAIT_POLLIN}};
	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&signals, numbers[i]);
	interrupt->file.fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (interrupt->file.fd < 0)
		return false;
	sigprocmask(SIG_BLOCK, &signals, &interrupt->before);
	return true;
}

bool interrupt_came(struct interrupt *interrupt)
{
	struct signalfd_siginfo info;

	assert(interrupt->file.fd >= 0);
	if (interrupt->number == 0 && read(interrupt->file.fd, &info, sizeof info) == (ssize_t)sizeof info)
		interrupt->number = (int)info.ssi_signo;
	return interrupt->number != 0;
}

enum acquire_order interrupt_read_order(void *context)
{
	return interrupt_came(context) ? ACQUIRE_STOP : ACQUIRE_GO_ON;
}

void interrupt_end(struct interrupt *interrupt)
{
	assert(interrupt->file.fd >= 0);
	close(interrupt->file.fd);
	if (interrupt->number != 0)
		kill(getpid(), interrupt->number);
	sigprocmask(SIG_SETMASK, &interrupt->before, NULL);
}
