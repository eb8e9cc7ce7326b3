// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Threads;
import java.security.SecureRandom;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;

/**
 * One acquisition: all of its requests have one Idempotency-Key, so that each finds the lease whose answer was lost. It
 * runs in the thread of its caller. Times are nanoseconds.
 */
final class Acquisition {
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final long WAIT_MAX = 60 * Term.SECOND; // of one request: the default of --max-wait-ms
    private static final Set<Acquisition> RUNNING = ConcurrentHashMap.newKeySet();
    private final Servers servers;
    private final Wanted wanted;
    private final long until;
    private String key = newKey();
    private long begun = Term.clock(); // before the first request with this key
    private boolean unknown; // there may be a lease of which nobody knows
    private int failures; // in a row
    private int silent; // answers in a row that did not come
    private boolean told; // the warning of that
    private Thread thread; // guarded by this, as the next one; null: it has ended
    private boolean ended; // by end()

    Acquisition(Servers servers, Wanted wanted) {
        this.servers = servers;
        this.wanted = wanted;
        until = Term.clock() + wanted.wait;
    }

    private static String newKey() { return String.format("%016x%016x", RANDOM.nextLong(), RANDOM.nextLong()); }

    /** Interrupts those of these clients that run, and waits until they have left nothing, for four seconds at most. */
    static void endAll(Predicate<Servers> which) {
        RUNNING.stream().filter(each -> which.test(each.servers)).forEach(Acquisition::end);
        long until = Term.clock() + 4 * Term.SECOND;
        while (RUNNING.stream().anyMatch(each -> which.test(each.servers)) && Term.clock() < until) {
            LockSupport.parkNanos(10 * Term.MILLISECOND);
        }
    }

    private synchronized void end() {
        if (thread == null) return;
        ended = true;
        thread.interrupt();
    }

    /** Returns the lease, or throws why there is none. After an interrupt, nothing is left at the servers. */
    Lease run() throws InterruptedException {
        if (Thread.interrupted()) throw new InterruptedException();
        Threads.ready();
        begin();
        try {
            servers.checkOpen();
            return acquire();
        } catch (InterruptedException error) {
            servers.checkOpen();
            throw error;
        } finally {
            if (unknown) takeBack();
            leave();
        }
    }

    private synchronized void begin() {
        thread = Thread.currentThread();
        RUNNING.add(this);
    }

    /** An interrupt by end() is over with it. */
    private synchronized void leave() {
        thread = null;
        RUNNING.remove(this);
        if (ended) Thread.interrupted();
    }

    private Lease acquire() throws InterruptedException {
        while (true) {
            long sent = Term.clock(); // before the request: the lease lasts for so long from here, or longer
            long wait = Math.min(Math.max(until - sent, 0), WAIT_MAX);
            boolean known = !unknown;
            unknown = true;
            Answer answer = servers.ask(wanted.post(key, wait, wait + servers.timeout, begun));
            boolean early = Term.clock() - sent < wait - Term.SECOND / 2;
            if (isGrant(answer)) {
                Lease lease = new Lease(servers, wanted, answer, sent);
                unknown = false;
                if (!lease.isLost()) return lease;
                lease.discard();
                key = newKey();
                begun = Term.clock();
                silent = -1; // the server was not
                answer = Answer.none("the lease came too late to be used", false, null);
            } else if (answer.status == 409 || known && (answer.status != 0 && answer.status != 503 || !answer.sent)) {
                unknown = false;
            }
            pause(answer, early, sent);
        }
    }

    private static boolean isGrant(Answer answer) { return answer.status == 200 || answer.status == 201; }

    /** Before the next request; throws the error if there is none. {@code early}: the wait of the last was not over. */
    private void pause(Answer answer, boolean early, long sent) throws InterruptedException {
        boolean locked = answer.status == 409;
        failures = locked ? 0 : failures + 1;
        long left = until - Term.clock(), pause = servers.pause(answer, failures);
        // after the wait: each server once, and once more where the answer was lost
        int tries = servers.count() + (answer.status == 0 && answer.sent ? 1 : 0);
        if (!locked && !answer.isUndecided() || left <= 0 && (locked || failures >= tries)) {
            throw wanted.errorOf(answer);
        }
        warn(answer);
        boolean kept = answer.number("place_kept_ms") > 0;
        // not for as long as a server rests that keeps a place: the place would be gone
        if (kept) pause = Math.min(pause, RANDOM.nextInt((int) Term.SECOND));
        if (locked && early && !kept)
            pause = Math.min(answer.retryAfter(), Term.SECOND) + RANDOM.nextInt((int) Term.SECOND);
        long least = locked ? sent + Term.LEAST - Term.clock() : 0;
        TimeUnit.NANOSECONDS.sleep(Math.max(least, Math.min(pause, left)));
    }

    /** Once, after the first round in which no server answered. */
    private void warn(Answer answer) {
        silent = answer.status == 0 ? silent + 1 : 0;
        if (silent < servers.count() || told || until - Term.clock() <= 0) return;
        told = true;
        String names = String.join(", ", wanted.resources).replaceAll("\\p{C}", "?");
        long wait = wanted.wait / Term.MILLISECOND;
        String why = wanted.errorOf(answer).getMessage();
        Lease.logLater("{1}", wanted.resources, why + "; waiting up to " + wait + " ms for the lock on " + names);
    }

    /** Nobody wants the lock any more: finds and releases the lease that may have been granted. */
    private void takeBack() {
        long limit = Math.min(servers.timeout, Term.SECOND);
        Answer answer = servers.askEach(wanted.post(key, 0, limit, begun));
        if (isGrant(answer)) new Lease(servers, wanted, answer, Term.clock()).discard();
    }
}
