# SPDX-License-Identifier: MIT
# Part of ./dev: builds in build/NAME, with the output in build/NAME.log.

# Shows how far a command is, from the log that it writes: the last percentage or count, or else the last line.
show_progress() { # LOG
	trap 'kill "$pause" 2>/dev/null; exit' TERM
	waited=0
	while :; do
		sleep 20 &
		pause=$!
		wait "$pause"
		waited=$((waited + 20))
		far=$(tail -n 3 "$1" | grep -oE '\[ *[0-9]+%\]|^ *[0-9]+/[0-9]+ ' | tail -n 1)
		printf '   %3d s  %s\n' $waited "${far:-$(tail -n 1 "$1" | cut -c 1-100)}"
	done
}

# Runs a command with its output in a log, and shows its progress every 20 seconds.
logged() { # LOG COMMAND…
	log=$1
	shift
	: >"$log"
	show_progress "$log" &
	progress=$!
	result=0
	"$@" >>"$log" 2>&1 </dev/null || result=$?
	stop_progress
	return $result
}

progress=""
stop_progress() {
	[ -z "$progress" ] || kill "$progress" 2>/dev/null || true
	[ -z "$progress" ] || wait "$progress" 2>/dev/null || true
	progress=""
}

compile() { # NAME TARGET [CMAKE-OPTION…]
	name=$1 target=$2
	shift 2
	cmake -S . -B "build/$name" "$@" && cmake --build "build/$name" --target "$target" -j"$(nproc)"
}

build_target=all
build() { # NAME [CMAKE-OPTION…]
	name=$1
	shift
	say "building $name"
	mkdir -p build
	logged "build/$name.log" compile "$name" "$build_target" "$@" || {
		grep -E 'error|warning|Error' -A3 "build/$name.log" | head -40 >&2
		echo "dev: building $name failed: see build/$name.log" >&2
		return 1
	}
}

build_release() { # [ON: with the tests]
	build release -DCMAKE_BUILD_TYPE=Release -DREDLOCKD_TESTS=${1:-OFF} -DREDLOCKD_WERROR=${1:-OFF}
}

# A third more seeds in the same time.
build_sim() {
	build_target=sim_random
	built=0
	build sim -DCMAKE_BUILD_TYPE=Release -DREDLOCKD_TUNED=ON -DREDLOCKD_TESTS=ON \
		-DREDLOCKD_SIM_SECONDS="${REDLOCKD_SIM_SECONDS:-180}" || built=1
	build_target=all
	return $built
}

# The .deb depends on the sources alone: hence the umask, and no compiler cache, which may change the paths in asserts.
build_package() (
	umask 022
	build package -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DREDLOCKD_TESTS=OFF \
		-DCMAKE_C_COMPILER_LAUNCHER= || return 1
	rm -f build/package/*.deb
	(cd build/package && cpack) >>build/package.log 2>&1 || {
		tail -20 build/package.log >&2
		return 1
	}
)

# Warnings are no errors: with -Og gcc has some that -O2 finds to be wrong.
build_coverage() {
	build coverage -DCMAKE_BUILD_TYPE=Coverage -DREDLOCKD_TESTS=ON -DREDLOCKD_WERROR=OFF \
		"-DCMAKE_C_FLAGS_COVERAGE=-Og -g --coverage -fprofile-update=atomic"
}

build_fuzz() {
	build_target=fuzz
	built=0
	build fuzz -DCMAKE_C_COMPILER=clang -DREDLOCKD_FUZZ=ON -DREDLOCKD_TESTS=OFF -DREDLOCKD_WERROR=ON || built=1
	build_target=all
	return $built
}
