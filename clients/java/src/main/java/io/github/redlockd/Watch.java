package io.github.redlockd;

import java.util.Map;
import java.util.concurrent.Flow;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * One subscriber to the states of a lock. It has a thread of the pool until its end. A request is open only while the
 * subscriber has asked for a state.
 */
final class Watch implements Flow.Subscription, Runnable {
    private static final long WAIT = 20 * Threads.SECOND;
    private final Servers servers;
    private final String path;
    private final Flow.Subscriber<? super Map<String, Object>> subscriber;
    private String tag = "\"none\""; // which no state has: the first one comes at once
    private long wanted; // guarded by this, as the next two
    private boolean ended;
    private Exchange open;

    Watch(Servers servers, String resource, Flow.Subscriber<? super Map<String, Object>> subscriber) {
        this.servers = servers;
        this.subscriber = subscriber;
        path = Ask.pathOf(resource) + "?wait_ms=" + WAIT / 1_000_000;
    }

    @Override
    public synchronized void request(long number) {
        wanted = number <= 0 ? -1 : number > Long.MAX_VALUE - wanted ? Long.MAX_VALUE : wanted + number;
        notifyAll();
    }

    @Override
    public synchronized void cancel() {
        ended = true;
        notifyAll();
        if (open != null) open.cancel();
    }

    @Override
    public void run() {
        try {
            for (int failures = 0; isWanted();) {
                Answer answer = ask();
                failures = answer.isUndecided() ? failures + 1 : 0;
                if (failures > 0 && failures % servers.count == 0) pause(answer.retryAfter());
                if (answer.status == 200) {
                    String sent = tag;
                    tell(answer);
                    if (tag.equals(sent)) pause(Threads.SECOND); // a proxy strips it, or the one that was sent
                } else if (answer.status != 304 && failures == 0) throw answer.error();
            }
        } catch (RuntimeException | InterruptedException error) {
            subscriber.onError(error);
        }
    }

    /** Waits until a state is wanted; false: none any more. */
    private synchronized boolean isWanted() throws InterruptedException {
        while (wanted == 0 && !ended) wait();
        if (wanted < 0 && !ended) throw new IllegalArgumentException("not a number of states");
        return !ended;
    }

    private Answer ask() {
        Exchange exchange = servers.ask(new Ask("GET", path, WAIT + servers.timeout, null, "If-None-Match", tag));
        synchronized (this) {
            open = exchange;
            if (ended) open.cancel();
        }
        return exchange.answer.join();
    }

    private synchronized void pause(long nanos) throws InterruptedException {
        long end = Threads.clock() + nanos + ThreadLocalRandom.current().nextLong(Threads.SECOND);
        for (long left; !ended && (left = end - Threads.clock()) > 0;) { // request() wakes it, too
            TimeUnit.NANOSECONDS.timedWait(this, left);
        }
    }

    @SuppressWarnings("unchecked") // an object of JSON has only texts as names
    private void tell(Answer answer) {
        synchronized (this) {
            if (ended) return;
            wanted -= wanted == Long.MAX_VALUE ? 0 : 1;
        }
        tag = answer.headers.getOrDefault("ETag", tag);
        subscriber.onNext((Map<String, Object>) answer.body);
    }
}
