#!/bin/sh
# SPDX-License-Identifier: MIT
# Boots the Debian of a tree: its own systemd as the first process of namespaces of its own, with a network of its own and nothing in it but loopback.
#
#   unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --net machine.sh TREE FILE…
#
# The files go to /root. All that is written goes to memory and ends with the machine. The root is exchanged (pivot_root) and not changed (chroot): in a
# chroot no process may have users of its own (PrivateUsers=). It is shared within the machine, or else systemd could not mount credentials into services.
# Ends with 77 where this cannot be done on this machine.
set -u
tree=$1
shift

made() {
	mount -t tmpfs -o mode=755 tmpfs "$tree.mnt" && mkdir "$tree.mnt/upper" "$tree.mnt/work" "$tree.mnt/root" &&
		mount -t overlay overlay -o "lowerdir=$tree,upperdir=$tree.mnt/upper,workdir=$tree.mnt/work" "$tree.mnt/root" && root=$tree.mnt/root &&
		mount -t proc proc "$root/proc" && mount -t sysfs sysfs "$root/sys" && mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" &&
		mount -t tmpfs -o mode=755 tmpfs "$root/run" && mount -t tmpfs -o mode=1777 tmpfs "$root/tmp" && mount -t tmpfs -o mode=755 tmpfs "$root/dev" &&
		mkdir "$root/dev/pts" "$root/dev/shm" && mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" && ln -s pts/ptmx "$root/dev/ptmx" || return 1
	for device in null zero full random urandom tty; do
		touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device" || return 1
	done
}

mkdir -p "$tree.mnt"
mount --make-rprivate / && made || {
	echo "this machine lets us mount no overlay, no cgroup2 or no devices"
	exit 77
}
cp "$@" "$root/root/" || exit 1
cd "$root" && mkdir old && pivot_root . old || exit 77
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=unshare sh -c 'umount -l /old && rmdir /old && mount --make-rshared / &&
	exec /lib/systemd/systemd --system --log-target=console --show-status=no --unit=multi-user.target' </dev/null
