// SPDX-License-Identifier: MIT
package io.github.redlockd.shedlock;

import io.github.redlockd.RedlockdClient;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * For tests/adapters/test_shedlock.py: uses one provider as the lines of the standard input say, and answers each with a
 * line: ok, empty or error. Arguments: the servers. Times are milliseconds.
 */
final class LockDriver {
    private static final Map<String, SimpleLock> LOCKS = new HashMap<>();
    private final RedlockdLockProvider provider;

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
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static Duration time(String milliseconds) { return Duration.ofMillis(Long.parseLong(milliseconds)); }

    private static String keep(String name, Optional<SimpleLock> lock) {
        lock.ifPresent(held -> LOCKS.put(name, held));
        return lock.isPresent() ? "ok" : "empty";
    }
}
