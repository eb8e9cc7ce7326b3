/* SPDX-License-Identifier: MIT */
/* Commands of redlockctl against a server that follows a script: requests, output and exit status are those of
 * cli_transcripts.txt. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/commands.h"
#include "rows.h"
#include "scripted_server.h"
#include "suite.h"

#define TOKEN "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"

enum { TRANSCRIPTS = 67, LINES_MAX = 40, LINE_MAX_LEN = 1000, TEXT_LEN = 16384 };

/* One transcript of the file. */
static struct {
	char lines[LINES_MAX][LINE_MAX_LEN];
	size_t count;
	struct scripted_step steps[SCRIPTED_MAX];
	size_t step_count;
	char requests[TEXT_LEN], output[TEXT_LEN];
	const char *command, *file;
	size_t servers;
	int status;
} wanted;

/* Replaces each `from` in a text. */
static void replace(char *text, size_t size, const char *from, const char *to)
{
	char after[TEXT_LEN];
	for (char *at = text; (at = strstr(at, from)); at += strlen(to)) {
		snprintf(after, sizeof after, "%s", at + strlen(from));
		snprintf(at, size - (size_t)(at - text), "%s%s", to, after);
	}
}

/* Reads the block of the file; false: there are fewer. */
static bool read_block(int index)
{
	FILE *file = fopen(CLI_TRANSCRIPTS, "re");
	char line[LINE_MAX_LEN];
	int block = -1;
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = '\0';
		block += *line == '$';
		if (block != index || *line == '\0' || *line == '#')
			continue;
		replace(line, sizeof line, "TOKEN", TOKEN);
		ck_assert_uint_lt(wanted.count, LINES_MAX);
		strcpy(wanted.lines[wanted.count++], line);
	}
	fclose(file);
	return block >= index;
}

static void add_line(char text[TEXT_LEN], const char *line)
{
	size_t len = strlen(text);
	snprintf(text + len, TEXT_LEN - len, "%s\n", line);
}

static void read_transcript(int index)
{
	ck_assert(read_block(index) && wanted.count > 0);
	wanted.servers = wanted.lines[0][1] == '2' ? 2 : 1;
	wanted.command = strchr(wanted.lines[0], ' ') + 1;
	wanted.status = -1;
	for (size_t i = 1; i < wanted.count; i++) {
		const char *line = wanted.lines[i];
		if (*line == '<')
			wanted.steps[wanted.step_count++] = (struct scripted_step){
				.answer = strchr(line, ' ') + 1, .late = line[1] == ' ' ? 0 : (size_t)atoi(line + 1)};
		else if (*line == '>')
			add_line(wanted.requests, line + 2);
		else if (*line == '%')
			wanted.file = line + 2;
		else if (*line == '=')
			wanted.status = atoi(line + 1);
		else
			add_line(wanted.output, line);
	}
}

static const char *file_path(char ret_path[80])
{
	snprintf(ret_path, 80, "%s/file", scripted_server_folder());
	return ret_path;
}

static void write_file(void)
{
	char path[80];
	int fd = wanted.file ? open(file_path(path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd >= 0)
		dprintf(fd, "%s\n", wanted.file);
	ck_assert(!wanted.file || fd >= 0);
	close(fd);
}

/* Appends what is in the file, and removes it. */
static void read_file(char output[TEXT_LEN])
{
	char path[80];
	size_t len = strlen(output);
	FILE *file = fopen(file_path(path), "re");
	if (!file)
		return;
	output[len + fread(output + len, 1, TEXT_LEN - 1 - len, file)] = '\0';
	fclose(file);
	unlink(path);
}

static enum client_order read_stop(void *context)
{
	eventfd_t count;
	(void)context;
	return eventfd_read(scripted_server_orders(), &count) == 0 ? CLIENT_STOP : CLIENT_GO_ON;
}

/* For run: only what it asks for before its command is started. */
static int acquire_for_run(const struct arguments *arguments)
{
	struct client client;
	struct lease lease;
	struct answer answer;
	ck_assert(client_init(&client, arguments));
	struct acquire acquire = {.client = &client};
	client.fds[CLIENT_ORDERS].fd = scripted_server_orders();
	client.read_order = read_stop;
	bool granted = acquire_lease(&acquire, &lease, &answer);
	int status = 0;
	if (granted)
		printf("fence %llu\n", (unsigned long long)lease.fence);
	else if (client.order == CLIENT_STOP)
		puts("stopped");
	else
		status = print_failure(&client, &answer);
	client_fini(&client);
	return status;
}

static int run_words(char *words)
{
	static struct arguments arguments;
	char servers[300], token[300], *argv[30] = {"redlockctl"}, **word = argv, *rest;
	const char *folder = scripted_server_folder();
	snprintf(servers, sizeof servers, "REDLOCKCTL_SERVER=unix:%s/0%s%s%s", folder,
		 wanted.servers > 1 ? ",unix:" : "", wanted.servers > 1 ? folder : "", wanted.servers > 1 ? "/1" : "");
	snprintf(token, sizeof token, "REDLOCK_TOKEN=%s", TOKEN);
	for (char *at = strtok_r(words, " ", &rest); at; at = strtok_r(NULL, " ", &rest))
		*++word = rows_decode(at);
	bool good = arguments_parse(&arguments, argv, (char *[]){servers, token, NULL});
	ck_assert_msg(good, "%s", arguments.message);
	arguments.timeout_ms = 60000; /* nothing here is too late on a busy machine */
	switch (arguments.command) {
	case COMMAND_RUN: return acquire_for_run(&arguments);
	case COMMAND_KEY_NEW: return key_command_new(&arguments);
	case COMMAND_KEY_HASH: return key_command_hash(&arguments);
	default: return commands_run(&arguments);
	}
}

/* Runs the command with stdout and stderr in a file. Returns the exit status, and what was written. */
static int run_captured(char *words, char ret_output[TEXT_LEN])
{
	FILE *file = tmpfile();
	int before[] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
	ck_assert_ptr_nonnull(file);
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	dup2(fileno(file), STDERR_FILENO);
	int status = run_words(words);
	fflush(stdout);
	dup2(before[0], STDOUT_FILENO);
	dup2(before[1], STDERR_FILENO);
	rewind(file);
	ret_output[fread(ret_output, 1, TEXT_LEN - 1, file)] = '\0';
	fclose(file);
	return status;
}

TEST_EACH(transcript, 0, TRANSCRIPTS)
{
	char words[LINE_MAX_LEN], output[TEXT_LEN], folder[80];
	read_transcript(_i);
	scripted_server_start(wanted.steps, wanted.step_count);
	snprintf(words, sizeof words, "%s", wanted.command);
	replace(words, sizeof words, "DIR", scripted_server_folder());
	write_file();
	int status = run_captured(words, output);
	read_file(output);
	snprintf(folder, sizeof folder, "%s", scripted_server_folder());
	scripted_server_end();
	replace(output, sizeof output, folder, "DIR");
	ck_assert_msg(rows_match(scripted_server_seen(), wanted.requests), "%s: asked\n%s", wanted.command,
		      scripted_server_seen());
	ck_assert_msg(rows_match(output, wanted.output), "%s: wrote\n%s", wanted.command, output);
	ck_assert_msg(status == wanted.status, "%s: ended with %d", wanted.command, status);
}

TEST(each_transcript_is_run)
{
	ck_assert(read_block(TRANSCRIPTS - 1) && !read_block(TRANSCRIPTS));
}
