/* SPDX-License-Identifier: MIT */
/* Members of a call in lines of the log. See calls_internal.h. */
#include <string.h>
#include <sys/param.h>

#include "calls_internal.h"

void call_log_address(const struct call *call)
{
	char text[REQUEST_ADDRESS_MAX];
	request_write_address(call->request, text);
	log_text("address", text);
}

void call_log_id(const struct call *call)
{
	const struct request *request = call->request;
	log_text("id", request->id[0] != '\0' ? request->id : NULL);
	log_text("trace_id", request->headers.trace_id[0] != '\0' ? request->headers.trace_id : NULL);
}

void call_log_names(const char *names, size_t len, uint8_t set_count)
{
	char text[LEASE_RESOURCE_MAX];
	if (set_count == 0) {
		if (len > 0)
			log_str("resource", names, len);
		return;
	}
	len = MIN(len, sizeof text);
	memcpy(text, names, len);
	for (size_t i = 0; i < len; i++)
		text[i] = text[i] == '\n' ? ' ' : text[i];
	log_num("resources", set_count);
	log_str("names", text, len);
}
