// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;

/** The connections of a client to one server: those that are idle, and how many requests may have one. */
public final class Pool {
    static final int MOST = 16; // for requests that do not wait, and idle ones
    final Server server;
    final Supplier<String> key; // for each request, or null
    final Supplier<Map<String, String>> headers; // more of them, of the program
    private final Supplier<SSLContext> context; // for each connection
    /** A request that does not wait has one of these while it has a connection. */
    final Semaphore free = new Semaphore(MOST, true);
    private final Deque<Connection> idle = new ArrayDeque<>(); // guarded by this, as the next one; newest last
    private boolean closing; // there is a timer
    private boolean closed;

    public Pool(Server server, Supplier<String> key, Supplier<Map<String, String>> headers,
                Supplier<SSLContext> context) {
        this.headers = headers;
        this.server = server;
        this.key = key;
        this.context = context;
    }

    @Override
    public String toString() { return server.url; }

    Connection open(Exchange exchange) throws IOException, InterruptedException {
        return server.open(context, exchange);
    }

    /** Takes the newest connection that is idle; null if there is none. */
    synchronized Connection take() {
        Connection newest = idle.pollLast();
        if (newest == null || newest.idleTime() > 0) return newest;
        newest.close();
        return take();
    }

    /** Keeps a connection whose answer is whole, until the server may close it. */
    synchronized void keep(Connection connection) {
        if (closed) {
            connection.close();
            return;
        }
        idle.addLast(connection);
        if (idle.size() > MOST) idle.pollFirst().close();
        if (!closing) closeAfter(connection.idleTime());
    }

    /** Closes the idle connections, and each other one after its answer. */
    public synchronized void close() {
        closed = true;
        idle.forEach(Connection::close);
        idle.clear();
    }

    private void closeAfter(long nanos) {
        closing = true;
        Threads.after(nanos, this::closeOld);
    }

    private synchronized void closeOld() {
        idle.removeIf(each -> {
            if (each.idleTime() <= 0) each.close();
            return each.idleTime() <= 0;
        });
        closing = false;
        idle.stream().mapToLong(Connection::idleTime).min().ifPresent(this::closeAfter);
    }
}
