# SPDX-License-Identifier: MIT
"""What only the library for Java has: its package, interrupts, the end of the JVM, Flow."""

import os
import re
import shutil
import signal
import socket
import time
import zipfile

import pytest

from driver import DRIVERS
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import ROOT, SLOW, patience, starved_seconds, wait_until
from java_programs import SOURCE, Java, java, run  # noqa: F401
from relay import Relay
from test_library import state, url_of

pytestmark = pytest.mark.skipif("java" not in DRIVERS, reason="java is not in REDLOCKD_TEST_LANGUAGES")


# ---- the package ----


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    """What Maven builds from the sources as they are: not in the tree, where several processes of tests would meet."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "tests/dev", folder / "tests/dev")
    shutil.copytree(SOURCE, folder / "clients/java")
    run("sh", "-c", "mkdir -p build/package/clients && . tests/dev/clients.sh && package_client_java", cwd=folder)
    return folder


@pytest.fixture(scope="session")
def package(clone):
    return {kind: clone / "build/package/clients" / f"redlockd-{version()}{kind}.jar" for kind in ("", "-sources", "-javadoc")}


def version():
    return re.search("^  <version>(.*)</version>$", (SOURCE / "pom.xml").read_text(encoding="utf-8"), re.M)[1]


def readme_example():
    text = (SOURCE / "README.md").read_text(encoding="utf-8")
    return re.search("```java\n(.*?)```", text, re.S)[1]


def test_the_package(service, resource, tmp_path, package):
    """The example of the README, with the jar alone, against a real redlockd."""
    example = readme_example().replace('"https://a:8443", "https://b:8443"', "arguments[0]").replace('"orders/42"', "arguments[1]")
    assert "client.lock(arguments[1]" in example
    body = "class Item { }\nString KEY = \"k\";\nList<Item> items = List.of(new Item(), new Item());\n" + example.replace("save(item, ", "System.out.println(")
    lines = Java(tmp_path, package[""]).run(body, url_of(service), resource)
    assert len(lines) == 2 and int(lines[0]) == int(lines[1]) > 0 and not state(service, resource)["held"]


def test_the_jar_is_installed_as_the_readme_says(clone, package, tmp_path):
    """With the Maven of Debian 12, whose own plugin does not read the pom.xml in the jar."""
    line, = re.findall("`(mvn [^`]*CLONE/(?:[^`]*))`", (SOURCE / "README.md").read_text(encoding="utf-8"))
    run(*line.replace("CLONE", str(clone)).split(), f"-DlocalRepositoryPath={tmp_path}", cwd=tmp_path)
    made = tmp_path / "io/github/redlockd/redlockd" / version()
    assert (made / f"redlockd-{version()}.jar").read_bytes() == package[""].read_bytes()
    assert f"<version>{version()}</version>" in (made / f"redlockd-{version()}.pom").read_text(encoding="utf-8")


def test_what_is_in_the_package(package):
    sources = {path.relative_to(SOURCE / "src/main/java").as_posix() for path in SOURCE.rglob("src/main/java/**/*.java")}
    assert len(sources) > 10 and sources <= set(zipfile.ZipFile(package["-sources"]).namelist())
    jar = zipfile.ZipFile(package[""])
    assert {name.replace(".java", ".class") for name in sources} <= set(jar.namelist())
    assert b"Automatic-Module-Name: io.github.redlockd\r\n" in jar.read("META-INF/MANIFEST.MF")
    assert jar.read("META-INF/LICENSE") == (SOURCE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    pages = zipfile.ZipFile(package["-javadoc"]).namelist()
    assert any(page.endswith("/RedlockdClient.html") for page in pages) and not any("/internal/" in page for page in pages)


def lines_of_code(files):
    """Without comments, empty lines and imports."""
    code = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert max(map(len, text.splitlines())) <= 120, path
        lines = map(str.strip, re.sub(r"/\*.*?\*/", "", text, flags=re.S).splitlines())
        code += sum(1 for line in lines if line and not line.startswith(("//", "import ", "package ")))
    return code


def test_the_library_is_small():
    """The rules of a lease; and, for themselves, JSON, HTTP on kept connections, threads and PEM files. The HTTP client
    of Java has no Unix sockets, and needs threads of its own where perhaps none can be started."""
    folder = SOURCE / "src/main/java/io/github/redlockd"
    assert 300 < lines_of_code(folder.glob("*.java")) <= 1060
    assert 300 < lines_of_code(folder.glob("internal/*.java")) <= 810


# ---- interrupts and ends ----


@pytest.mark.parametrize("body", ["try (Lease lease = %s) { Thread.sleep(60_000); lease.check(); }", "%s; Thread.sleep(60_000);"], ids=["block", "lease"])
def test_sigterm_releases(service, resource, java, body):
    process = java.start(body % "RedlockdClient.builder(arguments[0]).build().lock(arguments[1])", url_of(service), resource)
    try:
        wait_until(lambda: state(service, resource)["held"], what="it is taken")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=patience(20))
        assert process.returncode == 128 + signal.SIGTERM and not state(service, resource)["held"]
    finally:
        process.kill()
        process.wait()


def test_the_end_of_the_program_while_a_lock_is_acquired(service, resource, java):
    held = service.acquire(resource, 60000)
    process = java.start("RedlockdClient.builder(arguments[0]).build().lock(arguments[1]);", url_of(service), resource)
    wait_until(lambda: state(service, resource)["waiters"] == 1, what="it waits")
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=patience(20))
    assert process.returncode == 128 + signal.SIGTERM, error
    wait_until(lambda: state(service, resource)["waiters"] == 0, what="it has left")
    service.release(held)
    assert not state(service, resource)["held"]


def test_the_end_of_the_program_while_a_grant_is_under_way(lab, service, resource, java):
    relay = lab.keep(Relay(service))
    held = service.acquire(resource, 60000)
    process = java.start("RedlockdClient.builder(arguments[0]).build().lock(arguments[1]);", relay.url, resource)
    wait_until(lambda: state(service, resource)["waiters"] == 1, what="it waits")
    relay.deaf = True
    service.release(held)
    wait_until(lambda: state(service, resource).get("fence", 0) > held["fence"], what="it is granted")
    relay.deaf = False
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=patience(20))
    assert process.returncode == 128 + signal.SIGTERM and not state(service, resource)["held"]


def test_an_interrupted_thread_asks_for_nothing_and_releases_all_the_same(fake, java):
    server = fake()
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        Lease lease = client.lock("x");
        Thread.currentThread().interrupt();
        System.out.println(lease.release() + " " + Thread.currentThread().isInterrupted());
        try {
            client.lock("y");
        } catch (InterruptedException error) {
            System.out.println("interrupted " + Thread.currentThread().isInterrupted());
        }
        """, server.address)
    assert lines == ["true true", "interrupted false"] and len(server.of("acquire")) == len(server.of("release")) == 1


def test_an_interrupt_repeats_no_forced_release_without_a_fence(fake, java):
    """It may have been carried out; with a fence it can release no other holder."""
    server = fake(release=lambda call: call.until_hung_up())
    process = java.start("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).timeout(Duration.ofSeconds(60)).build();
        Thread thread = new Thread(() -> {
            try {
                client.force("x");
            } catch (RedlockdException error) {
                System.out.println(error.code() + " " + Thread.currentThread().isInterrupted());
            }
        });
        thread.start();
        System.in.read();
        thread.interrupt();
        thread.join();
        """, server.address)
    server.call("release")
    output, error = process.communicate("\n", timeout=patience(30))
    assert output == "no-answer true\n" and len(server.of("release")) == 1, error


def test_an_interrupt_closes_the_connection_first(fake, java):
    """Only then is the same request sent again, with the same key and without a wait; what it grants is released."""
    waiting, order = [], []

    def acquire(call):
        if call.body["wait_ms"] > 0:
            waiting.append(socket.socket(fileno=os.dup(call.connection.fileno())))
            call.until_hung_up()
        else:
            order.append(waiting[0].recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))  # b"": closed
            call.lease()
    server = fake(acquire=acquire, release=lambda call: (order.append("released"), call.answer(204)))
    process = java.start("""
        Thread thread = Thread.currentThread();
        new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException error) { }
            thread.interrupt();
        }).start();
        try {
            RedlockdClient.builder(arguments[0]).build().lock("x");
        } catch (InterruptedException error) {
            System.out.println("interrupted");
        }
        """, server.address)
    server.call("acquire")
    assert process.communicate("\n", timeout=patience(20))[0] == "interrupted\n" and order == [b"", "released"]
    waiting[0].close()
    first, second = server.of("acquire")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_the_end_of_a_block_that_lost_its_lease(fake, java):
    """The exception of the block stays; without one, the loss is thrown, also where another one follows it."""
    server = fake(extend=lambda call: call.problem(409, "not-owner"))
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        Options options = new Options().ttl(Duration.ofSeconds(6));
        try (Lease lease = client.lock("x", options)) {
            lease.awaitLost(Duration.ofSeconds(Long.MAX_VALUE));
            throw new IllegalStateException("mine");
        } catch (IllegalStateException error) {
            System.out.println(error.getMessage() + " " + error.getSuppressed()[0].getClass().getSimpleName());
        }
        try (Lease lease = client.lock("x", options)) {
            lease.awaitLost(Duration.ofMinutes(1));
        } catch (RedlockdException.LockLost error) {
            System.out.println(error.code() + " " + error.getCause().getClass().getSimpleName() + " " + error.status());
        }
        try (Lease lease = client.lock("x")) {
            System.out.println(lease.release() + " " + lease.isLost());
        }
        """, server.address)
    assert lines == ["mine LockLost", "lock-lost NotOwner 0", "true true"] and len(server.of("release")) == 3


def test_on_lost(fake, java):
    """Once, also where it is asked for after the loss or another one failed; not at a release."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        Lease released = client.lock("y");
        released.onLost(() -> told.add("a release"));
        released.release();
        Lease lease = client.lock("x", new Options().ttl(Duration.ofSeconds(6)));
        lease.onLost(() -> { throw new IllegalStateException(); });
        lease.onLost(() -> told.add("lost " + lease.isLost() + " " + Thread.currentThread().isDaemon()));
        System.out.println(told.poll(60, TimeUnit.SECONDS));
        lease.onLost(() -> told.add("after"));
        System.out.println(told.poll(60, TimeUnit.SECONDS));
        lease.release();
        System.out.println(told.poll(300, TimeUnit.MILLISECONDS));
        System.exit(0);
        """, server.address)
    assert [line for line in lines if re.match("lost|after|null|a release", line)] == ["lost true true", "after", "null"]


def test_a_loss_is_told_without_a_question(fake, java):
    """By a timer, where no answer comes; and no renewal that was answered moved it."""
    ttl, starved = 5 * SLOW, starved_seconds()
    server = fake(extend=lambda call: call.lease(200, round(ttl * 1000)) if len(call.server.of("extend")) == 1 else time.sleep(2 * ttl))
    lines = java.run("""
        Duration ttl = Duration.ofMillis(Long.parseLong(arguments[1]));
        CompletableFuture<Long> lost = new CompletableFuture<>();
        long begin = System.nanoTime();
        Lease lease = RedlockdClient.builder(arguments[0]).build().lock("x", new Options().ttl(ttl));
        lease.onLost(() -> lost.complete(System.nanoTime() - begin));
        System.out.println(lost.get(60, TimeUnit.SECONDS) / 1e9);
        """, server.address, str(round(ttl * 1000)))
    assert 1.2 * ttl < float(lines[-1]) < 1.3 * ttl + 0.5 * SLOW + starved_seconds() - starved


# ---- watching ----


def test_watching_asks_only_for_what_is_wanted(fake, java):
    """And ends with its connection; what makes no request, or no watch, is told to the subscriber."""
    def watch(call):
        if "forbidden" in call.path:
            call.problem(403, "forbidden")
        elif call.headers["if-none-match"] == '"2"':
            call.until_hung_up()
        else:
            call.answer(200, {"held": False}, ETag='"2"' if call.headers["if-none-match"] == '"1"' else '"1"')
    server = fake(state=watch)
    lines = java.run("""
        class Watcher implements Flow.Subscriber<Map<String, Object>> {
            final BlockingQueue<Object> told = new LinkedBlockingQueue<>();
            Flow.Subscription subscription;
            public void onSubscribe(Flow.Subscription made) { subscription = made; }
            public void onNext(Map<String, Object> state) { told.add(state); }
            public void onError(Throwable error) { told.add(error); }
            public void onComplete() { }
        }
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        Watcher one = new Watcher(), two = new Watcher(), none = new Watcher();
        client.watch("x").subscribe(one);
        System.out.println(one.told.poll(300, TimeUnit.MILLISECONDS));
        one.subscription.request(1);
        System.out.println(one.told.poll(60, TimeUnit.SECONDS) + " " + one.told.poll(300, TimeUnit.MILLISECONDS));
        one.subscription.request(Long.MAX_VALUE);
        System.out.println(one.told.poll(60, TimeUnit.SECONDS));
        Thread.sleep(300);
        one.subscription.cancel();
        client.watch("forbidden").subscribe(two);
        two.subscription.request(1);
        System.out.println(two.told.poll(60, TimeUnit.SECONDS).getClass().getSimpleName());
        client.watch("x").subscribe(none);
        none.subscription.request(0);
        System.out.println(none.told.poll(60, TimeUnit.SECONDS).getClass().getSimpleName() + " " + one.told.size());
        """, server.address)
    assert lines == ["null", "{held=false} null", "{held=false}", "Forbidden", "IllegalArgumentException 0"]
    assert [call.headers["if-none-match"] for call in server.calls if "forbidden" not in call.path] == ['"none"', '"1"', '"2"']


def test_a_request_for_states_does_not_end_the_pause_of_a_watch(fake, java):
    server, starved = fake(), starved_seconds()  # which sends no ETag
    lines = java.run("""
        BlockingQueue<Object> told = new LinkedBlockingQueue<>();
        Flow.Subscription[] subscription = new Flow.Subscription[1];
        RedlockdClient.builder(arguments[0]).build().watch("x").subscribe(new Flow.Subscriber<Map<String, Object>>() {
            public void onSubscribe(Flow.Subscription made) { subscription[0] = made; }
            public void onNext(Map<String, Object> state) { told.add(state); }
            public void onError(Throwable error) { told.add(error); }
            public void onComplete() { }
        });
        subscription[0].request(1);
        System.out.println(told.take() != null);
        for (int turn = 0; turn < 5; turn++) {
            Thread.sleep(50);
            subscription[0].request(1);
        }
        System.out.println(told.take() != null);
    """, server.address)
    assert lines == ["true", "true"]
    first, second = (call.came for call in server.of("state")[:2])
    assert second - first >= 0.99 - (starved_seconds() - starved)


# ---- errors, arguments, members ----


def test_an_error_for_each_code(fake, java):
    codes = re.findall(r"^## `([a-z-]+)`$", (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8"), re.M)
    server = fake(release=lambda call: call.problem(409, call.body["resource"], more=1))
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        for (String code : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            try {
                client.force(code);
            } catch (RedlockdException error) {
                System.out.println(error.getClass().getSimpleName() + " " + error.code() + " " + error.status() + " " + error.problem().get("more"));
            }
        }
        """, server.address, *codes, "new-code")
    names = {code: "".join(word.title() for word in code.split("-")) for code in codes}
    assert len(codes) > 10 and lines == [f"{names[code]} {code} 409 1" for code in codes] + ["RedlockdException new-code 409 1"]


def test_arguments_that_make_no_client_or_lock(fake, java):
    urls = ["", "127.0.0.1:8080", "ftp://a", "https://", "https://u:p@a", "http://a\r\nX: y", "http://a/?b", "unix:", "http://[::1", "http://a:8x"]
    server = fake()
    lines = java.run("""
        List<Callable<?>> calls = new ArrayList<>();
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        Duration no = Duration.ofSeconds(-1);
        for (String url : Arrays.copyOfRange(arguments, 1, arguments.length)) calls.add(() -> RedlockdClient.builder("http://a", url));
        calls.addAll(List.of(() -> RedlockdClient.builder(), () -> RedlockdClient.builder("http://a").key(""),
            () -> RedlockdClient.builder("http://a").key("a\\r\\nb"), () -> RedlockdClient.builder("http://a").key("é"),
            () -> RedlockdClient.builder("http://a").timeout(Duration.ZERO), () -> client.lock("x", new Options().ttl(Duration.ZERO)),
            () -> client.lock("x", no), () -> client.lock("x", new Options().margin(no)),
            () -> client.lock("x", new Options().ttl(Duration.ofSeconds(30)).margin(Duration.ofSeconds(16))),
            () -> client.lock("x", new Options().metadata(Map.of("a", Double.NaN)))));
        calls.addAll(List.of(() -> client.lock("x", new Options().metadata(Map.of("a", new Object()))), () -> client.lock("x\\ud800")));
        for (Callable<?> call : calls) {
            try {
                System.out.println("no error: " + call.call());
            } catch (IllegalArgumentException error) {
                System.out.println("refused");
            }
        }
        RedlockdClient.builder("http://a_b:80/c/", "https://[::1]:8443", "http://a").key("k").build();
        """, server.address, *urls)
    assert lines == ["refused"] * (len(urls) + 12) and not server.calls


def test_members_that_are_handed_on(fake, java):
    server = fake(acquire=lambda call: call.lease(slot=3, new=[{}]))
    lines = java.run("""
        Map<String, Object> metadata = new HashMap<>(Map.of("list", List.of(1, 2.5, true, Map.of()), "text", "\\"é\\ud83d\\ude00\\n\\\\"));
        metadata.put("null", null);
        RedlockdClient client = RedlockdClient.builder(arguments[0]).owner("all").key("secret").build();
        Lease lease = client.lock("x", new Options().shared().slots(4).owner("mine").metadata(metadata).ttl(Duration.ofMillis(20500)));
        System.out.println(lease.slot() + " " + lease.resources() + " " + lease.fence());
        client.tryLockAll(List.of("a", "b"), new Options()).orElseThrow();
        """, server.address)
    assert lines == ["OptionalInt[3] [x] 7"]
    first, second = server.of("acquire")
    assert first.body == {"resource": "x", "ttl_ms": 20500, "wait_ms": first.body["wait_ms"], "mode": "shared", "slots": 4, "owner": "mine",
                          "metadata": {"list": [1, 2.5, True, {}], "text": "\"é\U0001f600\n\\", "null": None}}
    assert second.body == {"resources": ["a", "b"], "wait_ms": 0, "owner": "all"}
    assert first.headers["authorization"] == "Bearer secret" and "connection" not in first.headers


def test_no_secrets_in_the_log(fake, java, tmp_path):
    (tmp_path / "log").write_text("handlers=java.util.logging.ConsoleHandler\n.level=ALL\njava.util.logging.ConsoleHandler.level=ALL\n")
    server = fake(extend=lambda call: call.problem(503, "no-quorum"), release=lambda call: call.problem(410, "lease-expired"))
    command = java.compile("""
        Lease lease = RedlockdClient.builder(arguments[0]).key("keyOfMine").build().lock("x", new Options().ttl(Duration.ofSeconds(4)));
        lease.awaitLost(Duration.ofMinutes(1));
        lease.release();
        """)
    said = run(command[0], f"-Djava.util.logging.config.file={tmp_path}/log", *command[1:], server.address).stderr
    key = server.calls[0].headers["idempotency-key"]
    assert all(words in said for words in ("acquired [x], fence 7", "renewal of [x]", "lease on x lost", "release of [x]"))
    assert server.calls[0].headers["authorization"].endswith("keyOfMine") and not any(secret in said for secret in (TOKEN, key, "keyOfMine"))
