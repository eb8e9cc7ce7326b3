# SPDX-License-Identifier: MIT
"""The files that redlockd consists of, once it is installed: one list, from which those of the prefixes and of the Debian package follow."""

import re

from harness import ROOT

# Below the prefix.
FILES = {
    "bin/redlockctl", "bin/redlockd",
    "lib/systemd/system/redlockd.service", "lib/sysusers.d/redlockd.conf",
    "share/bash-completion/completions/redlockctl", "share/bash-completion/completions/redlockd",
    "share/doc/redlockd/CHANGELOG.md", "share/doc/redlockd/CONTRIBUTING.md", "share/doc/redlockd/LICENSE", "share/doc/redlockd/README.md",
    "share/doc/redlockd/SECURITY.md", "share/doc/redlockd/openapi.yaml",
    "share/man/man1/redlockctl.1", "share/man/man8/redlockd.8",
    "share/redlockd/grafana/redlockd.json", "share/redlockd/prometheus/redlockd.rules.yml",
    "share/zsh/site-functions/_redlockctl", "share/zsh/site-functions/_redlockd",
} | {f"share/doc/redlockd/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*")
     if not path.is_dir() and "__pycache__" not in path.parts}
PROGRAMS = {"bin/redlockctl", "bin/redlockd"}
CONFIGURATION = {"redlockd/redlockd.json": 0o644, "redlockd/masters": 0o600}


def of_prefix(prefix):
    """Path to mode, relative to the root, of what `cmake --install` leaves."""
    etc = "etc/" if prefix == "/usr" else prefix[1:] + "/etc/"
    there = {f"{prefix[1:]}/{name}": 0o755 if name in PROGRAMS else 0o644 for name in FILES}
    return {**there, **{etc + name: mode for name, mode in CONFIGURATION.items()}}


def broken_links(folder):
    """Targets in README.md and in what lies beside it that are not below the folder of documents."""
    return {target for page in folder.glob("*.md") for target in re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8"))
            if "://" not in target and not (folder / target).exists()}


def of_package():
    """The same of the Debian package."""
    there = of_prefix("/usr")
    for name in ("etc/redlockd/masters", "usr/share/doc/redlockd/LICENSE", "usr/share/doc/redlockd/CHANGELOG.md"):
        del there[name]
    there |= {f"usr/share/doc/redlockd/{name}": 0o644 for name in ("README.Debian", "changelog.Debian.gz", "changelog.gz", "copyright")}
    return {name + (".gz" if "/man/" in name else "") if "/zsh/" not in name else name.replace("site-functions", "vendor-completions"): mode
            for name, mode in there.items()}
