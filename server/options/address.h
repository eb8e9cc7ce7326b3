/* Addresses, read by liburiparser: "scheme://user:pass@host:port/db", "host:port", "unix:/path?db=1". Pure
 * functions. */
#ifndef ADDRESS_H
#define ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

enum { ADDRESS_HOST_MAX = 256, ADDRESS_USER_MAX = 128, ADDRESS_TEXT_MAX = 2048, ADDRESS_UNIX_MAX = 107 };

/* How an address may begin, in small letters; then what else may or must be in it. */
enum address_part {
	ADDRESS_PLAIN = 1, /* no scheme: the text may be a port alone, with or without its colon, of 127.0.0.1 */
	ADDRESS_UNIX = 2,
	ADDRESS_HTTP = 4,
	ADDRESS_HTTPS = 8,
	ADDRESS_REDIS = 16,
	ADDRESS_REDISS = 32,
	ADDRESS_PASSWORD = 64,
	ADDRESS_SLASH = 128,      /* a / may follow */
	ADDRESS_DB = 256,         /* or a number of a database behind it; of a Unix socket behind ?db= */
	ADDRESS_NEEDS_PORT = 512, /* there must be one, but for a Unix socket */
	ADDRESS_ZERO_PORT = 1024, /* it may be 0 */
};

struct address {
	enum address_part scheme;
	bool is_unix, is_v6, has_port;
	char user[ADDRESS_USER_MAX], password[ADDRESS_HOST_MAX]; /* decoded; "": none */
	char host[ADDRESS_HOST_MAX];                             /* without brackets; or the path of a Unix socket */
	uint16_t port, db;
};

/* NULL, or the reason (static, so it never holds a part of the text). *ret_address is written only on success. */
const char *address_parse(const char *text, unsigned parts, struct address *ret_address)
	__attribute__((warn_unused_result));

#endif
