# SPDX-License-Identifier: MIT
"""Small programs that use the library for Node: for the tests of what only that library has."""

import json
import subprocess

from harness import DIES_WITH_US, ROOT, clean_environment, patience

SOURCE = ROOT / "clients" / "node"
HEAD = """
import * as redlockd from "SOURCE/lib/index.js";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";
const require = createRequire("SOURCE/lib/");
const [url, resource, ...given] = process.argv.slice(2);
const client = new redlockd.Client(url);
const block = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
const codeOf = (promise) => promise.then(() => "none", (error) => error.code ?? error.name);
const say = (answer) => console.log(JSON.stringify(answer));
""".replace("SOURCE", str(SOURCE))


def start(text, *arguments, env=None, stdin=False):
    """A program that has a client `client` of the first argument, and the name `resource`, the second one. `stdin`: its
    input is open until end()."""
    command = ["node", "--input-type=module", "-e", HEAD + text, "--", "it", *map(str, arguments)]
    return subprocess.Popen(
        [*DIES_WITH_US, *command],
        env=clean_environment(env),
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process):
    """The values that the program said, one a line."""
    try:
        output, error = process.communicate(timeout=patience(30))
    finally:
        process.kill()
    assert process.returncode == 0, error
    return [json.loads(line) for line in output.splitlines()]


def run(text, *arguments, env=None):
    return end(start(text, *arguments, env=env))
