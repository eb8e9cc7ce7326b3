package io.github.redlockd;

import io.github.redlockd.internal.Json;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * An answer to a request. The status is 0 where no whole answer of redlockd came; {@code sent}: the request may have
 * been carried out nevertheless.
 */
final class Answer {
    private static final int LINE_MAX = 16 << 10, LINES_MAX = 200, BODY_MAX = 4 << 20;
    private static final Pattern STATUS = Pattern.compile("HTTP/1\\.[01] ([1-5][0-9][0-9])(?: .*)?");
    private static final long NUMBER_MAX = 1L << 40; // milliseconds: nanoseconds of it fit into a long
    final int status;
    final boolean sent;
    final Map<String, String> headers;
    final Map<?, ?> body;

    private Answer(int status, Map<String, String> headers, Map<?, ?> body, boolean sent) {
        this.status = status;
        this.headers = headers;
        this.body = body;
        this.sent = sent;
    }

    static Answer none(String why, boolean sent) {
        return new Answer(0, Map.of(), Map.of("code", "no-answer", "detail", "no answer of redlockd: " + why), sent);
    }

    /** True for what another server may answer otherwise. */
    boolean isUndecided() { return status == 0 || status == 429 || status == 503; }

    boolean isGrant() { return status == 200 || status == 201; }

    /** A whole number that is not negative; -1: there is none. */
    long number(String name) {
        Object value = body.get(name);
        return value instanceof Long && (Long) value >= 0 ? (Long) value : -1;
    }

    /** A time in nanoseconds; -1: there is none. */
    long time(String name) {
        long millis = number(name);
        return millis < 0 ? -1 : Math.min(millis, NUMBER_MAX) * 1_000_000;
    }

    String text(String name, String otherwise) {
        Object value = body.get(name);
        return value instanceof String ? (String) value : otherwise;
    }

    /** Nanoseconds; a second where the answer says nothing. */
    long retryAfter() {
        String value = headers.getOrDefault("Retry-After", "");
        return value.matches("[0-9]{1,5}") ? Long.parseLong(value) * Threads.SECOND : Threads.SECOND;
    }

    RedlockdException error() { return RedlockdException.of(this); }

    /**
     * Reads the answer from a connection on which nothing else comes. Throws IOException where it is not whole, or none
     * of redlockd.
     */
    static Answer read(InputStream in) throws IOException {
        Matcher first = STATUS.matcher(line(in));
        if (!first.matches()) throw new IOException("it is not HTTP");
        int status = Integer.parseInt(first.group(1));
        Map<String, String> headers = headers(in);
        byte[] content = status == 204 || status == 304 ? new byte[0] : content(in, headers);
        Object body = content.length == 0 ? Map.of() : parse(content, status);
        boolean known = status == 200 || status == 201 || status == 204 || status == 304;
        if (body instanceof Map && (known || ((Map<?, ?>) body).get("code") instanceof String)) {
            return new Answer(status, headers, (Map<?, ?>) body, true);
        }
        throw new IOException("a strange one with status " + status);
    }

    private static Object parse(byte[] content, int status) throws IOException {
        try {
            return Json.parse(content);
        } catch (IllegalArgumentException error) {
            throw new IOException("a strange one with status " + status + ": " + error.getMessage(), error);
        }
    }

    private static String line(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int each = in.read(); each != '\n'; each = in.read()) {
            if (each < 0) throw new EOFException("the connection was closed");
            if (line.size() == LINE_MAX) throw new IOException("it is too long");
            line.write(each);
        }
        String text = line.toString(StandardCharsets.ISO_8859_1);
        return text.endsWith("\r") ? text.substring(0, text.length() - 1) : text;
    }

    private static Map<String, String> headers(InputStream in) throws IOException {
        Map<String, String> headers = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        int lines = 0;
        for (String line = line(in); !line.isEmpty(); line = line(in)) {
            int colon = line.indexOf(':');
            if (colon < 1 || ++lines > LINES_MAX) throw new IOException("its headers are none");
            headers.put(line.substring(0, colon), line.substring(colon + 1).trim());
        }
        return headers;
    }

    private static byte[] content(InputStream in, Map<String, String> headers) throws IOException {
        String length = headers.get("Content-Length");
        if ("chunked".equalsIgnoreCase(headers.get("Transfer-Encoding"))) return chunks(in);
        return length == null ? part(in, BODY_MAX, false) : part(in, size(length, 10), true);
    }

    private static int size(String number, int radix) throws IOException {
        try {
            int size = Integer.parseUnsignedInt(number, radix);
            if (size >= 0 && size <= BODY_MAX) return size;
        } catch (NumberFormatException error) {
            throw new IOException("it has no length", error);
        }
        throw new IOException("it is too long");
    }

    private static byte[] part(InputStream in, int size, boolean whole) throws IOException {
        byte[] part = in.readNBytes(size);
        if (whole && part.length < size) throw new EOFException("it was cut off");
        return part;
    }

    private static byte[] chunks(InputStream in) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (int size = -1; size != 0;) {
            size = size(line(in).split(";", 2)[0].trim(), 16);
            all.write(part(in, size, true));
            if (all.size() > BODY_MAX || size > 0 && !line(in).isEmpty()) {
                throw new IOException("it is too long, or its parts are none");
            }
        }
        headers(in); // those after the end
        return all.toByteArray();
    }
}
