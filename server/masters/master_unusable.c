/* --bootstrap, where a minority of the masters answers but cannot be used: a wrong password, a replica, a hash of
 * another type. The operator says that the cluster is new, so the others begin without it, unless its hash shows an
 * epoch: then the cluster is not new. Where redlockd may not even look, the operator's word counts. A master that does
 * not answer may have an epoch, and is waited for (guard.c).
 *
 * The hash is read without a script, since a replica and a server that is too old refuse those. The worker's thread. */
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

/* What only an operator can mend. All other errors come and go, and what the server remembers is there all the
 * while. */
static bool is_lasting(enum master_error error)
{
	return error == MASTER_ERROR_AUTH || error == MASTER_ERROR_COMMAND;
}

static void tell(struct master *master)
{
	if (!master->all->guard.bootstrap_open)
		return;
	master_guard_tell(master, GUARD_UNUSABLE);
	if (!master->left_out) {
		log_begin(LOG_WARN, "bootstrap-without");
		log_text("master", master->address->shown);
		log_end();
	}
	master->left_out = true;
	master_guard_pump(master->all);
}

void master_unusable_refused(struct master *master, enum master_error error)
{
	if (is_lasting(error))
		tell(master);
}

static void on_looked(void *arg, const struct redisReply *reply)
{
	struct master *master = arg;
	if (!reply || master->link != LINK_UP)
		return;
	if (reply->type == REDIS_REPLY_ERROR) {
		bool other_type = strncmp(reply->str, "WRONGTYPE", 9) == 0;
		master_unusable_refused(master, other_type ? MASTER_ERROR_COMMAND
							   : master_error_classify(reply->str, (size_t)reply->len));
		return;
	}
	bool empty = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		     reply->element[0]->type == REDIS_REPLY_NIL && reply->element[1]->type == REDIS_REPLY_NIL;
	if (empty)
		tell(master);
}

void master_unusable_look(struct master *master)
{
	const char *look[] = {"HMGET", master->all->hash_key, "epoch", "cluster"};
	if (master->all->guard.bootstrap_open)
		(void)master_command(master, on_looked, 4, look);
}
