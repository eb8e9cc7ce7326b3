# SPDX-License-Identifier: MIT
"""Which folder may use which, by the includes of the sources and by the symbols of the object files. Every folder has
one public header; others include nothing else of it. No folders and no files depend on each other in a circle."""
import ctypes
import os
import re
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(os.environ.get("REDLOCKD", os.path.join(ROOT, "build/release/redlockd")))

# Folder: its public header, the folders it may use, libraries it may include. The core uses nothing.
LAYERS = {
    "server/base": ("base.h", "", ""),
    "server/renewal": ("renewal.h", "", ""),
    "server/redlock": ("redlock.h", "", ""),
    "server/redlock/guard": ("guard.h", "server/redlock", ""),
    "server/scripts": ("scripts.h", "server/redlock", ""),
    "server/options": ("options.h", "server/base", "jansson uriparser"),
    "server/config": ("config.h", "server/base server/options server/redlock", ""),
    "server/metrics": ("metrics.h", "server/base server/redlock server/redlock/guard", ""),
    "server/transport": ("transport.h", "server/base server/config", "hiredis uv openssl"),
    "server/masters": ("masters.h", "server/base server/config server/metrics server/redlock server/redlock/guard "
                       "server/scripts server/transport", ""),
    "server/leases": ("leases.h", "server/base server/config server/masters server/metrics server/redlock server/renewal "
                      "server/scripts server/transport", ""),
    "api/page": ("embedded.h", "", ""),
    "api/auth": ("auth.h", "server/base server/config", "jansson gnutls cjose"),
    "api/http": ("http.h", "server/base server/config server/leases server/metrics api/auth", "microhttpd jansson gnutls"),
    "api/calls": ("calls.h", "server/base server/leases server/masters server/metrics server/redlock api/auth "
                  "api/http api/page", "microhttpd jansson"),
    "cli/base": ("cli_base.h", "server/base server/options api/calls", "jansson gnutls"),
    "cli/http": ("client.h", "server/base api/calls cli/base", "curl jansson"),
    "cli/run": ("run.h", "server/base server/renewal cli/base cli/http", "jansson"),
    "server/daemon": (None, "server/base server/config server/masters server/metrics server/leases server/redlock "
                      "server/transport api/http api/calls api/auth", "uv jansson"),
    "cli": (None, "server/base server/options cli/base cli/http cli/run", "jansson curl"),
}
CLOCKS_HEAP_IO = {"time.h", "stdlib.h", "stdio.h", "unistd.h", "pthread.h", "sys/time.h", "sys/socket.h", "malloc.h"}
LIBRARIES = {"hiredis": "hiredis/", "uv": "uv.h", "openssl": "openssl/", "microhttpd": "microhttpd.h",
             "jansson": "jansson.h", "cjose": "cjose/", "gnutls": "gnutls/", "curl": "curl/", "uriparser": "uriparser/"}


def sources(*endings):
    return [f"{folder}/{name}" for folder in LAYERS for name in sorted(os.listdir(os.path.join(ROOT, folder)))
            if name.endswith(endings)]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as source:
        return source.read()


def includes(path, quote):
    return re.findall(rf"^#include\s+{quote}([^\">]+)[\">]", read(path), re.M)


@pytest.mark.parametrize("path", sources(".c", ".h"))
def test_another_folder_is_used_by_its_public_header(path):
    folder = os.path.dirname(path)
    allowed = {f"{other}/{LAYERS[other][0]}" for other in LAYERS[folder][1].split()}
    wrong = [name for name in includes(path, '"')
             if name not in allowed and not name.startswith("made/")  # by the build
             and not os.path.exists(os.path.join(ROOT, folder, name))]
    assert not wrong, f"{path} may not include {wrong}"


@pytest.mark.parametrize("path", sources(".c", ".h"))
def test_libraries_are_used_where_they_belong(path):
    allowed = LAYERS[os.path.dirname(path)][2].split()
    wrong = [name for name in includes(path, "<") for library, start in LIBRARIES.items()
             if name.startswith(start) and library not in allowed]
    assert not wrong, f"{path} may not include {wrong}"


@pytest.mark.parametrize("path", [path for path in sources(".c", ".h") if path.startswith("server/redlock/")])
def test_the_core_has_no_clock_no_heap_no_io(path):
    assert not CLOCKS_HEAP_IO & set(includes(path, "<"))


def objects():
    """Source file: (symbols it defines, symbols it needs), of both programs."""
    found = {}
    for folder, _, names in os.walk(BUILD):
        parts = folder.split(".dir", 1)
        if len(parts) != 2 or os.path.relpath(folder, BUILD).startswith("tests"):
            continue
        for name in names:
            top = os.path.basename(os.path.dirname(os.path.dirname(parts[0] + ".dir")))
            path = os.path.normpath(os.path.join(top, parts[1].strip("/").replace("__", ".."), name[:-2]))
            if name.endswith(".c.o") and os.path.dirname(path) in LAYERS and os.path.exists(os.path.join(ROOT, path)):
                listing = subprocess.run(["nm", "-g", os.path.join(folder, name)], capture_output=True, text=True,
                                         check=True).stdout
                symbols = [line.split()[-2:] for line in listing.splitlines()]
                found[path] = ({symbol for kind, symbol in symbols if kind != "U" and symbol != "main"},
                               {symbol for kind, symbol in symbols if kind == "U"})
    return found


def program(path):
    return "cli" if path.startswith("cli") else "server"


def dependencies():
    """Source file: {source file that it needs: a symbol of it}."""
    files = objects()
    assert len(files) > 80, "built? see ./dev build"
    owners = {}
    for path, (defined, _) in files.items():
        for symbol in defined:
            owners.setdefault(symbol, []).append(path)
    graph = {}
    for path, (_, needed) in files.items():
        graph[path] = {}
        for symbol in needed:
            for owner in owners.get(symbol, []):
                if owner != path and (len(owners[symbol]) == 1 or program(owner) == program(path)):
                    graph[path][owner] = symbol
    return graph


def circles(graph):
    """The sets of nodes that reach each other."""
    reach = {}
    for start in graph:
        seen, work = set(), [start]
        while work:
            for other in graph[work.pop()]:
                if other not in seen:
                    seen.add(other)
                    work.append(other)
        reach[start] = seen
    return sorted({tuple(sorted(other for other in reach[node] if node in reach[other])) for node in graph
                   if node in reach[node]})


def test_files_form_no_circle():
    graph = dependencies()
    for circle in circles(graph):
        inside = [f"{path} -> {other}: {symbol}" for path in circle for other, symbol in graph[path].items()
                  if other in circle]
        print("\n".join(inside))
    assert not circles(graph)


def test_folders_form_no_circle():
    folders = {folder: {} for folder in LAYERS}
    for path, needed in dependencies().items():
        for other, symbol in needed.items():
            if os.path.dirname(other) != os.path.dirname(path):
                folders[os.path.dirname(path)][os.path.dirname(other)] = f"{path} -> {other}: {symbol}"
    wrong = [example for folder, others in folders.items() for other, example in others.items()
             if other not in LAYERS[folder][1].split()]
    assert not wrong, "\n".join(wrong)
    assert not circles(folders)
    assert not circles({folder: dict.fromkeys(LAYERS[folder][1].split()) for folder in LAYERS})


def test_every_source_is_in_a_folder_of_the_table():
    for top in ("server", "api", "cli"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            if any(name.endswith((".c", ".h")) for name in names):
                assert os.path.relpath(folder, ROOT) in LAYERS


def test_no_two_sources_have_one_name():
    names = [name for top in ("server", "api", "cli", "tests") for _, _, names in os.walk(os.path.join(ROOT, top))
             for name in names if name.endswith((".c", ".h", ".lua"))]
    assert len(names) > 200
    assert not sorted({name for name in names if names.count(name) > 1})


def static_functions():
    """Name: the files that define a static function of this name."""
    found = {}
    for path in sources(".c", ".h"):
        text = re.sub(r"__attribute__\(\(.*?\)\)\s*", "", read(path))
        for name in re.findall(r"^static\s[^;={}()]*?\b(\w+)\(", text, re.M):
            found.setdefault(name, set()).add(path)
    return found


def test_no_two_files_define_the_same_static_function():
    found = static_functions()
    assert len(found) > 900
    assert not {name: sorted(paths) for name, paths in found.items() if len(paths) > 1}


def test_static_functions_shadow_none_of_the_c_library():
    library = ctypes.CDLL("libc.so.6")
    assert hasattr(library, "send")
    assert not {name: sorted(paths) for name, paths in static_functions().items() if hasattr(library, name)}


@pytest.mark.parametrize("folder", LAYERS)
def test_a_folder_can_be_looked_over(folder):
    found = [name for name in os.listdir(os.path.join(ROOT, folder)) if name.endswith((".c", ".h", ".lua", ".js"))]
    assert found and len(found) <= 22, f"{folder} has {len(found)} files"


@pytest.mark.parametrize("path", sources(".c", ".h"))
def test_files_stay_short(path):
    assert read(path).count("\n") <= 500
    head = re.match(r"/\*.*?\*/", read(path), re.S)
    assert head and head.group(0).count("\n") < 20, "what a file is stands at its head, in at most 20 lines"


def test_files_of_tests_stay_short():
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(ROOT, "tests")) for name in names
             if name.endswith((".c", ".h"))]
    assert len(paths) > 100
    assert not [path for path in paths if read(path).count("\n") > 500]


def test_the_core_links_nothing():
    assert not re.search(r"target_link_libraries\(redlock_core\b", read("server/CMakeLists.txt"))


def test_asserts_stay_on():
    flags = re.search(r'set\(CMAKE_C_FLAGS_RELEASE "([^"]*)"\)', read("CMakeLists.txt")).group(1)
    assert "NDEBUG" not in flags
