/* SPDX-License-Identifier: MIT */
/* Listening sockets: TCP v4 and v6, names, shared ports, and the care for files of Unix sockets. Loopback only. */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/daemon/daemon.h"
#include "suite.h"

static char message[300], shown[300], folder[64];

static struct address tcp(const char *host, uint16_t port)
{
	struct address address = {.port = port};

	strcpy(address.host, host);
	return address;
}

static struct address unix_path(const char *name)
{
	struct address address = {.is_unix = true};

	snprintf(address.host, sizeof(address.host), "%s/%s", folder, name);
	return address;
}

static int open_or_fail(const struct address *address, bool reuse_port)
{
	message[0] = '\0';
	int fd = listen_open(address, reuse_port, message, sizeof(message));
	ck_assert_msg(fd >= 0, "%s", message);
	return fd;
}

/* Expects a failure whose message holds both texts. */
static void assert_refused(const struct address *address, const char *named, const char *reason)
{
	message[0] = '\0';
	ck_assert_int_eq(listen_open(address, false, message, sizeof(message)), -1);
	ck_assert_msg(strstr(message, named) != NULL && strstr(message, reason) != NULL, "%s", message);
}

/* Connects to what a listener shows of itself; true if it takes the connection. */
static bool can_connect(int listener)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);

	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&name, &len), 0);
	int fd = socket(name.ss_family, SOCK_STREAM, 0);
	bool ok = connect(fd, (struct sockaddr *)&name, len) == 0;
	int taken = accept(listener, NULL, NULL);
	ok = ok && taken >= 0;
	if (taken >= 0)
		close(taken);
	close(fd);
	return ok;
}

static bool has_ipv6(void)
{
	struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0;

	close(fd);
	return ok;
}

static void make_folder(void)
{
	strcpy(folder, "/tmp/redlockd-listen-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
	ck_assert_msg(rmdir(folder) == 0, "something is left in %s", folder);
}

TEST(any_port_is_shown)
{
	struct address address = tcp("127.0.0.1", 0);
	char expected[64];
	int fd = open_or_fail(&address, false);

	ck_assert_uint_gt(listen_port(fd), 0);
	listen_shown(fd, shown, sizeof(shown));
	snprintf(expected, sizeof(expected), "127.0.0.1:%u", listen_port(fd));
	ck_assert_str_eq(shown, expected);
	ck_assert(can_connect(fd));
	listen_close(&address, fd);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}

TEST(it_does_not_block_and_is_not_inherited)
{
	struct address addresses[] = {tcp("127.0.0.1", 0), unix_path("flags.sock")};

	for (int i = 0; i < 2; i++) {
		int fd = open_or_fail(&addresses[i], false);
		ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
		ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		ck_assert_int_eq(accept(fd, NULL, NULL), -1);
		listen_close(&addresses[i], fd);
	}
}

/* A machine without /etc/hosts cannot resolve it. */
static bool has_localhost(const char *test)
{
	struct addrinfo *found = NULL;
	bool has = getaddrinfo("localhost", NULL, NULL, &found) == 0;

	if (has)
		freeaddrinfo(found);
	else
		fprintf(stderr, "%s: skipped, localhost does not resolve here\n", test);
	return has;
}

TEST(names_are_resolved)
{
	if (!has_localhost("names_are_resolved"))
		return;
	struct address address = tcp("localhost", 0);
	int fd = open_or_fail(&address, false);

	ck_assert(can_connect(fd));
	listen_close(&address, fd);
}

TEST(ipv6_is_for_ipv6_only)
{
	if (!has_ipv6())
		return; /* a machine without it cannot show it */
	struct address address = tcp("::1", 0);
	char expected[64];
	int fd = open_or_fail(&address, false);
	listen_shown(fd, shown, sizeof(shown));
	snprintf(expected, sizeof(expected), "[::1]:%u", listen_port(fd));
	ck_assert_str_eq(shown, expected);
	ck_assert(can_connect(fd));
	listen_close(&address, fd);

	int v4 = -1;
	for (int tries = 0; tries < 100 && v4 < 0; tries++) { /* another program may have that port for IPv4 */
		struct address all_v6 = tcp("::", 0);
		int v6 = open_or_fail(&all_v6, false);
		struct address all_v4 = tcp("0.0.0.0", listen_port(v6));
		v4 = listen_open(&all_v4, false, message, sizeof(message));
		if (v4 >= 0)
			listen_close(&all_v4, v4);
		listen_close(&all_v6, v6);
	}
	ck_assert_msg(v4 >= 0, "%s", message);
}

TEST(a_port_in_use_is_refused_by_name)
{
	struct address address = tcp("127.0.0.1", 0);
	int fd = open_or_fail(&address, false);
	char named[64];

	address.port = listen_port(fd);
	snprintf(named, sizeof(named), "127.0.0.1:%u: ", address.port);
	assert_refused(&address, named, "in use");
	listen_close(&address, fd);
	fd = open_or_fail(&address, false); /* free again at once */
	listen_close(&address, fd);
}

TEST(workers_may_share_a_port)
{
	struct address address = tcp("127.0.0.1", 0);
	int first = open_or_fail(&address, true);

	address.port = listen_port(first);
	int second = open_or_fail(&address, true);
	ck_assert_int_eq(listen_port(second), address.port);
	assert_refused(&address, "127.0.0.1", "in use"); /* who does not share is refused */
	listen_close(&address, second);
	listen_close(&address, first);
}

TEST(an_address_that_is_not_ours_is_refused)
{
	struct address foreign = tcp("192.0.2.1", 8080), v6 = tcp("2001:db8::1", 8080);

	assert_refused(&foreign, "192.0.2.1:8080: ", "");
	assert_refused(&v6, "[2001:db8::1]:8080: ", "");
}

TEST(a_unix_socket_is_for_owner_and_group)
{
	struct address address = unix_path("a.sock");
	struct stat status;
	char expected[400];
	mode_t mask = umask(0177); /* the mode does not depend on it */
	int fd = open_or_fail(&address, false);

	umask(mask);
	ck_assert_int_eq(stat(address.host, &status), 0);
	ck_assert(S_ISSOCK(status.st_mode));
	ck_assert_int_eq(status.st_mode & 07777, 0660);
	listen_shown(fd, shown, sizeof(shown));
	snprintf(expected, sizeof(expected), "unix:%s", address.host);
	ck_assert_str_eq(shown, expected);
	ck_assert_uint_eq(listen_port(fd), 0);
	ck_assert(can_connect(fd));
	listen_close(&address, fd);
	ck_assert_int_eq(access(address.host, F_OK), -1);
}

TEST(a_stale_socket_is_replaced)
{
	struct address address = unix_path("stale.sock");
	int fd = open_or_fail(&address, false);

	close(fd); /* as if killed: the file stays */
	ck_assert_int_eq(access(address.host, F_OK), 0);
	fd = open_or_fail(&address, false);
	ck_assert(can_connect(fd));
	listen_close(&address, fd);
}

TEST(a_live_socket_is_left_alone)
{
	struct address address = unix_path("live.sock");
	int fd = open_or_fail(&address, false);

	assert_refused(&address, address.host, "another program");
	int taken = accept(fd, NULL, NULL); /* the knock at the door */
	ck_assert_int_ge(taken, 0);
	close(taken);
	ck_assert(can_connect(fd));
	listen_close(&address, fd);
}

TEST(other_files_are_left_alone)
{
	struct address address = unix_path("file");
	char text[8] = "";
	int fd = open(address.host, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(write(fd, "precious", 8), 8);
	close(fd);
	assert_refused(&address, address.host, "not a socket");
	fd = open(address.host, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(read(fd, text, 8), 8);
	ck_assert_mem_eq(text, "precious", 8);
	close(fd);

	struct address link = unix_path("link");
	ck_assert_int_eq(symlink(address.host, link.host), 0);
	assert_refused(&link, link.host, "not a socket");
	unlink(link.host);
	unlink(address.host);
	struct address inside = unix_path("no/such/folder.sock");
	assert_refused(&inside, inside.host, "No such file");
	struct address itself = {.is_unix = true};
	strcpy(itself.host, folder);
	assert_refused(&itself, folder, "not a socket");
}

static bool is_local(const struct address *address)
{
	bool local = false;

	ck_assert_msg(listen_find_local(address, true, &local, message, sizeof(message)), "%s", message);
	return local;
}

TEST(who_can_reach_an_address)
{
	static const char *const local[] = {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost"};
	static const char *const open[] = {"0.0.0.0",         "::",      "10.0.0.1",
					   "::ffff:10.0.0.1", "fe80::1", "255.255.255.255"};
	struct address address = unix_path("a.sock");

	ck_assert(is_local(&address));
	size_t count = sizeof(local) / sizeof(local[0]) - !has_localhost("who_can_reach_an_address");
	for (size_t i = 0; i < count; i++) {
		address = tcp(local[i], 1);
		ck_assert_msg(is_local(&address), "%s", local[i]);
	}
	for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
		address = tcp(open[i], 1);
		ck_assert_msg(!is_local(&address), "%s", open[i]);
	}
	bool found;
	address = tcp("no-such-name.invalid", 1);
	ck_assert(!listen_find_local(&address, true, &found, message, sizeof(message)));
	ck_assert(listen_find_local(&address, false, &found, message, sizeof(message)) && found); /* not asked */
	strcpy(address.host, "192.0.2.1");
	ck_assert(listen_find_local(&address, false, &found, message, sizeof(message)) && !found);
	ck_assert_msg(strstr(message, "no-such-name.invalid") != NULL, "%s", message);
}

TEST(danger)
{
	for (unsigned i = 0; i < 16; i++) {
		bool local = i & 1, tls = i & 2, keys = i & 4, authorities = i & 8;
		bool asked = keys || (tls && authorities);
		enum listen_danger expected = local    ? LISTEN_SAFE
					      : !asked ? LISTEN_OPEN
					      : tls    ? LISTEN_SAFE
						       : LISTEN_READABLE;
		ck_assert_int_eq(listen_danger(local, tls, keys, authorities), expected);
	}
	ck_assert_int_eq(listen_danger(false, false, false, true), LISTEN_OPEN);
	ck_assert_int_eq(listen_danger(false, true, false, false), LISTEN_OPEN);
	ck_assert_int_eq(listen_danger(false, false, true, false), LISTEN_READABLE);
}

FIXTURE(make_folder, remove_folder)
