// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.Executor;

/** Does work on threads of the pool, at most as much at once as a server has connections for it. */
public final class Lanes implements Executor {
    private final Queue<Runnable> queued = new ArrayDeque<>(); // guarded by this, as the next one
    private int running;

    @Override
    public void execute(Runnable work) {
        synchronized (this) {
            queued.add(work);
            if (running == Pool.MOST) return;
            running++;
        }
        Threads.run(this::drain);
    }

    private void drain() {
        for (Runnable work = next(); work != null; work = next()) {
            Threads.guard(work);
        }
    }

    private synchronized Runnable next() {
        Runnable work = queued.poll();
        if (work == null) running--;
        return work;
    }
}
