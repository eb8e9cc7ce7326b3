// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** One address of the list: {@code http://host:port}, {@code https://host:port/path} or {@code unix:/path}. */
public final class Server {
    private static final Pattern URL = Pattern.compile("unix:([!-~]+)"
        + "|(https?)://((\\[[0-9a-fA-F:.]+\\]|[!-~&&[^/:@?#\\[\\]]]+)(?::([0-9]{1,5}))?)(/[!-~&&[^?#]]*)?");
    private static final Pattern LITERAL = Pattern.compile("[0-9.]+|.*:.*"); // of an address
    final String url;
    final String authority;
    final String prefix;
    private final boolean tls;
    private final String host;
    private final int port;
    private final SocketAddress socketFile; // of a Unix socket, or null

    public Server(String url) {
        Matcher parts = URL.matcher(url);
        if (!parts.matches()) {
            throw new IllegalArgumentException("not the address of a server: " + url
                + ": use http://host:port, https://host:port or unix:/path");
        }
        this.url = url;
        tls = "https".equals(parts.group(2));
        socketFile = parts.group(1) == null ? null
            : (SocketAddress) call("java.net.UnixDomainSocketAddress", "of", String.class, parts.group(1));
        authority = socketFile != null ? "localhost" : parts.group(3);
        host = socketFile != null ? "" : parts.group(4).replaceAll("[\\[\\]]", "");
        port = parts.group(5) != null ? Integer.parseInt(parts.group(5)) : tls ? 443 : 80;
        prefix = parts.group(6) == null ? "" : parts.group(6).replaceAll("/+$", "");
    }

    public boolean hasTls() { return tls; }

    /** Calls a static method that Java 11, for which this file is, does not have. */
    private static Object call(String name, String method, Class<?> type, Object argument) {
        try {
            return Class.forName(name).getMethod(method, type).invoke(null, argument);
        } catch (ReflectiveOperationException error) {
            throw new UnsupportedOperationException("Unix sockets need Java 16 or newer", error);
        }
    }

    /**
     * Resolves the name on another thread, so that a resolver that hangs ends with the exchange; on this one where no
     * other can be started.
     */
    private InetAddress[] resolve(Exchange exchange) throws IOException, InterruptedException {
        if (LITERAL.matcher(host).matches()) return InetAddress.getAllByName(host);
        FutureTask<InetAddress[]> task = new FutureTask<>(() -> InetAddress.getAllByName(host));
        exchange.use(() -> task.cancel(false));
        if (!Threads.start(task)) task.run();
        try {
            return task.get();
        } catch (ExecutionException error) {
            throw new IOException("no address: " + error.getCause(), error);
        }
    }

    private SocketChannel connect(Exchange exchange) throws IOException, InterruptedException {
        IOException failure = new IOException("no address");
        for (InetAddress address : resolve(exchange)) {
            SocketChannel channel = SocketChannel.open();
            exchange.use(channel);
            try {
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                channel.connect(new InetSocketAddress(address, port));
                return channel;
            } catch (IOException error) {
                Connection.close(channel);
                failure = error;
            }
        }
        throw failure;
    }

    private SSLSocket secure(SocketChannel channel, SSLContext context) throws IOException {
        SSLSocket secured = (SSLSocket) context.getSocketFactory().createSocket(channel.socket(), host, port, true);
        SSLParameters parameters = secured.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        secured.setSSLParameters(parameters);
        secured.startHandshake();
        return secured;
    }

    /** Opens a connection. The exchange knows the channel before anything that can block. */
    Connection open(Supplier<SSLContext> context, Exchange exchange) throws IOException, InterruptedException {
        SocketChannel channel;
        if (socketFile != null) {
            ProtocolFamily family = StandardProtocolFamily.valueOf("UNIX");
            channel = (SocketChannel) call(SocketChannel.class.getName(), "open", ProtocolFamily.class, family);
            exchange.use(channel);
            channel.connect(socketFile);
        } else {
            channel = connect(exchange);
        }
        if (!tls) return new Connection(channel, Channels.newInputStream(channel), Channels.newOutputStream(channel));
        SSLSocket secured = secure(channel, context.get());
        return new Connection(channel, secured.getInputStream(), secured.getOutputStream());
    }
}
