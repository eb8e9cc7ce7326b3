package io.github.redlockd;

import io.github.redlockd.internal.Json;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** A request to whichever server is in use; {@code timeout}, in nanoseconds, is for all of it. */
final class Ask {
    final String method;
    final String path;
    final long timeout;
    private final String headers;
    private final byte[] content;

    /** {@code body}: null for none. {@code header}, {@code value}: one more of them, or null. */
    Ask(String method, String path, long timeout, Map<String, ?> body, String header, String value) {
        this.method = method;
        this.path = path;
        this.timeout = timeout;
        headers = (header == null ? "" : header + ": " + value + "\r\n")
            + (body == null ? "" : "Content-Type: application/json\r\n");
        content = body == null ? new byte[0] : Json.write(body).getBytes(StandardCharsets.UTF_8);
    }

    static String pathOf(String resource) {
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(resource)) {
            throw new IllegalArgumentException("a name with half a character");
        }
        return "/locks/" + URLEncoder.encode(resource, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** The request as it is sent. */
    byte[] bytes(String prefix, String authority, String key) {
        String head = method + " " + prefix + path + " HTTP/1.1\r\nHost: " + authority
            + "\r\nConnection: close\r\nUser-Agent: redlockd-java\r\nContent-Length: " + content.length + "\r\n"
            + (key == null ? "" : "Authorization: Bearer " + key + "\r\n") + headers + "\r\n";
        byte[] before = head.getBytes(StandardCharsets.UTF_8), all = new byte[before.length + content.length];
        System.arraycopy(before, 0, all, 0, before.length);
        System.arraycopy(content, 0, all, before.length, content.length);
        return all;
    }
}
