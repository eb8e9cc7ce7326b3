// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.internal.Answer;
import java.util.Map;
import java.util.function.Function;

/**
 * Base of all errors: one class for each {@code code} of docs/reference/errors.md, and two of the library's own.
 *
 * <p>They are unchecked: {@link Lease#check} stands before each write, often in lambdas, and most callers let an error
 * end the work.
 */
@SuppressWarnings("serial")
public class RedlockdException extends RuntimeException {
    private static final Map<String, Function<Answer, RedlockdException>> BY_CODE = Map.ofEntries(
        Map.entry("no-answer", NoAnswer::new), Map.entry("invalid-request", InvalidRequest::new),
        Map.entry("unauthorized", Unauthorized::new), Map.entry("forbidden", Forbidden::new),
        Map.entry("not-found", NotFound::new), Map.entry("method-not-allowed", MethodNotAllowed::new),
        Map.entry("locked", Locked::new), Map.entry("not-owner", NotOwner::new),
        Map.entry("lease-expired", LeaseExpired::new), Map.entry("too-large", TooLarge::new),
        Map.entry("too-many-requests", TooManyRequests::new), Map.entry("no-quorum", NoQuorum::new),
        Map.entry("split-vote", SplitVote::new), Map.entry("draining", Draining::new));
    /** Or what the library says instead. */
    private final Answer answer;

    private RedlockdException(Answer answer) {
        super(answer.text("detail", "status " + answer.status));
        this.answer = answer;
    }

    static RedlockdException of(Answer answer) {
        return BY_CODE.getOrDefault(answer.text("code", "error"), RedlockdException::new).apply(answer);
    }

    /**
     * The code of the error.
     *
     * @return also one that this library does not know
     */
    public String code() { return answer.text("code", "error"); }

    /**
     * The HTTP status of the answer.
     *
     * @return 0 if there was none
     */
    public int status() { return answer.status; }

    /**
     * The whole answer.
     *
     * @return its members by their names
     */
    public Map<?, ?> problem() { return answer.body; }

    /** No server of redlockd answered. After an acquisition, a lease may have been granted that ends by itself. */
    public static final class NoAnswer extends RedlockdException { NoAnswer(Answer it) { super(it); } }

    /**
     * The lease cannot be relied on any more: stop the work. The cause is the answer that said so; null if its time is
     * over.
     */
    public static final class LockLost extends RedlockdException {
        LockLost(String detail, Throwable cause) {
            super(Answer.own("lock-lost", detail, false));
            initCause(cause);
        }
    }

    /** The request is wrong: {@code errors} of the problem has each field and the reason. */
    public static final class InvalidRequest extends RedlockdException { InvalidRequest(Answer it) { super(it); } }

    /** No key or certificate, or one that is not known. */
    public static final class Unauthorized extends RedlockdException { Unauthorized(Answer it) { super(it); } }

    /** The caller may not do this, or not with this resource. */
    public static final class Forbidden extends RedlockdException { Forbidden(Answer it) { super(it); } }

    /** No such path: is the address of the server right? */
    public static final class NotFound extends RedlockdException { NotFound(Answer it) { super(it); } }

    /** The path does not take this method. */
    public static final class MethodNotAllowed extends RedlockdException { MethodNotAllowed(Answer it) { super(it); } }

    /**
     * Somebody else has the lock, and the wait is over. The problem may have {@code holder} and {@code retry_after_ms}.
     */
    public static final class Locked extends RedlockdException { Locked(Answer it) { super(it); } }

    /** Another holder has the lock. */
    public static final class NotOwner extends RedlockdException { NotOwner(Answer it) { super(it); } }

    /** Nobody holds the lock with this token any more. */
    public static final class LeaseExpired extends RedlockdException { LeaseExpired(Answer it) { super(it); } }

    /** Body, address or headers are too long. */
    public static final class TooLarge extends RedlockdException { TooLarge(Answer it) { super(it); } }

    /** A rate limit, or too many connections or waiting requests. */
    public static final class TooManyRequests extends RedlockdException { TooManyRequests(Answer it) { super(it); } }

    /** Too few masters answered. */
    public static final class NoQuorum extends RedlockdException { NoQuorum(Answer it) { super(it); } }

    /** Several asked at once, and none got a majority. */
    public static final class SplitVote extends RedlockdException { SplitVote(Answer it) { super(it); } }

    /** The server shuts down. */
    public static final class Draining extends RedlockdException { Draining(Answer it) { super(it); } }
}
