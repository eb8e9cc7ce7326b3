package io.github.redlockd;

import io.github.redlockd.RedlockdException.LockLost;
import io.github.redlockd.internal.Answer;
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

/**
 * A lease that is renewed in the background until {@link #close} or {@link #release}, or until it is lost. Leases that
 * are held when the program ends are released. Safe for threads.
 */
public final class Lease implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Lease.class.getPackageName());
    private static final LockLost BY_RELEASE = new LockLost("the lease was released", null);
    private static final Set<Lease> HELD = ConcurrentHashMap.newKeySet(); // those that are not released
    private final Servers servers;
    private final Wanted wanted;
    private final Answer grant;
    private final Term term;
    private final long ttl;
    private volatile Future<?> renewing; // the timer or the request
    private int failures; // of renewals in a row; they come one after the other

    /** From here on it is renewed. {@code sent}: the clock, read before the request was sent. */
    Lease(Servers servers, Wanted wanted, Answer grant, long sent) {
        this.servers = servers;
        this.wanted = wanted;
        this.grant = grant;
        long waited = Math.max(grant.number("waited_ms"), 0) * Term.MILLISECOND;
        long begin = sent + waited / 100 * 99; // the clocks may differ by a hundredth
        ttl = grant.number("ttl_ms") * Term.MILLISECOND;
        term = new Term(begin + grant.number("validity_ms") * Term.MILLISECOND, wanted.margin(ttl));
        LOG.log(Level.DEBUG, "acquired " + wanted.resources + ", fence " + fence());
        HELD.add(this);
        renewAt(begin + ttl / 3);
        term.over.thenAccept(this::end);
    }

    static void releaseAll() {
        CompletableFuture.allOf(HELD.stream().map(Lease::beginRelease).toArray(CompletableFuture[]::new)).join();
    }

    private void end(LockLost why) {
        renewing.cancel(false);
        if (why != BY_RELEASE) LOG.log(Level.WARNING, "lease on {0} lost: {1}", wanted.resources, why.getMessage());
    }

    /** Looks at the clock at the end of the lease at the latest: this tells the loss to those who wait for it. */
    private void renewAt(long due) {
        renewing = Threads.after(Math.min(due - Term.clock(), term.remaining()), this::renew);
    }

    private void renew() {
        if (term.lost() != null) return;
        long sent = Term.clock();
        long limit = Collections.min(List.of(ttl / 5, servers.timeout, 5 * Term.SECOND, term.remaining()));
        CompletableFuture<Answer> renewal = servers.ask(wanted.put(grant.text("token", ""), ttl, limit));
        renewing = renewal;
        renewal.thenAccept(answer -> renewed(answer, sent));
    }

    private void renewed(Answer answer, long sent) {
        if (term.lost() != null) return;
        if (answer.status == 200 && answer.number("validity_ms") >= 0) {
            failures = 0;
            term.extend(sent + answer.number("validity_ms") * Term.MILLISECOND);
            renewAt(sent + ttl / 3);
            return;
        }
        RedlockdException error = RedlockdException.of(answer);
        if (answer.status == 409 || answer.status == 410) {
            term.lose(new LockLost("lease lost: " + error.getMessage(), error));
        } else { // the old end holds: again soon, at another server at once
            LOG.log(Level.WARNING, "renewal of {0}: {1}", wanted.resources, error.getMessage());
            renewAt(Term.clock() + (++failures % servers.count() != 0 ? 0 : ttl / 10));
        }
    }

    /** The status of the answer; 0 also if it was released before. From here on the lease does not count. */
    private CompletableFuture<Integer> beginRelease() {
        if (!HELD.remove(this)) return CompletableFuture.completedFuture(0);
        term.lose(BY_RELEASE);
        return servers.askEach(wanted.delete(grant.text("token", ""), servers.timeout)).thenApply(answer -> {
            boolean done = answer.status == 204;
            String said = done ? "done" : RedlockdException.of(answer).getMessage();
            LOG.log(done ? Level.DEBUG : Level.WARNING, "release of {0}: {1}", wanted.resources, said);
            return answer.status;
        });
    }

    /**
     * Ends the renewal and gives the lock back, also if this thread is interrupted.
     *
     * @return false if the lock was not held any more, or if no server answers: then the lease ends by itself
     */
    public boolean release() { return beginRelease().join() == 204; }

    /**
     * Releases at the end of a block. Throws {@link LockLost} if the lease was lost before, or is not held any more:
     * what the block did may have been done twice. If the block ended by another exception, that one stays, and has
     * this one among the suppressed. After {@link #release} it does nothing.
     */
    @Override
    public void close() {
        if (!HELD.contains(this)) return;
        LockLost why = term.lost();
        int status = beginRelease().join();
        raise(why);
        if (status == 409 || status == 410) raise(new LockLost("it was not held any more when it was released", null));
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
        return grant.number("slot") < 0 ? OptionalInt.empty() : OptionalInt.of((int) grant.number("slot"));
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
        if (why != null) throw new LockLost(why.getMessage(), why.getCause());
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
            if (why != BY_RELEASE) Threads.POOL.execute(action);
        });
    }
}
