# SPDX-License-Identifier: MIT
"""What is special in the library for PHP. The suite of all languages is in tests/clients."""

import json
import re
import signal
import subprocess
import sys
import zipfile

import pytest

from harness import ROOT, SLOW, patience, quote, wait_until
from phpunit import PHP, Program, environment, phpunit

sys.path.append(str(ROOT / "tests" / "clients"))
from relay import Relay  # noqa: E402

SOURCES = sorted((ROOT / "clients").glob("**/*.php"))
LIBRARIES = {"client": "clients/php", "store": "clients/adapters/symfony-lock"}


@pytest.fixture
def program(lab):
    """Starts programs, which end with the test."""
    def start(daemon, mode, *arguments):
        return lab.keep(Program(daemon, PHP / "program.php", mode, *map(str, arguments)))
    return start


def state(daemon, resource):
    return daemon.curl("GET", "/locks/" + quote(resource)).json


def kill_one(daemon):
    daemon.masters[0].kill()
    daemon.wait_voting(len(daemon.masters) - 1)


def test_the_library_while_a_master_dies(lab):
    """After the first test two of three masters are left."""
    daemon = lab.service(3)
    before, after = phpunit(lab, daemon, "ClientTest.php", lambda: kill_one(daemon))
    assert before == 1 and after >= 9


def test_two_programs_while_a_master_dies(lab, program, tmp_path):
    """They add to one number."""
    daemon, number, turns = lab.service(3), tmp_path / "number", 40
    number.write_text("0")
    counting = [program(daemon, "count", "number", number, turns) for _ in range(2)]
    assert [one.hear() for one in counting] == ["one"] * 2
    kill_one(daemon)
    for one in counting:
        assert [one.hear() for _ in range(turns - 1)] == ["one"] * (turns - 1) and one.wait() == 0
    assert number.read_text() == str(2 * turns)


def test_a_refresh_without_a_majority(lab, program):
    """The old end holds, and then the lease is lost."""
    daemon = lab.service(3)
    holder = program(daemon, "hold", "orders/42", 15 * SLOW)
    assert int(holder.hear()) > 0

    def ask(what):
        holder.say(what)
        return holder.hear()
    kill_one(daemon)
    assert ask("refresh") == "done", "two of three masters are enough"
    daemon.masters[1].kill()
    left = float(ask("remaining"))
    assert ask("refresh") in ("no-quorum", "no-answer") and 0 < float(ask("remaining")) < left
    wait_until(lambda: float(ask("remaining")) == 0, 15 * SLOW, "it is lost")
    assert ask("refresh") == "lock-lost" and ask("release") == "null"


@pytest.mark.parametrize("mode, status", [("exit", 3), ("throw", 255), ("dropped", 0), ("detach", 0)])
def test_the_end_of_a_program(service, resource, program, mode, status):
    """Releases the lease, unless the program has detached it."""
    ending = program(service, mode, resource)
    if mode == "dropped":
        assert ending.hear() == "held", "no destructor releases it"
    assert ending.wait() == status
    assert state(service, resource)["held"] is (mode == "detach")


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_program_that_is_terminated_while_it_waits(lab, service, resource, program, is_granted):
    """Its handler calls exit(): no lease and no waiter is left, also if the lock was granted and the answer is lost."""
    relay = lab.keep(Relay(service))
    relay.address = relay.url
    held = service.acquire(resource, 60000)
    ending = program(relay, "terminate", resource)
    assert ending.hear() == "waits"
    wait_until(lambda: state(service, resource)["waiters"] == 1, what="it waits")
    if is_granted:
        relay.deaf = True
        service.release(held)
        wait_until(lambda: state(service, resource).get("fence", 0) > held["fence"], what="it is granted")
        relay.deaf = False
    ending.process.send_signal(signal.SIGTERM)
    assert ending.wait() == 143
    assert not state(service, f"{resource}/first")["held"]
    if not is_granted:
        wait_until(lambda: state(service, resource)["waiters"] == 0, what="it has left")
        service.release(held)
    assert not state(service, resource)["held"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_example(service, resource, library, tmp_path):
    """That of the README."""
    text = (ROOT / LIBRARIES[library] / "README.md").read_text(encoding="utf-8")
    example = re.search(r"^```php\n(.*?)^```\n", text, re.M | re.S)[1]
    key = "$key" if library == "client" else "$apiKey"
    for old, new in (("['https://a:8443', 'https://b:8443']", "getenv('REDLOCKD_URL')"), (f"['key' => {key}]", "[]"),
                     ("orders/42", resource)):
        assert old in example
        example = example.replace(old, new)
    uses = "".join(re.findall(r"^use .*\n", example, re.M))
    path = tmp_path / "example.php"
    path.write_text(f"""<?php
{uses}require '{PHP}/load.php';
function save(string $item, int $fence): void
{{
    $state = (new Redlockd\\Client(getenv('REDLOCKD_URL')))->state('{resource}');
    echo $item, $state['held'] && $state['fence'] === $fence ? ' held' : ' free', "\\n";
}}
$items = ['one', 'two'];
{example.replace(uses, '')}""", encoding="utf-8")
    done = subprocess.run(["php", str(path)], env=environment(service), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=patience(60), check=False)
    assert (done.returncode, done.stdout) == (0, "one held\ntwo held\n"), done
    assert not state(service, resource)["held"]


def test_the_packages(service, resource, tmp_path):
    """What ./dev package clients makes for a repository of Composer of the type artifact, as the READMEs say."""
    subprocess.run(["sh", "-euc", "mkdir -p build/package/clients; . tests/dev/clients.sh; package_client_php"],
                   cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    for library in LIBRARIES.values():
        source = ROOT / library
        package = json.loads((source / "composer.json").read_text("utf-8"))
        name = package["name"].replace("/", "-")
        with zipfile.ZipFile(ROOT / "build/package/clients" / f"{name}-{package['version']}.zip") as archive:
            archive.extractall(tmp_path / name)
        files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
        assert sorted(files) == sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*") if path.is_file())
        assert all((source / path).read_bytes() == (tmp_path / name / path).read_bytes() for path in files)
        assert " artifact CLONE/build/package/clients" in (source / "README.md").read_text("utf-8")
    done = subprocess.run(["php", "-r", f"""
        require '{tmp_path}/redlockd-client/src/autoload.php';
        require 'Symfony/Component/Lock/autoload.php';
        require '{tmp_path}/redlockd-symfony-lock/src/RedlockdStore.php';
        $store = new Redlockd\\Symfony\\RedlockdStore(new Redlockd\\Client(getenv('REDLOCKD_URL')), ['ttl' => 30]);
        $store->save($key = new Symfony\\Component\\Lock\\Key('{resource}'));
        echo $store->fence($key);"""], env=environment(service), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=patience(60), check=False)
    assert done.stdout == str(state(service, resource).get("fence")), done


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_readme_is_short(library):
    assert len((ROOT / LIBRARIES[library] / "README.md").read_text(encoding="utf-8").splitlines()) <= 60


def newer_than_7_4(*paths):
    done = subprocess.run(["php", str(PHP / "check_syntax.php"), *map(str, paths)], capture_output=True, text=True,
                          timeout=patience(60), check=False)
    assert done.stderr == "", done
    return done.stdout.splitlines()


def test_nothing_needs_a_newer_php():
    assert len(SOURCES) > 10
    assert newer_than_7_4(*SOURCES) == []


@pytest.mark.parametrize("text", ["enum A {}", "f(a: 1);", "$a?->b();", "match (1) { 1 => 2 };", "try {} catch (E) {}",
                                  "class A { function __construct(private int $a) {} }", "function f(): int|false {}",
                                  "f(...);", "$a = fn() => throw $b;", "str_contains('a', 'b');", "echo $a::class;",
                                  "function f(): mixed {}", "class A { function f(): static {} }",
                                  "class A { public readonly int $a; }"])
def test_the_check_finds_what_is_newer(tmp_path, text):
    path = tmp_path / "newer.php"
    path.write_text(f"<?php\n{text}\n", encoding="utf-8")
    assert len(newer_than_7_4(path)) >= 1
