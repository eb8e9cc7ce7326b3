#!/usr/bin/env python3
"""Puts the programs of docs/how-to/clients into docs/how-to/clients.md, behind the lines that name them: run it after you have changed one.

The files are the truth; test_guide.py fails where the guide shows something else.
"""

import pathlib
import re

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/how-to/clients.md"
LANGUAGES = {".sh": "sh", ".go": "go", ".mjs": "js", ".java": "java"}
# A heading that links a file, then its block of code.
PLACE = re.compile(r"^(### [^\n]*\]\((clients/[\w.]+)\)\n\n)```\w+\n.*?^```\n", re.M | re.S)


def block(name):
    text = (GUIDE.parent / name).read_text(encoding="utf-8")
    return f"```{LANGUAGES[pathlib.Path(name).suffix]}\n{text}```\n"


def included(guide):
    """The guide with each program as its file is."""
    return PLACE.sub(lambda place: place[1] + block(place[2]), guide)


if __name__ == "__main__":
    GUIDE.write_text(included(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
