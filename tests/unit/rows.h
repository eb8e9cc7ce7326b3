/* SPDX-License-Identifier: MIT */
/* Tables of cases in a file, one a line: what is given => what is said. The words that are given stand between blanks;
 * \s is a blank, \n \r \t \\ \xNN are as in C, and '' is an empty word. In what is said, … stands for anything. Lines
 * that begin with # are comments. */
#ifndef ROWS_H
#define ROWS_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replaces the escapes of a word in place. */
static inline char *rows_decode(char *word)
{
	char *to = word;
	if (strcmp(word, "''") == 0)
		*word = '\0';
	for (const char *at = word; *at; at++) {
		const char *plain = "n\nr\rt\ts \\\\";
		if (*at != '\\') {
			*to++ = *at;
		} else if (*++at == 'x') {
			*to++ = (char)strtoul((char[]){at[1], at[2], '\0'}, NULL, 16);
			at += 2;
		} else {
			ck_assert_msg(strchr(plain, *at) != NULL, "%s", word);
			*to++ = strchr(plain, *at)[1];
		}
	}
	*to = '\0';
	return word;
}

/* Whether it is the text that the table wants. */
static inline bool rows_match(const char *text, const char *wanted)
{
	const char *gap = strstr(wanted, "…");
	if (!gap)
		return strcmp(text, wanted) == 0;
	size_t len = (size_t)(gap - wanted);
	if (strncmp(text, wanted, len) != 0)
		return false;
	for (text += len, wanted = gap + strlen("…"); !rows_match(text, wanted); text++)
		if (!*text)
			return false;
	return true;
}

/* Calls `check` with each line, a copy of what it gives, and what it wants. Returns how many there are. */
static inline unsigned rows_check(const char *path, void (*check)(const char *line, char *given, const char *wanted))
{
	char line[2000], given[2000];
	unsigned count = 0;
	FILE *file = fopen(path, "re");
	ck_assert_msg(file != NULL, "%s", path);
	while (fgets(line, sizeof line, file)) {
		char *arrow = strstr(line, " => ");
		line[strcspn(line, "\n")] = '\0';
		if (*line == '#' || !arrow)
			continue;
		snprintf(given, sizeof given, "%.*s", (int)(arrow - line), line);
		check(line, given, arrow + 4);
		count++;
	}
	fclose(file);
	return count;
}

#endif
