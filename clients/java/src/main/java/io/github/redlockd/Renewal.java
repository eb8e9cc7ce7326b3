// SPDX-License-Identifier: MIT
package io.github.redlockd;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.redlockd.RedlockdException.LockLost;
import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Json;
import io.github.redlockd.internal.Threads;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** The renewals of one lease. One thread at a time renews it; any may ask. Times are nanoseconds. */
final class Renewal {
    private static final Runnable NOTHING = () -> { };
    final Term term;
    final int size; // of its item, in bytes
    private final Wanted wanted;
    private final String token;
    private final List<String> resources;
    private volatile long ttl;
    private volatile long asked; // the ttl of the next one; 0: the server chooses it
    private final Runnable tell;
    private volatile long due;
    private volatile Runnable giveUp = NOTHING; // of the request under way
    private volatile long waiters; // as the last renewal said
    private volatile boolean bounded; // the last renewal gave less than was asked for
    private volatile boolean asking; // a renewal was sent, and none has failed since the last good one
    private volatile boolean busy; // the last one asked for more leases than the rate of the server allows
    private volatile RedlockdException failure; // of the last renewal

    /** {@code tell}: is called when others begin to wait for the lock. */
    Renewal(Wanted wanted, String token, long ttl, long due, Term term, Runnable tell) {
        this.wanted = wanted;
        this.token = token;
        this.term = term;
        this.ttl = ttl;
        asked = ttl;
        this.due = due;
        this.tell = tell;
        resources = wanted.resources;
        size = Json.write(item()).getBytes(UTF_8).length + 1;
    }

    /** Of a request. */
    Map<String, Object> item() { return wanted.extension(token, asked); }

    /** Says what is wrong with the lease of an answer. */
    Function<Answer, String> check() { return wanted.extensionCheck(token, asked); }

    long asked() { return asked; }

    void leaveTtl() { asked = 0; }

    LockLost lost(String why, String reason, Throwable cause) {
        return new LockLost("lease on " + String.join(", ", resources) + " lost: " + why, reason, cause);
    }

    /** The loss where no renewal came in time. */
    LockLost late() {
        RedlockdException error = failure;
        if (bounded) return lost("the server does not extend it any further (--max-hold-ms)", "max-hold", error);
        if (error != null) return lost("it could not be renewed in time: " + error.getMessage(), error.code(), error);
        return asking ? lost("it could not be renewed in time: no server answered yet", "no-answer", null)
            : lost("it was not renewed in time: the program or the machine was stopped or busy", "late", null);
    }

    long due() { return due; }

    long waiters() { return waiters; }

    boolean isOver() { return term.lost() != null; }

    /** It may come early, to go with others: it extends the lease from when it is sent, and never shortens it. */
    boolean isDue(long now) { return due - now <= (busy ? 0 : ttl / 20); }

    /** How long a server may take to answer. Some time is left for each of so many servers. */
    long limit(int servers) { return Collections.min(List.of(ttl / 5, 5 * Term.SECOND, term.remaining() / servers)); }

    void begin(Runnable cancel) {
        giveUp = cancel;
        asking = true;
    }

    void giveUp() { giveUp.run(); }

    /** {@code sent}: the clock before the request. False: another server is to be asked. */
    boolean decide(Answer answer, long sent) {
        giveUp = NOTHING;
        if (answer.status == 200) {
            extend(answer, sent);
            return true;
        }
        if (isOver()) return true;
        RedlockdException error = RedlockdException.of(answer);
        if (answer.saysLost()) {
            term.lose(lost(error.getMessage(), error.code(), error));
            return true;
        }
        busy = answer.status == 429;
        failure = error; // the old end holds
        warn(error.getMessage());
        return false;
    }

    private void extend(Answer answer, long sent) {
        long given = Term.millis(answer.number("ttl_ms"));
        if (asked == 0) {
            asked = ttl = given;
            term.margin = wanted.margin(ttl);
        }
        bounded = given < ttl;
        asking = false;
        busy = false;
        failure = null;
        due = sent + ttl / 3;
        term.extend(sent + Term.millis(answer.number("validity_ms")));
        long before = waiters;
        waiters = Math.max(answer.number("waiters"), 0);
        if (before == 0 && waiters > 0 && !isOver()) Threads.call(tell);
    }

    /** No server has renewed it. Later: of the half that comes later, if they were too many. */
    void postpone(boolean later) { due = Term.clock() + ttl / 20 * (busy && later ? 3 : 2); }

    void warn(String why) { Lease.logLater("renewal of {0}: {1}", resources, why); }
}
