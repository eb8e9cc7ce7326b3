/* The target of a request line: its path, its query, and the authority of an absolute form (RFC 9112, 3.2). See
 * headers.h. Pure functions; any thread. */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "headers.h"

static bool target_is_visible(const char *target, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (target[i] <= 0x20 || target[i] >= 0x7f || target[i] == '#')
			return false;
	return true;
}

bool target_is_origin(const char *target, size_t len)
{
	return len > 0 && target[0] == '/' && target_is_visible(target, len);
}

const char *target_after_authority(const char *target, size_t len, const char **ret_host, size_t *ret_host_len)
{
	size_t scheme_len = strncasecmp(target, "http://", 7) == 0    ? 7
			    : strncasecmp(target, "https://", 8) == 0 ? 8
								      : 0;
	const char *host = target + scheme_len;
	size_t host_len = strcspn(host, "/?");

	assert(ret_host && ret_host_len);
	/* a URL must not hold credentials */
	if (scheme_len == 0 || host_len == 0 || memchr(host, '@', host_len) != NULL || !target_is_visible(target, len))
		return NULL;
	*ret_host = host;
	*ret_host_len = host_len;
	return host + host_len;
}

const char *target_parse(char *target, size_t len, bool options, const char **ret_host, size_t *ret_host_len,
			 const char **ret_query)
{
	const char *path = target;

	assert(target[len] == '\0');
	*ret_query = NULL;
	if (options && strcmp(target, "*") == 0)
		return path;
	if (!target_is_origin(target, len) &&
	    (path = target_after_authority(target, len, ret_host, ret_host_len)) == NULL)
		return NULL;
	char *query = strchr(target, '?');
	if (query)
		*query++ = '\0';
	*ret_query = query;
	return path[0] != '\0' ? path : "/";
}
