"""What only the library for Node has: its package, its types, signals, the event loop, the end of a program."""

import json
import re
import shutil
import subprocess
import threading
import time

import pytest

from driver import DRIVERS
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import DIES_WITH_US, ROOT, SLOW, clean_environment, patience, wait_until
from test_library import state, url_of
from test_redlockctl_tls import context
from certificates import Authority

if "node" not in DRIVERS:
    pytest.skip("REDLOCKD_TEST_LANGUAGES does not name node", allow_module_level=True)

SOURCE = ROOT / "clients" / "node"
TYPES = ROOT / "tests" / "clients" / "types"
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


def start(text, *arguments, env=None):
    """A program that has a client `client` of the first argument, and the name `resource`, the second one."""
    command = ["node", "--input-type=module", "-e", HEAD + text, "--", "it", *map(str, arguments)]
    return subprocess.Popen([*DIES_WITH_US, *command], env=clean_environment(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def end(process):
    """What the program said, a value a line."""
    try:
        output, error = process.communicate(timeout=patience(30))
    finally:
        process.kill()
    assert process.returncode == 0, error
    return [json.loads(line) for line in output.splitlines()]


def run(text, *arguments, env=None):
    return end(start(text, *arguments, env=env))


def called(*command, folder, home=None):
    done = subprocess.run([*DIES_WITH_US, *map(str, command)], cwd=folder, env=clean_environment({"HOME": str(home or folder)}), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120 * SLOW, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


# ---- the package ----


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder where the package is installed, without a network."""
    folder = tmp_path_factory.mktemp("package")
    called("sh", "-euc", "mkdir -p build/package/clients; . tests/dev/clients.sh; package_client_node", folder=ROOT, home=folder)
    version = json.loads((SOURCE / "package.json").read_text(encoding="utf-8"))["version"]
    package = ROOT / "build" / "package" / "clients" / f"redlockd-{version}.tgz"
    called("npm", "install", "--offline", "--no-audit", "--no-fund", package, folder=folder)
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
    """Of the installed package, with `import` and `require`, and what must not be accepted."""
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
    codes = dict(re.findall(r'^export class (\w+) extends RedlockdError \{ readonly code: "([a-z-]+)"', (SOURCE / "index.d.ts").read_text(encoding="utf-8"), re.M))
    names, kinds = run("say(Object.keys(redlockd)); say(Object.values(redlockd).filter((kind) => kind.code).map((kind) => [kind.name, kind.code]));")
    assert declared == set(names) - {"default", "module.exports"}
    assert {**codes, "RedlockdError": "error"} == dict(kinds)
    documented = set(re.findall(r"^## `([a-z-]+)`$", (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8"), re.M))
    assert len(documented) > 10 and set(codes.values()) == documented | {"no-answer", "lock-lost"}


# ---- errors ----


def test_errors(fake):
    """What is said in the README of them."""
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


@pytest.mark.parametrize("answer", [[], None, {"token": "short"}, {"token": TOKEN, "fence": 7, "ttl_ms": 1, "validity_ms": "1"}, {"token": TOKEN, "fence": 7.5, "ttl_ms": 1, "validity_ms": 1}])
def test_an_answer_that_is_no_lease(fake, answer):
    """It is asked for again, and told as no answer; the error does not show what was in it."""
    server = fake(acquire=lambda call: call.answer(201, answer))
    said, = run('const error = await client.acquire("x", { wait: 0 }).catch((error) => error); say([error.code, JSON.stringify(error)]);', server.address)
    assert said[0] == "no-answer" and TOKEN not in said[1] and len(server.of("acquire")) >= 2


def raw(data):
    """Answers with these bytes, and closes the connection."""
    def behave(call):
        call.connection.sendall(data)
        call.connection.close()
    return behave


LEASE = json.dumps({"token": TOKEN, "fence": 7, "ttl_ms": 30000, "validity_ms": 20000}).encode()


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 201 X\r\nContent-Length: 500\r\n\r\n" + LEASE,
    b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(LEASE), LEASE),
    b"HTTP/1.1 201 X\r\n\r\n" + LEASE[:-1],
    b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + LEASE,
    b"HTTP/1.1 201 X\r\nContent-Length: 9000000\r\n\r\n" + b" " * 9000000,
    b"SSH-2.0-OpenSSH_9.2\r\n",
], ids=["length", "chunked", "close", "upgrade", "long", "ssh"])
def test_an_answer_that_is_cut_off_or_no_http(fake, data):
    """Even where what came would be a lease."""
    server = fake(acquire=raw(data))
    assert run('say(await codeOf(client.acquire("x", { wait: 0 })));', server.address) == ["no-answer"]
    assert len(server.of("acquire")) >= 2


# ---- the event loop ----


@pytest.mark.parametrize("question", ["throws(() => lease.check())", "throws(() => lease.signal.throwIfAborted())", "lease.signal.aborted", "lease.remaining === 0",
                                      "lease.signal.reason instanceof redlockd.LockLost", "signal.aborted"])
def test_the_first_question_after_the_loop_was_blocked(fake, question):
    """No timer can have told the loss. A lease whose answer to the renewal is there meanwhile stays lost."""
    server = fake()
    said, = run(f"""
    const throws = (work) => {{ try {{ work(); return false; }} catch (error) {{ return error instanceof redlockd.LockLost; }} }};
    const lease = await client.acquire("x", {{ ttl: 500 }});
    const {{ signal }} = lease;
    const before = {question};
    block(200);  // a renewal is due
    await pause(1);
    block(600);
    const first = {question};
    await pause(100);
    say([before, first, {question}, lease.remaining]);
    """, server.address)
    assert said == [False, True, True, 0]


def test_the_loop_goes_on(fake):
    """The server answers only after the loop has done something else: with all that the client can ask."""
    gone_on = threading.Event()

    def after_the_loop(answer):
        def behave(call):
            assert gone_on.wait(20 * SLOW), "the loop is blocked"
            gone_on.clear()
            answer(call)
        return behave
    server = fake(acquire=after_the_loop(lambda call: call.lease()), release=after_the_loop(lambda call: call.answer(204)),
                  state=after_the_loop(lambda call: call.answer(200, {"held": False})))
    process = start("""
    const beside = (work) => Promise.all([work, pause(10).then(() => say("goes on"))]);
    const [lease] = await beside(client.acquire("x"));
    await beside(lease.release());
    await beside(client.watch("x").next());
    await beside(client.force("x"));
    """, server.address)
    lines = 0
    for line in process.stdout:
        lines += json.loads(line) == "goes on"
        gone_on.set()
    assert process.wait(patience(10)) == 0 and lines == 4
    process.stdout.close()
    process.stderr.close()


def test_the_event_comes_by_itself(fake):
    """In time, not with the next renewal; also for those who only listen, such as a request with this signal."""
    server = fake(extend=lambda call: call.problem(503, "no-quorum"))
    said, = run("""
    const lease = await client.acquire("x", { ttl: 1500, margin: 0 });  // renewals are tried at 1400 and 1550 ms
    const alive = setInterval(() => {}, 1000);
    const inTime = Promise.race([
        new Promise((resolve) => lease.signal.addEventListener("abort", () => resolve(true))), pause(lease.remaining + 20, false)]);
    const listened = new Promise((resolve) => lease.signal.addEventListener("abort", (event) => resolve(event.target === lease.signal)));
    const late = await pause(60000, 0, { signal: lease.signal }).catch((error) => error.cause instanceof redlockd.LockLost);
    clearInterval(alive);
    say([await inTime, late, await listened, AbortSignal.any ? AbortSignal.any([lease.signal]).aborted : true]);
    """, server.address)
    assert said == [True] * 4
    assert 2 <= len(server.of("extend")) <= 9, "a tenth of the ttl apart"


def test_a_machine_that_slept(fake):
    """performance.now() stands still while a machine sleeps, os.uptime() does not. A clock that goes back changes nothing."""
    server = fake()
    said, = run("""
    const os = require("node:os");
    const real = os.uptime;
    const leases = [await client.acquire("x"), await client.acquire("y", { ttl: 60000 })];
    os.uptime = () => real() - 3600;
    const back = leases.map(({ remaining }) => remaining > 20000);
    os.uptime = () => real() + 28;
    const forth = leases.map((lease) => [lease.remaining > 0, lease.signal.aborted]);
    os.uptime = real;
    say([back, forth, leases.map(({ signal }) => signal.aborted)]);
    await Promise.all(leases.map((lease) => lease.release()));
    """, server.address)
    assert said == [[True, True], [[False, True], [True, False]], [True, False]]


def test_a_loss_is_final():
    """Also where a renewal is answered right after it."""
    said, = run("""
    const { Term, clock } = require("./term.js");
    const terms = [new Term(clock() - 1, 0), new Term(clock() + 100000, 0)];
    terms[1].lose(new redlockd.LockLost("it was"));
    terms.forEach((term) => term.extend(clock() + 200000));
    say(terms.map((term) => [term.remaining, term.loss.code, term.signal.aborted]));
    """)
    assert said == [[0, "lock-lost", True]] * 2


# ---- cancelling ----


def test_the_reason_of_the_signal_is_told(fake):
    """Before the first request, which is then not sent, and in a pause, after which none is sent. Nothing is left that listens."""
    server = fake(acquire=lambda call: call.answer(503, {"code": "draining", "detail": "d"}, Retry_After=3600))
    said, = run("""
    const { getEventListeners } = require("node:events");
    const reason = new Error("mine");
    process.on("warning", (warning) => say(warning.name));
    const early = await client.acquire("x", { signal: AbortSignal.abort(reason) }).catch((error) => error);
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), 500);
    const late = await Promise.all(Array.from({ length: 20 }, () => client.using("x", { signal: controller.signal }, () => {}).catch((error) => error)));
    say([early === reason, late.every((error) => error === reason), getEventListeners(controller.signal, "abort").length]);
    """, server.address)
    assert said == [True, True, 0]
    assert sorted(call.body["wait_ms"] == 0 for call in server.of("acquire")) == [False] * 20 + [True] * 20, "after a 503 there may be a lease"


def test_a_grant_that_comes_with_the_cancellation_is_given_back(fake):
    """The answer is there when the signal is aborted, and nobody has looked at it yet."""
    server = fake()
    said, = run("""
    const { Servers } = require("./servers.js");
    const controller = new AbortController();
    const { ask } = Servers.prototype;
    Servers.prototype.ask = async function (...given) {
        const answer = await ask.apply(this, given);
        controller.abort(new Error("mine"));
        return answer;
    };
    say(await client.acquire("x", { signal: controller.signal }).catch((error) => error.message));
    """, server.address)
    assert said == "mine" and [call.kind for call in server.calls] == ["acquire", "acquire", "release"]
    assert server.calls[0].headers["idempotency-key"] == server.calls[1].headers["idempotency-key"] and server.calls[1].body["wait_ms"] == 0


def test_a_signal_does_not_end_a_lease(fake):
    said, = run("""
    const controller = new AbortController();
    const lease = await client.acquire("x", { signal: controller.signal });
    controller.abort();
    lease.check();
    say(await lease.release());
    """, fake().address)
    assert said is True


def test_a_watch_ends(service, resource):
    """By its signal, in the middle of a request, and by leaving the loop; then the program ends, too."""
    since = time.monotonic()
    said = run("""
    for await (const state of client.watch(resource)) { say(state.held); break; }
    const controller = new AbortController();
    const watch = client.watch(resource, { signal: controller.signal });
    await watch.next();
    setTimeout(() => controller.abort(), 200);
    say(await codeOf(watch.next()));
    say(await watch.next());
    """, url_of(service), resource)
    assert said == [False, "AbortError", {"done": True}] or said == [False, 20, {"done": True}]
    assert time.monotonic() - since < 10 * SLOW


# ---- the end ----


def test_a_program_that_ends_releases(service, resource):
    """A lease alone does not keep it alive. Whoever waits for the signal of a lease goes on."""
    said = run("""
    const leases = [await client.acquire(resource), await client.acquire(resource + "/b", { mode: "shared" })];
    await new Promise((resolve) => leases[0].signal.addEventListener("abort", resolve));
    say(leases[0].signal.reason.message);
    """, url_of(service), resource)
    assert said == ["the lease was released"]
    assert not state(service, resource)["held"] and not state(service, resource + "/b")["held"]


def test_a_worker_thread_that_ends_releases(service, resource):
    run("""
    const { Worker } = require("node:worker_threads");
    const text = `const { Client } = require(${JSON.stringify(require.resolve("./index.js"))});
        new Client(${JSON.stringify(url)}).acquire(${JSON.stringify(resource)});`;
    const worker = new Worker(text, { eval: true, execArgv: [] });
    await new Promise((resolve) => worker.on("exit", resolve));
    """, url_of(service), resource)
    assert not state(service, resource)["held"]


def test_a_block_keeps_the_program_alive(service, resource):
    """Where it waits for nothing but its own signal. It ends with the loss."""
    process = start("""
    say(await codeOf(client.using(resource, { ttl: 900 }, (lease, signal) => new Promise((resolve) => signal.addEventListener("abort", resolve)))));
    """, url_of(service), resource)
    fence = wait_until(lambda: state(service, resource).get("fence"), what="it is taken")
    time.sleep(2.5)  # several renewals long
    assert process.poll() is None and state(service, resource)["fence"] == fence
    assert service.curl("DELETE", f"/locks/{resource}?force=true").status == 204
    assert end(process) == ["lock-lost"]


def test_a_block(fake):
    """It returns what the function returns; its errors are told, not the loss that they are about; a caller may release in it."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    said, = run("""
    const short = { ttl: 600 };
    const lost = (lease) => new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
    say([
        await client.using("x", (lease, signal) => [lease.fence, signal === lease.signal]),
        await client.using("x", {}, async (lease) => lease.release()),
        await codeOf(client.using("x", () => { throw new TypeError("mine"); })),
        await codeOf(client.using("x", short, async (lease) => { await lost(lease); throw new TypeError("mine"); })),
        await codeOf(client.using("x", short, async (lease) => { await lost(lease); try { lease.check(); } catch { /* it ends well */ } })),
    ]);
    """, server.address)
    assert said == [[7, True], True, "TypeError", "TypeError", "lock-lost"]
    assert len(server.of("release")) == 5


def test_await_using(fake):
    """What the compilers make of it."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    said, = run("""
    const dispose = Symbol.asyncDispose ?? Object.getOwnPropertySymbols(redlockd.Lease.prototype)[0];
    const lost = (lease) => new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
    const leases = [];
    for (const ttl of [30000, 600, 600]) leases.push(await client.acquire("x", { ttl }));
    const alive = setInterval(() => {}, 1000);
    await Promise.all(leases.slice(1).map(lost));
    clearInterval(alive);
    const told = await codeOf(Promise.resolve().then(() => leases[2].check()));
    say([told, await Promise.all(leases.map((lease) => codeOf(lease[dispose]())))]);
    """, server.address)
    assert said == ["lock-lost", ["none", "lock-lost", "none"]]


def test_a_second_release_waits_for_the_first(fake):
    server = fake(release=lambda call: time.sleep(0.5) or call.answer(204))
    said, = run("""
    const lease = await client.acquire("x");
    const ended = [];
    await Promise.all([1, 2].map(async (number) => ended.push([number, await lease.release()])));
    say(ended);
    """, server.address)
    assert said == [[1, True], [2, False]] and len(server.of("release")) == 1


# ---- servers ----


def test_a_name_with_several_addresses(fake):
    """localhost is ::1 first in many places, and this server listens on 127.0.0.1 only."""
    server = fake(port=True)
    said = run("""
    require("node:dns").lookup = (name, options, done) => {
        const both = [{ address: "::1", family: 6 }, { address: "127.0.0.1", family: 4 }];
        process.nextTick(() => (options.all ? done(null, both) : done(null, "::1", 6)));
    };
    say((await new redlockd.Client(`http://localhost:${given[0]}/`).acquire("x", { wait: 0 })).fence);
    """, server.address, "x", server.port)
    assert said == [7]


def test_a_path_before_the_calls(fake):
    paths = []

    def behave(call):
        paths.append(call.path)
        call.lease()
    server = fake(port=True, acquire=behave)
    assert run("say((await new redlockd.Client(`${url}/a/b/`).acquire('x')).fence);", server.address) == [7] and paths == ["/a/b/locks"]


def test_certificates_are_always_checked(lab, fake):
    """Also where the environment says that they are not."""
    server = fake(tls=context(Authority(lab.folder).issue("server", "IP:127.0.0.1", usage="serverAuth")))
    said = run('say(await codeOf(client.acquire("x", { wait: 0 })));', server.address, env={"NODE_TLS_REJECT_UNAUTHORIZED": "0"})
    assert said == ["no-answer"] and not server.calls


def test_nothing_is_left_of_health_checks(fake):
    """The one that is under way when the answer comes does not keep the program alive."""
    def slow(call):
        call.server.call("health")
        call.lease()
    first, second = fake(acquire=slow, health=lambda call: call.connection.recv(1)), fake()
    said = run("""
    const lease = await new redlockd.Client([url, resource], { timeout: 3000 }).acquire("x");
    const since = performance.now();
    process.on("exit", () => say([lease.fence, performance.now() - since < 2000]));
    """, first.address, second.address)
    assert said == [[7, True]] and not second.of("acquire")


def test_a_renewal_without_an_answer_is_given_up(fake):
    """After a fifth of the ttl, although a server may take five seconds for other requests; the next one renews."""
    first, second = fake(extend=lambda call: time.sleep(6 * SLOW)), fake()
    said, = run("""
    const lease = await new redlockd.Client([url, resource]).acquire("x", { ttl: 3000 });
    await pause(3500);
    say([lease.signal.aborted, await lease.release()]);
    """, first.address, second.address)
    assert said == [False, True] and len(first.of("extend")) == 1
    assert 0.5 < second.call("extend").came - first.call("extend").came < 2


# ---- arguments ----


def test_members_that_are_handed_on(fake):
    server = fake(acquire=lambda call: call.answer(201, {"token": TOKEN, "fence": 7, "ttl_ms": 30000, "validity_ms": 9000, "slot": 3}))
    said, = run("""
    const mine = new redlockd.Client(url, { owner: "me", key: null });
    const lease = await mine.acquire("x", { mode: "exclusive", slots: 4, metadata: { job: 7 } });
    await mine.acquire("x", { owner: null });
    await client.acquire(["x", "y"], { metadata: null });
    say([lease.slot, lease.resources, Object.isFrozen(lease.resources)]);
    """, server.address)
    assert said == [3, ["x"], True]
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


# ---- secrets ----


def test_the_library_is_small():
    """At most 520 lines of code: without comments and empty lines."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCE / "lib").glob("*.js"))
    lines = [line.strip() for line in re.sub(r"/\*.*?\*/", "", code, flags=re.S).splitlines()]
    assert 300 < len([line for line in lines if line and not line.startswith("//")]) <= 520


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
    const code = await codeOf(mine.using("x", { ttl: 900 }, async (lease, signal) => {
        console.error(inspect([lease, mine], { depth: 9, showHidden: true }), JSON.stringify([lease, mine]));
        while (!signal.aborted) await pause(10);
    }));
    lines.forEach((line) => console.error(...line));
    say([code, lines.every((line) => line.length === 1 && typeof line[0] === "string")]);
    """, server.address, "x", logger, env={"NODE_DEBUG": "redlockd"})
    output, error = process.communicate(timeout=patience(30))
    assert json.loads(output) == ["lock-lost", True], error
    for text in ("again in", "acquired x, fence 7", "renewal of x", "lease on x: ", "release of x"):
        assert text in error
    secrets = {TOKEN, "SECRET-KEY", server.calls[0].headers["idempotency-key"]}
    assert server.calls[0].headers["authorization"] == "Bearer SECRET-KEY"
    assert not [secret for secret in secrets if secret in error]
