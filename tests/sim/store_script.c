/* SPDX-License-Identifier: MIT */
/* Scripts and replies: Lua as Redis runs it, over a store. LuaJIT has the language of Redis's Lua 5.1, and is faster
 * though its compiler is off, which cannot work with memory that is restored. There is one state of Lua for the
 * program: scripts keep nothing between calls. See store.h. */
#include <assert.h>
#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>
#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/base/base.h"
#include "server/scripts/scripts.h"
#include "store_internal.h"

enum { ARGS_MAX = 8000, LIST_MIN = 64, HEAP_STEP = 16, HEAP_SIZE = 1 << 28, GARBAGE_MAX = 1 << 20, REPLY_SIZE = 512 };

/* KEYS or ARGV: one table for all calls. */
struct list {
	const char *name;
	int reference;
	size_t count;
};

static lua_State *lua;
static struct store *current; /* that of the script that runs */
static struct list keys_list = {.name = "KEYS"}, argv_list = {.name = "ARGV"};
static int functions[SCRIPTS_COUNT], ok_reference;
static bool is_error; /* the last reply of a command */

/* ---- memory ---- */

/* Lua's memory: new blocks lie behind all others, and none is given back. Where scripts have left so much that it
 * matters, everything becomes again as it was when the scripts had been loaded: no garbage is ever looked for, which
 * would take a third of their time. */
static struct {
	char *bytes, *image;
	size_t used, image_len;
} heap;

static void *resize(void *arg, void *old, size_t old_size, size_t size)
{
	(void)arg;
	size_t step = (size + HEAP_STEP - 1) & ~(size_t)(HEAP_STEP - 1);
	if (size <= old_size)
		return size > 0 ? old : NULL;
	if (heap.used + step > HEAP_SIZE)
		return NULL;
	char *block = heap.bytes + heap.used;
	heap.used += step;
	if (old)
		memcpy(block, old, old_size);
	return block;
}

static void save_heap(void)
{
	heap.image_len = heap.used;
	heap.image = memory_alloc(heap.image_len);
	memcpy(heap.image, heap.bytes, heap.image_len);
}

/* Between two scripts. */
static void restore_heap(void)
{
	if (heap.used - heap.image_len < GARBAGE_MAX)
		return;
	memcpy(heap.bytes, heap.image, heap.image_len);
	heap.used = heap.image_len;
	keys_list.count = argv_list.count = 0;
}

/* ---- replies of commands ---- */

void store_reply_number(long long number)
{
	lua_pushnumber(lua, (lua_Number)number);
}

void store_reply_text(const char *bytes, size_t len)
{
	lua_pushlstring(lua, bytes, len);
}

void store_reply_status(const char *text)
{
	if (strcmp(text, "OK") == 0) {
		lua_rawgeti(lua, LUA_REGISTRYINDEX, ok_reference);
		return;
	}
	lua_createtable(lua, 0, 1);
	lua_pushstring(lua, text);
	lua_setfield(lua, -2, "ok");
}

void store_reply_nil(void)
{
	lua_pushboolean(lua, 0);
}

void store_reply_error(const char *text)
{
	lua_createtable(lua, 0, 1);
	lua_pushstring(lua, text);
	lua_setfield(lua, -2, "err");
	is_error = true;
}

void store_reply_wrong_type(void)
{
	store_reply_error("WRONGTYPE Operation against a key holding the wrong kind of value");
}

void store_reply_syntax_error(void)
{
	store_reply_error("ERR syntax error");
}

void store_reply_string(const struct store_text *text)
{
	if (text)
		lua_pushlstring(lua, text->bytes, text->len);
	else
		store_reply_nil();
}

void store_reply_array(size_t count)
{
	lua_createtable(lua, (int)count, 0);
}

void store_reply_put(size_t index)
{
	lua_rawseti(lua, -2, (int)index + 1);
}

/* ---- redis.call() and redis.pcall() ---- */

/* An argument as Redis converts it; numbers are written without an exponent if they are whole. */
static const char *argument(int i, char number[NUMBER_MAX], size_t *ret_len)
{
	if (lua_type(lua, i) != LUA_TNUMBER)
		return lua_tolstring(lua, i, ret_len);
	lua_Number value = lua_tonumber(lua, i);
	if (value >= 0 && value < 9e18 && value == (lua_Number)(uint64_t)value) {
		*ret_len = text_decimal((uint64_t)value, number);
		return number;
	}
	bool is_whole = fabs(value) < 9e18 && value == floor(value);
	*ret_len = (size_t)(is_whole ? snprintf(number, NUMBER_MAX, "%lld", (long long)value)
				     : snprintf(number, NUMBER_MAX, "%.17g", value));
	return number;
}

static void carry_out(void)
{
	static char numbers[ARGS_MAX][NUMBER_MAX];
	static const char *argv[ARGS_MAX];
	static size_t lens[ARGS_MAX];
	int argc = lua_gettop(lua);
	is_error = false;
	if (argc == 0 || argc > ARGS_MAX) {
		store_reply_error("ERR Please specify at least one argument for this redis.call()");
		return;
	}
	for (int i = 0; i < argc; i++) {
		argv[i] = argument(i + 1, numbers[i], &lens[i]);
		if (!argv[i]) {
			store_reply_error("ERR Lua redis lib command arguments must be strings or integers");
			return;
		}
	}
	store_carry_out(&(struct words){current, (size_t)argc, argv, lens});
}

static int redis_pcall(lua_State *state)
{
	assert(state == lua);
	carry_out();
	return 1;
}

static int redis_call(lua_State *state)
{
	redis_pcall(state);
	if (!is_error)
		return 1;
	lua_getfield(state, -1, "err");
	return lua_error(state);
}

/* Redis has no globals but its own. */
static int no_global(lua_State *state)
{
	return luaL_error(state, "Script attempted to access nonexistent global variable '%s'", lua_tostring(state, 2));
}

/* ---- the reply on the stack as one of hiredis ---- */

/* The field of a table that is no array, as Redis looks for it; NULL: it is not there. */
static const char *field_of(int at, const char *name, size_t *ret_len)
{
	lua_pushstring(lua, name);
	lua_rawget(lua, at);
	const char *text = lua_type(lua, -1) == LUA_TSTRING ? lua_tolstring(lua, -1, ret_len) : NULL;
	lua_pop(lua, 1); /* the table still has it */
	return text;
}

/* The block of a reply: all that belongs to it lies behind it. */
struct block {
	char *bytes;
	size_t used, size;
};

/* NULL: the block is too small. */
static void *reserve(struct block *block, size_t size)
{
	size_t at = block->used;
	block->used += (size + 7) & ~(size_t)7;
	return block->used <= block->size ? block->bytes + at : NULL;
}

/* Puts the value at `at` into `*reply`. False: the block is too small. */
static bool fill(int at, redisReply *reply, struct block *block);

static bool fill_text(int type, const char *bytes, size_t len, redisReply *reply, struct block *block)
{
	char *text = reserve(block, len + 1);
	if (!text)
		return false;
	memcpy(text, bytes, len);
	text[len] = '\0';
	*reply = (redisReply){.type = type, .len = len, .str = text};
	return true;
}

static bool fill_table(int at, redisReply *reply, struct block *block)
{
	int count = 0; /* up to the first nil */
	size_t len;
	for (; lua_rawgeti(lua, at, count + 1), !lua_isnil(lua, -1); count++)
		lua_pop(lua, 1);
	lua_pop(lua, 1);
	const char *error = count == 0 ? field_of(at, "err", &len) : NULL;
	const char *status = count == 0 && !error ? field_of(at, "ok", &len) : NULL;
	if (error || status)
		return fill_text(error ? REDIS_REPLY_ERROR : REDIS_REPLY_STATUS, error ? error : status, len, reply,
				 block);
	redisReply *elements = reserve(block, (size_t)count * sizeof *elements);
	redisReply **pointers = reserve(block, (size_t)count * sizeof *pointers);
	bool fits = pointers != NULL;
	*reply = (redisReply){.type = REDIS_REPLY_ARRAY, .elements = (size_t)count, .element = pointers};
	for (int i = 0; i < count && fits; i++) {
		pointers[i] = &elements[i];
		lua_rawgeti(lua, at, i + 1);
		fits = fill(lua_gettop(lua), &elements[i], block);
		lua_pop(lua, 1);
	}
	return fits;
}

static bool fill(int at, redisReply *reply, struct block *block)
{
	size_t len;
	int type = lua_type(lua, at);
	bool is_true = type == LUA_TBOOLEAN && lua_toboolean(lua, at);
	if (type == LUA_TTABLE) {
		luaL_checkstack(lua, 4, "reply");
		return fill_table(at, reply, block);
	} else if (type == LUA_TSTRING) {
		const char *text = lua_tolstring(lua, at, &len);
		return fill_text(REDIS_REPLY_STRING, text, len, reply, block);
	} else if (type == LUA_TNUMBER || is_true) {
		*reply = (redisReply){.type = REDIS_REPLY_INTEGER,
				      .integer = is_true ? 1 : (long long)lua_tonumber(lua, at)};
	} else {
		*reply = (redisReply){.type = REDIS_REPLY_NIL};
	}
	return true;
}

/* Takes the value from the stack. */
static redisReply *take_reply(void)
{
	struct block block = {.size = REPLY_SIZE};
	bool fits = false;
	for (; !fits; block.size *= 2) {
		free(block.bytes);
		block.bytes = memory_alloc(block.size);
		block.used = 0;
		fits = fill(lua_gettop(lua), reserve(&block, sizeof(redisReply)), &block);
	}
	lua_settop(lua, 0);
	restore_heap();
	return (redisReply *)(void *)block.bytes;
}

/* ---- Lua ---- */

void store_sha1hex(const char *text, size_t len, char ret_hex[SHA1_HEX_LEN])
{
	unsigned char digest[SHA_DIGEST_LENGTH];
	SHA1((const unsigned char *)text, len, digest);
	hex_write(digest, sizeof digest, ret_hex);
}

static int redis_sha1hex(lua_State *state)
{
	char hex[SHA1_HEX_LEN];
	size_t len;
	const char *text = luaL_checklstring(state, 1, &len);
	store_sha1hex(text, len, hex);
	lua_pushlstring(state, hex, sizeof hex);
	return 1;
}

static void start_list(struct list *list)
{
	lua_createtable(lua, LIST_MIN, 0);
	lua_pushvalue(lua, -1);
	list->reference = luaL_ref(lua, LUA_REGISTRYINDEX);
	lua_setglobal(lua, list->name);
}

static void start_redis(void)
{
	static const luaL_Reg all[] = {
		{"call", redis_call}, {"pcall", redis_pcall}, {"sha1hex", redis_sha1hex}, {NULL, NULL}};
	luaL_register(lua, "redis", all);
	lua_createtable(lua, 0, 1);
	lua_pushliteral(lua, "OK");
	lua_setfield(lua, -2, "ok");
	ok_reference = luaL_ref(lua, LUA_REGISTRYINDEX);
	start_list(&keys_list);
	start_list(&argv_list);
	lua_createtable(lua, 0, 2);
	lua_pushcfunction(lua, no_global);
	lua_setfield(lua, -2, "__index");
	lua_pushcfunction(lua, no_global);
	lua_setfield(lua, -2, "__newindex");
	lua_setmetatable(lua, LUA_GLOBALSINDEX);
	lua_settop(lua, 0);
}

static void start_scripts(void)
{
	for (size_t i = 1; i < SCRIPTS_COUNT; i++) {
		if (luaL_loadbuffer(lua, scripts[i].source, strlen(scripts[i].source), "@user_script") != 0) {
			fprintf(stderr, "%s\n", lua_tostring(lua, -1));
			abort();
		}
		functions[i] = luaL_ref(lua, LUA_REGISTRYINDEX);
	}
}

static void start_lua(void)
{
	static const luaL_Reg libraries[] = {{"", luaopen_base},
					     {LUA_TABLIBNAME, luaopen_table},
					     {LUA_STRLIBNAME, luaopen_string},
					     {LUA_MATHLIBNAME, luaopen_math}};
	if (lua)
		return;
	heap.bytes = memory_alloc(HEAP_SIZE); /* of which the system gives what is used */
	lua = lua_newstate(resize, NULL);
	if (!lua)
		memory_exhausted("Lua");
	luaJIT_setmode(lua, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
		lua_pushcfunction(lua, libraries[i].func);
		lua_pushstring(lua, libraries[i].name);
		lua_call(lua, 1, 0);
	}
	start_redis();
	start_scripts();
	lua_gc(lua, LUA_GCSTOP, 0);
	save_heap();
}

/* ---- running one ---- */

static void set_list(struct list *list, size_t count, const char *const argv[], const size_t lens[])
{
	lua_rawgeti(lua, LUA_REGISTRYINDEX, list->reference);
	for (size_t i = 0; i < count; i++) {
		lua_pushlstring(lua, argv[i], lens[i]);
		lua_rawseti(lua, -2, (int)i + 1);
	}
	for (size_t i = count; i < list->count; i++) {
		lua_pushnil(lua);
		lua_rawseti(lua, -2, (int)i + 1);
	}
	list->count = count;
	lua_pop(lua, 1);
}

/* Leaves the reply on the stack. */
static void run(struct store *store, unsigned script, size_t keys, size_t argc, const char *const argv[],
		const size_t lens[])
{
	assert(!current && script > 0 && script < SCRIPTS_COUNT && keys <= argc);
	lua_rawgeti(lua, LUA_REGISTRYINDEX, functions[script]);
	set_list(&keys_list, keys, argv, lens);
	set_list(&argv_list, argc - keys, argv + keys, lens + keys);
	current = store;
	if (lua_pcall(lua, 0, 1, 0) != 0)
		store_reply_error(lua_tostring(lua, -1));
	current = NULL;
}

redisReply *store_run_script(struct store *store, unsigned script, size_t keys, size_t argc, const char *const argv[],
			     const size_t lens[])
{
	start_lua();
	run(store, script, keys, argc, argv, lens);
	return take_reply();
}

redisReply *store_command(struct store *store, size_t argc, const char *const argv[], const size_t lens[])
{
	start_lua();
	store_carry_out(&(struct words){store, argc, argv, lens});
	return take_reply();
}
