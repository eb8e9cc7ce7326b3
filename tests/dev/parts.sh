# SPDX-License-Identifier: MIT
# Part of ./dev: the parts of the tests. Each leaves JUnit files PART….xml in build/results; a part that cannot run at all
# leaves one failure. tests/dev/summary.py adds them up.
# shellcheck disable=SC2154 # the lists of packages are those of ./dev

results=build/results
now() { date +%s; }

failed_part() { # MESSAGE
	/usr/bin/python3 tests/dev/summary.py case "$results/$part-part.xml" "$part" failure "$1"
	echo "FAILED: $part: $1" >&2
}

skipped_part() { # MESSAGE
	/usr/bin/python3 tests/dev/summary.py case "$results/$part-part.xml" "$part" skipped "$1"
	echo "skipped: $part: $1"
}

# Builds NAME once in a run, whichever parts need it.
builds=""
needs_build() { # NAME [CMAKE-OPTION…]
	case " $builds " in
	*" $1:built "*) return 0 ;;
	*" $1:broken "*) ;;
	*)
		if build "$@" -DREDLOCKD_TESTS=ON -DREDLOCKD_WERROR=ON; then
			builds="$builds $1:built"
			return 0
		fi
		builds="$builds $1:broken"
		;;
	esac
	failed_part "$1 does not build: see build/$1.log"
	return 1
}
needs_release() { needs_build release -DCMAKE_BUILD_TYPE=Release; }
needs_clang() { needs_build clang -DCMAKE_C_COMPILER=clang; }
needs_asan() { needs_build asan -DREDLOCKD_SANITIZE=address; }

ctests() { # LABEL BUILD [CTEST-OPTION…]
	label=$part$1 folder=build/$2
	shift 2
	result=0
	logged "$results/$label.log" ctest --test-dir "$folder" -j"$(nproc)" --output-on-failure --no-tests=error \
		--output-junit "$PWD/$results/$label.xml" "$@" || result=$?
	case $result in
	0) ;;
	8) tail -n 30 "$results/$label.log" ;; # a test failed
	*) failed_part "ctest ended with $result: $(tail -n 1 "$results/$label.log")" ;;
	esac
	# How far the simulators looked.
	grep -hE '^[0-9]+ seeds in|^[0-9]+ sequences,|^[a-z]+ +states ' "$folder/Testing/Temporary/LastTest.log" || true
}

at_once=4
pytests() { # LABEL BUILD PYTEST-ARGUMENT…
	label=$part$1
	export REDLOCKD="$PWD/build/$2/redlockd"
	shift 2
	result=0
	logged "$results/$label.log" /usr/bin/python3 -m pytest -p no:cacheprovider -q -n $at_once \
		--junitxml="$results/$label.xml" "$@" || result=$?
	grep -E '^(FAILED|ERROR) ' "$results/$label.log" | cut -c 1-300 | head -n 20
	tail -n 1 "$results/$label.log"
	[ $result -le 1 ] || failed_part "pytest ended with $result" # 1: a test failed
}

# ---- the quick set ----

part_build() { needs_release && /usr/bin/python3 tests/dev/summary.py case "$results/build.xml" build passed ""; }
part_unit() { needs_release && ctests "" release -LE 'sim|corpus'; }
part_layers() { needs_release && pytests "" release tests/layers; }
part_format() { at_once=2 pytests "" release tests/format; }
part_contract() { needs_release && pytests "" release tests/contract -m "not node"; }
part_corpus() { needs_release && ctests "" release -L corpus; }
part_sim() { needs_release && ctests "" release -L sim -LE 'long|mutations'; }
# The synchronous half; the asynchronous one is the part libraries-aio. The tests wait most of the time, for leases that
# outlast the stops of a busy machine: so many run at once.
part_libraries() { needs_release && at_once=12 REDLOCKD_TEST_LANGUAGES=python pytests "" release tests/clients/test_library*.py; }
part_tidy() { needs_release && pytests "" release tests/tidy; }
# The features, each by its first file of tests.
e2e_tests="batch force hold idempotency keys leases limits listings masters metadata metrics modes names redlockctl redlockctl_run"
e2e_tests="$e2e_tests sets start tls waiting"
e2e_files() { # OPTION NAME…
	option=$1
	shift
	printf -- "$option"'tests/e2e/test_%s.py ' "$@"
}
part_e2e() { needs_release && pytests "" release -m "not slow" $(e2e_files "" $e2e_tests); }

# ---- the rest ----

part_e2e_more() { needs_release && pytests "" release -m "not slow" tests/e2e $(e2e_files "--ignore=" $e2e_tests); }
part_faults() {
	needs_release || return
	faults "" --seconds 20 --seed 1
	pytests -checkers release tests/faults
}
faults() { # LABEL OPTION…
	label=$part$1
	shift
	result=0
	logged "$results/$label.log" /usr/bin/python3 tests/faults/faults.py --redlockd "$PWD/build/release/redlockd" "$@" ||
		result=$?
	/usr/bin/python3 tests/dev/summary.py checks "$results/$label.xml" "$label" "$results/$label.log" $result
	tail -n 1 "$results/$label.log"
}

# REDLOCKD_SIM_SECONDS: of sim_random.
part_sim_long() {
	needs_release || return
	ctests "" release -L sim -L long -E '^sim_random$'
	build_sim || { failed_part "sim does not build: see build/sim.log"; return; }
	ctests -random sim -R '^sim_random$'
}
part_mutations() { needs_release && ctests "" release -L mutations; }
part_faults_long() {
	needs_release || return
	faults "" --seconds 40
	faults -rolling --rolling --seconds 25
	faults -network --network --seconds 25
}
part_e2e_slow() { needs_release && at_once=5 pytests "" release tests/e2e -m slow; }
part_libraries_more() { libraries_of_all "not python" --deselect tests/clients/test_library_many.py tests/clients/test_library*.py; }
part_libraries_many() { libraries_of_all "aio or go or node or java" tests/clients/test_library_many.py; }
libraries_of_all() { # SELECTION PYTEST-ARGUMENT…
	selection=$1
	shift
	needs_release || return
	build_drivers || { failed_part "the drivers do not build: see build/drivers.log"; return; }
	# One JVM or node for each test; the tests wait most of the time.
	at_once=10 REDLOCKD_TEST_SLOW=1 REDLOCKD_TEST_LANGUAGES="python python-aio go node java" \
		pytests "" release -k "$selection" "$@"
}
part_libraries_aio() {
	needs_release && at_once=12 REDLOCKD_TEST_LANGUAGES="python python-aio" pytests "" release -k aio \
		--deselect tests/clients/test_library_many.py tests/clients/test_library*.py
}
part_adapters() {
	needs_release || return
	install_go || { failed_part "Go could not be installed"; return; }
	build_adapters_go || { failed_part "an adapter for Go does not build: see build/gocron.log, build/client-go.log"; return; }
	build_adapter_shedlock || { failed_part "the adapter for ShedLock does not build: see build/shedlock.log"; return; }
	install_recipes || { failed_part "Celery, Ansible and Alembic could not be installed"; return; }
	at_once=5 pytests "" release tests/adapters
}
part_libraries_php() {
	needs_release || return
	at_once=8 REDLOCKD_TEST_SLOW=2 REDLOCKD_TEST_LANGUAGES="python php" pytests "" release -k php \
		--deselect tests/clients/test_library_many.py tests/clients/test_library*.py
}
part_contract_node() {
	needs_release || return
	install_npm tests/contract || { failed_part "npm ci failed"; return; }
	pytests "" release tests/contract -m node
}
part_clang() { needs_clang && ctests "" clang -LE 'long|corpus|mutations'; }
# End-to-end tests of the code that parses input, and of objects that outlive the request that made them.
asan_tests="batch crowds disconnect hold idempotency malformed master_replies metadata query rediss tls_handshakes waiting"
asan_e2e() { # LABEL PYTEST-ARGUMENT…
	needs_asan || return
	label=$1
	shift
	REDLOCKD_TEST_SLOW=4 REDLOCKD_TEST_SCALE=0.25 pytests "$label" asan -m "not slow" "$@"
}
part_asan() {
	needs_asan && ctests -unit asan && asan_e2e -e2e $(e2e_files "" $asan_tests)
}
part_asan_more() { asan_e2e "" tests/e2e $(e2e_files "--ignore=" $asan_tests); }
# End-to-end tests in which threads share data: several workers, reloads, loads, ends. The mixed load takes longest, a
# minute, and begins first.
tsan_e2e() { # LABEL NAME…
	needs_build tsan -DREDLOCKD_SANITIZE=thread || return
	label=$1
	shift
	REDLOCKD_TEST_SLOW=6 REDLOCKD_TEST_SCALE=0.25 REDLOCKD_TEST_ROUNDS=30 pytests "$label" tsan -m "not slow" $(e2e_files "" "$@")
}
part_tsan() {
	needs_build tsan -DREDLOCKD_SANITIZE=thread || return
	ctests -unit tsan
	tsan_e2e -e2e mixed_load load masters_reload hold disconnect waiting_churn burst
}
part_tsan_more() { tsan_e2e "" service masters masters_replaced waiting_replicas tls keys tokens_ends guard_restart; }
# One seed, so that a change is tried with what was tried before it; ./dev fuzz takes another one each time.
# REDLOCKD_FUZZ_SECONDS: of each target. run.py writes fuzz.xml.
part_fuzz() {
	build_fuzz || { failed_part "the fuzz targets do not build: see build/fuzz.log"; return; }
	logged "$results/fuzz.log" /usr/bin/python3 tests/fuzz/run.py --build build/fuzz --results $results \
		--seconds "${REDLOCKD_FUZZ_SECONDS:-45}" --seed 1 || [ -s $results/fuzz.xml ] || failed_part "run.py did not run"
	cat "$results/fuzz.log"
}
part_hardening() {
	needs_release && pytests "" release tests/hardening
	needs_clang && pytests -clang clang tests/hardening/test_binaries.py
}
# Each load measures a rate: one at a time, and nothing beside them.
part_hostile() { needs_release && at_once=0 pytests "" release tests/hostile; }
# The list of lines that no test reaches is in the log, coverage-lines.log.
part_coverage() {
	build_coverage || { failed_part "coverage does not build: see build/coverage.log"; return; }
	find build/coverage -name '*.gcda' -delete # of the tests before
	ctests "" coverage -LE 'long|mutations'
	result=0
	/usr/bin/python3 tests/dev/coverage.py build/coverage >$results/coverage-lines.log 2>&1 || result=$?
	/usr/bin/python3 tests/dev/summary.py checks $results/coverage-lines.xml lines $results/coverage-lines.log $result
	cat $results/coverage-lines.log
}
part_instructions() { needs_release && at_once=0 pytests "" release tests/bench/test_instructions.py; }
part_seeing() {
	needs_release || return
	install_seeing || { failed_part "Grafana's model of a dashboard could not be fetched"; return; }
	at_once=0 pytests "" release tests/seeing
}
part_fences() {
	needs_release || return
	install_fences || { failed_part "the S3 server could not be installed"; return; }
	at_once=2 pytests "" release tests/fences
	grep -o 'name="lost of [^>]*' $results/fences.xml | sed 's/name="\(.*\)" value="\(.*\)" .*/\1: \2/'
}
part_clients() {
	needs_release || return
	install_clients || { failed_part "the generators could not be installed"; return; }
	pytests "" release tests/clients --ignore-glob="*/test_library*.py"
}
part_browser() {
	needs_release || return
	install_npm tests/browser || { failed_part "npm ci failed"; return; }
	at_once=2 pytests "" release tests/browser
}
part_helm() {
	needs_release || return
	install_helm || { failed_part "the tools could not be installed"; return; }
	pytests "" release tests/helm
}
part_packages() {
	needs_release || return
	build_package || { failed_part "the package does not build: see build/package.log"; return; }
	at_once=0 pytests "" release tests/packages # the tests of the machine go on one from the other
}
part_docker() {
	needs_release || return
	install_docker || { failed_part "the tools could not be installed"; return; }
	install_packages buildah debootstrap || true
	result=0
	logged $results/docker-build.log tests/docker/build.sh || result=$?
	why=$(tail -n 1 $results/docker-build.log)
	[ $result = 0 ] || [ $result = 77 ] || failed_part "the image: $why"
	[ $result = 0 ] || export REDLOCKD_NO_IMAGE="$why"
	pytests "" release tests/docker
	unset REDLOCKD_NO_IMAGE
}
# In a Debian 13 of its own, which takes root: without it the part is skipped.
part_debian13() {
	install_packages debootstrap || true
	result=0
	logged $results/debian13.txt tests/debian13/run.sh $results $build_packages $debian13_packages || result=$?
	cat $results/debian13.txt
	case $result in
	0) ;;
	77) skipped_part "$(tail -n 1 $results/debian13.txt)" ;;
	*) failed_part "$(tail -n 1 $results/debian13.txt)" ;;
	esac
}

# ---- a run ----

# The names of the parts that the arguments mean, each once.
select_parts() {
	for wanted in "$@"; do
		parts | awk -F '|' -v wanted="$wanted" '
			wanted == "all" || wanted == $1 || wanted == $2 { print $1; found = 1 }
			END { exit !found }' || { echo "dev: no such part: $wanted; see ./dev help tests" >&2; return 1; }
	done | awk '!seen[$0]++'
}

run_part() { # PART
	part=$1
	say "$part: $(parts | awk -F '|' -v part="$part" '$1 == part { print $4 }')"
	begun=$(now)
	if install_packages $(packages_of "$part"); then
		"part_$(echo "$part" | tr - _)" || true
	else
		failed_part "its packages could not be installed"
	fi
	echo "$part $(($(now) - begun))" >>$results/seconds
	echo "   $part: $(($(now) - begun)) s"
}

# All files that the tests make are below one folder, so that none is left. It is short: paths of sockets are limited.
end_tests() {
	stop_progress
	rm -rf "$TMPDIR"
}

test_parts() {
	selected=$(select_parts "$@") || exit 2
	[ -n "$selected" ] || exit 2
	rm -rf $results
	mkdir -p $results
	begun_all=$(now)
	# The quick set is installed at once, which is faster; the packages of other parts just before each part.
	quick_packages=""
	for part in $selected; do
		parts | grep -q "^$part|quick|" && quick_packages="$quick_packages $(packages_of "$part")"
	done
	install_packages $(printf '%s\n' $build_packages $run_packages $test_packages $quick_packages | sort -u)
	echo "install $(($(now) - begun_all))" >>$results/seconds
	TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/rXXXXXX")
	chmod 755 "$TMPDIR" # some tests run programs as another user
	export TMPDIR PYTHONPYCACHEPREFIX="$PWD/build/pycache"
	trap end_tests EXIT
	trap 'exit 130' INT TERM HUP
	for part in $selected; do
		run_part "$part"
	done
	say "result"
	/usr/bin/python3 tests/dev/summary.py sum $results
}
