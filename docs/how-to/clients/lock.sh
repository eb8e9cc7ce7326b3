#!/usr/bin/env bash
# Books apples into a store, one by one, while nobody else does: docs/how-to/clients.md says how and why.
#
#     lock.sh RESOURCE STORE [STEPS [STEP_MS [TTL_MS [WAIT_MS]]]]
#
# The work is a job of its own; this shell stays beside it, renews the lease, and kills the job when it cannot.
# Needs Linux, bash 5, curl 7.84, jq, sqlite3.
set -u
url=${REDLOCKD_URL:-http://127.0.0.1:8080} url=${url%/}
key=${REDLOCKD_KEY:-}
resource=$1 store=$2 steps=${3:-5} step_ms=${4:-1000} ttl_ms=${5:-10000} wait_ms=${6:-20000}
margin_ms=$((ttl_ms / 5))
worker='' token=''

fail() { # STATUS WHY
	echo "lock: $2" >&2
	exit "$1"
}

read_clock() { # sets now_ms, by a clock that nobody sets and that goes on while the machine sleeps
	local uptime _
	read -r uptime _ </proc/uptime
	now_ms=$((10#${uptime/./} * 10))
}

seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

# call METHOD PATH BODY TIMEOUT_MS [HEADER]: sets answer, retry_after, error, status; the status is 000 where no answer of redlockd came.
# Key and token do not stand on curl's command line, where others could read them.
call() {
	local reply
	reply=$(curl -s -m "$(seconds "$4")" -X "$1" -H 'Content-Type: application/json' -H @<(printf '%s\n' "${key:+Authorization: Bearer $key}" "${5-}") \
		--data-binary @- -w '\n%header{retry-after}\n%{errormsg}\n%{http_code}' "$url$2" <<<"$3")
	status=${reply##*$'\n'} reply=${reply%$'\n'*}
	error=${reply##*$'\n'} reply=${reply%$'\n'*}
	retry_after=${reply##*$'\n'} answer=${reply%$'\n'*}
	if [[ $status = 000 || -n $error ]] || ! error=$(jq -r '.detail // empty' <<<"$answer" 2>/dev/null); then
		status=000 error="no answer from $url: ${error:-not from redlockd}"
	fi
}

acquire() {
	local until_ms sent_ms left_ms body validity_ms again
	again="Idempotency-Key: $(od -An -N 16 -t x1 /dev/urandom | tr -d ' \n')" # if an answer is lost, the next request finds the lease
	read_clock
	until_ms=$((now_ms + wait_ms))
	while true; do
		read_clock # before the request: the lease lasts for so long from here, or longer
		sent_ms=$now_ms left_ms=$((until_ms - now_ms))
		left_ms=$((left_ms < 0 ? 0 : left_ms > 60000 ? 60000 : left_ms))
		body=$(jq -n --arg r "$resource" --argjson t "$ttl_ms" --argjson w $left_ms '{resource: $r, ttl_ms: $t, wait_ms: $w}')
		call POST /locks "$body" $((left_ms + 5000)) "$again"
		case $status in
		200 | 201)
			read -r token fence validity_ms < <(jq -r '"\(.token) \(.fence) \(.validity_ms + 0.99 * (.waited_ms // 0) | floor)"' <<<"$answer")
			stop_ms=$((sent_ms + validity_ms - margin_ms)) renew_ms=$((sent_ms + ttl_ms / 3))
			echo "acquired fence=$fence"
			return
			;;
		000 | 409 | 429 | 503) ;;
		401 | 403) fail 77 "$error" ;;
		*) fail 64 "$error" ;;
		esac
		read_clock
		left_ms=$((until_ms - now_ms))
		((left_ms > 0)) || { [[ $status = 409 ]] && fail 75 "$error" || fail 69 "$error"; }
		local pause_ms=$((${retry_after:-1} * 1000 + RANDOM % 1000))
		sleep "$(seconds $((pause_ms < left_ms ? pause_ms : left_ms)))"
	done
}

renew() {
	local sent_ms=$now_ms left_ms=$((stop_ms - now_ms))
	call PUT "$path" "{\"token\":\"$token\",\"ttl_ms\":$ttl_ms}" $((left_ms < ttl_ms / 5 ? left_ms : ttl_ms / 5))
	case $status in
	200)
		stop_ms=$((sent_ms + $(jq .validity_ms <<<"$answer") - margin_ms)) renew_ms=$((sent_ms + ttl_ms / 3))
		echo renewed
		;;
	409 | 410) lose "$error" ;;
	*) renew_ms=$((sent_ms + ttl_ms / 10)) ;; # no answer, 429, 503: the old end holds, ask again soon
	esac
}

stop_work() { [[ -z $worker ]] || { kill -KILL -- -"$worker" && wait "$worker"; } 2>/dev/null; }

lose() {
	stop_work
	fail 79 "lease lost: $1"
}

release() {
	stop_work
	[[ -n $token ]] || return
	call DELETE "$path" "{\"token\":\"$token\"}" 2000
	[[ $status = 204 ]] && echo released || echo "not released: $error"
}

# The resource refuses whoever is not the last holder: comparison and change are one statement. Waits for other writers no longer than the margin.
update() { # CHANGE
	local sql="UPDATE stock SET $1, fence = $fence WHERE item = 'apples' AND fence <= $fence RETURNING amount"
	amount=$(sqlite3 -cmd ".timeout $margin_ms" "$store" "$sql") || exit 1
	[[ -n $amount ]] || fail 79 'fence refused: somebody else has had the lock since'
}

work() {
	trap - EXIT TERM INT
	update 'amount = amount' # brings the fence there, then reads
	for ((step = 0; step < steps; step++)); do
		sleep "$(seconds "$step_ms")"
		update "amount = $((amount + 1))"
		echo "wrote $amount"
	done
}

path=/locks/$(jq -rn --arg r "$resource" '$r | @uri')
trap release EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
acquire
set -m # the work is a process group of its own: all of it can be killed
work &
worker=$!
set +m
while kill -0 "$worker" 2>/dev/null; do
	read_clock
	((now_ms < stop_ms)) || lose 'it could not be renewed in time'
	((now_ms < renew_ms)) || renew
	sleep 0.1
done
wait "$worker"
exit $?
