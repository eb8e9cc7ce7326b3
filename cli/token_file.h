/* Tokens in files. No message of these functions holds a part of a token. */
#ifndef TOKEN_FILE_H
#define TOKEN_FILE_H

#include "cli/base/cli_base.h"

/* Reads the token from `path` ("-": stdin); white space around it is allowed. NULL, or the reason why there is none. */
const char *token_file_read(const char *path, char ret_token[ARGUMENTS_TOKEN_LEN + 1])
	__attribute__((warn_unused_result));

/* Opens the file for token_file_write(), readable for its owner alone; what was in it stays until then. -1 and errno if
 * not. */
int token_file_open(const char *path) __attribute__((warn_unused_result));

/* Replaces what is in it, and closes it. False: errno says why. */
bool token_file_write(int file, const char *token) __attribute__((warn_unused_result));

#endif
