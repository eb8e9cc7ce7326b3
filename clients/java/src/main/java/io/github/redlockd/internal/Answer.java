// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.io.IOException;
import java.io.Serializable;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * An answer to a request. The status is 0 where no whole answer of redlockd came; {@code sent}: the request may have
 * been carried out nevertheless.
 */
@SuppressWarnings("serial") // its maps can be written to a stream
public final class Answer implements Serializable {
    public static final long NUMBER_MAX = (1L << 53) - 1;
    private static final Map<String, List<Integer>> GOOD =
        Map.of("POST", List.of(200, 201), "PUT", List.of(200), "DELETE", List.of(204), "GET", List.of(200, 304));
    public final int status;
    public final boolean sent;
    public final Map<String, String> headers;
    public final Map<?, ?> body;
    public final Throwable cause; // null: an answer came, or nothing threw

    private Answer(int status, Map<String, String> headers, Map<?, ?> body, boolean sent, Throwable cause) {
        this.status = status;
        this.headers = headers;
        this.body = body;
        this.sent = sent;
        this.cause = cause;
    }

    /** What no server says, but the library. */
    public static Answer own(String code, String detail, boolean sent, Throwable cause) {
        return new Answer(0, Map.of(), Map.of("code", code, "detail", detail), sent, cause);
    }

    public static Answer none(String why, boolean sent, Throwable cause) {
        return own("no-answer", "no answer of redlockd: " + why, sent, cause);
    }

    /** True for what another server may answer otherwise. */
    public boolean isUndecided() { return status == 0 || status == 429 || status == 503; }

    /** True if it says that the lease is over: then no other server is asked. */
    public boolean saysLost() {
        String code = text("code", "");
        return status == 409 && code.equals("not-owner") || status == 410 && code.equals("lease-expired");
    }

    /** An integer from 0 to 2<sup>53</sup> − 1; -1: there is none. */
    public long number(String name) {
        Object value = body.get(name);
        return value instanceof Long && (Long) value >= 0 && (Long) value <= NUMBER_MAX ? (Long) value : -1;
    }

    /** How many elements a list has; -1: there is none. */
    int size(String name) { return body.get(name) instanceof List ? ((List<?>) body.get(name)).size() : -1; }

    /** The answer that an element of a list is. {@code check}: says what is wrong with one that is no error. */
    Answer part(String name, int index, Function<Answer, String> check) {
        Object element = ((List<?>) body.get(name)).get(index);
        Map<?, ?> members = element instanceof Map ? (Map<?, ?>) element : Map.of();
        Answer good = new Answer(200, Map.of(), members, true, null);
        long given = good.number("status");
        if (members.get("code") instanceof String && given >= 400 && given < 600)
            return new Answer((int) given, Map.of(), members, true, null);
        String wrong = members.containsKey("code") ? "a strange error" : check.apply(good);
        return wrong == null ? good : none(wrong, true, null);
    }

    /** Whether the errors of a 400 name this field. */
    public boolean errorsName(String field) {
        Object errors = body.get("errors");
        return errors instanceof List && ((List<?>) errors).stream().anyMatch(each ->
            each instanceof Map && field.equals(((Map<?, ?>) each).get("field")));
    }

    public String text(String name, String otherwise) {
        Object value = body.get(name);
        return value instanceof String ? (String) value : otherwise;
    }

    /** Nanoseconds; a second where the answer says nothing. */
    public long retryAfter() {
        String value = headers.getOrDefault("Retry-After", "");
        return 1_000_000_000 * (value.matches("[0-9]{1,5}") ? Long.parseLong(value) : 1);
    }

    /** Throws IOException or IllegalArgumentException where it is no answer of redlockd to such a request. */
    static Answer of(String method, int status, Map<String, String> headers, byte[] content) throws IOException {
        Object body = content.length == 0 ? Map.of() : Json.parse(content);
        boolean known = GOOD.get(method).contains(status);
        if (body instanceof Map && (known || status >= 400 && ((Map<?, ?>) body).get("code") instanceof String)) {
            return new Answer(status, headers, (Map<?, ?>) body, true, null);
        }
        throw new IOException("a strange one with status " + status);
    }
}
