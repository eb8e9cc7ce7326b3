/* redlockctl: leases of redlockd from the command line. Reads the options and hands over to run.c or commands.c. */
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "options.h"
#include "report.h"
#include "run.h"
#include "status.h"

int main(int argc, char **argv)
{
	struct options_environment environment = {.server = getenv("REDLOCKCTL_SERVER"), .token = getenv("REDLOCK_TOKEN")};
	static struct options options;

	(void)argc;
	if (!options_parse(&options, argv, &environment)) {
		report_complain("%s", options.message);
		return STATUS_USAGE;
	}
	if (options.command == COMMAND_HELP)
		fputs(options_help(), stdout);
	else if (options.command == COMMAND_VERSION)
		puts("redlockctl " REDLOCKCTL_VERSION);
	else
		return options.command == COMMAND_RUN ? run_command(&options) : commands_run(&options);
	return fflush(stdout) == 0 ? STATUS_OK : STATUS_SYSTEM;
}
