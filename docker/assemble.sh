#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes the root of the image: the two programs, installed ones that are named (PROGRAM), the libraries that they load, CA certificates, and their origin.
#
#   docker/assemble.sh BUILD ROOT VERSION REVISION [PROGRAM…]
#
# Runs in the build stages of docker/Dockerfile, on Debian 13, from whose packages the libraries are. Three things name them:
#   /var/lib/dpkg/status.d/              the entries of the packages, as scanners look for them where there is no dpkg, and the MD5 sums of their files
#   /usr/share/doc/PACKAGE/copyright     their licences
#   /usr/share/redlockd/sbom.cdx.json    CycloneDX 1.6: packages, versions, licences, and each file with its SHA-256
set -eu
build=$1 root=$2 version=$3 revision=$4
shift 4
architecture=$(dpkg --print-architecture)
. /etc/os-release

# ---- what the image is made of ----

rm -rf "$root"
mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/usr/lib64" "$root/etc" "$root/var/lib/dpkg/status.d" "$root/usr/share/redlockd"
mkdir "$root/dev" "$root/proc" "$root/sys" "$root/run" # where something is mounted; with a read-only root nobody can make them later
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"

list=$(mktemp) # lines "PACKAGE FILE", for each file that is of a package

# Copies a file of a package under its own name, and the links that lead to it.
take() {
	path=$(realpath -s "$(realpath "$(dirname "$1")")/$(basename "$1")")
	[ ! -e "$root$path" ] || return 0
	mkdir -p "$root$(dirname "$path")"
	cp -P --preserve=mode,timestamps "$path" "$root$path"
	if [ -L "$path" ]; then
		take "$(dirname "$path")/$(readlink "$path")"
	else
		package=$(dpkg-query -S "$path" | sed 's/:.*//')
		echo "$package $path" >>"$list"
	fi
}

for program in redlockd redlockctl; do
	strip -o "$root/usr/bin/$program" "$build/$program"
	chmod 755 "$root/usr/bin/$program"
done
# "libuv.so.1 => /lib/x86_64-linux-gnu/libuv.so.1 (0x…)", and the loader alone on its line. All that it loads itself are in turn in that list.
ldd "$build/redlockd" "$build/redlockctl" "$@" >"$list.ldd"
! grep "not found" "$list.ldd" || exit 1
for library in $(sed -nE 's/^\s(.* => )?(\/\S+) \(0x.*/\2/p' "$list.ldd" | sort -u); do
	take "$library"
done
for program; do
	take "$program"
done
take /usr/lib/os-release
ln -s ../usr/lib/os-release "$root/etc/os-release"
# The one file that no package lists: ca-certificates makes it. libcurl looks there by itself, OpenSSL behind a link.
install -Dm644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
echo "ca-certificates /etc/ssl/certs/ca-certificates.crt" >>"$list"
mkdir -p "$root/usr/lib/ssl"
ln -s /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"

echo "root:x:0:0:root:/:/nonexistent
redlockd:x:64801:64801:redlockd:/nonexistent:/nonexistent" >"$root/etc/passwd"
echo "root:x:0:
redlockd:x:64801:" >"$root/etc/group"
echo "hosts: files dns" >"$root/etc/nsswitch.conf"
install -Dm644 /src/LICENSE "$root/usr/share/doc/redlockd/copyright"

# ---- where it comes from ----

packages=$(cut -d' ' -f1 "$list" | sort -u)
for package in $packages; do
	install -Dm644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
	echo "$package /usr/share/doc/$package/copyright" >>"$list"
	dpkg-query -s "$package" >"$root/var/lib/dpkg/status.d/$package"
	sums=$(dpkg-query --control-path "$package" md5sums)
	grep "^$package " "$list" | while read -r _ file; do
		grep -F "  ${file#/}" "$sums" || true # what a maintainer script made has no sum
	done >"$root/var/lib/dpkg/status.d/$package.md5sums"
done

# The files of a package, or of ours, as CycloneDX has them.
sbom_files() {
	while read -r file; do
		printf '%s %s\n' "$(sha256sum <"$root$file" | cut -d' ' -f1)" "$file"
	done | jq -Rn '[inputs | split(" ") | {type: "file", name: .[1], hashes: [{alg: "SHA-256", content: .[0]}]}]'
}

# The licences that a machine-readable copyright file names; they are Debian's names, which are not all SPDX's. Others have to be read by people.
sbom_licences() {
	file=/usr/share/doc/$1/copyright
	if head -5 "$file" | grep -q '^Format:.*copyright-format'; then
		sed -nE 's/^License:\s*(\S.*\S)\s*$/\1/p' "$file" | sort -u | jq -Rn '[inputs | {license: {name: .}}]'
	else
		jq -n --arg name "see $file" '[{license: {name: $name}}]'
	fi
}

sbom_package() {
	files=$(grep "^$1 " "$list" | cut -d' ' -f2 | sort | sbom_files)
	jq -n --arg name "$1" --arg version "$(dpkg-query -Wf '${Version}' "$1")" --arg source "$(dpkg-query -Wf '${source:Package}' "$1")" \
		--arg architecture "$(dpkg-query -Wf '${Architecture}' "$1")" --arg distribution "$ID-$VERSION_ID" --argjson files "$files" \
		--argjson licences "$(sbom_licences "$1")" '
		("pkg:deb/debian/\($name)@\($version | @uri)?arch=\($architecture)&distro=\($distribution)&upstream=\($source | @uri)") as $purl |
		{type: "library", "bom-ref": $purl, name: $name, version: $version, purl: $purl, licenses: $licences, components: $files}'
}

sbom_own() {
	files=$(cd "$root" && find usr/bin usr/share/doc/redlockd etc -type f ! -path '*/ca-certificates.crt' | sort | sed 's|^|/|' | sbom_files)
	jq -n --arg version "$version" --arg revision "$revision" --argjson files "$files" '
		{type: "application", "bom-ref": "redlockd", name: "redlockd", version: $version, licenses: [{license: {id: "MIT"}}],
		 properties: [{name: "redlockd:revision", value: $revision}], components: $files}'
}

{
	sbom_own
	for package in $packages; do
		sbom_package "$package"
	done
} | jq -s --arg version "$version" --arg architecture "$architecture" --arg system "$ID" --arg release "$VERSION_ID" '
	{bomFormat: "CycloneDX", specVersion: "1.6", version: 1,
	 metadata: {component: {type: "container", "bom-ref": "image", name: "redlockd", version: $version,
	                        properties: [{name: "redlockd:architecture", value: $architecture}]}},
	 components: ([{type: "operating-system", "bom-ref": "system", name: $system, version: $release}] + .),
	 dependencies: [{ref: "image", dependsOn: ["system", "redlockd"]},
	                {ref: "redlockd", dependsOn: [.[] | select(.type == "library") | ."bom-ref"]}]}' >"$root/usr/share/redlockd/sbom.cdx.json"
chmod -R go-w "$root"
