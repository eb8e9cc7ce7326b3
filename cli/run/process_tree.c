/* Signals to all descendants, found in /proc. See process_tree.h.
 *
 * If the caller is a subreaper, all that it started stays below it, also processes that forked twice and made a session
 * of their own, but not what a service manager or a container engine started for them.
 *
 * A pid from /proc may belong to another process a moment later. So a signal goes through a pidfd, after /proc was read
 * again with the pidfd open and still shows the same process (parent and start time) in the tree; if it ended meanwhile
 * the signal reaches nobody. Without pidfds (before Linux 5.3, or with a filter of system calls) only children of the
 * caller are signalled: their pids are free only after the caller has waited for them, and their children become its
 * children. */
#include "process_tree.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { STAT_MAX = 1024 };

struct process {
	pid_t pid, parent, group;
	unsigned long long started; /* clock ticks since the machine was started */
	bool below;
};

struct tree {
	struct process *items; /* ordered by pid */
	size_t count, room;
};

/* The name in parentheses may hold parentheses, blanks and line feeds: the other fields follow the last parenthesis. */
static bool process_parse(struct process *process, const char *text)
{
	const char *rest = strrchr(text, ')');
	int pid, parent, group;

	assert(text);
	if (!rest || sscanf(text, "%d", &pid) != 1 ||
	    sscanf(rest + 1, " %*c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &parent,
		   &group, &process->started) != 3)
		return false;
	process->pid = pid;
	process->parent = parent;
	process->group = group;
	process->below = false;
	return true;
}

static bool process_read(struct process *process, const char *pid)
{
	char path[64], text[STAT_MAX];

	snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	ssize_t len = read(file, text, sizeof text - 1); /* whole, or not at all */
	close(file);
	if (len <= 0)
		return false;
	text[len] = '\0';
	return process_parse(process, text);
}

static void process_tree_add(struct tree *tree, const char *pid)
{
	struct process process;

	assert(tree->count <= tree->room);
	if (!process_read(&process, pid))
		return;
	if (tree->count == tree->room) {
		size_t room = tree->room == 0 ? 256 : tree->room * 2;
		struct process *items = realloc(tree->items, room * sizeof *items);
		if (!items)
			return;
		tree->items = items;
		tree->room = room;
	}
	tree->items[tree->count++] = process;
}

static int compare_pids(const void *a, const void *b)
{
	const struct process *left = a, *right = b;
	return (left->pid > right->pid) - (left->pid < right->pid);
}

static bool process_tree_has(const struct tree *tree, pid_t pid)
{
	struct process wanted = {.pid = pid};
	const struct process *found = bsearch(&wanted, tree->items, tree->count, sizeof wanted, compare_pids);
	return found && found->below;
}

/* Marks level by level, until there are no more. */
static void process_tree_mark(struct tree *tree, pid_t root)
{
	assert(root > 0);
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < tree->count; i++) {
			struct process *process = &tree->items[i];
			if (!process->below && process->pid != root &&
			    (process->parent == root || process_tree_has(tree, process->parent)))
				process->below = more = true;
		}
	}
}

static struct tree process_tree_read(pid_t root)
{
	struct tree tree = {0};
	DIR *all = opendir("/proc");
	struct dirent *entry;

	if (!all)
		return tree;
	while ((entry = readdir(all)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			process_tree_add(&tree, entry->d_name);
	closedir(all);
	if (tree.count > 0)
		qsort(tree.items, tree.count, sizeof *tree.items, compare_pids);
	process_tree_mark(&tree, root);
	return tree;
}

/* Reads the process again: is it still the one in the tree? */
static bool process_is_same(const struct tree *tree, const struct process *process, pid_t root)
{
	struct process now;
	char pid[16];

	snprintf(pid, sizeof pid, "%d", (int)process->pid);
	return process_read(&now, pid) && now.started == process->started &&
	       (now.parent == root || process_tree_has(tree, now.parent));
}

static bool process_signal(const struct tree *tree, const struct process *process, pid_t root, int signal_number)
{
	int file = pidfd_open(process->pid, 0);

	assert(process->pid > 1 && signal_number > 0);
	if (file < 0)
		return errno != ESRCH && process->parent == getpid() && kill(process->pid, signal_number) == 0;
	bool sent = process_is_same(tree, process, root) && pidfd_send_signal(file, signal_number, NULL, 0) == 0;
	close(file);
	return sent;
}

unsigned process_tree_signal(pid_t root, pid_t spared, int signal_number)
{
	struct tree tree = process_tree_read(root);
	unsigned count = 0;

	assert(root > 0 && spared >= 0 && signal_number > 0);
	for (size_t i = 0; i < tree.count; i++) {
		const struct process *process = &tree.items[i];
		if (process->below && (spared == 0 || process->group != spared))
			count += process_signal(&tree, process, root, signal_number);
	}
	free(tree.items);
	return count;
}
