# SPDX-License-Identifier: MIT
"""The commands in README.md, the tutorials and the how-tos, as a reader would paste them: the blocks of shell lines of a document are run in one
shell against a real redlockd, and the block that follows one must be what it prints, but for numbers and tokens that differ each time. The programs
in Python that stand there run, too, and the code that guards a resource by its fence goes through the story that is told there, with real leases."""

import os
import pathlib
import re
import subprocess
import textwrap

import pytest

from harness import BINARY, DIES_WITH_US, ROOT, curl, end_process, free_port, wait_until

ADDRESS = "127.0.0.1:8080"
BLOCKS = re.compile(r"^(?P<indent> *)```sh\n(?P<lines>.*?)^(?P=indent)```\n(?:\n*(?P=indent)```\n(?P<output>.*?)^(?P=indent)```\n)?", re.M | re.S)
GUARD = "docs/tutorials/guarded-write.md"


def examples(document):
    """[(shell lines, what they print)]; a block may stand in an item of a list."""
    found = BLOCKS.finditer((ROOT / document).read_text(encoding="utf-8"))
    return [(textwrap.dedent(block["lines"]), textwrap.dedent(block["output"] or "")) for block in found]


# These are run elsewhere: by the test that is named here, or, as they are for operators, by test_operator_commands.py.
ELSEWHERE = {"docs/how-to/docker.md": "tests/docker/test_docker_guide.py",
             "docs/how-to/kubernetes.md": "tests/helm/test_charts.py", "docs/how-to/secure.md": "tests/packages/test_five_minutes.py"}
OPERATORS = {f"docs/how-to/{name}.md" for name in ("debian", "operate", "replace-a-master", "runbook", "upgrade")}
PAGES = [path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/tutorials/*.md")), *sorted(ROOT.glob("docs/how-to/*.md")),
                                                       ROOT / "docs" / "reference" / "http-api.md"]]
DOCUMENTS = [name for name in PAGES if name not in ELSEWHERE and name not in OPERATORS and examples(name)]


def masked(text):
    """The text with tokens and numbers made alike; not those that are an HTTP status or stand in a name."""
    text = re.sub(r"\b[0-9a-f]{40}\b", "<token>", text)
    text = re.sub(r"\b[\d.]+ m?s\b", "<time>", re.sub(r"\b\d{16}\b(?!,)", "<fence>", text))
    text = re.sub(r" {2,}", "  ", text)  # columns are as wide as what is in them
    return re.sub(r'("(?!status")\w+":|fence )\d+', r"\1<number>", text)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_do_what_they_say(document, service, tmp_path):
    """In a shell with job control, as a terminal has it, which would tell of jobs on standard error; PATH as the README sets it."""
    programs = pathlib.Path(BINARY).parent
    saved = re.findall(r"[Ss]ave (?:this|it) as `([\w.]+)`[^\n]*:\n\n```\w+\n(.*?)^```\n", (ROOT / document).read_text(encoding="utf-8"), re.M | re.S)
    for name, text in saved:
        (tmp_path / name).write_text(text.replace(ADDRESS, service.address), encoding="utf-8")
    script = "".join(f"{lines}\necho; echo '--- next'\n" for lines, _ in examples(document)).replace(ADDRESS, service.address)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "REDLOCKCTL_SERVER": f"http://{service.address}"}
    done = subprocess.run([*DIES_WITH_US, "bash", "-c", script], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    outputs = done.stdout.replace(service.address, ADDRESS).split("--- next\n")[:-1]
    assert len(outputs) == len(examples(document))
    for (lines, expected), output in zip(examples(document), outputs):
        assert masked(output).strip() == masked(expected).strip(), f"{lines}\n{output}"
    assert {path.name for path in tmp_path.iterdir()} == {name for name, _ in saved}, "files are left behind"


def test_the_documents_with_commands():
    assert {GUARD, "README.md", "docs/tutorials/first-lock.md", "docs/how-to/wait-and-hold.md", "docs/how-to/cron.md", "docs/how-to/leader-election.md",
            "docs/reference/http-api.md"} <= set(DOCUMENTS)


def test_python_in_the_readme(service, resource):
    """With another name of the lock, and work() that looks at it."""
    program = code("README.md", "python", "urllib").replace(ADDRESS, service.address).replace("orders/43", resource)
    seen = []

    def inspect():
        return service.curl("GET", f"/locks/{resource}").json

    def work(until, fence):
        seen.append((until, fence, inspect()))
    names = {"work": work}
    exec(program, names)
    (until, fence, state), = seen
    assert state["held"] and state["fence"] == fence == names["lease"]["fence"]
    assert names["sent"] + 29 < until < names["sent"] + 30
    assert not inspect()["held"]


def test_masking_hides_no_status():
    assert masked('{"status":409,"ttl_ms":5}\n409') == '{"status":409,"ttl_ms":<number>}\n409'


# ------------------------------------------------------------------------------------- guarding with the fence


def code(document, language, word):
    """The one block of code in this language in which a word appears."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```\n", (ROOT / document).read_text(encoding="utf-8"), re.M | re.S)
    found = [block for block in blocks if word in block]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def fences(service, resource):
    """Of two holders: the first one's lease ran out, the second one has the lock."""
    first = service.acquire(resource, 2000)["fence"]
    wait_until(lambda: not any(master.cli("EXISTS", resource) for master in service.masters), what="the end of the first lease")
    second = service.acquire(resource)["fence"]
    assert first < second
    return first, second


def test_the_guard_in_sql(fences):
    names = {}
    exec(code(GUARD, "python", "class LockLost"), names)
    enter, write, lost, db = names["enter"], names["write"], names["LockLost"], names["connect"](":memory:")
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
    (tmp_path / "texts.js").write_text(code(GUARD, "js", "createServer"), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
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
