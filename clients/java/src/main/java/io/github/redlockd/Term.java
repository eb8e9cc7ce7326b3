// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.RedlockdException.LockLost;
import io.github.redlockd.internal.Threads;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.function.Supplier;

/**
 * Until when a lease may be relied on, by the clock at each question. Once that is over, it stays over. Safe for
 * threads. Times are nanoseconds.
 */
final class Term {
    static final long SECOND = 1_000_000_000, MILLISECOND = 1_000_000;
    static final long LEAST = SECOND / 2; // between two requests that ask for the same
    private static final Duration LONGEST = Duration.ofDays(10000);
    /** Completed with the reason once it is over. Nothing that waits for it may be late: ask lost() instead. */
    final CompletableFuture<LockLost> over = new CompletableFuture<>();
    volatile long margin;
    private volatile long stop;
    private volatile Supplier<LockLost> late = () -> new LockLost("the lease was not renewed in time", "late", null);
    private volatile Future<?> look = CompletableFuture.completedFuture(null);

    Term(long end, long margin) {
        this.margin = margin;
        stop = end - margin;
    }

    /** Says what the loss is if no renewal comes in time. */
    void explainBy(Supplier<LockLost> why) { late = why; }

    /** From here on the clock tells the loss to those who wait for it. */
    void tell() { if (lost() == null) look = Threads.atLoss(remaining(), this::tell); }

    /** Of a clock that nobody sets. */
    static long clock() { return System.nanoTime(); }

    /** Nanoseconds; a number of any size can be added to the clock. */
    static long millis(long number) { return Math.min(number, LONGEST.toMillis()) * MILLISECOND; }

    /** For ever is ten thousand days: such a time can be added to the clock. */
    static long nanos(Duration time) { return (time.compareTo(LONGEST) > 0 ? LONGEST : time).toNanos(); }

    long remaining() { return over.isDone() ? 0 : Math.max(0, stop - clock()); }

    /** Why it is over, or null. Looks at the clock itself: whoever renews may be late or stopped. */
    LockLost lost() {
        if (remaining() > 0) return null;
        if (!over.isDone()) lose(late.get());
        return over.join();
    }

    /** Never to an earlier end, and not if it is over. */
    synchronized void extend(long end) { if (lost() == null && end - margin - stop > 0) stop = end - margin; }

    void lose(LockLost why) {
        over.complete(why);
        look.cancel(false);
    }
}
