"""Clients that generators make from openapi.yaml compile, and speak with a running redlockd; problems come as their own types."""

import os
import pathlib
import shutil
import subprocess

from harness import DIES_WITH_US, ROOT, SLOW

SOURCES = pathlib.Path(__file__).resolve().parent / "generated"
TOOLS = ROOT / "build" / "tools" / "clients"
SAID = """\
acquired 201 true
refused 409 true locked true true 2
extended 200 true true
inspected true true
released 204
expired 410 true lease-expired
masters 3 true true
"""


def run(*command, folder):
    done = subprocess.run([*DIES_WITH_US, *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300 * SLOW, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-5000:]}"
    return done.stdout


def call(service, resource, *command, folder):
    assert run(*command, f"http://{service.address}", resource + "/100%?", folder=folder) == SAID


def test_go(service, resource, tmp_path):
    """With openapi-generator."""
    shutil.copytree(SOURCES / "go", tmp_path, dirs_exist_ok=True)
    jar = str(TOOLS / "openapi_generator_cli" / "openapi-generator.jar")
    run("java", "-XX:TieredStopAtLevel=1", "-jar", jar, "generate", "-g", "go", "-i", str(ROOT / "openapi.yaml"), "-o", "redlockd",
        "--additional-properties=packageName=redlockd,withGoMod=false",
        "--global-property=apiTests=false,modelTests=false,apiDocs=false,modelDocs=false", folder=tmp_path)
    run("go", "vet", "./...", folder=tmp_path)
    run("go", "build", "-o", "caller", ".", folder=tmp_path)
    call(service, resource, "./caller", folder=tmp_path)


def test_typescript(service, resource, tmp_path):
    """With openapi-typescript, checked by the strictest of compilers."""
    shutil.copytree(SOURCES / "typescript", tmp_path, dirs_exist_ok=True)
    os.symlink(TOOLS / "node_modules", tmp_path / "node_modules")
    run("node_modules/.bin/openapi-typescript", str(ROOT / "openapi.yaml"), "-o", "schema.d.ts", folder=tmp_path)
    run("node_modules/.bin/tsc", "-p", ".", folder=tmp_path)
    call(service, resource, "node", "out/caller.js", folder=tmp_path)
