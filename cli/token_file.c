/* See token_file.h. The file is opened before a lease is acquired, so that no lease is acquired whose token cannot be
 * stored. */
#include "token_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MAX = 256 };

/* Reads a small file. -1: errno. */
static ssize_t token_file_read_all(int file, char *bytes, size_t size)
{
	size_t len = 0;

	assert(file >= 0 && size > 0);
	while (len < size) {
		ssize_t got = read(file, bytes + len, size - len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		len += (size_t)got;
	}
	return (ssize_t)len;
}

static const char *token_file_parse(char *bytes, size_t len, char ret_token[ARGUMENTS_TOKEN_LEN + 1])
{
	assert(len <= READ_MAX);
	bytes[len] = '\0';
	char *start = bytes + strspn(bytes, " \t\r\n");
	start[strcspn(start, " \t\r\n")] = '\0';
	size_t used = (size_t)(start - bytes) + strlen(start);
	for (size_t i = used; i < len; i++)
		if (bytes[i] != '\0' && !strchr(" \t\r\n", bytes[i]))
			return "it holds more than a token";
	if (!arguments_is_token(start))
		return "it holds no token: 40 digits, 0 to 9 and a to f";
	strcpy(ret_token, start);
	return NULL;
}

const char *token_file_read(const char *path, char ret_token[ARGUMENTS_TOKEN_LEN + 1])
{
	char bytes[READ_MAX + 1];
	bool is_stdin = strcmp(path, "-") == 0;
	int file = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return strerror(errno);
	ssize_t len = token_file_read_all(file, bytes, READ_MAX);
	const char *reason = len < 0 ? strerror(errno) : token_file_parse(bytes, (size_t)len, ret_token);
	explicit_bzero(bytes, sizeof bytes);
	if (!is_stdin)
		close(file);
	return reason;
}

int token_file_open(const char *path)
{
	int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (file >= 0 && fchmod(file, 0600) != 0 && errno != EPERM) {
		close(file);
		return -1;
	}
	return file;
}

bool token_file_write(int file, const char *token)
{
	char line[ARGUMENTS_TOKEN_LEN + 1];

	assert(file >= 0 && strlen(token) == ARGUMENTS_TOKEN_LEN);
	memcpy(line, token, ARGUMENTS_TOKEN_LEN);
	line[ARGUMENTS_TOKEN_LEN] = '\n';
	bool done = (ftruncate(file, 0) == 0 || errno == EINVAL) &&
		    write(file, line, sizeof line) == (ssize_t)sizeof line;
	explicit_bzero(line, sizeof line);
	int error = errno;
	close(file);
	errno = error;
	return done;
}
