/* SPDX-License-Identifier: MIT */
/* Fuzz target: the whole HTTP side, with the real libmicrohttpd and real sockets, over a stand-in for leases.
 *
 * The input is what clients send, and between it, after a tilde, what happens. A line feed is sent as CR LF, so that a
 * seed reads like a request.
 *
 * When the input is over all operations are answered and all clients leave; then nothing may be left of any of it:
 * connections, operations, holds, descriptors. One api serves all executions. The time is a counter. */
#include "fuzz_http.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/calls/calls.h"
#include "api/calls/calls_internal.h"
#include "api/http/http.h"
#include "api/http/http_internal.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"

/* The signs:
 *
 *     ~.           what was written so far is sent, and the loop runs until nothing is left to do
 *     ~|           the same, one round
 *     ~n ~r ~0 ~~  a bare LF, a bare CR, a NUL, a tilde
 *     ~LF          nothing: a line is broken without being sent as one
 *     ~)N;         what was written since ~(, or the last byte, N times more
 *     ~1 … ~4      the client that goes on (a closed one connects anew)
 *     ~T ~D ~E     it connects by TCP; … and reads nothing; it reads from now on
 *     ~C ~R ~H     it closes; it resets; it closes its side
 *     ~Ax          the operation that waits longest is answered, x says how
 *     ~Ux ~Wx      something happens to the held leases; time passes
 *     ~S           the service drains
 *     ~K           keys are asked for from now on, then others
 *     ~X           the api ends and a new one begins
 *     ~P           somebody else asks for /healthz and must be answered
 */

enum { TEXT_MAX = 1 << 16, OPS_OF_AN_INPUT = 300, ROUNDS_MAX = 40, HOUR_MS = 3600000 };

/* The files of keys that follow one another: with the key fuzz-key-0123456789, without it, and with it for other
 * resources. */
enum { KEY_FILES = 3 };
#define KEY_FILE(sha256, prefix)                                                         \
	"{\"keys\":[{\"name\":\"one\",\"sha256\":\"" sha256 "\",\"prefixes\":[\"" prefix \
	"\"],\"rights\":[\"acquire\",\"inspect\",\"list\",\"admin\"],\"max_waiting\":1}]}"
static const char *const key_files[KEY_FILES] = {
	KEY_FILE("c909b0944eac32e3fd8baaa345bedcda2891bfa1eb459cb0be85272c3bdf15b5", "a"),
	KEY_FILE("0000000000000000000000000000000000000000000000000000000000000001", "a"),
	KEY_FILE("c909b0944eac32e3fd8baaa345bedcda2891bfa1eb459cb0be85272c3bdf15b5", "b")};

static struct api *api;
static struct api_config config;
static struct options options;
static struct keys *keys[KEY_FILES];
static unsigned key_file; /* the next one */
static struct client clients[CLIENTS], other;
static bool tells; /* FUZZ_STORY: what each client was sent */

/* The text of the clients until it is sent. */
static struct {
	char bytes[TEXT_MAX];
	size_t len;
	size_t mark; /* where what is repeated begins; SIZE_MAX: with the last byte */
} said;

/* ---- the time ---- */

static uint64_t time_us = UINT64_C(1000000000);

int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

/* The linker puts it in the place of clock_gettime() in all of ours (--wrap). */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	if (clock != CLOCK_BOOTTIME)
		return __real_clock_gettime(clock, ret_time);
	*ret_time = (struct timespec){.tv_sec = (time_t)(time_us / 1000000),
				      .tv_nsec = (long)(time_us % 1000000) * 1000};
	return 0;
}

/* ---- mutations, in the copy that must fail ---- */

#ifdef FUZZ_MUTATED
static int mutation;

void __real_request_end(struct request *request, enum MHD_RequestTerminationCode how);
void __wrap_request_end(struct request *request, enum MHD_RequestTerminationCode how);
void __real_headers_read(struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
			 size_t target_len, struct headers *headers);
void __wrap_headers_read(struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
			 size_t target_len, struct headers *headers);

/* 0: the end of a connection does not end what it holds; 1: a grant that cannot be written is forgotten. */
void __wrap_request_end(struct request *request, enum MHD_RequestTerminationCode how)
{
	struct call *call = request->call;
	if (mutation == 0 && request->state != REQUEST_NONE)
		call->stream = NULL;
	if (mutation == 1 && request->state != REQUEST_NONE)
		request->reply.grants = false;
	__real_request_end(request, how);
}

/* 2: the length of a body is forgotten. */
void __wrap_headers_read(struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
			 size_t target_len, struct headers *headers)
{
	__real_headers_read(mhd, url, method, version, target_len, headers);
	if (mutation == 2)
		headers->content_length = 0;
}
#endif

/* ---- the world ---- */

static bool trouble_is_due(void)
{
	return leases.troubled || leases.draining;
}

static void turn(void)
{
	api_check_disconnects(api);
	api_run(api);
	for (size_t i = 0; i < CLIENTS; i++)
		client_read(&clients[i]);
}

static void settle(void)
{
	for (int i = 0; i < ROUNDS_MAX; i++) {
		turn();
		if (api_timeout_ms(api) != 0)
			return;
	}
}

/* The answers to one client are well-formed, and show no lease that it must not have. */
static void check_client(const struct client *client)
{
	if (client->served < 0)
		return;
	client->text[client->len] = '\0';
	if (tells)
		fprintf(stderr, "client on %d was sent:\n%s\n", client->served, client->text);
	if (client->len < ANSWERS_MAX)
		answers_check(client->text, client->len, trouble_is_due());
	for (size_t i = 0; i < leases.grant_count; i++) {
		struct grant *grant = &leases.grants[i];
		if (grant->fd != client->served)
			continue;
		grant->fd = -1; /* not that of a later connection with the same number */
		/* It was either written, or given back. By TCP, or where something was not read, what was written need
		 * not have been seen. */
		bool seen = answers_hold_token(client->text, client->len, (int)i);
		MUST(grant->held || client->lossy || client->tcp || seen != grant->given_back, "grant %zu: %s", i,
		     seen ? "written, and given back" : "neither written nor given back");
	}
}

static struct client *use(size_t i)
{
	if (clients[i].fd < 0) {
		if (clients[i].served >= 0) { /* the one before is over */
			settle();
			check_client(&clients[i]);
		}
		client_open(api, &clients[i]);
	}
	return &clients[i];
}

static void say(const char *bytes, size_t len)
{
	if (len > TEXT_MAX - said.len)
		len = TEXT_MAX - said.len;
	memcpy(said.bytes + said.len, bytes, len);
	said.len += len;
}

static void say_again(size_t times)
{
	size_t from = said.mark < said.len ? said.mark : said.len - (said.len > 0), len = said.len - from;
	for (size_t i = 0; i < times && len > 0 && said.len < TEXT_MAX; i++)
		say(said.bytes + from, len);
	said.mark = SIZE_MAX;
}

static void send_said(size_t client)
{
	client_send(use(client), said.bytes, said.len);
	said.len = 0;
	said.mark = SIZE_MAX;
}

/* ---- what happens ---- */

static void pass_time(uint8_t choice)
{
	static const uint64_t ms[] = {1, 20, 100, 1000, 2500, 10000, 30000, 60000};
	time_us += ms[choice % 8] * 1000;
	settle();
}

/* Its daemons start here, and not with an input's first connection: descriptors are counted. */
static void begin_api(void)
{
	api = api_new(&config);
	MUST(api != NULL, "no api: %s", strerror(errno));
	MUST(daemon_pool_choose(api, DAEMON_UNIX)->kind == DAEMON_UNIX, "no daemon for Unix sockets");
}

static void end_api(void)
{
	leases.draining = true;
	api_free(api);
	for (size_t i = 0; i < CLIENTS; i++) {
		client_read(&clients[i]);
		clients[i].lossy = true; /* the last ones get no answer */
	}
	MUST(leases.under_way == 0, "%zu operations after the end", leases.under_way);
	begin_api();
	leases.draining = false;
	leases.troubled = true; /* its last answers */
}

static void probe(void)
{
	static const char healthz[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	client_open(api, &other);
	client_send(&other, healthz, sizeof healthz - 1);
	for (int i = 0; i < ROUNDS_MAX && (other.len == 0 || api_timeout_ms(api) == 0); i++) {
		turn();
		client_read(&other);
	}
	other.text[other.len] = '\0';
	MUST(strncmp(other.text, "HTTP/1.1 200 ", 13) == 0 || strncmp(other.text, "HTTP/1.1 429 ", 13) == 0,
	     "no answer to somebody else: %.100s", other.text);
	client_close(&other, true);
	settle();
}

static size_t number(struct feed *feed)
{
	size_t value = 0;
	while (feed->left > 0 && *feed->at >= '0' && *feed->at <= '9')
		value = value * 10 % TEXT_MAX + (size_t)(feed_u8(feed) - '0');
	if (feed->left > 0 && *feed->at == ';')
		feed_u8(feed);
	return value;
}

/* An op that concerns one client. */
static void happen_to(struct client *client, uint8_t op)
{
	switch (op) {
	case 'T': client->tcp = client->fd < 0 || client->tcp; break;
	case 'D': client->deaf = client->lossy = true; break;
	case 'E': client->deaf = false; break;
	case 'H': shutdown(client->fd, SHUT_WR); break;
	default: client_close(client, op == 'R');
	}
}

static void happen(struct feed *feed, uint8_t op)
{
	switch (op) {
	case 'A': leases_answer_one(feed_u8(feed)); break;
	case 'U': leases_tell_holds(feed_u8(feed)); break;
	case 'W': pass_time(feed_u8(feed)); break;
	case 'S':
		leases.draining = true;
		api_drain(api);
		break;
	case 'K': api_set_keys(api, keys[key_file++ % KEY_FILES]); break;
	case 'X': end_api(); break;
	case 'P': probe(); break;
	default: break;
	}
}

static void escape(struct feed *feed, size_t *client)
{
	uint8_t op = feed_u8(feed);
	switch (op) {
	case 'n': say("\n", 1); break;
	case 'r': say("\r", 1); break;
	case '0': say("\0", 1); break;
	case '~': say("~", 1); break;
	case '(': said.mark = said.len; break;
	case ')': say_again(number(feed)); break;
	case '1' ... '4':
		if (said.len > 0)
			send_said(*client);
		*client = (size_t)(op - '1');
		break;
	case '|':
		send_said(*client);
		turn();
		break;
	case '.':
		send_said(*client);
		settle();
		break;
	case 'T':
	case 'D':
	case 'E':
	case 'H':
	case 'C':
	case 'R':
		if (said.len > 0)
			send_said(*client);
		happen_to(&clients[*client], op);
		break;
	default: happen(feed, op);
	}
}

static void play(struct feed *feed)
{
	size_t client = 0, ops = 0;
	while (feed->left > 0) {
		uint8_t byte = feed_u8(feed);
		if (byte == '\n')
			say("\r\n", 2);
		else if (byte != '~')
			say((const char *)&byte, 1);
		else if (++ops <= OPS_OF_AN_INPUT)
			escape(feed, &client);
		else
			break;
	}
	if (said.len > 0)
		send_said(client);
	settle();
}

/* ---- the end of an input ---- */

static void finish(void)
{
	for (int i = 0; i < ROUNDS_MAX && leases.under_way > 0; i++) {
		while (leases_answer_one(0))
			;
		settle();
	}
	for (size_t i = 0; i < CLIENTS; i++)
		client_close(&clients[i], clients[i].tcp);
	settle();
	/* The library may not see the end of a TCP connection that comes right behind bytes: its deadline ends it. */
	for (int i = 0; i < ROUNDS_MAX && (i < 2 || api->connections > 0 || leases.under_way > 0); i++) {
		while (leases_answer_one(0))
			;
		time_us += (uint64_t)(options.idle_timeout_ms + options.request_timeout_ms) * 1000;
		settle();
	}
}

static int lowest_descriptor(void)
{
	int fd = dup(STDERR_FILENO);
	close(fd);
	return fd;
}

static void check_nothing_left(void)
{
	MUST(api->connections == 0 && api->deferred_count == 0, "%zu connections are left, %zu rest", api->connections,
	     api->deferred_count);
	MUST(api->lingering_count == 0 && !api->arriving, "%zu sockets linger", api->lingering_count);
	MUST(api_busy(api) == 0, "%zu requests are left", api_busy(api));
	leases_check_end();
	for (size_t i = 0; i < CLIENTS; i++)
		check_client(&clients[i]);
	for (size_t i = 0; i < KEY_FILES; i++)
		MUST(keys[i]->keys[0].usage->waiting == 0, "%u requests of the key wait",
		     keys[i]->keys[0].usage->waiting);
}

static void begin_again(void)
{
	memset(leases.grants, 0, leases.grant_count * sizeof leases.grants[0]);
	leases.grant_count = 0;
	leases.draining = leases.troubled = false;
	api->context.draining = false;
	api_set_keys(api, NULL);
	key_file = 0;
	time_us += UINT64_C(1000) * HOUR_MS; /* rates, and all else that has a memory */
	for (size_t i = 0; i < CLIENTS; i++) {
		char *text = clients[i].text;
		clients[i] = (struct client){.fd = -1, .served = -1, .text = text};
	}
	other.len = 0;
	other.deaf = other.lossy = other.tcp = false;
	said.len = 0;
	said.mark = SIZE_MAX;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char *const addresses[] = {"127.0.0.1:6379", "127.0.0.1:6380", "127.0.0.1:6381"};
	char message[KEYS_MESSAGE_MAX];
	(void)argc;
	(void)argv;
#ifdef FUZZ_MUTATED
	mutation = getenv("FUZZ_MUTATION") != NULL ? atoi(getenv("FUZZ_MUTATION")) : 0;
#endif
	tells = getenv("FUZZ_STORY") != NULL;
	config = (struct api_config){
		.service = calls_service(), .leases = &leases, .options = &options, .max_connections = CLIENTS - 1};
	options = (struct options){.default_ttl_ms = 30000,
				   .min_ttl_ms = 100,
				   .max_ttl_ms = 60000,
				   .max_wait_ms = 60000,
				   .request_timeout_ms = 10000,
				   .idle_timeout_ms = 60000,
				   .max_requests_per_connection = 8};
	log_setup(LOG_ERROR, LOG_LOGFMT);
	metrics_init(1, 3, addresses);
	stats_init(0);
	config.metrics = metrics_worker(0);
	for (size_t i = 0; i < KEY_FILES; i++) {
		keys[i] = keys_parse(key_files[i], strlen(key_files[i]), message, sizeof message);
		MUST(keys[i] != NULL, "%s", message);
	}
	for (size_t i = 0; i < CLIENTS; i++)
		clients[i].text = malloc(ANSWERS_MAX + 1);
	other.text = malloc(ANSWERS_MAX + 1);
	begin_api();
	begin_again();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct feed feed = {data, size};
	int lowest = lowest_descriptor();
	play(&feed);
	finish();
	check_nothing_left();
	MUST(lowest_descriptor() == lowest, "descriptor %d is left", lowest);
	begin_again();
	return 0;
}
