# SPDX-License-Identifier: MIT
"""Each source file names its licence, that of LICENSE, in its first three lines (SPDX)."""

import re

from test_format import FILES, NOT_TEXT, ROOT

LINE = "SPDX-License-Identifier: MIT"
SOURCES = re.compile(r".*\.(c|h|css|lua|go|java|js|mjs|ts|cts|mts|py|php|sh|bash|cmake)|.*CMakeLists\.txt|helm/[^/]+/[^/]+\.yaml")


def has_license(name):
    return any(LINE in line for line in (ROOT / name).read_text("utf-8").split("\n", 3)[:3])


def is_source(name):
    return not NOT_TEXT.search(name) and bool(SOURCES.fullmatch(name) or (ROOT / name).read_bytes()[:2] == b"#!")


def test_the_license_is_that_of_the_project():
    assert (ROOT / "LICENSE").read_text("utf-8").startswith("MIT License\n")


def test_each_source_file_names_it():
    sources = [name for name in FILES if is_source(name)]
    assert len(sources) > 700
    assert [name for name in sources if not has_license(name)] == []
