# SPDX-License-Identifier: MIT
"""Features of the library for Java alone: why a lock is lost or refused, asLock(), close(), and what is left then."""

import json
import re
import signal
import time

import pytest

from driver import BUILT, DRIVERS
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import SLOW, freeze, patience, wait_until
from java_programs import RENEWED, java  # noqa: F401
from test_library import state, url_of

pytestmark = pytest.mark.skipif("java" not in DRIVERS, reason="java is not in REDLOCKD_TEST_LANGUAGES")

TTL = round(4500 * SLOW)


# ---- the reason of a loss ----


def test_a_loss_has_its_reason_and_its_cause(fake, java):
    """test_library_messages.py has all reasons."""
    lines = java.run("""
        Lease lease = RedlockdClient.builder(arguments[0]).build().lock("x", new Options().ttl(Duration.ofMillis(Long.parseLong(arguments[1]))));
        lease.awaitLost(Duration.ofMinutes(1));
        try {
            lease.check();
        } catch (RedlockdException.LockLost lost) {
            System.out.println(lost.reason() + " " + (lost.getCause() == null ? "none" : lost.getCause().getClass().getSimpleName()));
            System.out.println(lost.getMessage().startsWith("lease on x lost: ") + " " + lease);
        }
        """, fake(extend=lambda call: call.problem(503, "no-quorum")).address, str(TTL))
    assert lines == ["no-quorum NoQuorum", "true Lease[x, fence 7, lost: no-quorum]"]


def test_the_reason_where_no_renewal_began(fake, java):
    """The process was stopped before the first one, which comes after a third of the ttl; the lease is over after a half."""
    server, ttl = fake(), 12 * SLOW
    process = java.start("""
        Duration ttl = Duration.ofMillis(Long.parseLong(arguments[1]));
        Lease lease = RedlockdClient.builder(arguments[0]).build().lock("x", new Options().ttl(ttl).margin(ttl.dividedBy(2)));
        System.out.println("held");
        System.in.read();
        try {
            lease.check();
        } catch (RedlockdException.LockLost lost) {
            System.out.println(lost.reason());
        }
        """, server.address, str(round(1000 * ttl)))
    assert process.stdout.readline() == "held\n"
    freeze(process)
    over = time.monotonic() + ttl / 2
    wait_until(lambda: time.monotonic() > over, ttl, "the lease is over")
    process.send_signal(signal.SIGCONT)
    output, error = process.communicate("\n", timeout=patience(30))
    assert output == "late\n" and not server.of("extend"), error


# ---- errors ----


def test_messages_have_the_options_of_the_library(service, resource, java):
    """With their unit; the problem is as the server sent it."""
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        Options options = new Options();
        for (Options each : List.of(options.ttl(Duration.ofMillis(5)), options.ttl(Duration.ZERO), options.waitUpTo(Duration.ofSeconds(-1)),
                options.ttl(Duration.ofSeconds(2)).margin(Duration.ofMillis(1001)))) {
            try {
                client.lock(arguments[1], each);
            } catch (RedlockdException.InvalidRequest error) {
                System.out.println(error.getMessage() + " " + error.problem().get("detail"));
            } catch (IllegalArgumentException error) {
                System.out.println(error.getMessage());
            }
        }
        """, url_of(service), resource)
    assert lines == ["ttl: must be from 100 to 60000 ms. ttl_ms: must be from 100 to 60000.", "ttl must be a millisecond or longer: PT0S",
                     "waitUpTo must not be negative: PT-1S", "margin must be from zero to half of ttl: PT1.001S"]


def test_the_cause_is_set(java):
    lines = java.run("""
        try {
            RedlockdClient.builder("http://127.0.0.1:1").build().lock("x", Duration.ZERO);
        } catch (RedlockdException.NoAnswer error) {
            System.out.println(error.getCause() instanceof java.net.ConnectException);
        }
        """)
    assert lines == ["true"]


def test_texts_show_no_secrets(fake, java):
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0], "http://b:8080").key("keyOfMine").build();
        Lease lease = client.lockAll(List.of("x", "y"), new Options());
        System.out.println(client);
        System.out.println(lease);
        System.out.println(client.asLock("z", new Options().slots(2)));
        System.out.println(new Options().ttl(Duration.ofSeconds(30)).owner("me"));
        """, server := fake().address)
    lines[1] = re.sub(r"\d+ ms", "N ms", lines[1])
    assert lines == [f"RedlockdClient[{server}, http://b:8080]", "Lease[x, y, fence 7, N ms left]", f"LockView[z, RedlockdClient[{server}, http://b:8080]]",
                     "Options{owner=me, ttl=PT30S, waitUpTo=PT1M}"]
    assert not [line for line in lines if TOKEN in line or "keyOfMine" in line]


# ---- asLock() ----


def test_as_lock_excludes(service, resource, java, tmp_path):
    """Threads with one view, and with views of other clients."""
    lines = java.run("""
        int[] number = {0};
        java.util.concurrent.locks.Lock one = RedlockdClient.builder(arguments[0]).build().asLock(arguments[1]);
        List<Thread> threads = new ArrayList<>();
        for (int index = 0; index < 6; index++) {
            java.util.concurrent.locks.Lock lock = index < 3 ? one : RedlockdClient.builder(arguments[0]).build().asLock(arguments[1]);
            Thread thread = new Thread(() -> {
                for (int turn = 0; turn < 5; turn++) {
                    lock.lock();
                    try {
                        int before = number[0];
                        Thread.yield();
                        number[0] = before + 1;
                    } finally {
                        lock.unlock();
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread each : threads) each.join();
        System.out.println(number[0]);
        """, url_of(service), resource)
    assert lines == ["30"] and not state(service, resource)["held"]


def test_as_lock_keeps_the_contract(service, resource, java):
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        LockView lock = client.asLock(arguments[1], new Options().owner("me"));
        java.util.concurrent.locks.Lock other = client.asLock(arguments[1]);
        List<Callable<?>> calls = List.of(() -> { lock.unlock(); return "unlocked"; }, lock::lease, lock::newCondition, lock::tryLock,
            () -> lock.lease().fence() > 0, lock::tryLock, () -> { lock.lock(); return "again"; }, other::tryLock,
            () -> other.tryLock(300, TimeUnit.MILLISECONDS), () -> { lock.unlock(); return "unlocked"; },
            () -> other.tryLock(60, TimeUnit.SECONDS), () -> lock.tryLock(-1, TimeUnit.SECONDS), () -> { other.unlock(); return "unlocked"; });
        for (Callable<?> call : calls) {
            try {
                System.out.println(call.call());
            } catch (RuntimeException error) {
                System.out.println(error.getClass().getSimpleName());
            }
        }
        """, url_of(service), resource)
    assert lines == ["IllegalMonitorStateException"] * 2 + ["UnsupportedOperationException", "true", "true", "false", "IllegalStateException", "false", "false",
                                                           "unlocked", "true", "false", "unlocked"]


def test_as_lock_and_an_interrupt(service, resource, java):
    """lock() and tryLock() go on, and the thread stays interrupted; lockInterruptibly() ends."""
    held = service.acquire(resource, 60000)
    process = java.start("""
        LockView lock = RedlockdClient.builder(arguments[0]).build().asLock(arguments[1]);
        Thread waits = new Thread(() -> {
            lock.lock();
            System.out.println("locked " + Thread.currentThread().isInterrupted());
            lock.unlock();
        });
        Thread ends = new Thread(() -> {
            try {
                lock.lockInterruptibly();
            } catch (InterruptedException error) {
                System.out.println("interrupted " + lock.tryLock());
                Thread.currentThread().interrupt();
                System.out.println(lock.tryLock() + " " + Thread.currentThread().isInterrupted());
            }
        });
        waits.start();
        ends.start();
        System.in.read();
        waits.interrupt();
        ends.interrupt();
        ends.join();
        System.out.println("both");
        System.out.flush();
        waits.join();
        """, url_of(service), resource)
    wait_until(lambda: state(service, resource)["waiters"] == 2, what="both wait")
    process.stdin.write("\n")
    process.stdin.flush()
    assert [process.stdout.readline() for _ in range(3)] == ["interrupted false\n", "false true\n", "both\n"]
    wait_until(lambda: state(service, resource)["waiters"] == 1, what="one waits again")
    service.release(held)
    output, error = process.communicate(timeout=patience(30))
    assert output == "locked true\n", error


def test_unlock_tells_the_loss(fake, java):
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    lines = java.run("""
        LockView lock = RedlockdClient.builder(arguments[0]).build().asLock("x", new Options().ttl(Duration.ofSeconds(6)));
        lock.lock();
        lock.lease().awaitLost(Duration.ofMinutes(1));
        try {
            lock.unlock();
        } catch (RedlockdException.LockLost lost) {
            System.out.println(lost.reason());
        }
        lock.lock();
        System.out.println(lock.lease().isLost());
        """, server.address)
    assert lines == ["lease-expired", "false"]


# ---- close() ----


def test_close_releases_and_ends_what_waits(service, resource, java):
    """Of this client alone. Later calls throw, and another client goes on, also a new one after all were closed."""
    held = service.acquire(resource, 60000)
    process = java.start("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build(), other = RedlockdClient.builder(arguments[0]).build();
        Lease mine = client.lock(arguments[1] + "/b"), others = other.lock(arguments[1] + "/c");
        Thread waits = new Thread(() -> {
            try {
                client.lock(arguments[1]);
            } catch (IllegalStateException | InterruptedException error) {
                System.out.println(error.getMessage() + " " + Thread.currentThread().isInterrupted());
            }
        });
        waits.start();
        System.in.read();
        client.close();
        waits.join();
        client.close();
        System.out.println(mine.isLost() + " " + others.isLost());
        for (Callable<?> call : List.<Callable<?>>of(() -> client.lock("x"), () -> client.asLock("x").tryLock(), () -> { client.force("x"); return 0; })) {
            try {
                call.call();
            } catch (IllegalStateException error) {
                System.out.println(error.getMessage());
            }
        }
        other.close();
        System.out.println(others.isLost());
        try (RedlockdClient next = RedlockdClient.builder(arguments[0]).build(); Lease lease = next.lock(arguments[1] + "/b", new Options().ttl(Duration.ofSeconds(6)))) {""" + RENEWED + """
            System.out.println(lease.isLost());
        }
        """, url_of(service), resource)
    wait_until(lambda: state(service, resource)["waiters"] == 1, what="it waits")
    output, error = process.communicate("\n", timeout=patience(30))
    assert output.splitlines() == ["the client is closed false", "true false", *["the client is closed"] * 3, "true", "false"], error
    assert not state(service, resource + "/b")["held"] and not state(service, resource + "/c")["held"]
    wait_until(lambda: state(service, resource)["waiters"] == 0, what="it has left")
    service.release(held)


def test_close_ends_a_watch_and_the_connections(fake, java):
    server = fake(state=lambda call: call.until_hung_up())
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        client.watch("x").subscribe(new Flow.Subscriber<Map<String, Object>>() {
            public void onSubscribe(Flow.Subscription made) { made.request(1); }
            public void onNext(Map<String, Object> state) { System.out.println(state); }
            public void onError(Throwable error) { System.out.println(error); }
            public void onComplete() { }
        });
        client.lock("x");
        client.close();
        while (Thread.getAllStackTraces().keySet().stream().anyMatch(thread -> thread.getName().startsWith("redlockd"))) Thread.sleep(1);
        System.out.println("no thread is left");
        """, server.address)
    assert lines == ["no thread is left"] and len(server.of("release")) == 1


RELOADS = """
    class Work implements Runnable {
        public void run() {
            try {
                RedlockdClient client = RedlockdClient.builder(System.getProperty("url")).build();
                Lease lease = client.lock("x", new Options().ttl(Duration.ofSeconds(4)));
                lease.onLost(() -> { });""" + RENEWED + """
                if (Boolean.getBoolean("close")) client.close();
                else lease.release();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }
    System.setProperty("url", arguments[0]);
    System.setProperty("close", arguments[1]);
    List<java.lang.ref.WeakReference<ClassLoader>> loaders = new ArrayList<>();
    for (int turn = 0; turn < 5; turn++) {
        loaders.add(new Object() {
            java.lang.ref.WeakReference<ClassLoader> deploy() throws Exception {
                java.net.URL[] places = {Path.of(arguments[2]).toUri().toURL(), Path.of(arguments[3]).toUri().toURL()};
                try (java.net.URLClassLoader loader = new java.net.URLClassLoader(places, ClassLoader.getPlatformClassLoader())) {
                    java.lang.reflect.Constructor<?> made = loader.loadClass("Program$1Work").getDeclaredConstructor();
                    made.setAccessible(true);
                    Thread thread = new Thread((Runnable) made.newInstance());
                    thread.setContextClassLoader(loader);
                    thread.start();
                    thread.join();
                    return new java.lang.ref.WeakReference<>(loader);
                }
            }
        }.deploy());
    }
    int turns = Integer.parseInt(arguments[4]);
    do {
        System.gc();
        Thread.sleep(20);
        loaders.removeIf(each -> each.get() == null);
    } while (!loaders.isEmpty() && --turns > 0);
    System.out.println(loaders.size());
    """


@pytest.mark.parametrize("closes, left", [(True, 0), (False, 5)])
def test_a_class_loader_can_go_after_close(fake, java, tmp_path, closes, left):
    """As a server does that deploys a program again. Without close(), the hook and the threads keep it."""
    server = fake()
    lines = java.run(RELOADS, server.address, json.dumps(closes), f"{tmp_path}/", f"{BUILT}/java/", "3000" if closes else "20")
    assert lines == [str(left)] and len(server.of("extend")) >= 5 and len(server.of("release")) >= 5
