/* SPDX-License-Identifier: MIT */
/* Stands for libFuzzer's main(): runs a fuzz target once over every file of the folders that are named, without clang
 * (README.md).
 *
 * Each input is copied into memory of exactly its size, so that a sanitizer sees a byte too many. The path of each is
 * written before it is run: where the target ends the program, the last line names the input. Without any input the
 * program fails. */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

static void run_file(const char *path)
{
	struct stat found;
	FILE *file = fopen(path, "rb");
	MUST(file != NULL && fstat(fileno(file), &found) == 0 && S_ISREG(found.st_mode),
	     "%s is no file that can be read", path);
	size_t size = (size_t)found.st_size;
	uint8_t *bytes = malloc(size > 0 ? size : 1);
	MUST(bytes != NULL && fread(bytes, 1, size, file) == size, "%s cannot be read", path);
	fclose(file);
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(bytes, size);
	free(bytes);
}

static int is_input(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Returns how many inputs there were. */
static int run_folder(const char *folder)
{
	struct dirent **entries;
	int count = scandir(folder, &entries, is_input, alphasort);
	MUST(count >= 0, "%s cannot be read", folder);
	for (int i = 0; i < count; i++) {
		char path[4096];
		MUST(snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name) < (int)sizeof path,
		     "%s: path too long", folder);
		run_file(path);
		free(entries[i]);
	}
	free(entries);
	return count;
}

int main(int argc, char **argv)
{
	int count = 0;
	if (LLVMFuzzerInitialize != NULL)
		LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 1; i < argc; i++)
		count += run_folder(argv[i]);
	fprintf(stderr, "%d inputs\n", count);
	return count > 0 ? 0 : 1;
}
