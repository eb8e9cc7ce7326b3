/* redlockctl: leases of redlockd from the command line. Reads the options and hands over to run.c, commands.c or
 * key_command.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "cli/run/run.h"
#include "commands.h"
#include "exit_status.h"
#include "key_command.h"
#include "report.h"

extern const char build_commit[]; /* made by cmake/commit.cmake */

/* A key that came as a variable: not for the command of run, and not for whoever looks into /proc/PID/environ later. */
static void forget_api_key(char *value)
{
	if (value != NULL)
		explicit_bzero(value, strlen(value));
	unsetenv("REDLOCKCTL_API_KEY");
}

/* Not refused: a mesh may encrypt what leaves here in plain. */
static void warn_of_exposed_key(const struct options *options)
{
	struct report report = {.json = options->json && options->command == COMMAND_RUN, .name = options->name};
	const struct server *exposed = NULL;

	for (size_t i = 0; i < options->servers.count && exposed == NULL; i++)
		if (options->servers.items[i].is_exposed)
			exposed = &options->servers.items[i];
	if (exposed != NULL && options->credentials.api_key[0] != '\0')
		report_event(&report, REPORT_NOTE, "warning",
			     json_pack("{s:s, s:s}", "code", "exposed-key", "server", exposed->text),
			     "warning: the key goes to %s without TLS, and can be read on the way there: better use "
			     "https://",
			     exposed->text);
}

static void forget_credentials(struct options *options)
{
	options->credentials.api_key_file = NULL;
	explicit_bzero(options->credentials.api_key, sizeof(options->credentials.api_key));
}

static int run(struct options *options)
{
	char message[CREDENTIALS_MESSAGE_MAX];

	if (options->command == COMMAND_KEY_NEW || options->command == COMMAND_KEY_HASH)
		return options->command == COMMAND_KEY_NEW ? key_command_new(options) : key_command_hash(options);
	if (options->command == COMMAND_HEALTH)
		/* none is needed, and a health check goes on where a key is to be exchanged */
		forget_credentials(options);
	if (!credentials_load(&options->credentials, message)) {
		report_complain("%s", message);
		return STATUS_USAGE;
	}
	warn_of_exposed_key(options);
	return options->command == COMMAND_RUN ? run_command(options) : commands_run(options);
}

int main(int argc, char **argv)
{
	char *api_key = getenv("REDLOCKCTL_API_KEY");
	struct options_environment environment = {
		.server = getenv("REDLOCKCTL_SERVER"),
		.token = getenv("REDLOCK_TOKEN"),
		.cacert = getenv("REDLOCKCTL_CACERT"),
		.cert = getenv("REDLOCKCTL_CERT"),
		.key = getenv("REDLOCKCTL_KEY"),
		.key_file = getenv("REDLOCKCTL_KEY_FILE"),
		.api_key = api_key,
	};
	static struct options options;

	(void)argc;
	bool parsed = options_parse(&options, argv, &environment);
	forget_api_key(api_key);
	if (!parsed) {
		report_complain("%s", options.message);
		return STATUS_USAGE;
	}
	if (options.command != COMMAND_HELP && options.command != COMMAND_VERSION)
		return run(&options);
	if (options.command == COMMAND_HELP)
		fputs(options_help(), stdout);
	else
		printf("redlockctl " REDLOCKCTL_VERSION " (%s)\n", build_commit);
	return fflush(stdout) == 0 ? STATUS_OK : STATUS_SYSTEM;
}
