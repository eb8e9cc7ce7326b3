#!/bin/sh
# SPDX-License-Identifier: MIT
# The tests on Debian 13 (hiredis 1.2 with TLS, libmicrohttpd 1.0, a newer gcc), with Valkey 8 and with Redis 8 as masters: ./dev test debian13.
#
#   tests/debian13/run.sh RESULTS PACKAGE…
#
# Makes a Debian 13 with debootstrap in build/debian13, from the mirror that this machine's own apt uses (kept from run to run; ./dev clean removes it),
# installs the packages there, copies the sources into it, builds them with warnings as errors, and runs the unit tests and the end-to-end tests of all
# that has to do with masters and TLS; these a second time with Valkey. JUnit files go to RESULTS. Ends with 77, and a line that says why, where such a
# tree cannot be made: that takes root, a Debian and its mirror.
#
# Everything in the tree runs in a mount and a process namespace of its own. Both end with the first process there, however this script ends: nothing
# stays mounted, and no process goes on.
set -eu
cd "$(dirname "$0")/../.."
results=$1
shift
tree=$PWD/build/debian13
log=$results/debian13.log
. /etc/os-release

cannot() {
	echo "$1"
	exit 77
}

[ "$(id -u)" = 0 ] || { sudo -n true 2>/dev/null && exec sudo -n "$0" "$results" "$@"; } || cannot "root or sudo is needed for debootstrap and chroot"
[ "$ID" = debian ] || cannot "made from the mirror of a Debian, and this is $ID"
command -v debootstrap >/dev/null || cannot "debootstrap is not installed"
unshare --mount --pid --fork true 2>/dev/null || cannot "this machine allows no namespaces of our own (unshare)"

inside=""
stop() { # the first process of the namespace dies with unshare, and all others with it
	[ -z "$inside" ] || kill -KILL "$inside" 2>/dev/null || true
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Runs a shell command in the tree; further arguments are NAME=value for its environment.
in_tree() {
	command=$1
	shift
	unshare --mount --pid --fork --kill-child sh -c '
		tree=$1 command=$2
		shift 2
		mount -t proc proc "$tree/proc" &&
		mount -t devpts -o newinstance,ptmxmode=0666 devpts "$tree/dev/pts" &&
		mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp" &&
		exec chroot "$tree" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@" sh -c "$command"
	' sh "$tree" "$command" "$@" </dev/null &
	inside=$!
	status=0
	wait $inside || status=$?
	inside=""
	return $status
}

# ---- the tree ----

proxies() { env | grep -i '^[a-z]*_proxy=' || true; }

make_tree() {
	mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' | sed -n "s/^$VERSION_CODENAME main //p" | head -1)
	[ -n "$mirror" ] || { echo "no apt source of $VERSION_CODENAME main on this machine"; return 1; }
	echo "debootstrap trixie"
	rm -rf --one-file-system "$tree" "$tree.new"
	debootstrap --variant=minbase trixie "$tree.new" "$mirror" >>"$log" 2>&1 || return 1
	# Nothing is started when its package is installed. Where this machine's apt goes through a proxy, this one does too.
	printf '#!/bin/sh\nexit 101\n' >"$tree.new/usr/sbin/policy-rc.d"
	chmod 755 "$tree.new/usr/sbin/policy-rc.d"
	apt-config dump | grep '^Acquire::' >"$tree.new/etc/apt/apt.conf.d/90host" || true
	mv "$tree.new" "$tree"
}

install_packages() {
	[ "$(cat "$tree/packages" 2>/dev/null)" = "$*" ] && return 0
	echo "installing the packages"
	in_tree "apt-get update -qq && apt-get install -y -qq --no-install-recommends $*" DEBIAN_FRONTEND=noninteractive $(proxies) >>"$log" 2>&1 || return 1
	echo "$*" >"$tree/packages"
}

copy_sources() {
	rm -rf --one-file-system "$tree/src"
	mkdir "$tree/src"
	tar --exclude=./build --exclude=./.git --exclude=node_modules --exclude=__pycache__ -cf - . | tar -C "$tree/src" -xmf - # -m: all is new, and all is built
}

# ---- the tests ----

took() { # SINCE
	echo "  $(($(date +%s) - $1)) s"
}

build() {
	echo "building"
	in_tree 'cmake -S /src -B /build -DCMAKE_BUILD_TYPE=Release -DREDLOCKD_WERROR=ON && cmake --build /build -j"$(nproc)"' >"$results/debian13-build.log" 2>&1 || {
		grep -E 'error|warning' -A3 "$results/debian13-build.log" | head -40
		return 1
	}
}

# The JUnit files name the failures; a step that leaves none has failed as a whole.
step() { # NAME COMMAND [NAME=value…]
	name=debian13-$1
	echo "$name"
	rm -f "$tree/result.xml"
	in_tree "$2" REDLOCKD=/build/redlockd ${3:+"$3"} >"$results/$name.log" 2>&1 || tail -60 "$results/$name.log"
	tail -1 "$results/$name.log"
	[ -s "$tree/result.xml" ] || { echo "$name left no results"; return 1; }
	cp "$tree/result.xml" "$results/$name.xml"
}

files="test_rediss test_leases test_delivered test_masters test_master_addresses test_master_channel test_guard_restart test_redlockctl_tls test_waiting"
files="$files test_crowds test_master_replies test_modes test_no_memory test_one_answer"
for file in tests/e2e/test_tls*.py; do
	[ ! -e "$file" ] || files="$files $(basename "$file" .py)"
done
pytest="cd /src && python3 -m pytest -p no:cacheprovider -q -n 4 --junitxml=/result.xml"
for file in $files; do
	pytest="$pytest tests/e2e/$file.py"
done
valkey=PATH=/valkey:/usr/sbin:/usr/bin:/sbin:/bin # a folder in which redis-server is valkey-server

begun=$(date +%s)
: >"$log"
# Mirrors come and go: that is no fault of what is tested.
[ -x "$tree/bin/sh" ] || make_tree || cannot "no Debian 13 could be made: $(tail -1 "$log" | tr -d '"<>&')"
install_packages "$@" || cannot "its packages could not be installed: $(tail -1 "$log" | tr -d '"<>&')"
took "$begun"
mkdir -p "$tree/valkey"
ln -sf /usr/bin/valkey-server "$tree/valkey/redis-server"
in_tree 'redis-server --version | grep "Redis server v=8\."' && in_tree 'redis-server --version | grep "Valkey server v=8\."' $valkey || {
	echo "the servers are not Redis 8 and Valkey 8"
	exit 1
}
begun=$(date +%s)
copy_sources
build || exit 1
took "$begun"
begun=$(date +%s)
failed=0
step unit 'ctest --test-dir /build -LE sim -j"$(nproc)" --output-on-failure --output-junit /result.xml' || failed=1
step redis8 "$pytest" || failed=1
step valkey8 "$pytest" $valkey || failed=1
step compare-redis8 'ctest --test-dir /build -R "^sim_compare$" --output-on-failure --output-junit /result.xml' || failed=1
step compare-valkey8 'ctest --test-dir /build -R "^sim_compare$" --output-on-failure --output-junit /result.xml' $valkey || failed=1
took "$begun"
exit $failed
