"""The examples of README.md, as a reader would paste them: each block of shell lines is run against a real redlockd, and the
block that follows it must be what comes out, but for numbers and tokens that differ each time."""

import os
import re
import subprocess

from harness import DIES_WITH_US, ROOT

ADDRESS = "127.0.0.1:8080"
BLOCKS = re.compile(r"^```sh\n(?P<lines>.*?)^```\n(?:\n*```\n(?P<output>.*?)^```\n)?", re.M | re.S)


def examples():
    """[(shell lines, what they print)] of all blocks that speak to a running redlockd."""
    found = BLOCKS.finditer((ROOT / "README.md").read_text(encoding="utf-8"))
    return [(block["lines"], block["output"] or "") for block in found if f"http://{ADDRESS}" in block["lines"]]


def masked(text):
    """The text with tokens and numbers made alike; not those that are an HTTP status or stand in a name."""
    text = re.sub(r"\b[0-9a-f]{40}\b", "<token>", text)
    return re.sub(r'("(?!status")\w+":)\d+', r"\1<number>", text)


def test_examples_do_what_they_say(service, tmp_path):
    script = "".join(f"{lines}\necho; echo '--- next'\n" for lines, _ in examples()).replace(ADDRESS, service.address)
    done = subprocess.run([*DIES_WITH_US, "bash", "-c", script], cwd=tmp_path, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    outputs = done.stdout.split("--- next\n")[:-1]
    assert len(outputs) == len(examples()) > 5
    for (lines, expected), output in zip(examples(), outputs):
        assert masked(output).strip() == masked(expected).strip(), f"{lines}\n{output}"


def test_masking_hides_no_status():
    assert masked('{"status":409,"ttl_ms":5}\n409') == '{"status":409,"ttl_ms":<number>}\n409'
