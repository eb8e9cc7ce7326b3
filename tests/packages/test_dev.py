# SPDX-License-Identifier: MIT
"""The packages that ./dev installs, on a Debian of their own (tree.sh): none of their services is started or enabled at boot, also after an upgrade, and
services that were there before stay as they were. The mirror of this machine is needed."""

import subprocess

import pytest

from harness import DIES_WITH_US, ROOT
from test_machine import HERE, PACKAGES, TREE, dependencies

WANTED = "haproxy nginx-light"
LINKS = "find /etc/systemd/system /etc/rc?.d -type l | sort"
# All that is written is in memory and ends with the namespaces.
ENTER = """
    mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root" &&
        mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root" && mount -t proc proc "$1/root/proc" || exit 77
    cp -r --parents dev tests/dev "$1/root/root" && cd "$1/root" && exec chroot . /usr/bin/env -i $4 \
        HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -c "cd /root && $3"
"""
PROXIES = "env | grep -i '^[a-z]*_proxy=' || true"


@pytest.fixture(scope="module")
def tree(package):
    made = subprocess.run([HERE / "tree.sh", TREE, *PACKAGES, *dependencies(package)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if made.returncode == 77:
        pytest.skip("no Debian: " + made.stdout.strip().splitlines()[-1])
    assert made.returncode == 0, made.stdout + made.stderr


def sh(folder, script):
    proxies = subprocess.run(["sh", "-c", PROXIES], capture_output=True, text=True, check=True).stdout
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", folder, TREE, script, " ".join(proxies.split())]
    done = subprocess.run([*DIES_WITH_US, *command], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("no overlay can be mounted here, or its packages could not be fetched: " + done.stderr[-300:])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_no_service_is_left_enabled(tree, tmp_path):
    """redis-server is in the tree: the user's own."""
    install = f". tests/dev/packages.sh; . tests/dev/builds.sh; install_packages redis-server {WANTED}"
    parts = sh(tmp_path, f"""
        apt-get update -qq && apt-get install -y -qq --no-install-recommends --download-only {WANTED} >/dev/null || exit 77
        {LINKS}; echo ---; {install} || exit 1; echo ---; {LINKS}; echo ---; cat build/packages.installed; ls /usr/sbin/policy-rc.d; grep -lE '^(nginx|haproxy)$' /proc/[0-9]*/comm
        dpkg-query -W -f '${{db:Status-Status}} ' {WANTED} nginx; echo ---
        printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
        apt-get install -qq --reinstall haproxy nginx >/dev/null; {LINKS}; echo ---; ./dev clean; ls build; ./dev help""").split("---\n")
    before, told, after, rest, again, help_text = parts
    assert "redis-server" in before and "multi-user.target.wants/redis-server.service" in before
    assert set(before.splitlines()) <= set(after.splitlines())
    for links in (after, again):
        new = sorted(set(links.splitlines()) - set(before.splitlines()))
        assert new and all(name.startswith("/etc/rc") and "/K01" in name for name in new), new
    assert told.strip() == f"== installing {WANTED}"
    assert rest.split() == [*WANTED.split(), "installed", "installed", "installed"], "recorded, installed, no policy left, nothing started"
    assert help_text.startswith("packages.installed\n"), "what ./dev clean keeps"
    assert "purge --autoremove $(cat build/packages.installed)" in help_text and "haproxy, nginx" in help_text
