// SPDX-License-Identifier: MIT
import io.github.redlockd.Lease;
import io.github.redlockd.Options;
import io.github.redlockd.RedlockdClient;
import io.github.redlockd.RedlockdException;
import io.github.redlockd.internal.Json;
import io.github.redlockd.internal.Tls;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Flow;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLSocketFactory;

/** The driver of the library for Java: tests/clients/driver.py has its protocol. */
public final class Driver {
    private static final Map<String, RedlockdClient> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, Lease> LEASES = new ConcurrentHashMap<>();
    /** How often the callback of a lease was called. */
    private static final Map<String, Long> WANTED = new ConcurrentHashMap<>();

    /** By a block. */
    @SuppressWarnings("serial")
    private static final class Raised extends Exception { }

    /** A line of input. */
    private static final class Command {
        final Map<?, ?> members;

        Command(String line) { members = (Map<?, ?>) Json.parse(line); }

        boolean has(String name) { return members.get(name) != null && !Boolean.FALSE.equals(members.get(name)); }

        String text(String name) { return (String) members.get(name); }

        long number(String name) { return ((Number) members.get(name)).longValue(); }

        Duration seconds(String name) {
            return Duration.ofNanos(Math.round(((Number) members.get(name)).doubleValue() * 1e9));
        }

        List<String> texts(String name) {
            List<String> texts = new ArrayList<>();
            ((List<?>) members.get(name)).forEach(each -> texts.add((String) each));
            return texts;
        }

        RedlockdClient client() { return CLIENTS.get(text("client")); }

        Lease lease() { return LEASES.get(text("lease")); }

        @SuppressWarnings("unchecked")
        Options options() {
            Options options = new Options();
            options = has("ttl") ? options.ttl(seconds("ttl")) : options;
            options = members.get("wait") != null ? options.waitUpTo(seconds("wait")) : options;
            options = members.get("margin") != null ? options.margin(seconds("margin")) : options;
            options = has("at_least") ? options.atLeast(seconds("at_least")) : options;
            options = has("lease") ? options.onWanted(lease -> wanted(text("lease"))) : options;
            options = has("owner") ? options.owner(text("owner")) : options;
            options = has("metadata") ? options.metadata((Map<String, ?>) members.get("metadata")) : options;
            options = "shared".equals(text("mode")) ? options.shared() : options;
            return has("slots") ? options.slots((int) number("slots")) : options;
        }

        Optional<Lease> acquire() throws InterruptedException {
            if (members.get("resource") instanceof String) {
                String name = text("resource");
                return has("try") ? client().tryLock(name, options()) : Optional.of(client().lock(name, options()));
            }
            List<String> names = texts("resource");
            return has("try") ? client().tryLockAll(names, options()) : Optional.of(client().lockAll(names, options()));
        }

        void say(Map<String, ?> answer) {
            Map<String, Object> line = new HashMap<>(answer);
            line.put("id", members.get("id"));
            byte[] bytes = (Json.write(line) + "\n").getBytes(StandardCharsets.UTF_8);
            synchronized (System.out) {
                System.out.write(bytes, 0, bytes.length);
                System.out.flush();
            }
        }
    }

    private static void wanted(String lease) {
        WANTED.merge(lease, 1L, Long::sum);
        throw new IllegalStateException("of the callback");
    }

    private static Map<String, Object> waiters(Command command) {
        return Map.of("waiters", command.lease().waiters(), "wanted", WANTED.getOrDefault(command.text("lease"), 0L));
    }

    private static boolean release(Command command) {
        return command.has("keep") ? command.lease().release(command.seconds("keep")) : command.lease().release();
    }

    private static Map<String, Object> error(Throwable error) {
        boolean own = error instanceof RedlockdException;
        String code = own ? ((RedlockdException) error).code()
            : error instanceof Raised ? "raised" : error instanceof InterruptedException ? "interrupted" : "other";
        String detail = own ? error.getMessage() : error.toString();
        int status = own ? ((RedlockdException) error).status() : 0;
        Map<String, Object> said = new HashMap<>(Map.of("code", code, "detail", detail, "status", status));
        if (error instanceof RedlockdException.LockLost) said.put("cause", ((RedlockdException.LockLost) error).reason());
        return Map.of("error", said);
    }

    private static double seconds(Lease lease) { return lease.remaining().toNanos() / 1e9; }

    private static Map<String, Object> newClient(Command command) {
        RedlockdClient.Builder builder = RedlockdClient.builder(command.texts("servers").toArray(new String[0]));
        builder.key(command.text("key")).owner(command.text("owner"));
        if (command.has("token_file")) builder.tokenFile(Path.of(command.text("token_file")));
        if (command.has("timeout")) builder.timeout(command.seconds("timeout"));
        if (command.has("ca")) builder.trust(Path.of(command.text("ca")));
        if (command.has("certificate")) {
            List<String> files = command.texts("certificate");
            builder.certificate(Path.of(files.get(0)), Path.of(files.get(1)));
        }
        if (command.has("headers")) {
            @SuppressWarnings("unchecked")
            Map<String, String> headers = (Map<String, String>) command.members.get("headers");
            builder.headers(() -> headers);
        }
        CLIENTS.put(command.text("client"), builder.build());
        return Map.of();
    }

    private static Map<String, Object> acquire(Command command) throws InterruptedException {
        Optional<Lease> lease = command.acquire();
        if (lease.isEmpty()) return Map.of("held", false);
        LEASES.put(command.text("lease"), lease.get());
        Map<String, Object> answer = new HashMap<>();
        answer.put("fence", lease.get().fence());
        answer.put("remaining", seconds(lease.get()));
        answer.put("slot", lease.get().slot().isPresent() ? lease.get().slot().getAsInt() : null);
        return answer;
    }

    private static Map<String, Object> block(Command command) throws Exception {
        try (Lease lease = command.acquire().orElseThrow()) {
            LEASES.put(command.text("lease"), lease);
            if (command.has("seconds")) Thread.sleep(command.seconds("seconds").toMillis());
            while (command.has("until_lost") && !lease.awaitLost(Duration.ofHours(1))) {
                continue;
            }
            if (command.has("raise")) throw new Raised();
            return Map.of("fence", lease.fence());
        }
    }

    /** Nobody else may do so at the same time. */
    private static void addOne(Path file) throws Exception {
        int number = Integer.parseInt(Files.readString(file));
        Thread.sleep(1);
        Files.writeString(file, String.valueOf(number + 1));
    }

    private static Map<String, Object> count(Command command) throws Exception {
        List<Long> fences = new ArrayList<>();
        for (long left = command.number("times"); left > 0; left--) {
            try (Lease lease = command.acquire().orElseThrow()) {
                addOne(Path.of(command.text("file")));
                fences.add(lease.fence());
            }
        }
        return Map.of("fences", fences);
    }

    /** Asks for one state after the other. */
    private static final class Watcher implements Flow.Subscriber<Map<String, Object>> {
        final Command command;
        final CountDownLatch done = new CountDownLatch(1);
        long left;
        Flow.Subscription subscription;
        volatile Map<String, Object> last;

        Watcher(Command command) {
            this.command = command;
            left = command.number("count");
        }

        @Override
        public void onSubscribe(Flow.Subscription made) {
            subscription = made;
            subscription.request(1);
        }

        @Override
        public void onNext(Map<String, Object> state) {
            left--;
            last = left > 0 ? Map.of("state", state, "more", true) : Map.of("state", state);
            if (left == 0) {
                subscription.cancel();
                done.countDown();
            } else {
                command.say(last);
                subscription.request(1);
            }
        }

        @Override
        public void onError(Throwable error) {
            last = Driver.error(error);
            done.countDown();
        }

        @Override
        public void onComplete() { }
    }

    private static Map<String, Object> watch(Command command) throws InterruptedException {
        Watcher watcher = new Watcher(command);
        command.client().watch(command.text("resource")).subscribe(watcher);
        watcher.done.await();
        return watcher.last;
    }

    private static Map<String, Object> force(Command command) {
        if (command.has("fence")) {
            command.client().force(command.text("resource"), command.number("fence"));
        } else {
            command.client().force(command.text("resource"));
        }
        return Map.of();
    }

    private static Map<String, Object> pairs(Command command) throws InterruptedException {
        long times = command.number("times"), begin = System.nanoTime();
        for (long left = times; left > 0; left--) {
            command.client().tryLock(command.text("resource")).orElseThrow().release();
        }
        return Map.of("milliseconds", (System.nanoTime() - begin) / 1e6 / times);
    }

    /** The quicker one of the two HTTP clients of Java 11; it keeps its connection. */
    private static String send(Command command, SSLSocketFactory tls, String method, String token) throws IOException {
        HttpURLConnection connection = (HttpURLConnection) new URL(command.text("server") + "/locks").openConnection();
        if (tls != null) ((HttpsURLConnection) connection).setSSLSocketFactory(tls);
        connection.setRequestMethod(method);
        connection.setDoOutput(true);
        connection.setRequestProperty("Content-Type", "application/json");
        String key = UUID.randomUUID() + "-" + UUID.randomUUID(); // as the library
        connection.setRequestProperty(token != null ? "Lock-Token" : "Idempotency-Key", token != null ? token : key);
        Map<String, ?> body = Map.of("resource", command.text("resource"));
        connection.getOutputStream().write(Json.write(body).getBytes(StandardCharsets.UTF_8));
        try (InputStream in = connection.getInputStream()) {
            byte[] content = in.readAllBytes();
            return content.length == 0 ? null : (String) ((Map<?, ?>) Json.parse(content)).get("token");
        }
    }

    private static Map<String, Object> bare(Command command) throws IOException {
        boolean secure = command.has("ca");
        SSLSocketFactory tls = secure ? Tls.context(Path.of(command.text("ca")), null, null).getSocketFactory() : null;
        long times = command.number("times"), begin = System.nanoTime();
        for (long left = times; left > 0; left--) {
            send(command, tls, "DELETE", send(command, tls, "POST", null));
        }
        return Map.of("milliseconds", (System.nanoTime() - begin) / 1e6 / times);
    }

    private static Map<String, Object> carryOut(Command command) throws Exception {
        switch (command.text("do")) {
            case "client": return newClient(command);
            case "acquire": return acquire(command);
            case "block": return block(command);
            case "remaining": return Map.of("remaining", seconds(command.lease()));
            case "lost": return Map.of("lost", command.lease().awaitLost(command.seconds("timeout")));
            case "waiters": return waiters(command);
            case "release": return Map.of("released", release(command));
            case "count": return count(command);
            case "watch": return watch(command);
            case "force": return force(command);
            case "pairs": return pairs(command);
            case "bare": return bare(command);
            case "time": return Map.of("time", System.currentTimeMillis() / 1000.0);
            case "check":
                command.lease().check();
                return Map.of();
            default: throw new IllegalArgumentException(command.text("do"));
        }
    }

    private static void answer(Command command) {
        Map<String, Object> answer;
        try {
            answer = carryOut(command);
        } catch (Throwable error) {
            answer = error(error);
        }
        command.say(answer);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Thread interruptible = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Command command = new Command(line);
            if (command.text("do").equals("interrupt")) {
                interruptible.interrupt();
            } else if (command.text("do").equals("client")) {
                answer(command);
            } else {
                Thread thread = new Thread(() -> answer(command));
                thread.setDaemon(true);
                thread.start();
                interruptible = command.has("interruptible") ? thread : interruptible;
            }
        }
    }
}
