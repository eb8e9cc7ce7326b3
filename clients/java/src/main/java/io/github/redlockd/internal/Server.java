package io.github.redlockd.internal;

import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ProtocolFamily;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** One address of the list: {@code http://host:port}, {@code https://host:port/path} or {@code unix:/path}. */
public final class Server {
    private static final Pattern URL = Pattern.compile("unix:([!-~]+)"
        + "|(https?)://((\\[[0-9a-fA-F:.]+\\]|[!-~&&[^/:@?#\\[\\]]]+)(?::([0-9]{1,5}))?)(/[!-~&&[^?#]]*)?");
    final String url;
    final String authority;
    final String prefix;
    private final boolean tls;
    private final String host;
    private final int port;
    private final SocketAddress socketFile; // of a Unix socket, or null

    public Server(String url) {
        Matcher parts = URL.matcher(url);
        if (!parts.matches()) throw new IllegalArgumentException("not the address of a server: " + url);
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

    private Socket openTcp(Consumer<Closeable> keep) throws IOException {
        IOException failure = new IOException("no address");
        for (InetAddress address : InetAddress.getAllByName(host)) {
            Socket socket = new Socket();
            keep.accept(socket);
            try {
                socket.setTcpNoDelay(true);
                socket.connect(new InetSocketAddress(address, port));
                return socket;
            } catch (IOException error) {
                failure = error;
            }
        }
        throw failure;
    }

    private Socket secure(Socket socket, SSLContext context) throws IOException {
        SSLSocket secured = (SSLSocket) context.getSocketFactory().createSocket(socket, host, port, true);
        SSLParameters parameters = secured.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        secured.setSSLParameters(parameters);
        secured.startHandshake();
        return secured;
    }

    /**
     * Sends a request and reads the answer, on a connection of its own. Hands on what closes it before anything that
     * can block: below TLS, where closing neither writes nor waits. Says so right before it sends.
     */
    Answer ask(byte[] request, SSLContext context, Consumer<Closeable> keep, Runnable sends) throws IOException {
        if (socketFile != null) {
            ProtocolFamily family = StandardProtocolFamily.valueOf("UNIX");
            String type = SocketChannel.class.getName();
            SocketChannel channel = (SocketChannel) call(type, "open", ProtocolFamily.class, family);
            keep.accept(channel);
            channel.connect(socketFile);
            return ask(request, Channels.newInputStream(channel), Channels.newOutputStream(channel), sends);
        }
        Socket plain = openTcp(keep), socket = tls ? secure(plain, context) : plain;
        return ask(request, socket.getInputStream(), socket.getOutputStream(), sends);
    }

    private static Answer ask(byte[] request, InputStream in, OutputStream out, Runnable sends) throws IOException {
        sends.run();
        out.write(request);
        out.flush();
        return Answer.read(new BufferedInputStream(in));
    }
}
