#!/bin/sh
# SPDX-License-Identifier: MIT
# counter.sh URL TIMES FILE: adds 1 to the number in FILE, TIMES times, each time under the lock "counter".
#
# As a user would write it: acquire with curl, and where the lock is held (409) or the masters are in trouble (503), wait for
# as long as the service advises at most, and ask again. The wait is a random part of the advice, so that twenty of us
# do not come back at one moment.
set -eu
url=$1 times=$2 file=$3
seed=$$

# Sets $status and $body.
call() {
	answer=$(curl -q -sS --noproxy '*' --max-time 60 -w '\n%{http_code}' -X "$@")
	status=${answer##*
}
	body=${answer%
*}
}

# Waits for a random part of the advised time, 20 to 920 ms.
pause() {
	advised=${body##*\"retry_after_ms\":}
	case $advised in
	[0-9]*) advised=${advised%%[!0-9]*} ;;
	*) advised=900 ;;
	esac
	[ "$advised" -le 900 ] || advised=900
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	ms=$((1020 + seed / 65536 % (advised + 1)))
	sleep "0.${ms#1}"
}

done=0
while [ "$done" -lt "$times" ]; do
	call POST "$url/locks" -d '{"resource":"counter","ttl_ms":60000}'
	case $status in
	201) ;;
	409 | 503) pause && continue ;;
	*) echo "acquire: $status $body" >&2 && exit 1 ;;
	esac
	token=${body##*\"token\":\"}
	token=${token%%\"*}
	read -r number <"$file"
	echo $((number + 1)) >"$file"
	call DELETE "$url/locks/counter" -H "Lock-Token: $token"
	[ "$status" = 204 ] || { echo "release: $status $body" >&2 && exit 1; }
	done=$((done + 1))
done
