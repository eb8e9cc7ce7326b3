// SPDX-License-Identifier: MIT
package io.github.redlockd.shedlock;

import io.github.redlockd.Lease;
import io.github.redlockd.Options;
import io.github.redlockd.RedlockdClient;
import io.github.redlockd.RedlockdException;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * Locks of redlockd for ShedLock. Each lock is a lease with a short ttl that is renewed in the background until the job
 * ends or {@code lockAtMostFor} is over, so that the locks of an instance that crashed are free after the ttl. Safe for
 * threads. The client stays the caller's: close it after the scheduler.
 */
public final class RedlockdLockProvider implements ExtensibleLockProvider {
    private static final String PREFIX = "shedlock/";
    private static final Duration TTL = Duration.ofSeconds(30);
    /** Of a lease, also if lockAtMostFor is shorter: a short pause of a busy machine must not end it. */
    private static final Duration TTL_MIN = Duration.ofSeconds(5);
    private final RedlockdClient client;
    private final String prefix;
    private final Duration ttl;

    /**
     * Makes a provider with the prefix {@code shedlock/} and a ttl of 30 seconds.
     *
     * @param client of the cluster
     */
    public RedlockdLockProvider(RedlockdClient client) { this(client, PREFIX, TTL); }

    /**
     * Makes a provider.
     *
     * @param client of the cluster
     * @param prefix stands before the name of each lock, so that two applications do not share locks by accident
     * @param ttl how long the locks of an instance that crashed stay held: five seconds or longer
     */
    public RedlockdLockProvider(RedlockdClient client, String prefix, Duration ttl) {
        this.client = Objects.requireNonNull(client, "client");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
        this.ttl = Objects.requireNonNull(ttl, "ttl");
        if (ttl.compareTo(TTL_MIN) < 0) throw new IllegalArgumentException("ttl must be five seconds or longer: " + ttl);
    }

    /**
     * The lease of the innermost lock that this thread has taken, for its {@link Lease#check} and {@link Lease#fence}.
     *
     * @return the lease, which may be lost
     * @throws IllegalStateException if this thread holds no lock of redlockd
     */
    public static Lease lease() { return Running.lease(); }

    /**
     * Tries to take a lock, and does not wait for it.
     *
     * @return empty if somebody else holds the lock
     * @throws LockException if it is not known whether the lock is free, or if the request is wrong: the job must not run
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration wanted) {
        long begun = System.nanoTime(); // before the request: lockAtMostFor counts from here
        Duration lease = max(wanted.getLockAtLeastFor(), max(TTL_MIN, min(wanted.getLockAtMostFor(), ttl)));
        try {
            Options options = new Options().ttl(lease).atLeast(wanted.getLockAtLeastFor());
            return client.tryLock(prefix + wanted.getName(), options)
                .map(granted -> RedlockdLock.begin(wanted, granted, lease, begun));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new LockException("lock " + wanted.getName() + ": interrupted", error);
        } catch (RedlockdException | IllegalArgumentException error) {
            boolean refused = error instanceof RedlockdException.InvalidRequest && lease.compareTo(ttl) > 0;
            String limit = !refused ? "" : "lockAtLeastFor is " + wanted.getLockAtLeastFor()
                + ", and may not be longer than --max-ttl-ms of redlockd: ";
            throw new LockException("lock " + wanted.getName() + ": " + limit + error.getMessage(), error);
        }
    }

    private static Duration min(Duration one, Duration other) { return one.compareTo(other) < 0 ? one : other; }

    private static Duration max(Duration one, Duration other) { return one.compareTo(other) > 0 ? one : other; }
}
