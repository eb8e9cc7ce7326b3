# SPDX-License-Identifier: MIT
"""What only the library for Go has: its package, its own tests (contexts, errors, Close, the logger), the form of its sources."""

import os
import re
import signal
import subprocess
import zipfile

import pytest

from driver import DRIVERS
from harness import DIES_WITH_US, ROOT, SLOW, clean_environment, patience
from test_library import state, url_of

if "go" not in DRIVERS:
    pytest.skip("Go is not among REDLOCKD_TEST_LANGUAGES", allow_module_level=True)

SOURCE = ROOT / "clients" / "go"
DRIVER = ROOT / "tests" / "clients" / "drivers" / "go"
MODULE = "github.com/OWNER/redlockd/clients/go"
HEAD = """\
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	redlockd "github.com/OWNER/redlockd/clients/go"
)

const key = ""

func save(_ context.Context, item string, fence int64) error {
	fmt.Println(item, fence)
	return nil
}
"""
TAIL = """
func main() {
	ctx := context.Background()
	fmt.Println(loop(ctx, []string{"an-item"}), block(ctx, "another", os.Args[1]))
}

func block(ctx context.Context, item, server string) (err error) {
	client, _ := redlockd.New(redlockd.Config{Servers: []string{server}})
	defer client.Close()
"""


def run(*command, cwd, environment=None, seconds=300):
    environment = {**clean_environment(), "HOME": os.environ.get("HOME", "/"), "GOTOOLCHAIN": "local", **(environment or {})}
    done = subprocess.run([*DIES_WITH_US, *map(str, command)], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=seconds * SLOW, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-5000:]}"
    return done.stdout


@pytest.mark.parametrize("folder", [SOURCE, DRIVER], ids=["library", "driver"])
def test_sources(folder):
    """As gofmt leaves them, nothing for vet, also on a system without CLOCK_BOOTTIME; no line of more than 120 columns."""
    assert run("gofmt", "-l", ".", cwd=folder) == ""
    run("go", "vet", "./...", cwd=folder)
    wrong = [f"{path.name}:{number}" for path in folder.glob("*.go")
             for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1) if len(line.expandtabs()) > 120]
    assert wrong == []
    run("go", "vet", "./...", cwd=folder, environment={"GOOS": "darwin"})
    assert run("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".", cwd=SOURCE).split() == [MODULE]


def test_the_library_is_small():
    """At most 1540 lines of code: without comments and empty lines. Lines that only close a bracket count."""
    lines = [line.strip() for path in SOURCE.glob("*.go") if not path.name.endswith("_test.go") for line in path.read_text(encoding="utf-8").splitlines()]
    assert 400 < len([line for line in lines if line and not line.startswith("//")]) <= 1540


def test_its_own_tests():
    """With the race detector."""
    run("go", "test", "-race", "-count=1", "-timeout", f"{200 * SLOW:.0f}s", ".", cwd=SOURCE)


def test_a_constant_for_each_code():
    codes = set(re.findall(r"^## `([a-z-]+)`$", (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8"), re.M))
    constants = re.findall(r'^\tErr(\w+) +Code = "([a-z-]+)"', (SOURCE / "errors.go").read_text(encoding="utf-8"), re.M)
    assert len(codes) > 10 and codes | {"no-answer", "lock-lost", "max-hold", "late", "released"} == {code for _, code in constants}
    assert all(name.lower() == code.replace("-", "") for name, code in constants)


def test_the_package(service, tmp_path):
    """A new program gets the module from the folder of a proxy, with nothing else there, and is the code of the README."""
    run("sh", "-euc", ". tests/dev/clients.sh && package_client_go", cwd=ROOT)
    proxy = ROOT / "build" / "package" / "clients" / "go"
    version = (proxy / "github.com/!o!w!n!e!r/redlockd/clients/go/@v/list").read_text().strip()
    with zipfile.ZipFile(proxy / f"github.com/!o!w!n!e!r/redlockd/clients/go/@v/{version}.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    prefix = f"{MODULE}@{version}/"
    assert {prefix + path.name for path in SOURCE.iterdir() if path.is_file()} == set(files)
    assert files[prefix + "LICENSE"] == (ROOT / "LICENSE").read_bytes()
    get, loop, block = re.findall(r"^```(?:go|sh)\n(.*?)^```$", files[prefix + "README.md"].decode(), re.M | re.S)
    loop = loop.partition("\n\n")[2].replace('"https://a:8443", "https://b:8443"', "os.Args[1]")
    program = tmp_path / "program"
    program.mkdir()
    (program / "program.go").write_text(f"{HEAD}\nfunc loop(ctx context.Context, items []string) error {{\n{loop}return err\n}}\n"
                                         f"{TAIL}{block}return save(lease.Context(), item, lease.Fence)\n}}\n")
    environment = {"HOME": str(tmp_path), "GOPATH": str(tmp_path / "go"), "GOPROXY": f"file://{proxy}", "GOFLAGS": "-mod=mod -modcacherw", "GOSUMDB": "off",
                   "GOCACHE": run("go", "env", "GOCACHE", cwd=SOURCE).strip()}
    run("go", "mod", "init", "program", cwd=program, environment=environment)
    assert get.split() == ["go", "get", MODULE]
    said = re.search(r"`GONOSUMDB=(\S+) GOPROXY=file://CLONE/(\S+),\$\(go env GOPROXY\) (go get \S+)`", files[prefix + "README.md"].decode())
    assert said.groups() == ("github.com/OWNER/redlockd", "build/package/clients/go", f"go get {MODULE}@{version}")
    run(*said[3].split(), cwd=program, environment=environment)
    run("go", "build", "-o", "program", ".", cwd=program, environment=environment)
    assert f"{MODULE} {version}" in (program / "go.mod").read_text() and (tmp_path / "go/pkg/mod/github.com/!o!w!n!e!r/redlockd/clients").is_dir()
    first, second, said = run("./program", url_of(service), cwd=program).splitlines()
    assert (first.split()[0], second.split()[0], said) == ("an-item", "another", "<nil> <nil>") and int(first.split()[1]) < int(second.split()[1])
    assert not state(service, "orders/42")["held"]


SIGTERM = """\
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	redlockd "github.com/OWNER/redlockd/clients/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, _ := redlockd.New(redlockd.Config{Servers: []string{os.Args[1]}})
	defer client.Close()
	_, _ = client.Lock(ctx, os.Args[2]+"/kept") // released by Close
	fmt.Println(client.Do(ctx, os.Args[2], func(ctx context.Context, _ *redlockd.Lease) error {
		fmt.Println("held")
		<-ctx.Done()
		return context.Cause(ctx)
	}))
}
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_releases(service, resource, tmp_path, number):
    """As the README says."""
    readme = (SOURCE / "README.md").read_text(encoding="utf-8")
    assert "`signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)`" in readme and "\ndefer client.Close()\n" in readme
    (tmp_path / "main.go").write_text(SIGTERM)
    (tmp_path / "go.mod").write_text(f"module program\n\ngo 1.22\n\nrequire {MODULE} v0.0.0\n\nreplace {MODULE} => {SOURCE}\n")
    run("go", "build", "-o", "program", ".", cwd=tmp_path)
    with subprocess.Popen([*DIES_WITH_US, str(tmp_path / "program"), url_of(service), resource], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n" and state(service, resource + "/kept")["held"]
        process.send_signal(number)
        said = process.communicate(timeout=patience(20))[0]
    assert process.returncode == 0 and said and "lost" not in said
    assert not state(service, resource)["held"] and not state(service, resource + "/kept")["held"]
