# SPDX-License-Identifier: MIT
"""redlockctl and API keys: how they are made and sent, where they are not shown, and the messages where a server
refuses them."""

import hashlib
import json
import os
import pathlib
import re
import subprocess

import pytest

import harness
from ctl import BINARY, LOST, UNREACHABLE, USAGE, Run, ctl
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import DIES_WITH_US, SLOW, children_of, clean_environment, wait_until

FORBIDDEN, SYSTEM = 77, 71
KEY = "rlk_8Uo0fTgVvDg9Tmpj3vJQyV2yWbqzqXcG4m5e7n9r1s0"


def sha256(key):
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
def key_file(lab):
    path = pathlib.Path(lab.folder, "key")
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    return str(path)


# ------------------------------------------------------------------------------------------------------ key new


def test_new_key():
    made = [json.loads(ctl("key", "new", "--json", "--prefix", "orders/", "--prefix", "ümlaut \"/", "--right", "acquire", "--right", "admin").stdout) for _ in range(2)]
    for one in made:
        assert re.fullmatch(r"rlk_[A-Za-z0-9_-]{43}", one["key"]) and one["sha256"] == sha256(one["key"])
        assert one["entry"] == {"name": f"key-{one['sha256'][:8]}", "sha256": one["sha256"], "prefixes": ["orders/", "ümlaut \"/"], "rights": ["acquire", "admin"]}
    assert made[0]["key"] != made[1]["key"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_new_key_in_a_file(lab, options):
    path = pathlib.Path(lab.folder, "new")
    done = subprocess.run([*DIES_WITH_US, "sh", "-c", 'umask 0; exec "$@"', "sh", BINARY, "key", "new", "--out", str(path), *options], env=clean_environment(),
                          capture_output=True, text=True, timeout=20 * SLOW, check=True)
    key = path.read_text()
    assert re.fullmatch(r"rlk_[A-Za-z0-9_-]{43}\n", key) and path.stat().st_mode & 0o777 == 0o600
    assert sha256(key.strip()) in done.stdout and key.strip() not in done.stdout + done.stderr and "key  " not in done.stdout
    again = ctl("key", "new", "--out", str(path))
    assert (again.returncode, again.stdout) == (USAGE, "") and str(path) in again.stderr and path.read_text() == key
    link = pathlib.Path(lab.folder, "link")
    link.symlink_to(pathlib.Path(lab.folder, "elsewhere"))
    assert ctl("key", "new", "--out", str(link)).returncode == USAGE and not link.exists()


def test_new_key_without_room():
    """A key that was not shown, or only in part, does not count as made."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([*DIES_WITH_US, BINARY, "key", "new"], env=clean_environment(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=20 * SLOW, check=False)
    assert done.returncode == SYSTEM and "stdout" in done.stderr
    assert ctl("key", "new", "--out", "/proc/nothing").returncode == USAGE


# ----------------------------------------------------------------------------------------------------- key hash


def test_hash(key_file):
    for args, given in ((["--key-file", key_file], ""), ([], KEY), ([], f"  {KEY}\r\n"), (["--key-file", "-"], KEY + "\n")):
        done = ctl("key", "hash", *args, stdin=given)
        assert (done.returncode, done.stdout, done.stderr) == (0, sha256(KEY) + "\n", "")
    assert json.loads(ctl("key", "hash", "--json", stdin=KEY).stdout) == {"sha256": sha256(KEY)}


# ---------------------------------------------------------------------------------------------- how a key travels


def credentials(server, **more):
    return {"REDLOCKCTL_SERVER": server.address, **more}


@pytest.mark.parametrize("how", ["option", "file", "variable"])
def test_in_every_request(fake, resource, key_file, how):
    server = fake(state=lambda call: call.answer(200, {"resource": resource, "held": False, "locks": []}))
    given = {"option": (["--key-file", key_file], {}), "file": ([], {"REDLOCKCTL_KEY_FILE": key_file}), "variable": ([], {"REDLOCKCTL_API_KEY": KEY + "\n"})}[how]
    environment = credentials(server, REDLOCK_TOKEN=TOKEN, **given[1])
    for args in (["run", resource, *given[0], "--", "true"], ["acquire", resource, *given[0]], ["extend", resource, *given[0]], ["release", resource, *given[0]],
                 ["release", resource, "--force", *given[0]], ["status", resource, *given[0]], ["list", *given[0]]):
        done = ctl(*args, env=environment)
        assert (done.returncode, done.stderr) == (0, ""), args
    assert len(server.calls) == 8 and all(call.headers["authorization"] == f"Bearer {KEY}" for call in server.calls)


def test_a_token_that_others_replace(lab, fake, resource):
    """That of a service account: everybody in the pod may read it, and it is read for each request. Without it, the last one stays."""
    path = pathlib.Path(lab.folder, f"token-{resource.replace('/', '-')}")
    sent, tokens = [], [f"{'h' * 300}.claims.{number}" for number in range(3)]

    def put(token):
        path.with_suffix(".new").write_text(token, encoding="utf-8")
        path.with_suffix(".new").chmod(0o644)
        path.with_suffix(".new").rename(path)

    def extend(call):
        sent.append(call.headers["authorization"])
        if len(sent) == 1:
            put(tokens[2])
        elif len(sent) == 2:
            path.unlink()
        call.lease(200)
    put(tokens[0])
    server = fake(acquire=lambda call: (put(tokens[1]), call.lease()), extend=extend)
    run = Run(lab, resource, "--key-file", str(path), command="until [ -e go ]; do sleep 0.02; done", servers=[server])
    wait_until(lambda: len(sent) >= 3, 30, "three renewals")
    (run.folder / "go").touch()
    assert run.wait() == 0
    assert server.of("acquire")[0].headers["authorization"] == f"Bearer {tokens[0]}"
    assert sent[:3] == [f"Bearer {tokens[1]}", f"Bearer {tokens[2]}", f"Bearer {tokens[2]}"]


def test_in_side_requests(fake, resource, key_file):
    """The look at who has the lock, while it is waited for."""
    server = fake(acquire=lambda call: (call.server.call("state"), call.lease()))
    assert ctl("run", resource, "-v", "--key-file", key_file, "--", "true", server=server.address).returncode == 0
    assert len(server.of("state")) == 1 and all(call.headers["authorization"] == f"Bearer {KEY}" for call in server.calls)


# ------------------------------------------------------------------------------------------ where it is not shown


def environment_of(pid):
    """Empty where the process has ended, or only root may read it."""
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def test_not_shown_to_the_command(lab, fake, resource):
    """Neither in its environment nor in that of redlockctl; the name of a key's file stays there, for a redlockctl in
    the command."""
    path = pathlib.Path(lab.folder, "stdout")
    environment = {"REDLOCKCTL_API_KEY": KEY, "REDLOCKCTL_CACERT": "/dev/null", "OTHER": "kept"}
    server = fake()
    with open(path, "w", encoding="utf-8") as out:
        process = subprocess.Popen([*DIES_WITH_US, BINARY, "run", resource, "-v", "--", "sh", "-c", "env; cat; exit 3"], env=clean_environment(credentials(server, **environment)),
                                   stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
    server.call("acquire")
    wait_until(lambda: "OTHER=kept" in path.read_text(), 20, "the command runs")
    assert os.geteuid() != 0 or "OTHER=kept" in environment_of(process.pid)
    for pid in [process.pid, *children_of(process.pid)]:
        assert KEY not in environment_of(pid)
    process.communicate(timeout=20 * SLOW)
    assert process.returncode == 3
    shown = path.read_text()
    assert KEY not in shown and "REDLOCKCTL_API_KEY" not in shown and "OTHER=kept" in shown and "REDLOCKCTL_CACERT=/dev/null" in shown
    assert server.calls[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("options", [[], ["--json"], ["-v"]])
def test_not_in_messages(lab, fake, resource, options, key_file):
    server = fake(acquire=lambda call: call.problem(403, "forbidden"))
    done = ctl("run", resource, *options, "--key-file", key_file, "--", "true", server=server.address)
    assert done.returncode == FORBIDDEN and KEY not in done.stdout + done.stderr
    for environment in ({"REDLOCKCTL_API_KEY": KEY + "\x7f"}, {"REDLOCKCTL_API_KEY": KEY[:10]}, {"REDLOCKCTL_KEY_FILE": KEY}, {"REDLOCKCTL_KEY": KEY, "REDLOCKCTL_CERT": "x"}):
        done = ctl("run", resource, *options, "--", "true", server=server.address, env=environment)
        assert done.returncode == USAGE and "rlk_" not in done.stdout + done.stderr and list(environment)[0] in done.stderr
    done = ctl("status", resource, "--key-file", KEY, server=server.address)
    assert done.returncode == USAGE and "rlk_" not in done.stderr and "--key-file" in done.stderr


# ------------------------------------------------------------------------------------------------ plain HTTP


def warnings(done):
    return [line for line in done.stderr.splitlines() if "warning" in line]


def test_warned_of_plain_http(fake, resource):
    """0.0.0.0 leads here, but is no address of loopback."""
    server = fake(port=True)
    address, environment = f"http://0.0.0.0:{server.port}", {"REDLOCKCTL_API_KEY": KEY}
    for args in (["status", resource], ["run", resource, "--", "true"], ["status", resource, "-s", server.address, "-s", address, "-s", address]):
        done = ctl(*args, server=address, env=environment)
        assert done.returncode == 0 and len(warnings(done)) == 1 and address in done.stderr and KEY not in done.stderr
    done = ctl("run", resource, "--json", "--", "true", server=address, env=environment)
    warned = [line for line in map(json.loads, done.stderr.splitlines()) if line["event"] == "warning"]
    assert [line["code"] for line in warned] == ["exposed-key"]
    assert not warnings(ctl("status", resource, server=address))
    assert not warnings(ctl("status", resource, server=server.address, env=environment))


# --------------------------------------------------------------------------------------------- what a server says


def says(status, code, **headers):
    return lambda call: call.answer(status, {"code": code, "detail": f"What it says of {code}.", "status": status}, **headers)


REFUSALS = [(401, "unauthorized", FORBIDDEN), (403, "forbidden", FORBIDDEN), (429, "too-many-requests", UNREACHABLE)]


@pytest.mark.parametrize("args, refusal", [*((["acquire"], each) for each in REFUSALS), *((args, REFUSALS[1]) for args in (
    ["run"], ["extend"], ["release"], ["release", "--force"], ["status"], ["list"], ["masters"]))])
def test_refused(fake, resource, args, refusal):
    status, code, expected = refusal
    answer = says(status, code)
    server = fake(acquire=answer, extend=answer, release=answer, state=answer)
    name, command = [] if args[0] in ("list", "masters") else [resource], ["-n", "--", "true"] if args == ["run"] else []
    done = ctl(args[0], *name, *args[1:], *command, env=credentials(server, REDLOCK_TOKEN=TOKEN, REDLOCKCTL_API_KEY=KEY))
    assert (done.returncode, done.stdout) == (expected, "") and f"What it says of {code}" in done.stderr and done.stderr.count("\n") == 1
    assert server.address in done.stderr and len(server.calls) == 1
    if args != ["run"]:
        done = ctl(args[0], *name, *args[1:], "--json", env=credentials(server, REDLOCK_TOKEN=TOKEN, REDLOCKCTL_API_KEY=KEY))
        assert done.returncode == expected and json.loads(done.stdout)["code"] == code


@pytest.mark.parametrize("status, code", [(401, "unauthorized"), (403, "forbidden")])
def test_no_use_in_waiting(lab, fake, resource, status, code):
    server, other = fake(acquire=says(status, code)), fake()
    run = Run(lab, resource, "--wait", "5m", command="touch ran", servers=[server, other])
    assert run.wait(10) == FORBIDDEN and not (run.folder / "ran").exists()
    assert run.events("not-acquired")[0]["code"] == code and len(server.calls) == 1 and not other.calls


def test_extending_goes_on_where_it_is_refused(lab, fake, resource):
    """A limit of requests is no loss: the lease is asked for again until it is over."""
    answers = [says(429, "too-many-requests"), says(403, "forbidden"), lambda call: call.lease(200)]
    server = fake(extend=lambda call: answers.pop(0)(call) if len(answers) > 1 else answers[0](call))
    run = Run(lab, resource, command="until [ -e go ]; do sleep 0.02; done", servers=[server])
    run.event("extended")
    assert [event["code"] for event in run.events("not-extended")] == ["too-many-requests", "forbidden"]
    (run.folder / "go").touch()
    assert run.wait() == 0 and not run.events("lost")


def test_hint(fake, resource, key_file):
    """Without a key the message says where to put one."""
    answer = says(401, "unauthorized")
    server = fake(acquire=answer, state=answer)
    for args in (["status", resource], ["run", resource, "--", "true"]):
        assert "REDLOCKCTL_API_KEY" in ctl(*args, server=server.address).stderr
    assert "REDLOCKCTL_API_KEY" not in ctl("status", resource, "--key-file", key_file, server=server.address).stderr


def test_refused_by_something_in_between(fake, resource):
    server = fake(state=lambda call: call.answer(403, None))
    done = ctl("status", resource, server=server.address)
    assert done.returncode == FORBIDDEN and "403" in done.stderr


# ------------------------------------------------------------------------------------------------------- by force


@pytest.mark.parametrize("status, code, expected, said", [
    (204, None, 0, "released; its holder is not told, and may work on until it renews"), (410, "lease-expired", 0, "nobody held it"), (409, "not-owner", LOST, "What it says of not-owner"),
    (403, "forbidden", FORBIDDEN, "What it says of forbidden"), (503, "no-quorum", UNREACHABLE, "What it says of no-quorum"),
])
def test_release_by_force(fake, resource, status, code, expected, said):
    server = fake(release=lambda call: call.answer(204) if status == 204 else says(status, code)(call))
    done = ctl("release", resource, "--force", env=credentials(server, REDLOCK_TOKEN=TOKEN, REDLOCKCTL_API_KEY=KEY))
    assert done.returncode == expected and said in (done.stdout if expected == 0 else done.stderr) and (done.stdout == "") == (expected != 0)
    [call] = server.calls
    assert (call.method, call.path) == ("DELETE", "/locks?force=true") and "lock-token" not in call.headers and call.body == {"resource": resource}
    done = ctl("release", resource, "--force", "--json", env=credentials(server))
    assert json.loads(done.stdout) == {"released": status == 204} if expected == 0 else json.loads(done.stdout)["code"] == code


def gone(call):
    call.connection.close()


@pytest.mark.parametrize("behave", [gone, lambda call: call.send(b"HTTP/1.1 20"), says(503, "no-quorum")], ids=["closed", "cut", "503"])
def test_release_by_force_is_sent_once(fake, resource, behave):
    """It may have been carried out, and a second one would release the next holder. With a fence it cannot."""
    first, second = fake(release=behave), fake()
    servers = {"REDLOCKCTL_SERVER": f"{first.address},{second.address}"}
    assert ctl("release", resource, "--force", env=servers).returncode == UNREACHABLE
    assert len(first.calls) == 1 and not second.calls
    assert ctl("release", resource, "--force", "--fence", "7", env=servers).returncode == 0
    assert len(first.calls) == 2 and len(second.calls) == 1


def test_release_by_force_that_was_not_sent_goes_to_the_next_server(fake, resource):
    server = fake()
    assert ctl("release", resource, "--force", env={"REDLOCKCTL_SERVER": f"{server.address}-nobody,{server.address}"}).returncode == 0
    assert len(server.calls) == 1


def test_release_by_force_of_a_holder(service, resource):
    lease = service.acquire(resource)
    done = ctl("release", resource, "--force", "--fence", str(lease["fence"] + 1), server=service)
    assert done.returncode == LOST and "another fence" in done.stderr and done.stdout == ""
    done = ctl("release", resource, "--force", "--fence", str(lease["fence"]), server=service)
    assert (done.returncode, done.stdout) == (0, f"{resource}: released; its holder is not told, and may work on until it renews\n")
    assert service.release(lease).status == 410


# ---------------------------------------------------------------------------------------------------- a real one


@pytest.fixture(scope="module")
def keyed():
    """A redlockd with keys that redlockctl has made. `keyed.files`: where each lies."""
    with harness.Lab() as lab:
        files, entries = {}, []
        for name, *options in (("billing", "--prefix", "billing/"), ("operator", "--right", "admin", "--right", "inspect", "--right", "list"), ("slow", "--right", "acquire"),
                               ("unknown",)):
            files[name] = os.path.join(lab.folder, name)
            entries.append(json.loads(ctl("key", "new", "--name", name, *options, "--out", files[name], "--json").stdout)["entry"])
        entries[2]["rate"] = 1
        keys = pathlib.Path(lab.folder, "keys.json")
        keys.write_text(json.dumps({"keys": entries[:3]}))
        keys.chmod(0o600)
        daemon = lab.service(1, "--keys", str(keys), wait=False)
        wait_until(lambda: daemon.curl("GET", "/readyz").status == 200, what="ready")
        daemon.files = files
        yield daemon


def by(keyed, name, *args, **env):
    return ctl(*args, server=keyed, env={**env, **({"REDLOCKCTL_KEY_FILE": keyed.files[name]} if name else {})})


def test_who_may_do_what(keyed):
    assert by(keyed, "billing", "run", "billing/1", "--", "true").returncode == 0
    lease = json.loads(by(keyed, "billing", "acquire", "billing/1", "--json").stdout)
    assert by(keyed, "billing", "status", "billing/1").stdout.startswith("billing/1: held by ")
    beyond = by(keyed, "billing", "acquire", "orders/1")
    assert beyond.returncode == FORBIDDEN and "prefixes" in beyond.stderr
    assert by(keyed, "billing", "run", "orders/1", "--", "true").returncode == FORBIDDEN
    assert by(keyed, "billing", "list").returncode == FORBIDDEN and by(keyed, "operator", "list").returncode == 0
    assert by(keyed, "operator", "acquire", "billing/1").returncode == FORBIDDEN
    for name, said in ((None, "REDLOCKCTL_API_KEY"), ("unknown", "not known")):
        refused = by(keyed, name, "status", "billing/1")
        assert refused.returncode == FORBIDDEN and said in refused.stderr
    assert by(keyed, None, "extend", "billing/1", REDLOCK_TOKEN=lease["token"]).returncode == 0
    assert by(keyed, None, "release", "billing/1", REDLOCK_TOKEN=lease["token"]).returncode == 0
    shown = keyed.stderr()
    assert not [path for path in keyed.files.values() if pathlib.Path(path).read_text().strip() in shown]


def test_force(keyed):
    lease = json.loads(by(keyed, "billing", "acquire", "billing/forced #?", "--json").stdout)
    for name in ("billing", "unknown", None):
        assert by(keyed, name, "release", "billing/forced #?", "--force").returncode == FORBIDDEN
    done = by(keyed, "operator", "release", "billing/forced #?", "--force")
    assert (done.returncode, done.stdout) == (0, "billing/forced #?: released; its holder is not told, and may work on until it renews\n")
    assert by(keyed, "billing", "extend", "billing/forced #?", REDLOCK_TOKEN=lease["token"]).returncode == LOST
    again = by(keyed, "operator", "release", "billing/forced #?", "--force")
    assert (again.returncode, again.stdout) == (0, "billing/forced #?: nobody held it\n")
    assert [line["caller"] for line in keyed.log("forced-release") if line["outcome"] == "released"] == ["operator"]
    keyed.masters[0].cli("SET", "billing/stranger", "somebody's own", "PX", "60000")
    assert by(keyed, "operator", "release", "billing/stranger", "--force").returncode == LOST


def test_limit_of_requests(keyed):
    """Until the limit is met, and then until it lets one through again."""
    refused = wait_until(lambda: (done := by(keyed, "slow", "acquire", "slow/1", "--ttl", "200ms")).returncode == UNREACHABLE and done, what="429")
    assert "http://" in refused.stderr
    assert by(keyed, "slow", "run", "slow/2", "--wait", "20s", "--", "true").returncode == 0
