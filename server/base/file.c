/* SPDX-License-Identifier: MIT */
/* Reading files. A secret file is opened once and all checks use its descriptor: a link that is changed in between
 * cannot avoid the rules. Links are followed, since Kubernetes mounts a secret as a link to a link. O_NONBLOCK, so that
 * a pipe without a writer does not block the start. Its bytes go through one buffer that is overwritten afterwards. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"

bool file_open_standard(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) /* open() takes the lowest number that is free */
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) != fd)
			return false;
	return true;
}

bool file_read(int fd, char *bytes, size_t size, size_t *ret_len)
{
	size_t len = 0;
	assert(fd >= 0 && size > 0);
	while (len < size) {
		ssize_t n = read(fd, bytes + len, size - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	*ret_len = len;
	return true;
}

const char *secret_file_check(const struct stat *file, enum secret_file_kind kind)
{
	assert(file);
	if (!S_ISREG(file->st_mode))
		return "is not a regular file";
	if (file->st_uid != 0 && file->st_uid != geteuid())
		return "must belong to root or to the user that runs this program";
	if (file->st_mode & (S_IWGRP | S_IWOTH))
		return "must not be writable by its group or by others (chmod go-w)";
	if (kind == SECRET_FILE_SECRET && file->st_mode & S_IROTH)
		return "must not be readable by others (chmod o-r)";
	return NULL;
}

/* NULL, or the reason (static, or of strerror()) why it was not read. */
static const char *secret_file_read_fd(int fd, enum secret_file_kind kind, size_t max, struct text *text)
{
	struct stat file;
	size_t len = 0;
	assert(fd >= 0);
	if (fstat(fd, &file) != 0)
		return strerror(errno);
	const char *reason = secret_file_check(&file, kind);
	if (reason)
		return reason;
	char *bytes = memory_alloc(max + 1);
	if (!file_read(fd, bytes, max + 1, &len)) /* one byte more shows that it is too large */
		reason = strerror(errno);
	else if (len > max)
		reason = "is too large";
	else
		text_append(text, bytes, len);
	explicit_bzero(bytes, max + 1);
	free(bytes);
	return reason;
}

bool secret_file_read(const char *path, enum secret_file_kind kind, size_t max, struct text *text, char *message,
		      size_t message_size)
{
	assert(path && text->len == 0 && max > 0 && message_size > 0);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	const char *reason = fd < 0 ? strerror(errno) : secret_file_read_fd(fd, kind, max, text);
	if (reason)
		snprintf(message, message_size, "%s: %s", path, reason);
	if (fd >= 0)
		close(fd);
	return !reason;
}

void secret_file_wipe(struct text *text)
{
	assert(text);
	if (text->bytes)
		explicit_bzero(text->bytes, text->size);
	text->len = 0;
}
