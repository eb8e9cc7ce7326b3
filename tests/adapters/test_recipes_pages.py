# SPDX-License-Identifier: MIT
"""The pages of docs/how-to/recipes together, and docs/how-to/integrations.md."""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess

import pytest

from harness import ROOT
from recipes import FOLDER, TOOLS

INTEGRATIONS = (FOLDER.parent / "integrations.md").read_text(encoding="utf-8")
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))
TESTS = "".join(path.read_text(encoding="utf-8") for path in pathlib.Path(__file__).parent.glob("test_recipes_*.py"))


@pytest.mark.parametrize("page", PAGES)
def test_each_page_is_listed_and_tested(page):
    assert f"](recipes/{page}.md)" in INTEGRATIONS
    assert f'Page("{page}")' in TESTS


@pytest.mark.parametrize("package", ["celery", "ansible-core", "alembic"])
def test_versions_of_python_packages(package):
    found, = importlib.metadata.distributions(name=package, path=[str(TOOLS)])
    assert f"{package} {found.version}".lower() in INTEGRATIONS.lower()


@pytest.mark.parametrize(("words", "file", "version"), [
    ("gocron", "gocron/go.mod", r"gocron/v2 v(\S+)"), ("client-go", "client-go/go.mod", r"k8s.io/client-go v(\S+)"),
    ("ShedLock", "shedlock/pom.xml", "<shedlock.version>(.*)</"),
    ("Spring Boot", "shedlock/example/pom.xml", r"spring-boot-starter-parent</artifactId>\s*<version>(.*)</"),
])
def test_versions_of_frameworks(words, file, version):
    used = re.search(version, (ROOT / "clients" / "adapters" / file).read_text(encoding="utf-8"))[1]
    assert f"{words} {used}" in INTEGRATIONS


PROGRAMS = [("GNU make", "make"), ("findutils", "xargs"), ("git", "git"), ("systemd", "systemd-analyze"),
            ("Terraform", "terraform")]


@pytest.mark.parametrize(("words", "command"), PROGRAMS)
def test_versions_of_programs_were_tried(words, command):
    """The page names a version that has been tried; a later one may run the tests."""
    if not shutil.which(command):
        pytest.skip(f"{command} is not installed")
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    tried = re.search(rf"{words} ([0-9.]*[0-9])", INTEGRATIONS)[1]

    def numbers(text):
        return [int(part) for part in re.search(r"[0-9]+(\.[0-9]+)*", text)[0].split(".")]
    assert numbers(said) >= numbers(tried)
