package io.github.redlockd;

import java.io.Closeable;
import java.io.IOException;
import java.security.cert.CertificateException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;

/**
 * One request to one server, on a connection of its own: its end says that the answer is whole or cut off.
 *
 * <p>A thread of the pool carries it out. Whatever ends it (the answer, its time limit, any thread that cancels it)
 * closes the connection, which also ends the wait of that thread.
 */
final class Exchange {
    final CompletableFuture<Answer> answer = new CompletableFuture<>();
    private final Server server;
    private final AtomicBoolean ended = new AtomicBoolean();
    private final Consumer<Answer> before;
    private volatile boolean sent;
    private Closeable connection; // guarded by this

    /** {@code before}: is told the answer before anybody else; not if the exchange is cancelled. */
    Exchange(Server server, Consumer<Answer> before) {
        this.server = server;
        this.before = before;
    }

    Exchange start(byte[] request, SSLContext context, long timeout) {
        unlessEnded(timeout, () -> giveUp("it does not answer in time"));
        Threads.POOL.execute(() -> carryOut(request, context));
        return this;
    }

    /** Once this is true, the request may be carried out. */
    boolean isSent() { return sent; }

    private void carryOut(byte[] request, SSLContext context) {
        try {
            end(server.ask(request, context, this::keep, () -> sent = true));
        } catch (IOException | RuntimeException error) {
            boolean certificate = error.getCause() instanceof CertificateException;
            giveUp((certificate ? "its certificate is not trusted: " : "") + error);
        }
    }

    private synchronized void keep(Closeable opened) {
        connection = opened;
        if (ended.get()) close();
    }

    private synchronized void close() {
        try {
            if (connection != null) connection.close();
        } catch (IOException error) {
            // it is not used any more
        }
    }

    private void end(Answer result) {
        if (ended.compareAndSet(false, true)) {
            close();
            before.accept(result);
            answer.complete(result);
        }
    }

    void giveUp(String why) { end(Answer.none(server.url + ": " + why, sent)); }

    /** Nobody wants the answer any more. */
    void cancel() {
        if (ended.compareAndSet(false, true)) {
            close();
            answer.complete(Answer.none("cancelled", sent));
        }
    }

    /** Does this after a time, unless the exchange has ended before. */
    void unlessEnded(long nanos, Runnable action) {
        Future<?> timer = Threads.after(nanos, action);
        answer.whenComplete((result, error) -> timer.cancel(false));
    }

    /** Waits for the answer. An interrupt closes the connection. */
    Answer await() throws InterruptedException {
        try {
            return answer.get();
        } catch (InterruptedException interrupt) {
            cancel();
            throw interrupt;
        } catch (ExecutionException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
