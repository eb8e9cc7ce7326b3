package io.github.redlockd;

import io.github.redlockd.RedlockdException.LockLost;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * Until when a lease may be relied on, by the clock at each question. Once that is over, it stays over. Safe for
 * threads. Times are nanoseconds.
 */
final class Term {
    static final long SECOND = 1_000_000_000, MILLISECOND = 1_000_000;
    private static final Duration LONGEST = Duration.ofDays(10000);
    /** Completed with the reason once it is over. Nothing that waits for it may be late: ask lost() instead. */
    final CompletableFuture<LockLost> over = new CompletableFuture<>();
    private final long margin;
    private volatile long stop;

    Term(long end, long margin) {
        this.margin = margin;
        stop = end - margin;
    }

    /** Of a clock that nobody sets. */
    static long clock() { return System.nanoTime(); }

    /** For ever is ten thousand days: such a time can be added to the clock. */
    static long nanos(Duration time) { return (time.compareTo(LONGEST) > 0 ? LONGEST : time).toNanos(); }

    long remaining() { return over.isDone() ? 0 : Math.max(0, stop - clock()); }

    /** Why it is over, or null. Looks at the clock itself: whoever renews may be late or stopped. */
    LockLost lost() {
        if (remaining() > 0) return null;
        if (!over.isDone()) lose(new LockLost("the lease could not be renewed in time", null));
        return over.join();
    }

    /** Never to an earlier end, and not if it is over. */
    synchronized void extend(long end) { if (lost() == null && end - margin - stop > 0) stop = end - margin; }

    void lose(LockLost why) { over.complete(why); }
}
