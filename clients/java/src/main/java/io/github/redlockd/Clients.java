// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.internal.Threads;
import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;

/**
 * The clients that are not closed. With the last one, the threads end and the shutdown hook is removed: then nothing
 * outside keeps the classes of this library. A client that nobody uses any more does not count.
 */
final class Clients {
    private static final Set<Servers> OPEN = Collections.newSetFromMap(new WeakHashMap<>());
    private static Thread hook; // guarded by the class, as the set

    private Clients() { }

    static synchronized void add(Servers servers) {
        OPEN.add(servers);
        if (hook != null) return;
        hook = new Thread(Clients::endAll, "redlockd-exit");
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (IllegalStateException error) {
            // the program ends already: leases are not released
        }
    }

    static synchronized void remove(Servers servers) {
        if (!OPEN.remove(servers) || !OPEN.isEmpty()) return;
        Threads.end();
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException error) {
            // the program ends already
        }
        hook = null;
    }

    /** At the end of the program. */
    private static void endAll() {
        Acquisition.endAll(each -> true);
        Lease.releaseAll(each -> true);
    }
}
