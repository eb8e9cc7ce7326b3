package io.github.redlockd;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** What is asked for: one resource, or all of several at once. Times are nanoseconds. */
final class Wanted {
    private static final long RELEASE_TIMEOUT = 2 * Threads.SECOND;
    final List<String> resources;
    final long ttl;
    final long wait;
    final long margin;
    final Map<String, Object> body = new HashMap<>(); // of a POST
    private final String path; // of a PUT or DELETE
    private final Map<String, Object> names; // in a PUT or DELETE

    Wanted(String resource, Options options, String owner) {
        this(List.of(resource), Ask.pathOf(resource), Map.of(), options, owner);
        body.put("resource", resource);
    }

    Wanted(Collection<String> resources, Options options, String owner) {
        this(List.copyOf(resources), "/locks", Map.of("resources", List.copyOf(resources)), options, owner);
        body.putAll(names);
    }

    private Wanted(List<String> resources, String path, Map<String, Object> names, Options options, String owner) {
        this.resources = resources;
        this.path = path;
        this.names = names;
        ttl = options.time("ttl", 30 * Threads.SECOND);
        wait = options.time("wait", 60 * Threads.SECOND);
        margin = options.time("margin", ttl / 10);
        if (ttl < 1_000_000 || wait < 0 || margin < 0 || margin > ttl / 2) {
            throw new IllegalArgumentException("ttl must be positive, wait not negative, margin at most half of ttl");
        }
        body.put("ttl_ms", ttl / 1_000_000);
        body.put("owner", owner);
        options.putMembers(body);
        body.values().removeIf(Objects::isNull);
    }

    /** A request that acquires; {@code wait}: how long it waits in the queue. */
    Ask post(String key, long wait, long timeout) {
        body.put("wait_ms", wait / 1_000_000);
        return new Ask("POST", "/locks", timeout, body, "Idempotency-Key", key);
    }

    Ask put(String token, long timeout) {
        Map<String, Object> sent = new HashMap<>(names);
        sent.put("ttl_ms", body.get("ttl_ms"));
        return new Ask("PUT", path, timeout, sent, "Lock-Token", token);
    }

    Ask delete(String token, long timeout) {
        Map<String, Object> sent = names.isEmpty() ? null : names;
        return new Ask("DELETE", path, Math.min(timeout, RELEASE_TIMEOUT), sent, "Lock-Token", token);
    }
}
