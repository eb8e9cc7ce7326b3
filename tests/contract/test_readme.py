"""The examples of README.md, as a reader would paste them: each block of shell lines is run against a real redlockd, and the
block that follows it must be what comes out, but for numbers and tokens that differ each time. The code that guards a resource by
its fence is run through the story that is told there, with real leases."""

import os
import random
import re
import sqlite3
import subprocess

import pytest

from harness import DIES_WITH_US, ROOT, curl, end_process, wait_until

ADDRESS = "127.0.0.1:8080"
BLOCKS = re.compile(r"^```sh\n(?P<lines>.*?)^```\n(?:\n*```\n(?P<output>.*?)^```\n)?", re.M | re.S)


def examples():
    """[(shell lines, what they print)] of all blocks that speak to a running redlockd."""
    found = BLOCKS.finditer((ROOT / "README.md").read_text(encoding="utf-8"))
    return [(block["lines"], block["output"] or "") for block in found if f"http://{ADDRESS}" in block["lines"]]


def masked(text):
    """The text with tokens and numbers made alike; not those that are an HTTP status or stand in a name."""
    text = re.sub(r"\b[0-9a-f]{40}\b", "<token>", text)
    return re.sub(r'("(?!status")\w+":)\d+', r"\1<number>", text)


def test_examples_do_what_they_say(service, tmp_path):
    script = "".join(f"{lines}\necho; echo '--- next'\n" for lines, _ in examples()).replace(ADDRESS, service.address)
    done = subprocess.run([*DIES_WITH_US, "bash", "-c", script], cwd=tmp_path, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    outputs = done.stdout.split("--- next\n")[:-1]
    assert len(outputs) == len(examples()) > 5
    for (lines, expected), output in zip(examples(), outputs):
        assert masked(output).strip() == masked(expected).strip(), f"{lines}\n{output}"


def test_masking_hides_no_status():
    assert masked('{"status":409,"ttl_ms":5}\n409') == '{"status":409,"ttl_ms":<number>}\n409'


# ------------------------------------------------------------------------------------- guarding with the fence


def code(language, word):
    """The one block of code in this language in which a word appears."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```\n", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    found = [block for block in blocks if word in block]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def fences(service, resource):
    """Of two holders: the first one's lease ran out, the second one has the lock."""
    first = service.acquire(resource, 200)["fence"]
    wait_until(lambda: not any(master.cli("EXISTS", resource) for master in service.masters), what="the end of the first lease")
    second = service.acquire(resource)["fence"]
    assert first < second
    return first, second


class Postgres:
    """As much of a connection as the example uses, on SQLite."""

    def __init__(self):
        self.connection = sqlite3.connect(":memory:", isolation_level=None)

    def execute(self, statement, values=()):
        return self.connection.execute(statement.replace("%s", "?"), values)


def test_the_guard_in_sql(fences):
    names, db = {}, Postgres()
    exec(code("python", "LockLost"), names)
    enter, write, lost = names["enter"], names["write"], names["LockLost"]
    db.execute(code("sql", "CREATE TABLE"))
    db.execute("INSERT INTO stock (item, amount) VALUES ('apples', 5)")
    a, b = fences
    assert enter(db, "apples", a) == 5
    assert enter(db, "apples", b) == 5
    with pytest.raises(lost):
        write(db, "apples", a, 4)
    with pytest.raises(lost):
        enter(db, "apples", a)
    write(db, "apples", b, 4)
    write(db, "apples", b, 3)
    assert enter(db, "apples", b) == 3
    assert db.execute("SELECT amount, fence FROM stock").fetchall() == [(3, b)]


@pytest.fixture
def text_service(tmp_path):
    """The JavaScript example, under way; yields its address."""
    (tmp_path / "texts.js").write_text(code("js", "createServer"), encoding="utf-8")
    address = f"127.0.0.1:{random.randrange(15000, 32000)}"
    environment = {"PATH": os.environ["PATH"], "PORT": address.partition(":")[2]}
    process = subprocess.Popen([*DIES_WITH_US, "node", str(tmp_path / "texts.js")], env=environment, stdin=subprocess.DEVNULL)

    def listens():
        assert process.poll() is None
        return subprocess.run(["curl", "-s", f"http://{address}/"], capture_output=True, check=False).returncode == 0
    try:
        wait_until(listens, what="the example listens")
        yield address
    finally:
        end_process(process)


@pytest.mark.node
def test_the_guard_in_javascript(fences, text_service):
    a, b = fences

    def call(method, fence, body=None):
        answer = curl(text_service, method, "/note", body=body, headers={} if fence is None else {"Fence": fence})
        return answer.status, answer.body.decode()
    assert call("GET", a) == (200, "")
    assert call("PUT", a, "five") == (200, "five")
    assert call("GET", b) == (200, "five")
    assert call("PUT", a, "four") == (409, "lock lost\n")
    assert call("GET", a) == (409, "lock lost\n")
    assert call("PUT", b, "three") == (200, "three")
    assert call("GET", b) == (200, "three")
    for fence in (None, "", "x", "0", "-1", 2**53, f"{b}.5"):
        assert call("PUT", fence, "rubbish")[0] == 409, fence
    assert call("GET", b) == (200, "three")
