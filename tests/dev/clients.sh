# SPDX-License-Identifier: MIT
# Part of ./dev: builds the client libraries, their drivers in build/drivers, their packages in build/package/clients.

# The driver has another package time, so that tests can move its time of day: clock/moved_clock.go says how.
build_driver_go() {
	(
		root=$PWD
		cd tests/clients/drivers/go || exit 1
		source=$(go env GOROOT)/src/time
		sed '/^func Now() /,/^}/s/^\tsec, nsec, mono := .*/&\n\tsec, nsec = moved(sec, nsec)/' "$source/time.go" \
			>"$root/build/drivers/time.go"
		printf '{"Replace": {"%s": "%s", "%s": "%s"}}\n' "$source/time.go" "$root/build/drivers/time.go" \
			"$source/moved_clock.go" "$PWD/clock/moved_clock.go" >"$root/build/drivers/overlay.json"
		go build -overlay "$root/build/drivers/overlay.json" -o "$root/build/drivers/go" .
	)
}
build_driver_java() {
	javac --release 11 -Xlint:all -Werror -d build/drivers/java \
		$(find clients/java/src/main -name '*.java') tests/clients/drivers/Driver.java
}

# The driver for Node is not built, but the types of the library are checked.
build_driver_node() { install_npm tests/clients/types; }

build_drivers() {
	mkdir -p build/drivers
	say "building the drivers of the client libraries"
	install_go && logged build/drivers.log build_driver_go && logged build/drivers-java.log build_driver_java &&
		build_driver_node
}

# A copy is built, since a build leaves files beside the sources. Needs pip, setuptools and wheel, but no network.
package_client_python() {
	made=build/package/clients copy=$(mktemp -d) status=0
	cp -r clients/python/. "$copy" && rm -rf "$copy"/build "$copy"/src/*.egg-info $made/redlockd-*-py3-*.whl $made/redlockd-*.tar.gz &&
		find "$copy" -name __pycache__ -prune -exec rm -r {} + &&
		/usr/bin/python3 -m pip wheel --no-deps --no-build-isolation --no-index -w $made "$copy" &&
		(made=$PWD/$made && cd "$copy" && /usr/bin/python3 -c \
			'import sys, setuptools.build_meta as build; build.build_sdist(sys.argv[1])' "$made") || status=1
	rm -rf "$copy"
	return $status
}
package_client_go() { /usr/bin/python3 tests/dev/go_module.py build/package/clients/go; }
package_client_node() {
	rm -f build/package/clients/redlockd-*.tgz
	npm pack --silent --pack-destination build/package/clients ./clients/node
}
package_client_java() {
	rm -rf build/java
	mvn -q -B -Prelease -f clients/java/pom.xml -Dredlockd.build="$PWD/build/java" package || return 1
	rm -f build/package/clients/redlockd-[0-9]*.jar
	cp build/java/redlockd-*.jar build/package/clients
}
# The library and the store of Symfony Lock, as Composer takes them from a repository of the type artifact.
package_client_php() {
	made=$PWD/build/package/clients
	for folder in clients/php clients/adapters/symfony-lock; do
		name=$(sed -n 's,^  "name": "redlockd/\(.*\)"\,$,redlockd-\1,p' $folder/composer.json)
		version=$(sed -n 's,^  "version": "\(.*\)"\,$,\1,p' $folder/composer.json)
		rm -f "$made/$name"-*.zip
		(cd $folder && /usr/bin/python3 -m zipfile -c "$made/$name-$version.zip" LICENSE README.md composer.json src) || return 1
	done
}
package_client_shedlock() {
	rm -rf build/java-shedlock
	mvn -q -B -f tests/adapters/shedlock.xml -pl :redlockd-shedlock -am -Dredlockd.build="$PWD/build/java-shedlock/library" \
		-Dadapter.build="$PWD/build/java-shedlock/adapter" package || return 1
	rm -f build/package/clients/redlockd-shedlock-*.jar
	cp build/java-shedlock/adapter/redlockd-shedlock-*.jar build/package/clients
}

# The packages that registries want, in build/package/clients; without arguments all of them. Those for Go and PHP have
# their adapters with them. One that fails keeps no other from being made.
package_clients() { # [LANGUAGE…]
	all="python go node java php shedlock" needed=python3 failed=""
	[ $# -gt 0 ] || set -- $all
	for language in "$@"; do
		case $language in
		python) needed="$needed python3-pip python3-setuptools python3-wheel" ;;
		go | php) ;;
		node) needed="$needed npm" ;;
		java | shedlock) needed="$needed jdk mvn" ;;
		*)
			echo "dev: there is no package of clients for $language: $all" >&2
			return 2
			;;
		esac
	done
	install_packages $(packages_for $needed | tr ' ' '\n' | sort -u) || return 1
	mkdir -p build/package/clients
	for language in "$@"; do
		say "packaging for $language"
		logged "build/package-$language.log" "package_client_$language" || {
			tail -20 "build/package-$language.log" >&2
			failed="$failed build/package-$language.log"
		}
	done
	say "in build/package/clients: $(ls build/package/clients | tr '\n' ' ')"
	[ -z "$failed" ] || echo "dev: packaging failed: see$failed" >&2
	[ -z "$failed" ]
}

# Compiles the adapter, its tests and its example with the library, so that no test waits for Maven.
build_adapter_shedlock() {
	mkdir -p build
	say "building the adapter for ShedLock"
	made=$PWD/build/shedlock
	logged build/shedlock.log mvn -q -B -f tests/adapters/shedlock.xml -Dmaven.test.skip=false \
		-Dredlockd.build="$made/library" -Dadapter.build="$made/adapter" -Dexample.build="$made/example" \
		test-compile org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath
}

# Compiles the adapters for Go with their frameworks, so that no test waits for client-go: minutes of a processor, once.
build_adapters_go() {
	mkdir -p build/adapters
	say "building the adapters for gocron and client-go"
	for adapter in gocron client-go; do
		(cd clients/adapters/$adapter && logged "../../../build/$adapter.log" \
			go test -c -ldflags="-s -w" -o ../../../build/adapters/$adapter.test .) || return 1
	done
}
