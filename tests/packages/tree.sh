#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes a Debian, of the release that this machine has, with what the package needs, but without the package: the lower half of the machines of
# test_machine.py.
#
#   tests/packages/tree.sh TREE PACKAGE…
#
# With debootstrap, from the mirror that this machine's own apt uses; kept from run to run (./dev clean removes it). Ends with 77, and a last line that says
# why, where such a tree cannot be made. All processes in the tree run in namespaces of their own and end with this script.
set -eu
tree=$1
shift
. /etc/os-release

cannot() {
	echo "$1"
	exit 77
}

[ "$(id -u)" = 0 ] || cannot "root is needed for debootstrap"
[ "$ID" = debian ] || cannot "made from the mirror of a Debian, and this is $ID"
command -v debootstrap >/dev/null || cannot "debootstrap is not installed"
unshare --mount --pid --fork true 2>/dev/null || cannot "this machine allows no namespaces of our own (unshare)"
[ "$(cat "$tree/packages" 2>/dev/null)" != "$VERSION_CODENAME $*" ] || exit 0

mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' | sed -n "s/^$VERSION_CODENAME main //p" | head -1)
[ -n "$mirror" ] || cannot "no apt source of $VERSION_CODENAME main on this machine"
rm -rf --one-file-system "$tree" "$tree.new"
mkdir -p "$(dirname "$tree")"
debootstrap --variant=minbase "$VERSION_CODENAME" "$tree.new" "$mirror" || cannot "debootstrap failed"
# Nothing is started when its package is installed. Where this machine's apt goes through a proxy, this one does too.
printf '#!/bin/sh\nexit 101\n' >"$tree.new/usr/sbin/policy-rc.d"
chmod 755 "$tree.new/usr/sbin/policy-rc.d"
apt-config dump | grep '^Acquire::' >"$tree.new/etc/apt/apt.conf.d/90host" || true
# shellcheck disable=SC2016
unshare --mount --pid --fork --kill-child sh -c '
	tree=$1
	shift
	mount -t proc proc "$tree/proc" && mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp" || exit 1
	exec chroot "$tree" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
' sh "$tree.new" $(env | grep -i '^[a-z]*_proxy=' || true) \
	sh -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends $* && apt-get clean" </dev/null ||
	cannot "its packages could not be installed"
rm "$tree.new/usr/sbin/policy-rc.d"
echo "$VERSION_CODENAME $*" >"$tree.new/packages"
mv "$tree.new" "$tree"
