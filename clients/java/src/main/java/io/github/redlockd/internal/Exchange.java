package io.github.redlockd.internal;

import java.io.Closeable;
import java.io.IOException;
import java.security.cert.CertificateException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import javax.net.ssl.SSLContext;

/**
 * One request to one server, on a connection of its own: its end says that the answer is whole or cut off.
 *
 * <p>A thread of the pool carries it out. Whatever completes or cancels {@link #answer} closes the connection, which
 * also ends the wait of that thread.
 */
public final class Exchange {
    public final CompletableFuture<Answer> answer = new CompletableFuture<>();
    private final Server server;
    private volatile boolean sent;
    private volatile Closeable connection = () -> { };

    /** {@code key}: that of the API, or null. */
    public Exchange(Server server, Ask ask, String key, SSLContext context) {
        this.server = server;
        answer.whenComplete((result, error) -> close());
        unlessEnded(ask.timeout, () -> giveUp("it does not answer in time"));
        byte[] request = ask.bytes(server, key);
        Threads.POOL.execute(() -> carryOut(request, context));
    }

    /** Once this is true, the request may be carried out. */
    public boolean isSent() { return sent; }

    private void carryOut(byte[] request, SSLContext context) {
        try {
            answer.complete(server.ask(request, context, this::keep, () -> sent = true));
        } catch (IOException | RuntimeException error) {
            boolean certificate = error.getCause() instanceof CertificateException;
            giveUp((certificate ? "its certificate is not trusted: " : "") + error);
        }
    }

    private void keep(Closeable opened) {
        connection = opened;
        if (answer.isDone()) close();
    }

    private void close() {
        try {
            connection.close();
        } catch (IOException error) {
            // it is not used any more
        }
    }

    /** There is no answer. The connection is closed before anybody can send the request again. */
    public void giveUp(String why) {
        close();
        answer.complete(Answer.none(server.url + ": " + why, sent));
    }

    /** Does this after a time, unless the exchange has ended before. */
    public void unlessEnded(long nanos, Runnable action) {
        Future<?> timer = Threads.after(nanos, action);
        answer.whenComplete((result, error) -> timer.cancel(false));
    }
}
