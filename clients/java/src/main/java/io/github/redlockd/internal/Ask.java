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
    private final List<Function<Answer, String>> checks; // for each lease of several, or one
    public final boolean once; // it must not be sent twice, and has a connection of its own
    private Exchange current; // guarded by this, as the next one
    private boolean cancelled;

    /**
     * {@code body}: empty for none. {@code checks}: one that says what is wrong with an answer, or returns null; for
     * several leases one for each, which gets the lease.
     */
    public Ask(String method, String path, long timeout, Map<String, ?> body, Map<String, String> headers, boolean once,
            List<Function<Answer, String>> checks) {
        this.method = method;
        this.path = path;
        this.timeout = timeout;
        this.headers = headers;
        this.checks = checks;
        this.once = once;
        content = body.isEmpty() ? "" : Json.write(body);
    }

    /** For one that can be repeated, where each answer with the right status will do. */
    public Ask(String method, String path, long timeout, Map<String, ?> body, Map<String, String> headers) {
        this(method, path, timeout, body, headers, false, List.of(answer -> null));
    }

    String whatIsWrong(Answer answer) {
        if (checks.size() == 1) return checks.get(0).apply(answer);
        return answer.status != 200 || answer.size("leases") == checks.size() ? null : "strange leases";
    }

    /** The answers for each of the leases. One that is wrong is none, for that lease alone. */
    public List<Answer> parts(Answer answer) {
        if (checks.size() == 1 || answer.status != 200) return Collections.nCopies(checks.size(), answer);
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
        if (!headers.containsKey("Lock-Token") && !method.equals("PUT")) return answer.isUndecided();
        return parts(answer).stream().allMatch(each -> (each.status == 0 || each.status >= 400) && !each.saysLost());
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
