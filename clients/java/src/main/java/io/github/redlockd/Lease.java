// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.RedlockdException.LockLost;
import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Ask;
import io.github.redlockd.internal.Threads;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;

/**
 * A lease that is renewed in the background until {@link #close} or {@link #release}, or until it is lost. Leases that
 * are held when the program ends are released. Safe for threads.
 */
public final class Lease implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Lease.class.getPackageName());
    private static final String RELEASED = "released";
    private static final Set<Lease> HELD = ConcurrentHashMap.newKeySet(); // those that are not released
    private final Servers servers;
    private final Wanted wanted;
    private final Answer grant;
    private final Term term;
    private final long ttl;
    private volatile Future<?> timer; // of the next renewal
    private volatile Ask renewal; // the request under way, or the last one
    private volatile boolean bounded; // the last renewal gave less than was asked for
    private volatile boolean asking; // a renewal was sent, and none has failed since the last good one
    private volatile RedlockdException failure; // of the last renewal

    /** From here on it is renewed. {@code sent}: the clock, read before the request was sent. */
    Lease(Servers servers, Wanted wanted, Answer grant, long sent) {
        this.servers = servers;
        this.wanted = wanted;
        this.grant = grant;
        long waited = Term.millis(Math.max(grant.number("waited_ms"), 0));
        long begin = sent + Math.min(waited / 100 * 99, Term.clock() - sent); // the clocks may differ by a hundredth
        ttl = Term.millis(grant.number("ttl_ms"));
        term = new Term(begin + Term.millis(grant.number("validity_ms")), wanted.margin(ttl));
        term.over.thenAccept(why -> {
            if (!why.reason().equals(RELEASED)) Threads.log(() -> log(Level.WARNING, "{1}", why.getMessage()));
        });
        term.explainBy(this::late);
        term.tell();
        renewAt(begin + ttl / 3);
        HELD.add(this);
        log(Level.DEBUG, "acquired {0}, fence {1}", String.valueOf(fence()));
    }

    /** The resources are the first of what it says. An error of a handler is no reason to lose a lease. */
    private void log(Level level, String format, String detail) {
        try {
            LOG.log(level, format, wanted.resources, detail);
        } catch (Throwable error) {
            // there is nobody to tell
        }
    }

    private LockLost lost(String why, String reason, Throwable cause) {
        return new LockLost("lease on " + String.join(", ", resources()) + " lost: " + why, reason, cause);
    }

    /** The loss where no renewal came in time. */
    private LockLost late() {
        RedlockdException error = failure;
        if (bounded) return lost("the server does not extend it any further (--max-hold-ms)", "max-hold", error);
        if (error != null) return lost("it could not be renewed in time: " + error.getMessage(), error.code(), error);
        return asking ? lost("it could not be renewed in time: no server answered yet", "no-answer", null)
            : lost("it was not renewed in time: the program or the machine was stopped or busy", "late", null);
    }

    /** Releases the leases of these clients, and waits for that for ten seconds at most. */
    static void releaseAll(Predicate<Servers> which) {
        try {
            CompletableFuture.allOf(HELD.stream().filter(lease -> which.test(lease.servers)).map(lease ->
                CompletableFuture.runAsync(lease::release, lease.servers.background))
                .toArray(CompletableFuture[]::new)).get(10, TimeUnit.SECONDS);
        } catch (InterruptedException | ExecutionException | TimeoutException error) {
            // the others end by themselves
        }
    }

    private void renewAt(long due) {
        timer = Threads.after(due - Term.clock(), () -> servers.background.execute(this::renew));
    }

    /** An error of any kind is a renewal that failed. */
    private void renew() {
        long due = Term.clock() + ttl / 10;
        try {
            due = renewAtEach();
        } catch (Throwable error) {
            warn(error.toString());
        }
        if (term.lost() == null) renewAt(due);
    }

    private void warn(String why) { Threads.log(() -> log(Level.WARNING, "renewal of {0}: {1}", why)); }

    /** Asks each server until one renews; returns the time of the next renewal. */
    private long renewAtEach() {
        Servers.Round round = servers.new Round();
        while (round.left() > 0 && term.lost() == null) {
            long sent = Term.clock(), share = term.remaining() / round.left();
            long limit = Collections.min(List.of(ttl / 5, servers.timeout, 5 * Term.SECOND, share));
            renewal = wanted.put(grant.text("token", ""), ttl, limit);
            if (term.lost() != null) break; // a release may have cancelled the last one
            asking = true;
            Answer answer = round.ask(renewal);
            if (answer.status == 200) {
                bounded = Term.millis(answer.number("ttl_ms")) < ttl;
                asking = false;
                failure = null;
                term.extend(sent + Term.millis(answer.number("validity_ms")));
                return sent + ttl / 3;
            }
            RedlockdException error = RedlockdException.of(answer);
            if (answer.saysLost()) {
                term.lose(lost(error.getMessage(), error.code(), error));
            } else if (term.lost() == null) { // the old end holds
                failure = error;
                warn(error.getMessage());
            }
        }
        return Term.clock() + ttl / 10;
    }

    /**
     * Returns the answer; null if it was released before. From here on the lease does not count. Until the answer has
     * come it is among those that the end of the program waits for.
     */
    private synchronized Answer giveBack() {
        if (!HELD.contains(this)) return null;
        term.lose(lost("it was released", RELEASED, null));
        timer.cancel(false);
        if (renewal != null) renewal.cancel();
        Answer answer;
        try {
            answer = servers.askEach(wanted.delete(grant.text("token", ""), servers.timeout));
        } finally {
            HELD.remove(this);
        }
        boolean done = answer.status == 204;
        String said = done ? "done" : RedlockdException.of(answer).getMessage();
        log(done ? Level.DEBUG : Level.WARNING, "release of {0}: {1}", said);
        return answer;
    }

    /**
     * Ends the renewal and gives the lock back, also if this thread is interrupted.
     *
     * @return false if the lock was not held any more, or if no server answers: then the lease ends by itself
     */
    public boolean release() {
        Answer answer = giveBack();
        return answer != null && answer.status == 204;
    }

    /**
     * Releases at the end of a block. Throws {@link LockLost} if the lease was lost before, or is not held any more:
     * what the block did may have been done twice. If the block ended by another exception, that one stays, and has
     * this one among the suppressed. After {@link #release} it does nothing.
     */
    @Override
    public void close() {
        LockLost why = term.lost();
        Answer answer = giveBack();
        if (answer == null) return;
        raise(why);
        if (!answer.saysLost()) return;
        RedlockdException error = RedlockdException.of(answer);
        throw lost("it was not held any more when it was released", error.code(), error);
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
