#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the folder of a module proxy with clients/go: go_module.py FOLDER. GOPROXY=file://FOLDER is then a place to get it from.

The files are those that the go command takes out of the repository at the tag clients/go/vVERSION, and so are their sums.
"""

import pathlib
import re
import subprocess
import sys
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "clients" / "go"


def sources():
    """The files that git knows; without git (a tarball) those that are there."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", "."], cwd=SOURCE, capture_output=True, text=True, check=False).stdout
    names = listed.rstrip("\0").split("\0") if listed else [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*")]
    return sorted(name for name in names if (SOURCE / name).is_file())


def main(folder):
    module = re.search(r"^module (\S+)$", (SOURCE / "go.mod").read_text(encoding="utf-8"), re.M)[1]
    version = "v" + re.search(r'^const Version = "(.*)"$', (SOURCE / "redlockd.go").read_text(encoding="utf-8"), re.M)[1]
    there = pathlib.Path(folder, re.sub("[A-Z]", lambda letter: "!" + letter[0].lower(), module), "@v")
    there.mkdir(parents=True, exist_ok=True)
    (there / "list").write_text(version + "\n")
    (there / f"{version}.info").write_text(f'{{"Version":"{version}"}}\n')
    (there / f"{version}.mod").write_bytes((SOURCE / "go.mod").read_bytes())
    with zipfile.ZipFile(there / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sources():
            archive.writestr(zipfile.ZipInfo(f"{module}@{version}/{name}"), (SOURCE / name).read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main(sys.argv[1])
