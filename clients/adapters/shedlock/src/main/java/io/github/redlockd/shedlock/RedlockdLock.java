// SPDX-License-Identifier: MIT
package io.github.redlockd.shedlock;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import io.github.redlockd.Lease;
import io.github.redlockd.RedlockdException.LockLost;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * A lease until its job ends or lockAtMostFor is over, whichever comes first. Times are nanoseconds of
 * System.nanoTime(), which nobody sets.
 */
final class RedlockdLock extends AbstractSimpleLock {
    private static final System.Logger LOG = System.getLogger(RedlockdLock.class.getPackageName());
    private static final long LATE = 1_000_000_000; // of an answer
    private final Lease lease;
    private final Duration ttl; // of the lease
    private final long atMostUntil;
    private final long atLeastUntil;
    private final boolean extended;
    /** Completed at the end of this lock: true if lockAtMostFor was over. */
    private final CompletableFuture<Boolean> end = new CompletableFuture<>();

    private RedlockdLock(LockConfiguration wanted, Lease lease, Duration ttl, long begun, boolean extended) {
        super(wanted);
        this.lease = lease;
        this.ttl = ttl;
        this.extended = extended;
        atMostUntil = begun + NANOSECONDS.convert(wanted.getLockAtMostFor());
        atLeastUntil = begun + NANOSECONDS.convert(wanted.getLockAtLeastFor());
        end.completeOnTimeout(true, Math.max(atMostUntil - System.nanoTime(), 0), NANOSECONDS).thenAccept(over -> {
            if (over) startExpiry();
        });
    }

    /**
     * {@code begun}: the clock before the request for the lease. Throws if lockAtMostFor is over since then. ShedLock's
     * own cases have locks of a few milliseconds, which are handed out even so: no job has so little time.
     */
    static SimpleLock begin(LockConfiguration wanted, Lease lease, Duration ttl, long begun) {
        long passed = System.nanoTime() - begun;
        if (passed >= Math.max(NANOSECONDS.convert(wanted.getLockAtMostFor()), LATE)) {
            lease.release();
            throw new LockException("lock " + wanted.getName() + ": the answer of redlockd took longer than "
                + "lockAtMostFor, " + wanted.getLockAtMostFor());
        }
        Running.add(lease);
        return new RedlockdLock(wanted, lease, ttl, begun, false);
    }

    /** On a thread of its own: the release waits for an answer, and other timers must not. */
    private void startExpiry() {
        Thread thread = new Thread(this::expire, "redlockd-shedlock");
        thread.setDaemon(true);
        try {
            thread.start();
        } catch (OutOfMemoryError error) { // no thread can be started
            expire();
        }
    }

    private void expire() {
        if (lease.isLost()) return; // which the library has logged
        lease.release();
        LOG.log(Level.WARNING, "lock {0}: lockAtMostFor of {1} is over, and its job goes on: the lock is free",
            lockConfiguration.getName(), lockConfiguration.getLockAtMostFor());
    }

    /** Ends lockAtMostFor; false if it is over. It looks at the clock: the timer may be late. */
    private boolean endInTime() { return end.complete(atMostUntil - System.nanoTime() <= 0) && !end.join(); }

    @Override
    protected void doUnlock() {
        Running.remove(lease);
        if (!endInTime()) {
            lease.release(); // if the timer is late; otherwise it waits until the lock is free
            return;
        }
        try {
            lease.check();
            if (extended) release();
            else lease.close(); // which keeps the lock for the rest of lockAtLeastFor
        } catch (LockLost error) {
            lease.release();
            throw new LockException("lock " + lockConfiguration.getName() + " was lost before its job ended: another "
                + "instance may have run it at the same time: " + error.getMessage(), error);
        }
    }

    private void release() {
        if (lease.release(Duration.ofNanos(Math.max(atLeastUntil - System.nanoTime(), 0)))) return;
        throw new LockException("lock " + lockConfiguration.getName() + " was lost, or no redlockd confirms its release: "
            + "lockAtLeastFor is not certain");
    }

    @Override
    protected Optional<SimpleLock> doExtend(LockConfiguration wanted) {
        if (wanted.getLockAtLeastFor().compareTo(ttl) > 0) {
            throw new IllegalArgumentException("lock " + wanted.getName() + ": lockAtLeastFor of an extension may not "
                + "be longer than the ttl of the lease, " + ttl + ": " + wanted.getLockAtLeastFor());
        }
        long begun = System.nanoTime();
        if (endInTime() && !lease.isLost()) return Optional.of(new RedlockdLock(wanted, lease, ttl, begun, true));
        lease.release(); // nothing of it is left, also if the timer is late
        return Optional.empty();
    }
}
