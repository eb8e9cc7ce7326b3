package io.github.redlockd;

import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Ask;
import io.github.redlockd.internal.Exchange;
import io.github.redlockd.internal.Server;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import javax.net.ssl.SSLContext;

/** The servers in their order, which one is in use, and how they are asked. Safe for threads. */
final class Servers {
    final long timeout; // nanoseconds that a server may take to answer, beside what the request waits for
    private final List<Server> all;
    private final String key;
    private final SSLContext context;
    private volatile int inUse;

    Servers(List<Server> all, String key, long timeout, SSLContext context) {
        this.all = all;
        this.key = key;
        this.timeout = timeout;
        this.context = context;
    }

    int count() { return all.size(); }

    /**
     * Asks the server in use. One that gives no answer, or cannot help now, is left for the next one. Who cancels the
     * answer closes the connection.
     */
    CompletableFuture<Answer> ask(Ask ask) {
        int which = inUse;
        Exchange exchange = new Exchange(all.get(which), ask, key, context);
        if (ask.timeout > timeout) exchange.unlessEnded(timeout, () -> watchOver(exchange, all.get(which)));
        CompletableFuture<Answer> answer = exchange.answer.thenApply(result -> {
            if (result.isUndecided() && inUse == which) inUse = (which + 1) % count();
            return result;
        });
        answer.whenComplete((result, error) -> exchange.answer.cancel(false));
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
    private void watchOver(Exchange exchange, Server server) {
        if (!exchange.isSent()) {
            exchange.giveUp("no connection in time");
        } else if (count() > 1) {
            Ask check = new Ask("GET", "/healthz", timeout, Map.of(), Map.of());
            new Exchange(server, check, key, context).answer.thenAccept(answer -> {
                if (answer.status == 0) exchange.giveUp("it does not answer health checks");
                else exchange.unlessEnded(timeout, () -> watchOver(exchange, server));
            });
        }
    }

    /** Asks each server once, until one decides. */
    CompletableFuture<Answer> askEach(Ask ask) { return askEach(ask, count()); }

    private CompletableFuture<Answer> askEach(Ask ask, int left) {
        return ask(ask).thenCompose(answer ->
            answer.isUndecided() && left > 1 ? askEach(ask, left - 1) : CompletableFuture.completedFuture(answer));
    }
}
