package io.github.redlockd;

import io.github.redlockd.RedlockdException.LockLost;
import java.time.Duration;
import java.util.List;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;

/**
 * A lease that is renewed in the background until {@link #close} or {@link #release}, or until it is lost. Leases that
 * are held when the program ends are released. Safe for threads.
 */
public final class Lease implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Lease.class.getPackageName());
    private static final Set<Lease> HELD = ConcurrentHashMap.newKeySet(); // those that are not released
    private final Servers servers;
    private final Wanted wanted;
    private final String token;
    private final Term term;
    private final long fence;
    private final int slot;
    private final AtomicBoolean released = new AtomicBoolean();
    private final LockLost byRelease = new LockLost("the lease was released", null);
    private volatile boolean refused; // the release: it was not held any more
    private volatile Exchange renewal;
    private volatile Future<?> nextRenewal;
    private volatile Future<?> expiry;
    private int failures; // of renewals in a row; they come one after the other

    Lease(Servers servers, Wanted wanted, Answer grant, long begin) {
        this.servers = servers;
        this.wanted = wanted;
        token = grant.text("token", "");
        fence = grant.number("fence");
        slot = (int) grant.number("slot");
        term = new Term(begin + grant.time("validity_ms"), wanted.margin);
    }

    /** From here on it is renewed, first at this time. */
    Lease start(long renewAt) {
        HELD.add(this);
        renewLater(renewAt - Threads.clock());
        expire();
        term.over.thenAccept(this::end);
        return this;
    }

    static void releaseAll() {
        HELD.stream().map(Lease::beginRelease).collect(Collectors.toList()).forEach(CompletableFuture::join);
    }

    private void end(LockLost why) {
        nextRenewal.cancel(false);
        expiry.cancel(false);
        if (why != byRelease) {
            LOG.log(System.Logger.Level.WARNING, "lease on {0} lost: {1}", wanted.resources, why.getMessage());
        }
    }

    /** Tells the loss to those who wait for it: a timer, which is set again if the lease was renewed meanwhile. */
    private void expire() {
        expiry = Threads.after(term.remaining(), () -> {
            if (term.lost() == null) expire();
        });
    }

    private void renewLater(long nanos) { nextRenewal = Threads.after(nanos, this::renew); }

    private void renew() {
        long limit = Math.min(Math.min(wanted.ttl / 5, servers.timeout), term.remaining()), sent = Threads.clock();
        if (term.lost() == null) {
            renewal = servers.ask(wanted.put(token, limit));
            renewal.answer.thenAccept(answer -> renewed(answer, sent));
        }
    }

    private void renewed(Answer answer, long sent) {
        if (term.lost() != null) return;
        if (answer.status == 200 && answer.time("validity_ms") >= 0) {
            term.extend(sent + answer.time("validity_ms"));
            failures = 0;
            renewLater(sent + wanted.ttl / 3 - Threads.clock());
        } else if (answer.status == 409 || answer.status == 410) {
            term.lose(new LockLost("lease lost: " + answer.error().getMessage(), answer.error()));
        } else { // the old end holds: again soon, at another server at once
            LOG.log(System.Logger.Level.WARNING, "renewal of {0}: {1}", wanted.resources, answer.error().getMessage());
            renewLater(++failures % servers.count != 0 ? 0 : wanted.ttl / 10);
        }
    }

    /**
     * The release under way; it tells whether it was done. From here on the lease does not count, whatever the server
     * answers.
     */
    CompletableFuture<Boolean> beginRelease() {
        HELD.remove(this);
        if (!released.compareAndSet(false, true)) return CompletableFuture.completedFuture(false);
        term.lose(byRelease);
        Exchange open = renewal;
        if (open != null) open.cancel();
        return servers.askEach(wanted.delete(token, servers.timeout)).thenApply(this::isReleased);
    }

    private boolean isReleased(Answer answer) {
        boolean done = answer.status == 204;
        refused = answer.status == 409 || answer.status == 410;
        LOG.log(done ? System.Logger.Level.DEBUG : System.Logger.Level.WARNING, "release of {0}: {1}", wanted.resources,
            done ? "done" : answer.error().getMessage());
        return done;
    }

    /**
     * Ends the renewal and gives the lock back, also if this thread is interrupted.
     *
     * @return false if the lock was not held any more, or if no server answers: then the lease ends by itself
     */
    public boolean release() { return beginRelease().join(); }

    /**
     * Releases at the end of a block. Throws {@link LockLost} if the lease was lost before, or is not held any more: what the block did may have
     * been done twice. If the block ended by another exception, that one stays, and has this one among the suppressed.
     */
    @Override
    public void close() {
        if (released.get()) return;
        LockLost why = term.lost();
        release();
        if (why != null) throw new LockLost(why.getMessage(), why.getCause());
        if (refused) throw new LockLost("the lease was not held any more when it was released", null);
    }

    /**
     * Tells the fence. Send it with each write to what the lock protects.
     *
     * @return a number that is larger than the fence of every holder before
     */
    public long fence() { return fence; }

    /**
     * The slot of the lease.
     *
     * @return empty unless it was acquired with {@link Options#slots}
     */
    public OptionalInt slot() { return slot < 0 ? OptionalInt.empty() : OptionalInt.of(slot); }

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
    public void check() {
        LockLost why = term.lost();
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
        long until = Threads.clock() + Threads.nanos(timeout);
        for (long left = Threads.nanos(timeout); left > 0 && !isLost(); left = until - Threads.clock()) {
            try {
                term.over.get(Math.min(left, term.remaining()), TimeUnit.NANOSECONDS);
            } catch (TimeoutException error) {
                continue; // it may have been renewed
            } catch (ExecutionException impossible) {
                throw new AssertionError(impossible);
            }
        }
        return isLost();
    }

    /**
     * Does something once when the lease is lost; at once if it is. A release is no loss.
     *
     * @param action what to do, on a thread of the library
     */
    public void onLost(Runnable action) {
        term.over.thenAcceptAsync(why -> {
            try {
                if (why != byRelease) action.run();
            } catch (RuntimeException error) {
                LOG.log(System.Logger.Level.ERROR, "what was to be done at the loss of a lease failed", error);
            }
        }, Threads.POOL);
    }
}
