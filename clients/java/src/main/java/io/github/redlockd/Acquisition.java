package io.github.redlockd;

import java.security.SecureRandom;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * One acquisition: all of its requests have one Idempotency-Key, so that each finds the lease whose answer was lost. It
 * runs in the thread of its caller. Times are nanoseconds.
 */
final class Acquisition {
    private static final System.Logger LOG = System.getLogger(Acquisition.class.getPackageName());
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final long WAIT_MAX = 60 * Threads.SECOND; // of one request: the default of --max-wait-ms
    private static final Map<Acquisition, Thread> RUNNING = new ConcurrentHashMap<>();
    private final Servers servers;
    private final Wanted wanted;
    private final long until;
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private String key = newKey();
    private boolean unknown; // there may be a lease of which nobody knows

    static {
        try {
            Runtime.getRuntime().addShutdownHook(new Thread(Acquisition::endAll, "redlockd-exit"));
        } catch (IllegalStateException error) {
            LOG.log(System.Logger.Level.DEBUG, "the program ends: leases are not released");
        }
    }

    Acquisition(Servers servers, Wanted wanted) {
        this.servers = servers;
        this.wanted = wanted;
        until = Threads.clock() + wanted.wait;
    }

    private static String newKey() { return String.format("%016x%016x", RANDOM.nextLong(), RANDOM.nextLong()); }

    /** Returns the lease, or throws why there is none. After an interrupt, nothing is left at the servers. */
    Lease run() throws InterruptedException {
        if (Thread.interrupted()) throw new InterruptedException();
        RUNNING.put(this, Thread.currentThread());
        try {
            return acquire();
        } catch (Throwable error) {
            if (unknown) takeBack();
            throw error;
        } finally {
            RUNNING.remove(this);
            ended.complete(null);
        }
    }

    /** At the end of the program: interrupts those that run, waits until they have left nothing, and releases the leases. */
    private static void endAll() {
        Map<Acquisition, Thread> running = Map.copyOf(RUNNING);
        running.values().forEach(Thread::interrupt);
        running.keySet().forEach(each -> each.ended.completeOnTimeout(null, 4, TimeUnit.SECONDS).join());
        Lease.releaseAll();
    }

    private Lease acquire() throws InterruptedException {
        for (int failures = 0;;) {
            long sent = Threads.clock(); // before the request: the lease lasts for so long from here, or longer
            long wait = Math.min(Math.max(until - sent, 0), WAIT_MAX);
            Exchange exchange = servers.ask(wanted.post(key, wait, wait + servers.timeout));
            boolean known = !unknown;
            unknown = true;
            Answer answer = exchange.await();
            if (answer.isGrant()) {
                Lease lease = granted(answer, sent);
                if (lease != null) return lease;
            } else if (answer.status == 409 || known && (answer.status != 0 && answer.status != 503 || !answer.sent)) {
                unknown = false;
            }
            failures = answer.status == 409 ? 0 : failures + 1;
            pause(answer, failures, Threads.clock() - sent < wait - Threads.SECOND / 2);
        }
    }

    /** False: it is not the answer of redlockd. */
    private static boolean isLease(Answer answer) {
        boolean whole = answer.text("token", "").matches("[0-9a-f]{40}") && answer.number("fence") >= 0;
        return answer.isGrant() && whole && answer.number("validity_ms") >= 0;
    }

    /** The lease, if it can still be used. */
    private Lease granted(Answer answer, long sent) {
        if (!isLease(answer)) return null;
        long begin = sent + Math.max(answer.time("waited_ms"), 0) / 100 * 99; // the clocks may differ by a hundredth
        Lease lease = new Lease(servers, wanted, answer, begin);
        unknown = false;
        if (lease.isLost()) { // it came too late
            lease.release();
            key = newKey();
            return null;
        }
        LOG.log(System.Logger.Level.DEBUG, () -> "acquired " + wanted.resources + ", fence " + lease.fence());
        return lease.start(begin + wanted.ttl / 3);
    }

    /**
     * Before the next request; throws the error if there is none. {@code early}: before the wait of the request was
     * over.
     */
    private void pause(Answer answer, int failures, boolean early) throws InterruptedException {
        long left = until - Threads.clock(), random = ThreadLocalRandom.current().nextLong(Threads.SECOND), pause = 0;
        if (!answer.isUndecided() && !answer.isGrant() && answer.status != 409) throw answer.error();
        if (left <= 0) { // each server once, and once more where the answer was lost
            int tries = servers.count + (answer.status == 0 && answer.sent ? 1 : 0);
            if (answer.status == 409 || failures >= tries) throw answer.error();
        } else if (answer.status == 409) {
            pause = early ? Math.min(answer.retryAfter(), Threads.SECOND) + random : 0;
        } else { // another server at once; after the last one a pause
            pause = failures % servers.count != 0 ? 0 : answer.retryAfter() + random;
        }
        TimeUnit.NANOSECONDS.sleep(Math.min(pause, left));
    }

    /** Nobody wants the lock any more: finds and releases the lease that may have been granted. */
    private void takeBack() {
        long limit = Math.min(servers.timeout, Threads.SECOND);
        Answer answer = servers.ask(wanted.post(key, 0, limit)).answer.join();
        if (isLease(answer)) new Lease(servers, wanted, answer, Threads.clock()).release();
    }
}
