/* SPDX-License-Identifier: MIT */
/* redlockctl: leases of redlockd from the command line. Parses the arguments and calls run.c, commands.c or
 * key_command.c. */
#include <assert.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "cli/run/run.h"
#include "commands.h"
#include "server/base/base.h"

/* Only a warning, because a service mesh may encrypt the connection. */
static void warn_of_exposed_key(const struct arguments *arguments)
{
	const struct address *exposed = NULL;
	for (size_t i = 0; i < arguments->servers.count && !exposed; i++)
		if (server_is_exposed(&arguments->servers.items[i]))
			exposed = &arguments->servers.items[i];
	if (exposed && arguments->credentials.api_key[0] != '\0')
		report_event(arguments, REPORT_NOTE, "warning",
			     json_pack("{s:s, s:s}", "code", "exposed-key", "server", exposed->shown),
			     "warning: the key goes to %s without TLS, and can be read on the way there: better use "
			     "https://",
			     exposed->shown);
}

/* Sets an owner that is enough to find the process. */
static void set_owner(struct arguments *arguments)
{
	static char owner[ARGUMENTS_OWNER_MAX + 1];
	char host[96] = "unknown";
	gethostname(host, sizeof host - 1);
	snprintf(owner, sizeof owner, "%s:%ld", host, (long)getpid());
	arguments->owner = owner;
}

/* Descriptors that the program and its libraries need, besides the standard ones. Without them a command would later
 * wait in vain. */
enum { FILES_NEEDED = 12 };

static bool has_files(void)
{
	int files[FILES_NEEDED], count = 0;
	while (count < FILES_NEEDED && (files[count] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0)
		count++;
	bool enough = count == FILES_NEEDED;
	if (!enough)
		report_error("it needs %d more open files, and may have only %d (ulimit -n)", FILES_NEEDED, count);
	while (count > 0)
		close(files[--count]);
	return enough;
}

static int dispatch_command(struct arguments *arguments)
{
	char message[CREDENTIALS_MESSAGE_MAX];
	assert(arguments->command < COMMAND_HELP);
	if (arguments->command == COMMAND_KEY_NEW || arguments->command == COMMAND_KEY_HASH)
		return arguments->command == COMMAND_KEY_NEW ? key_command_new(arguments) : key_command_hash(arguments);
	if (arguments->command == COMMAND_HEALTH && !arguments->restart_safe) {
		/* no key is needed, and a health check must not fail while a key file is replaced */
		arguments->credentials.api_key_file = NULL;
		explicit_bzero(arguments->credentials.api_key, sizeof arguments->credentials.api_key);
	}
	if (!has_files())
		return EXIT_STATUS_SYSTEM;
	if (!credentials_load(&arguments->credentials, message)) {
		report_error("%s", message);
		return EXIT_STATUS_USAGE;
	}
	warn_of_exposed_key(arguments);
	if (!arguments->owner && (arguments->command == COMMAND_ACQUIRE || arguments->command == COMMAND_RUN ||
				  arguments->command == COMMAND_DRILL))
		set_owner(arguments);
	return arguments->command == COMMAND_RUN ? run_command(arguments) : commands_run(arguments);
}

int main(int argc, char **argv)
{
	char *api_key = getenv("REDLOCKCTL_API_KEY");
	static struct arguments arguments;
	(void)argc;
	if (!file_open_standard())
		return EXIT_STATUS_SYSTEM;
	json_set_alloc_funcs(memory_alloc, free); /* a lack of memory ends the process (base.h) */
	bool parsed = arguments_parse(&arguments, argv, environ);
	/* hides the key from the command of run, and from readers of /proc/PID/environ */
	if (api_key)
		explicit_bzero(api_key, strlen(api_key));
	unsetenv("REDLOCKCTL_API_KEY");
	if (!parsed) {
		report_error("%s", arguments.message);
		return EXIT_STATUS_USAGE;
	}
	if (arguments.command != COMMAND_HELP && arguments.command != COMMAND_VERSION)
		return dispatch_command(&arguments);
	if (arguments.command == COMMAND_HELP)
		arguments_print_help(&arguments, stdout);
	else
		printf("redlockctl " REDLOCKCTL_VERSION " (%s)\n", build_commit);
	return fflush(stdout) == 0 ? EXIT_STATUS_OK : EXIT_STATUS_SYSTEM;
}
