package io.github.redlockd.internal;

import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The threads of all clients of this process: daemons, which end when they have had nothing to do for a while.
 *
 * <p>One thread has the timers, and never blocks. The others carry out requests, one each: their number has no limit,
 * since a server that hangs must not delay other requests.
 */
public final class Threads {
    public static final Executor POOL = Executors.newCachedThreadPool(Threads::daemon);
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

    /** Does this after so many nanoseconds, on the thread of the timers, unless it is cancelled. */
    public static Future<?> after(long nanos, Runnable action) {
        return TIMERS.schedule(action, nanos, TimeUnit.NANOSECONDS);
    }
}
