/* libcurl: one easy handle in one multi handle. See http.h.
 *
 * What is set and why: the path as it is (a lock may be called "a/../b"); no proxy from the environment, no redirection, nothing
 * but HTTP (a token must go to the server that was named, and nowhere else); no signals; and CURLOPT_QUICK_EXIT, because
 * breaking off would otherwise wait for a name server that does not answer, and so for longer than the lease may last. */
#include "http.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "../server/clock.h"

enum { BODY_MAX = 8 * 1024 * 1024, POLL_MS = 60000 };

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
	struct http *http = context;
	size_t len = size * count;

	if (len > BODY_MAX - http->len)
		return 0;
	char *longer = realloc(http->body, http->len + len + 1);
	if (longer == NULL)
		return 0;
	memcpy(longer + http->len, bytes, len);
	http->body = longer;
	http->len += len;
	return len;
}

bool http_init(struct http *http)
{
	*http = (struct http){.timer = -1};
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return false;
	http->multi = curl_multi_init();
	http->easy = curl_easy_init();
	http->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (http->multi != NULL && http->easy != NULL && http->timer >= 0)
		return true;
	http_fini(http);
	return false;
}

void http_fini(struct http *http)
{
	http_cancel(http);
	if (http->easy != NULL)
		curl_easy_cleanup(http->easy);
	if (http->multi != NULL)
		curl_multi_cleanup(http->multi);
	if (http->timer >= 0)
		close(http->timer);
	free(http->body);
	curl_global_cleanup();
}

static void http_set_bounds(CURL *easy, uint64_t timeout_us)
{
	long timeout_ms = (long)((timeout_us + 999) / 1000);

	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
#else
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)CURLPROTO_HTTP);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
}

static void http_add_header(struct http *http, const char *header)
{
	struct curl_slist *longer = curl_slist_append(http->headers, header);
	assert(longer != NULL);
	http->headers = longer;
}

static void http_set_headers(struct http *http, const struct request *request)
{
	char header[128];

	curl_slist_free_all(http->headers);
	http->headers = NULL;
	http_add_header(http, "Accept: application/json, application/problem+json");
	if (request->body != NULL)
		http_add_header(http, "Content-Type: application/json");
	if (request->token != NULL) {
		snprintf(header, sizeof(header), "Lock-Token: %s", request->token);
		http_add_header(http, header);
		explicit_bzero(header, sizeof(header));
	}
	curl_easy_setopt(http->easy, CURLOPT_HTTPHEADER, http->headers);
	curl_easy_setopt(http->easy, CURLOPT_USERAGENT, "redlockctl/" REDLOCKCTL_VERSION);
}

static void http_set_request(struct http *http, const struct server *server, const struct request *request)
{
	char url[SERVER_TEXT_MAX + REQUEST_PATH_MAX + 1];

	snprintf(url, sizeof(url), "%s%s", server->base, request->path);
	curl_easy_setopt(http->easy, CURLOPT_URL, url);
	if (server->unix_path[0] != '\0')
		curl_easy_setopt(http->easy, CURLOPT_UNIX_SOCKET_PATH, server->unix_path);
	curl_easy_setopt(http->easy, CURLOPT_CUSTOMREQUEST, request->method);
	if (request->body != NULL)
		curl_easy_setopt(http->easy, CURLOPT_COPYPOSTFIELDS, request->body);
	curl_easy_setopt(http->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(http->easy, CURLOPT_WRITEDATA, http);
	curl_easy_setopt(http->easy, CURLOPT_ERRORBUFFER, http->error);
}

void http_begin(struct http *http, const struct server *server, const struct request *request, uint64_t timeout_us)
{
	assert(!http->busy);
	curl_easy_reset(http->easy);
	http_set_bounds(http->easy, timeout_us);
	http_set_headers(http, request);
	http_set_request(http, server, request);
	http->len = 0;
	http->status = 0;
	http->error[0] = '\0';
	http->finished = false;
	http->busy = true;
	http->sent_us = clock_now_us();
	CURLMcode code = curl_multi_add_handle(http->multi, http->easy);
	assert(code == CURLM_OK);
}

static void http_finish(struct http *http, CURLcode result)
{
	if (result == CURLE_OK)
		curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &http->status);
	else if (http->error[0] == '\0')
		snprintf(http->error, sizeof(http->error), "%s", curl_easy_strerror(result));
	curl_multi_remove_handle(http->multi, http->easy);
	http->busy = false;
	http->finished = true;
}

/* Lets libcurl do what can be done without waiting. */
static void http_perform(struct http *http)
{
	int running, left;
	CURLMsg *message;

	curl_multi_perform(http->multi, &running);
	while (http->busy && (message = curl_multi_info_read(http->multi, &left)) != NULL)
		if (message->msg == CURLMSG_DONE)
			http_finish(http, message->data.result);
}

/* The timer counts the sleep of a suspended machine; the time limit of curl_multi_poll() would not. */
static void http_arm(struct http *http, uint64_t until_us)
{
	struct itimerspec when = {.it_value = {0, 0}};

	if (until_us != UINT64_MAX) {
		when.it_value.tv_sec = (time_t)(until_us / 1000000);
		when.it_value.tv_nsec = (long)(until_us % 1000000 * 1000);
	}
	int failed = timerfd_settime(http->timer, TFD_TIMER_ABSTIME, &when, NULL);
	assert(!failed);
}

bool http_wait(struct http *http, uint64_t until_us, struct curl_waitfd *extra, unsigned count)
{
	struct curl_waitfd all[HTTP_EXTRA_MAX + 1] = {{.fd = http->timer, .events = CURL_WAIT_POLLIN}};

	assert(count <= HTTP_EXTRA_MAX);
	http_perform(http);
	if (http->finished)
		return true;
	for (unsigned i = 0; i < count; i++)
		all[i + 1] = extra[i];
	http_arm(http, until_us);
	curl_multi_poll(http->multi, all, count + 1, POLL_MS, NULL);
	for (unsigned i = 0; i < count; i++)
		extra[i].revents = all[i + 1].revents;
	http_perform(http);
	return http->finished;
}

void http_read(struct http *http, struct answer *ret_answer)
{
	assert(http->finished);
	answer_read(ret_answer, http->status, http->body, http->len, http->error);
	http->finished = false;
}

void http_cancel(struct http *http)
{
	if (http->busy)
		curl_multi_remove_handle(http->multi, http->easy);
	http->busy = http->finished = false;
	if (http->headers != NULL)
		curl_slist_free_all(http->headers);
	http->headers = NULL;
}
