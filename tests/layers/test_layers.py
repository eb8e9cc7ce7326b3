"""Who may include whom: what the compiler really reads for each file, against the table in docs/architecture.md."""
import os
import re
import shlex
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

CLOCKS_HEAP_IO = {"time.h", "stdlib.h", "stdio.h", "unistd.h", "pthread.h", "uv.h", "sys/time.h", "sys/socket.h", "malloc.h"}
SERVER_HEADERS_FOR_API = {"hold.h", "lease.h", "status.h", "log.h", "text.h", "metrics.h", "clock.h", "token.h", "secret_file.h", "stats.h", "stats_hot.h",
                          "stats_series.h"}


def files(folder):
    found = [os.path.join(folder, name) for name in sorted(os.listdir(os.path.join(ROOT, folder))) if name.endswith((".c", ".h"))]
    assert found
    return found


def written_includes(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as source:
        return re.findall(r'^#include\s+[<"]([^>"]+)[>"]', source.read(), re.M)


def read_by_compiler(path):
    """Every file that the preprocessor opens for `path`, below the root as relative paths."""
    flags = shlex.split(subprocess.run(["pkg-config", "--cflags", "libuv", "hiredis", "jansson", "libmicrohttpd"], capture_output=True, text=True, check=True).stdout)
    # -MG: what is not there is named all the same (server/masters/master_tls.c where hiredis has no TLS).
    listing = subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-M", "-MG", *flags, path], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = listing.replace("\\\n", " ").split()[1:]
    return {os.path.relpath(os.path.join(ROOT, name), ROOT) if not name.startswith("/usr") else name for name in names}


def reads(path, *words):
    return sorted(name for name in read_by_compiler(path) for word in words if word in name)


@pytest.mark.parametrize("path", files("server/redlock"))
def test_the_core_knows_nothing(path):
    for name in written_includes(path):
        assert name not in CLOCKS_HEAP_IO, f"{path} includes {name}"
    ours = [name for name in read_by_compiler(path) if not name.startswith("/usr")]
    assert all(name.startswith("server/redlock/") for name in ours), ours


@pytest.mark.parametrize("path", [name for name in files("server") if name not in ("server/daemon/worker.c", "server/daemon/main.c", "server/daemon/reload.c", "server/scripts/scripts.h")])
def test_the_server_knows_no_http(path):
    assert not reads(path, "microhttpd")
    assert not [name for name in read_by_compiler(path) if name.startswith("api/")]
    if not os.path.basename(path).startswith("options"):
        assert not reads(path, "jansson"), "only the configuration file is JSON here"


@pytest.mark.parametrize("path", files("api"))
def test_the_http_side_knows_no_redis(path):
    assert not reads(path, "hiredis", "uv.h", "server/redlock/", "master_internal", "lease_internal")
    from_server = {os.path.basename(name) for name in read_by_compiler(path) if name.startswith("server/")}
    assert from_server <= SERVER_HEADERS_FOR_API, from_server - SERVER_HEADERS_FOR_API


def test_the_core_links_nothing():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as source:
        assert not re.search(r"target_link_libraries\(redlock_core\b", source.read())


def test_asserts_stay_on():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as source:
        flags = re.search(r'set\(CMAKE_C_FLAGS_RELEASE "([^"]*)"\)', source.read()).group(1)
    assert "NDEBUG" not in flags


@pytest.mark.parametrize("folder", ["api", "server", "server/redlock"])
def test_files_stay_short(folder):
    for path in files(folder):
        with open(os.path.join(ROOT, path), encoding="utf-8") as source:
            lines = sum(1 for _ in source)
        assert lines <= 500, f"{path} has {lines} lines"
