/* SPDX-License-Identifier: MIT */
/* Messages on the channel on which waiters are notified: see fuzz_reply.h. All of master_notification.c is built into
 * this file, for its static functions. */
#include "fuzz_reply.h"

/* clang-format off */
#include "server/masters/master_notification.c" /* all of it, for its static functions; first, as it is alone */
/* clang-format on */

#include "fuzz.h"

#define REPLICA "00000000000000ab"

struct heard {
	const redisReply *message;
	size_t prefix_len;
	unsigned notifications, missed;
};

static void hear_notification(void *arg, const struct masters_notification *told)
{
	struct heard *heard = arg;
	const char *text = heard->message->element[2]->str;
	size_t len = (size_t)heard->message->element[2]->len;
	const char *blank = memchr(text, ' ', len);
	char again[64];
	heard->notifications++;
	MUST(told->master == 1 && told->resource_len > 0, "%zu bytes", told->resource_len);
	MUST(told->resource == blank + 1 + heard->prefix_len && told->resource + told->resource_len == text + len,
	     "%zu bytes", told->resource_len);
	MUST(told->ours == (memcmp(text, REPLICA, sizeof REPLICA - 1) == 0), "ours: %d", told->ours);
	snprintf(again, sizeof again, "%c%016llu%c", told->kind == MASTER_EXCLUSIVE ? ':' : (char)told->kind,
		 (unsigned long long)told->arrival,
		 told->kind == MASTER_EXCLUSIVE ? ' '
		 : told->of_set                 ? ';'
						: ':');
	MUST(memcmp(text + sizeof REPLICA - 1, again, 18) == 0, "arrival %llu", (unsigned long long)told->arrival);
	MUST(!told->of_set || told->kind == MASTER_SHARED, "kind %d of a set", (int)told->kind);
	if (told->kind == MASTER_EXCLUSIVE)
		return;
	const char *most = text + sizeof REPLICA - 1 + 18;
	const char *more = memchr(most, told->kind == MASTER_SLOT ? '@' : '>', (size_t)(blank - most));
	MUST(strtoul(most, NULL, 10) == told->capacity && told->capacity > 0, "most: %u", told->capacity);
	MUST(told->has_free == (told->kind == MASTER_SLOT && more), "free: %d", told->has_free);
	MUST(!told->has_free || strtoul(more + 1, NULL, 10) == told->free, "free: %u", told->free);
	MUST(told->kind != MASTER_SHARED || told->last == (more ? strtoull(more + 1, NULL, 10) : 0), "last: %llu",
	     (unsigned long long)told->last);
}

static void hear_change(void *arg, const char *resource, size_t len)
{
	struct heard *heard = arg;
	const char *text = heard->message->element[2]->str;
	size_t head = sizeof "watch " - 1 + heard->prefix_len;
	heard->notifications++;
	MUST(len > 0 && resource == text + head && len == (size_t)heard->message->element[2]->len - head, "%zu bytes",
	     len);
}

static void hear_wanted(void *arg, uint8_t master, const char *resource, size_t len)
{
	struct heard *heard = arg;
	const char *text = heard->message->element[2]->str;
	size_t head = sizeof "wanted " - 1 + heard->prefix_len;
	heard->notifications++;
	MUST(master == 1 && len > 0 && resource == text + head, "%zu bytes", len);
}

static void hear_confirmed(void *arg, uint64_t key)
{
	struct heard *heard = arg;
	static const char head[] = "confirmed:";
	char text[sizeof head + 17];
	snprintf(text, sizeof text, "%s%016llx ", head, (unsigned long long)key);
	heard->notifications++;
	MUST(key != 0 && memcmp(heard->message->element[2]->str, text, strlen(text)) == 0, "another key");
}

static void hear_missed(void *arg)
{
	struct heard *heard = arg;
	heard->missed++;
}

void fuzz_check_message(const redisReply *reply, const char *key_prefix)
{
	static struct masters masters;
	static struct options options;
	struct master *master = &masters.list[1];
	struct heard heard = {.message = reply, .prefix_len = strlen(key_prefix)};
	snprintf(options.key_prefix, sizeof options.key_prefix, "%s", key_prefix);
	masters.options = &options;
	masters.prefix_len = heard.prefix_len;
	masters.has_waiters = true; /* the connection is kept */
	masters.notification_events = (struct masters_notification_events){.notified = hear_notification,
									   .changed = hear_change,
									   .wanted = hear_wanted,
									   .confirmed = hear_confirmed,
									   .missed = hear_missed,
									   .arg = &heard};
	memcpy(masters.replica, REPLICA, sizeof REPLICA);
	master->all = &masters;
	master->index = 1;
	on_message(master, reply);
	MUST(heard.notifications + heard.missed <= 1, "%u notifications, %u missed", heard.notifications, heard.missed);
	bool is_message = reply->type == REDIS_REPLY_ARRAY && reply->elements == 3;
	MUST(is_message || heard.notifications + heard.missed == 0, "a notification by something else");
}
