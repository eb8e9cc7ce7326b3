# SPDX-License-Identifier: MIT
"""Completion of redlockctl: real shells on a terminal, and the Tab key."""

import os
import pathlib
import shutil

import pytest

import harness
from ctl import BINARY, Shell
from fixtures import needs_pts
from harness import wait_until

pytestmark = needs_pts

FOLDER = pathlib.Path(harness.ROOT, "cli", "completion")
# Shows what a command line came to, but asks the server for names as always.
SHOWN = 'redlockctl() { if [ "$1" = list ]; then command redlockctl "$@"; else printf "<%s>" "$@"; echo .; fi; }\n'
LOADED = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], f"source {FOLDER}/redlockctl.bash; bind 'set completion-query-items 0'\n"),
    "zsh": (["zsh", "-f", "-i"], f"PS1='$ '; fpath=({FOLDER} $fpath); autoload -Uz compinit; compinit -D -u; unsetopt beep prompt_sp\n"),
}


@pytest.fixture(params=["bash", "zsh"])
def shell(request, lab, service):
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} here")
    command, load = LOADED[request.param]
    started = Shell(lab, service, *command)
    started.name = request.param
    for line in (f"PATH={os.path.dirname(BINARY)}:$PATH\n", load, SHOWN, "echo rea''dy\n"):
        started.type(line)
    started.sees("ready")
    return started


def completes(shell, typed, shown, rest=""):
    """Types text and Tab, and waits until the shell has added `rest`: Enter would come too early while it asks a
    server."""
    shell.type(typed)
    if rest:
        shell.sees(rest)
    shell.type("\n")
    shell.sees(shown + ".")


@pytest.mark.parametrize("typed, shown", [
    ("redlockctl rel\t", "<release>"), ("redlockctl mas\t", "<masters>"), ("redlockctl hea\t", "<health>"), ("redlockctl health --rea\t", "<health><--ready>"), ("redlockctl --vers\t", "<--version>"),
    ("redlockctl dri\t", "<drill>"), ("redlockctl drill a --jun\t", "<drill><a><--junit>"),
    ("redlockctl run a --kill\t", "<run><a><--kill-after>"), ("redlockctl acquire a --confl\t", "<acquire><a><--conflict-exit-code>"),
    ("redlockctl extend a --token-\t", "<extend><a><--token-file>"), ("redlockctl release --token-\t", "<release><--token-file>"),
    ("redlockctl acquire a --ttl 25\t", "<acquire><a><--ttl><250ms>"), ("redlockctl --server unix:/x sta\t", "<--server><unix:/x><status>"),
    ("redlockctl run a --server htt\t", "<run><a><--server><http://127.0.0.1:8080>"),
    ("redlockctl acquire a --token-file /etc/hostn\t", "<acquire><a><--token-file></etc/hostname>"),
    ("redlockctl release a --forc\t", "<release><a><--force>"), ("redlockctl ke\t", "<key>"), ("redlockctl key ha\t", "<key><hash>"),
    ("redlockctl key new --pref\t", "<key><new><--prefix>"), ("redlockctl key new --right insp\t", "<key><new><--right><inspect>"),
    ("redlockctl key new --prefix a --na\t", "<key><new><--prefix><a><--name>"), ("redlockctl key hash --key-file /etc/hostn\t", "<key><hash><--key-file></etc/hostname>"),
    ("redlockctl status a --cac\t", "<status><a><--cacert>"), ("redlockctl --key /etc/hostn\t", "<--key></etc/hostname>"),
    ("redlockctl --cert /x sta\t", "<--cert></x><status>"),
    ("redlockctl run a readlin\t", "<run><a><readlink>"), ("redlockctl run a --ttl 30s pwd /etc/hostn\t", "<run><a><--ttl><30s><pwd></etc/hostname>"),
    ("redlockctl run a --qui\t", "<run><a><--quiet>"), ("redlockctl status a --ex\t", "<status><a><--exit-code>"), ("redlockctl help mas\t", "<help><masters>"),
    ("redlockctl run a -- readlin\t", "<run><a><--><readlink>"), ("redlockctl run a --ttl 30s -- pwd /etc/hostn\t", "<run><a><--ttl><30s><--><pwd></etc/hostname>"),
])
def test_words(shell, typed, shown):
    completes(shell, typed, shown)


def test_names(lab, shell, service):
    """Names come from the server, and are nothing but names: a name like a shell expansion is passed on unchanged."""
    prefix = f"completion-{shell.name}"
    cases = [("/", "/plain", "plain"), (":", ":colon", "colon"), ("\\ ", " blank", "blank"), ("\\$", "$(touch bad1)", "bad1"),
             ("\\`", "`touch bad2`", "bad2"), ("\\;", ";semicolon", "semicolon"), ("-", "-ümlaut", "mlaut")]
    leases = [service.acquire(prefix + name, 60000) for _, name, _ in cases]
    for typed, name, rest in cases:
        completes(shell, f"redlockctl status {prefix}{typed}\t", f"<status><{prefix}{name}>", rest)
    shell.type(f"redlockctl status {prefix}\t\t")
    shell.sees("plain")
    assert not [name for name in os.listdir(lab.folder) if name.startswith("bad")]
    for lease in leases:
        wait_until(lambda one=lease: service.release(one).status == 204, what="released")
