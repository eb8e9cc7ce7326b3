// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Supplier;

/** A request to one server after the other; {@code timeout}, in nanoseconds, is for each of them. */
public final class Ask {
    /** Headers that the program cannot set. */
    private static final Set<String> OWN = Set.of("accept", "authorization", "connection", "content-length",
            "content-type", "expect", "host", "idempotency-key", "if-none-match", "lock-token", "te", "trailer",
            "transfer-encoding", "upgrade", "user-agent", "x-api-key");
    public final long timeout;
    final String method;
    private final String path;
    private final Map<String, String> headers;
    private final String content;
    private final Function<Answer, String> check;
    private final List<Function<Answer, String>> checks; // for each lease of a request for several
    public final boolean once; // it must not be sent twice, and has a connection of its own
    private Exchange current; // guarded by this, as the next one
    private boolean cancelled;

    private Ask(String method, String path, long timeout, Map<String, ?> body, Map<String, String> headers,
            boolean once, Function<Answer, String> check, List<Function<Answer, String>> checks) {
        this.method = method;
        this.path = path;
        this.timeout = timeout;
        this.headers = headers;
        this.check = check;
        this.checks = checks;
        this.once = once;
        content = body.isEmpty() ? "" : Json.write(body);
    }

    /** {@code body}: empty for none. {@code check}: says what is wrong with an answer, or returns null. */
    public Ask(String method, String path, long timeout, Map<String, ?> body, Map<String, String> headers, boolean once,
            Function<Answer, String> check) {
        this(method, path, timeout, body, headers, once, check, List.of());
    }

    /** For several leases: each check gets the answer for one of them. */
    public Ask(String method, String path, long timeout, List<?> leases, List<Function<Answer, String>> checks) {
        this(method, path, timeout, Map.of("leases", leases), Map.of(), false,
            answer -> answer.status != 200 || answer.size("leases") == leases.size() ? null
                : "leases is not what was asked for", checks);
    }

    /** For one that can be repeated, where each answer with the right status will do. */
    public Ask(String method, String path, long timeout, Map<String, ?> body, Map<String, String> headers) {
        this(method, path, timeout, body, headers, false, answer -> null);
    }

    String whatIsWrong(Answer answer) { return check.apply(answer); }

    /** The answers for each of several leases. One that is wrong is none, for that lease alone. */
    public List<Answer> parts(Answer answer) {
        if (answer.status != 200) return Collections.nCopies(checks.size(), answer);
        List<Answer> parts = new ArrayList<>();
        for (Function<Answer, String> check : checks) {
            parts.add(answer.part("leases", parts.size(), check));
        }
        return parts;
    }

    /**
     * True if another server is to be asked. A renewal or release is decided only by success, or by an answer that says
     * that the lease is over.
     */
    public boolean isFailedBy(Answer answer) {
        if (once && answer.sent) return false;
        if (!checks.isEmpty()) return parts(answer).stream().allMatch(Ask::decidesNothing);
        return headers.containsKey("Lock-Token") ? decidesNothing(answer) : answer.isUndecided();
    }

    private static boolean decidesNothing(Answer answer) {
        return (answer.status == 0 || answer.status >= 400) && !answer.saysLost();
    }

    synchronized void isCarriedOutBy(Exchange exchange) {
        current = exchange;
        if (cancelled) exchange.giveUp("it was cancelled");
    }

    /** Closes the connection; what is not sent is not sent any more. */
    public synchronized void cancel() {
        cancelled = true;
        if (current != null) current.giveUp("it was cancelled");
    }

    public synchronized boolean isCancelled() { return cancelled; }

    /** Those of the program that may be sent. An error of its function must not cost a lease. */
    private static String linesOf(Supplier<Map<String, String>> headers) {
        StringBuilder lines = new StringBuilder();
        try {
            headers.get().forEach((name, value) -> {
                boolean good = name.matches("[\\w!#$%&'*+.^`|~-]+") && value.matches("[\t -~]*");
                if (good && !OWN.contains(name.toLowerCase(Locale.ROOT))) lines.append(name + ": " + value + "\r\n");
            });
        } catch (RuntimeException error) {
            return "";
        }
        return lines.toString();
    }

    /** The request as it is sent. {@code key}: that of the API, or null. */
    byte[] bytes(Server server, String key, Supplier<Map<String, String>> more) {
        byte[] body = content.getBytes(StandardCharsets.UTF_8);
        StringBuilder text = new StringBuilder(method + " " + server.prefix + path + " HTTP/1.1\r\n");
        text.append("Host: " + server.authority + "\r\nUser-Agent: redlockd-java\r\n");
        text.append("Content-Length: " + body.length + "\r\n");
        if (once) text.append("Connection: close\r\n");
        if (body.length > 0) text.append("Content-Type: application/json\r\n");
        if (key != null) text.append("Authorization: Bearer " + key + "\r\n");
        text.append(linesOf(more));
        headers.forEach((name, value) -> text.append(name + ": " + value + "\r\n"));
        return text.append("\r\n" + content).toString().getBytes(StandardCharsets.UTF_8);
    }
}
