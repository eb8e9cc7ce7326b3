# SPDX-License-Identifier: MIT
# Part of ./dev: installs what a command needs and what is missing.

say() { printf '\n== %s\n' "$*"; }

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		echo "dev: root or sudo is needed to install packages" >&2
		return 1
	fi
}

has() { command -v "$1" >/dev/null 2>&1; }

is_installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

# The Debian packages of a part of the tests.
packages_of() { # PART
	packages_for $(parts | awk -F '|' -v part="$1" '$1 == part { print $5 }')
}

# Those of tools that may be there without a package; other words are packages.
packages_for() { # WORD…
	for wanted in "$@"; do
		case $wanted in
		npm) has npm || echo nodejs npm ;;
		go) has go || echo golang-go ca-certificates ;;
		mvn) has mvn || echo maven ;;
		jdk) has javac || echo default-jdk-headless ;;
		*) echo "$wanted" ;;
		esac
	done
}

lists_are_new=no
update_lists() {
	[ $lists_are_new = no ] || return 0
	logged build/packages.log as_root apt-get update -q || return 1
	lists_are_new=yes
}

list_installed() { dpkg-query -W -f '${db:Status-Status} ${binary:Package}\n' | sed -n 's/^installed //p'; }

# The files of a package in a folder, given as a pattern of sed: their names.
files_of() { # PACKAGE FOLDER
	dpkg -L "$1" | sed -n "s,^$2/\([^/]*\)\$,\1,p"
}

# As `systemctl disable`, also where there is no systemd yet: an upgrade of the package leaves it so. Packages of the
# base system (systemd, man-db) stay as they are.
disable_services() { # PACKAGE…
	for package in "$@"; do
		[ "$(dpkg-query -W -f '${Priority}' "$package")" = optional ] || continue
		for script in $(files_of "$package" /etc/init.d); do
			as_root update-rc.d "$script" disable
		done
		for unit in $(files_of "$package" '\(/usr\)\?/lib/systemd/system' | grep -E '\.(service|socket|timer|path)$'); do
			as_root find /etc/systemd/system -lname "*/$unit" -delete
		done
	done
}

# A service that comes with a package is not started: no redis-server on its usual port, no Prometheus. Nor is it
# enabled at boot. Services that were there before stay as they are.
apt_install() ( # PACKAGE…, in a subshell: however it ends, no policy is left
	policy=/usr/sbin/policy-rc.d
	made_policy=no
	list_installed >build/packages.before
	end_install() {
		stop_progress
		disable_services $(list_installed | grep -vxFf build/packages.before) >>build/packages.log 2>&1 || true
		[ $made_policy = no ] || as_root rm -f $policy
	}
	trap end_install EXIT
	trap 'exit 130' INT TERM HUP
	if [ ! -e $policy ]; then
		made_policy=yes
		printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null && as_root chmod 755 $policy || exit 1
	fi
	logged build/packages.log as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -q --no-install-recommends "$@"
)

install_packages() {
	missing=""
	for package in "$@"; do
		is_installed "$package" || missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	[ "$(id -u)" = 0 ] || has sudo || {
		echo "dev: packages are missing; run as root: apt-get install$missing" >&2
		return 1
	}
	say "installing$missing"
	mkdir -p build
	echo $missing | tr ' ' '\n' >>build/packages.installed
	update_lists && apt_install $missing || {
		tail -20 build/packages.log >&2
		echo "dev: installing failed: see build/packages.log" >&2
		return 1
	}
}

# A command that may take long, with its output in a log: shown if it fails.
fetch() { # LOG COMMAND…
	fetch_log=build/$1.log
	shift
	mkdir -p build
	logged "$fetch_log" "$@" && return 0
	tail -20 "$fetch_log" >&2
	return 1
}

install_npm() { # FOLDER: the packages of its package-lock.json
	has npm || install_packages nodejs npm || return 1
	cmp -s "$1/package-lock.json" "$1/node_modules/.installed" && return 0
	say "installing the npm packages of $1"
	fetch npm npm_ci "$1" && cp "$1/package-lock.json" "$1/node_modules/.installed"
}
npm_ci() { (cd "$1" && npm ci --no-audit --no-fund --loglevel=error); }

# Go 1.22 or newer. Debian 12 has 1.19, which fetches a newer toolchain as a Go module: its sum is checked against Go's
# database.
go_toolchain=v0.0.1-go1.25.14
go_is_new() {
	has go && go version | awk '{ split(substr($3, 3), v, "."); exit !(v[1] > 1 || v[2] >= 22) }'
}
install_go() {
	[ ! -x build/tools/go/bin/go ] || PATH="$PWD/build/tools/go/bin:$PATH"
	! go_is_new || return 0
	has go || install_packages golang-go ca-certificates || return 1
	say "fetching a newer Go ($go_toolchain)"
	fetch go fetch_go && go_is_new
}
fetch_go() {
	from=$(cd / && go mod download -json "golang.org/toolchain@$go_toolchain.linux-$(go env GOARCH)" |
		sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
	[ -n "$from" ] || return 1
	rm -rf build/tools/go.new
	mkdir -p build/tools
	cp -r "$from" build/tools/go.new
	chmod -R u+w build/tools/go.new
	chmod +x build/tools/go.new/bin/* build/tools/go.new/pkg/tool/*/* # a module's files are not programs
	mv build/tools/go.new build/tools/go
	PATH="$PWD/build/tools/go/bin:$PATH"
}

pip_download() { # REQUIREMENTS FOLDER
	/usr/bin/python3 -m pip download -q --no-deps --require-hashes -r "$1" -d "$2"
}

# helm and the tools and schemas that check the charts, in build/tools; pinned by tests/helm/podsecurity/go.mod and
# tests/helm/requirements.txt.
install_helm() {
	mkdir -p build/tools
	cat tests/helm/podsecurity/go.mod tests/helm/podsecurity/*.go tests/helm/requirements.txt tests/helm/schemas.py \
		>build/helm.wanted
	cmp -s build/helm.wanted build/tools/helm.installed && return 0
	install_go || return 1
	say "building helm, kubeconform and podsecurity, fetching schemas"
	fetch helm build_helm && mv build/helm.wanted build/tools/helm.installed
}
build_helm() {
	minor=34
	chartutil=helm.sh/helm/v3/pkg/chartutil rules=helm.sh/helm/v3/pkg/lint/rules
	(cd tests/helm/podsecurity && go build -trimpath -o ../../../build/tools/ -ldflags "-s -w
		-X $chartutil.k8sVersionMajor=1 -X $chartutil.k8sVersionMinor=$minor
		-X $rules.k8sVersionMajor=1 -X $rules.k8sVersionMinor=$minor" \
		. helm.sh/helm/v3/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform) &&
		pip_download tests/helm/requirements.txt build/tools &&
		(cd tests/helm/podsecurity && go mod download -json github.com/prometheus-operator/prometheus-operator@v0.85.0) \
			>build/tools/prometheus-operator.json &&
		/usr/bin/python3 tests/helm/schemas.py build/tools
}

# The generators of clients, in build/tools/clients.
maven_copy=org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies
install_clients() {
	install_go || return 1
	tools=build/tools/clients
	mkdir -p build/tools
	cat tests/clients/requirements.txt tests/clients/generated/*/requirements.txt tests/clients/generated/java/pom.xml \
		tests/clients/generated/typescript/package-lock.json >build/clients.wanted
	cmp -s build/clients.wanted $tools.installed && return 0
	say "fetching the generators of clients (pip, npm, Maven)"
	fetch clients fetch_clients && mv build/clients.wanted $tools.installed
}
fetch_clients() {
	rm -rf $tools
	mkdir $tools
	pip_download tests/clients/requirements.txt $tools &&
		/usr/bin/python3 -m zipfile -e $tools/openapi_generator_cli-*.whl $tools && rm $tools/*.whl &&
		/usr/bin/python3 -m pip install -q --no-deps --require-hashes --root-user-action=ignore --target $tools/python \
			-r tests/clients/generated/python/requirements.txt &&
		mvn -q -B -f tests/clients/generated/java/pom.xml "$maven_copy" -DoutputDirectory="$PWD/$tools/java" &&
		cp tests/clients/generated/typescript/package*.json $tools &&
		npm_ci $tools
}

# The parser of docker compose and the schema of the SBOM, pinned by tests/docker/compose/go.mod and
# tests/docker/requirements.txt.
install_docker() {
	mkdir -p build/tools
	cat tests/docker/compose/go.* tests/docker/compose/*.go tests/docker/requirements.txt >build/docker.wanted
	cmp -s build/docker.wanted build/tools/docker.installed && return 0
	install_go || return 1
	say "building the parser of compose files, fetching the schema of CycloneDX"
	fetch docker fetch_docker && mv build/docker.wanted build/tools/docker.installed
}
fetch_docker() {
	(cd tests/docker/compose && go build -trimpath -o ../../../build/tools/ .) &&
		pip_download tests/docker/requirements.txt build/tools
}

# Grafana's model of a dashboard, pinned by tests/seeing/requirements.txt.
install_seeing() {
	mkdir -p build/tools
	cmp -s tests/seeing/requirements.txt build/tools/seeing.installed && return 0
	say "fetching Grafana's model of a dashboard"
	rm -f build/tools/grafana_foundation_sdk-*.whl
	fetch seeing pip_download tests/seeing/requirements.txt build/tools &&
		cp tests/seeing/requirements.txt build/tools/seeing.installed
}

# The S3 server of the tests of the fence kits and its client, pinned by tests/fences/requirements.txt.
install_fences() {
	mkdir -p build/tools
	cmp -s tests/fences/requirements.txt build/tools/fences.installed && return 0
	say "fetching the S3 server"
	rm -rf build/tools/fences
	fetch fences /usr/bin/python3 -m pip install -q --no-deps --require-hashes --root-user-action=ignore \
		--target build/tools/fences -r tests/fences/requirements.txt &&
		cp tests/fences/requirements.txt build/tools/fences.installed
}

# The tools of the recipes of docs/how-to/recipes, pinned by tests/adapters/requirements.txt.
install_recipes() {
	mkdir -p build/tools
	cmp -s tests/adapters/requirements.txt build/tools/adapters.installed && return 0
	say "fetching Celery, Ansible and Alembic"
	rm -rf build/tools/adapters
	fetch adapters /usr/bin/python3 -m pip install -q --no-deps --require-hashes --root-user-action=ignore \
		--target build/tools/adapters -r tests/adapters/requirements.txt &&
		cp tests/adapters/requirements.txt build/tools/adapters.installed
}

# The services that the benchmarks compare with: tests/bench/peers.
install_peers() {
	install_redsync
	install_npm tests/bench/peers/node-redlock
}
install_redsync() {
	install_go
	say "building the service with redsync"
	mkdir -p build/tools/bench
	fetch redsync build_redsync
}
build_redsync() { (cd tests/bench/peers/redsync && go build -trimpath -o ../../../../build/tools/bench/redsync .); }

# The systems that takeover.py compares with. Kubernetes and Redisson are only for those who measure them, by its option
# --systems or by default: to build a kube-apiserver takes minutes.
install_takeover() { # OPTION…
	install_packages etcd-client iproute2 openssl python3-h11 python3-venv zookeeper
	install_redsync
	install_kazoo
	case " $* " in
	*" -h "* | *" --help "*) return 0 ;;
	*--s*) ;;
	*) set -- client-go redisson ;;
	esac
	case $* in *client-go*) install_client_go ;; esac
	case $* in *redisson*) install_redisson ;; esac
}
install_kazoo() {
	! build/tools/kazoo/bin/python -c 'import kazoo' 2>/dev/null || return 0
	say "installing kazoo"
	/usr/bin/python3 -m venv --system-site-packages build/tools/kazoo
	fetch kazoo build/tools/kazoo/bin/pip install --quiet kazoo==2.11.0
}
install_client_go() {
	mkdir -p build/tools/bench
	cat tests/bench/peers/client-go/go.mod tests/bench/peers/client-go/main.go >build/client-go.wanted
	cmp -s build/client-go.wanted build/tools/bench/client-go.installed && return 0
	install_go
	say "building client-go's leader election and kube-apiserver (minutes)"
	fetch client-go build_client_go && mv build/client-go.wanted build/tools/bench/client-go.installed
}
build_client_go() {
	(cd tests/bench/peers/client-go &&
		go build -trimpath -ldflags "-s -w" -o ../../../../build/tools/bench/ . k8s.io/kubernetes/cmd/kube-apiserver)
}
install_redisson() {
	mkdir -p build/tools/bench
	cat tests/bench/peers/redisson/pom.xml tests/bench/peers/redisson/*.java >build/redisson.wanted
	cmp -s build/redisson.wanted build/tools/bench/redisson.installed && return 0
	has mvn || install_packages maven
	has javac || install_packages default-jdk-headless
	say "fetching Redisson (Maven)"
	rm -rf build/tools/bench/redisson
	fetch redisson build_redisson && mv build/redisson.wanted build/tools/bench/redisson.installed
}
build_redisson() {
	mvn -q -B -f tests/bench/peers/redisson/pom.xml "$maven_copy" -DoutputDirectory="$PWD/build/tools/bench/redisson" &&
		javac -cp 'build/tools/bench/redisson/*' -d build/tools/bench/redisson tests/bench/peers/redisson/Contender.java
}
