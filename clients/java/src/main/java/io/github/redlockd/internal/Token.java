// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Supplier;

/**
 * The token in a file that may be replaced at any time: the file is read for each request. One that cannot be read
 * leaves the last token. Safe for threads.
 */
public final class Token implements Supplier<String> {
    private static final System.Logger LOG = System.getLogger("io.github.redlockd");
    private final Path file;
    private volatile String last;

    /** Throws IllegalArgumentException where there is no token. */
    public Token(Path file) {
        this.file = file;
        try {
            last = read();
        } catch (IOException error) {
            throw new IllegalArgumentException("the token cannot be read: " + error, error);
        }
    }

    /** Returns a key if it can be one, or throws. */
    public static String check(String key) {
        if (!key.matches("[!-~]+")) throw new IllegalArgumentException("no key has such characters");
        return key;
    }

    private String read() throws IOException { return check(Files.readString(file).trim()); }

    @Override
    public String get() {
        try {
            last = read();
        } catch (IOException | RuntimeException error) {
            Threads.log(() -> LOG.log(Level.WARNING, "the token cannot be read: {0}", error.toString()));
        }
        return last;
    }
}
