// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.internal.Answer;
import java.util.List;
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
        this(answer, withOptions(answer));
    }

    private RedlockdException(Answer answer, String message) {
        super(message, answer.cause);
        this.answer = answer;
    }

    /** The detail of an answer, with the options of this library and their unit. */
    private static String withOptions(Answer answer) {
        String detail = answer.text("detail", "status " + answer.status);
        return answer.status == 0 ? detail
            : detail.replaceAll("\\b(ttl|wait)_ms: must be from [0-9]+ to [0-9]+", "$0 ms")
            .replaceAll("\\bttl_ms\\b", "ttl").replaceAll("\\bwait_ms\\b", "waitUpTo");
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

    /** The lease cannot be relied on any more: stop the work. The cause is the error of the renewal, or null. */
    public static final class LockLost extends RedlockdException {
        /** The word that reason() returns. */
        private final String reason;

        LockLost(String detail, String reason, Throwable cause) {
            super(Answer.own("lock-lost", detail, false, cause));
            this.reason = reason;
        }

        /**
         * Why the lease is lost, in a word.
         *
         * @return {@code not-owner} or {@code lease-expired}: a server said so, for instance after a forced release;
         *     {@code max-hold}: the server extends it no further; {@code late}: no renewal began in time;
         *     {@code released}: by this program; otherwise the code of the last renewal, which failed:
         *     {@code no-quorum}, {@code no-answer} and so on
         */
        public String reason() { return reason; }
    }

    /** The request is wrong: {@code errors} of the problem has each field and the reason. */
    public static final class InvalidRequest extends RedlockdException {
        InvalidRequest(Answer it) { super(it); }

        /** {@code ttl}: the option that has it. */
        InvalidRequest(Answer it, String ttl) { super(it, withOptions(it).replaceAll("\\bttl\\b", ttl)); }
    }

    /** No key or certificate, or one that is not known. */
    public static final class Unauthorized extends RedlockdException { Unauthorized(Answer it) { super(it); } }

    /** The caller may not do this, or not with this resource. */
    public static final class Forbidden extends RedlockdException { Forbidden(Answer it) { super(it); } }

    /** No such path: is the address of the server right? */
    public static final class NotFound extends RedlockdException { NotFound(Answer it) { super(it); } }

    /** The path does not take this method. */
    public static final class MethodNotAllowed extends RedlockdException { MethodNotAllowed(Answer it) { super(it); } }

    /**
     * Somebody else has the lock, and the wait is over. The message names the lock and its holder; the problem may have
     * {@code holder} and {@code retry_after_ms}.
     */
    public static final class Locked extends RedlockdException {
        Locked(Answer it) { super(it); }

        /** {@code names}: what was asked for. */
        Locked(Answer it, List<String> names) { super(it, holderOf(it, names)); }

        /** For instance "orders/42: held by worker-7 (fence 7), lease ends in 2500 ms unless it is extended". */
        private static String holderOf(Answer it, List<String> names) {
            Object holder = it.body.get("holder");
            Map<?, ?> known = holder instanceof Map ? (Map<?, ?>) holder : Map.of();
            Object owner = known.get("owner"), fence = known.get("fence");
            long left = it.number("retry_after_ms");
            String by = owner instanceof String && !owner.equals("") ? (String) owner : "somebody else";
            return (it.text("resource", String.join(", ", names)) + ": held by " + by
                + (fence instanceof Long ? " (fence " + fence + ")" : "")
                + (left > 0 ? ", lease ends in " + left + " ms unless it is extended" : "")).replaceAll("\\p{C}", "?");
        }
    }

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
