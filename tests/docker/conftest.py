"""What the tests of the image and of docker/compose.yaml share. `image` is the root of the image that build.sh laid out; where it could not be built
REDLOCKD_NO_IMAGE says why, and what needs it is skipped."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
from fixtures import lab  # noqa: E402, F401

from world import World  # noqa: E402

BUILT = harness.ROOT / "build" / "docker"
COMPOSE_TOOL = harness.ROOT / "build" / "tools" / "compose"
VERSION_BUILT = re.search(r"^project\(redlockd VERSION (\S+)", (harness.ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
COMPOSE_FILE = harness.ROOT / "docker" / "compose.yaml"


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")


def read_compose(*files):
    """The whole project as `docker compose` understands the files, or what it says against them."""
    done = subprocess.run([COMPOSE_TOOL, *map(str, files)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


@pytest.fixture(scope="session")
def compose():
    project = read_compose(COMPOSE_FILE)
    assert isinstance(project, dict), project
    return project


@pytest.fixture(scope="session")
def image():
    if os.environ.get("REDLOCKD_NO_IMAGE"):
        pytest.skip(os.environ["REDLOCKD_NO_IMAGE"])
    return BUILT / "image"


@pytest.fixture(scope="session")
def settings(image):
    """The configuration of the image, as Docker has it."""
    return json.loads((BUILT / "image.json").read_text())["Docker"]["config"]


@pytest.fixture
def world(lab, compose):
    return lab.keep(World(lab.folder, compose))
