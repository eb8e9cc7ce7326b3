/* SPDX-License-Identifier: MIT */
/* Two easy handles of libcurl in one multi handle. See client.h.
 *
 * A request that may be granted a lease has a new connection (libcurl would send it again by itself if a kept
 * connection turns out to be closed), and its time limit is kept by the caller. */
#include "client.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
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

static size_t client_on_body(char *bytes, size_t size, size_t count, void *context)
{
	struct client_exchange *exchange = context;
	size_t len = size * count;
	assert(exchange->body.len <= BODY_MAX);
	if (len > BODY_MAX - exchange->body.len)
		return 0;
	text_append(&exchange->body, bytes, len);
	return len;
}

static int client_on_open(void *context, curl_socket_t file, curlsocktype purpose)
{
	const int after = ALIVE_AFTER_S, again = ALIVE_AGAIN_S, tries = ALIVE_TRIES, on = 1;
	(void)context, (void)purpose;
	/* shows during a long wait that the other machine is down; without effect on Unix sockets */
	setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(file, IPPROTO_TCP, TCP_KEEPIDLE, &after, sizeof after);
	setsockopt(file, IPPROTO_TCP, TCP_KEEPINTVL, &again, sizeof again);
	setsockopt(file, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
	return CURL_SOCKOPT_OK;
}

/* ---- set-up ---- */

bool client_init(struct client *client, const struct arguments *arguments)
{
	assert(arguments->servers.count > 0);
	*client = (struct client){.arguments = arguments};
	memcpy(client->key, arguments->credentials.api_key, sizeof client->key);
	for (size_t i = 0; i < CLIENT_FDS; i++)
		client->fds[i] = (struct curl_waitfd){.fd = -1, .events = CURL_WAIT_POLLIN};
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return false;
	client->multi = curl_multi_init();
	client->main.easy = curl_easy_init();
	client->side.easy = curl_easy_init();
	if (!client->multi || !client->main.easy || !client->side.easy)
		memory_exhausted("libcurl");
	client->fds[CLIENT_TIMER].fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	return client->fds[CLIENT_TIMER].fd >= 0;
}

static void client_drop_headers(struct client_exchange *exchange)
{
	for (struct curl_slist *header = exchange->headers; header; header = header->next)
		explicit_bzero(header->data, strlen(header->data)); /* a key, a token */
	curl_slist_free_all(exchange->headers);
	exchange->headers = NULL;
}

void client_cancel(struct client *client, struct client_exchange *exchange)
{
	assert(exchange->state != CLIENT_BUSY || exchange->easy);
	if (exchange->state == CLIENT_BUSY)
		curl_multi_remove_handle(client->multi, exchange->easy);
	exchange->state = CLIENT_IDLE;
	client_drop_headers(exchange);
}

static void client_fini_exchange(struct client *client, struct client_exchange *exchange)
{
	client_cancel(client, exchange);
	curl_easy_cleanup(exchange->easy);
	text_fini(&exchange->body);
}

void client_fini(struct client *client)
{
	client_fini_exchange(client, &client->main);
	client_fini_exchange(client, &client->side);
	explicit_bzero(client->key, sizeof client->key);
	curl_multi_cleanup(client->multi);
	close(client->fds[CLIENT_TIMER].fd);
	curl_global_cleanup();
}

const struct address *client_server(const struct client *client)
{
	assert(client->server < client->arguments->servers.count);
	return &client->arguments->servers.items[client->server];
}

void client_next_server(struct client *client)
{
	client->server = (client->server + 1) % client->arguments->servers.count;
}

/* ---- requests ---- */

/* No proxy from the environment and no redirection: token and key go only to the server that was named. HTTP/1.1, since
 * over HTTP/2 all requests share one connection, which cancelling one of them would not close. QUICK_EXIT, since
 * cancelling would otherwise wait for a name server that does not answer, perhaps for longer than the lease lasts. */
static void client_set_bounds(CURL *easy, const struct client_request *request, uint64_t timeout_us)
{
	long timeout_ms = (long)((timeout_us + 999) / 1000);
	assert(timeout_us > 0);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
			 timeout_ms + (long)request->wait_ms + (request->may_grant ? LATER_MS : 0));
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request->may_grant ? 1L : 0L);
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
}

/* The value may be a secret. */
static void client_add_header(struct client_exchange *exchange, const char *start, const char *value)
{
	char header[BEARER_MAX + 64];
	int len = snprintf(header, sizeof header, "%s%s", start, value);
	assert(len > 0 && len < (int)sizeof header);
	exchange->headers = curl_slist_append(exchange->headers, header);
	if (!exchange->headers)
		memory_exhausted("header");
	explicit_bzero(header, sizeof header);
}

/* The key file is read for each request, since others replace it: a token in it lasts minutes, a lock days. What cannot
 * be read leaves the last key. */
static void client_set_key(struct client *client, struct client_exchange *exchange)
{
	const struct credentials *credentials = &client->arguments->credentials;
	char key[BEARER_MAX + 1] = "", unused[API_KEY_MESSAGE_MAX];
	if (credentials->api_key_file && api_key_read(credentials->api_key_file, key, unused))
		memcpy(client->key, key, sizeof client->key);
	explicit_bzero(key, sizeof key);
	if (client->key[0] != '\0')
		client_add_header(exchange, "Authorization: Bearer ", client->key);
}

static void client_set_headers(struct client *client, struct client_exchange *exchange,
			       const struct client_request *request)
{
	client_drop_headers(exchange);
	client_add_header(exchange, "Accept: ", "application/json, application/problem+json");
	if (request->body[0] != '\0')
		client_add_header(exchange, "Content-Type: ", "application/json");
	if (request->token)
		client_add_header(exchange, "Lock-Token: ", request->token);
	if (request->tag)
		client_add_header(exchange, "If-None-Match: ", request->tag);
	if (request->key)
		client_add_header(exchange, "Idempotency-Key: ", request->key);
	client_set_key(client, exchange);
	curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->headers);
	curl_easy_setopt(exchange->easy, CURLOPT_USERAGENT, "redlockctl/" REDLOCKCTL_VERSION);
}

/* The certificate and its name are always checked, only against --cacert if that is given (libcurl would also use the
 * folder of CAs of the system). Sessions are not resumed: they would keep the client's certificate with which they
 * began, also after it was renewed or has expired. For a private key with a password OpenSSL would ask at the terminal,
 * which another program may be using: it gets an empty password, and fails. A libcurl without TLS fails by itself at
 * the protocol. */
static void client_set_tls(CURL *easy, const struct credentials *credentials)
{
	const char *ca = credentials->ca_file, *cert = credentials->cert_file, *key = credentials->cert_key_file;
	bool set = true;
	if ((curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_SSL) == 0)
		return;
	set &= curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK;
	set &= curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L) == CURLE_OK;
	set &= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK;
	set &= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK;
	if (ca)
		set &= curl_easy_setopt(easy, CURLOPT_CAINFO, ca) == CURLE_OK &&
		       curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK;
#if LIBCURL_VERSION_NUM >= 0x075700 /* some builds would keep the authorities for a day; others know no such option */
	(void)curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L);
#endif
	if (cert) {
		set &= curl_easy_setopt(easy, CURLOPT_SSLCERT, cert) == CURLE_OK;
		set &= curl_easy_setopt(easy, CURLOPT_SSLKEY, key ? key : cert) == CURLE_OK;
		set &= curl_easy_setopt(easy, CURLOPT_KEYPASSWD, "") == CURLE_OK;
	}
	assert(set);
}

static void client_set_request(CURL *easy, const struct address *server, const struct client_request *request)
{
	char base[SERVER_BASE_MAX], url[SERVER_BASE_MAX + CLIENT_REQUEST_PATH_MAX];
	assert(request->method);
	server_write_base(server, base);
	snprintf(url, sizeof url, "%s%s", base, request->path);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, server->tls ? "https" : "http");
	if (server->is_unix)
		curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, server->host);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
	if (request->body[0] != '\0')
		curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, request->body);
}

static void client_set_callbacks(struct client_exchange *exchange)
{
	curl_easy_setopt(exchange->easy, CURLOPT_WRITEFUNCTION, client_on_body);
	curl_easy_setopt(exchange->easy, CURLOPT_WRITEDATA, exchange);
	curl_easy_setopt(exchange->easy, CURLOPT_ERRORBUFFER, exchange->error);
	curl_easy_setopt(exchange->easy, CURLOPT_SOCKOPTFUNCTION, client_on_open);
}

void client_begin(struct client *client, struct client_exchange *exchange, const struct client_request *request,
		  uint64_t timeout_us)
{
	const struct credentials *credentials = &client->arguments->credentials;
	const struct address *server = client_server(client);
	assert(exchange->state != CLIENT_BUSY);
	curl_easy_reset(exchange->easy);
	client_set_bounds(exchange->easy, request, timeout_us);
	if (server->tls)
		client_set_tls(exchange->easy, credentials);
	client_set_headers(client, exchange, request);
	client_set_request(exchange->easy, server, request);
	client_set_callbacks(exchange);
	exchange->method = request->method;
	exchange->state = CLIENT_BUSY;
	exchange->sent_us = clock_now_us();
	exchange->error[0] = '\0';
	exchange->body.len = 0;
	CURLMcode code = curl_multi_add_handle(client->multi, exchange->easy);
	assert(code == CURLM_OK);
}

/* ---- answers ---- */

/* Runs libcurl without waiting. */
static void client_perform(struct client *client)
{
	int running, left;
	CURLMsg *message;
	curl_multi_perform(client->multi, &running);
	while ((message = curl_multi_info_read(client->multi, &left))) { /* all are CURLMSG_DONE */
		bool is_main = message->easy_handle == client->main.easy;
		struct client_exchange *exchange = is_main ? &client->main : &client->side;
		exchange->result = message->data.result;
		exchange->state = CLIENT_FINISHED;
		curl_multi_remove_handle(client->multi, exchange->easy);
	}
}

void client_arm(int timer, uint64_t when_us)
{
	struct itimerspec when = {.it_value = {(time_t)(when_us / 1000000), (long)(when_us % 1000000 * 1000)}};
	int failed = timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
	assert(!failed);
}

bool client_wait(struct client *client, uint64_t until_us, unsigned count)
{
	struct curl_waitfd fds[CLIENT_FDS]; /* gcc with -fsanitize=thread takes a member for too short */
	assert(count < CLIENT_FDS);
	for (unsigned i = 0; i < CLIENT_FDS; i++) {
		client->fds[i].revents = 0;
		fds[i] = client->fds[i];
	}
	client_perform(client);
	if (client->main.state != CLIENT_FINISHED && client->side.state != CLIENT_FINISHED) {
		client_arm(fds[CLIENT_TIMER].fd, until_us == UINT64_MAX ? 0 : until_us);
		curl_multi_poll(client->multi, fds, count + 1, POLL_MS, NULL);
		for (unsigned i = 0; i < CLIENT_FDS; i++)
			client->fds[i].revents = fds[i].revents;
		client_perform(client);
	}
	return client->main.state == CLIENT_FINISHED;
}

bool client_wait_order(struct client *client, uint64_t until_us)
{
	bool finished = client_wait(client, until_us, CLIENT_ORDERS);
	if (!finished && client->fds[CLIENT_ORDERS].revents != 0)
		client->order = client->read_order(client->context);
	return finished;
}

void client_pause(struct client *client, uint64_t until_us)
{
	enum client_order order = client->order;
	assert(client->main.state != CLIENT_BUSY);
	while (client->order == order && clock_now_us() < until_us)
		client_wait_order(client, until_us);
}

/* In place of messages of libcurl that do not name the cause. */
static const char *client_explain_failure(const struct client_exchange *exchange)
{
	if (exchange->result == CURLE_SSL_CONNECT_ERROR && strstr(exchange->error, "wrong version number"))
		return "it does not speak TLS: use http://, or its port with TLS";
	if (exchange->result == CURLE_GOT_NOTHING)
		return "it closed the connection without an answer: is this a port of Redis, or one for https://?";
	if (exchange->result == CURLE_OUT_OF_MEMORY || exchange->result == CURLE_WRITE_ERROR)
		return "its answer is too long";
	return exchange->error[0] == '\0' ? curl_easy_strerror(exchange->result) : exchange->error;
}

/* False: the request reached no server. */
static bool client_was_sent(const struct client_exchange *exchange)
{
	return exchange->result != CURLE_COULDNT_CONNECT && exchange->result != CURLE_COULDNT_RESOLVE_HOST &&
	       exchange->result != CURLE_PEER_FAILED_VERIFICATION;
}

/* The message of libcurl names port 80 instead of a Unix socket. */
static void client_read_failure(const struct client_exchange *exchange, struct answer *ret_answer)
{
	const char *reason = client_explain_failure(exchange);
	char text[ANSWER_DETAIL_MAX];
	long error = 0;
	assert(exchange->result != CURLE_OK);
	curl_easy_getinfo(exchange->easy, CURLINFO_OS_ERRNO, &error);
	answer_read(ret_answer, 0, NULL, 0, reason);
	ret_answer->is_lost = client_was_sent(exchange);
	if (exchange->result == CURLE_COULDNT_CONNECT && error != 0) {
		snprintf(text, sizeof text, "cannot connect: %s", strerror((int)error));
		answer_set(ret_answer, OUTCOME_UNAVAILABLE, "unreachable", text);
	} else if (exchange->result == CURLE_PEER_FAILED_VERIFICATION) {
		snprintf(text, sizeof text, "its certificate is not trusted: %s (give its CA with --cacert)", reason);
		answer_set(ret_answer, OUTCOME_UNTRUSTED, "untrusted", text);
	} else if (exchange->result == CURLE_SSL_CERTPROBLEM || exchange->result == CURLE_SSL_CACERT_BADFILE) {
		bool is_own = exchange->result == CURLE_SSL_CERTPROBLEM;
		snprintf(text, sizeof text, "%s: %s%s", is_own ? "--cert, --key" : "--cacert", reason,
			 is_own ? "" : "; without --cacert, the package ca-certificates must be installed");
		answer_set(ret_answer, OUTCOME_INVALID, "invalid-file", text);
	}
}

void client_read(struct client_exchange *exchange, struct answer *ret_answer)
{
	long status = 0;
	curl_off_t retry_after_s = 0;
	assert(exchange->state == CLIENT_FINISHED);
	exchange->state = CLIENT_IDLE;
	if (exchange->result != CURLE_OK) {
		client_read_failure(exchange, ret_answer);
		return;
	}
	curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(exchange->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
	answer_read(ret_answer, status, exchange->body.bytes, exchange->body.len, NULL);
	answer_check_status(ret_answer, exchange->method, status);
	ret_answer->sent_us = exchange->sent_us;
	struct curl_header *tag;
	if (curl_easy_header(exchange->easy, "ETag", 0, CURLH_HEADER, -1, &tag) == CURLHE_OK)
		snprintf(ret_answer->tag, sizeof ret_answer->tag, "%s", tag->value);
	if (ret_answer->retry_after_ms == 0 && retry_after_s > 0 && retry_after_s <= RETRY_AFTER_MAX_S)
		ret_answer->retry_after_ms = (uint64_t)retry_after_s * 1000;
}

void client_record(struct client *client, const struct answer *answer)
{
	bool is_of_one = answer_is_of_one(answer);
	snprintf(client->failures[client->server], ANSWER_DETAIL_MAX, "%s", is_of_one ? answer->detail : "");
}

#define CLIENT_CONNECT_HINT " (is redlockd running there? --server or REDLOCKCTL_SERVER gives another address)"

const char *client_explain(const struct client *client, const struct answer *answer, char ret_text[CLIENT_TEXT_MAX])
{
	const struct server_list *servers = &client->arguments->servers;
	size_t len = 0;
	ret_text[0] = '\0';
	for (size_t i = 0; i < servers->count && answer_is_of_one(answer); i++)
		if (client->failures[i][0] != '\0')
			len += (size_t)snprintf(ret_text + len, CLIENT_TEXT_MAX - len, "%s%s: %s", len > 0 ? "; " : "",
						servers->items[i].shown, client->failures[i]);
	assert(len < CLIENT_TEXT_MAX);
	if (strstr(ret_text, ": cannot connect: "))
		snprintf(ret_text + len, CLIENT_TEXT_MAX - len, "%s", CLIENT_CONNECT_HINT);
	return len > 0 ? ret_text : answer_explain(answer, client->arguments, client_server(client)->shown, ret_text);
}

struct answer client_ask(struct client *client, size_t tries, const struct client_request *request, uint64_t timeout_us,
			 bool stop_on_signal)
{
	struct answer answer;
	assert(tries > 0 && (!stop_on_signal || client->order == CLIENT_GO_ON));
	client->unanswered = 0;
	for (;;) {
		client_begin(client, &client->main, request, timeout_us);
		while (!(stop_on_signal ? client_wait_order(client, UINT64_MAX) : client_wait(client, UINT64_MAX, 0)))
			if (stop_on_signal && client->order != CLIENT_GO_ON) {
				client_cancel(client, &client->main);
				return (struct answer){.outcome = OUTCOME_UNAVAILABLE};
			}
		client_read(&client->main, &answer);
		client_record(client, &answer);
		bool is_final = request->of_lease ? answer.outcome == OUTCOME_DONE || answer.outcome == OUTCOME_LOST
						  : !answer_is_of_one(&answer);
		if (is_final || (request->once && client_was_sent(&client->main)) || --tries == 0)
			return answer;
		client->unanswered += answer.outcome == OUTCOME_UNAVAILABLE;
		answer_fini(&answer);
		client_next_server(client);
	}
}
