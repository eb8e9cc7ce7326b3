/* Acquisitions that go to a master in one round of the loop leave as one command: acquire.lua takes any number of them.
 * Pure: joins bytes, knows nothing of connections. At most MASTER_BATCH_MAX acquisitions and MASTER_BATCH_HALF bytes of
 * keys and of arguments. */
#include <assert.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum { WORDS_BEFORE_KEY = 3 /* EVALSHA, the script's name, how many keys */, WORDS_BEFORE_ARGUMENTS = 5 };

bool master_batch_suits(const char *command)
{
	const char *words = strchr(command, '\n');
	return words && words[1] == '$' && words[2] == '7'; /* EVALSHA */
}

/* Returns what follows the word "$len\r\n…\r\n", in bytes that lease_command_format() has written. */
static const char *skip_word(const char *at)
{
	size_t len = 0;
	assert(*at == '$');
	for (at++; *at != '\r'; at++)
		len = len * 10 + (size_t)(*at - '0');
	return at + 2 + len + 2;
}

static const char *skip_words(const char *at, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		at = skip_word(at);
	return at;
}

bool master_batch_add(struct master_batch *batch, const char *command, size_t len)
{
	const char *words = memchr(command, '\n', len);
	assert(words);
	const char *key = skip_words(words + 1, WORDS_BEFORE_KEY), *hash = skip_word(key), *arguments = skip_word(hash);
	size_t key_len = (size_t)(hash - key), arguments_len = (size_t)(command + len - arguments);
	if (batch->count >= MASTER_BATCH_MAX || key_len > sizeof batch->keys - batch->keys_len ||
	    arguments_len > sizeof batch->arguments - batch->arguments_len)
		return false;
	memcpy(batch->keys + batch->keys_len, key, key_len);
	memcpy(batch->arguments + batch->arguments_len, arguments, arguments_len);
	batch->keys_len += key_len;
	batch->arguments_len += arguments_len;
	batch->count++;
	return true;
}

/* A command as it grows. */
struct command {
	char *bytes;
	size_t len;
};

static void put(struct command *command, const char *bytes, size_t len)
{
	assert(command->len + len <= MASTER_BATCH_BYTES);
	memcpy(command->bytes + command->len, bytes, len);
	command->len += len;
}

static void put_number(struct command *command, char kind, size_t number)
{
	command->bytes[command->len++] = kind;
	command->len += text_decimal(number, command->bytes + command->len);
	put(command, "\r\n", 2);
}

static void put_word(struct command *command, const char *word, size_t len)
{
	put_number(command, '$', len);
	put(command, word, len);
	put(command, "\r\n", 2);
}

size_t master_batch_take(struct master_batch *batch, const char *hash_key, char ret_command[MASTER_BATCH_BYTES])
{
	size_t keys = batch->count + 1U;
	struct command command = {.bytes = ret_command};
	char digits[TEXT_DECIMAL_MAX];
	assert(batch->count > 0);
	put_number(&command, '*', WORDS_BEFORE_KEY + keys + batch->count * (size_t)MASTER_ACQUIRE_ARGUMENTS);
	put_word(&command, "EVALSHA", 7);
	put_word(&command, scripts[REDLOCK_SCRIPT_ACQUIRE].sha1, 40);
	put_word(&command, digits, text_decimal(keys, digits));
	put(&command, batch->keys, batch->keys_len);
	put_word(&command, hash_key, strlen(hash_key));
	put(&command, batch->arguments, batch->arguments_len);
	batch->count = 0;
	batch->keys_len = batch->arguments_len = 0;
	assert(command.len <= MASTER_BATCH_BYTES);
	return command.len;
}
