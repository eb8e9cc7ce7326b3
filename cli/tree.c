/* Finds descendants in /proc. See tree.h.
 *
 * Where the root is a subreaper all that it started stay below it, also those that forked twice and made a session of their own; only
 * what was started by somebody else on their behalf (a service manager, a container engine) is not there. */
#include "tree.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct process {
	pid_t pid, parent, group;
	char state;
	bool below;
};

struct tree {
	struct process *items;
	size_t count, room;
};

/* The name in parentheses may hold anything, also parentheses and spaces: what counts begins behind the last one. */
static bool process_parse(struct process *process, char *line)
{
	char *rest = strrchr(line, ')');
	int pid, parent, group;

	if (rest == NULL || sscanf(line, "%d", &pid) != 1 || sscanf(rest + 1, " %c %d %d", &process->state, &parent, &group) != 3)
		return false;
	process->pid = pid;
	process->parent = parent;
	process->group = group;
	process->below = false;
	return true;
}

static bool process_read(struct process *process, const char *pid)
{
	char path[64], line[512];

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return false;
	bool read = fgets(line, sizeof(line), file) != NULL && process_parse(process, line);
	fclose(file);
	return read;
}

static void tree_add(struct tree *tree, const char *pid)
{
	struct process process;

	if (!process_read(&process, pid))
		return;
	if (tree->count == tree->room) {
		size_t room = tree->room == 0 ? 256 : tree->room * 2;
		struct process *items = realloc(tree->items, room * sizeof(*items));
		if (items == NULL)
			return;
		tree->items = items;
		tree->room = room;
	}
	tree->items[tree->count++] = process;
}

static void tree_read(struct tree *tree)
{
	DIR *all = opendir("/proc");
	struct dirent *entry;

	if (all == NULL)
		return;
	while ((entry = readdir(all)) != NULL)
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			tree_add(tree, entry->d_name);
	closedir(all);
}

static int compare_pids(const void *a, const void *b)
{
	const struct process *left = a, *right = b;
	return (left->pid > right->pid) - (left->pid < right->pid);
}

static bool tree_has(const struct tree *tree, pid_t pid)
{
	struct process wanted = {.pid = pid};
	const struct process *found = bsearch(&wanted, tree->items, tree->count, sizeof(wanted), compare_pids);
	return found != NULL && found->below;
}

/* Marks level by level, until nothing is new. */
static void tree_mark(struct tree *tree, pid_t root)
{
	if (tree->count > 0)
		qsort(tree->items, tree->count, sizeof(*tree->items), compare_pids);
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < tree->count; i++) {
			struct process *process = &tree->items[i];
			if (!process->below && process->pid != root && (process->parent == root || tree_has(tree, process->parent)))
				process->below = more = true;
		}
	}
}

unsigned tree_signal(pid_t root, pid_t spared, int signal_number)
{
	struct tree tree = {.items = NULL};
	unsigned count = 0;

	tree_read(&tree);
	tree_mark(&tree, root);
	for (size_t i = 0; i < tree.count; i++) {
		const struct process *process = &tree.items[i];
		if (process->below && process->state != 'Z' && process->state != 'X' && (spared == 0 || process->group != spared))
			count += kill(process->pid, signal_number) == 0;
	}
	free(tree.items);
	return count;
}
