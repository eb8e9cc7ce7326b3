// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.internal.Json;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.Consumer;

/** How a lock is acquired. Each call returns new options; none changes the old ones. */
public final class Options {
    final Duration ttl; // null: the server says it
    final Duration wait;
    final Duration margin; // null: a tenth of the ttl
    final Duration atLeast;
    final Consumer<? super Lease> onWanted;
    final Map<String, Object> members; // which are sent as they are

    /** A lease as long as the server says, a wait of 60 seconds, and a margin of a tenth of the ttl. */
    public Options() { this(null, Duration.ofSeconds(60), null, Duration.ZERO, lease -> { }, Map.of()); }

    private Options(Duration ttl, Duration wait, Duration margin, Duration atLeast, Consumer<? super Lease> onWanted,
            Map<String, Object> members) {
        this.ttl = ttl;
        this.wait = wait;
        this.margin = margin;
        this.atLeast = Objects.requireNonNull(atLeast);
        this.onWanted = Objects.requireNonNull(onWanted);
        this.members = members;
    }

    @Override
    public String toString() {
        Map<String, Object> given = new TreeMap<>(members);
        given.put("waitUpTo", wait);
        if (ttl != null) given.put("ttl", ttl);
        if (margin != null) given.put("margin", margin);
        if (!atLeast.isZero()) given.put("atLeast", atLeast);
        return "Options" + given;
    }

    private Options with(String name, Object value) {
        Map<String, Object> copy = new HashMap<>(members);
        copy.put(name, value);
        return new Options(ttl, wait, margin, atLeast, onWanted, copy);
    }

    /**
     * Says how long the lease lasts without a renewal. Otherwise the server says it: 30 seconds, or its largest if that
     * is less.
     *
     * @param ttl the time
     * @return new options
     */
    public Options ttl(Duration ttl) {
        return new Options(ttl, wait, margin, atLeast, onWanted, members);
    }

    /**
     * Says how long to wait for the lock: a minute unless you say more.
     *
     * @param wait the time; {@link Duration#ZERO} does not wait
     * @return new options
     */
    public Options waitUpTo(Duration wait) {
        return new Options(ttl, wait, margin, atLeast, onWanted, members);
    }

    /**
     * Says how long before its end the lease counts as lost: a tenth of the ttl unless you say more.
     *
     * @param margin the time, at most half of the ttl
     * @return new options
     */
    public Options margin(Duration margin) {
        return new Options(ttl, wait, margin, atLeast, onWanted, members);
    }

    /**
     * Keeps others from the lock for so long after it was granted, also if it is released earlier. For a job that must
     * not run twice on machines whose clocks differ, or a resource that needs a pause.
     *
     * @param atLeast the time, at most the ttl; from ten seconds on it is the ttl unless you say another one
     * @return new options
     */
    public Options atLeast(Duration atLeast) { return new Options(ttl, wait, margin, atLeast, onWanted, members); }

    /**
     * Does something each time that others begin to wait for the lock, as its renewals learn it.
     *
     * @param action what to do with the lease, on a thread of the library; its error is logged
     * @return new options
     */
    public Options onWanted(Consumer<? super Lease> action) {
        return new Options(ttl, wait, margin, atLeast, action, members);
    }

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
}
