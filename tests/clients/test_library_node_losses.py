# SPDX-License-Identifier: MIT
"""Features of the library for Node alone: why a lock is lost or refused, how a loss is shown, and close()."""

import json
import re
import signal

import pytest

from driver import DRIVERS
from fake_redlockd import fake  # noqa: F401
from harness import SLOW, patience, wait_until
from node_programs import SOURCE, run, start
from test_library import state, url_of

if "node" not in DRIVERS:
    pytest.skip("REDLOCKD_TEST_LANGUAGES does not name node", allow_module_level=True)

TTL = round(4500 * SLOW)
LOST = """
const alive = setInterval(() => {}, 1000);
const lost = (lease) => lease.signal.aborted || new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
"""


# ---- the reason of a loss ----


def test_a_loss_has_its_reason_and_its_cause(fake):
    """test_library_messages.py has all reasons."""
    said, = run(LOST + """
    const lease = await client.acquire("x", { ttl: Number(given[0]) });
    await lost(lease);
    clearInterval(alive);
    const told = await Promise.resolve().then(() => lease.check()).catch((error) => error);
    const { signal } = lease;
    say([told, signal.reason].map((error) => [error instanceof redlockd.LockLost, error.reason, error.cause?.code ?? null, error.message.startsWith("lease on x lost: ")]));
    """, fake(extend=lambda call: call.problem(503, "no-quorum")).address, "x", TTL)
    assert said == [[True, "no-quorum", "no-quorum", True]] * 2


def test_the_reason_where_no_renewal_began(fake):
    """The event loop was blocked. A release by the program is a reason of its own."""
    server = fake()
    said, = run("""
    const leases = [await client.acquire("x", { ttl: 9000, margin: 4500 }), await client.acquire("y")];
    block(4600);
    await leases[1].release();
    say(leases.map(({ signal }) => signal.reason.reason));
    """, server.address)
    assert said == ["late", "released"] and not server.of("extend")


def test_a_forced_release_is_a_loss_with_the_code_of_the_answer(service, resource):
    process = start("""
    say(await client.using(resource, { ttl: 6000 }, (lease, signal) => pause(60000, 0, { signal })).catch((error) => [error.reason, error.cause.name, error.cause.cause.cause.code]));
    """, url_of(service), resource)
    wait_until(lambda: state(service, resource)["held"], what="it is taken")
    assert service.curl("DELETE", f"/locks/{resource}?force=true").status == 204
    output, error = process.communicate(timeout=patience(30))
    assert json.loads(output) == ["lease-expired", "AbortError", "lease-expired"], error


def test_the_loss_comes_before_the_abort_error_of_the_work(fake):
    """The error of the work is the cause. Another error of the work stays, and so does its AbortError without a loss."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    said, = run("""
    const told = (work, ttl) => client.using("x", { ttl }, work).catch((error) => [error.name, error.cause?.name ?? null]);
    const aborted = (_, signal) => pause(60000, 0, { signal });
    say([
        await told(aborted, 4500),
        await told(async (lease, signal) => { await aborted(lease, signal).catch(() => {}); signal.throwIfAborted(); }, 4500),
        await told(async (lease, signal) => { await aborted(lease, signal).catch(() => {}); throw new TypeError("mine"); }, 4500),
        await told(() => { throw new DOMException("mine", "AbortError"); }, 30000),
        await told((lease, signal) => Promise.all([lease.release(), aborted(lease, signal)]), 30000),
    ]);
    """, server.address)
    assert said == [["LockLost", "AbortError"], ["LockLost", "LeaseExpired"], ["TypeError", None], ["AbortError", None], ["AbortError", "LockLost"]]


def test_remaining_is_in_whole_milliseconds(fake):
    said, = run("""
    const lease = await client.acquire("x", { ttl: 60000 });
    const seen = [];
    for (let turn = 0; turn < 50; turn++) { seen.push(lease.remaining); await pause(1); }
    say(seen.every((left, at) => Number.isInteger(left) && left > 0 && left <= (seen[at - 1] ?? 60000)));
    await lease.release();
    """, fake().address)
    assert said is True


# ---- the log ----


@pytest.mark.parametrize("logger, shown", [("", True), (", { logger: null }", False)])
def test_a_loss_is_shown_by_default(fake, logger, shown):
    """As a warning of the process, and nothing else. It can be turned off."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    process = start(LOST + f"""
    const mine = new redlockd.Client(url{logger});
    const warned = [];
    process.on("warning", ({{ name, message }}) => warned.push([name, message]));
    const lease = await mine.acquire("x", {{ ttl: 4500 }});
    await lost(lease);
    await lease.release();
    await pause(100);
    clearInterval(alive);
    say(warned);
    """, server.address)
    output, error = process.communicate(timeout=patience(30))
    text = "lease on x lost: lease-expired, it says."
    assert json.loads(output) == ([["LockLost", text]] if shown else []) and (f"LockLost: {text}" in error) is shown
    assert shown or error == ""


# ---- errors of an acquisition ----


def test_messages_have_the_options_of_the_library(service, resource):
    """With their unit; the problem is as the server sent it."""
    said, = run("""
    const error = await client.acquire(resource, { ttl: 5, slots: 0 }).catch((error) => error);
    say([error.message, error.problem.errors[0].field]);
    """, url_of(service), resource)
    assert said == ["ttl: must be from 100 to 60000 ms; slots: must be from 1 to 1024.", "ttl_ms"]


def test_messages_of_options_that_make_no_lock(fake):
    said, = run("""
    const options = [{ ttl: -5 }, { wait: NaN }, { ttl: 1000, margin: 501 }, { ttl: 1000, atLeast: 1001 },
        { atLeast: Infinity }, { onWanted: 1 }, { waitMs: 1 }];
    say(await Promise.all(options.map((one) => client.acquire("x", one).catch((error) => error.message))));
    """, fake().address)
    assert said == ["ttl must be a positive number of milliseconds: -5", "wait must be a number of milliseconds that is not negative: NaN",
                    "margin must be a number of milliseconds from 0 to half of ttl: 501",
                    "atLeast must be a number of milliseconds from 0 to ttl: 1001",
                    "ttl must be a positive number of milliseconds: Infinity", "onWanted must be a function",
                    "there is no option waitMs: the options are "
                    "ttl, wait, margin, atLeast, onWanted, signal, owner, metadata, mode, slots"]


# ---- close() ----


@pytest.mark.parametrize("holds", ["await client.acquire(resource);", "client.using(resource, () => pause(60000));"])
def test_sigterm_releases(service, resource, holds):
    """By the line of the README."""
    line, = re.findall("^process[.]once.*SIGTERM.*$", (SOURCE / "README.md").read_text(encoding="utf-8"), re.M)
    process = start(f"""
    {line}
    {holds}
    setInterval(() => {{}}, 1000);
    """, url_of(service), resource)
    wait_until(lambda: state(service, resource)["held"], what="it is taken")
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=patience(30))
    assert process.returncode == 143, error
    assert not state(service, resource)["held"]


def test_close_cancels_what_waits(service, resource):
    """No request waits afterwards; later calls reject; closing twice is closing."""
    held = service.acquire(resource, 60000)
    process = start("""
    const { getEventListeners } = require("node:events");
    const controller = new AbortController();
    const errors = [client.acquire(resource), client.using(resource, { signal: controller.signal }, () => {})].map((call) => call.catch((error) => error.message));
    const watch = client.watch(resource);
    await watch.next();
    const watched = watch.next().catch((error) => error.message);
    process.stdin.once("data", async () => {
        await Promise.all([client.close(), client.close()]);
        const later = [client.acquire(resource), client.watch(resource).next()].map((call) => call.catch((error) => error.message));
        say([await Promise.all([...errors, watched, ...later]), getEventListeners(controller.signal, "abort").length]);
        process.stdin.destroy();
    });
    """, url_of(service), resource, stdin=True)
    wait_until(lambda: state(service, resource)["waiters"] == 2, what="both wait")
    output, error = process.communicate("\n", timeout=patience(30))
    assert json.loads(output) == [["the client is closed"] * 5, 0], error
    wait_until(lambda: state(service, resource)["waiters"] == 0, what="they have left")
    service.release(held)
    assert not state(service, resource)["held"]


def test_close_releases_the_leases_of_this_client_alone(fake):
    """Also one whose release is under way: it waits for the answer."""
    server = fake()
    said, = run("""
    const other = await new redlockd.Client(url).acquire("z");
    const leases = [await client.acquire("x"), await client.acquire("y")];
    const order = [];
    leases[0].release().then(() => order.push("released"));
    await client.close();
    order.push("closed");
    say([order, leases.map(({ signal }) => signal.reason.reason), other.signal.aborted]);
    await other.release();
    """, server.address)
    assert said == [["released", "closed"], ["released", "released"], False]
    assert sorted(call.name for call in server.of("release")) == ["x", "y", "z"]
