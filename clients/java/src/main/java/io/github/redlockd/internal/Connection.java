// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A connection to a server, for one request after the other. One thread uses it at a time; any may close it. */
final class Connection {
    private static final int HEAD_MAX = 16 << 10, LINES_MAX = 200, BODY_MAX = 1 << 20;
    private static final long SECOND = 1_000_000_000;
    private static final Pattern STATUS = Pattern.compile("HTTP/1\\.([01]) ([1-5][0-9][0-9])(?: .*)?");
    private static final Pattern CLOSE = Pattern.compile("(?i)(?:.*,)?\\s*close\\s*(?:,.*)?");
    private static final Pattern TIMEOUT = Pattern.compile("(?i)\\btimeout=\"?([0-9]{1,6})");
    final Closeable below; // TLS: closing it neither writes nor waits
    private final InputStream in;
    private final OutputStream out;
    private final byte[] buffer = new byte[8 << 10];
    private int at; // in the buffer
    private int end;
    private int headLeft; // bytes that a head may still have
    boolean answered; // a byte of the answer to the last request has come
    boolean kept; // another request can be sent after this answer
    private long idleUntil;

    Connection(Closeable below, InputStream in, OutputStream out) {
        this.below = below;
        this.in = in;
        this.out = out;
    }

    void close() { close(below); }

    static void close(Closeable opened) {
        try {
            opened.close();
        } catch (IOException error) {
            // it is not used any more
        }
    }

    /** Nanoseconds until the server may close it. */
    long idleTime() { return idleUntil - System.nanoTime(); }

    /** Sends a request and reads the answer. Throws where it is not whole, or none of redlockd. */
    Answer ask(byte[] request, String method) throws IOException {
        answered = false;
        kept = false;
        out.write(request);
        out.flush();
        Matcher first;
        Map<String, String> headers;
        int status;
        do { // interim answers come before the one that counts
            headLeft = HEAD_MAX;
            first = STATUS.matcher(line());
            if (!first.matches()) throw new IOException("it is not HTTP");
            status = Integer.parseInt(first.group(2));
            headers = headers();
        } while (status < 200 && status != 101);
        kept = first.group(1).equals("1") && !CLOSE.matcher(headers.getOrDefault("Connection", "")).matches();
        byte[] content = content(status, headers);
        Matcher timeout = TIMEOUT.matcher(headers.getOrDefault("Keep-Alive", ""));
        long idle = timeout.find() ? Long.parseLong(timeout.group(1)) - 1 : 5;
        idleUntil = System.nanoTime() + idle * SECOND;
        kept &= idle > 0 && at == end;
        return Answer.of(method, status, headers, content);
    }

    private boolean fill() throws IOException {
        at = 0;
        end = Math.max(0, in.read(buffer));
        answered |= end > 0;
        return end > 0;
    }

    private String line() throws IOException {
        StringBuilder line = new StringBuilder();
        while (true) {
            if (at == end && !fill()) throw new EOFException("the connection was closed");
            char each = (char) (buffer[at++] & 0xff);
            if (each == '\n') return line.toString().trim();
            if (--headLeft < 0) throw new IOException("its head is too long");
            line.append(each);
        }
    }

    private Map<String, String> headers() throws IOException {
        Map<String, String> headers = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        for (int lines = 0; lines < LINES_MAX; lines++) {
            String[] parts = line().split(":", 2);
            if (parts.length == 1 && parts[0].isEmpty()) return headers;
            headers.put(parts[0], parts[parts.length - 1].trim());
        }
        throw new IOException("it has too many headers");
    }

    private byte[] content(int status, Map<String, String> headers) throws IOException {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        String length = headers.get("Content-Length"), coding = headers.get("Transfer-Encoding");
        if (status == 204 || status == 304) return content.toByteArray();
        if (coding != null) {
            if (!coding.equalsIgnoreCase("chunked")) throw new IOException("it has an unknown coding");
            for (int size = chunk(); size > 0; size = chunk()) {
                copy(size, content);
                if (!line().isEmpty()) throw new IOException("a part of it has no end");
            }
            headers(); // those behind the content do not count
        } else if (length != null) {
            copy(number(length, 10), content);
        } else {
            kept = false;
            while (at < end || fill()) {
                copy(end - at, content);
            }
        }
        return content.toByteArray();
    }

    private int chunk() throws IOException {
        headLeft = HEAD_MAX;
        return number(line().split(";", 2)[0].trim(), 16);
    }

    private static int number(String text, int radix) throws IOException {
        if (!text.matches("[0-9a-fA-F]{1,7}")) throw new IOException("it has a length that cannot be used");
        return Integer.parseInt(text, radix);
    }

    private void copy(int size, ByteArrayOutputStream content) throws IOException {
        if (size > BODY_MAX - content.size()) throw new IOException("it is too long");
        for (int left = size; left > 0;) {
            if (at == end && !fill()) throw new EOFException("it was cut off");
            int part = Math.min(left, end - at);
            content.write(buffer, at, part);
            at += part;
            left -= part;
        }
    }
}
