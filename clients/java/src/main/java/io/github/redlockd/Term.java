package io.github.redlockd;

import io.github.redlockd.RedlockdException.LockLost;
import java.util.concurrent.CompletableFuture;

/**
 * Until when a lease may be relied on, by the clock at each question. Once that is over, it stays over. Safe for
 * threads.
 */
final class Term {
    /** Completed with the reason once it is over. Nothing that waits for it may be late: ask lost() instead. */
    final CompletableFuture<LockLost> over = new CompletableFuture<>();
    private final long margin;
    private volatile long stop;

    Term(long end, long margin) {
        this.margin = margin;
        stop = end - margin;
    }

    /** Nanoseconds. */
    long remaining() { return over.isDone() ? 0 : Math.max(0, stop - Threads.clock()); }

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
