/* Addresses: listeners and masters, and the part of a bad address that a message may show. Pure functions.
 *
 * An address to listen on is
 *   [http://|https://]host:port    host may be [v6]
 *   unix:/path
 * An address of a master is
 *   redis://[user:pass@]host[:port][/db]    user and pass percent-encoded; host may be [v6]; rediss:// over TLS
 *   unix:/path[?db=N]  or  unix://[user:pass@]/path[?db=N]
 * Parsing is strict, and a reason is a static string: see options_parse.c. */
#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#include "config.h"
#include "options_table.h"

enum { OPTIONS_UNIX_PATH_MAX = 107, OPTIONS_REDIS_PORT = 6379, OPTIONS_DB_SHOWN_MAX = 8 };

/* ---- hosts, ports, paths ---- */

/* Splits "host", "host:port" or "[v6]:port" (len bytes). *ret_port stays as it is where there is none. */
static const char *options_split_host(const char *text, size_t len, char host[256], const char **ret_port,
				      size_t *ret_port_len)
{
	const char *end = text + len, *host_end;
	bool bracket = len > 0 && text[0] == '[';

	assert(len == 0 || text);
	if (bracket) {
		text++;
		host_end = memchr(text, ']', (size_t)(end - text));
		if (!host_end)
			return "the ] of the IPv6 address is missing";
	} else {
		host_end = memchr(text, ':', len);
		host_end = host_end ? host_end : end;
	}
	if (host_end == text || host_end - text > 253)
		return host_end == text ? "the host is missing" : "the host is too long";
	memcpy(host, text, (size_t)(host_end - text));
	host[host_end - text] = '\0';
	host_end += bracket;
	if (host_end == end)
		return NULL;
	if (*host_end != ':')
		return "text after the ]";
	*ret_port = host_end + 1;
	*ret_port_len = (size_t)(end - host_end - 1);
	if (memchr(*ret_port, ':', *ret_port_len))
		return "too many colons: an IPv6 address stands in brackets";
	return NULL;
}

const char *options_check_host(const char *host, bool bracket)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (bracket)
		return inet_pton(AF_INET6, host, &v6) == 1 ? NULL : "not an IPv6 address between the brackets";
	if (strspn(host, "0123456789.") == strlen(host))
		return inet_pton(AF_INET, host, &v4) == 1 ? NULL : "not an IPv4 address";
	if (strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != strlen(host) ||
	    host[0] == '.' || host[0] == '-')
		return "not the name of a host";
	return NULL;
}

/* Digits up to `max`; NULL or `bad`. */
static const char *options_check_digits(const char *text, size_t len, uint64_t min, uint64_t max, uint16_t *ret_number,
					const char *bad)
{
	char digits[8];
	const char *reason;
	uint64_t number;

	assert(min <= max && max <= UINT16_MAX);
	if (len >= sizeof digits)
		return bad;
	memcpy(digits, text, len);
	digits[len] = '\0';
	if (!options_parse_number(digits, min, max, &number, &reason))
		return bad;
	*ret_number = (uint16_t)number;
	return NULL;
}

/* Copies the path of a Unix socket; NULL or a reason. */
static const char *options_parse_socket_path(const char *text, size_t len, char host[256])
{
	if (len < 2 || text[0] != '/' || text[1] == '/')
		return "the path of the socket must begin with one /";
	if (len > OPTIONS_UNIX_PATH_MAX)
		return "the path of the socket is longer than 107 bytes";
	if (text[len - 1] == '/')
		return "the path names a folder";
	memcpy(host, text, len);
	host[len] = '\0';
	return options_is_plain_text(host) ? NULL : "the path is not plain text";
}

static const char *options_parse_listen_text(const char *text, struct listen_address *address)
{
	const char *port = NULL, *reason;
	size_t port_len = 0;

	if (strncmp(text, "unix:", 5) == 0) {
		address->is_unix = true;
		return options_parse_socket_path(text + 5, strlen(text + 5), address->host);
	}
	if (strncmp(text, "http://", 7) == 0) {
		address->scheme = LISTEN_HTTP;
		text += 7;
	} else if (strncmp(text, "https://", 8) == 0) {
		address->scheme = LISTEN_HTTPS;
		text += 8;
	}
	reason = options_split_host(text, strlen(text), address->host, &port, &port_len);
	if (!reason)
		reason = options_check_host(address->host, text[0] == '[');
	if (!reason && !port)
		reason = "the port is missing";
	return reason ? reason
		      : options_check_digits(port, port_len, 0, UINT16_MAX, &address->port,
					     "the port is not a number from 0 to 65535");
}

bool options_parse_listen(const char *text, struct listen_address *ret_address, const char **ret_reason)
{
	struct listen_address address = {0};

	assert(text);
	const char *reason = text[0] == '\0' ? "empty" : options_parse_listen_text(text, &address);
	if (reason) {
		*ret_reason = reason;
		return false;
	}
	*ret_address = address;
	return true;
}

/* ---- masters ---- */

static int options_hex(char c)
{
	const char *digits = "0123456789abcdef0123456789ABCDEF", *at = c == '\0' ? NULL : strchr(digits, c);

	return at ? (int)((at - digits) % 16) : -1;
}

/* Percent-decodes len bytes into `decoded`; NULL or a reason. */
static const char *options_decode(const char *text, size_t len, char *decoded, size_t size)
{
	size_t n = 0;

	assert(size > 0);
	for (size_t i = 0; i < len; i++) {
		int c = (unsigned char)text[i];
		if (c <= ' ' || c == 0x7f || c == '@')
			return "user and password must be percent-encoded (@ is %40)";
		if (c == '%') {
			int high = i + 2 < len ? options_hex(text[i + 1]) : -1,
			    low = i + 2 < len ? options_hex(text[i + 2]) : -1;
			if (high < 0 || low < 0 || (high | low) == 0)
				return "user or password has a bad percent-encoding";
			c = high * 16 + low;
			i += 2;
		}
		if (n + 1 >= size)
			return "user or password is too long";
		decoded[n++] = (char)c;
	}
	decoded[n] = '\0';
	return NULL;
}

/* Reads "user:pass" or ":pass". */
static const char *options_parse_userinfo_text(const char *text, size_t len, struct master_address *address)
{
	const char *colon = memchr(text, ':', len);

	if (!colon)
		return "the password is missing: user:pass@ or :pass@";
	size_t user_len = (size_t)(colon - text), password_len = len - user_len - 1;
	if (memchr(colon + 1, ':', password_len))
		return "user and password must be percent-encoded (: is %3A)";
	if (password_len == 0)
		return "the password is empty";
	const char *reason = options_decode(text, user_len, address->user, sizeof address->user);
	return reason ? reason : options_decode(colon + 1, password_len, address->password, sizeof address->password);
}

/* The end of the user and password at the start of `text`: its last @ before `end`, or NULL. */
static const char *options_find_at(const char *text, const char *end)
{
	assert(end >= text);
	return memrchr(text, '@', (size_t)(end - text));
}

/* Reads what follows redis:// or rediss://. */
static const char *options_parse_redis_text(const char *text, struct master_address *address)
{
	const char *end = text + strlen(text), *slash = strchr(text, '/'), *port = NULL, *reason = NULL;
	size_t port_len = 0;

	if (strpbrk(text, "?#"))
		return "? and # are not allowed here (in a password: %3F and %23)";
	const char *authority_end = slash ? slash : end, *at = options_find_at(text, authority_end);
	if (at) {
		reason = options_parse_userinfo_text(text, (size_t)(at - text), address);
		text = at + 1;
	}
	if (!reason)
		reason = options_split_host(text, (size_t)(authority_end - text), address->host, &port, &port_len);
	if (!reason)
		reason = options_check_host(address->host, text[0] == '[');
	address->port = OPTIONS_REDIS_PORT;
	if (!reason && port)
		reason = options_check_digits(port, port_len, 1, UINT16_MAX, &address->port,
					      "the port is not a number from 1 to 65535");
	if (!reason && slash && slash[1] != '\0')
		reason = options_check_digits(slash + 1, strlen(slash + 1), 0, UINT16_MAX, &address->db,
					      "the database is not a number from 0 to 65535");
	return reason;
}

/* Reads what follows unix: */
static const char *options_parse_unix_text(const char *text, struct master_address *address)
{
	const char *query = strchr(text, '?'), *end = query ? query : text + strlen(text), *reason = NULL;

	address->is_unix = true;
	if (strncmp(text, "//", 2) == 0) {
		text += 2;
		const char *slash = memchr(text, '/', (size_t)(end - text));
		const char *at = options_find_at(text, slash ? slash : end);
		if (at) {
			reason = options_parse_userinfo_text(text, (size_t)(at - text), address);
			text = at + 1;
		}
	}
	if (!reason)
		reason = options_parse_socket_path(text, (size_t)(end - text), address->host);
	if (!reason && query)
		reason = strncmp(query, "?db=", 4) != 0
				 ? "after the path only ?db=N is allowed"
				 : options_check_digits(query + 4, strlen(query + 4), 0, UINT16_MAX, &address->db,
							"the database is not a number from 0 to 65535");
	return reason;
}

/* Writes the address without user and password, in a form that could be given again. */
static const char *options_show_master(struct master_address *address)
{
	size_t size = sizeof address->shown;
	bool v6 = strchr(address->host, ':');
	int len;

	assert(address->host[0] != '\0');
	if (address->is_unix)
		len = snprintf(address->shown, size, address->db == 0 ? "unix:%s" : "unix:%s?db=%u", address->host,
			       address->db);
	else
		len = snprintf(address->shown, size,
			       address->db == 0 ? "redis%s://%s%s%s:%u" : "redis%s://%s%s%s:%u/%u",
			       address->tls ? "s" : "", v6 ? "[" : "", address->host, v6 ? "]" : "", address->port,
			       address->db);
	return len >= 0 && (size_t)len < size ? NULL : "the host is too long";
}

static const char *options_parse_master_text(const char *text, struct master_address *address)
{
	const char *reason;

	if (text[0] == '\0')
		return "an address is empty";
	if (strncmp(text, "redis://", 8) == 0)
		reason = options_parse_redis_text(text + 8, address);
	else if (strncmp(text, "rediss://", 9) == 0)
		reason = options_parse_redis_text(text + 9, address);
	else if (strncmp(text, "unix:", 5) == 0)
		reason = options_parse_unix_text(text + 5, address);
	else
		return "an address must begin with redis://, rediss:// or unix:";
	address->tls = text[5] == 's';
	if (!reason && address->tls && !options_have_tls())
		reason = OPTIONS_TLS_MISSING;
	return reason ? reason : options_show_master(address);
}

bool options_have_tls(void)
{
#ifdef REDLOCKD_MASTER_TLS
	return true;
#else
	return false;
#endif
}

bool options_parse_master(const char *text, struct master_address *ret_address, const char **ret_reason)
{
	struct master_address address = {0};

	assert(text);
	const char *reason = options_parse_master_text(text, &address);
	if (reason) {
		*ret_reason = reason;
		return false;
	}
	*ret_address = address;
	return true;
}

/* The length of a host and port that may be shown: with the port only if it is a number, since "user:password" without
 * its host looks alike. */
static size_t options_plain_host_len(const char *host)
{
	const char *bracket = host[0] == '[' ? strchr(host, ']') : NULL;
	const char *colon = strchr(bracket ? bracket : host, ':');
	size_t len = strcspn(host, "?#,");

	if (!colon || colon >= host + len)
		return len;
	size_t digits = strspn(colon + 1, "0123456789");
	bool is_port = colon > host && digits > 0 && (colon[1 + digits] == '/' || colon[1 + digits] == '\0');
	if (!is_port)
		return (size_t)(colon - host) + 1;
	/* What follows the port is short, or it is no database. */
	size_t end = (size_t)(colon - host) + 1 + digits;
	return len - end <= 1 + OPTIONS_DB_SHOWN_MAX && !memchr(host + end, ':', len - end) ? len : end;
}

void options_redact(const char *text, const char *next, char *shown, size_t size)
{
	static const char *const schemes[] = {"redis://", "rediss://", "unix:"};
	const char *at = strrchr(text, '@');
	int scheme = 0;

	assert(size > 0);
	for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
		if (strncmp(text, schemes[i], strlen(schemes[i])) == 0)
			scheme = (int)strlen(schemes[i]);
	size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyz");
	if (scheme == 0 && !at && letters > 0 && strncmp(text + letters, "://", 3) == 0)
		scheme = (int)letters + 3; /* one that is not ours */
	if (next[0] != '\0' && strncmp(next, "redis", 5) != 0 && strncmp(next, "unix:", 5) != 0) {
		snprintf(shown, size, "%.*s***", scheme, text);
		return;
	}
	const char *host = at ? at + 1 : text + scheme;
	bool is_path = scheme == 5 && host[0] == '/' && (host[1] != '/' || !strchr(host, ':'));
	size_t len = is_path ? strcspn(host, "?#:") : options_plain_host_len(host);
	snprintf(shown, size, "%.*s%s%.*s%s", scheme, text, at ? "***@" : "", (int)len, host,
		 host[len] == '\0' ? "" : "***");
}
