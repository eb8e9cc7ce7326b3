#!/bin/sh
# SPDX-License-Identifier: MIT
# load_function.sh [OPTION of redis-cli…]: loads fenced.lua as the function "fenced" of Redis 7 or newer, or Valkey.
set -eu
{
	printf '#!lua name=redlockd_fences\nredis.register_function("fenced", function(KEYS, ARGV)\n'
	cat "$(dirname "$0")/fenced.lua"
	echo 'end)'
} | redis-cli "$@" -x FUNCTION LOAD REPLACE
