package io.github.redlockd;

import io.github.redlockd.internal.Json;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** How a lock is acquired. Each call returns new options; none changes the old ones. */
public final class Options {
    private final Map<String, Object> values;

    /** A lease of 30 seconds, a wait of 60, and a margin of a tenth of the ttl. */
    public Options() { this(new HashMap<>()); }

    private Options(Map<String, Object> values) { this.values = values; }

    private Options with(String name, Object value) {
        Map<String, Object> copy = new HashMap<>(values);
        copy.put(name, value);
        return new Options(copy);
    }

    /**
     * Says how long the lease lasts without a renewal: 30 seconds unless you say more.
     *
     * @param ttl the time
     * @return new options
     */
    public Options ttl(Duration ttl) { return with("ttl", ttl); }

    /**
     * Says how long to wait for the lock: a minute unless you say more.
     *
     * @param wait the time; {@link Duration#ZERO} does not wait
     * @return new options
     */
    public Options waitUpTo(Duration wait) { return with("wait", wait); }

    /**
     * Says how long before its end the lease counts as lost: a tenth of the ttl unless you say more.
     *
     * @param margin the time, at most half of the ttl
     * @return new options
     */
    public Options margin(Duration margin) { return with("margin", margin); }

    /**
     * Labels the lease for all who may inspect the lock.
     *
     * @param owner the label
     * @return new options
     */
    public Options owner(String owner) { return with("owner", owner); }

    /**
     * Adds data for whoever inspects the lock.
     *
     * @param metadata texts, numbers, booleans, null, maps and lists of them
     * @return new options
     */
    public Options metadata(Map<String, ?> metadata) { return with("metadata", Json.parse(Json.write(metadata))); }

    /**
     * Acquires the lock with others that are shared, instead of alone.
     *
     * @return new options
     */
    public Options shared() { return with("mode", "shared"); }

    /**
     * Lets at most so many hold the lock at once: {@link Lease#slot} is the number of each.
     *
     * @param slots how many
     * @return new options
     */
    public Options slots(int slots) { return with("slots", slots); }

    long nanos(String name, long otherwise) {
        Duration value = (Duration) values.get(name);
        return value == null ? otherwise : Term.nanos(value);
    }

    /** What is sent as it is. {@code owner}: where the options name none. */
    Map<String, Object> members(String owner) {
        Map<String, Object> members = new HashMap<>(values);
        members.keySet().retainAll(List.of("owner", "metadata", "mode", "slots"));
        members.putIfAbsent("owner", owner);
        members.values().removeIf(Objects::isNull);
        return members;
    }
}
