// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.RedlockdException.LockLost;
import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Threads;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;

/**
 * A lease that is renewed in the background until {@link #close} or {@link #release()}, or until it is lost. Leases
 * that are held when the program ends are released. Safe for threads.
 */
public final class Lease implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Lease.class.getPackageName());
    private static final String RELEASED = "released";
    private static final Set<Lease> HELD = ConcurrentHashMap.newKeySet(); // those that are not released
    private final Servers servers;
    private final Wanted wanted;
    private final Answer grant;
    private final Term term;
    private final Renewal renewal;
    private final long keptUntil; // after a release: nobody else gets the lock before

    /** From here on it is renewed. {@code sent}: the clock, read before the request was sent. */
    Lease(Servers servers, Wanted wanted, Answer grant, long sent) {
        this.servers = servers;
        this.wanted = wanted;
        this.grant = grant;
        long waited = Term.millis(Math.max(grant.number("waited_ms"), 0));
        long begin = sent + Math.min(waited / 100 * 99, Term.clock() - sent); // the clocks may differ by a hundredth
        long ttl = Term.millis(grant.number("ttl_ms"));
        keptUntil = Term.clock() + wanted.atLeast;
        term = new Term(begin + Term.millis(grant.number("validity_ms")), wanted.margin(ttl));
        renewal = new Renewal(wanted, grant.text("token", ""), ttl, begin + ttl / 3, term, this::tellWanted);
        term.over.thenAccept(why -> {
            servers.renewals.remove(renewal);
            if (!why.reason().equals(RELEASED)) logLater("{1}", resources(), why.getMessage());
        });
        term.explainBy(renewal::late);
        term.tell();
        servers.renewals.add(renewal);
        HELD.add(this);
        log(Level.DEBUG, "acquired {0}, fence {1}", resources(), String.valueOf(fence()));
    }

    /** An error of a handler is no reason to lose a lease. */
    private static void log(Level level, String format, List<String> resources, String detail) {
        try {
            LOG.log(level, format, resources, detail);
        } catch (Throwable error) {
            // there is nobody to tell
        }
    }

    /** A warning, on a thread for it. */
    static void logLater(String format, List<String> resources, String detail) {
        Threads.log(() -> log(Level.WARNING, format, resources, detail));
    }

    private void tellWanted() {
        try {
            wanted.onWanted.accept(this);
        } catch (Throwable error) {
            logLater("onWanted of {0}: {1}", resources(), error.toString());
        }
    }

    /** Releases the leases of these clients, and waits for that for ten seconds at most. */
    static void releaseAll(Predicate<Servers> which) {
        try {
            CompletableFuture.allOf(HELD.stream().filter(lease -> which.test(lease.servers)).map(lease ->
                CompletableFuture.runAsync(() -> lease.release(), lease.servers.background))
                .toArray(CompletableFuture[]::new)).get(10, TimeUnit.SECONDS);
        } catch (InterruptedException | ExecutionException | TimeoutException error) {
            // the others end by themselves
        }
    }

    /**
     * Returns the answer; null if it was released before. From here on the lease does not count. Until the answer has
     * come it is among those that the end of the program waits for. {@code keep}: nanoseconds for which nobody gets
     * the lock then.
     */
    private synchronized Answer giveBack(long keep) {
        if (!HELD.contains(this)) return null;
        boolean lost = term.lost() != null; // there is a warning already
        term.lose(renewal.lost("it was released", RELEASED, null));
        Answer answer;
        try {
            answer = servers.askEach(wanted.delete(grant.text("token", ""), servers.timeout, keep));
        } finally {
            HELD.remove(this);
        }
        boolean done = answer.status == 204;
        String said = done ? "done" : RedlockdException.of(answer).getMessage();
        log(done || lost && answer.saysLost() ? Level.DEBUG : Level.WARNING, "release of {0}: {1}", resources(), said);
        return answer;
    }

    /** Releases a lease that nobody has used. */
    void discard() { giveBack(0); }

    /**
     * Ends the renewal and gives the lock back, also if this thread is interrupted.
     *
     * @return false if the lock was not held any more, or if no server answers: then the lease ends by itself
     */
    public boolean release() { return release(Duration.ZERO); }

    /**
     * The same as {@link #release()}, and nobody gets the lock for a while.
     *
     * @param keep how long, at most the longest ttl of the server
     * @return false if the lock was not held any more, or if no server answers: then the lease ends by itself
     */
    public boolean release(Duration keep) {
        long kept = Term.nanos(keep);
        if (kept < 0) throw new IllegalArgumentException("keep must not be negative: " + keep);
        Answer answer = giveBack(Math.max(kept, keptUntil - Term.clock()));
        return answer != null && answer.status == 204;
    }

    /**
     * Releases at the end of a block. Throws {@link LockLost} if the lease was lost before, or is not held any more:
     * what the block did may have been done twice. If the block ended by another exception, that one stays, and has
     * this one among the suppressed. After {@link #release()} it does nothing.
     */
    @Override
    public void close() {
        LockLost why = term.lost();
        Answer answer = giveBack(keptUntil - Term.clock());
        if (answer == null) return;
        raise(why);
        if (!answer.saysLost()) return;
        RedlockdException error = RedlockdException.of(answer);
        throw renewal.lost("it was not held any more when it was released", error.code(), error);
    }

    /**
     * Tells the fence. Send it with each write to what the lock protects.
     *
     * @return a number that is larger than the fence of every holder before
     */
    public long fence() { return grant.number("fence"); }

    /**
     * The slot of the lease.
     *
     * @return empty unless it was acquired with {@link Options#slots}
     */
    public OptionalInt slot() {
        return wanted.slots == 0 ? OptionalInt.empty() : OptionalInt.of((int) grant.number("slot"));
    }

    /**
     * How many wait for the lock: a holder that works in pieces can give way. {@link Options#onWanted} tells it.
     *
     * @return the number as the last renewal said it; 0 before the first one
     */
    public long waiters() { return renewal.waiters(); }

    /**
     * What the lease covers.
     *
     * @return the names of the locks
     */
    public List<String> resources() { return wanted.resources; }

    /**
     * How long the lease lasts if it is not renewed.
     *
     * @return the time until it counts as lost
     */
    public Duration remaining() { return Duration.ofNanos(term.remaining()); }

    /** Throws {@link LockLost} if the lease cannot be relied on any more. Call it right before each write. */
    public void check() { raise(term.lost()); }

    private static void raise(LockLost why) {
        if (why != null) throw new LockLost(why.getMessage(), why.reason(), why.getCause());
    }

    /** Names the locks, the fence, and the time that is left or why it is lost. Without the token. */
    @Override
    public String toString() {
        LockLost why = term.lost();
        return "Lease[" + String.join(", ", resources()) + ", fence " + fence() + ", "
            + (why == null ? term.remaining() / Term.MILLISECOND + " ms left" : "lost: " + why.reason()) + "]";
    }

    /**
     * Whether the lease cannot be relied on any more.
     *
     * @return true also after its release
     */
    public boolean isLost() { return term.lost() != null; }

    /**
     * Waits until the lease is lost or released.
     *
     * @param timeout how long at most
     * @return false if it is neither after this time
     * @throws InterruptedException if this thread is interrupted: the lease stays as it is
     */
    public boolean awaitLost(Duration timeout) throws InterruptedException {
        try {
            term.over.get(Term.nanos(timeout), TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException error) {
            return isLost(); // by the clock: what completes it may be late
        }
        return true;
    }

    /**
     * Does something once when the lease is lost; at once if it is. A release is no loss.
     *
     * @param action what to do, on a thread of the library
     */
    public void onLost(Runnable action) {
        term.over.thenAccept(why -> {
            if (!why.reason().equals(RELEASED)) Threads.call(action);
        });
    }
}
