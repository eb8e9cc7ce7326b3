/* Words on the channel on which waiters are called: see fuzz_reply.h. All of master_line.c is built into this file, for
 * its static functions. */
#include "fuzz_reply.h"

/* clang-format off */
#include "server/masters/master_notification.c" /* all of it, for its static functions; first, as it is alone */
/* clang-format on */

#include "fuzz.h"

#define REPLICA "00000000000000ab"

struct heard {
	const redisReply *word;
	size_t prefix_len;
	unsigned calls, missed_notifications;
};

static void hear_notification(void *arg, const struct queue_notification *call)
{
	struct heard *heard = arg;
	const char *text = heard->word->element[2]->str;
	size_t len = (size_t)heard->word->element[2]->len, head = sizeof REPLICA - 1 + 1 + 16 + 1 + heard->prefix_len;
	char again[64];
	heard->calls++;
	MUST(call->master == 1 && call->resource_len > 0, "%zu bytes", call->resource_len);
	MUST(call->resource == text + head && call->resource_len == len - head, "%zu bytes", call->resource_len);
	MUST(call->ours == (memcmp(text, REPLICA, sizeof REPLICA - 1) == 0), "ours: %d", call->ours);
	snprintf(again, sizeof again, ":%016llu ", (unsigned long long)call->arrival);
	MUST(memcmp(text + sizeof REPLICA - 1, again, 18) == 0, "arrival %llu", (unsigned long long)call->arrival);
}

static void hear_missed_notification(void *arg)
{
	struct heard *heard = arg;
	heard->missed_notifications++;
}

void fuzz_check_word(const redisReply *reply, const char *key_prefix)
{
	static struct masters masters;
	static struct options options;
	struct master *master = &masters.list[1];
	struct heard heard = {.word = reply, .prefix_len = strlen(key_prefix)};
	redisAsyncContext context = {.data = master};
	snprintf(options.key_prefix, sizeof options.key_prefix, "%s", key_prefix);
	masters.options = &options;
	masters.queue_open = true; /* somebody waits: the connection stays */
	masters.queue_events = (struct queue_events){
		.called = hear_notification, .missed = hear_missed_notification, .arg = &heard};
	memcpy(masters.replica, REPLICA, sizeof REPLICA);
	master->all = &masters;
	master->index = 1;
	master->line.context = &context;
	on_word(&context, (void *)(uintptr_t)reply, NULL);
	master->line.context = NULL;
	MUST(heard.calls + heard.missed_notifications <= 1, "%u calls, %u missed_notifications", heard.calls,
	     heard.missed_notifications);
	bool is_word = reply->type == REDIS_REPLY_ARRAY && reply->elements == 3;
	MUST(is_word || heard.calls + heard.missed_notifications == 0, "a call by something else");
}
