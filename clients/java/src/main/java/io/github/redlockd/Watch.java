// SPDX-License-Identifier: MIT
package io.github.redlockd;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Ask;
import io.github.redlockd.internal.Threads;
import java.net.URLEncoder;
import java.util.Map;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * One subscriber to the states of a lock. There is one request or pause at a time, and only while the subscriber has
 * asked for a state.
 */
final class Watch implements Flow.Subscription {
    private static final long WAIT = 20 * Term.SECOND;
    private final Servers servers;
    private final String path;
    private final Flow.Subscriber<? super Map<String, Object>> subscriber;
    private final AtomicBoolean ended = new AtomicBoolean();
    private String tag = "\"none\""; // which no state has: the first one comes at once
    private int failures; // in a row
    private long wanted; // guarded by this, as the next two; negative: what is no number
    private boolean idle;
    private Ask open; // the request under way, or null
    private long sent; // the clock before it

    /** From here on the subscriber is told what it asks for. */
    Watch(Servers servers, String resource, Flow.Subscriber<? super Map<String, Object>> subscriber) {
        this.servers = servers;
        this.subscriber = subscriber;
        String name = URLEncoder.encode(Wanted.named(resource).resources.get(0), UTF_8);
        path = Wanted.PATH + "?resource=" + name + "&wait_ms=" + WAIT / Term.MILLISECOND;
        servers.watches.add(this);
        subscriber.onSubscribe(this);
        next(0);
    }

    @Override
    public synchronized void request(long number) {
        wanted = number <= 0 ? -1 : number > Long.MAX_VALUE - wanted ? Long.MAX_VALUE : wanted + number;
        if (idle) next(0);
    }

    @Override
    public synchronized void cancel() {
        end();
        if (open != null) open.cancel();
    }

    /** Asks for the next state, if one is wanted. {@code told}: how many the last request has brought. */
    private synchronized void next(int told) {
        wanted -= wanted == Long.MAX_VALUE ? 0 : told;
        idle = wanted == 0;
        if (idle || ended.get()) return;
        open = new Ask("GET", path, WAIT + servers.timeout, Map.of(), Map.of("If-None-Match", tag));
        sent = Term.clock();
        Ask ask = wanted > 0 ? open : null;
        Threads.run(() -> carryOut(ask));
    }

    private void carryOut(Ask ask) {
        try {
            if (ask == null) throw new IllegalArgumentException("not a number of states");
            answered(servers.ask(ask));
        } catch (Throwable error) {
            if (end()) subscriber.onError(error);
        }
    }

    /** False if it has ended already. */
    private boolean end() {
        servers.watches.remove(this);
        return !ended.getAndSet(true);
    }

    @SuppressWarnings("unchecked") // an object of JSON has only texts as names
    private void answered(Answer answer) {
        if (ended.get()) return;
        failures = answer.isUndecided() ? failures + 1 : 0;
        if (failures == 0 && answer.status != 200 && answer.status != 304) throw RedlockdException.of(answer);
        boolean told = answer.status == 200;
        boolean same = told && tag.equals(answer.headers.getOrDefault("ETag", tag)); // a proxy strips it
        tag = answer.headers.getOrDefault("ETag", tag);
        if (told) subscriber.onNext((Map<String, Object>) answer.body);
        long least = answer.status == 304 ? sent + Term.LEAST - Term.clock() : 0;
        long pause = Math.max(same ? Term.SECOND : servers.pause(answer, failures), least);
        Threads.after(pause, () -> next(told ? 1 : 0));
    }
}
