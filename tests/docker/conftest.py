# SPDX-License-Identifier: MIT
"""Shared parts of the tests of the image and of docker/compose.yaml. `image` is the root of the image that build.sh
laid out; where it could not be built, the tests that need it are skipped with the reason in REDLOCKD_NO_IMAGE."""

import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
from fixtures import lab  # noqa: E402, F401

from compose_world import BUILT, COMPOSE_FILE, World, read_compose  # noqa: E402


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")


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


@pytest.fixture(scope="session")
def dev_image(image):
    """The root of the target dev."""
    return image.parent / "dev"


@pytest.fixture(scope="session")
def dev_settings(dev_image):
    return json.loads(dev_image.with_suffix(".json").read_text())["Docker"]["config"]


@pytest.fixture
def world(lab, compose):
    return lab.keep(World(lab.folder, compose))
