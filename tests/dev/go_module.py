#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the folder of a module proxy with clients/go and the adapters for Go: go_module.py FOLDER. GOPROXY=file://FOLDER is then a place to get them from.

The files are those that the go command takes out of the repository at the tag clients/go/vVERSION, and so are their sums.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

CLIENTS = pathlib.Path(__file__).resolve().parents[2] / "clients"
LIBRARY = CLIENTS / "go"
MODULES = (LIBRARY, CLIENTS / "adapters" / "gocron", CLIENTS / "adapters" / "client-go")


def files_of(source):
    """The files that git knows; without git (a tarball) those that are there."""
    listed = ""
    if shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z", "--", "."], cwd=source, capture_output=True, text=True, check=False).stdout
    names = listed.rstrip("\0").split("\0") if listed else [path.relative_to(source).as_posix() for path in source.rglob("*")]
    return sorted(name for name in names if (source / name).is_file())


def add(source, version, folder):
    module = re.search(r"^module (\S+)$", (source / "go.mod").read_text(encoding="utf-8"), re.M)[1]
    there = pathlib.Path(folder, re.sub("[A-Z]", lambda letter: "!" + letter[0].lower(), module), "@v")
    there.mkdir(parents=True, exist_ok=True)
    (there / "list").write_text(version + "\n")
    (there / f"{version}.info").write_text(f'{{"Version":"{version}"}}\n')
    (there / f"{version}.mod").write_bytes((source / "go.mod").read_bytes())
    with zipfile.ZipFile(there / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in files_of(source):
            archive.writestr(zipfile.ZipInfo(f"{module}@{version}/{name}"), (source / name).read_bytes(), zipfile.ZIP_DEFLATED)


def main(folder):
    version = "v" + re.search(r'^const Version = "(.*)"$', (LIBRARY / "redlockd.go").read_text(encoding="utf-8"), re.M)[1]
    for source in MODULES:
        add(source, version, folder)


if __name__ == "__main__":
    main(sys.argv[1])
