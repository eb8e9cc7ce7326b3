// SPDX-License-Identifier: MIT
package io.github.redlockd.shedlock;

import io.github.redlockd.Lease;
import io.github.redlockd.RedlockdClient;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * For tests/adapters/test_shedlock.py: uses one provider as the lines of the standard input say, and answers each with a
 * line: ok, empty or error. Arguments: the servers. Times are milliseconds.
 */
final class LockDriver {
    private static final Map<String, SimpleLock> LOCKS = new HashMap<>();
    private static final Map<String, Lease> LEASES = new HashMap<>();
    private final RedlockdLockProvider provider;
    private final CountDownLatch goOn = new CountDownLatch(1);

    private LockDriver(RedlockdLockProvider provider) { this.provider = provider; }

    public static void main(String[] servers) throws IOException {
        RedlockdClient client = RedlockdClient.builder(servers).timeout(Duration.ofSeconds(20)).build();
        LockDriver driver = new LockDriver(new RedlockdLockProvider(client, "jobs/", Duration.ofSeconds(10)));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = driver.answer(line.split(" "));
            } catch (RuntimeException error) {
                Throwable cause = error.getCause();
                answer = "error " + error.getClass().getSimpleName() + " "
                    + (cause == null ? "-" : cause.getClass().getSimpleName()) + " " + error.getMessage();
            }
            System.out.println(answer.replace('\n', ' '));
        }
    }

    private String answer(String... words) {
        String name = words[1];
        switch (words[0]) {
            case "lock":
                return keep(name, provider.lock(new LockConfiguration(ClockProvider.now(), name, time(words[2]),
                    time(words[3]))));
            case "extend":
                return keep(name, LOCKS.get(name).extend(time(words[2]), time(words[3])));
            case "unlock":
                LOCKS.get(name).unlock();
                return "ok";
            case "check":
                RedlockdLockProvider.lease().check();
                return "ok " + RedlockdLockProvider.lease().fence();
            case "lost":
                return LEASES.get(name).isLost() ? "ok" : "empty";
            case "release":
                return LEASES.get(name).release() ? "ok" : "empty";
            case "block-timers": // of the JDK
                CountDownLatch blocked = new CountDownLatch(1);
                CompletableFuture<Void> timer = new CompletableFuture<>();
                timer.thenRun(() -> {
                    blocked.countDown();
                    await(goOn);
                });
                timer.completeOnTimeout(null, 1, TimeUnit.MILLISECONDS);
                await(blocked);
                return "ok";
            case "run-timers":
                goOn.countDown();
                return "ok";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Duration time(String milliseconds) { return Duration.ofMillis(Long.parseLong(milliseconds)); }

    private static String keep(String name, Optional<SimpleLock> lock) {
        lock.ifPresent(held -> {
            LOCKS.put(name, held);
            LEASES.computeIfAbsent(name, key -> RedlockdLockProvider.lease());
        });
        return lock.isPresent() ? "ok" : "empty";
    }
}
