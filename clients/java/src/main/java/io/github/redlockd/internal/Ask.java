package io.github.redlockd.internal;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/** A request to whichever server is in use; {@code timeout}, in nanoseconds, is for all of it. */
public final class Ask {
    public final long timeout;
    private final String method;
    private final String path;
    private final Map<String, String> headers;
    private final String content;

    /** {@code body}: empty for none. */
    public Ask(String method, String path, long timeout, Map<String, ?> body, Map<String, String> headers) {
        this.method = method;
        this.path = path;
        this.timeout = timeout;
        this.headers = headers;
        content = body.isEmpty() ? "" : Json.write(body);
    }

    /** The request as it is sent. {@code key}: that of the API, or null. */
    byte[] bytes(Server server, String key) {
        StringBuilder text = new StringBuilder(method + " " + server.prefix + path + " HTTP/1.1\r\n");
        text.append("Host: " + server.authority + "\r\nConnection: close\r\nUser-Agent: redlockd-java\r\n");
        text.append("Content-Length: " + content.getBytes(StandardCharsets.UTF_8).length + "\r\n");
        if (!content.isEmpty()) text.append("Content-Type: application/json\r\n");
        if (key != null) text.append("Authorization: Bearer " + key + "\r\n");
        headers.forEach((name, value) -> text.append(name + ": " + value + "\r\n"));
        return text.append("\r\n" + content).toString().getBytes(StandardCharsets.UTF_8);
    }
}
