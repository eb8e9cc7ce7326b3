// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.io.Closeable;
import java.io.IOException;
import java.security.cert.CertificateException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * One request to one server. The thread that runs it carries it out; other threads may give it up, which closes the
 * connection and ends the wait of that thread. So does an interrupt.
 */
public final class Exchange {
    private final Pool pool;
    private final Ask ask;
    private final boolean counts; // among those that share the few connections
    private boolean entered; // it is one of them
    private volatile boolean sent;
    private Closeable opened = () -> { }; // guarded by this, as the next one
    private String ended; // why it was given up

    /** {@code waits}: the server may let it wait, on a connection of its own. */
    public Exchange(Pool pool, Ask ask, boolean waits) {
        this.pool = pool;
        this.ask = ask;
        counts = !waits && !ask.once;
    }

    /** Once this is true, the request may be carried out. */
    public boolean isSent() { return sent; }

    /** True after run() if its time ended before it had one of the connections: the server has seen nothing of it. */
    public boolean isQueued() { return counts && !entered; }

    /** Returns the answer, or one of the library's own that says why there is none. */
    public Answer run() throws InterruptedException {
        Future<?> limit = Threads.after(ask.timeout, () -> giveUp("it does not answer in time"));
        try {
            ask.isCarriedOutBy(this);
            entered = counts && pool.free.tryAcquire(ask.timeout, TimeUnit.NANOSECONDS);
            if (isQueued()) throw new IOException("no connection was free in time");
            return carryOut();
        } catch (IOException | RuntimeException error) {
            if (Thread.interrupted()) throw new InterruptedException();
            return none(error);
        } finally {
            limit.cancel(false);
            giveUp("it has ended");
            if (entered) pool.free.release();
        }
    }

    private Answer carryOut() throws IOException, InterruptedException {
        Connection kept = ask.once ? null : pool.take();
        if (kept != null) {
            try {
                return carryOut(kept);
            } catch (IOException error) { // the server may have closed it before: on a new one again, at once
                if (kept.answered || isOver() || Thread.currentThread().isInterrupted()) throw error;
                kept.close();
            }
        }
        return carryOut(pool.open(this));
    }

    private Answer carryOut(Connection connection) throws IOException {
        use(connection.below);
        sent = true;
        Answer answer = connection.ask(ask.bytes(pool.server, pool.key.get(), pool.headers), ask.method);
        String wrong = ask.whatIsWrong(answer);
        if (wrong != null) throw new IOException(wrong);
        if (!ask.once && connection.kept && leaves()) pool.keep(connection);
        return answer;
    }

    /** From here on this is closed where the exchange is given up. */
    synchronized void use(Closeable used) throws IOException {
        opened = used;
        if (ended == null) return;
        Connection.close(used);
        throw new IOException(ended);
    }

    /** Lets go of the connection; false if it is closed. */
    private synchronized boolean leaves() {
        opened = () -> { };
        return ended == null;
    }

    /** True once it is given up or has its answer. */
    public synchronized boolean isOver() { return ended != null; }

    /** There is no answer. The connection is closed before anybody can send the request again. */
    public synchronized void giveUp(String why) {
        if (ended == null) ended = why;
        Connection.close(opened);
    }

    private synchronized Answer none(Exception error) {
        boolean certificate = error.getCause() instanceof CertificateException;
        String why = ended != null ? ended : (certificate ? "its certificate is not trusted: " : "") + error;
        return Answer.none(pool.server.url + ": " + why, sent, error);
    }
}
