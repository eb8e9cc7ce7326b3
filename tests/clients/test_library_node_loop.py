# SPDX-License-Identifier: MIT
"""Features of the library for Node alone: the event loop, signals, the end of a program."""

import json
import threading
import time

import pytest

from driver import DRIVERS
from fake_redlockd import fake  # noqa: F401
from harness import SLOW, patience, wait_until
from node_programs import end, run, start
from test_library import state, url_of

if "node" not in DRIVERS:
    pytest.skip("REDLOCKD_TEST_LANGUAGES does not name node", allow_module_level=True)


# ---- the event loop ----


@pytest.mark.parametrize("question", ["throws(() => lease.check())", "throws(() => lease.signal.throwIfAborted())", "lease.signal.aborted", "lease.remaining === 0",
                                      "lease.signal.reason instanceof redlockd.LockLost", "signal.aborted"])
def test_the_first_question_after_the_loop_was_blocked(fake, question):
    """No timer can have told the loss. A lease whose answer to the renewal is there meanwhile stays lost."""
    server = fake()
    said, = run(f"""
    const throws = (work) => {{ try {{ work(); return false; }} catch (error) {{ return error instanceof redlockd.LockLost; }} }};
    const lease = await client.acquire("x", {{ ttl: 4000 }});
    const {{ signal }} = lease;
    const before = {question};
    block(1600);  // a renewal is due
    await pause(1);
    block(4000);  // longer than the lease, also where it was renewed just now
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
    const lease = await client.acquire("x", { ttl: 4500, margin: 0 });  // renewals are tried at 4200 and 4650 ms
    const alive = setInterval(() => {}, 1000);
    const inTime = Promise.race([
        new Promise((resolve) => lease.signal.addEventListener("abort", () => resolve(true))), pause(lease.remaining + 100, false)]);
    const listened = new Promise((resolve) => lease.signal.addEventListener("abort", (event) => resolve(event.target === lease.signal)));
    const late = await pause(60000, 0, { signal: lease.signal }).catch((error) => error.cause instanceof redlockd.LockLost);
    clearInterval(alive);
    say([await inTime, late, await listened, AbortSignal.any ? AbortSignal.any([lease.signal]).aborted : true]);
    """, server.address)
    assert said == [True] * 4
    assert 1 <= len(server.of("extend")) <= 9, "a tenth of the ttl apart"


def test_a_machine_that_slept(fake):
    """performance.now() stands still while a machine sleeps, os.uptime() does not. A clock that goes back changes nothing."""
    server = fake()
    said, = run("""
    const os = require("node:os");
    const real = os.uptime;
    const leases = [await client.acquire("x"), await client.acquire("y", { ttl: 60000 })];
    os.uptime = () => real() - 3600;
    await pause(2); // nothing sleeps in less than a millisecond
    const back = leases.map(({ remaining }) => remaining > 20000);
    os.uptime = () => real() + 28;
    await pause(2);
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


def test_a_renewal_survives_every_error(fake):
    """It is logged, and the next one comes soon."""
    server = fake()
    said, = run("""
    const { Servers } = require("./servers.js");
    const { ask } = Servers.prototype;
    let left = 2;
    Servers.prototype.ask = async function (...given) {
        if (given[0].method === "PUT" && left-- > 0) throw new RangeError("of the library");
        return ask.apply(this, given);
    };
    const lines = [];
    const log = (text) => lines.push(text);
    const mine = new redlockd.Client(url, { logger: { debug: log, info: log, warn: log } });
    const lease = await mine.acquire("x", { ttl: Number(given[0]) });
    while (left > -2) await pause(1);
    say([lease.signal.aborted, lines.filter((line) => line === "renewal of x: of the library").length]);
    """, server.address, "x", round(6000 * SLOW))
    assert said == [False, 2] and len(server.of("extend")) >= 1


def test_a_listener_that_throws_ends_nothing_of_the_library(fake):
    """Node tells its error as that of every listener. The other leases are renewed, and their losses are told."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired") if call.name == "x" else call.lease())
    said, = run("""
    const errors = [];
    process.on("uncaughtException", (error) => errors.push(error.message));
    const options = { ttl: Number(given[0]) };
    const leases = await Promise.all(["x", "y"].map((name) => client.acquire(name, options)));
    const alive = setInterval(() => {}, 1000);
    let told = false;
    leases[0].signal.addEventListener("abort", () => { throw new Error("mine"); });
    leases[0].signal.addEventListener("abort", () => { told = true; });
    while (!told) await pause(1);
    const before = leases[1].remaining;
    while (leases[1].remaining <= before) await pause(1); // it is renewed
    clearInterval(alive);
    say([errors, leases.map(({ signal }) => signal.aborted)]);
    """, server.address, "x", round(6000 * SLOW))
    assert said == [["mine"], [True, False]]


def test_the_asynchronous_context(fake):
    """Callers that have leases in one request keep apart: a renewal is of none of them, a callback is of its own."""
    server = fake(extend=lambda call: call.lease(waiters=1))
    said, = run("""
    const { AsyncLocalStorage } = await import("node:async_hooks");
    const storage = new AsyncLocalStorage();
    const headers = () => ({ "X-Caller": storage.getStore() });
    const mine = storage.run("program", () => new redlockd.Client(url, { headers }));
    const called = [];
    const onWanted = (lease) => called.push([lease.resources[0], storage.getStore()]);
    const acquire = (name) => storage.run(name, () => mine.acquire(name, { ttl: Number(given[0]), onWanted }));
    await Promise.all(["x", "y"].map(acquire));
    while (called.length < 2) await pause(1);
    say(called.sort());
    """, server.address, "x", round(6000 * SLOW))
    assert said == [["x", "x"], ["y", "y"]]
    assert {(call.name, call.headers["x-caller"]) for call in server.of("acquire")} == {("x", "x"), ("y", "y")}
    assert {call.headers["x-caller"] for call in server.of("extend")} == {"program"}


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
    setTimeout(() => controller.abort(reason), 3000);
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
    say(leases[0].signal.reason.reason);
    """, url_of(service), resource)
    assert said == ["released"]
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
    """Also if it waits for nothing but its own signal. It ends with the loss."""
    process = start("""
    say(await codeOf(client.using(resource, { ttl: 4500 }, (lease, signal) => new Promise((resolve) => signal.addEventListener("abort", resolve)))));
    """, url_of(service), resource)
    fence = wait_until(lambda: state(service, resource).get("fence"), what="it is taken")
    for _ in range(2):
        latest = state(service, resource)["remaining_ms"] / 1000 + time.monotonic() + 0.05
        wait_until(lambda: time.monotonic() + state(service, resource)["remaining_ms"] / 1000 > latest, what="it is renewed")  # noqa: B023
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
    """Compilers make this of it."""
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
