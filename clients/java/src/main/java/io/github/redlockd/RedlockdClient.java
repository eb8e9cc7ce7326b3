// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.RedlockdException.Locked;
import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Ask;
import io.github.redlockd.internal.Pool;
import io.github.redlockd.internal.Server;
import io.github.redlockd.internal.Tls;
import io.github.redlockd.internal.Token;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Flow;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;

/**
 * A client of one cluster of redlockd. Safe for threads; one for each program is enough. It keeps connections for a
 * while, and its threads are daemons that all clients share, so it need not be closed at the end of the program.
 * {@link #close} is for a program that goes on without it, such as a server that loads this library again.
 *
 * <pre>{@code
 * RedlockdClient client = RedlockdClient.builder("https://a:8443", "https://b:8443").key(KEY).build();
 * try (Lease lease = client.lock("orders/42", Duration.ofMinutes(1))) {
 *     lease.check(); // throws LockLost
 *     save(item, lease.fence());
 * }
 * }</pre>
 *
 * <p>Each acquisition throws {@link InterruptedException} if its thread is interrupted; then neither a waiting request
 * nor a lease is left at the servers.
 */
public final class RedlockdClient implements AutoCloseable {
    private final Servers servers;
    private final String owner;

    private RedlockdClient(Servers servers, String owner) {
        this.servers = servers;
        this.owner = owner;
        Clients.add(servers);
    }

    /**
     * Begins a client.
     *
     * @param servers by preference: {@code https://host:port}, {@code http://host:port} or {@code unix:/path}
     * @return what makes the client
     */
    public static Builder builder(String... servers) { return new Builder(servers); }

    /**
     * Acquires a lock, and waits a minute for it.
     *
     * @param resource the name of the lock
     * @return the lease
     * @throws InterruptedException if this thread is interrupted: then nothing is left at the servers
     */
    public Lease lock(String resource) throws InterruptedException { return lock(resource, new Options()); }

    /**
     * Acquires a lock.
     *
     * @param resource the name of the lock
     * @param wait how long to wait for it
     * @return the lease
     * @throws InterruptedException if this thread is interrupted: then nothing is left at the servers
     */
    public Lease lock(String resource, Duration wait) throws InterruptedException {
        return lock(resource, new Options().waitUpTo(wait));
    }

    /**
     * Acquires a lock. Throws {@link Locked} if somebody else has it until the wait is over.
     *
     * @param resource the name of the lock
     * @param options how it is acquired
     * @return the lease
     * @throws InterruptedException if this thread is interrupted: then nothing is left at the servers
     */
    public Lease lock(String resource, Options options) throws InterruptedException {
        return lockAll(List.of(resource), options);
    }

    /**
     * Acquires all of several locks at once, or none.
     *
     * @param resources the names of the locks
     * @param options how it is acquired
     * @return the lease on all of them
     * @throws InterruptedException if this thread is interrupted: then nothing is left at the servers
     */
    public Lease lockAll(Collection<String> resources, Options options) throws InterruptedException {
        return new Acquisition(servers, new Wanted(resources, options, owner)).run();
    }

    /**
     * Acquires a lock without waiting.
     *
     * @param resource the name of the lock
     * @return the lease; empty if somebody else has the lock
     * @throws InterruptedException if this thread is interrupted: then nothing is left at the servers
     */
    public Optional<Lease> tryLock(String resource) throws InterruptedException {
        return tryLock(resource, new Options());
    }

    /**
     * Acquires a lock without waiting.
     *
     * @param resource the name of the lock
     * @param options how it is acquired; their wait does not count
     * @return the lease; empty if somebody else has the lock
     * @throws InterruptedException if this thread is interrupted: then nothing is left at the servers
     */
    public Optional<Lease> tryLock(String resource, Options options) throws InterruptedException {
        return tryLockAll(List.of(resource), options);
    }

    /**
     * Acquires all of several locks at once, or none, without waiting.
     *
     * @param resources the names of the locks
     * @param options how they are acquired; their wait does not count
     * @return the lease on all of them; empty if somebody else has one of the locks
     * @throws InterruptedException if this thread is interrupted: then nothing is left at the servers
     */
    public Optional<Lease> tryLockAll(Collection<String> resources, Options options) throws InterruptedException {
        try {
            return Optional.of(lockAll(resources, options.waitUpTo(Duration.ZERO)));
        } catch (Locked error) {
            return Optional.empty();
        }
    }

    /**
     * Watches a lock: the state now, and again whenever the holder changes, until the subscription is cancelled.
     * Subscribers are called on threads of the library. States that come faster than they are asked for are told as
     * one.
     *
     * @param resource the name of the lock
     * @return the states, each by the names of its members
     */
    public Flow.Publisher<Map<String, Object>> watch(String resource) {
        return subscriber -> {
            servers.checkOpen();
            new Watch(servers, resource, subscriber);
        };
    }

    /**
     * A lock as a {@link java.util.concurrent.locks.Lock}, for code that wants one.
     *
     * @param resource the name of the lock
     * @return the view; as many as you like may be made of one lock
     */
    public LockView asLock(String resource) { return asLock(resource, new Options()); }

    /**
     * A lock as a {@link java.util.concurrent.locks.Lock}, for code that wants one.
     *
     * @param resource the name of the lock
     * @param options how it is acquired; their wait does not count
     * @return the view; as many as you like may be made of one lock
     */
    public LockView asLock(String resource, Options options) { return new LockView(this, resource, options); }

    /**
     * Ends the acquisitions that wait, by an {@link IllegalStateException}, and the watches, without a further signal;
     * releases the leases, and closes the connections. Later calls throw IllegalStateException. When all clients are
     * closed, the threads of the library end, and its shutdown hook is removed.
     */
    @Override
    public void close() { servers.close(); }

    /** Names the servers, without the key. */
    @Override
    public String toString() { return "RedlockdClient" + servers; }

    /**
     * For operators: takes the lock from its holder.
     *
     * @param resource the name of the lock
     */
    public void force(String resource) { force(resource, "", true); }

    /**
     * For operators: takes the lock from the holder with this fence, and from no other one.
     *
     * @param resource the name of the lock
     * @param fence that of the holder
     */
    public void force(String resource, long fence) { force(resource, "&fence=" + fence, false); }

    /** Without a fence it is sent once: a second one could release the next holder. */
    private void force(String resource, String condition, boolean once) {
        servers.checkOpen();
        String path = Wanted.PATH + "?force=true" + condition;
        Map<String, Object> names = Wanted.named(resource).names;
        Ask ask = new Ask("DELETE", path, servers.timeout, names, Map.of(), once, each -> null);
        Answer answer = servers.askEach(ask);
        if (answer.status != 204) throw RedlockdException.of(answer);
    }

    /** Makes a client. Arguments that make none are an {@link IllegalArgumentException}. */
    public static final class Builder {
        private final List<Server> servers;
        private String key;
        private Path tokenFile;
        private String owner;
        private long timeout = 5 * Term.SECOND;
        private Path trust;
        private Path certificate;
        private Path certificateKey;
        private Supplier<Map<String, String>> headers = Map::of;

        private Builder(String... urls) {
            servers = Arrays.stream(urls).map(Server::new).collect(Collectors.toList());
            if (servers.isEmpty()) throw new IllegalArgumentException("no server is given");
        }

        /**
         * Shows an API key.
         *
         * @param key the key; null for none
         * @return this
         */
        public Builder key(String key) {
            this.key = key == null ? null : Token.check(key);
            return this;
        }

        /**
         * Shows the token in a file, instead of a key. The file is read again for each request, so it can be replaced.
         *
         * @param file such as that of a service account of Kubernetes
         * @return this
         */
        public Builder tokenFile(Path file) {
            tokenFile = file;
            return this;
        }

        /**
         * Names the owner of all locks whose options name none.
         *
         * @param owner a label; null for none
         * @return this
         */
        public Builder owner(String owner) {
            this.owner = owner;
            return this;
        }

        /**
         * Limits how long a server may take to answer, beside the wait: five seconds unless you say more.
         *
         * @param timeout the time
         * @return this
         */
        public Builder timeout(Duration timeout) {
            this.timeout = Term.nanos(timeout);
            if (this.timeout <= 0) throw new IllegalArgumentException("the timeout must be positive");
            return this;
        }

        /**
         * Trusts these authorities for HTTPS, instead of those of Java.
         *
         * @param authorities a PEM file
         * @return this
         */
        public Builder trust(Path authorities) {
            trust = authorities;
            return this;
        }

        /**
         * Shows a client certificate.
         *
         * @param certificate a PEM file with the certificate and its chain
         * @param key a PEM file with its key: PKCS#8, not encrypted; RSA or EC, and EdDSA from Java 15 on
         * @return this
         */
        public Builder certificate(Path certificate, Path key) {
            this.certificate = certificate;
            certificateKey = key;
            return this;
        }

        /**
         * Adds headers to each request, such as a traceparent. Those that the library sets itself are left out.
         *
         * @param headers makes them for a request, in the thread that sends it: the caller's, or one of the library
         * @return this
         */
        public Builder headers(Supplier<Map<String, String>> headers) {
            this.headers = Objects.requireNonNull(headers);
            return this;
        }

        /**
         * Reads the files, and connects to nothing yet.
         *
         * @return the client
         */
        public RedlockdClient build() {
            if (key != null && tokenFile != null)
                throw new IllegalArgumentException("key and tokenFile: one of them only");
            String fixed = key;
            Supplier<String> shown = tokenFile == null ? () -> fixed : new Token(tokenFile);
            boolean secure = servers.stream().anyMatch(Server::hasTls);
            Supplier<SSLContext> context = secure ? new Tls(trust, certificate, certificateKey) : null;
            Stream<Pool> pools = servers.stream().map(server -> new Pool(server, shown, headers, context));
            return new RedlockdClient(new Servers(pools.collect(Collectors.toList()), timeout), owner);
        }
    }
}
