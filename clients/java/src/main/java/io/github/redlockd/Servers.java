// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Ask;
import io.github.redlockd.internal.Exchange;
import io.github.redlockd.internal.Lanes;
import io.github.redlockd.internal.Pool;
import io.github.redlockd.internal.Threads;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;

/** The servers in their order, which one is in use, and how they are asked. Safe for threads. */
final class Servers {
    final long timeout; // nanoseconds that a server may take to answer, beside what the request waits for
    final Lanes background = new Lanes(); // renewals, and releases at the end of the program
    final Renewals renewals = new Renewals(this);
    private final List<Pool> all;
    private volatile int inUse;
    private volatile boolean closed;
    final Set<Watch> watches = ConcurrentHashMap.newKeySet(); // that have not ended

    Servers(List<Pool> all, long timeout) {
        this.all = all;
        this.timeout = timeout;
    }

    int count() { return all.size(); }

    void checkOpen() { if (closed) throw new IllegalStateException("the client is closed"); }

    /** Ends the acquisitions and watches, releases the leases, and closes the connections. */
    void close() {
        closed = true;
        boolean interrupted = Thread.interrupted();
        watches.forEach(Watch::cancel);
        Acquisition.endAll(each -> each == this);
        Lease.releaseAll(each -> each == this);
        all.forEach(Pool::close);
        Clients.remove(this);
        if (interrupted) Thread.currentThread().interrupt();
    }

    @Override
    public String toString() { return all.toString(); }

    /** Asks the server in use. One that fails is left for the next one. An interrupt closes the connection. */
    Answer ask(Ask ask) throws InterruptedException { return ask(ask, new boolean[count()]); }

    private Answer ask(Ask ask, boolean[] asked) throws InterruptedException {
        int which = inUse;
        while (asked[which]) {
            which = (which + 1) % count();
        }
        asked[which] = true;
        boolean waits = ask.timeout > timeout;
        Pool server = all.get(which);
        Exchange exchange = new Exchange(server, ask, waits);
        Future<?> watch = waits ? watchOver(exchange, server) : CompletableFuture.completedFuture(null);
        try {
            Answer answer = exchange.run();
            boolean failed = ask.isFailedBy(answer) && !exchange.isQueued() && !ask.isCancelled();
            if (failed && inUse == which) inUse = (which + 1) % count();
            return answer;
        } finally {
            watch.cancel(false);
        }
    }

    /**
     * Requests that go to each server once at most. An interrupt repeats a request, but for one that must not be sent
     * twice: there is no answer to that one.
     */
    final class Round {
        private boolean[] asked = new boolean[count()];
        private int left = count();

        int left() { return left; }

        /** From here on, the servers that the copy asks count for it alone. */
        Round copy() {
            Round copy = new Round();
            copy.asked = asked.clone();
            copy.left = left;
            return copy;
        }

        Answer ask(Ask ask) {
            left--;
            boolean interrupted = Thread.interrupted();
            try {
                while (true) {
                    boolean[] now = asked.clone();
                    try {
                        Answer answer = Servers.this.ask(ask, now);
                        asked = now;
                        return answer;
                    } catch (InterruptedException error) {
                        interrupted = true;
                        if (ask.once) return Answer.none("it was interrupted", true, error);
                    }
                }
            } finally {
                if (interrupted) Thread.currentThread().interrupt();
            }
        }
    }

    /** Asks each server once, until one decides. */
    Answer askEach(Ask ask) {
        Round round = new Round();
        Answer answer = round.ask(ask);
        while (ask.isFailedBy(answer) && round.left() > 0) {
            answer = round.ask(ask);
        }
        return answer;
    }

    /** Nanoseconds before the next request of a caller that has had so many failures in a row. */
    long pause(Answer answer, int failures) {
        if (failures == 0 || failures % count() != 0) return 0; // there is a server that did not fail
        return answer.retryAfter() + ThreadLocalRandom.current().nextLong(Term.SECOND);
    }

    /**
     * A server that hangs keeps its connections: if there is another one, it is given up as soon as it answers no
     * health check.
     */
    private Future<?> watchOver(Exchange exchange, Pool server) {
        return Threads.after(timeout, () -> {
            if (!exchange.isSent()) exchange.giveUp("no connection in time");
            else if (count() > 1) Threads.run(() -> check(exchange, server));
        });
    }

    private void check(Exchange exchange, Pool server) {
        Ask check = new Ask("GET", "/healthz", timeout, Map.of(), Map.of(), true, each -> null);
        try {
            Answer answer = new Exchange(server, check, false).run();
            if (answer.status == 0) exchange.giveUp("it does not answer health checks");
            else if (!exchange.isOver()) watchOver(exchange, server);
        } catch (InterruptedException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
