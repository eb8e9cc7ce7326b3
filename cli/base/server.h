/* Addresses of redlockd: http://host:port, https://host:port or unix:/path. Pure functions. */
#ifndef SERVER_H
#define SERVER_H

#include <stdbool.h>
#include <stddef.h>

enum { SERVER_TEXT_MAX = 300, SERVER_PATH_MAX = 107, SERVERS_MAX = 16 };

struct server {
	char text[SERVER_TEXT_MAX + 1];      /* as the user wrote it, for messages */
	char base[SERVER_TEXT_MAX + 1];      /* the URL without the path of the request: http://host:port */
	char unix_path[SERVER_PATH_MAX + 1]; /* empty: TCP */
	bool is_tls;
	/* requests can be read on the way: plain HTTP, most likely to another machine */
	bool is_exposed;
};

struct server_list {
	struct server items[SERVERS_MAX];
	size_t count;
};

/* Each returns NULL or the reason (static, so it never holds a part of the text). */
const char *server_parse(const char *text, size_t len, struct server *ret_server) __attribute__((warn_unused_result));
const char *server_list_add(struct server_list *list, const char *text, size_t len) __attribute__((warn_unused_result));

/* Adds addresses with commas between them. */
const char *server_list_parse(struct server_list *list, const char *text) __attribute__((warn_unused_result));

#endif
