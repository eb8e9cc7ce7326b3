# SPDX-License-Identifier: MIT
"""`cmake --install`: which files, with which modes, for the prefixes /usr/local and /usr; that the programs run from there."""

import os
import pathlib
import re
import stat
import subprocess
import types

import pytest

import installed
from ctl import Shell
from fixtures import needs_pts
from harness import BINARY, ROOT, clean_environment, table_of_options


def files_below(folder):
    return {path.relative_to(folder).as_posix(): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*") if not path.is_dir()}


def install(build, folder):
    subprocess.run(["cmake", "--install", str(build)], env={**os.environ, "DESTDIR": str(folder)}, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return folder


@pytest.fixture(params=["/usr/local", "/usr"])
def root(request, package_build, tmp_path):
    """Where it was installed to; with its prefix."""
    folder = install(package_build if request.param == "/usr" else pathlib.Path(BINARY).resolve().parent, tmp_path / "root")
    return folder, request.param


def test_the_files(root):
    folder, prefix = root
    assert files_below(folder) == installed.of_prefix(prefix)


def test_the_links_of_the_readme(root):
    folder, prefix = root
    assert installed.broken_links(folder / prefix[1:] / "share/doc/redlockd") == set()


def test_a_configuration_that_is_there_stays(root, package_build, tmp_path):
    folder, prefix = root
    etc = folder / ("etc" if prefix == "/usr" else "usr/local/etc") / "redlockd"
    (etc / "redlockd.json").write_text("mine")
    (etc / "masters").write_text("mine, too")
    install(package_build if prefix == "/usr" else pathlib.Path(BINARY).resolve().parent, folder)
    assert (etc / "redlockd.json").read_text() == "mine" and (etc / "masters").read_text() == "mine, too"


def test_the_unit_names_what_was_installed(root):
    folder, prefix = root
    unit = (folder / prefix[1:] / "lib/systemd/system/redlockd.service").read_text()
    there = installed.of_prefix(prefix)
    named = set(re.findall(r"^(?:ExecStart=|LoadCredential=[\w.]+:|ConditionFileNotEmpty=)(\S+)", unit, re.M))
    assert len(named) == 3
    assert {name[1:] for name in named} <= set(there), named
    assert "@CMAKE" not in unit


def test_the_programs_run_from_there(root):
    folder, prefix = root
    for name in ("redlockd", "redlockctl"):
        program = folder / prefix[1:] / "bin" / name
        done = subprocess.run([program, "--version"], env=clean_environment(), capture_output=True, text=True, check=True)
        assert re.fullmatch(rf"{name} \d+\.\d+\.\d+ \(\S+\)\n", done.stdout)
        dynamic = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
        assert "NEEDED" in dynamic and "RPATH" not in dynamic and "RUNPATH" not in dynamic


def test_the_manual_pages_are_clean(root):
    folder, prefix = root
    for page in ("man1/redlockctl.1", "man8/redlockd.8"):
        path = folder / prefix[1:] / "share/man" / page
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path], capture_output=True, text=True, check=False)
        assert (lint.returncode, lint.stdout) == (0, "")


# ---- completion of redlockd: what --help says is offered ----

COMPLETION = ROOT / "packaging" / "completion"


@pytest.mark.parametrize("typed, offered", [
    ("redlockd --log-f", ["--log-format"]), ("redlockd --masters-", ["--masters-ca", "--masters-cert", "--masters-file", "--masters-key"]),
    ("redlockd --dev --log-le", ["--log-leases", "--log-level"]), ("redlockd --log-level ", ["debug", "error", "info", "warn"]), ("redlockd --log-level=de", ["debug"]),
    ("redlockd --restart-guard ", ["off", "on", "whole"]), ("redlockd --log-requests ", ["all", "errors", "none"]),
    ("redlockd --insecure=t", ["true"]), ("redlockd --config /etc/hostn", ["/etc/hostname"]),
    ("redlockd --config=/etc/hostn", ["/etc/hostname"]), ("redlockd --workers ", []),
])
def test_bash_completes(typed, offered):
    script = f'source {COMPLETION}/redlockd.bash; COMP_LINE=$1 COMP_POINT=${{#1}}; _redlockd; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script, "bash", typed], env={**clean_environment(), "PATH": f"{pathlib.Path(BINARY).parent}:{os.environ['PATH']}"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == offered, done


def test_zsh_knows_the_values_of_the_table():
    """They are written out in _redlockd."""
    allowed = dict(re.findall(r"^\| `--[a-z-]+\[?=([A-Z]+)\]?`[^|]*\|[^|]*\| ([a-z, ]+) \|", table_of_options(), re.M))
    offered = re.findall(r"'\*=([A-Z]+)\*:\w+:\(([^)]*)\)'", (COMPLETION / "_redlockd").read_text(encoding="utf-8"))
    assert len(offered) == 5
    for argument, values in offered:
        assert sorted(values.split()) == sorted(re.split(r", | or ", allowed[argument])), argument


@needs_pts
def test_zsh_completes(lab):
    shell = Shell(lab, types.SimpleNamespace(address="127.0.0.1:1"), "zsh", "-f", "-i")
    for line in (f"PATH={pathlib.Path(BINARY).parent}:$PATH\n",
                 f"PS1='$ '; fpath=({COMPLETION} $fpath); autoload -Uz compinit; compinit -D -u; unsetopt beep prompt_sp\n",
                 'redlockd() { if [ "$1" = --help ]; then command redlockd "$@"; else printf "<%s>" "$@"; echo .; fi; }\n', "echo rea''dy\n"):
        shell.type(line)
    shell.sees("ready")
    shell.type("redlockd --log-lev\t")
    shell.sees("--log-level=")
    shell.type("deb\t\n")
    shell.sees("<--log-level=debug>.")
