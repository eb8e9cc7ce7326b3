/* Scripts: Lua as Redis runs it, over a store. One state of Lua for the program: scripts keep nothing between calls,
 * and no function that is not of one is there. See store.h. */
#include <assert.h>
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "server/scripts/scripts.h"
#include "store_internal.h"

enum { ARGS_MAX = 8000 };

static lua_State *lua;
static struct store *current; /* that of the script that runs */

/* ---- replies for Lua ---- */

static void push_reply(const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_INTEGER: lua_pushnumber(lua, (lua_Number)reply->integer); break;
	case REDIS_REPLY_STRING: lua_pushlstring(lua, reply->str, reply->len); break;
	case REDIS_REPLY_NIL: lua_pushboolean(lua, 0); break;
	case REDIS_REPLY_ARRAY:
		lua_createtable(lua, (int)reply->elements, 0);
		for (size_t i = 0; i < reply->elements; i++) {
			push_reply(reply->element[i]);
			lua_rawseti(lua, -2, (int)i + 1);
		}
		break;
	default:
		lua_createtable(lua, 0, 1);
		lua_pushlstring(lua, reply->str, reply->len);
		lua_setfield(lua, -2, reply->type == REDIS_REPLY_ERROR ? "err" : "ok");
	}
}

/* An argument as Redis converts it; numbers are written without an exponent if they are whole. */
static const char *argument(int i, char number[NUMBER_MAX], size_t *ret_len)
{
	if (lua_type(lua, i) != LUA_TNUMBER)
		return lua_tolstring(lua, i, ret_len);
	lua_Number value = lua_tonumber(lua, i);
	bool is_whole = fabs(value) < 9e18 && value == floor(value);
	*ret_len = (size_t)(is_whole ? snprintf(number, NUMBER_MAX, "%lld", (long long)value)
				     : snprintf(number, NUMBER_MAX, "%.17g", value));
	return number;
}

static redisReply *command(void)
{
	static char numbers[ARGS_MAX][NUMBER_MAX];
	static const char *argv[ARGS_MAX];
	static size_t lens[ARGS_MAX];
	int argc = lua_gettop(lua);
	if (argc == 0 || argc > ARGS_MAX)
		return store_reply_error("ERR Please specify at least one argument for this redis.call()");
	for (int i = 0; i < argc; i++) {
		argv[i] = argument(i + 1, numbers[i], &lens[i]);
		if (!argv[i])
			return store_reply_error("ERR Lua redis lib command arguments must be strings or integers");
	}
	return store_command(current, (size_t)argc, argv, lens);
}

static int redis_pcall(lua_State *state)
{
	redisReply *reply = command();
	assert(state == lua);
	push_reply(reply);
	freeReplyObject(reply);
	return 1;
}

static int redis_call(lua_State *state)
{
	redis_pcall(state);
	if (!lua_istable(state, -1))
		return 1;
	lua_getfield(state, -1, "err");
	bool is_error = lua_isstring(state, -1);
	if (is_error)
		return lua_error(state);
	lua_pop(state, 1);
	return 1;
}

/* Redis has no globals but its own. */
static int no_global(lua_State *state)
{
	return luaL_error(state, "Script attempted to access nonexistent global variable '%s'", lua_tostring(state, 2));
}

/* ---- what a script returns ---- */

static redisReply *reply_of(int at);

static redisReply *reply_of_table(int at)
{
	static const struct {
		const char *field;
		int type;
	} words[] = {{"err", REDIS_REPLY_ERROR}, {"ok", REDIS_REPLY_STATUS}};
	for (size_t i = 0; i < 2; i++) {
		lua_pushstring(lua, words[i].field);
		lua_rawget(lua, at);
		size_t len;
		const char *text = lua_type(lua, -1) == LUA_TSTRING ? lua_tolstring(lua, -1, &len) : NULL;
		redisReply *reply = text ? store_reply_text(words[i].type, text, len) : NULL;
		lua_pop(lua, 1);
		if (reply)
			return reply;
	}
	size_t count = 0; /* up to the first nil */
	for (bool more = true; more; count += more) {
		lua_rawgeti(lua, at, (int)count + 1);
		more = !lua_isnil(lua, -1);
		lua_pop(lua, 1);
	}
	redisReply *reply = store_reply_array(count);
	for (size_t i = 0; i < count; i++) {
		lua_rawgeti(lua, at, (int)i + 1);
		reply->element[i] = reply_of(lua_gettop(lua));
		lua_pop(lua, 1);
	}
	return reply;
}

static redisReply *reply_of(int at)
{
	size_t len;
	const char *text;
	switch (lua_type(lua, at)) {
	case LUA_TNUMBER: return store_reply_number((long long)lua_tonumber(lua, at));
	case LUA_TSTRING: text = lua_tolstring(lua, at, &len); return store_reply_text(REDIS_REPLY_STRING, text, len);
	case LUA_TBOOLEAN: return lua_toboolean(lua, at) ? store_reply_number(1) : store_reply_nil();
	case LUA_TTABLE: return reply_of_table(at);
	default: return store_reply_nil();
	}
}

/* ---- running one ---- */

static void start_lua(void)
{
	static const luaL_Reg libraries[] = {{"", luaopen_base},
					     {LUA_TABLIBNAME, luaopen_table},
					     {LUA_STRLIBNAME, luaopen_string},
					     {LUA_MATHLIBNAME, luaopen_math}};
	lua = luaL_newstate();
	if (!lua)
		memory_exhausted("Lua");
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
		lua_pushcfunction(lua, libraries[i].func);
		lua_pushstring(lua, libraries[i].name);
		lua_call(lua, 1, 0);
	}
	lua_createtable(lua, 0, 2);
	lua_pushcfunction(lua, redis_call);
	lua_setfield(lua, -2, "call");
	lua_pushcfunction(lua, redis_pcall);
	lua_setfield(lua, -2, "pcall");
	lua_setglobal(lua, "redis");
	lua_createtable(lua, 0, 2);
	lua_pushcfunction(lua, no_global);
	lua_setfield(lua, -2, "__index");
	lua_pushcfunction(lua, no_global);
	lua_setfield(lua, -2, "__newindex");
	lua_pushvalue(lua, LUA_GLOBALSINDEX);
	lua_insert(lua, -2);
	lua_setmetatable(lua, -2);
	lua_pop(lua, 1);
}

/* Pushes the function of a script; false: there is none of that name. */
static bool push_script(const char *sha1, size_t len)
{
	static int functions[SCRIPTS_COUNT];
	for (size_t i = 1; i < SCRIPTS_COUNT; i++) {
		if (len != strlen(scripts[i].sha1) || memcmp(sha1, scripts[i].sha1, len) != 0)
			continue;
		if (functions[i] == 0) {
			int failed = luaL_loadbuffer(lua, scripts[i].source, strlen(scripts[i].source), "@user_script");
			if (failed)
				fprintf(stderr, "%s\n", lua_tostring(lua, -1));
			assert(!failed);
			functions[i] = luaL_ref(lua, LUA_REGISTRYINDEX);
		}
		lua_rawgeti(lua, LUA_REGISTRYINDEX, functions[i]);
		return true;
	}
	return false;
}

static void set_list(const char *name, size_t count, const char *const argv[], const size_t lens[])
{
	lua_createtable(lua, (int)count, 0);
	for (size_t i = 0; i < count; i++) {
		lua_pushlstring(lua, argv[i], lens[i]);
		lua_rawseti(lua, -2, (int)i + 1);
	}
	lua_pushstring(lua, name);
	lua_insert(lua, -2);
	lua_rawset(lua, LUA_GLOBALSINDEX);
}

redisReply *store_eval(struct store *store, size_t argc, const char *const argv[], const size_t lens[])
{
	if (!lua)
		start_lua();
	size_t keys = strtoul(argv[2], NULL, 10);
	assert(!current && argc >= 3 + keys);
	if (!push_script(argv[1], lens[1]))
		return store_reply_error("NOSCRIPT No matching script. Please use EVAL.");
	set_list("KEYS", keys, argv + 3, lens + 3);
	set_list("ARGV", argc - 3 - keys, argv + 3 + keys, lens + 3 + keys);
	current = store;
	int failed = lua_pcall(lua, 0, 1, 0);
	current = NULL;
	redisReply *reply = failed ? store_reply_error(lua_tostring(lua, -1)) : reply_of(lua_gettop(lua));
	lua_settop(lua, 0);
	return reply;
}
