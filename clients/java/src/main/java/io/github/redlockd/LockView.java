// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.RedlockdException.Locked;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock of redlockd as a {@link Lock}, from {@link RedlockdClient#asLock}. It is not reentrant, and has no conditions.
 *
 * <p>Other than a lock within one process, it can be lost while it is held: {@link #lease} has the check and the fence,
 * and {@link #unlock} throws {@link RedlockdException.LockLost} if it was lost. Each call that acquires can throw a
 * {@link RedlockdException}.
 */
public final class LockView implements Lock {
    private final RedlockdClient client;
    private final String resource;
    private final Options options;
    private final Map<Thread, Lease> leases = new ConcurrentHashMap<>();

    LockView(RedlockdClient client, String resource, Options options) {
        this.client = client;
        this.resource = resource;
        this.options = options;
    }

    /** A call that acquires; false: somebody else has the lock. */
    private interface Attempt { boolean run() throws InterruptedException; }

    /** Waits for the lock as long as it takes. An interrupt loses the place in the queue, and does not end the wait. */
    @Override
    public void lock() {
        uninterruptibly(() -> {
            lockInterruptibly();
            return true;
        });
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        if (isMine()) throw new IllegalStateException("this thread has the lock already; it is not reentrant");
        acquire(ChronoUnit.FOREVER.getDuration());
    }

    @Override
    public boolean tryLock() { return uninterruptibly(() -> tryLock(0, TimeUnit.SECONDS)); }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        if (isMine()) return false;
        try {
            acquire(Duration.ofNanos(Math.max(0, unit.toNanos(time))));
            return true;
        } catch (Locked error) {
            return false;
        }
    }

    private void acquire(Duration wait) throws InterruptedException {
        leases.put(Thread.currentThread(), client.lock(resource, options.waitUpTo(wait)));
    }

    private boolean isMine() { return leases.containsKey(Thread.currentThread()); }

    private static boolean uninterruptibly(Attempt attempt) {
        boolean interrupted = Thread.interrupted();
        try {
            while (true) {
                try {
                    return attempt.run();
                } catch (InterruptedException error) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) Thread.currentThread().interrupt();
        }
    }

    /**
     * Releases the lock. Throws {@link RedlockdException.LockLost} if it was lost, and
     * {@link IllegalMonitorStateException} if this thread did not acquire it.
     */
    @Override
    public void unlock() {
        Lease lease = lease();
        leases.remove(Thread.currentThread());
        lease.close();
    }

    /**
     * The lease of this thread. Throws {@link IllegalMonitorStateException} if this thread did not acquire the lock.
     *
     * @return the lease, with its check and its fence
     */
    public Lease lease() {
        Lease lease = leases.get(Thread.currentThread());
        if (lease == null) throw new IllegalMonitorStateException("this thread did not acquire " + resource);
        return lease;
    }

    /** Throws {@link UnsupportedOperationException}. */
    @Override
    public Condition newCondition() { throw new UnsupportedOperationException("a lock of redlockd has no conditions"); }

    @Override
    public String toString() { return "LockView[" + resource + ", " + client + "]"; }
}
