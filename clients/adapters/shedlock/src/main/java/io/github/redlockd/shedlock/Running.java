// SPDX-License-Identifier: MIT
package io.github.redlockd.shedlock;

import io.github.redlockd.Lease;
import java.util.ArrayDeque;
import java.util.Deque;

/** The leases of the locks that each thread has taken, the innermost first. */
final class Running {
    private static final ThreadLocal<Deque<Lease>> LEASES = ThreadLocal.withInitial(ArrayDeque::new);

    private Running() { }

    static void add(Lease lease) {
        LEASES.get().removeIf(Lease::isLost); // such as those that another thread has unlocked
        LEASES.get().addFirst(lease);
    }

    static void remove(Lease lease) {
        LEASES.get().remove(lease);
        if (LEASES.get().isEmpty()) LEASES.remove();
    }

    static Lease lease() {
        Lease innermost = LEASES.get().peekFirst();
        if (innermost == null) throw new IllegalStateException("this thread holds no lock of redlockd");
        return innermost;
    }
}
