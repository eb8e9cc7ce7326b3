// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * What HTTPS trusts and shows, from PEM files as they are now: others replace them. At first, a file that cannot be
 * read or used is an IllegalArgumentException; later, what was read last counts. Safe for threads.
 */
public final class Tls implements Supplier<SSLContext> {
    private static final Pattern KEY = Pattern.compile("-----BEGIN PRIVATE KEY-----([^-]+)-----END PRIVATE KEY-----");
    private static final char[] NO_PASSWORD = {};

    private final Path trust;
    private final Path certificate;
    private final Path key;
    private SSLContext context; // guarded by this, as the next one
    private List<Object> seen;

    /** Each path may be null: then the authorities of Java are trusted, and no certificate is shown. */
    public Tls(Path trust, Path certificate, Path key) {
        this.trust = trust;
        this.certificate = certificate;
        this.key = key;
        read();
    }

    @Override
    public synchronized SSLContext get() {
        try {
            read();
        } catch (IllegalArgumentException error) {
            // only one of two files is new
        }
        return context;
    }

    private void read() {
        List<Object> now = new ArrayList<>();
        try {
            for (Path file : new Path[] {trust, certificate, key}) {
                if (file == null) continue;
                BasicFileAttributes found = Files.readAttributes(file, BasicFileAttributes.class);
                now.addAll(Arrays.asList(found.fileKey(), found.lastModifiedTime(), found.size()));
            }
        } catch (IOException error) {
            throw new IllegalArgumentException("the files for TLS cannot be used: " + error, error);
        }
        if (now.equals(seen)) return;
        context = context(trust, certificate, key);
        seen = now;
    }

    /** Each path may be null. */
    public static SSLContext context(Path trust, Path certificate, Path key) {
        try {
            KeyManagerFactory shown = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            shown.init(certificate == null ? newStore() : identity(certificates(certificate), key), NO_PASSWORD);
            TrustManagerFactory trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trusted.init(trust == null ? null : authorities(certificates(trust)));
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(shown.getKeyManagers(), trusted.getTrustManagers(), null);
            return context;
        } catch (GeneralSecurityException | IOException error) {
            throw new IllegalArgumentException("the files for TLS cannot be used: " + error, error);
        }
    }

    private static KeyStore newStore() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static Certificate[] certificates(Path file) throws GeneralSecurityException, IOException {
        try (InputStream in = Files.newInputStream(file)) {
            Collection<? extends Certificate> found = CertificateFactory.getInstance("X.509").generateCertificates(in);
            if (found.isEmpty()) throw new CertificateException("no certificate in " + file);
            return found.toArray(new Certificate[0]);
        }
    }

    private static KeyStore authorities(Certificate[] certificates) throws GeneralSecurityException, IOException {
        KeyStore store = newStore();
        for (Certificate each : certificates) {
            store.setCertificateEntry("authority" + store.size(), each);
        }
        return store;
    }

    private static KeyStore identity(Certificate[] chain, Path keyFile) throws GeneralSecurityException, IOException {
        Matcher pem = KEY.matcher(Files.readString(keyFile, StandardCharsets.ISO_8859_1));
        if (!pem.find()) {
            throw new GeneralSecurityException(keyFile + " has no PRIVATE KEY (PKCS#8, not encrypted):"
                + " openssl pkcs8 -topk8 -nocrypt makes one");
        }
        KeyFactory factory = KeyFactory.getInstance(chain[0].getPublicKey().getAlgorithm());
        PrivateKey key = factory.generatePrivate(new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(pem.group(1))));
        KeyStore store = newStore();
        store.setKeyEntry("me", key, NO_PASSWORD, chain);
        return store;
    }
}
