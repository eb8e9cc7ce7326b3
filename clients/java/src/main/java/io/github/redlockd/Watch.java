package io.github.redlockd;

import java.util.Map;
import java.util.concurrent.Flow;
import java.util.concurrent.ThreadLocalRandom;

/** One subscriber to the states of a lock. A request is open only while the subscriber has asked for a state. */
final class Watch implements Flow.Subscription {
    private static final System.Logger LOG = System.getLogger(Watch.class.getPackageName());
    private static final long WAIT = 20 * Threads.SECOND;
    private final Servers servers;
    private final String path;
    private final Flow.Subscriber<? super Map<String, Object>> subscriber;
    private String tag = "\"none\""; // which no state has: the first one comes at once
    private int failures;
    private long wanted; // guarded by this, as the next two
    private boolean asking;
    private boolean ended;
    private volatile Exchange open;

    Watch(Servers servers, String resource, Flow.Subscriber<? super Map<String, Object>> subscriber) {
        this.servers = servers;
        this.subscriber = subscriber;
        path = Ask.pathOf(resource) + "?wait_ms=" + WAIT / 1_000_000;
    }

    @Override
    public void request(long number) {
        synchronized (this) {
            wanted = number > Long.MAX_VALUE - wanted ? Long.MAX_VALUE : wanted + number;
        }
        if (number <= 0) {
            fail(new IllegalArgumentException("not a number of states: " + number));
        } else {
            askIfWanted();
        }
    }

    @Override
    public void cancel() {
        end();
        Exchange exchange = open;
        if (exchange != null) {
            exchange.cancel();
        }
    }

    /** False: it has ended before. */
    private synchronized boolean end() {
        boolean first = !ended;
        ended = true;
        return first;
    }

    private void fail(Throwable why) {
        if (end()) {
            Threads.POOL.execute(() -> subscriber.onError(why));
        }
    }

    private synchronized boolean begin() {
        boolean begins = wanted > 0 && !asking && !ended;
        asking |= begins;
        return begins;
    }

    private void askIfWanted() {
        if (begin()) {
            ask();
        }
    }

    private synchronized boolean hasEnded() {
        return ended;
    }

    private void ask() {
        open = servers.ask(new Ask("GET", path, WAIT + servers.timeout, null, "If-None-Match", tag));
        if (hasEnded()) {
            open.cancel();
        }
        open.answer.thenAcceptAsync(this::answered, Threads.POOL);
    }

    private void answered(Answer answer) {
        if (hasEnded()) {
            return;
        }
        failures = answer.isUndecided() ? failures + 1 : 0;
        if (answer.status == 200) {
            tell(answer);
        } else if (answer.status == 304) {
            ask();
        } else if (answer.isUndecided()) {
            LOG.log(System.Logger.Level.DEBUG, "watch: {0}", answer.error().getMessage());
            long pause = answer.retryAfter() + ThreadLocalRandom.current().nextLong(Threads.SECOND);
            Threads.after(failures % servers.count != 0 ? 0 : pause, this::ask);
        } else {
            fail(answer.error());
        }
    }

    @SuppressWarnings("unchecked") // an object of JSON has only texts as names
    private void tell(Answer answer) {
        tag = answer.headers.getOrDefault("ETag", tag);
        try {
            subscriber.onNext((Map<String, Object>) answer.body);
        } catch (RuntimeException error) {
            LOG.log(System.Logger.Level.ERROR, "a subscriber failed", error);
            end();
        }
        synchronized (this) {
            wanted -= wanted == Long.MAX_VALUE ? 0 : 1;
            asking = false;
        }
        askIfWanted();
    }
}
