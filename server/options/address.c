/* SPDX-License-Identifier: MIT */
/* Addresses. See options.h. liburiparser knows the grammar of URLs. This file has the rules for hosts, ports and the
 * paths of sockets. Such a path is no URL: it may have blanks and UTF-8. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uriparser/Uri.h>

#include "options.h"
#include "server/base/base.h"

#define ADDRESS_DIGITS "0123456789"
#define ADDRESS_NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" ADDRESS_DIGITS ".-_"

static const char address_reason_scheme[] = "the scheme is not one of those that are allowed";

/* Parses digits alone, up to 65535. */
static bool address_parse_digits(const char *text, uint16_t *ret_number)
{
	size_t len = strlen(text);
	long number = len > 0 && len <= 5 && strspn(text, ADDRESS_DIGITS) == len ? strtol(text, NULL, 10) : -1;
	*ret_number = (uint16_t)number;
	return number >= 0 && number <= UINT16_MAX;
}

/* Copies a part of a URL; false: it is too long. */
static bool address_copy(UriTextRangeA part, char *copy, size_t size)
{
	size_t len = part.first ? (size_t)(part.afterLast - part.first) : 0;
	return (size_t)snprintf(copy, size, "%.*s", (int)len, len > 0 ? part.first : "") < size;
}

/* Returns why the text after its scheme is no URL. */
static const char *address_explain(const char *text)
{
	const char *at = strrchr(text, '@'), *host = at ? at + 1 : text, *colon = strchr(host, ':');
	if (strchr(host, '[') || (colon && strchr(colon + 1, ':')))
		return "an IPv6 address must stand in brackets: [::1]:port";
	if (colon && strspn(colon + 1, ADDRESS_DIGITS) != strlen(colon + 1))
		return "the port is not a number";
	return at ? "user and password must be percent-encoded (@ is %40, : is %3A), and the host is a name or an "
		    "address"
		  : "not the name of a host";
}

/* "user:pass" or ":pass" */
static const char *address_parse_userinfo(UriTextRangeA part, struct address *address)
{
	char text[3 * (ADDRESS_USER_MAX + ADDRESS_HOST_MAX)];
	if (!address_copy(part, text, sizeof text))
		return "user or password is too long";
	char *password = strchr(text, ':');
	if (!password || password[1] == '\0')
		return "the password is missing: user:pass@ or :pass@";
	if (strchr(password + 1, ':') || strstr(text, "%00"))
		return "user and password must be percent-encoded (: is %3A), and without %00";
	*password++ = '\0';
	uriUnescapeInPlaceA(text);
	uriUnescapeInPlaceA(password);
	if (strlen(text) >= sizeof address->user || strlen(password) >= sizeof address->password)
		return "user or password is too long";
	strcpy(address->user, text);
	strcpy(address->password, password);
	return NULL;
}

/* The part after the port, or after the path of a Unix socket. */
static const char *address_parse_end(const char *end, unsigned parts, struct address *address)
{
	const char *start = address->is_unix ? "?db=" : "/";
	if (end[0] == '\0' || (strcmp(end, "/") == 0 && parts & (ADDRESS_SLASH | ADDRESS_DB)))
		return NULL;
	if (!(parts & ADDRESS_DB))
		return address->is_unix ? "nothing may follow the path" : "nothing may follow host and port";
	if (strncmp(end, start, strlen(start)) != 0)
		return address->is_unix ? "after the path only ?db=N is allowed"
					: "? and # are not allowed here (in a password: %3F and %23)";
	return address_parse_digits(end + strlen(start), &address->db) ? NULL
								       : "the database is not a number from 0 to 65535";
}

static const char *address_parse_parts(const UriUriA *uri, unsigned parts, struct address *address)
{
	char port[8], *host = address->host;
	const char *reason = uri->userInfo.first ? address_parse_userinfo(uri->userInfo, address) : NULL;
	if (reason)
		return reason;
	if (!address_copy(uri->hostText, host, sizeof address->host - 2)) /* 253: the longest name */
		return "the host is too long";
	address->is_v6 = uri->hostData.ip6;
	if (host[0] == '\0')
		return "the host is missing";
	if (strspn(host, ADDRESS_DIGITS ".") == strlen(host) && !uri->hostData.ip4)
		return "not an IPv4 address";
	if (!address->is_v6 &&
	    (uri->hostData.ipFuture.first || strspn(host, ADDRESS_NAME) != strlen(host) || strchr(".-", host[0])))
		return "not the name of a host";
	address->has_port = uri->portText.first;
	if (address->has_port &&
	    (!address_copy(uri->portText, port, sizeof port) || !address_parse_digits(port, &address->port)))
		return "the port is not a number from 0 to 65535";
	return address_parse_end(address->has_port ? uri->portText.afterLast : uri->hostText.afterLast + address->is_v6,
				 parts, address);
}

/* Parses the text after the slashes of a scheme. */
static const char *address_parse_url(const char *text, unsigned parts, struct address *address)
{
	char url[ADDRESS_TEXT_MAX + 32];
	UriUriA uri;
	snprintf(url, sizeof url, "none://%s", text);
	int failed = uriParseSingleUriA(&uri, url, NULL);
	if (failed == URI_ERROR_MALLOC)
		memory_exhausted("address");
	if (failed)
		return address_explain(text);
	const char *reason = uri.hostText.first ? address_parse_parts(&uri, parts, address) : "the host is missing";
	uriFreeUriMembersA(&uri);
	return reason;
}

/* Parses the text after "unix:". */
static const char *address_parse_unix(const char *text, unsigned parts, struct address *address)
{
	bool slashes = strncmp(text, "//", 2) == 0; /* user and password may follow before the path */
	size_t user = slashes ? strcspn(text + 2, "/") : 0;
	const char *path = slashes ? text + 2 + user : text;
	size_t len = strcspn(path, "?");
	char host[ADDRESS_TEXT_MAX + 8];
	if (len < 2 || path[0] != '/' || path[1] == '/' || (user > 0 && path[-1] != '@'))
		return "the path of the socket must begin with one /";
	snprintf(host, sizeof host, "%.*shost", (int)user, text + 2);
	const char *reason = user > 0 ? address_parse_url(host, parts, address) : NULL;
	if (reason)
		return reason;
	if (len > ADDRESS_UNIX_MAX)
		return "the path of the socket is longer than 107 bytes";
	if (path[len - 1] == '/' || !utf8_is_valid(path, len) || utf8_has_control(path, len))
		return path[len - 1] == '/' ? "the path names a folder" : "the path is not plain text";
	snprintf(address->host, sizeof address->host, "%.*s", (int)len, path);
	return address_parse_end(path + len, parts, address);
}

const char *address_parse(const char *text, unsigned parts, struct address *ret_address)
{
	static const struct {
		const char *start;
		enum address_part scheme;
	} schemes[] = {{"unix:", ADDRESS_UNIX},     {"http://", ADDRESS_HTTP},     {"https://", ADDRESS_HTTPS},
		       {"redis://", ADDRESS_REDIS}, {"rediss://", ADDRESS_REDISS}, {"", ADDRESS_PLAIN}};
	char lone[ADDRESS_TEXT_MAX + 16];
	size_t i = 0, len = strlen(text);
	assert(ret_address);
	if (len == 0 || len > ADDRESS_TEXT_MAX)
		return len == 0 ? "empty" : "too long";
	while (strncmp(text, schemes[i].start, strlen(schemes[i].start)) != 0)
		i++;
	struct address address = {.scheme = schemes[i].scheme, .is_unix = schemes[i].scheme == ADDRESS_UNIX};
	address.tls = address.scheme & (ADDRESS_HTTPS | ADDRESS_REDISS);
	if (address.scheme == ADDRESS_PLAIN && strstr(text, "://"))
		return address_reason_scheme;
	const char *rest = text + strlen(schemes[i].start), *port = text + (text[0] == ':');
	if (port[0] != '\0' && strspn(port, ADDRESS_DIGITS) == strlen(port)) {
		snprintf(lone, sizeof lone, "127.0.0.1:%s", port);
		rest = lone;
	}
	const char *reason = address.is_unix ? address_parse_unix(rest, parts, &address)
					     : address_parse_url(rest, parts, &address);
	if (reason)
		return reason;
	if (!(address.scheme & parts))
		return address.scheme == ADDRESS_PLAIN ? "the scheme is missing" : address_reason_scheme;
	if (address.password[0] != '\0' && !(parts & ADDRESS_PASSWORD))
		return "user and password are not allowed here";
	if (!address.is_unix && !address.has_port && parts & ADDRESS_NEEDS_PORT)
		return "the port is missing";
	if (address.has_port && address.port == 0 && !(parts & ADDRESS_ZERO_PORT))
		return "the port is not a number from 1 to 65535";
	*ret_address = address;
	return NULL;
}
