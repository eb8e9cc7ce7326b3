# SPDX-License-Identifier: MIT
"""What only the library for Python has: its package, Ctrl-C, forks, the event loop, the types of what it gives."""

import asyncio
import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tokenize
import zipfile

import pytest

from fake_redlockd import fake  # noqa: F401
from fixtures import has_localhost
from harness import DIES_WITH_US, ROOT, SLOW, children_of, clean_environment, patience, wait_until
from test_library import state, url_of

SOURCE = ROOT / "clients" / "python"
sys.path.insert(0, str(SOURCE / "src"))

import redlockd  # noqa: E402
import redlockd.aio  # noqa: E402
from redlockd import _rules as rules  # noqa: E402
from redlockd._renewals import Held, renewals  # noqa: E402
from redlockd._wire import clock  # noqa: E402

PYTHON = "/usr/bin/python3"


def run(*command, cwd="/"):
    done = subprocess.run([*DIES_WITH_US, *map(str, command)], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120 * SLOW, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def packages():
    """The wheel and the archive of the sources, as ./dev package clients makes them."""
    with tempfile.TemporaryDirectory() as folder:  # not in the tree, where several processes of tests would meet
        shutil.copytree(ROOT / "tests/dev", f"{folder}/tests/dev")
        shutil.copytree(SOURCE, f"{folder}/clients/python")
        os.makedirs(f"{folder}/build/package/clients")
        run("sh", "-euc", ". tests/dev/clients.sh; package_client_python", cwd=folder)
        yield {("archive" if path.suffix == ".gz" else "wheel"): path for path in pathlib.Path(folder, "build/package/clients").iterdir()}


@pytest.mark.parametrize("kind", ["wheel", "archive"])
def test_the_package(service, resource, tmp_path, packages, kind):
    """It is installed into a new environment and used there."""
    run(PYTHON, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path / "venv")  # for h11, and setuptools, which builds it
    python = tmp_path / "venv/bin/python3"
    run(PYTHON, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", "--no-build-isolation", packages[kind])
    program = f"import redlockd, redlockd.aio\nwith redlockd.Client({url_of(service)!r}).lock({resource!r}) as lease:\n    print(lease.fence, redlockd.__file__)"
    fence, file = run(python, "-I", "-c", program).split()
    assert int(fence) > 0 and file.startswith(str(tmp_path / "venv"))
    assert (pathlib.Path(file).parent / "py.typed").exists()


def test_what_is_in_the_packages(packages):
    assert len(packages) == 2
    assert f"pip install CLONE/build/package/clients/{packages['wheel'].name}`" in (SOURCE / "README.md").read_text(encoding="utf-8")
    version = packages["wheel"].name.split("-")[1]
    modules = {f"redlockd/{path.name}" for path in (SOURCE / "src/redlockd").iterdir() if path.is_file()}
    packed = {name for name in zipfile.ZipFile(packages["wheel"]).namelist() if ".dist-info/" not in name}
    assert packed == modules and "redlockd/py.typed" in modules
    with tarfile.open(packages["archive"]) as files:
        names = set(files.getnames())
    assert {f"redlockd-{version}/{name}" for name in ("LICENSE", "README.md", *(f"src/{module}" for module in modules))} <= names
    assert (SOURCE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def program(service, resource, text, **how):
    """Runs lines of Python that have a client `client` and the name `resource`."""
    url = service if isinstance(service, str) else url_of(service)
    # SIGINT is ignored in what a shell has put into the background
    head = f"import os, signal, sys, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nimport redlockd\nclient, resource = redlockd.Client({url!r}), {resource!r}\n"
    environment = clean_environment({"PYTHONPATH": str(SOURCE / "src"), "PYTHONDONTWRITEBYTECODE": "1"})
    return subprocess.Popen([*DIES_WITH_US, PYTHON, "-c", head + text, url], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **{"stdin": subprocess.DEVNULL, **how})


@pytest.mark.parametrize("document", ["clients/python/README.md", "docs/how-to/clients.md"])
def test_the_example(service, resource, document):
    """The first block of Python of a document."""
    text = re.search(r"^```python\n(.*?)^```\n", (ROOT / document).read_text(encoding="utf-8"), re.M | re.S)[1]
    for old, new in (('"https://a:8443", "https://b:8443"', repr(url_of(service))), ("KEY", "None"), ('"orders/42"', repr(resource))):
        assert old in text
        text = text.replace(old, new)
    head = "def save(item, fence):\n    print(item, fence > 0, bool(client.try_acquire(resource)))\nitem, items = 1, [1]\n"
    output, error = program(service, resource, f"{head}held = client\n{text}client = held\nprint(client.try_acquire(resource).fence > 0)").communicate(timeout=patience(20))
    assert "1 True False\n" in output and output.endswith("True\n"), error


def test_the_example_of_a_try_and_of_a_lock(service, resource):
    text = re.findall(r"^```python\n(.*?)^```\n", (SOURCE / "README.md").read_text(encoding="utf-8"), re.M | re.S)[1]
    head = "def save(item, fence):\n    print(item, fence > 0, bool(client.try_acquire(resource)))\nitem = 1\n"
    output, error = program(service, resource, head + text.replace('"orders/42"', repr(resource))).communicate(timeout=patience(20))
    assert output == "1 True False\n" * 2 and not state(service, resource)["held"], error


@pytest.mark.parametrize("text", ["with client.lock(resource):\n    time.sleep(60)", "lease = client.acquire(resource)\ntime.sleep(60)"])
def test_ctrl_c_releases(service, resource, text):
    process = program(service, resource, text)
    wait_until(lambda: state(service, resource)["held"], what="it is taken")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=patience(20))
    assert "KeyboardInterrupt" in error and process.returncode == -signal.SIGINT
    assert not state(service, resource)["held"]


def test_a_forked_child_does_not_release(service, resource):
    """Neither by the end of its block nor by its end; it takes locks of its own."""
    process = program(service, resource, """
with client.lock(resource) as lease:
    child = os.fork()
    if child == 0:
        client.acquire(resource + "/child")
        sys.exit()
    os.waitpid(child, 0)
    print(client.try_acquire(resource + "/child").fence > 0, bool(client.try_acquire(resource)))
""")
    output, error = process.communicate(timeout=patience(20))
    assert (output, process.returncode) == ("True False\n", 0), error


def test_a_forked_child_waits_for_no_lock_of_threads_that_it_does_not_have(fake):
    """Another thread looks at the lease at the moment of the fork."""
    process = program(fake(), "x", """
import threading
lease = client.acquire(resource)
threading.Thread(target=lambda: [lease.check() for _ in iter(int, 1)], daemon=True).start()
for _ in range(60):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            lease.check()
        except redlockd.LockLost:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "it hangs"
print("done", flush=True)
os._exit(0)
""")
    output, error = process.communicate(timeout=patience(40))
    assert output == "done\n", error


def test_a_waiter_leaves_also_where_a_forked_child_has_its_connection(service, resource):
    held = service.acquire(resource, 60000)
    process = program(service, resource, """
import threading
def fork_and_interrupt():
    sys.stdin.read(1)
    if os.fork() == 0:
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=fork_and_interrupt, daemon=True).start()
try:
    client.acquire(resource)
except KeyboardInterrupt:
    time.sleep(60)
""", stdin=subprocess.PIPE)
    try:
        wait_until(lambda: state(service, resource)["waiters"] == 1, what="it waits")
        process.stdin.write("x")
        process.stdin.flush()
        wait_until(lambda: state(service, resource)["waiters"] == 0, what="it has left")
    finally:
        for pid in children_of(process.pid) + [process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.communicate()
    service.release(held)
    assert not state(service, resource)["held"]


def test_the_end_of_a_program_asks_another_server_too(fake):
    """Whose name was not resolved before: at the end of a program, no executor does it any more."""
    if not has_localhost():
        pytest.skip("localhost does not resolve here")
    first, second = fake(release=lambda call: call.connection.close()), fake(port=True)
    process = program(first, "x", f"client = redlockd.Client([{first.address!r}, 'http://localhost:{second.port}'])\nclient.acquire(resource)")
    _, error = process.communicate(timeout=patience(20))
    assert len(second.of("release")) == 1, error


def test_a_second_ctrl_c_does_not_keep_what_came_too_late():
    """The loop carries on with the undoing, whoever still waits for it."""
    process = program("http://127.0.0.1:1", "x", """
import asyncio, threading
from redlockd import _threads
began, cancelled, told, undone = (threading.Event() for _ in range(4))
async def work():
    began.set()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        cancelled.set()
        while not told.is_set():
            await asyncio.sleep(0.01)
async def undo(result):
    undone.set()
def interrupt():
    for event in (began, cancelled):
        event.wait()
        os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    _threads._run(work(), undo)
except KeyboardInterrupt:
    print(undone.is_set())
    told.set()
    print(undone.wait(60))
""")
    output, error = process.communicate(timeout=patience(20))
    assert output == "False\nTrue\n", error


def test_two_cancellations_leave_no_lease(fake):
    """And the server that hangs is not the only one that is asked."""
    def hang_or_grant_late(call):
        if len(second.of("acquire")) == 1:
            time.sleep(0.5)
            call.lease()
    first, second = fake(acquire=lambda call: time.sleep(3 * SLOW)), fake(acquire=hang_or_grant_late)

    async def main():
        task = asyncio.ensure_future(redlockd.aio.Client([first.address, second.address]).acquire("x"))
        for server in (first, second):
            while not server.of("acquire"):
                await asyncio.sleep(0.02)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not second.of("release"):
            await asyncio.sleep(0.02)
    asyncio.run(asyncio.wait_for(main(), patience(10)))


def test_a_thread_beside_the_loop_asks_a_lease(fake):
    """It gets the loss, and whoever waits in the loop does, too."""
    process = program(fake(extend=lambda call: call.connection.close()), "x", """
import asyncio, threading, redlockd.aio
errors = []
def look(lease):
    while lease.remaining > 0:
        time.sleep(0.01)
    try:
        lease.check()
    except BaseException as error:
        errors.append(type(error).__name__)
async def main():
    lease = await redlockd.aio.Client(sys.argv[1]).acquire("x", ttl=0.5)
    waits = asyncio.ensure_future(lease.lost.wait())
    await asyncio.sleep(0.05)
    thread = threading.Thread(target=look, args=(lease,))
    thread.start()
    thread.join()
    print(errors, await asyncio.wait_for(waits, 60))
asyncio.run(main(), debug=True)
""")
    try:
        output, error = process.communicate(timeout=patience(10))
    finally:
        process.kill()
    assert output == "['LockLost'] True\n", error


def test_a_try_whose_lease_came_too_late(fake):
    """It is released, and nothing else is asked for."""
    server = fake(acquire=lambda call: call.lease(validity_ms=1))
    with pytest.raises(redlockd.NoAnswer):
        redlockd.Client(server.address).try_acquire("x")
    assert [call.kind for call in server.calls] == ["acquire", "release"]


def test_a_renewal_may_take_five_seconds():
    wanted = rules.Wanted("x", ttl=60)
    grant = rules.Grant("a" * 40, 7, None, 60, clock(), 0, rules.Term(clock() + 60, 6, "x"))
    assert next(renewals([Held(wanted, grant)], 1, 20)).timeout == 5


def test_the_loop_goes_on(fake):
    """The server answers only after the loop has done something else: with all that the client can ask."""
    gone_on = threading.Event()

    def after_the_loop(answer):
        def behave(call):
            assert gone_on.wait(20 * SLOW), "the loop is blocked"
            answer(call)
        return behave
    server = fake(acquire=after_the_loop(lambda call: call.lease()), release=after_the_loop(lambda call: call.answer(204)))

    async def main():
        client = redlockd.aio.Client(server.address)

        async def beside(work):
            gone_on.clear()
            task = asyncio.ensure_future(work)
            for _ in range(10):
                await asyncio.sleep(0)
            gone_on.set()
            return await task
        lease = await beside(client.acquire("x"))
        assert isinstance(lease.lost, asyncio.Event) and await beside(lease.release())
    asyncio.run(main())


def test_types(fake):
    """What is said in the README of a lease and of errors."""
    server = fake()
    with redlockd.Client(server.address).lock("x") as lease:
        assert isinstance(lease.lost, threading.Event) and not lease.lost.is_set() and lease.lost.wait(0) is False
        assert lease.resources == ("x",) and isinstance(lease.fence, int) and 0 < lease.remaining <= 27
    assert lease.lost.is_set() and lease.lost.wait() is True and lease.remaining == 0
    codes = set(re.findall(r"^## `([a-z-]+)`$", (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8"), re.M))
    classes = {kind.code_of_class for kind in vars(redlockd).values() if isinstance(kind, type) and issubclass(kind, redlockd.Error)}
    assert len(codes) > 10 and codes | {"error", "no-answer", "lock-lost"} == classes
    assert redlockd.NotOwner("", 409, {"code": "not-owner"}).code == redlockd.NotOwner("").code == "not-owner"


def test_the_library_is_small():
    """At most 1410 lines of code: without comments, texts that describe, and empty lines."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    count = 0
    for path in (SOURCE / "src/redlockd").glob("*.py"):
        lines, statement = set(), []
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            statement += [token] if token.type not in skipped else []
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                described = [part.type for part in statement] == [tokenize.STRING]
                lines |= set() if described else {n for part in statement for n in range(part.start[0], part.end[0] + 1)}
                statement = []
        count += len(lines)
    assert 300 < count <= 1410


def test_a_loss_is_final():
    """Also where a renewal is answered right after it."""
    term = rules.Term(clock() - 1, 0.0, "x")
    assert term.lost() and term.remaining() == 0
    term.extend(clock() + 100)
    assert term.lost() and term.remaining() == 0


def test_members_that_are_handed_on(fake):
    server = fake(acquire=lambda call: call.lease(token="a" * 40, slot=3))
    lease = redlockd.Client(server.address).acquire("x", mode="exclusive", slots=4)
    assert "a" * 40 not in repr(vars(lease))
    body = server.calls[0].body
    assert (body["mode"], body["slots"], lease.slot) == ("exclusive", 4, 3) and lease.release()
    redlockd.Client(server.address).acquire("x").release()
    assert not {"mode", "slots", "owner", "metadata"} & set(server.of("acquire")[1].body)


@pytest.mark.parametrize("address", ["", "127.0.0.1:8080", "ftp://a", "https://", "https://u:p@a", "http://a\r\nX: y", "http://a/?b", "unix:"])
def test_an_address_that_is_none(address):
    with pytest.raises(ValueError):
        redlockd.Client(["http://127.0.0.1:1", address])


@pytest.mark.parametrize("arguments", [{"servers": []}, {"key": ""}, {"key": "a\r\nb"}, {"key": "é"}])
def test_arguments_that_make_no_client(arguments):
    with pytest.raises(ValueError):
        redlockd.Client(**arguments)


@pytest.mark.parametrize("option", ["ttl_ms", "wait_ms", "hold", "waitt"])
def test_an_option_that_there_is_not(option):
    """A member of the request is no option: it would change what the library counts with."""
    with pytest.raises(TypeError, match=option):
        redlockd.Client().acquire("x", **{option: 1})


def test_a_name_that_cannot_be_utf8():
    with pytest.raises(ValueError):
        redlockd.Client().acquire("a\ud800")


@pytest.mark.parametrize("options", [{"ttl": 0}, {"wait": -1}, {"ttl": 30, "margin": 16}, {"margin": -1}])
def test_options_that_make_no_lock(options):
    with pytest.raises(ValueError):
        redlockd.Client().acquire("x", **options)


def test_no_secrets_in_the_log(service, resource, caplog):
    with caplog.at_level("DEBUG"):
        lease = redlockd.Client(url_of(service)).acquire(resource, ttl=5)
        until = time.monotonic() + lease.remaining
        wait_until(lambda: time.monotonic() + lease.remaining > until + 0.05, what="it is renewed")
        end = time.monotonic() + lease.remaining
        assert lease.release()
        wait_until(lambda: time.monotonic() > end, what="it would be lost now")
    assert "lost" not in caplog.text, "nothing is renewed after the release"
    assert "acquired" in caplog.text and "release of" in caplog.text and lease._holding.grant.token not in caplog.text


def test_one_warning_of_a_lock_that_was_forced_away(service, resource, caplog):
    """The release of what is known to be lost is no second one."""
    client = redlockd.Client(url_of(service))
    with caplog.at_level("INFO"):
        lease = client.acquire(resource, ttl=6)
        client.force(resource)
        assert lease.lost.wait(patience(10)) and not lease.release()
        wait_until(lambda: "release of" in caplog.text, what="the last line came")
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
