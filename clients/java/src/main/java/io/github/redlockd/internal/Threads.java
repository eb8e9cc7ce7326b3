// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.LinkedTransferQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The threads of all clients of this process, all daemons.
 *
 * <p>The first acquisition starts a few that stay: one that tells losses and does nothing else, one with the other
 * timers, one each for callbacks and for the log, and {@value #WORKERS} for requests. More are started for requests and
 * callbacks as they are needed, and end when they are idle. Where none can be started, those that stay do the work.
 * When the last client is closed, all of them end.
 */
public final class Threads {
    private static final int WORKERS = 4, LOG_MAX = 1000;
    private static volatile Threads now = new Threads();
    private final ScheduledThreadPoolExecutor clock = timers(), timers = timers();
    private final Idle idle = new Idle();
    private final ThreadPoolExecutor pool =
        new ThreadPoolExecutor(WORKERS, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, idle, Threads::daemon);
    private final ThreadPoolExecutor dispatcher = single(new LinkedBlockingQueue<>());
    /** A handler that blocks costs the messages that it has no time for. */
    private final ThreadPoolExecutor log = single(new LinkedBlockingQueue<>(LOG_MAX));

    private Threads() { }

    /** Work is handed to a thread that is idle; otherwise the pool starts one. */
    @SuppressWarnings("serial")
    private static final class Idle extends LinkedTransferQueue<Runnable> {
        @Override
        public boolean offer(Runnable work) { return tryTransfer(work); }

        void keep(Runnable work) { super.offer(work); }
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work, "redlockd");
        thread.setDaemon(true);
        return thread;
    }

    private static ScheduledThreadPoolExecutor timers() {
        ScheduledThreadPoolExecutor timers = new ScheduledThreadPoolExecutor(1, Threads::daemon);
        timers.setRemoveOnCancelPolicy(true);
        return timers;
    }

    private static ThreadPoolExecutor single(BlockingQueue<Runnable> queue) {
        return new ThreadPoolExecutor(1, 1, 0, TimeUnit.SECONDS, queue, Threads::daemon,
            new ThreadPoolExecutor.DiscardPolicy());
    }

    /** Starts the threads that stay. Throws OutOfMemoryError where that fails. */
    public static void ready() {
        for (ThreadPoolExecutor each : now.all()) {
            each.prestartAllCoreThreads();
        }
    }

    private List<ThreadPoolExecutor> all() { return List.of(clock, timers, pool, dispatcher, log); }

    /** Ends the threads once they have done their work, without the timers. Later work has new ones. */
    public static void end() {
        Threads old = now;
        now = new Threads();
        old.clock.shutdownNow();
        old.timers.shutdownNow();
        old.all().forEach(ThreadPoolExecutor::shutdown);
    }

    /** An error of any kind ends no thread. */
    static void guard(Runnable work) {
        try {
            work.run();
        } catch (Throwable error) {
            try {
                Thread thread = Thread.currentThread();
                thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
            } catch (Throwable another) {
                // there is nobody to tell
            }
        }
    }

    /** Does this on a thread of its own; returns false if there is none. */
    static boolean start(Runnable work) {
        try {
            now.pool.execute(() -> guard(work));
            return true;
        } catch (Throwable error) {
            return false;
        }
    }

    /** Does this on a thread of its own, or as soon as one of those that stay is free. */
    public static void run(Runnable work) { if (!start(work)) now.idle.keep(() -> guard(work)); }

    /** Calls a callback on a thread of its own, or after others where there is none. The caller is not delayed. */
    public static void call(Runnable callback) {
        now.dispatcher.execute(() -> {
            if (!start(callback)) guard(callback);
        });
    }

    /** Writes to the log; whatever a handler does delays nothing else. */
    public static void log(Runnable work) { now.log.execute(() -> guard(work)); }

    /** Does this after so many nanoseconds, unless it is cancelled. It must not block. */
    public static Future<?> after(long nanos, Runnable action) {
        return now.timers.schedule(action, nanos, TimeUnit.NANOSECONDS);
    }

    /** The same on the thread that tells losses. */
    public static Future<?> atLoss(long nanos, Runnable action) {
        return now.clock.schedule(action, nanos, TimeUnit.NANOSECONDS);
    }
}
