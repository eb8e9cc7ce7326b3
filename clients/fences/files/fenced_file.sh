#!/bin/sh
# SPDX-License-Identifier: MIT
# fenced_file.sh read|write|remove FILE FENCE: reads or changes a file if FENCE is not smaller than the largest one that
# was used for it. `write` has the new content on its input, `read` prints the old one, or nothing if there is no file.
#
# It runs on the host that has the file: `ssh storage fenced_file.sh write /srv/apples 34 <new`. FILE.fence keeps the
# fence, FILE.lock is for flock. Exit status: 0; 79 the lock is lost; 64 bad arguments; others: nothing was replaced.
set -eu

fail() { # STATUS TEXT
	echo "fenced_file: $2" >&2
	exit "$1"
}

is_fence() { # 1 to 2^53 - 1
	case $1 in
	"" | 0* | *[!0-9]* | ?????????????????*) return 1 ;;
	esac
	[ "$1" -le 9007199254740991 ]
}

replace() { # FILE NEW
	sync "$2" # its content, before its name
	mv -f "$2" "$1"
	sync "$(dirname "$1")"
}

[ $# = 3 ] || fail 64 "usage: fenced_file.sh read|write|remove FILE FENCE"
verb=$1 file=$2 fence=$3
case $file in
/*) ;;
*) file=./$file ;; # may begin with a dash
esac
is_fence "$fence" || fail 64 "not a fence: $fence"
case $verb in
read | remove) ;;
write) # before the lock: a slow sender keeps nobody waiting
	new=$(mktemp "$file.XXXXXX")
	trap 'rm -f "$new"' EXIT
	trap 'exit 130' HUP INT TERM
	cat >"$new"
	chmod "=rw" "$new" # as the umask says
	[ ! -e "$file" ] || chmod --reference="$file" "$new"
	;;
*) fail 64 "not read, write or remove: $verb" ;;
esac

exec 9>>"$file.lock"
flock 9
seen=0
if [ -e "$file.fence" ]; then
	read -r seen <"$file.fence" && is_fence "$seen" || fail 1 "$file.fence is damaged"
fi
[ "$fence" -ge "$seen" ] || fail 79 "lock lost: fence $fence is smaller than $seen"
if [ "$fence" -gt "$seen" ]; then # kept before the data: a crash in between does no harm
	echo "$fence" >"$file.fence.new"
	replace "$file.fence" "$file.fence.new"
fi
case $verb in
write) replace "$file" "$new" ;;
remove) rm -f "$file" ;;
read)
	[ -e "$file" ] || exit 0
	exec 8<"$file"
	flock -u 9 # the open file stays as it is: a writer replaces it
	cat <&8
	;;
esac
