/* SPDX-License-Identifier: MIT */
/* Files with secrets: read whole, or rejected with a message that names the file and the rule. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/base.h"
#include "suite.h"

enum { SOMEBODY = 4711, MAX = 1000 };

static char folder[] = "/tmp/redlockd-secret-XXXXXX";
static char path[64], message[256];
static struct text text;

static void setup(void)
{
	strcpy(folder + sizeof(folder) - 7, "XXXXXX"); /* as it was, where the tests share a process */
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	text_init(&text);
	message[0] = '\0';
}

static void teardown(void)
{
	char command[64];

	text_fini(&text);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	ck_assert_int_eq(system(command), 0);
}

static void make(const char *bytes, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

/* The whole message is the path, a colon and the reason. */
static void refused(enum secret_file_kind kind, const char *reason)
{
	char expected[256];

	ck_assert(!secret_file_read(path, kind, MAX, &text, message, sizeof(message)));
	snprintf(expected, sizeof(expected), "%s: %s", path, reason);
	ck_assert_str_eq(message, expected);
	ck_assert_uint_eq(text.len, 0);
}

static void taken(enum secret_file_kind kind, const char *bytes, size_t len)
{
	ck_assert_msg(secret_file_read(path, kind, MAX, &text, message, sizeof(message)), "%s", message);
	ck_assert_uint_eq(text.len, len);
	ck_assert_mem_eq(text.bytes, bytes, len);
	ck_assert_int_eq(text.bytes[len], '\0');
	text_fini(&text);
}

#define WRITABLE "must not be writable by its group or by others (chmod go-w)"
#define READABLE "must not be readable by others (chmod o-r)"

static const struct {
	mode_t mode;
	const char *trusted, *secret; /* why it is refused; NULL: it is not */
} modes[] = {
	{0400, NULL, NULL},         {0600, NULL, NULL},         {0700, NULL, NULL},         {0440, NULL, NULL},
	{0640, NULL, NULL},         {0444, NULL, READABLE},     {0644, NULL, READABLE},     {0604, NULL, READABLE},
	{0755, NULL, READABLE},     {0601, NULL, NULL},         {0660, WRITABLE, WRITABLE}, {0620, WRITABLE, WRITABLE},
	{0602, WRITABLE, WRITABLE}, {0606, WRITABLE, WRITABLE}, {0664, WRITABLE, WRITABLE}, {0666, WRITABLE, WRITABLE},
	{0777, WRITABLE, WRITABLE},
};

TEST_EACH(the_mode_decides, 0, sizeof(modes) / sizeof(modes[0]))
{
	const char *reasons[] = {[SECRET_FILE_TRUSTED] = modes[_i].trusted, [SECRET_FILE_SECRET] = modes[_i].secret};

	for (int kind = SECRET_FILE_TRUSTED; kind <= SECRET_FILE_SECRET; kind++) {
		make("x", 1, modes[_i].mode);
		if (reasons[kind] != NULL)
			refused((enum secret_file_kind)kind, reasons[kind]);
		else
			taken((enum secret_file_kind)kind, "x", 1);
		unlink(path);
	}
}

TEST(bytes_are_read_as_they_are)
{
	make("a\0b\n", 4, 0600);
	taken(SECRET_FILE_SECRET, "a\0b\n", 4);
	make("", 0, 0600);
	taken(SECRET_FILE_SECRET, "", 0);
}

TEST(too_large_is_refused_and_not_cut_off)
{
	char bytes[MAX + 1];

	memset(bytes, 'x', sizeof(bytes));
	make(bytes, MAX, 0600);
	taken(SECRET_FILE_SECRET, bytes, MAX);
	make(bytes, MAX + 1, 0600);
	refused(SECRET_FILE_SECRET, "is too large");
	ck_assert_int_eq(truncate(path, (off_t)1 << 40), 0); /* a file with a hole costs no more */
	refused(SECRET_FILE_SECRET, "is too large");
}

TEST(what_is_not_a_file_is_refused)
{
	refused(SECRET_FILE_TRUSTED, "No such file or directory");
	ck_assert_int_eq(mkdir(path, 0700), 0);
	refused(SECRET_FILE_TRUSTED, "is not a regular file");
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody writes into it, and the read must not wait */
	refused(SECRET_FILE_SECRET, "is not a regular file");
	strcpy(path, "/dev/zero");
	refused(SECRET_FILE_SECRET, "is not a regular file");
}

/* As Kubernetes mounts a secret: file -> ..data/file, ..data -> ..2024. */
TEST(links_are_followed_and_the_file_behind_them_counts)
{
	char real[128], data[128];

	snprintf(data, sizeof(data), "%s/..2024", folder);
	ck_assert_int_eq(mkdir(data, 0755), 0);
	snprintf(data, sizeof(data), "%s/..data", folder);
	ck_assert_int_eq(symlink("..2024", data), 0);
	snprintf(real, sizeof(real), "%s/..2024/file", folder);
	ck_assert_int_eq(symlink("..data/file", path), 0);
	refused(SECRET_FILE_SECRET, "No such file or directory");
	make("k", 1, 0440); /* opens through the links */
	ck_assert_int_eq(access(real, F_OK), 0);
	taken(SECRET_FILE_SECRET, "k", 1);
	ck_assert_int_eq(chmod(real, 0644), 0);
	refused(SECRET_FILE_SECRET, READABLE);
	taken(SECRET_FILE_TRUSTED, "k", 1);
	ck_assert_int_eq(chmod(real, 0664), 0);
	refused(SECRET_FILE_TRUSTED, WRITABLE);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("file", path), 0);
	refused(SECRET_FILE_TRUSTED, "Too many levels of symbolic links");
}

/* Only root can change the owner of a file; others skip this test. */
TEST(it_belongs_to_root_or_to_us)
{
	static const char *stranger = "must belong to root or to the user that runs this program";

	make("x", 1, 0644);
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chown(path, SOMEBODY, 0), 0);
	refused(SECRET_FILE_TRUSTED, stranger);
	ck_assert_int_eq(chmod(folder, 0755), 0);
	ck_assert_int_eq(seteuid(SOMEBODY), 0);
	bool own = secret_file_read(path, SECRET_FILE_TRUSTED, MAX, &text, message, sizeof(message));
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_msg(own, "%s", message);
	text_fini(&text);
	ck_assert_int_eq(chown(path, 0, 0), 0);
	ck_assert_int_eq(seteuid(SOMEBODY), 0);
	bool of_root = secret_file_read(path, SECRET_FILE_TRUSTED, MAX, &text, message, sizeof(message));
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_msg(of_root, "%s", message);
	text_fini(&text);
	ck_assert_int_eq(chmod(path, 0600), 0);
	ck_assert_int_eq(seteuid(SOMEBODY), 0);
	bool unreadable = !secret_file_read(path, SECRET_FILE_TRUSTED, MAX, &text, message, sizeof(message));
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert(unreadable && strstr(message, ": Permission denied") != NULL);
}

TEST(a_message_is_cut_off_at_its_end)
{
	char small[8];

	ck_assert(!secret_file_read("/nowhere/at/all", SECRET_FILE_TRUSTED, MAX, &text, small, sizeof(small)));
	ck_assert_str_eq(small, "/nowher");
}

TEST(wiped_is_wiped)
{
	make("secret", 6, 0600);
	ck_assert(secret_file_read(path, SECRET_FILE_SECRET, MAX, &text, message, sizeof(message)));
	secret_file_wipe(&text);
	ck_assert_uint_eq(text.len, 0);
	for (size_t i = 0; i < text.size; i++)
		ck_assert_int_eq(text.bytes[i], '\0');
	text_fini(&text);
	secret_file_wipe(&text); /* nothing there: nothing to do */
}

FIXTURE(setup, teardown)
