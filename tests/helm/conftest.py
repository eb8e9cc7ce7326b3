# SPDX-License-Identifier: MIT
"""Shared parts of the tests of the charts: the harness of the end-to-end tests, and the tools that ./dev builds
(build/tools)."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import charts  # noqa: E402
import harness  # noqa: E402
from fixtures import lab  # noqa: E402, F401


def pytest_configure(config):
    for program in (harness.BINARY, charts.TOOLS / "helm", charts.TOOLS / "kubeconform", charts.TOOLS / "podsecurity"):
        if not os.access(program, os.X_OK):
            raise pytest.UsageError(f"no program at {program}: ./dev test helm makes it")
