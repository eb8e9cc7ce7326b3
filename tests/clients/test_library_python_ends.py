# SPDX-License-Identifier: MIT
"""The library for Python where a program is harmed or ends: Ctrl-C at each step, cancellations, forks, the end of the
main thread, no threads, log handlers that block."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
import time

import pytest

from fake_redlockd import fake  # noqa: F401
from fixtures import has_localhost
from harness import SLOW, patience, wait_until
from test_library_python import program, redlockd, rules

import redlockd._pool  # noqa: E402
import redlockd._threads  # noqa: E402

PACKAGE = os.path.dirname(redlockd.__file__)
TTL = 4.5 * SLOW
# Of a coroutine that an interrupt keeps from the loop.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


class Interrupts:
    """Raises KeyboardInterrupt before step N of a function, counted in opcodes of it and of the library."""

    def __init__(self, function):
        self.code = function.__code__

    def run(self, function, number, *arguments):
        """The interrupt, or None. The number may be beyond the last step."""
        left = [number]

        def trace(frame, event, _argument):
            if event == "return":  # no step; and the argument would keep what is returned
                return trace
            if frame.f_code is not self.code and os.path.dirname(frame.f_code.co_filename) != PACKAGE:
                return None
            frame.f_trace_opcodes = True
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return trace
        try:
            sys.settrace(trace)
            function(*arguments)
        except KeyboardInterrupt as interrupt:
            return interrupt
        finally:
            sys.settrace(None)
        return None


@pytest.mark.parametrize("seconds, again", [(0, False), (0.003, False), (0, True)])
def test_ctrl_c_at_each_step_of_a_block_leaves_no_lease(fake, seconds, again):
    """Also if the program keeps the lease and the exception. `seconds`: how long the server takes to answer; `again`: the program keeps
    the Lock, too, which had a block before."""
    def behave(call):
        time.sleep(seconds)
        call.lease()
    server, kept = fake(acquire=behave), []
    client = redlockd.Client(server.address)
    with client.lock("warm") as warm:
        pass
    same = client.lock("x", ttl=60)

    def block(name):
        with same if again else client.lock(name, ttl=60) as lease:
            kept.append(lease)
    interrupts, number = Interrupts(block), 0
    while (interrupt := interrupts.run(block, number, f"x/{number}")) is not None:
        kept.append(interrupt)
        number += 1 if seconds == 0 else 7
    assert number > 100 and warm
    taken = {call.name for call in server.of("acquire") if call.answered}
    wait_until(lambda: taken == {call.name for call in server.of("release")}, what="all are released")
    wait_until(lambda: all(lease.lost.is_set() for lease in kept if isinstance(lease, redlockd.Lease)), what="each one")
    wait_until(lambda: not redlockd._threads._held, what="nothing is renewed")


def test_ctrl_c_at_each_step_of_a_wait_for_the_loss_stops_no_loop(fake):
    server, number = fake(), 0
    lease = redlockd.Client(server.address).acquire("x", ttl=60)

    def wait(_name):
        lease.lost.wait(0)
    interrupts = Interrupts(wait)
    while interrupts.run(wait, number, "") is not None:
        number += 1
    assert number > 20 and lease.release() and lease.lost.is_set()


def test_a_kept_lease_outlives_its_object(fake):
    """That of acquire() and of try_acquire() of a client; not that of lock()."""
    server = fake()
    client = redlockd.Client(server.address)
    client.acquire("a", ttl=TTL)
    client.try_acquire("b", ttl=TTL)
    client.lock("c", ttl=TTL).acquire()
    assert server.call("release").name == "c"
    server.call("extend", 1, name="a")
    server.call("extend", 1, name="b")
    assert len(server.of("release")) == 1


def test_an_exit_stack_releases(fake):
    server = fake()
    with contextlib.ExitStack() as stack:
        stack.enter_context(redlockd.Client(server.address).lock("x"))
        assert not server.of("release")
    assert len(server.of("release")) == 1


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("moment", ["acquire", "release"])
def test_a_loop_that_ends_right_after_a_cancellation_leaves_no_lease(fake, moment, times):
    """asyncio.run() cancels all tasks at its end, those that give back, too."""
    def slow(call):
        time.sleep(0.2)
        call.lease() if call.kind == "acquire" else call.answer(204, Connection="close")
    server = fake(**{moment: slow})

    async def use():
        async with redlockd.aio.Client(server.address).lock("x", ttl=60):
            pass

    async def main():
        task = asyncio.ensure_future(use())
        while not server.of(moment):
            await asyncio.sleep(0.01)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
    asyncio.run(main())
    assert server.of("release") and server.of("release")[-1].answered == 204


def test_a_new_connection_for_a_release_survives_the_end_of_the_loop(fake):
    """The task that opens it is cancelled with all others."""
    server = fake(acquire=lambda call: call.lease(headers={"Connection": "close"}))

    async def main():
        lease = await redlockd.aio.Client(server.address).acquire("x", ttl=60)
        asyncio.ensure_future(lease.release())
        await asyncio.sleep(0)
    asyncio.run(main())
    assert [call.answered for call in server.of("release")] == [204]


def test_a_loop_ends_without_warnings(fake):
    """Idle connections are closed with it; the same client is of use in the next one."""
    process = program(fake(port=True), "x", """
import asyncio, gc, warnings, redlockd.aio
warnings.simplefilter("error")
client = redlockd.aio.Client(sys.argv[1])
async def main():
    async with client.lock("x"):
        pass
for _ in range(2):
    asyncio.run(main())
    gc.collect()
print("done")
""")
    assert process.communicate(timeout=patience(20)) == ("done\n", "")


def test_a_lease_is_lost_in_a_forked_child(fake):
    server = fake()
    process = program(server, "x", """
lease = client.acquire("x", ttl=60)
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        lease.check()
    except redlockd.LockLost as error:
        print("fork" in str(error), lease.remaining, lease.lost.is_set(), lease.lost.wait(), lease.release())
        sys.stdout.flush()
    with client.lock("y") as mine:
        mine.check()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
lease.check()
print(lease.remaining > 0, lease.lost.is_set(), lease.release())
""")
    output, error = process.communicate(timeout=patience(30))
    assert output == "True 0.0 True True False\nTrue False True\n", error
    assert [call.name for call in server.of("release")] == ["y", "x"]
    assert not {call.connection for call in server.calls if call.name == "y"} & \
        {call.connection for call in server.calls if call.name == "x"}


def and_close(call):
    """So that the next request resolves the name of the server."""
    call.lease(headers={"Connection": "close"})


class Harmful(logging.Handler):
    def __init__(self, harm):
        super().__init__()
        self.harm, self.lines = harm, []

    def emit(self, record):
        self.lines.append(record.getMessage())
        self.harm()


@pytest.fixture
def harmful():
    """A handler of the library's logger that harms; what it waits for comes in the end."""
    go_on, logger, added = threading.Event(), logging.getLogger("redlockd"), []

    def exits():
        raise SystemExit

    def make(kind):
        added.append(Harmful({"blocks": go_on.wait, "exits": exits}[kind]))
        logger.addHandler(added[-1])
        logger.setLevel(logging.DEBUG)
        return added[-1]
    yield make
    logger.setLevel(logging.NOTSET)
    for handler in added:
        logger.removeHandler(handler)
    go_on.set()


@pytest.mark.parametrize("kind", ["blocks", "exits"])
def test_a_log_handler_stops_no_renewal(fake, harmful, kind):
    server, handler = fake(), harmful(kind)
    lease = redlockd.Client(server.address).acquire("x", ttl=TTL)
    server.call("extend", 2)
    lease.check()
    wait_until(lambda: handler.lines, what="a line came")
    assert lease.release()
    if kind == "exits":
        wait_until(lambda: len(handler.lines) > 1, what="the next line came")


def test_a_log_handler_stops_no_renewal_of_asyncio(fake, harmful):
    server, handler = fake(), harmful("blocks")

    async def main():
        lease = await redlockd.aio.Client(server.address).acquire("x", ttl=TTL)
        while len(server.of("extend")) < 3:
            await asyncio.sleep(0.02)
        lease.check()
        assert await lease.release()
    asyncio.run(asyncio.wait_for(main(), patience(20)))
    assert handler.lines


def test_a_loss_is_told_while_the_loop_is_blocked(fake):
    client, go_on = redlockd.Client(fake().address), threading.Event()
    lease = client.acquire("x", ttl=TTL)
    redlockd._threads._loop().loop.call_soon_threadsafe(go_on.wait)
    try:
        assert lease.lost.wait(patience(20)) is True and lease.remaining == 0
        with pytest.raises(redlockd.LockLost):
            lease.check()
    finally:
        go_on.set()
    lease.release()


def test_a_lease_of_a_thread_outlives_the_main_thread(fake):
    """Names are resolved without the executor, which takes nothing any more by then."""
    if not has_localhost():
        pytest.skip("localhost does not resolve here")
    server = fake(port=True, acquire=and_close, extend=and_close)
    process = program(server, "x", f"""
import threading
def work():
    lease = redlockd.Client("http://localhost:{server.port}").acquire("x", ttl={TTL})
    main.join()
    print(lease.lost.wait({1.5 * TTL}), lease.release())
main = threading.current_thread()
threading.Thread(target=work).start()
""")
    output, error = process.communicate(timeout=patience(30))
    assert output == "False True\n" and len(server.of("extend")) >= 3, error


def no_thread(*_):
    raise RuntimeError("can't start new thread")


def test_a_renewal_needs_no_new_thread(fake, monkeypatch):
    if not has_localhost():
        pytest.skip("localhost does not resolve here")
    server = fake(port=True, acquire=and_close, extend=and_close)
    starts = threading.Thread.start
    lease = redlockd.Client(f"http://localhost:{server.port}").acquire("x", ttl=TTL)
    monkeypatch.setattr(threading.Thread, "start",
                        lambda self: no_thread() if self.name.startswith("redlockd") else starts(self))
    server.call("extend", 2)
    lease.check()
    assert lease.release()


def test_the_first_call_without_a_thread_raises_and_the_next_one_works(fake):
    process = program(fake(), "x", """
import threading
starts = threading.Thread.start
for refused in ("redlockd-log", "redlockd"):
    def start(self):
        if self.name == refused:
            raise RuntimeError("can't start new thread")
        starts(self)
    threading.Thread.start = start
    try:
        client.acquire("x")
    except RuntimeError as error:
        print(error)
threading.Thread.start = starts
print(client.acquire("x").release())
""")
    output, error = process.communicate(timeout=patience(20))
    assert output == "can't start new thread\n" * 2 + "True\n", error


@pytest.mark.parametrize("where", ["_pool.encode", "aio.renewals"])
def test_a_renewal_survives_an_exception_and_says_so(fake, monkeypatch, caplog, where):
    server, failures = fake(), []
    module, name = where.split(".")
    works = getattr(getattr(redlockd, module), name)
    lease = redlockd.Client(server.address).acquire("x", ttl=TTL)

    def fail_twice(*arguments):
        if len(failures) < 2:
            failures.append(arguments)
            raise OverflowError("absurd")
        return works(*arguments)
    monkeypatch.setattr(getattr(redlockd, module), name, fail_twice)
    server.call("extend", 1)
    lease.check()
    assert lease.release() and len(failures) == 2
    wait_until(lambda: caplog.text.count("absurd") == 2, what="both are in the log")


@pytest.mark.parametrize("ttl", [float("inf"), float("nan"), 1e300, 1e14])
def test_an_absurd_ttl_is_refused(ttl):
    with pytest.raises(ValueError):
        redlockd.Client().acquire("x", ttl=ttl)


def test_absurd_times_that_are_allowed(fake):
    server = fake()
    client = redlockd.Client(server.address, timeout=1e300)
    lease = client.acquire("x", wait=float("inf"), ttl=4e12)
    assert server.calls[0].body["wait_ms"] == 60000
    assert lease.lost.wait(0.01) is False and lease.remaining > 1e12
    waits = threading.Thread(target=lease.lost.wait)
    waits.start()
    assert lease.release()
    waits.join(patience(20))
    assert not waits.is_alive()


def test_a_release_when_the_loop_drops_an_object(fake):
    """In the loop's thread it cannot wait, and must not deadlock."""
    server = fake()
    client = redlockd.Client(server.address)

    class Holder:
        def __init__(self):
            self.lease = client.acquire("x", ttl=60)

        def __del__(self):
            answers.append(self.lease.release())
    answers, holders = [], [Holder()]
    redlockd._threads._loop().loop.call_soon_threadsafe(holders.clear)
    server.call("release")
    assert answers == [False] and client.acquire("y").release()


def test_what_must_wait_is_refused_in_the_thread_of_the_loop(fake):
    client, errors = redlockd.Client(fake().address), []

    def acquire():
        try:
            client.acquire("x")
        except RuntimeError as error:
            errors.append(str(error))
    redlockd._threads._loop().loop.call_soon_threadsafe(acquire)
    assert wait_until(lambda: errors, what="it is refused") and "cannot wait for itself" in errors[0]


def test_a_release_after_the_end_of_the_program_does_not_hang(fake):
    process = program(fake(), "x", """
class Holder:
    def __del__(self, release=client.acquire("x").release):
        print(release())
holder = Holder()
""")
    output, error = process.communicate(timeout=patience(20))
    assert (output, process.returncode) == ("False\n", 0), error


def test_the_last_lines_of_the_log_are_written(fake):
    process = program(fake(), "x", 'import logging\nlogging.basicConfig(level="INFO")\nclient.acquire("x")')
    _, error = process.communicate(timeout=patience(20))
    assert "INFO:redlockd:acquired x, fence 7\n" in error and "release of x: done\n" in error


def test_names_are_looked_up_once_for_many_requests(fake, monkeypatch):
    server, asked, go_on = fake(port=True), [], threading.Event()
    resolve = socket.getaddrinfo

    def look_up(host, *arguments, **options):
        asked.append(host)
        assert go_on.wait(20 * SLOW)
        return resolve("127.0.0.1", *arguments, **options)
    monkeypatch.setattr(redlockd._pool.socket, "getaddrinfo", look_up)

    async def main():
        client = redlockd.aio.Client(f"http://somewhere.invalid:{server.port}")
        tasks = [asyncio.ensure_future(client.acquire(f"x/{n}", ttl=60, wait=20)) for n in range(5)]
        while not asked:
            await asyncio.sleep(0.01)
        go_on.set()
        for lease in await asyncio.gather(*tasks):
            await lease.release()
    asyncio.run(asyncio.wait_for(main(), patience(20)))
    assert asked == ["somewhere.invalid"]


def test_a_queue_for_connections_ends_with_the_time_limit(fake):
    """And is left by a cancelled request."""
    server = fake(state=lambda call: None, release=lambda call: call.until_hung_up())

    async def main():
        client = redlockd.aio.Client(server.address, timeout=0.5 * SLOW)
        leases = [await client.acquire(f"x/{n}", ttl=60) for n in range(20)]
        releases = [asyncio.ensure_future(lease.release()) for lease in leases]
        assert not any(await asyncio.gather(*releases))
        assert (await client.acquire("y", ttl=60)).fence == 7
    asyncio.run(asyncio.wait_for(main(), patience(20)))
    assert len(server.of("release")) <= 16


def test_rules_of_renewals_with_several_servers():
    """The time that is left is divided by the servers that were not asked in this round."""
    from redlockd._renewals import Held, renewals
    from redlockd._wire import clock, no_answer
    wanted = rules.Wanted("x", ttl=60)
    held = Held(wanted, rules.Grant("a" * 40, 7, None, 60, clock(), 0, rules.Term(clock() + 12, 6, "x")))
    steps = renewals([held], 3, 20)
    asked = [next(steps), *(steps.send(no_answer("test", True)) for _ in range(2))]
    assert [round(ask.timeout, 1) for ask in asked] == [2.0, 3.0, 5.0]
