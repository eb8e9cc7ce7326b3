package io.github.redlockd.internal;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * An answer to a request. The status is 0 where no whole answer of redlockd came; {@code sent}: the request may have
 * been carried out nevertheless.
 */
@SuppressWarnings("serial") // its maps can be written to a stream
public final class Answer implements Serializable {
    private static final int LINE_MAX = 16 << 10, LINES_MAX = 200, BODY_MAX = 4 << 20;
    private static final Pattern STATUS = Pattern.compile("HTTP/1\\.[01] ([1-5][0-9][0-9])(?: .*)?");
    public final int status;
    public final boolean sent;
    public final Map<String, String> headers;
    public final Map<?, ?> body;

    private Answer(int status, Map<String, String> headers, Map<?, ?> body, boolean sent) {
        this.status = status;
        this.headers = headers;
        this.body = body;
        this.sent = sent;
    }

    /** What no server says, but the library. */
    public static Answer own(String code, String detail, boolean sent) {
        return new Answer(0, Map.of(), Map.of("code", code, "detail", detail), sent);
    }

    public static Answer none(String why, boolean sent) {
        return own("no-answer", "no answer of redlockd: " + why, sent);
    }

    /** True for what another server may answer otherwise. */
    public boolean isUndecided() { return status == 0 || status == 429 || status == 503; }

    /** A whole number that is not negative; -1: there is none. */
    public long number(String name) {
        Object value = body.get(name);
        return value instanceof Long && (Long) value >= 0 ? (Long) value : -1;
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

    /**
     * Reads the answer from a connection on which nothing else comes. Throws IOException or IllegalArgumentException
     * where it is not whole, or none of redlockd.
     */
    static Answer read(InputStream in) throws IOException {
        Matcher first = STATUS.matcher(line(in));
        if (!first.matches()) throw new IOException("it is not HTTP");
        int status = Integer.parseInt(first.group(1));
        Map<String, String> headers = headers(in);
        byte[] content = status == 204 || status == 304 ? new byte[0] : content(in, headers);
        Object body = content.length == 0 ? Map.of() : Json.parse(content);
        boolean known = status == 200 || status == 201 || status == 204 || status == 304;
        if (body instanceof Map && (known || ((Map<?, ?>) body).get("code") instanceof String)) {
            return new Answer(status, headers, (Map<?, ?>) body, true);
        }
        throw new IOException("a strange one with status " + status);
    }

    private static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int each = in.read(); each != '\n'; each = in.read()) {
            if (each < 0) throw new EOFException("the connection was closed");
            if (line.length() == LINE_MAX) throw new IOException("it is too long");
            line.append((char) each);
        }
        return line.toString().trim();
    }

    private static Map<String, String> headers(InputStream in) throws IOException {
        Map<String, String> headers = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        for (int lines = 0; lines < LINES_MAX; lines++) {
            String[] parts = line(in).split(":", 2);
            if (parts.length == 1 && parts[0].isEmpty()) return headers;
            headers.put(parts[0], parts[parts.length - 1].trim());
        }
        throw new IOException("it has too many headers");
    }

    private static byte[] content(InputStream in, Map<String, String> headers) throws IOException {
        String length = headers.get("Content-Length");
        if ("chunked".equalsIgnoreCase(headers.get("Transfer-Encoding"))) return chunks(in);
        return length == null ? in.readNBytes(BODY_MAX) : part(in, Integer.parseInt(length), BODY_MAX);
    }

    private static byte[] part(InputStream in, int size, int most) throws IOException {
        if (size > most) throw new IOException("it is too long");
        byte[] part = in.readNBytes(size);
        if (part.length < size) throw new EOFException("it was cut off");
        return part;
    }

    private static byte[] chunks(InputStream in) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        while (true) {
            int size = Integer.parseInt(line(in).split(";")[0].trim(), 16);
            if (size == 0) return all.toByteArray();
            all.write(part(in, size, BODY_MAX - all.size()));
            if (!line(in).isEmpty()) throw new IOException("a part of it has no end");
        }
    }
}
