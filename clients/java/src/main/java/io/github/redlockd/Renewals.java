// SPDX-License-Identifier: MIT
package io.github.redlockd;

import io.github.redlockd.internal.Answer;
import io.github.redlockd.internal.Ask;
import io.github.redlockd.internal.Threads;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * The renewals of a client: one timer, and one request for all leases that are due about the same time. Each of them is
 * decided alone, as if it had been asked for alone. Safe for threads. Times are nanoseconds.
 */
final class Renewals {
    private static final int MOST = 256; // leases in a request
    private static final int ROOM = 60_000; // bytes of them: the server takes 64 KiB
    private final Servers servers;
    private final Set<Renewal> waiting = new HashSet<>(); // for their time; guarded by this, as the next ones
    private Future<?> timer; // null: nothing waits
    private long next; // when it ends

    Renewals(Servers servers) { this.servers = servers; }

    /** Renews it when it is due, until its term is over. */
    void add(Renewal renewal) {
        if (renewal.isOver()) return;
        synchronized (this) {
            waiting.add(renewal);
            if (timer == null || renewal.due() - next < 0) wakeAt(renewal.due());
        }
        if (renewal.isOver()) remove(renewal);
    }

    /** The lease is over. Its request is given up when it is for no other one. */
    void remove(Renewal renewal) {
        synchronized (this) {
            waiting.remove(renewal);
        }
        renewal.giveUp();
    }

    private void wakeAt(long time) {
        if (timer != null) timer.cancel(false);
        next = time;
        timer = Threads.after(Math.max(time - Term.clock(), Term.MILLISECOND), this::wake);
    }

    /** Also where memory ends, the others have their turn. */
    private synchronized void wake() {
        timer = null;
        long now = Term.clock();
        try {
            List<Renewal> due = waiting.stream().filter(each -> each.isDue(now)).collect(Collectors.toList());
            for (List<Renewal> batch : batches(due)) {
                servers.background.execute(() -> renew(batch));
                batch.forEach(waiting::remove);
            }
        } finally {
            waiting.stream().map(Renewal::due).min(Comparator.comparing(due -> due - now)).ifPresent(this::wakeAt);
        }
    }

    /** Each for one request. A lease that has much time is not given up with one that has little. */
    private List<List<Renewal>> batches(List<Renewal> due) {
        List<List<Renewal>> batches = new ArrayList<>();
        Map<Renewal, Long> limits = new HashMap<>();
        due.forEach(each -> limits.put(each, each.limit(servers.count())));
        due.sort(Comparator.comparing(limits::get));
        List<Renewal> batch = List.of();
        long room = 0, longest = -1;
        for (Renewal each : due) {
            room -= each.size;
            if (room < 0 || limits.get(each) > longest || batch.size() == MOST) {
                batch = new ArrayList<>();
                batches.add(batch);
                room = ROOM - each.size;
                longest = limits.get(each) / 4 * 5;
            }
            batch.add(each);
        }
        return batches;
    }

    /** Asks each server once, until each lease is decided. An error of any kind is a renewal that failed. */
    private void renew(List<Renewal> batch) {
        List<Renewal> left = batch;
        try {
            Servers.Round round = servers.new Round();
            while (round.left() > 0 && !left.isEmpty()) {
                left = ask(left, round);
            }
        } catch (Throwable error) {
            for (Renewal each : left) {
                each.warn(error.toString());
            }
        } finally {
            for (int each = 0; each < left.size(); each++) {
                left.get(each).postpone(2 * each >= left.size());
                add(left.get(each));
            }
        }
    }

    /** Asks one server. Returns the leases that are not decided. */
    private List<Renewal> ask(List<Renewal> renewals, Servers.Round round) {
        List<Renewal> left = new ArrayList<>();
        List<Renewal> batch = renewals.stream().filter(each -> !each.isOver()).collect(Collectors.toList());
        if (batch.isEmpty()) return left;
        Servers.Round again = round.copy();
        long limit = batch.stream().mapToLong(each -> each.limit(round.left())).min().getAsLong();
        Ask ask = ask(batch, Math.min(limit, servers.timeout));
        batch.forEach(each -> each.begin(() -> cancelIfOver(ask, batch)));
        cancelIfOver(ask, batch);
        if (ask.isCancelled()) return left;
        long sent = Term.clock();
        Answer answer = round.ask(ask);
        if (answer.status == 400 && leaveTtls(batch, answer)) return ask(batch, again);
        if ((answer.status == 400 || answer.status == 413) && batch.size() > 1) return askHalves(batch, again);
        List<Answer> answers = ask.parts(answer);
        for (int each = 0; each < batch.size(); each++) {
            if (batch.get(each).decide(answers.get(each), sent)) add(batch.get(each));
            else left.add(batch.get(each));
        }
        return left;
    }

    private static void cancelIfOver(Ask ask, List<Renewal> batch) {
        if (batch.stream().allMatch(Renewal::isOver)) ask.cancel();
    }

    /** Whether the server names leases whose ttl its bounds do not allow any more. It chooses the next one of these. */
    private static boolean leaveTtls(List<Renewal> batch, Answer answer) {
        Set<Long> wrong = new HashSet<>();
        for (int each = 0; each < batch.size(); each++) {
            long asked = batch.get(each).asked();
            if (asked > 0 && answer.errorsName("leases[" + each + "].ttl_ms")) wrong.add(asked);
        }
        batch.stream().filter(each -> wrong.contains(each.asked())).forEach(Renewal::leaveTtl);
        return !wrong.isEmpty();
    }

    /** One lease of a request can be wrong for the server: the others do not suffer. */
    private List<Renewal> askHalves(List<Renewal> batch, Servers.Round round) {
        int middle = batch.size() / 2;
        List<Renewal> left = ask(batch.subList(0, middle), round.copy());
        left.addAll(ask(batch.subList(middle, batch.size()), round));
        return left;
    }

    private static Ask ask(List<Renewal> batch, long timeout) {
        List<Map<String, Object>> items = batch.stream().map(Renewal::item).collect(Collectors.toList());
        List<Function<Answer, String>> checks = batch.stream().map(Renewal::check).collect(Collectors.toList());
        return new Ask("PUT", Wanted.PATH, timeout, items, checks);
    }
}
