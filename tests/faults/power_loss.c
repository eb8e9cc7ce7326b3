/* SPDX-License-Identifier: MIT */
/* LD_PRELOAD for redis-server: what it writes to an append-only file reaches the file when it is synced, not before. So
 * kill -9 loses what a loss of power may lose: everything that was written since the last fsync.
 *
 * This concerns files that are opened with open() and whose names end in ".incr.aof". Redis writes its other files by
 * stdio, and syncs them before it uses them. close() writes, too, since the process may go on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILES = 65536 };

static struct held {
	int is_file;
	char *bytes;
	size_t len, size;
} held[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *real(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);
	if (!function)
		abort();
	return function;
}

static void note_open(int fd, const char *path)
{
	static const char end[] = ".incr.aof";
	size_t len = strlen(path);
	if (fd >= 0 && fd < FILES && len >= sizeof end - 1 && strcmp(path + len - (sizeof end - 1), end) == 0)
		held[fd].is_file = 1;
}

static int open_with(const char *name, const char *path, int flags, va_list arguments)
{
	int (*function)(const char *, int, ...) = (int (*)(const char *, int, ...))real(name);
	int fd = flags & O_CREAT ? function(path, flags, va_arg(arguments, mode_t)) : function(path, flags);
	note_open(fd, path);
	return fd;
}

int open(const char *path, int flags, ...)
{
	va_list arguments;
	va_start(arguments, flags);
	int fd = open_with("open", path, flags, arguments);
	va_end(arguments);
	return fd;
}

int open64(const char *path, int flags, ...)
{
	va_list arguments;
	va_start(arguments, flags);
	int fd = open_with("open64", path, flags, arguments);
	va_end(arguments);
	return fd;
}

static ssize_t write_now(int fd, const void *bytes, size_t len)
{
	static ssize_t (*function)(int, const void *, size_t);
	if (!function)
		function = (ssize_t(*)(int, const void *, size_t))real("write");
	return function(fd, bytes, len);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
	if (fd < 0 || fd >= FILES || !held[fd].is_file)
		return write_now(fd, bytes, len);
	struct held *file = &held[fd];
	pthread_mutex_lock(&lock);
	if (file->len + len > file->size) {
		file->size = 2 * (file->len + len);
		file->bytes = realloc(file->bytes, file->size);
		if (!file->bytes)
			abort();
	}
	memcpy(file->bytes + file->len, bytes, len);
	file->len += len;
	pthread_mutex_unlock(&lock);
	return (ssize_t)len;
}

static void flush(int fd)
{
	if (fd < 0 || fd >= FILES || !held[fd].is_file)
		return;
	pthread_mutex_lock(&lock);
	for (size_t done = 0; done < held[fd].len;) {
		ssize_t written = write_now(fd, held[fd].bytes + done, held[fd].len - done);
		if (written < 0)
			abort();
		done += (size_t)written;
	}
	held[fd].len = 0;
	pthread_mutex_unlock(&lock);
}

int fsync(int fd)
{
	flush(fd);
	return ((int (*)(int))real("fsync"))(fd);
}

int fdatasync(int fd)
{
	flush(fd);
	return ((int (*)(int))real("fdatasync"))(fd);
}

int close(int fd)
{
	flush(fd);
	if (fd >= 0 && fd < FILES)
		held[fd].is_file = 0;
	return ((int (*)(int))real("close"))(fd);
}
