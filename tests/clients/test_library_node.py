# SPDX-License-Identifier: MIT
"""Features of the library for Node alone: its package, its types, its errors, its arguments, its log."""

import json
import re
import shutil
import subprocess

import pytest

from driver import DRIVERS
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import DIES_WITH_US, ROOT, SLOW, clean_environment, patience
from node_programs import SOURCE, run, start
from test_library import state, url_of

if "node" not in DRIVERS:
    pytest.skip("REDLOCKD_TEST_LANGUAGES does not name node", allow_module_level=True)

TYPES = ROOT / "tests" / "clients" / "types"


def called(*command, folder, home=None):
    done = subprocess.run([*DIES_WITH_US, *map(str, command)], cwd=folder, env=clean_environment({"HOME": str(home or folder)}), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120 * SLOW, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


# ---- the package ----


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder where the package is installed, without a network."""
    folder, clone = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "tests/dev", clone / "tests/dev")  # not in the tree, where several processes of tests would meet
    shutil.copytree(SOURCE, clone / "clients/node")
    called("sh", "-euc", "mkdir -p build/package/clients; . tests/dev/clients.sh; package_client_node", folder=clone, home=folder)
    version = json.loads((SOURCE / "package.json").read_text(encoding="utf-8"))["version"]
    line = f"npm install CLONE/build/package/clients/redlockd-{version}.tgz"
    assert f"`{line}`" in (SOURCE / "README.md").read_text(encoding="utf-8")
    called(*line.replace("CLONE", str(clone)).split(), "--offline", "--no-audit", "--no-fund", folder=folder)
    return folder


MODULE = """
import * as imported from "redlockd";
import whole, { Client, Lease, Locked } from "redlockd";
import { createRequire } from "node:module";
const required = createRequire(import.meta.url)("redlockd");
const lease = await new required.Client(process.argv[2]).acquire(process.argv[3]);
const refusal = await new Client(process.argv[2]).acquire(process.argv[3], { wait: 0 }).catch((error) => error);
const { default: _, ...names } = imported;
const same = JSON.stringify(Object.keys(names).sort()) === JSON.stringify(Object.keys(required).filter((name) => name !== "module.exports").sort());
console.log(lease.fence > 0, lease instanceof Lease, refusal instanceof required.Locked, refusal instanceof Locked, whole === required, same);
"""


def test_the_package(service, resource, installed):
    """It is used by import and by require, which have the same classes."""
    for name in ("one.mjs", "two.cjs"):
        (installed / name).write_text(MODULE if name.endswith("mjs") else "require('redlockd'); import('./one.mjs');", encoding="utf-8")
        said = called("node", name, url_of(service), resource, folder=installed) if name.endswith("mjs") else \
            called("node", "-e", "process.argv.splice(1, 0, 'x'); require('./two.cjs')", url_of(service), resource, folder=installed)
        assert said == "true true true true true true\n"
        assert not state(service, resource)["held"], "released at the end of the program"
    files = {path.relative_to(installed / "node_modules/redlockd").as_posix() for path in (installed / "node_modules/redlockd").rglob("*") if path.is_file()}
    assert files == {"LICENSE", "README.md", "package.json", "index.d.ts", *(f"lib/{path.name}" for path in (SOURCE / "lib").iterdir())}
    assert (SOURCE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert "dependencies" not in json.loads((SOURCE / "package.json").read_text())


def test_the_readme(service, resource, installed):
    """Its first program, with a cluster, items and a storage."""
    text = re.search(r"^```js\n(.*?)^```$", (SOURCE / "README.md").read_text(encoding="utf-8"), re.M | re.S)[1]
    text = text.replace('["https://a:8443", "https://b:8443"]', json.dumps(url_of(service))).replace('"orders/42"', json.dumps(resource))
    before = """const KEY = "k", items = [1, 2], save = async (item, { fence, signal }) => console.log(item, fence > 0, signal.aborted);\n"""
    (installed / "readme.mjs").write_text(before + text, encoding="utf-8")
    assert called("node", "readme.mjs", folder=installed) == "1 true false\n2 true false\n"
    assert not state(service, resource)["held"]


@pytest.mark.parametrize("libraries", ["ES2022", "ES2022,DOM,ESNext.Disposable"])
def test_types(installed, tmp_path, libraries):
    """The types of the installed package, with `import` and `require`, and what must not be accepted."""
    compiler = TYPES / "node_modules"
    if not compiler.exists():
        pytest.skip("the compiler is not installed: npm ci in tests/clients/types")
    (tmp_path / "node_modules").mkdir()
    for path in compiler.iterdir():
        (tmp_path / "node_modules" / path.name).symlink_to(path)
    (tmp_path / "node_modules" / "redlockd").symlink_to(installed / "node_modules" / "redlockd")
    for caller in ("caller.mts", "caller.cts"):
        shutil.copy(TYPES / caller, tmp_path)
    called("node_modules/.bin/tsc", "--noEmit", "--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--target", "ES2022",
           "--module", "NodeNext", "--preserveSymlinks", "--types", "node", "--lib", libraries, "caller.mts", "caller.cts", folder=tmp_path)


def test_the_types_name_what_is_there():
    declared = set(re.findall(r"^export class (\w+)", (SOURCE / "index.d.ts").read_text(encoding="utf-8"), re.M))
    codes = dict(re.findall(r'^export class (\w+) extends RedlockdError \{\s*readonly code: "([a-z-]+)"', (SOURCE / "index.d.ts").read_text(encoding="utf-8"), re.M))
    names, kinds = run("say(Object.keys(redlockd)); say(Object.values(redlockd).filter((kind) => kind.code).map((kind) => [kind.name, kind.code]));")
    assert declared == set(names) - {"default", "module.exports"}
    assert {**codes, "RedlockdError": "error"} == dict(kinds)
    documented = set(re.findall(r"^## `([a-z-]+)`$", (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8"), re.M))
    assert len(documented) > 10 and set(codes.values()) == documented | {"no-answer", "lock-lost"}


def test_the_library_is_small():
    """At most 1080 lines of code: without comments and empty lines. Agents of Node keep the connections."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCE / "lib").glob("*.js"))
    lines = [line.strip() for line in re.sub(r"/\*.*?\*/", "", code, flags=re.S).splitlines()]
    assert 300 < len([line for line in lines if line and not line.startswith("//")]) <= 1080


# ---- errors ----


def test_errors(fake):
    """The README says this of them."""
    server = fake(acquire=lambda call: call.problem(409, "locked", holder={"owner": "me"}, type="t"), extend=lambda call: call.problem(410, "lease-expired"))
    other = fake(acquire=lambda call: call.problem(418, "new-error"))
    said, = run("""
    const error = await client.acquire("x", { wait: 0 }).catch((error) => error);
    const strange = await new redlockd.Client(given[0]).acquire("x").catch((error) => error);
    const none = await new redlockd.Client("http://localhost:1").acquire("x", { wait: 0 }).catch((error) => error);
    say([error instanceof redlockd.Locked, error instanceof redlockd.RedlockdError, error instanceof Error, error.name, error.code, error.status,
        error.detail === error.message, error.problem.holder.owner, strange.constructor === redlockd.RedlockdError, strange.code, strange.status,
        none instanceof redlockd.NoAnswer, none.code, none.status, none.cause.code, new redlockd.NotOwner("").code]);
    """, server.address, "x", other.address)
    assert said == [True, True, True, "Locked", "locked", 409, True, "me", True, "new-error", 418, True, "no-answer", 0, "ECONNREFUSED", "not-owner"]


@pytest.mark.parametrize("answer, wrong", [
    (lambda call: json.dumps([call.granted()]), "body"),
    (lambda call: "", "body"),
    (lambda call: json.dumps(call.granted()) + "!", "body"),
    (lambda call: json.dumps(call.granted(token=TOKEN + "0")), "token"),
    (lambda call: json.dumps(call.granted(fence=7.5)), "fence")])
def test_an_answer_that_is_no_lease(fake, answer, wrong):
    """It is asked for again, and told as no answer of this server. The error says what was wrong, and not what was in
    it."""
    server = fake(acquire=lambda call: call.answer(201, answer(call).encode()))
    code, message, shown = run("""
    const error = await client.acquire("x", { wait: 0 }).catch((error) => error);
    [error.code, error.message, require("node:util").inspect(error, { depth: 9, showHidden: true })].forEach(say);
    """, server.address)
    assert code == "no-answer" and f"{server.address}: its {wrong} " in message
    assert TOKEN not in shown and len(server.of("acquire")) >= 2


# ---- arguments ----


def test_members_that_are_handed_on(fake):
    server = fake(acquire=lambda call: call.lease(slot=3))
    said, = run("""
    const mine = new redlockd.Client(url, { owner: "me", key: null });
    const lease = await mine.acquire("x", { mode: "exclusive", slots: 4, metadata: { job: 7 } });
    const other = await mine.acquire("x", { owner: null });
    await client.acquire(["x", "y"], { metadata: null });
    say([lease.slot, other.slot, lease.resources, Object.isFrozen(lease.resources)]);
    """, server.address)
    assert said == [3, None, ["x"], True]
    bodies = [{name: value for name, value in call.body.items() if name != "wait_ms"} for call in server.of("acquire")]
    assert bodies == [{"resource": "x", "mode": "exclusive", "slots": 4, "metadata": {"job": 7}, "owner": "me"},
                      {"resource": "x", "owner": "me"}, {"resources": ["x", "y"]}]
    assert "authorization" not in server.calls[0].headers


def test_what_the_caller_changes_later_changes_no_request(fake):
    """The same key must not come with another body."""
    server = fake(acquire=lambda call: call.lease() if len(call.server.of("acquire")) > 1 else call.connection.close())
    run("""
    const metadata = { job: 7 }, names = ["x", "y"];
    const asked = client.acquire(names, { metadata });
    metadata.job = names[1] = "z";
    await asked;
    """, server.address)
    assert [(call.body["metadata"], call.body["resources"]) for call in server.of("acquire")] == [({"job": 7}, ["x", "y"])] * 2
    assert server.of("release")[0].body["resources"] == ["x", "y"]


ADDRESSES = ["", "127.0.0.1:8080", "localhost:8080", "ftp://a", "https://", "https://u:p@a", "http://a\r\nX: y", "http://a/?b", "http://a/#b", "unix:", 7]


def test_arguments_that_make_no_client():
    calls = [f"new redlockd.Client(['http://127.0.0.1:1', {json.dumps(address)}])" for address in ADDRESSES]
    calls += [f"new redlockd.Client({arguments})" for arguments in (
        "[]", "'http://a', { key: '' }", "'http://a', { key: 'a\\r\\nb' }", "'http://a', { key: 'é' }", "'http://a', { timeout: 0 }",
        "'http://a', { timeout: NaN }", "'http://a', { keys: 'a' }", "'https://a', { ca: '/does/not/exist' }")]
    said = run("".join(f"try {{ {call}; say('fine'); }} catch (error) {{ say(error.code === 'ENOENT' ? error.code : error.constructor.name); }}\n" for call in calls))
    assert len(said) == len(calls) and set(said) == {"TypeError", "RangeError", "ENOENT"}


def test_options_that_make_no_lock(fake):
    """They are told before anything is sent, as a rejection."""
    server = fake()
    options = ["{ ttl: 0 }", "{ ttl: NaN }", "{ ttl: Infinity }", "{ wait: -1 }", "{ ttl: 30000, margin: 15001 }", "{ margin: -1 }", "{ waitMs: 1 }", "{ hold: true }",
               "{ metadata: { a: 1n } }"]
    said = run("".join(f"say(await codeOf(client.acquire('x', {one})));" for one in options) + "say(await codeOf(client.acquire()));", server.address)
    assert said == ["RangeError"] * 6 + ["TypeError"] * 4 and not server.calls


# ---- the log ----


@pytest.mark.parametrize("logger", ["given", "debuglog"])
def test_no_secrets_in_the_log(fake, logger):
    """With each kind of event in it. Nor does a lease or a client show them."""
    extends = []

    def extend(call):
        extends.append(call)
        call.lease(200) if len(extends) == 1 else call.problem(503, "no-quorum") if len(extends) == 2 else call.problem(410, "lease-expired")
    server = fake(acquire=lambda call: call.lease() if len(call.server.of("acquire")) > 1 else call.connection.close(), extend=extend,
                  release=lambda call: call.problem(410, "lease-expired"))
    process = start("""
    const lines = [];
    const note = (...line) => lines.push(line);
    const options = given[0] === "given" ? { logger: { debug: note, info: note, warn: note } } : {};
    const mine = new redlockd.Client(url, { key: "SECRET-KEY", ...options });
    const { inspect } = require("node:util");
    const code = await codeOf(mine.using("x", { ttl: 4500 }, async (lease, signal) => {
        console.error(inspect([lease, mine], { depth: 9, showHidden: true }), JSON.stringify([lease, mine]));
        while (!signal.aborted) await pause(10);
    }));
    // lines come a moment after the event
    while (options.logger && !lines.some(([line]) => line.startsWith("release"))) await pause(1);
    lines.forEach((line) => console.error(...line));
    say([code, lines.every((line) => line.length === 1 && typeof line[0] === "string")]);
    """, server.address, "x", logger, env={"NODE_DEBUG": "redlockd"})
    output, error = process.communicate(timeout=patience(30))
    assert json.loads(output) == ["lock-lost", True], error
    for text in ("again in", "acquired x, fence 7", "renewal of x", "lease on x lost: ", "release of x"):
        assert text in error
    secrets = {TOKEN, "SECRET-KEY", server.calls[0].headers["idempotency-key"]}
    assert server.calls[0].headers["authorization"] == "Bearer SECRET-KEY"
    assert not [secret for secret in secrets if secret in error]


FAILS = """
const fails = {
    throws: () => { throw new Error("of the logger"); },
    rejects: async () => { throw new Error("of the logger"); },
    "answers with a strange promise": () => ({ get then() { throw new Error("of the logger"); } }),
    "has no function": undefined,
}[given[0]];
const mine = new redlockd.Client(url, { logger: { debug: fails, info: fails, warn: fails } });
"""


@pytest.mark.parametrize("how", ["throws", "rejects", "answers with a strange promise", "has no function"])
def test_a_logger_that_fails_changes_nothing(fake, how):
    """Not an acquisition that is repeated, a renewal that fails, a loss, a release; there is no unhandled rejection."""
    def extend(call):
        turn = len(call.server.of("extend"))
        if turn == 2:
            return call.lease()
        return call.problem(503, "no-quorum") if turn == 1 else call.problem(410, "lease-expired")

    def acquire(call):
        return call.lease() if len(call.server.of("acquire")) > 1 else call.connection.close()
    server = fake(acquire=acquire, extend=extend)
    said, = run(FAILS + """
    const lease = await mine.acquire("x", { ttl: Number(given[1]) });
    const alive = setInterval(() => {}, 1000);
    await new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
    clearInterval(alive);
    const other = await mine.acquire("y");
    say([lease.signal.reason.cause.code, await other.release()]);
    """, server.address, "x", how, round(4500 * SLOW))
    assert said == ["lease-expired", True] and len(server.of("extend")) == 3


def test_a_loss_is_told_before_it_is_logged(fake):
    """A logger that takes its time does not delay those who listen."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    said, = run("""
    const told = [];
    const log = (text) => { if (text.startsWith("lease on")) { told.push("log"); block(50); } };
    const mine = new redlockd.Client(url, { logger: { debug: log, info: log, warn: log } });
    const alive = setInterval(() => {}, 1000);
    const lease = await mine.acquire("x", { ttl: 4500 });
    lease.signal.addEventListener("abort", () => told.push("listener"));
    while (told.length < 2) await pause(1);
    clearInterval(alive);
    say(told);
    """, server.address)
    assert said == ["listener", "log"]
