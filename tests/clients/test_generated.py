# SPDX-License-Identifier: MIT
"""Clients that generators make from openapi.yaml compile, and speak with a running redlockd; problems come as their own types."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from harness import DIES_WITH_US, ROOT, SLOW, wait_until

SOURCES = pathlib.Path(__file__).resolve().parent / "generated"
TOOLS = ROOT / "build" / "tools" / "clients"
SAID = """\
acquired 201 true
refused 409 true locked true true 2
extended 200 true true
inspected true true
named 200 true true 1
many 200 true lease-expired
released 204
expired 410 true lease-expired
unavailable 503 true no-quorum 2
masters 3 true true
"""


def run(*command, folder, env=None):
    done = subprocess.run([*DIES_WITH_US, *command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300 * SLOW, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-5000:]}"
    return done.stdout


@pytest.fixture
def call(lab, service, resource):
    """Runs a caller with a redlockd, a name that must be escaped, and a redlockd without a quorum."""
    ill = lab.service(3, listen=["127.0.0.1:0"])
    for master in ill.masters[:2]:
        master.kill()
    wait_until(lambda: ill.curl("GET", "/readyz").status == 503, what="the loss of the quorum")

    def one(*command, folder):
        assert run(*command, f"http://{service.address}", resource + "/100%?", f"http://{ill.address}", folder=folder) == SAID
    return one


def generate(folder, language, *properties):
    """With openapi-generator, in the folder `redlockd`."""
    jar = str(TOOLS / "openapi_generator_cli" / "openapi-generator.jar")
    run("java", "-XX:TieredStopAtLevel=1", "-jar", jar, "generate", "-g", language, "-i", str(ROOT / "openapi.yaml"), "-o", "redlockd",
        "--additional-properties=" + ",".join(properties), "--global-property=apiTests=false,modelTests=false,apiDocs=false,modelDocs=false", folder=folder)


def test_go(call, tmp_path):
    shutil.copytree(SOURCES / "go", tmp_path, dirs_exist_ok=True)
    generate(tmp_path, "go", "packageName=redlockd", "withGoMod=false")
    run("go", "vet", "./...", folder=tmp_path)
    run("go", "build", "-o", "caller", ".", folder=tmp_path)
    call("./caller", folder=tmp_path)


def test_java(call, tmp_path):
    shutil.copy(SOURCES / "java" / "Caller.java", tmp_path)
    package = "org.example.redlockd"
    generate(tmp_path, "java", "library=native", f"invokerPackage={package}", f"apiPackage={package}.api", f"modelPackage={package}.model")
    sources = [str(path) for path in (tmp_path / "redlockd" / "src" / "main" / "java").rglob("*.java")]
    run("javac", "-nowarn", "-proc:none", "-d", "classes", "-cp", f"{TOOLS}/java/*", "Caller.java", *sources, folder=tmp_path)
    call("java", "-XX:TieredStopAtLevel=1", "-cp", f"classes:{TOOLS}/java/*", "Caller", folder=tmp_path)


def test_php(call, tmp_path):
    """Its client checks patterns itself, by PCRE without Unicode, and replaces each end of a comment in them."""
    shutil.copy(SOURCES / "php" / "caller.php", tmp_path)
    generate(tmp_path, "php", "invokerPackage=Redlockd")
    call("php", "-d", "error_reporting=24575", "-d", "display_errors=1", "caller.php", folder=tmp_path)


def test_typescript(call, tmp_path):
    """With openapi-typescript, checked by the strictest of compilers."""
    shutil.copytree(SOURCES / "typescript", tmp_path, dirs_exist_ok=True)
    os.symlink(TOOLS / "node_modules", tmp_path / "node_modules")
    run("node_modules/.bin/openapi-typescript", str(ROOT / "openapi.yaml"), "-o", "schema.d.ts", folder=tmp_path)
    run("node_modules/.bin/tsc", "-p", ".", folder=tmp_path)
    call("node", "out/caller.js", folder=tmp_path)


def test_python(call, tmp_path):
    """With openapi-python-client, which drops what it does not understand, and warns of it."""
    python = TOOLS / "python"
    environment = {**os.environ, "PYTHONPATH": str(python), "PATH": f"{python / 'bin'}:{os.environ['PATH']}"}
    said = run("/usr/bin/python3", "-m", "openapi_python_client", "generate", "--path", str(ROOT / "openapi.yaml"), "--output-path", "made",
               folder=tmp_path, env=environment)
    assert not re.search(r"WARNING|Unable to", said), said
    calls = [path.read_text(encoding="utf-8") for path in (tmp_path / "made").rglob("api/*/*.py")]
    assert len(calls) > 10 and not [text for text in calls if "client: AuthenticatedClient," in text], "a Client without a key will do"
    shutil.copy(SOURCES / "python" / "caller.py", tmp_path / "made")
    call("env", f"PYTHONPATH={python}", "/usr/bin/python3", "caller.py", folder=tmp_path / "made")
