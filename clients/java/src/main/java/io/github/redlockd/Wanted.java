// SPDX-License-Identifier: MIT
package io.github.redlockd;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Ask;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Function;

/** What is asked for: one resource, or all of several at once. Times are nanoseconds. */
final class Wanted {
    static final String PATH = "/locks"; // no path names a lock: proxies may refuse or rewrite it
    private static final long RELEASE_TIMEOUT = 2 * Term.SECOND;
    /** From here on atLeast is the ttl, too: a shorter one is not worth its renewals. */
    private static final long TTL_OF_AT_LEAST = 10 * Term.SECOND;
    final List<String> resources;
    final long wait;
    final long atLeast; // after the grant: nobody else gets the lock before
    final Consumer<? super Lease> onWanted;
    private final String ttlName; // of the option that has it
    private final Duration margin; // null: a tenth of the ttl
    private final Map<String, Object> body = new HashMap<>(); // of a POST
    final int slots; // 0: none were asked for
    final Map<String, Object> names; // the part of it that a PUT or DELETE has, too

    Wanted(Collection<String> resources, Options options, String owner) {
        this.resources = List.copyOf(resources);
        if (!UTF_8.newEncoder().canEncode(String.join(" ", resources))) {
            throw new IllegalArgumentException("a name with half a character");
        }
        names = resources.size() == 1 ? Map.of("resource", this.resources.get(0)) : Map.of("resources", this.resources);
        wait = Term.nanos(options.wait);
        slots = (Integer) options.members.getOrDefault("slots", 0);
        margin = options.margin;
        atLeast = Term.nanos(options.atLeast);
        onWanted = options.onWanted;
        boolean both = options.ttl == null && atLeast >= TTL_OF_AT_LEAST;
        ttlName = both ? "atLeast" : "ttl";
        Duration given = both ? options.atLeast : options.ttl; // a server that grants it also keeps a lock for so long
        long ttl = given == null ? Long.MAX_VALUE : Term.nanos(given); // null: the server says it
        long chosen = margin == null ? 0 : Term.nanos(margin);
        check(ttl >= Term.MILLISECOND, "ttl must be a millisecond or longer: ", options.ttl);
        check(wait >= 0, "waitUpTo must not be negative: ", options.wait);
        check(atLeast >= 0 && atLeast <= ttl, "atLeast must be from zero to ttl: ", options.atLeast);
        check(chosen >= 0 && chosen <= ttl / 2, "margin must be from zero to half of ttl: ", margin);
        body.put("owner", owner);
        body.putAll(options.members);
        body.values().removeIf(Objects::isNull);
        if (given != null) body.put("ttl_ms", ttl / Term.MILLISECOND);
        body.putAll(names);
    }

    private static void check(boolean good, String rule, Duration given) {
        if (!good) throw new IllegalArgumentException(rule + given);
    }

    /** The error of an acquisition. */
    RedlockdException errorOf(Answer answer) {
        RedlockdException error = RedlockdException.of(answer);
        return error instanceof RedlockdException.Locked ? new RedlockdException.Locked(answer, resources)
            : error instanceof RedlockdException.InvalidRequest ? new RedlockdException.InvalidRequest(answer, ttlName)
            : error;
    }

    long margin(long ttl) { return margin == null ? ttl / 10 : Math.min(Term.nanos(margin), ttl / 2); }

    /** One lock, by its name alone. */
    static Wanted named(String resource) { return new Wanted(List.of(resource), new Options(), null); }

    /**
     * A request that acquires; {@code wait}: how long it waits in the queue; {@code begun}: the clock before the first
     * request with this key.
     */
    Ask post(String key, long wait, long timeout, long begun) {
        body.put("wait_ms", wait / Term.MILLISECOND);
        Object ttl = body.getOrDefault("ttl_ms", Answer.NUMBER_MAX);
        return new Ask("POST", PATH, timeout, body, Map.of("Idempotency-Key", key), false, answer -> {
            double passed = 1 + (Term.clock() - begun) / (double) Term.MILLISECOND;
            boolean waited = !answer.body.containsKey("waited_ms")
                || answer.number("waited_ms") >= 0 && 0.99 * answer.number("waited_ms") <= passed;
            boolean slot = slots == 0 || answer.number("slot") >= 0 && answer.number("slot") < slots;
            return wrong(answer, "[0-9a-f]{40}", (Long) ttl, waited ? slot ? "" : "slot" : "waited_ms");
        });
    }

    /** Says what is wrong with an answer that should be a lease; null: nothing, or it is an error. */
    private String wrong(Answer answer, String token, long ttl, String otherwise) {
        if (answer.status >= 400) return null;
        long given = answer.number("ttl_ms"), validity = answer.number("validity_ms");
        String name = names.keySet().iterator().next();
        Object named = answer.body.get(name), asked = names.get(name);
        boolean same = named instanceof List && asked instanceof List
            ? new HashSet<>((List<?>) named).equals(new HashSet<>(resources)) : asked.equals(named);
        String wrong = !same ? name : !answer.text("token", "").matches(token) ? "token"
            : answer.number("fence") < 1 ? "fence" : given < 1 || given > ttl ? "ttl_ms"
            : validity < 1 || validity > given ? "validity_ms" : otherwise;
        return wrong.isEmpty() ? null : "a strange lease: " + wrong + " is not what was asked for";
    }

    /** One of the leases that a request extends. {@code ttl}: 0 leaves it to the server. */
    Map<String, Object> extension(String token, long ttl) {
        Map<String, Object> item = new HashMap<>(names);
        item.put("token", token);
        if (ttl > 0) item.put("ttl_ms", ttl / Term.MILLISECOND);
        return item;
    }

    /** Says what is wrong with the answer to it; null: nothing, or it is an error. */
    Function<Answer, String> extensionCheck(String token, long ttl) {
        return answer -> {
            boolean number = !answer.body.containsKey("waiters") || answer.number("waiters") >= 0;
            return wrong(answer, token, ttl > 0 ? ttl / Term.MILLISECOND : Answer.NUMBER_MAX, number ? "" : "waiters");
        };
    }

    /** {@code keep}: nobody gets the lock for so long then. */
    Ask delete(String token, long timeout, long keep) {
        Map<String, Object> sent = new HashMap<>(names);
        if (keep > 0) sent.put("keep_ms", (keep - 1) / Term.MILLISECOND + 1);
        return new Ask("DELETE", PATH, Math.min(timeout, RELEASE_TIMEOUT), sent, Map.of("Lock-Token", token));
    }
}
