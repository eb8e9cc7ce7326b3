# SPDX-License-Identifier: MIT
"""The Debian package as a file: its contents, lintian, and that the same sources make the same bytes elsewhere."""

import gzip
import os
import re
import shutil
import subprocess

import pytest

import installed
from harness import ROOT

# Warnings of lintian that are accepted: none.
KNOWN_WARNINGS = set()


def output(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, **options).stdout


@pytest.fixture(scope="module")
def fields(package):
    return dict(re.findall(r"^([\w-]+): (.*)$", output("dpkg-deb", "-f", package), re.M))


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    output("dpkg-deb", "--raw-extract", package, folder)
    return folder


def test_the_files(package):
    found = {}
    for line in output("dpkg-deb", "-c", package).splitlines():
        mode, owner, *_, name = line.split()
        assert owner == "root/root", line
        if mode.startswith("d"):
            assert mode == "drwxr-xr-x", line
        else:
            found[name.removeprefix("./")] = {"-rw-r--r--": 0o644, "-rwxr-xr-x": 0o755}[mode]
    assert found == installed.of_package()


def test_the_control_file(fields):
    assert fields["Package"] == "redlockd" and fields["Priority"] == "optional" and fields["Section"] == "net"
    assert {re.split(r"[ |,]", part.strip())[0] for part in fields["Depends"].split(",")} >= {"libc6", "libcurl4", "libjansson4", "systemd"}
    assert re.search(r"libmicrohttpd\d+ \(>= ", fields["Depends"]), "versions come from dpkg-shlibdeps"
    assert fields["Architecture"] == output("dpkg", "--print-architecture").strip()


def test_lintian(package):
    """The errors are none, the warnings those of the list."""
    done = subprocess.run(["lintian", "--allow-root", "--no-tag-display-limit", package], env={**os.environ, "LC_ALL": "C.UTF-8"}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    assert not re.search(r"^E:|cannot|Died", done.stdout + done.stderr, re.M) and done.returncode in (0, 1, 2), done
    assert {re.sub(r"^W: redlockd: ", "", line) for line in done.stdout.splitlines() if line.startswith("W:")} == KNOWN_WARNINGS


def test_lintian_sees(package, tmp_path):
    """A package with a mistake, for the test above."""
    output("dpkg-deb", "--raw-extract", package, tmp_path / "bad")
    (tmp_path / "bad" / "usr/share/doc/redlockd/copyright").unlink()
    output("dpkg-deb", "--root-owner-group", "--build", tmp_path / "bad", tmp_path / "bad.deb")
    with pytest.raises(AssertionError, match="no-copyright-file"):
        test_lintian(tmp_path / "bad.deb")


def test_checksums(unpacked):
    assert (unpacked / "DEBIAN" / "conffiles").read_text() == "/etc/redlockd/redlockd.json\n"
    lines = (unpacked / "DEBIAN" / "md5sums").read_text().splitlines()
    assert {line.split()[1] for line in lines} | {"etc/redlockd/redlockd.json"} == set(installed.of_package())
    output("md5sum", "--check", "--strict", "DEBIAN/md5sums", cwd=unpacked)


def test_the_copyright_is_that_of_the_license(unpacked):
    """The file that Debian wants and LICENSE: the same holder, the same words."""
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    text = (unpacked / "usr/share/doc/redlockd/copyright").read_text()
    assert re.search(r"^Copyright: (.*)$", text, re.M)[1] == re.search(r"^Copyright \(c\) (.*)$", licence, re.M)[1]
    words = text.partition("License: Expat\n\nLicense: Expat\n")[2].replace("\n .\n", "\n\n").split()
    assert words == licence[licence.index("Permission is"):].split()


def test_the_links_of_the_readme(unpacked):
    assert installed.broken_links(unpacked / "usr/share/doc/redlockd") == set()


def test_the_maintainer_scripts_are_shell(unpacked):
    for name in ("postinst", "prerm", "postrm"):
        output("dash", "-n", unpacked / "DEBIAN" / name)


def time_of(path):
    with open(path, "rb") as file:
        return int.from_bytes(file.read(8)[4:8], "little")


def test_what_is_compressed_has_no_time(unpacked):
    pages = [*unpacked.rglob("*.gz")]
    assert len(pages) == 4
    for path in pages:
        assert time_of(path) == 0 and gzip.decompress(path.read_bytes())


def test_the_same_sources_make_the_same_bytes(package, unpacked, tmp_path):
    """Built once more: other folders, another time, another locale and time zone."""
    source, build = tmp_path / "elsewhere" / "redlockd", tmp_path / "build"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns("build", ".git", "node_modules", "__pycache__"))
    commit = re.search(r"\((\S+)\)", output(unpacked / "usr/bin/redlockd", "--version"))[1]
    data = output("sh", "-c", f"dpkg-deb --fsys-tarfile '{package}' | tar -tv --utc --full-time -f -").splitlines()[0].split()
    made = output("date", "-u", "-d", f"{data[3]} {data[4]} UTC", "+%s").strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": made, "TZ": "Asia/Kolkata", "LC_ALL": "C.UTF-8"}
    cache = (package.parent / "CMakeCache.txt").read_text()
    options = [f"-D{name}={re.search(rf'^{name}:[A-Z]+=(.*)$', cache, re.M)[1]}" for name in ("CMAKE_BUILD_TYPE", "CMAKE_INSTALL_PREFIX", "CMAKE_C_COMPILER")]
    options += ["-DCMAKE_C_COMPILER_LAUNCHER=", "-DREDLOCKD_TESTS=OFF", f"-DREDLOCKD_COMMIT={commit}"]
    output("cmake", "-S", source, "-B", build, *options, env=environment, umask=0o022)
    output("cmake", "--build", build, "-j2", env=environment, umask=0o022)
    output("cpack", cwd=build, env=environment, umask=0o022)
    if (build / package.name).read_bytes() != package.read_bytes():
        output("dpkg-deb", "--raw-extract", build / package.name, tmp_path / "again")
        differs = subprocess.run(["diff", "-rq", unpacked, tmp_path / "again"], capture_output=True, text=True, check=False).stdout
        raise AssertionError("were the sources changed since the package was made?\n" + differs)
