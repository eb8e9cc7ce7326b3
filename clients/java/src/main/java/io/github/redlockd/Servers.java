package io.github.redlockd;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.SSLContext;

/** The servers in their order, which one is in use, and how they are asked. Safe for threads. */
final class Servers {
    final int count;
    final long timeout; // nanoseconds that a server may take to answer, beside what the request waits for
    private final List<Server> all;
    private final String key;
    private final SSLContext context;
    private int inUse; // guarded by this

    Servers(List<Server> all, String key, long timeout, SSLContext context) {
        this.all = all;
        this.key = key;
        this.timeout = timeout;
        this.context = context;
        count = all.size();
    }

    private synchronized Server current() { return all.get(inUse); }

    /** A server that gives no answer, or cannot help now, is left for the next one. */
    private synchronized void note(Server server, Answer answer) {
        if (answer.isUndecided() && all.get(inUse) == server) inUse = (inUse + 1) % count;
    }

    private Exchange start(Server server, Ask ask, boolean counts) {
        byte[] request = ask.bytes(server.prefix, server.authority, key);
        return new Exchange(server, answer -> {
            if (counts) note(server, answer);
        }).start(request, context, ask.timeout);
    }

    /** Asks the server in use. */
    Exchange ask(Ask ask) {
        Server server = current();
        Exchange exchange = start(server, ask, true);
        if (ask.timeout > timeout) exchange.unlessEnded(timeout, () -> watchOver(exchange, server));
        return exchange;
    }

    /**
     * A server that hangs keeps its connections: if there is another one, it is given up as soon as it answers no
     * health check.
     */
    private void watchOver(Exchange exchange, Server server) {
        if (!exchange.isSent()) {
            exchange.giveUp("no connection in time");
        } else if (count > 1) {
            start(server, new Ask("GET", "/healthz", timeout, null, null, null), false).answer.thenAccept(answer -> {
                if (answer.status == 0) {
                    exchange.giveUp("it does not answer health checks");
                } else {
                    exchange.unlessEnded(timeout, () -> watchOver(exchange, server));
                }
            });
        }
    }

    /** Asks each server once, until one decides. */
    CompletableFuture<Answer> askEach(Ask ask) { return askEach(ask, count); }

    private CompletableFuture<Answer> askEach(Ask ask, int left) {
        return ask(ask).answer.thenCompose(answer ->
            answer.isUndecided() && left > 1 ? askEach(ask, left - 1) : CompletableFuture.completedFuture(answer));
    }
}
