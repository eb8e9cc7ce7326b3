package io.github.redlockd;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The threads of all clients of this process, and the clock by which all leases are counted.
 *
 * <p>All are daemons, and end when they have had nothing to do for ten seconds. One thread has the timers, and never
 * blocks. The others carry out requests, one each: their number has no limit, since a server that hangs must not delay
 * other requests.
 */
final class Threads {
    static final long SECOND = TimeUnit.SECONDS.toNanos(1);
    static final ThreadPoolExecutor POOL =
        new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), Threads::daemon);
    private static final Duration LONGEST = Duration.ofDays(10000);
    private static final ScheduledThreadPoolExecutor TIMERS = new ScheduledThreadPoolExecutor(1, Threads::daemon);

    static {
        TIMERS.setKeepAliveTime(10, TimeUnit.SECONDS);
        TIMERS.allowCoreThreadTimeOut(true);
        TIMERS.setRemoveOnCancelPolicy(true);
    }

    private Threads() { }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work, "redlockd");
        thread.setDaemon(true);
        return thread;
    }

    /** Nanoseconds of a clock that nobody sets. */
    static long clock() { return System.nanoTime(); }

    /** For ever is ten thousand days: such a time can be added to the clock. */
    static long nanos(Duration time) { return (time.compareTo(LONGEST) > 0 ? LONGEST : time).toNanos(); }

    static Future<?> after(long nanos, Runnable action) { return TIMERS.schedule(action, nanos, TimeUnit.NANOSECONDS); }
}
