# SPDX-License-Identifier: MIT
"""The commands for operators: those in docs/how-to that need a service manager or masters with addresses run here against real masters and a real
redlockd, with systemctl and journalctl taken out and held against the help of the real ones; those of docker and kubectl are read by bash, and their
options held against the help of the real programs."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from harness import BINARY, DIES_WITH_US, ROOT, wait_until
from test_commands import ADDRESS, ELSEWHERE, OPERATORS, PAGES, examples

# What the shell does in place of programs that need a machine of their own: it keeps what it was asked for.
PRELUDE = """
systemctl() { echo "systemctl $*" >>"$CALLS"; }
journalctl() { echo "journalctl $*" >>"$CALLS"; }
sudo() { "$@"; }
redis-cli() { case $1 in -u) ;; -h) shift 4; set -- -u "$MASTER" "$@" ;; *) set -- -u "$MASTER" "$@" ;; esac; command redis-cli "$@"; }
set -e
"""


@pytest.fixture
def operated(lab):
    """A redlockd on a TCP port, over masters on TCP ports."""
    return lab.redlockd(lab.redises(3, tcp=True), "--bootstrap", "--log-leases", listen=["127.0.0.1:0"])


def help_of(*command):
    """What the program says of itself; the test is skipped where it is not installed."""
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("document", sorted(OPERATORS))
def test_they_run(document, operated, tmp_path):
    """All blocks of a document in one shell, as far as the first that fails; nothing outside the temporary folder is touched."""
    blocks = examples(document)
    assert blocks
    script = PRELUDE + "\n".join(lines for lines, _ in blocks).replace(ADDRESS, operated.address).replace("/etc/redlockd", str(tmp_path)).replace("/etc/systemd", str(tmp_path))
    for number, master in enumerate(operated.masters, 1):
        script = script.replace(f"redis://10.0.0.{number}", master.url)
    assert "10.0.0." not in script
    assert "/etc/" not in script
    environment = {"PATH": f"{pathlib.Path(BINARY).parent}:{os.environ['PATH']}", "REDLOCKCTL_SERVER": f"http://{operated.address}",
                   "CALLS": str(tmp_path / "calls"), "MASTER": operated.masters[0].url}
    operated.acquire("orders/42")
    wait_until(lambda: operated.log("lease-granted"), what="the grant is logged")
    (tmp_path / "redlockd.log").write_text(operated.stderr(), encoding="utf-8")
    done = subprocess.run([*DIES_WITH_US, "bash", "-c", script], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    for call in calls:
        tool, *words = call.split()
        known = help_of(tool)
        for word in words:
            if word.startswith("-") and not re.fullmatch(r"-\d\w", word):
                assert re.search(rf"(^|\s){re.escape(word)}\b", known, re.M), call
        if tool == "systemctl":
            assert re.search(rf"^  {re.escape(words[0])}\b", known, re.M), call


def test_the_trail_of_a_lock(operated, tmp_path):
    """docs/how-to/operate.md: its command finds the grant and the end, and no other lock."""
    command, printed = next(one for one in examples("docs/how-to/operate.md") if "redlockd.log" in one[0])
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    operated.acquire("orders/421")
    lease = operated.curl("POST", "/locks", body={"resource": "orders/42", "owner": "worker-7"}, headers={"traceparent": parent}).json
    assert operated.release(lease).status == 204
    wait_until(lambda: operated.log("lease-released"), what="the release is logged")
    (tmp_path / "redlockd.log").write_text(operated.stderr(), encoding="utf-8")
    found = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True).stdout

    def shape(text):
        return re.sub(r"\b(ts|id|fence|held_ms)=\S+", r"\1=", text)
    assert shape(found) == shape(printed) and found.count(f"fence={lease['fence']}") == 2


def test_another_number_of_masters(lab):
    """docs/how-to/replace-a-master.md, step by step, from three to five: the next fence is larger, even if all that is left of the old one is the number."""
    largest, write = (lines for lines, _ in examples("docs/how-to/replace-a-master.md") if "redlockd:master" in lines)
    assert "LARGEST" in write  # no number that somebody could paste: it would be below the present fences

    def on(master, commands):
        return subprocess.run([*DIES_WITH_US, "bash", "-c", PRELUDE + commands], capture_output=True, text=True, timeout=30, check=True,
                              env={"PATH": os.environ["PATH"], "MASTER": master.url, "CALLS": os.devnull}).stdout
    masters = lab.redises(5, tcp=True)
    short = ("--default-ttl-ms", "3000", "--max-ttl-ms", "3000")
    before = lab.redlockd(masters[:3], *short, "--bootstrap")
    fence = before.acquire("orders/42", 3000)["fence"]
    before.stop()
    assert [int(on(master, largest)) for master in masters[:3]].count(fence) >= 2
    floor = fence + 10**12
    for master in masters:
        on(master, write.replace("LARGEST", str(floor)))
    after = lab.redlockd(masters, *short, "--bootstrap=false")
    after.wait_voting(5)
    assert after.acquire("orders/42", 3000)["fence"] > floor


def settings_of(language):
    """The settings of the block in this language in docs/how-to/prepare-redis.md, as options of redis-server."""
    text, = re.findall(rf"^```{language}\n(.*?)^```\n", (ROOT / "docs/how-to/prepare-redis.md").read_text(encoding="utf-8"), re.M | re.S)
    lines = [shlex.split(line) for line in text.splitlines() if line and not line.startswith("#")]
    return [word for name, *values in lines if name not in ("bind", "port", "dir") for word in ("--" + name, *values)]


def test_prepared_masters_vote(lab):
    """docs/how-to/prepare-redis.md: servers with its settings, and with the user that it gives to redlockd."""
    masters = lab.redises(3, *settings_of("redis"), tcp=True, auth=("ADMIN-PASSWORD",))
    service = lab.redlockd([f"redis://locks:LOCKS-PASSWORD@127.0.0.1:{master.port}" for master in masters], "--bootstrap")
    service.wait_voting(3)
    service.acquire("orders/42")
    tls = settings_of("redis-tls")
    assert all(masters[0].cli("CONFIG", "GET", name[2:]) for name in tls if name.startswith("--")), tls
    assert not any(master["warnings"] for master in service.curl("GET", "/masters").json["masters"])


def test_prepared_masters_have_the_documented_user():
    reference = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    rights = re.search(r"^ACL SETUSER locks on >secret (.*)$", reference, re.M)[1].replace("~prod:*", "~*").replace("&prod:", "&")
    assert rights.split() == settings_of("redis")[settings_of("redis").index("--user") + 4:][:len(rights.split())]


def test_configurations_are_accepted(tmp_path):
    """docs/reference/configuration.md: the command and the file that it shows, with --check."""
    text = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    file, = re.findall(r"^```json\n(.*?)^```\n", text, re.M | re.S)
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "a", "sha256": "0" * 64, "prefixes": [""], "rights": ["acquire"]}]}), encoding="utf-8")
    (tmp_path / "redlockd.json").write_text(file.replace("/etc/redlockd/keys.json", str(keys)), encoding="utf-8")
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    commands = [*(lines for lines, _ in examples("docs/reference/configuration.md")), "redlockd --config=/etc/redlockd.json"]
    assert len(commands) == 2
    for command in commands:
        command = command.replace("/etc/redlockd.json", str(tmp_path / "redlockd.json")).replace("/etc/redlockd/keys.json", str(keys))
        done = subprocess.run([*DIES_WITH_US, "bash", "-c", command.rstrip() + " --check"], capture_output=True, text=True, timeout=30, check=False,
                              env={"PATH": f"{pathlib.Path(BINARY).parent}:{os.environ['PATH']}"})
        assert done.returncode == 0, command + done.stdout + done.stderr


@pytest.mark.parametrize("document", PAGES)
def test_all_blocks_are_shell(document):
    for lines, _ in examples(document):
        done = subprocess.run(["bash", "-n", "-c", lines], capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, ""), lines


def containers():
    """[(document, command)] of docker and kubectl in the documents that another part of the tests reads."""
    found = []
    for document in sorted(ELSEWHERE):
        text = "\n".join(lines for lines, _ in examples(document)).replace("\\\n", " ")
        found += [(document, line.partition("   #")[0]) for line in re.findall(r"^(?:\w+=\S* )*((?:docker|kubectl) .*)$", text, re.M)]
    return found


@pytest.mark.parametrize("document, command", containers())
def test_options_of_containers_exist(document, command):
    """Those of the verb: its words stand before the first option or name."""
    command = re.sub(r'"?\$\(.*?\)"?|compose -f \S+', lambda found: "compose" if found[0].startswith("compose") else "x", re.split(r" redlockd:|\bredlockctl ", command)[0])
    verb = re.match(r"docker compose [a-z]+|docker [a-z]+|kubectl create secret generic|kubectl [a-z-]+", command)[0].split()
    known = help_of(*verb)
    if verb[-1] not in known.partition("\n\n")[0] and verb[0] == "docker":
        pytest.skip("this docker has no compose")
    for option in re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", command):
        assert re.search(rf"(^|[\s,]){option}\b", known, re.M), f"{document}: {command}: {option}"


def test_what_runs_elsewhere():
    """Each other document is read by the tests that run its commands."""
    for document, test in ELSEWHERE.items():
        assert document.split("/", 2)[2] in (ROOT / test).read_text(encoding="utf-8"), document
