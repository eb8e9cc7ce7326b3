#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the images of docker/Dockerfile with buildah, on a Debian 13 of our own in place of debian:trixie-slim, and lays them out for the tests:
#
#   build/docker/base/       the Debian 13, made by debootstrap; kept from run to run, as are the packages that were fetched (apt/)
#   build/docker/image/      the root of the image
#   build/docker/image.json  its configuration, as `buildah inspect` shows it
#   build/docker/dev/, build/docker/dev.json    the same of the target dev
#
# Where nothing that goes into it has changed, what is there is kept. Needs root (debootstrap, chroot), a Debian and its mirror, buildah: ends with 77 and a
# line that says why where there is none. No container engine is needed, and nothing outside build/docker is touched.
set -eu
cd "$(dirname "$0")/../.."
home=$PWD/build/docker
. /etc/os-release

cannot() {
	echo "$1"
	exit 77
}

[ "$(id -u)" = 0 ] || { sudo -n true 2>/dev/null && exec sudo -n "$0"; } || cannot "root or sudo is needed to build an image"
[ "$ID" = debian ] || cannot "its base is made from the mirror of a Debian, and this is $ID"
for program in debootstrap buildah unshare; do
	command -v $program >/dev/null || cannot "$program is not installed"
done
unshare --mount --pid --fork true 2>/dev/null || cannot "this machine allows no namespaces of our own (unshare)"
mkdir -p "$home/apt/partial" "$home/tmp"

# ---- the base ----

make_base() {
	mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' | sed -n "s/^$VERSION_CODENAME main //p" | head -1)
	[ -n "$mirror" ] || { echo "no apt source of $VERSION_CODENAME main on this machine"; return 1; }
	rm -rf --one-file-system "$home/base" "$home/base.new" "$home/storage"
	# The mounts of debootstrap end with the namespace.
	unshare --mount --pid --fork --kill-child debootstrap --variant=minbase trixie "$home/base.new" "$mirror" || return 1
	# As Debian's own images have it: nobody needs what is half unpacked when the power fails. Where this machine's apt goes through a proxy, this one does too.
	echo force-unsafe-io >"$home/base.new/etc/dpkg/dpkg.cfg.d/docker-apt-speedup"
	apt-config dump | grep '^Acquire::' >"$home/base.new/etc/apt/apt.conf.d/90host" || true
	rm -f "$home/base.new"/var/cache/apt/archives/*.deb
	mv "$home/base.new" "$home/base"
}

# ---- the image ----

container_tool() {
	TMPDIR=$home/tmp buildah --storage-driver vfs --root "$home/storage/root" --runroot "$home/storage/run" "$@"
}

import_base() {
	! container_tool inspect --type image localhost/redlockd-base >/dev/null 2>&1 || return 0
	container=$(container_tool from scratch)
	container_tool add --quiet "$container" "$home/base" / && container_tool commit --quiet --rm "$container" localhost/redlockd-base
}

build_image() { # NAME [OPTION…]
	name=$1
	shift
	container_tool bud --isolation chroot --format docker --pull-never --build-arg BASE=localhost/redlockd-base --build-arg REVISION=0123456789ab \
		--volume "$home/apt:/var/cache/apt/archives:rw" --tag "localhost/redlockd-$name" --file docker/Dockerfile "$@" .
}

lay_out() { # NAME
	container=$(container_tool from --pull-never "localhost/redlockd-$1")
	rm -rf "${home:?}/$1"
	cp -a "$(container_tool mount "$container")" "$home/$1"
	container_tool inspect --type image "localhost/redlockd-$1" >"$home/$1.json"
	container_tool rm "$container"
}

build_images() {
	import_base && build_image image && build_image dev --target dev && lay_out image && lay_out dev && container_tool rmi --prune
}

# The sources of the image: the files that .dockerignore lets in, the Dockerfile and this.
made_of() {
	sed -n 's/^!//p' .dockerignore | while read -r path; do
		[ ! -e "$path" ] || echo "$path"
	done | tar --sort=name --mtime=@0 --owner=0 --group=0 --mode=a=r -cf - --files-from=- .dockerignore docker/Dockerfile tests/docker/build.sh | sha256sum
}

# Mirrors come and go: that is no fault of what is tested.
[ -x "$home/base/bin/sh" ] || make_base >"$home/base.log" 2>&1 || cannot "no Debian 13 could be made: $(tail -1 "$home/base.log" | tr -d '"<>&')"
now=$(made_of)
[ "$(cat "$home/made_of" 2>/dev/null)" != "$now" ] || { echo "nothing has changed: the image is that of before"; exit 0; }
rm -f "$home/made_of"
build_images >"$home/build.log" 2>&1 || {
	tail -30 "$home/build.log"
	grep -q '^E: \(Failed to fetch\|Unable to locate\|Package .* has no\)' "$home/build.log" && cannot "its packages could not be fetched"
	exit 1
}
echo "$now" >"$home/made_of"
