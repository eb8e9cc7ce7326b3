/* libcurl: two easy handles in one multi handle. See http.h.
 *
 * What is set and why: the path as it is (a lock may be called "a/../b"); no proxy from the environment, no
 * redirection, no other protocol (a token and a key must go to the server that was named, and nowhere else); HTTP/1.1
 * (over HTTP/2 all requests would share one connection, and with one of them all would be hung up); no signals; and
 * CURLOPT_QUICK_EXIT, because breaking off would otherwise wait for a name server that does not answer, and so for
 * longer than the lease may last. A request that may be granted something has a new connection (on an old one that
 * turns out to be closed libcurl would send it again by itself), and a time limit that is the caller's affair:
 * libcurl's would close at once. While a request waits TCP looks whether the other machine is there.
 *
 * Hanging up: if we just closed, an answer that is on its way would be lost, and with it a lease that nobody knows of;
 * the server has written it and believes it delivered. So the connection is shut in one direction. Either the server
 * sees that before it has granted, and closes as well, or it has answered before, and the answer is read. libcurl has
 * no call for this: its sockets are noted as it opens and closes them, and all of them are shut; those of idle
 * connections as well, which does no harm. Under TLS it is the same: TCP's end is what the server sees, without the
 * closing message of TLS, for which libcurl has no call either; and what the server sends is read on. Only what TLS
 * itself would have to write fails then (a new key where the server demands one, after gigabytes).
 *
 * TLS: 1.2 and newer; the certificate and its name are always checked, against --cacert alone where that is given
 * (libcurl would take the system's folder of CAs besides). Sessions are not resumed: they would go on with the
 * certificate that the client had then, also after that has been renewed or has ended. A private key with a password
 * would make OpenSSL ask at the terminal, in the midst of somebody else's program: it gets an empty one, and
 * refuses. */
#include "client.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "server/base/base.h"

enum {
	BODY_MAX = 8 * 1024 * 1024,
	POLL_MS = 60000,
	ALIVE_AFTER_S = 10,
	ALIVE_AGAIN_S = 5,
	ALIVE_TRIES = 3,
	RETRY_AFTER_MAX_S = 86400,
	LATER_MS = 5000
};

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
	struct http_exchange *exchange = context;
	size_t len = size * count;

	if (len > BODY_MAX - exchange->len)
		return 0;
	char *longer = realloc(exchange->body, exchange->len + len + 1);
	if (longer == NULL)
		return 0;
	memcpy(longer + exchange->len, bytes, len);
	exchange->body = longer;
	exchange->len += len;
	return len;
}

/* ---- sockets ---- */

static void http_replace_socket(struct http *http, int from, int to)
{
	for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++)
		if (http->sockets[i] == from) {
			http->sockets[i] = to;
			return;
		}
}

static int on_open(void *context, curl_socket_t file, curlsocktype purpose)
{
	const int after = ALIVE_AFTER_S, again = ALIVE_AGAIN_S, tries = ALIVE_TRIES, on = 1;

	(void)purpose;
	http_replace_socket(context, -1, file);
	setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)); /* these do nothing to a Unix socket */
	setsockopt(file, IPPROTO_TCP, TCP_KEEPIDLE, &after, sizeof(after));
	setsockopt(file, IPPROTO_TCP, TCP_KEEPINTVL, &again, sizeof(again));
	setsockopt(file, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
	return CURL_SOCKOPT_OK;
}

static int on_close(void *context, curl_socket_t file)
{
	http_replace_socket(context, file, -1);
	return close(file);
}

static bool http_shut_sockets(struct http *http)
{
	bool any = false;

	for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++)
		any |= http->sockets[i] >= 0 && shutdown(http->sockets[i], SHUT_WR) == 0;
	return any;
}

/* ---- set-up ---- */

bool http_init(struct http *http, const struct credentials *credentials)
{
	*http = (struct http){.timer = -1, .credentials = credentials};
	for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++)
		http->sockets[i] = -1;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return false;
	http->multi = curl_multi_init();
	http->main.easy = curl_easy_init();
	http->side.easy = curl_easy_init();
	http->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (http->multi != NULL && http->main.easy != NULL && http->side.easy != NULL && http->timer >= 0)
		return true;
	http_fini(http);
	return false;
}

static void http_drop_headers(struct http_exchange *exchange)
{
	for (struct curl_slist *header = exchange->headers; header != NULL; header = header->next)
		explicit_bzero(header->data, strlen(header->data)); /* a key, a token */
	curl_slist_free_all(exchange->headers);
	exchange->headers = NULL;
}

static void http_end(struct http *http, struct http_exchange *exchange)
{
	if (exchange->busy)
		curl_multi_remove_handle(http->multi, exchange->easy);
	exchange->busy = exchange->finished = false;
	http_drop_headers(exchange);
}

static void http_fini_exchange(struct http *http, struct http_exchange *exchange)
{
	http_end(http, exchange);
	if (exchange->easy != NULL)
		curl_easy_cleanup(exchange->easy);
	free(exchange->body);
}

void http_fini(struct http *http)
{
	http_fini_exchange(http, &http->main);
	http_fini_exchange(http, &http->side);
	if (http->multi != NULL)
		curl_multi_cleanup(http->multi);
	if (http->timer >= 0)
		close(http->timer);
	curl_global_cleanup();
}

/* ---- requests ---- */

static void http_set_bounds(CURL *easy, const struct request *request, uint64_t timeout_us)
{
	long timeout_ms = (long)((timeout_us + 999) / 1000);

	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
			 timeout_ms + (long)request->wait_ms + (request->may_grant ? LATER_MS : 0));
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request->may_grant ? 1L : 0L);
#if LIBCURL_VERSION_NUM >= 0x075700
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
}

static void http_add_header(struct http_exchange *exchange, const char *header)
{
	struct curl_slist *longer = curl_slist_append(exchange->headers, header);
	assert(longer != NULL);
	exchange->headers = longer;
}

static void http_add_secret(struct http_exchange *exchange, const char *start, const char *secret)
{
	char header[API_KEY_MAX + 64];
	int len = snprintf(header, sizeof(header), "%s%s", start, secret);

	assert(len > 0 && len < (int)sizeof(header));
	http_add_header(exchange, header);
	explicit_bzero(header, sizeof(header));
}

static void http_set_headers(struct http_exchange *exchange, const struct request *request, const char *api_key)
{
	http_drop_headers(exchange);
	http_add_header(exchange, "Accept: application/json, application/problem+json");
	if (request->body != NULL)
		http_add_header(exchange, "Content-Type: application/json");
	if (request->token != NULL)
		http_add_secret(exchange, "Lock-Token: ", request->token);
	if (*api_key != '\0')
		http_add_secret(exchange, "Authorization: Bearer ", api_key);
	curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->headers);
	curl_easy_setopt(exchange->easy, CURLOPT_USERAGENT, "redlockctl/" REDLOCKCTL_VERSION);
}

static void http_set_protocol(CURL *easy, bool is_tls)
{
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, is_tls ? "https" : "http");
#else
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS, is_tls ? (long)CURLPROTO_HTTPS : (long)CURLPROTO_HTTP);
#endif
}

/* A libcurl without TLS says so by itself, when it sees the protocol. */
static void http_set_tls(CURL *easy, const struct credentials *credentials)
{
	const char *ca = credentials->ca_file, *cert = credentials->cert_file, *key = credentials->cert_key_file;
	bool set = true;

	if ((curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_SSL) == 0)
		return;
	set &= curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK;
	set &= curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L) == CURLE_OK;
	set &= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK;
	set &= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK;
	if (ca != NULL) {
		set &= curl_easy_setopt(easy, CURLOPT_CAINFO, ca) == CURLE_OK;
		set &= curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK;
	}
	if (cert != NULL) {
		set &= curl_easy_setopt(easy, CURLOPT_SSLCERT, cert) == CURLE_OK;
		set &= curl_easy_setopt(easy, CURLOPT_SSLKEY, key != NULL ? key : cert) == CURLE_OK;
		set &= curl_easy_setopt(easy, CURLOPT_KEYPASSWD, "") == CURLE_OK;
	}
	assert(set);
}

static void http_set_request(struct http_exchange *exchange, const struct server *server, const struct request *request)
{
	char url[SERVER_TEXT_MAX + REQUEST_PATH_MAX + 1];

	snprintf(url, sizeof(url), "%s%s", server->base, request->path);
	curl_easy_setopt(exchange->easy, CURLOPT_URL, url);
	if (server->unix_path[0] != '\0')
		curl_easy_setopt(exchange->easy, CURLOPT_UNIX_SOCKET_PATH, server->unix_path);
	curl_easy_setopt(exchange->easy, CURLOPT_CUSTOMREQUEST, request->method);
	if (request->body != NULL)
		curl_easy_setopt(exchange->easy, CURLOPT_COPYPOSTFIELDS, request->body);
	curl_easy_setopt(exchange->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(exchange->easy, CURLOPT_WRITEDATA, exchange);
	curl_easy_setopt(exchange->easy, CURLOPT_ERRORBUFFER, exchange->error);
}

static void http_set_sockets(struct http *http, struct http_exchange *exchange)
{
	curl_easy_setopt(exchange->easy, CURLOPT_SOCKOPTFUNCTION, on_open);
	curl_easy_setopt(exchange->easy, CURLOPT_SOCKOPTDATA, http);
	curl_easy_setopt(exchange->easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
	curl_easy_setopt(exchange->easy, CURLOPT_CLOSESOCKETDATA, http);
}

static void http_start(struct http *http, struct http_exchange *exchange, const struct server *server,
		       const struct request *request, uint64_t timeout_us)
{
	assert(!exchange->busy);
	curl_easy_reset(exchange->easy);
	http_set_bounds(exchange->easy, request, timeout_us);
	http_set_protocol(exchange->easy, server->is_tls);
	if (server->is_tls)
		http_set_tls(exchange->easy, http->credentials);
	http_set_headers(exchange, request, http->credentials->api_key);
	http_set_request(exchange, server, request);
	http_set_sockets(http, exchange);
	exchange->len = 0;
	exchange->status = 0;
	exchange->retry_after_ms = 0;
	exchange->error[0] = '\0';
	exchange->finished = false;
	exchange->busy = true;
	exchange->sent_us = clock_now_us();
	CURLMcode code = curl_multi_add_handle(http->multi, exchange->easy);
	assert(code == CURLM_OK);
}

void http_begin(struct http *http, const struct server *server, const struct request *request, uint64_t timeout_us)
{
	http_start(http, &http->main, server, request, timeout_us);
}

void http_begin_side(struct http *http, const struct server *server, const struct request *request, uint64_t timeout_us)
{
	http_start(http, &http->side, server, request, timeout_us);
}

/* ---- answers ---- */

/* For people. libcurl speaks of port 80 where a Unix socket is meant. */
static void http_say_failure(struct http_exchange *exchange, CURLcode result)
{
	long error = 0;

	if (result == CURLE_COULDNT_CONNECT &&
	    curl_easy_getinfo(exchange->easy, CURLINFO_OS_ERRNO, &error) == CURLE_OK && error != 0)
		snprintf(exchange->error, sizeof(exchange->error), "cannot connect: %s", strerror((int)error));
	else if (exchange->error[0] == '\0')
		snprintf(exchange->error, sizeof(exchange->error), "%s", curl_easy_strerror(result));
}

static void http_finish(struct http *http, struct http_exchange *exchange, CURLcode result)
{
	curl_off_t retry_after_s = 0;

	exchange->result = result;
	if (result == CURLE_OK) {
		curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &exchange->status);
		curl_easy_getinfo(exchange->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
	} else {
		http_say_failure(exchange, result);
	}
	if (retry_after_s > 0 && retry_after_s <= RETRY_AFTER_MAX_S)
		exchange->retry_after_ms = (uint64_t)retry_after_s * 1000;
	curl_multi_remove_handle(http->multi, exchange->easy);
	exchange->busy = false;
	exchange->finished = true;
}

/* Lets libcurl do what can be done without waiting. */
static void http_perform(struct http *http)
{
	int running, left;
	CURLMsg *message;

	curl_multi_perform(http->multi, &running);
	while ((message = curl_multi_info_read(http->multi, &left)) != NULL)
		if (message->msg == CURLMSG_DONE)
			http_finish(http, message->easy_handle == http->main.easy ? &http->main : &http->side,
				    message->data.result);
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
	for (unsigned i = 0; i < count; i++)
		extra[i].revents = 0;
	http_perform(http);
	if (http->main.finished || http->side.finished)
		return http->main.finished;
	for (unsigned i = 0; i < count; i++)
		all[i + 1] = extra[i];
	http_arm(http, until_us);
	curl_multi_poll(http->multi, all, count + 1, POLL_MS, NULL);
	for (unsigned i = 0; i < count; i++)
		extra[i].revents = all[i + 1].revents;
	http_perform(http);
	return http->main.finished;
}

/* No answer, and why that is more than a server which is not there. */
static void http_judge_failure(const struct http_exchange *exchange, struct answer *answer)
{
	char text[ANSWER_DETAIL_MAX];

	if (exchange->result == CURLE_PEER_FAILED_VERIFICATION) {
		snprintf(text, sizeof(text), "its certificate is not trusted: %s", exchange->error);
		answer_set(answer, OUTCOME_UNTRUSTED, "untrusted", text);
	} else if (exchange->result == CURLE_SSL_CERTPROBLEM || exchange->result == CURLE_SSL_CACERT_BADFILE) {
		snprintf(text, sizeof(text), "%s: %s",
			 exchange->result == CURLE_SSL_CERTPROBLEM ? "--cert, --key" : "--cacert", exchange->error);
		answer_set(answer, OUTCOME_INVALID, "invalid-file", text);
	}
}

static void http_take(struct http_exchange *exchange, struct answer *ret_answer)
{
	answer_read(ret_answer, exchange->status, exchange->body, exchange->len, exchange->error);
	if (exchange->status == 0)
		http_judge_failure(exchange, ret_answer);
	if (ret_answer->retry_after_ms == 0)
		ret_answer->retry_after_ms = exchange->retry_after_ms;
	exchange->finished = false;
}

void http_read(struct http *http, struct answer *ret_answer)
{
	assert(http->main.finished);
	http_take(&http->main, ret_answer);
}

bool http_read_side(struct http *http, struct answer *ret_answer)
{
	if (!http->side.finished)
		return false;
	http_take(&http->side, ret_answer);
	return true;
}

/* ---- the end ---- */

void http_cancel(struct http *http)
{
	http_end(http, &http->main);
}

void http_end_side(struct http *http)
{
	http_end(http, &http->side);
}

bool http_hang_up(struct http *http, uint64_t until_us)
{
	http_end_side(http);
	if (http->main.busy && http_shut_sockets(http))
		while (!http->main.finished && clock_now_us() < until_us)
			http_wait(http, until_us, NULL, 0);
	if (http->main.finished && http->main.status != 0)
		return true;
	http_cancel(http);
	return false;
}
