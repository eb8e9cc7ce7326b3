# SPDX-License-Identifier: MIT
"""One version everywhere, that of project(VERSION) in CMakeLists.txt; and the commit: of a checkout, of a tarball, and as it is given."""

import json
import os
import re
import subprocess

import pytest
import yaml

from harness import ROOT, run_redlockd

VERSION = re.search(r"^project\(redlockd VERSION (\d+\.\d+\.\d+) ", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.M)[1]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("where, found", [
    ("redlockd --version", lambda: run_redlockd("--version").stdout.split()[1]),
    ("openapi.yaml, info.version", lambda: yaml.safe_load(read("openapi.yaml"))["info"]["version"]),
    ("CHANGELOG.md, the first heading", lambda: re.search(r"^## (\S+)", read("CHANGELOG.md"), re.M)[1]),
    ("helm/redlockd/Chart.yaml, appVersion", lambda: yaml.safe_load(read("helm/redlockd/Chart.yaml"))["appVersion"]),
    ("helm/redlockd/Chart.yaml, version", lambda: yaml.safe_load(read("helm/redlockd/Chart.yaml"))["version"]),
    ("helm/redlockd-sidecar/Chart.yaml, version", lambda: yaml.safe_load(read("helm/redlockd-sidecar/Chart.yaml"))["version"]),
    ("clients/python/pyproject.toml, version", lambda: re.search(r'^version = "(.*)"$', read("clients/python/pyproject.toml"), re.M)[1]),
    ("clients/python/src/redlockd/_wire.py, VERSION", lambda: re.search(r'^VERSION = "(.*)"$', read("clients/python/src/redlockd/_wire.py"), re.M)[1]),
    ("clients/python/README.md, the wheel", lambda: re.search(r"redlockd-(\S+)-py3-none-any\.whl", read("clients/python/README.md"))[1]),
    ("clients/go/README.md, the module", lambda: re.search(r"go get \S+@v([\d.]+)`", read("clients/go/README.md"))[1]),
    ("clients/go/redlockd.go, Version", lambda: re.search(r'^const Version = "(.*)"$', read("clients/go/redlockd.go"), re.M)[1]),
    ("clients/node/package.json, version", lambda: json.loads(read("clients/node/package.json"))["version"]),
    ("clients/java/pom.xml, version", lambda: re.search(r"^  <version>(.*)</version>$", read("clients/java/pom.xml"), re.M)[1]),
    ("clients/java/README.md, version", lambda: re.search(r"<version>(.*)</version>", read("clients/java/README.md"))[1]),
    ("clients/java/README.md, the jar", lambda: re.search(r"redlockd-(\S+)\.jar", read("clients/java/README.md"))[1]),
    ("clients/adapters/shedlock/pom.xml, version", lambda: re.search(r"^  <version>(.*)</version>$", read("clients/adapters/shedlock/pom.xml"), re.M)[1]),
    ("clients/adapters/shedlock/pom.xml, redlockd",
     lambda: re.search(r"<artifactId>redlockd</artifactId>\s*<version>(.*)</version>", read("clients/adapters/shedlock/pom.xml"))[1]),
    ("clients/adapters/shedlock/README.md, version", lambda: re.search(r"<version>(.*)</version>", read("clients/adapters/shedlock/README.md"))[1]),
    ("clients/php/composer.json, version", lambda: json.loads(read("clients/php/composer.json"))["version"]),
    ("clients/php/src/Servers.php, VERSION", lambda: re.search(r"const VERSION = '(.*)';", read("clients/php/src/Servers.php"))[1]),
    ("clients/adapters/symfony-lock/composer.json, version", lambda: json.loads(read("clients/adapters/symfony-lock/composer.json"))["version"]),
    ("clients/adapters/symfony-lock/composer.json, the client",
     lambda: json.loads(read("clients/adapters/symfony-lock/composer.json"))["require"]["redlockd/client"].replace("*", VERSION.split(".")[2])),
    ("docker/Dockerfile, VERSION", lambda: "/".join(sorted(set(re.findall(r"^ARG VERSION=(\S+)", read("docker/Dockerfile"), re.M))))),
])
def test_the_version_is_the_same(where, found):
    assert found() == VERSION, where


@pytest.mark.parametrize("where, pattern", [
    ("docker/compose.yaml", r"redlockd:(\d[\d.]*\d)"),
    ("docs/how-to/docker.md", r"redlockd:(\d[\d.]*\d)"),
    ("docs/how-to/kubernetes.md", r"(?:redlockd:|version: )(\d[\d.]*\d)"),
    ("helm/redlockd-sidecar/templates/_sidecar.tpl", r"redlockd:(\d[\d.]*\d)"),
    ("helm/example/values.yaml", r"redlockd:(\d[\d.]*\d)"),
    ("helm/example/Chart.yaml", r'ersion: "?(\d[\d.]*\d)'),
    ("helm/example/Chart.lock", r"version: (\d[\d.]*\d)"),
    ("clients/adapters/gocron/README.md", r"@v(\d[\d.]*\d)"),
    ("clients/adapters/gocron/go.mod", r"/clients/go v(\d[\d.]*\d)"),
    ("clients/adapters/client-go/README.md", r"@v(\d[\d.]*\d)"),
    ("clients/adapters/client-go/go.mod", r"/clients/go v(\d[\d.]*\d)"),
    ("clients/adapters/shedlock/README.md", r"redlockd-shedlock-(\d[\d.]*\d)\.jar"),
    ("clients/adapters/shedlock/example/pom.xml", r"redlockd-shedlock(?:-example)?</artifactId>\s*<version>(.*)</"),
    ("openapi.yaml", r"^ +version: (0\.\d+\.\d+|1\.\d+\.\d+)$"),
])
def test_the_version_is_the_same_wherever_it_stands(where, pattern):
    assert set(re.findall(pattern, read(where), re.M)) == {VERSION}


def test_the_package_has_it(package):
    assert subprocess.run(["dpkg-deb", "-f", package, "Version"], capture_output=True, text=True, check=True).stdout.startswith(VERSION + "-")


# ---- the commit ----


def git(folder, *args):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    names = ["-c", "user.name=somebody", "-c", "user.email=somebody"]
    done = subprocess.run(["git", "-C", folder, *names, *args], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit_of(folder, given=""):
    """The version that a build in this folder writes."""
    made = folder.parent / "commit.c"
    script = ["cmake", f"-DGIVEN={given}", f"-DOUTPUT={made}", "-P", folder / "cmake" / "commit.cmake"]
    subprocess.run(script, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return re.search(r'build_commit\[\] = "([^"]*)";', made.read_text())[1]


@pytest.fixture
def checkout(tmp_path):
    """A repository with what is needed to tell its commit."""
    folder = tmp_path / "checkout"
    (folder / "cmake").mkdir(parents=True)
    for name in (".gitattributes", "cmake/commit.cmake", "cmake/commit.txt"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    if not (ROOT / ".git").exists():  # we are in a tarball ourselves: there it is filled in
        (folder / "cmake" / "commit.txt").write_text("$Format:%H %ct$\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def tarball(checkout, to):
    to.mkdir(parents=True)
    git(checkout, "archive", "-o", str(to / "it.tar"), "HEAD")
    subprocess.run(["tar", "-C", to, "-xf", to / "it.tar"], check=True)
    return to


def test_of_a_checkout(checkout):
    commit = git(checkout, "rev-parse", "HEAD")[:12]
    assert commit_of(checkout) == commit
    (checkout / "untracked").touch()
    assert commit_of(checkout) == commit
    (checkout / "cmake" / "commit.txt").write_text("changed")
    assert commit_of(checkout) == commit + "-dirty"
    git(checkout, "commit", "-q", "-a", "-m", "two")
    assert commit_of(checkout) == git(checkout, "rev-parse", "HEAD")[:12] != commit


def test_of_a_tarball(checkout, tmp_path):
    commit = git(checkout, "rev-parse", "HEAD")[:12]
    assert commit_of(tarball(checkout, tmp_path / "elsewhere" / "source")) == commit
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "commit", "-q", "--allow-empty", "-m", "of somebody else")
    assert commit_of(tarball(checkout, outer / "source")) == commit, "not that of the repository around it"


def test_given_or_unknown(checkout, tmp_path):
    assert commit_of(checkout, "abc123") == "abc123"
    bare = tmp_path / "bare"
    (bare / "cmake").mkdir(parents=True)
    for name in ("commit.cmake", "commit.txt"):
        (bare / "cmake" / name).write_bytes((checkout / "cmake" / name).read_bytes())
    assert commit_of(bare) == "unknown"
