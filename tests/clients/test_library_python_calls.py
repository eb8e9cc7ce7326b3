# SPDX-License-Identifier: MIT
"""The calls of the library for Python: Lock objects, tries that get nothing, SIGTERM, and what is shown to people."""

import asyncio
import contextlib
import logging
import pickle
import re
import signal
import threading

import pytest

from fake_redlockd import fake  # noqa: F401
from harness import ROOT, patience, wait_until
from test_library import state, url_of
from test_library_python import SOURCE, program, redlockd


def test_a_lock_is_taken_at_its_with(fake):
    """And again by the next one."""
    server = fake()
    lock = redlockd.Client(server.address).lock("x", ttl=60)
    assert not server.calls
    for number in (1, 2):
        with lock as lease:
            assert len(server.of("acquire")) == number and lease.fence == 7 and lease.remaining > 0
        assert len(server.of("release")) == number
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(lock).remaining > 0 and len(server.of("release")) == 2
    assert len(server.of("release")) == 3
    assert lock.__enter__().remaining > 0 and len(server.of("release")) == 3
    lock.__exit__(None, None, None)
    assert len(server.of("release")) == 4


def test_a_lock_of_asyncio_is_taken_at_its_with(fake):
    server = fake()

    async def main():
        lock = redlockd.aio.Client(server.address).lock("x", ttl=60)
        assert not server.calls and repr(lock) == "<redlockd.aio.Lock on x>"
        for number in (1, 2):
            async with lock as lease:
                assert len(server.of("acquire")) == number and lease.remaining > 0 and lock.lease is lease
                with pytest.raises(RuntimeError, match="x: this task has the lock already"):
                    await lock.acquire()
            assert len(server.of("release")) == number and lock.lease is None
        async with contextlib.AsyncExitStack() as stack:
            assert (await stack.enter_async_context(lock)).remaining > 0
        assert len(server.of("release")) == 3
    asyncio.run(main())


def test_acquire_and_release_of_a_lock(service, resource):
    client = redlockd.Client(url_of(service))
    lock, other = client.lock(resource, ttl=20), client.lock(resource)
    assert lock.lease is None and lock.acquire() is True and lock.lease.fence > 0
    assert client.lock(resource, wait=0.1).acquire() is False and other.acquire(blocking=False) is False and other.lease is None
    with pytest.raises(RuntimeError, match=f"{resource}: this thread has the lock already"):
        lock.acquire()
    lock.release()
    for one in (lock, other):
        with pytest.raises(RuntimeError, match=f"{resource}: this thread has not acquired the lock"):
            one.release()
    assert other.acquire() is True
    client.force(resource)
    with pytest.raises(redlockd.LockLost, match=f"lease on {resource} lost: ") as lost:
        other.release()
    assert lost.value.cause == lost.value.__cause__.code == "lease-expired" and other.lease is None


def test_acquire_and_release_of_a_lock_of_asyncio(service, resource):
    async def main():
        client = redlockd.aio.Client(url_of(service))
        lock, other = client.lock(resource, ttl=20), client.lock(resource)
        assert await lock.acquire() is True and lock.lease.fence > 0
        assert await other.acquire(blocking=False) is False
        waits = asyncio.ensure_future(other.acquire())
        while not state(service, resource)["waiters"]:
            await asyncio.sleep(0.02)
        await lock.release()
        assert await waits is True
        await other.release()  # by another task than took it
        with pytest.raises(RuntimeError, match=f"{resource}: the lock is not acquired"):
            await lock.release()
        assert await lock.acquire() is True
        await client.force(resource)
        with pytest.raises(redlockd.LockLost):
            await lock.release()
    asyncio.run(asyncio.wait_for(main(), patience(20)))


def test_threads_share_a_lock_object(service, resource):
    """Each has a lease of its own, one after the other."""
    lock, inside, fences = redlockd.Client(url_of(service)).lock(resource, ttl=20), [], []

    def work():
        for way in ("with", "acquire"):
            if way == "with":
                with lock as lease:
                    inside.append(lease)
                    assert len(inside) == 1
                    fences.append(lease.fence)
                    inside.clear()
            else:
                assert lock.acquire()
                fences.append(lock.lease.fence)
                lock.release()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(30))
    assert len(set(fences)) == 8 and not state(service, resource)["held"]


def test_a_lock_that_nobody_has_any_more_is_released(fake):
    server = fake()
    redlockd.Client(server.address).lock("x", ttl=60).acquire()
    server.call("release")


def test_a_try_that_gets_nothing_is_false_and_has_a_block(service, resource):
    client = redlockd.Client(url_of(service))
    with client.try_acquire(resource) as lease:
        assert lease and lease.fence > 0
        with client.try_acquire(resource) as second:
            assert second is None
        assert not client.try_acquire(resource) and not state(service, resource)["waiters"]
        assert repr(client.try_acquire(resource)) == "<redlockd.NoLease>"

        async def main():
            async with await redlockd.aio.Client(url_of(service)).try_acquire(resource) as third:
                assert third is None
        asyncio.run(main())
    assert not state(service, resource)["held"]


SIGTERM = {
    "threads": """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with client.lock(resource):
    print("held", flush=True)
    time.sleep(60)
""",
    "asyncio": """
import asyncio, redlockd.aio
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    async with redlockd.aio.Client(sys.argv[1]).lock(resource):
        print("held", flush=True)
        await asyncio.sleep(60)
try:
    asyncio.run(main())
except asyncio.CancelledError:
    sys.exit(143)
""",
}


@pytest.mark.parametrize("kind", SIGTERM)
def test_sigterm_releases(service, resource, kind):
    """As the README says."""
    readme = (SOURCE / "README.md").read_text(encoding="utf-8")
    for line in SIGTERM[kind].splitlines():
        assert "SIGTERM" not in line or line.strip() in readme
    process = program(service, resource, SIGTERM[kind])
    assert process.stdout.readline() == "held\n"
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=patience(20))
    assert process.returncode == 143 and not state(service, resource)["held"], error


def test_what_is_shown_of_an_object(fake):
    server = fake()
    client = redlockd.Client(server.address, key="secret")
    lease = client.acquire("orders/42", ttl=60)
    assert repr(client) == f"<redlockd.Client of {server.address}>"
    assert repr(client.lock(["a", "b\n"])) == "<redlockd.Lock on a, 'b\\n'>"
    assert re.fullmatch(r"<redlockd\.Lease on orders/42, fence 7, [1-5]\d\.\d s left>", repr(lease))
    lease.release()
    assert repr(lease) == "<redlockd.Lease on orders/42, fence 7, lost: released>"
    assert repr(redlockd.aio.Client(server.address)) == f"<redlockd.aio.Client of {server.address}>"


def test_the_version(fake):
    """That of the package, which the servers see."""
    server = fake()
    assert f'\nversion = "{redlockd.__version__}"\n' in (SOURCE / "pyproject.toml").read_text(encoding="utf-8")
    redlockd.Client(server.address).acquire("x").release()
    assert server.calls[0].headers["user-agent"] == f"redlockd-python/{redlockd.__version__}"


@pytest.mark.parametrize("call", ["lock", "acquire", "try_acquire"])
def test_an_option_that_there_is_not_is_named_with_those_that_there_are(call):
    with pytest.raises(TypeError, match=r"no option 'ttl_ms': the options are ttl, wait, margin, "):
        getattr(redlockd.Client(), call)("x", ttl_ms=1)


@pytest.mark.parametrize("option", ["ttl", "wait", "margin"])
def test_a_value_that_cannot_be_is_named(option):
    """Where the lock is made, and not where it is taken."""
    with pytest.raises(ValueError, match=f"^{option} must be .* seconds.*: -1$"):
        redlockd.Client().lock("x", **{option: -1})


def test_the_log_names_the_lock(fake, caplog):
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    with caplog.at_level(logging.DEBUG):
        lease = redlockd.Client(server.address).acquire(["a/1", "b"], ttl=6)
        assert lease.lost.wait(patience(10)) and lease.release() is True
        wait_until(lambda: "release of a/1, b: done" in caplog.text, what="the last line came")
    assert "acquired a/1, b, fence 7" in caplog.text and "lease on a/1, b lost: lease-expired" in caplog.text


def test_a_server_that_answers_nonsense_has_a_message_too(fake):
    """Nothing in the answer is trusted to be what the message needs."""
    client = redlockd.Client(fake(acquire=lambda call: call.problem(409, "locked", holder=[3], resource=4)).address)
    with pytest.raises(redlockd.Locked, match="^x: held by somebody else$"):
        client.acquire("x", wait=0)
    for errors in ([1], {}, [{"field": "ttl_ms", "reason": "9" * 5000}]):
        client = redlockd.Client(fake(acquire=lambda call: call.problem(400, "invalid-request", errors=errors)).address)
        with pytest.raises(redlockd.InvalidRequest):
            client.acquire("x")
    client = redlockd.Client(fake(acquire=lambda call: call.problem(409, "locked", holder={"owner": "a\nb"}, retry_after_ms=10**400)).address)
    with pytest.raises(redlockd.Locked, match=r"^x: held by 'a\\nb'$"):
        client.acquire("x", wait=0)


def test_errors_can_be_pickled():
    """As those of a worker process are."""
    lost = pickle.loads(pickle.dumps(redlockd.LockLost("lease on x lost: it was released", "released")))
    assert (str(lost), lost.cause, lost.code) == ("lease on x lost: it was released", "released", "lock-lost")


def test_each_cause_is_described():
    """With the same words in all libraries."""
    words = set(re.findall(r"`([a-z-]+)`", redlockd.LockLost.__doc__)) - {"cause"}
    text = (ROOT / "docs/how-to/clients.md").read_text(encoding="utf-8").partition("## Why a lease is lost")[2].partition("\n## ")[0]
    assert len(words) == 8 and words == {word for row in re.findall(r"^- (`.*?): ", text, re.M) for word in re.findall(r"`([a-z-]+)`", row)}
