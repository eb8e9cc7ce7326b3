// SPDX-License-Identifier: MIT

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

/**
 * Wants locks of Redisson for takeover.py, over several masters: Contender SERVERS WATCHDOG_MS NAME…
 *
 * <p>It prints "waiting NAME", "granted NAME" and "lost NAME", and releases at the end of its input. RedissonRedLock is
 * deprecated, but getMultiLock() needs every master: after the loss of one nobody is granted a lock again.
 */
@SuppressWarnings("deprecation")
public final class Contender {
    private static final CountDownLatch ENDED = new CountDownLatch(1);

    /** The defaults, but for the watchdog, and for fewer threads and connections, as a lock needs few. */
    private static RedissonClient connect(String server, long watchdogMs) {
        Config config = new Config().setLockWatchdogTimeout(watchdogMs).setThreads(2).setNettyThreads(2);
        config.useSingleServer().setAddress("redis://" + server).setConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }

    /** Redisson tells a holder nothing, so this asks whether a majority of the masters has the lock for this thread. */
    private static boolean isHeld(List<RLock> parts) {
        int held = 0;
        for (RLock part : parts) {
            try {
                held += part.isHeldByCurrentThread() ? 1 : 0;
            } catch (RedisException failed) {
                // the master does not answer
            }
        }
        return held > parts.size() / 2;
    }

    private static void want(List<RedissonClient> masters, String name) {
        List<RLock> parts = new ArrayList<>();
        for (RedissonClient master : masters) {
            parts.add(master.getLock(name));
        }
        // Masters are asked one after the other. The order differs by lock, so the one that fails can be any of them.
        Collections.rotate(parts, Math.floorMod(name.hashCode(), parts.size()));
        RLock lock = new RedissonRedLock(parts.toArray(new RLock[0]));
        System.out.println("waiting " + name);
        try {
            // lock() tries for 4.5 s at a time. That is too short to find that the first or second master is gone, so
            // it never ends.
            while (!lock.tryLock(60, TimeUnit.SECONDS)) {
            }
            System.out.println("granted " + name);
            while (!ENDED.await(1, TimeUnit.SECONDS)) {
                if (!isHeld(parts)) {
                    System.out.println("lost " + name);
                    return;
                }
            }
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
        lock.unlock();
    }

    public static void main(String[] arguments) throws Exception {
        List<RedissonClient> masters = new ArrayList<>();
        for (String server : arguments[0].split(",")) {
            masters.add(connect(server, Long.parseLong(arguments[1])));
        }
        List<Thread> threads = new ArrayList<>();
        for (String name : Arrays.asList(arguments).subList(2, arguments.length)) {
            Thread thread = new Thread(() -> want(masters, name));
            thread.start();
            threads.add(thread);
        }
        System.in.readAllBytes();
        ENDED.countDown();
        for (Thread thread : threads) {
            thread.join(5000);
        }
        Runtime.getRuntime().halt(0); // a lock that still waits is not waited for
    }
}
