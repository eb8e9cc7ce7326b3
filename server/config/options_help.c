/* Prints the table of options: as text for a terminal, as a manual page (mdoc, section 8) and as a table in Markdown.
 * The frame of the manual page is written here. Writes to a stream and nothing else. */
#include <assert.h>
#include <string.h>

#include "options_table.h"

enum { OPTIONS_HELP_WIDTH = 80, OPTIONS_HELP_INDENT = 8 };

/* "--dev[=N]", "--listen=ADDRESS", "--version" */
static void options_print_flag(FILE *to, const struct options_entry *entry)
{
	bool optional = options_value_optional(entry);

	assert(entry);
	fprintf(to, "--%s", entry->name);
	if (entry->argument)
		fprintf(to, optional ? "[=%s]" : "=%s", entry->argument);
}

/* The default in words. */
static const char *options_standard(const struct options_entry *entry)
{
	assert(entry);
	if (entry->kind == OPTIONS_KIND_MASTERS)
		return "none; needed unless --dev is given";
	if (!entry->standard)
		return "none";
	return entry->standard[0] == '\0' ? "empty" : entry->standard;
}

/* ---- text ---- */

/* Prints words, broken into indented lines. */
static void options_print_wrapped(FILE *to, const char *text)
{
	int column = 0;

	assert(text);
	while (*text != '\0') {
		int len = (int)strcspn(text, " ");
		if (column > 0 && column + 1 + len > OPTIONS_HELP_WIDTH) {
			fputc('\n', to);
			column = 0;
		}
		fprintf(to, "%*s%.*s", column == 0 ? OPTIONS_HELP_INDENT : 1, "", len, text);
		column += len + (column == 0 ? OPTIONS_HELP_INDENT : 1);
		text += len;
		text += strspn(text, " ");
	}
	fputc('\n', to);
}

static void options_print_text(FILE *to)
{
	char allowed[OPTIONS_ALLOWED_MAX], line[512];

	fputs("Usage: redlockd --masters LIST [OPTION]...\n"
	      "       redlockd --dev[=N] [OPTION]...\n"
	      "\n"
	      "Leases over HTTP, by Redlock over independent Redis masters.\n"
	      "\n"
	      "Every option is also an environment variable and a key of the --config file:\n"
	      "--max-ttl-ms is REDLOCKD_MAX_TTL_MS is \"max_ttl_ms\". A flag overrides the\n"
	      "variable, the variable the file. Any mistake ends the program.\n",
	      to);
	for (size_t i = 0; i < OPTIONS_COUNT; i++) {
		const struct options_entry *entry = &options_table[i];
		fputs("\n  ", to);
		options_print_flag(to, entry);
		fputc('\n', to);
		options_print_wrapped(to, entry->help);
		snprintf(line, sizeof line, "Allowed: %s.", options_allowed(entry, allowed));
		options_print_wrapped(to, line);
		snprintf(line, sizeof line, "Default: %s.", options_standard(entry));
		if (options_in_environment(entry))
			options_print_wrapped(to, line);
	}
}

/* ---- the manual page ---- */

/* Prints text escaped for roff. */
static void options_print_roff(FILE *to, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", to);
	for (; *text != '\0'; text++) {
		if (*text == '\\')
			fputs("\\e", to);
		else if (*text == '-')
			fputs("\\-", to);
		else if (*text == ' ' && text[-1] == '.')
			fputc('\n', to); /* a new sentence begins on a new line */
		else
			fputc(*text, to);
	}
	fputc('\n', to);
}

static void options_print_man_option(FILE *to, const struct options_entry *entry)
{
	bool optional = options_value_optional(entry);
	char allowed[OPTIONS_ALLOWED_MAX], line[512], name[OPTIONS_NAME_MAX];

	assert(entry);
	fprintf(to, ".It Fl \\-%s", entry->name);
	if (entry->argument)
		fprintf(to, optional ? " Ns Op = Ns Ar %s" : " Ns = Ns Ar %s", entry->argument);
	fputc('\n', to);
	options_print_roff(to, entry->help);
	fputs(".Pp\n", to);
	snprintf(line, sizeof line, "Allowed: %s.", options_allowed(entry, allowed));
	options_print_roff(to, line);
	if (!options_in_environment(entry))
		return;
	snprintf(line, sizeof line, "Default: %s.", options_standard(entry));
	options_print_roff(to, line);
	options_spell(entry, OPTIONS_FROM_ENVIRONMENT, name);
	fprintf(to, "Variable:\n.Ev %s .\n", name);
	options_spell(entry, OPTIONS_FROM_FILE, name);
	if (options_in_file(entry))
		fprintf(to, "Key of the file:\n.Cm %s .\n", name);
}

static const char options_man_head[] =
	".Dd November 21, 2026\n"
	".Dt REDLOCKD 8\n"
	".Os\n"
	".Sh NAME\n"
	".Nm redlockd\n"
	".Nd lock service over HTTP, by Redlock over independent Redis masters\n"
	".Sh SYNOPSIS\n"
	".Nm\n"
	".Fl \\-masters Ns = Ns Ar LIST\n"
	".Op Ar OPTION ...\n"
	".Nm\n"
	".Fl \\-dev Ns Op = Ns Ar N\n"
	".Op Ar OPTION ...\n"
	".Sh DESCRIPTION\n"
	".Nm\n"
	"answers HTTP requests for leases on named resources.\n"
	"A lease is acquired with POST /locks, extended with PUT and released with DELETE on /locks/NAME.\n"
	"Each of them is carried out by Redlock: a majority of N independent Redis masters must agree.\n"
	".Pp\n"
	"A lease ends by itself when its ttl is over, so work under a lock must stop, or extend the lease, within the\n"
	"validity in the answer.\n"
	".Sh OPTIONS\n"
	"A value follows its flag after = or as the next argument; an optional value only after =.\n"
	"Every option is also an environment variable and a key of the configuration file.\n"
	"A flag overrides the variable, the variable the file, the file the default.\n"
	"An unknown option, a bad value or a bad file ends the program with a message; it never uses a default "
	"instead.\n"
	".Bl -tag -width Ds\n";

static const char options_man_tail[] =
	".El\n"
	".Sh ENVIRONMENT\n"
	"The variable of an option is its name in capitals, with underscores, after\n"
	".Ev REDLOCKD_ :\n"
	".Fl \\-max\\-ttl\\-ms\n"
	"is\n"
	".Ev REDLOCKD_MAX_TTL_MS .\n"
	"Other variables with this prefix are a mistake, except those that Kubernetes sets for a service of that "
	"name.\n"
	".Bl -tag -width Ds\n"
	".It Ev NOTIFY_SOCKET , Ev WATCHDOG_USEC\n"
	"The socket of a service manager such as systemd, which gets a message when the program is ready, reloads its "
	"files, stops, and that it is alive; and how often.\n"
	".It Ev PATH\n"
	"Where\n"
	".Fl \\-dev\n"
	"searches for redis\\-server, else valkey\\-server.\n"
	".It Ev TMPDIR\n"
	"Where\n"
	".Fl \\-dev\n"
	"makes its temporary folder; /tmp if it is not set.\n"
	".El\n"
	".Sh FILES\n"
	"Only files that an option names are read.\n"
	"The service of systemd uses these, and reads them as root, so that nobody else needs to read them:\n"
	".Bl -tag -width Ds\n"
	".It Pa /etc/redlockd/redlockd.json\n"
	"Its\n"
	".Fl \\-config .\n"
	".It Pa /etc/redlockd/masters\n"
	"Its\n"
	".Fl \\-masters\\-file ,\n"
	"mode 0600.\n"
	"As long as it is empty the service is not started.\n"
	".El\n"
	".Pp\n"
	"Files with a secret\n"
	".Po\n"
	".Fl \\-masters\\-file , \\-masters\\-key , \\-tls\\-key ,\n"
	"and\n"
	".Fl \\-config\n"
	"where there is a password in it\n"
	".Pc\n"
	"are rejected if others may read them.\n"
	"They, and the other files that grant rights\n"
	".Po Fl \\-keys , \\-tls\\-cert , \\-tls\\-client\\-ca , \\-masters\\-ca , \\-masters\\-cert Pc ,\n"
	"are rejected if their group or others may write them, or if they belong neither to root nor to the user "
	"that runs the program.\n"
	".Pp\n"
	"An example of a\n"
	".Fl \\-config\n"
	"file:\n"
	".Bd -literal -offset indent\n"
	"{\n"
	"  \"listen\": [\"0.0.0.0:8443\", \"unix:/run/redlockd/http.sock\"],\n"
	"  \"tls_cert\": \"/etc/redlockd/server.pem\",\n"
	"  \"tls_key\": \"/etc/redlockd/server\\-key.pem\",\n"
	"  \"keys\": \"/etc/redlockd/keys.json\",\n"
	"  \"max_ttl_ms\": 120000,\n"
	"  \"log_format\": \"json\"\n"
	"}\n"
	".Ed\n"
	".Pp\n"
	"And of a\n"
	".Fl \\-masters\\-file :\n"
	".Bd -literal -offset indent\n"
	"# user and password are percent\\-encoded\n"
	"redis://locks:secret@10.0.0.1:6379\n"
	"redis://locks:secret@10.0.0.2:6379\n"
	"redis://locks:secret@10.0.0.3:6379\n"
	".Ed\n"
	".Sh SIGNALS\n"
	".Bl -tag -width Ds\n"
	".It Dv SIGTERM\n"
	"/readyz answers 503 and new leases are refused; after a second, when the requests in flight have been "
	"answered, "
	"the\n"
	"program ends, at the latest after\n"
	".Fl \\-drain\\-ms .\n"
	"Leases are stored in the masters and outlast the program, except those that a connection holds.\n"
	".It Dv SIGINT\n"
	"The same without the second.\n"
	"A second\n"
	".Dv SIGINT\n"
	"ends the program at once, with status 1.\n"
	".It Dv SIGHUP\n"
	"The files of\n"
	".Fl \\-keys , \\-tls\\-cert , \\-tls\\-key\n"
	"and\n"
	".Fl \\-tls\\-client\\-ca\n"
	"are read again; if one is bad, the old ones stay in use, and the log says so.\n"
	"It acts as\n"
	".Dv SIGINT\n"
	"with\n"
	".Fl \\-dev ,\n"
	"and if the kernel or the shell sends it because the terminal of the program was closed.\n"
	"From any other sender it is a reload, also after the terminal was closed.\n"
	"If it was ignored at the start\n"
	".Pq Xr nohup 1\n"
	"it is always a reload.\n"
	".El\n"
	".Sh EXIT STATUS\n"
	".Bl -tag -width Ds\n"
	".It 0\n"
	"Ended by a signal as above, or after\n"
	".Fl \\-help\n"
	"or\n"
	".Fl \\-version .\n"
	".It 1\n"
	"The program could not start.\n"
	".It 2\n"
	"A mistake in the configuration.\n"
	".El\n"
	".Sh EXAMPLES\n"
	"To try it out:\n"
	".Bd -literal -offset indent\n"
	"redlockd \\-\\-dev\n"
	"curl \\-i localhost:8080/locks \\-d '{\"resource\":\"orders/42\"}'\n"
	".Ed\n"
	".Pp\n"
	"Over three masters, for callers with keys, with all passwords off the command line:\n"
	".Bd -literal -offset indent\n"
	"redlockctl key new \\-\\-name billing \\-\\-prefix orders/ \\-\\-right acquire \\-\\-out billing.key\n"
	"redlockd \\-\\-masters\\-file masters \\-\\-listen 0.0.0.0:8443 \\-\\-keys keys.json \\e\n"
	"  \\-\\-tls\\-cert server.pem \\-\\-tls\\-key server\\-key.pem\n"
	".Ed\n"
	".Pp\n"
	"As a service, once it is installed:\n"
	".Bd -literal -offset indent\n"
	"echo redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 >/etc/redlockd/masters\n"
	"systemctl enable \\-\\-now redlockd\n"
	".Ed\n"
	".Sh SEE ALSO\n"
	".Xr curl 1 ,\n"
	".Xr redis-server 1 ,\n"
	".Xr redlockctl 1 ,\n"
	".Xr systemctl 1\n"
	".Pp\n"
	"The Redlock algorithm:\n"
	".Lk https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/\n";

static void options_print_man(FILE *to)
{
	fputs(options_man_head, to);
	for (size_t i = 0; i < OPTIONS_COUNT; i++)
		options_print_man_option(to, &options_table[i]);
	fputs(options_man_tail, to);
}

/* ---- Markdown ---- */

/* Prints text for a cell of a table. */
static void options_print_cell(FILE *to, const char *text)
{
	for (; *text != '\0'; text++) {
		if (strchr("|*_<>\\`", *text))
			fputc('\\', to);
		fputc(*text, to);
	}
}

static void options_print_markdown(FILE *to)
{
	char allowed[OPTIONS_ALLOWED_MAX], name[OPTIONS_NAME_MAX];

	fputs("| option, variable, key | default | allowed | meaning |\n|---|---|---|---|\n", to);
	for (size_t i = 0; i < OPTIONS_COUNT; i++) {
		const struct options_entry *entry = &options_table[i];
		fputs("| `", to);
		options_print_flag(to, entry);
		fputc('`', to);
		options_spell(entry, OPTIONS_FROM_ENVIRONMENT, name);
		if (options_in_environment(entry))
			fprintf(to, "<br>`%s`", name);
		options_spell(entry, OPTIONS_FROM_FILE, name);
		if (options_in_file(entry))
			fprintf(to, "<br>`%s`", name);
		bool literal = entry->standard && entry->standard[0] != '\0';
		fprintf(to, literal ? " | `%s` | " : " | %s | ", options_standard(entry));
		options_print_cell(to, options_allowed(entry, allowed));
		fputs(" | ", to);
		options_print_cell(to, entry->help);
		fputs(" |\n", to);
	}
}

void options_print_help(FILE *to, enum options_help form)
{
	assert(to);
	switch (form) {
	case OPTIONS_HELP_TEXT: options_print_text(to); break;
	case OPTIONS_HELP_MAN: options_print_man(to); break;
	case OPTIONS_HELP_MARKDOWN: options_print_markdown(to); break;
	}
	fflush(to);
}
