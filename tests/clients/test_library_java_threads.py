# SPDX-License-Identifier: MIT
"""Losses and renewals of the library for Java where no thread can be started, and where callbacks and handlers of the
log block or fail."""

import os
import re
import resource as limits

import pytest

from driver import DRIVERS
from fake_redlockd import fake  # noqa: F401
from harness import SLOW, patience, starved_seconds
from java_programs import java  # noqa: F401

pytestmark = pytest.mark.skipif("java" not in DRIVERS, reason="java is not in REDLOCKD_TEST_LANGUAGES")


HANDLER = """
    java.util.logging.Logger logger = java.util.logging.Logger.getLogger("io.github.redlockd");
    logger.setUseParentHandlers(false);
    logger.setLevel(java.util.logging.Level.ALL);
    logger.addHandler(new java.util.logging.Handler() {
        public void publish(java.util.logging.LogRecord record) { %s }
        public void flush() { }
        public void close() { }
    });
"""
BLOCKS = """
    if (record.getMessage().startsWith("renewal")) java.util.concurrent.locks.LockSupport.park();
    if (record.getMessage().startsWith("renewal")) publish(record);
"""
THROWS = "throw new StackOverflowError();"


def refuse(call):
    call.problem(503, "no-quorum")


def forbid_threads(process):
    """No room is left for the stack of a thread, but for what else a program needs."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        size = int(re.search(r"VmSize:\s+(\d+) kB", file.read())[1]) << 10
    limits.prlimit(process.pid, limits.RLIMIT_AS, (size + (64 << 20), size + (64 << 20)))


def test_losses_are_told_where_no_thread_can_be_started(fake, java):
    """Each by its callback; renewals go on as well, as far as there are threads for them."""
    server = fake(extend=lambda call: call.lease() if call.name == "kept" else refuse(call))
    process = java.start("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        Options options = new Options().ttl(Duration.ofSeconds(8));
        CountDownLatch told = new CountDownLatch(20);
        Lease kept = client.lock("kept", options);
        for (int number = 0; number < 20; number++) {
            client.lock("x/" + number, options).onLost(told::countDown);
        }
        System.out.println("held");
        System.in.read();
        try {
            new Thread(() -> { }).start();
        } catch (OutOfMemoryError error) {
            System.out.println("no thread");
        }
        System.out.println(told.await(60, TimeUnit.SECONDS) + " " + kept.awaitLost(Duration.ofSeconds(4)));
        """, server.address, options=["-Xss256m", "-XX:+UseSerialGC"])
    try:
        assert process.stdout.readline() == "held\n"
        forbid_threads(process)
        said, error = process.communicate("\n", timeout=patience(90))
        said = [line for line in said.splitlines() if not line.startswith("[")]  # but for what the JVM says about it
        assert said == ["no thread", "true false"], error
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("handler", [BLOCKS, THROWS], ids=["blocks", "throws"])
def test_a_handler_of_the_log_delays_neither_losses_nor_renewals(fake, java, handler):
    """One lease is lost, the other one's renewals fail now and then; each failure is a line of the log."""
    server = fake(extend=lambda call: call.lease() if call.name == "kept" and len(call.server.calls) % 2 else refuse(call))
    lines = java.run(HANDLER % handler + """
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        CountDownLatch told = new CountDownLatch(1);
        client.lock("lost", new Options().ttl(Duration.ofSeconds(5))).onLost(told::countDown);
        Lease kept = client.lock("kept", new Options().ttl(Duration.ofSeconds(6)));
        System.out.println(told.await(60, TimeUnit.SECONDS) + " " + kept.awaitLost(Duration.ofSeconds(4)));
        Runtime.getRuntime().halt(0);
        """, server.address)
    assert lines == ["true false"] and len(server.of("extend")) > 3


def test_a_callback_delays_no_other_one(fake, java):
    """Some block for ever, others end by an error."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        CountDownLatch told = new CountDownLatch(10), never = new CountDownLatch(1);
        for (int number = 0; number < 10; number++) {
            Lease lease = client.lock("x/" + number, new Options().ttl(Duration.ofSeconds(1)));
            lease.onLost(() -> { throw new StackOverflowError(); });
            lease.onLost(() -> {
                try {
                    never.await();
                } catch (InterruptedException error) { }
            });
            lease.onLost(told::countDown);
        }
        System.out.println(told.await(60, TimeUnit.SECONDS));
        """, server.address)
    assert lines == ["true"]


def test_a_resolver_that_hangs_delays_neither_renewals_nor_losses(fake, java, tmp_path):
    """The JVM reads names from a file. A pipe that nobody writes takes its place, so each look-up hangs, and there is one for each
    connection. Leases of a client with another server are renewed there; those of a client without are lost on time."""
    ttl, hosts, pipe = 9 * SLOW, tmp_path / "hosts", tmp_path / "pipe"
    hosts.write_text("127.0.0.1 lock.test\n", encoding="utf-8")
    os.mkfifo(pipe)
    named, other = fake(port=True, acquire=lambda call: call.lease(headers={"Connection": "close"})), fake()
    process = java.start("""
        String named = "http://lock.test:" + arguments[0];
        RedlockdClient alone = RedlockdClient.builder(named).build(), both = RedlockdClient.builder(named, arguments[1]).build();
        Duration ttl = Duration.ofMillis(Long.parseLong(arguments[2]));
        List<Lease> kept = new ArrayList<>();
        Queue<Long> late = new ConcurrentLinkedQueue<>();
        CountDownLatch told = new CountDownLatch(20);
        for (int number = 0; number < 20; number++) {
            kept.add(both.lock("kept/" + number, new Options().ttl(ttl)));
            Lease lease = alone.lock("lost/" + number, new Options().ttl(ttl));
            long end = System.nanoTime() + lease.remaining().toNanos();
            lease.onLost(() -> {
                late.add(System.nanoTime() - end);
                told.countDown();
            });
        }
        System.out.println("held");
        System.in.read();
        System.out.println(told.await(2 * ttl.toMillis(), TimeUnit.MILLISECONDS));
        Thread.sleep(ttl.toMillis() / 2);
        System.out.println(kept.stream().anyMatch(Lease::isLost));
        System.out.println(Collections.max(late) / 1e9);
        Runtime.getRuntime().halt(0);
        """, str(named.port), other.address, str(round(1000 * ttl)), options=[f"-Djdk.net.hosts.file={hosts}", "-Dsun.net.inetaddr.ttl=0"])
    try:
        assert process.stdout.readline() == "held\n"
        starved = starved_seconds()
        pipe.rename(hosts)
        said, error = process.communicate("\n", timeout=patience(60))
        told, lost, late = said.split()
        assert (told, lost) == ("true", "false") and float(late) < 0.2 * SLOW + starved_seconds() - starved, (said, error)
        assert not named.of("extend") and len(other.of("extend")) >= 20 * 3
    finally:
        process.kill()
        process.wait()
