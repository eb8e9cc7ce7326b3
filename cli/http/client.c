/* Two easy handles of libcurl in one multi handle. See client.h.
 *
 * A request that may be granted a lease has a new connection (libcurl would send it again by itself if a kept
 * connection turns out to be closed), and its time limit is the caller's affair: that of libcurl would close at once.
 *
 * client_hang_up(): closing would lose an answer on its way, and with it a lease that nobody knows of, while the server
 * believes it delivered. So the connection is shut for writing. Either the server sees that before it has granted, and
 * closes as well, or it has answered before, and the answer is read. libcurl has no function for this: its sockets are
 * recorded as it opens and closes them, and all are shut, which does no harm to idle connections. Under TLS the server
 * sees the end of TCP without the closing message of TLS, and its answer is read on. */
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

static size_t client_on_body(char *bytes, size_t size, size_t count, void *context)
{
	struct client_exchange *exchange = context;
	size_t len = size * count;

	assert(exchange->len <= BODY_MAX);
	if (len > BODY_MAX - exchange->len)
		return 0;
	char *longer = realloc(exchange->body, exchange->len + len + 1);
	if (!longer)
		return 0;
	memcpy(longer + exchange->len, bytes, len);
	exchange->body = longer;
	exchange->len += len;
	return len;
}

/* ---- sockets ---- */

static void client_replace_socket(struct client *client, int from, int to)
{
	assert(from != to);
	for (size_t i = 0; i < CLIENT_SOCKETS_MAX; i++)
		if (client->sockets[i] == from) {
			client->sockets[i] = to;
			return;
		}
}

static int client_on_open(void *context, curl_socket_t file, curlsocktype purpose)
{
	const int after = ALIVE_AFTER_S, again = ALIVE_AGAIN_S, tries = ALIVE_TRIES, on = 1;

	(void)purpose;
	client_replace_socket(context, -1, file);
	/* shows during a long wait that the other machine is down; without effect on Unix sockets */
	setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(file, IPPROTO_TCP, TCP_KEEPIDLE, &after, sizeof after);
	setsockopt(file, IPPROTO_TCP, TCP_KEEPINTVL, &again, sizeof again);
	setsockopt(file, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
	return CURL_SOCKOPT_OK;
}

static int client_on_close(void *context, curl_socket_t file)
{
	client_replace_socket(context, file, -1);
	return close(file);
}

static bool client_shut_sockets(struct client *client)
{
	bool any = false;

	for (size_t i = 0; i < CLIENT_SOCKETS_MAX; i++)
		any |= client->sockets[i] >= 0 && shutdown(client->sockets[i], SHUT_WR) == 0;
	return any;
}

/* ---- set-up ---- */

bool client_init(struct client *client, const struct credentials *credentials)
{
	assert(credentials);
	*client = (struct client){.timer = -1, .credentials = credentials};
	for (size_t i = 0; i < CLIENT_SOCKETS_MAX; i++)
		client->sockets[i] = -1;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return false;
	client->multi = curl_multi_init();
	client->main.easy = curl_easy_init();
	client->side.easy = curl_easy_init();
	client->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (client->multi && client->main.easy && client->side.easy && client->timer >= 0)
		return true;
	client_fini(client);
	return false;
}

static void client_drop_headers(struct client_exchange *exchange)
{
	for (struct curl_slist *header = exchange->headers; header; header = header->next)
		explicit_bzero(header->data, strlen(header->data)); /* a key, a token */
	curl_slist_free_all(exchange->headers);
	exchange->headers = NULL;
}

static void client_end(struct client *client, struct client_exchange *exchange)
{
	assert(!exchange->busy || exchange->easy);
	if (exchange->busy)
		curl_multi_remove_handle(client->multi, exchange->easy);
	exchange->busy = exchange->finished = false;
	client_drop_headers(exchange);
}

static void client_fini_exchange(struct client *client, struct client_exchange *exchange)
{
	client_end(client, exchange);
	if (exchange->easy)
		curl_easy_cleanup(exchange->easy);
	free(exchange->body);
}

void client_fini(struct client *client)
{
	client_fini_exchange(client, &client->main);
	client_fini_exchange(client, &client->side);
	if (client->multi)
		curl_multi_cleanup(client->multi);
	if (client->timer >= 0)
		close(client->timer);
	curl_global_cleanup();
}

/* ---- requests ---- */

/* The path stays as it is, since a lock may be called "a/../b". No proxy from the environment and no redirection: token
 * and key go only to the server that was named. HTTP/1.1, since over HTTP/2 all requests share one connection and
 * client_hang_up() would end them all. QUICK_EXIT, since cancelling would otherwise wait for a name server that does
 * not answer, perhaps for longer than the lease lasts. */
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
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request->may_grant ? 1L : 0L);
#if LIBCURL_VERSION_NUM >= 0x075700
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
}

static void client_add_header(struct client_exchange *exchange, const char *header)
{
	struct curl_slist *longer = curl_slist_append(exchange->headers, header);
	assert(longer);
	exchange->headers = longer;
}

static void client_add_secret(struct client_exchange *exchange, const char *start, const char *secret)
{
	char header[API_KEY_MAX + 64];
	int len = snprintf(header, sizeof header, "%s%s", start, secret);

	assert(strlen(secret) <= API_KEY_MAX);
	assert(len > 0 && len < (int)sizeof header);
	client_add_header(exchange, header);
	explicit_bzero(header, sizeof header);
}

static void client_set_headers(struct client_exchange *exchange, const struct client_request *request,
			       const char *api_key)
{
	client_drop_headers(exchange);
	client_add_header(exchange, "Accept: application/json, application/problem+json");
	if (request->body)
		client_add_header(exchange, "Content-Type: application/json");
	if (request->token)
		client_add_secret(exchange, "Lock-Token: ", request->token);
	if (*api_key != '\0')
		client_add_secret(exchange, "Authorization: Bearer ", api_key);
	curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->headers);
	curl_easy_setopt(exchange->easy, CURLOPT_USERAGENT, "redlockctl/" REDLOCKCTL_VERSION);
}

static void client_set_protocol(CURL *easy, bool is_tls)
{
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, is_tls ? "https" : "http");
#else
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS, is_tls ? (long)CURLPROTO_HTTPS : (long)CURLPROTO_HTTP);
#endif
}

/* The certificate and its name are always checked, only against --cacert if that is given (libcurl would also use the
 * folder of CAs of the system). Sessions are not resumed: they would go on with the client's certificate of then, also
 * after it was renewed or has expired. For a private key with a password OpenSSL would ask at the terminal, in the
 * midst of another program: it gets an empty one, and fails. A libcurl without TLS fails by itself at the protocol. */
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
	if (ca) {
		set &= curl_easy_setopt(easy, CURLOPT_CAINFO, ca) == CURLE_OK;
		set &= curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK;
	}
	if (cert) {
		set &= curl_easy_setopt(easy, CURLOPT_SSLCERT, cert) == CURLE_OK;
		set &= curl_easy_setopt(easy, CURLOPT_SSLKEY, key ? key : cert) == CURLE_OK;
		set &= curl_easy_setopt(easy, CURLOPT_KEYPASSWD, "") == CURLE_OK;
	}
	assert(set);
}

static void client_set_request(struct client_exchange *exchange, const struct server *server,
			       const struct client_request *request)
{
	char url[SERVER_TEXT_MAX + CLIENT_REQUEST_PATH_MAX + 1];

	assert(server->base[0] && request->method);
	snprintf(url, sizeof url, "%s%s", server->base, request->path);
	curl_easy_setopt(exchange->easy, CURLOPT_URL, url);
	if (server->unix_path[0] != '\0')
		curl_easy_setopt(exchange->easy, CURLOPT_UNIX_SOCKET_PATH, server->unix_path);
	curl_easy_setopt(exchange->easy, CURLOPT_CUSTOMREQUEST, request->method);
	if (request->body)
		curl_easy_setopt(exchange->easy, CURLOPT_COPYPOSTFIELDS, request->body);
	curl_easy_setopt(exchange->easy, CURLOPT_WRITEFUNCTION, client_on_body);
	curl_easy_setopt(exchange->easy, CURLOPT_WRITEDATA, exchange);
	curl_easy_setopt(exchange->easy, CURLOPT_ERRORBUFFER, exchange->error);
}

static void client_set_sockets(struct client *client, struct client_exchange *exchange)
{
	curl_easy_setopt(exchange->easy, CURLOPT_SOCKOPTFUNCTION, client_on_open);
	curl_easy_setopt(exchange->easy, CURLOPT_SOCKOPTDATA, client);
	curl_easy_setopt(exchange->easy, CURLOPT_CLOSESOCKETFUNCTION, client_on_close);
	curl_easy_setopt(exchange->easy, CURLOPT_CLOSESOCKETDATA, client);
}

static void client_start(struct client *client, struct client_exchange *exchange, const struct server *server,
			 const struct client_request *request, uint64_t timeout_us)
{
	assert(!exchange->busy);
	curl_easy_reset(exchange->easy);
	client_set_bounds(exchange->easy, request, timeout_us);
	client_set_protocol(exchange->easy, server->is_tls);
	if (server->is_tls)
		client_set_tls(exchange->easy, client->credentials);
	client_set_headers(exchange, request, client->credentials->api_key);
	client_set_request(exchange, server, request);
	client_set_sockets(client, exchange);
	exchange->len = 0;
	exchange->status = 0;
	exchange->retry_after_ms = 0;
	exchange->error[0] = '\0';
	exchange->finished = false;
	exchange->busy = true;
	exchange->sent_us = clock_now_us();
	CURLMcode code = curl_multi_add_handle(client->multi, exchange->easy);
	assert(code == CURLM_OK);
}

void client_begin(struct client *client, const struct server *server, const struct client_request *request,
		  uint64_t timeout_us)
{
	client_start(client, &client->main, server, request, timeout_us);
}

void client_begin_side(struct client *client, const struct server *server, const struct client_request *request,
		       uint64_t timeout_us)
{
	client_start(client, &client->side, server, request, timeout_us);
}

/* ---- answers ---- */

/* For people. The message of libcurl names port 80 instead of a Unix socket. */
static void client_describe_failure(struct client_exchange *exchange, CURLcode result)
{
	long error = 0;

	if (result == CURLE_COULDNT_CONNECT &&
	    curl_easy_getinfo(exchange->easy, CURLINFO_OS_ERRNO, &error) == CURLE_OK && error != 0)
		snprintf(exchange->error, sizeof exchange->error, "cannot connect: %s", strerror((int)error));
	else if (exchange->error[0] == '\0')
		snprintf(exchange->error, sizeof exchange->error, "%s", curl_easy_strerror(result));
}

static void client_finish(struct client *client, struct client_exchange *exchange, CURLcode result)
{
	curl_off_t retry_after_s = 0;

	assert(exchange->busy && !exchange->finished);
	exchange->result = result;
	if (result == CURLE_OK) {
		curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &exchange->status);
		curl_easy_getinfo(exchange->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
	} else {
		client_describe_failure(exchange, result);
	}
	if (retry_after_s > 0 && retry_after_s <= RETRY_AFTER_MAX_S)
		exchange->retry_after_ms = (uint64_t)retry_after_s * 1000;
	curl_multi_remove_handle(client->multi, exchange->easy);
	exchange->busy = false;
	exchange->finished = true;
}

/* Runs libcurl without waiting. */
static void client_perform(struct client *client)
{
	int running, left;
	CURLMsg *message;

	curl_multi_perform(client->multi, &running);
	while ((message = curl_multi_info_read(client->multi, &left)))
		if (message->msg == CURLMSG_DONE)
			client_finish(client, message->easy_handle == client->main.easy ? &client->main : &client->side,
				      message->data.result);
}

/* The timer counts the sleep of a suspended machine; the time limit of curl_multi_poll() would not. */
static void client_arm(struct client *client, uint64_t until_us)
{
	struct itimerspec when = {0};

	if (until_us != UINT64_MAX) {
		when.it_value.tv_sec = (time_t)(until_us / 1000000);
		when.it_value.tv_nsec = (long)(until_us % 1000000 * 1000);
	}
	int failed = timerfd_settime(client->timer, TFD_TIMER_ABSTIME, &when, NULL);
	assert(!failed);
}

bool client_wait(struct client *client, uint64_t until_us, struct curl_waitfd *extra, unsigned count)
{
	struct curl_waitfd all[CLIENT_EXTRA_MAX + 1] = {{.fd = client->timer, .events = CURL_WAIT_POLLIN}};

	assert(count <= CLIENT_EXTRA_MAX);
	for (unsigned i = 0; i < count; i++)
		extra[i].revents = 0;
	client_perform(client);
	if (client->main.finished || client->side.finished)
		return client->main.finished;
	for (unsigned i = 0; i < count; i++)
		all[i + 1] = extra[i];
	client_arm(client, until_us);
	curl_multi_poll(client->multi, all, count + 1, POLL_MS, NULL);
	for (unsigned i = 0; i < count; i++)
		extra[i].revents = all[i + 1].revents;
	client_perform(client);
	return client->main.finished;
}

/* Failures that are not those of a server that is down. */
static void client_evaluate_failure(const struct client_exchange *exchange, struct answer *answer)
{
	char text[ANSWER_DETAIL_MAX];

	assert(exchange->status == 0);
	if (exchange->result == CURLE_PEER_FAILED_VERIFICATION) {
		snprintf(text, sizeof text, "its certificate is not trusted: %s", exchange->error);
		answer_set(answer, OUTCOME_UNTRUSTED, "untrusted", text);
	} else if (exchange->result == CURLE_SSL_CERTPROBLEM || exchange->result == CURLE_SSL_CACERT_BADFILE) {
		snprintf(text, sizeof text, "%s: %s",
			 exchange->result == CURLE_SSL_CERTPROBLEM ? "--cert, --key" : "--cacert", exchange->error);
		answer_set(answer, OUTCOME_INVALID, "invalid-file", text);
	}
}

static void client_read_exchange(struct client_exchange *exchange, struct answer *ret_answer)
{
	assert(exchange->finished);
	answer_read(ret_answer, exchange->status, exchange->body, exchange->len, exchange->error);
	if (exchange->status == 0)
		client_evaluate_failure(exchange, ret_answer);
	if (ret_answer->retry_after_ms == 0)
		ret_answer->retry_after_ms = exchange->retry_after_ms;
	exchange->finished = false;
}

void client_read(struct client *client, struct answer *ret_answer)
{
	assert(client->main.finished);
	client_read_exchange(&client->main, ret_answer);
}

bool client_read_side(struct client *client, struct answer *ret_answer)
{
	if (!client->side.finished)
		return false;
	client_read_exchange(&client->side, ret_answer);
	return true;
}

/* ---- the end ---- */

void client_cancel(struct client *client)
{
	client_end(client, &client->main);
}

void client_end_side(struct client *client)
{
	client_end(client, &client->side);
}

bool client_hang_up(struct client *client, uint64_t until_us)
{
	client_end_side(client);
	if (client->main.busy && client_shut_sockets(client))
		while (!client->main.finished && clock_now_us() < until_us)
			client_wait(client, until_us, NULL, 0);
	if (client->main.finished && client->main.status != 0)
		return true;
	client_cancel(client);
	return false;
}
