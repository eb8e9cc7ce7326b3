// Books apples into a store, one by one, while nobody else does: docs/how-to/clients.md says how and why.
//
//     java Lock.java RESOURCE STORE [STEPS [STEP_MS [TTL_MS [WAIT_MS]]]]
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

public class Lock {
	static final String URL = System.getenv().getOrDefault("REDLOCKD_URL", "http://127.0.0.1:8080").replaceAll("/+$", "");
	static final String KEY = System.getenv("REDLOCKD_KEY");
	static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

	@SuppressWarnings("serial")
	static class Failure extends Exception {
		final int exitStatus;

		Failure(int exitStatus, String why) {
			super(why);
			this.exitStatus = exitStatus;
		}
	}

	static long clock() { return System.nanoTime() / 1_000_000; } // milliseconds, by a clock that nobody sets

	/** The status is 0 where no answer of redlockd came. pause: milliseconds before another try. */
	record Answer(int status, String body, long pause) {
		/** A member of the answer, which is flat as far as it is read here: Java brings no JSON. */
		String text(String name, String otherwise) {
			var found = Pattern.compile("\"" + name + "\":(?:\"((?:[^\"\\\\]|\\\\.)*)\"|(\\d+))").matcher(body);
			return !found.find() ? otherwise : found.group(1) != null ? found.group(1) : found.group(2);
		}

		long number(String name) { return Long.parseLong(text(name, "0")); }

		String detail() { return text("detail", "HTTP " + status); }
	}

	static Answer call(String method, String path, String body, long timeout, String... headers) throws InterruptedException {
		var request = HttpRequest.newBuilder(URI.create(URL + path)).timeout(Duration.ofMillis(timeout)).header("Content-Type", "application/json")
			.method(method, HttpRequest.BodyPublishers.ofString(body));
		if (KEY != null) request.header("Authorization", "Bearer " + KEY);
		if (headers.length > 0) request.headers(headers);
		try {
			var response = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
			long seconds = Long.parseLong(response.headers().firstValue("Retry-After").orElse("0"));
			return new Answer(response.statusCode(), response.body(), seconds * 1000 + ThreadLocalRandom.current().nextLong(1000));
		} catch (IOException | NumberFormatException error) {
			return new Answer(0, "{\"detail\":\"no answer from " + URL + ": " + error.toString().replace("\"", "'") + "\"}", 1000);
		}
	}

	/** A lock that is renewed in the background until release(). Work only between two check()s that do not throw. */
	static class Lease {
		final long ttl, margin, fence;
		final String path, token;
		final CountDownLatch lost = new CountDownLatch(1), ended = new CountDownLatch(1);
		final Thread supervisor = new Thread(this::keep);
		volatile long stopAt;
		volatile String why = "it could not be renewed in time";

		Lease(String resource, long ttl, long wait) throws Failure, InterruptedException {
			this.ttl = ttl;
			margin = ttl / 5;
			path = "/locks/" + URLEncoder.encode(resource, StandardCharsets.UTF_8).replace("+", "%20");
			var name = resource.replace("\\", "\\\\").replace("\"", "\\\"");
			var again = UUID.randomUUID().toString(); // if an answer is lost, the next request finds the lease
			for (long until = clock() + wait;;) {
				long sent = clock(); // before the request: the lease lasts for so long from here, or longer
				long left = Math.min(Math.max(until - sent, 0), 60000);
				var answer = call("POST", "/locks", "{\"resource\":\"%s\",\"ttl_ms\":%d,\"wait_ms\":%d}".formatted(name, ttl, left), left + 5000,
					"Idempotency-Key", again);
				if (answer.status == 201 || answer.status == 200) {
					stopAt = sent + answer.number("validity_ms") + answer.number("waited_ms") * 99 / 100 - margin;
					token = answer.text("token", "");
					fence = answer.number("fence");
					break;
				}
				switch (answer.status) {
				case 0, 409, 429, 503: break;
				case 401, 403: throw new Failure(77, answer.detail());
				default: throw new Failure(64, answer.detail());
				}
				left = until - clock();
				if (left <= 0) throw new Failure(answer.status == 409 ? 75 : 69, answer.detail());
				Thread.sleep(Math.min(left, answer.pause));
			}
			System.out.println("acquired fence=" + fence);
			supervisor.setDaemon(true);
			supervisor.start();
		}

		private void keep() {
			try {
				for (long pause = ttl / 3; !ended.await(pause, TimeUnit.MILLISECONDS);) {
					long sent = clock(), timeout = Math.min(stopAt - sent, ttl / 5);
					if (timeout <= 0) return;
					var answer = call("PUT", path, "{\"token\":\"%s\",\"ttl_ms\":%d}".formatted(token, ttl), timeout);
					if (answer.status == 200) {
						stopAt = sent + answer.number("validity_ms") - margin;
						System.out.println("renewed");
					} else if (answer.status == 409 || answer.status == 410) {
						why = answer.detail();
						lost.countDown();
						return;
					}
					pause = ttl / (answer.status == 200 ? 3 : 10); // no answer, 429, 503: the old end holds, ask again soon
				}
			} catch (InterruptedException never) {
				throw new AssertionError(never);
			}
		}

		/** Looks at the clock itself: a supervisor that hangs in a request must not keep the work going. */
		void check() throws Failure {
			if (lost.getCount() == 0 || clock() >= stopAt) throw new Failure(79, "lease lost: " + why);
		}

		/** Stands for work that can be broken off at once. */
		void work(long ms) throws Failure, InterruptedException {
			for (long until = clock() + ms; clock() < until;) {
				check();
				lost.await(Math.min(until, stopAt) - clock(), TimeUnit.MILLISECONDS);
			}
			check();
		}

		void release() throws InterruptedException {
			ended.countDown();
			supervisor.join(); // a renewal that comes after the release would look like a loss
			var answer = call("DELETE", path, "{\"token\":\"%s\"}".formatted(token), 2000);
			System.out.println(answer.status == 204 ? "released" : "not released: " + answer.detail());
		}
	}

	/** The resource refuses whoever is not the last holder: comparison and change are one statement, also by JDBC; Java brings no driver for SQLite.
	 * The longest step that cannot be broken off is as long as the margin. */
	static long update(String store, Lease lease, String change) throws Failure, IOException, InterruptedException {
		var sql = "UPDATE stock SET %s, fence = %d WHERE item = 'apples' AND fence <= %<d RETURNING amount".formatted(change, lease.fence);
		var sqlite = new ProcessBuilder("sqlite3", "-cmd", ".timeout " + lease.margin, store, sql).redirectError(ProcessBuilder.Redirect.INHERIT).start();
		var amount = new String(sqlite.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
		if (sqlite.waitFor() != 0) throw new Failure(1, "sqlite3 failed");
		if (amount.isEmpty()) throw new Failure(79, "fence refused: somebody else has had the lock since");
		return Long.parseLong(amount);
	}

	static void book(String resource, String store, long steps, long step, long ttl, long wait) throws Failure, IOException, InterruptedException {
		var lease = new Lease(resource, ttl, wait);
		try {
			long amount = update(store, lease, "amount = amount"); // brings the fence there, then reads
			for (; steps > 0; steps--) {
				lease.work(step);
				amount = update(store, lease, "amount = " + (amount + 1));
				System.out.println("wrote " + amount);
			}
		} finally {
			lease.release();
		}
	}

	public static void main(String[] args) throws Exception {
		long[] n = {5, 1000, 10000, 20000};
		for (int i = 2; i < args.length; i++) n[i - 2] = Long.parseLong(args[i]);
		var main = Thread.currentThread();
		var hook = new Thread(() -> { // a SIGTERM: the lease is released, then the program ends
			main.interrupt();
			try {
				main.join();
			} catch (InterruptedException ended) {
				return;
			}
		});
		Runtime.getRuntime().addShutdownHook(hook);
		try {
			book(args[0], args[1], n[0], n[1], n[2], n[3]);
		} catch (InterruptedException terminated) {
			System.err.println("lock: interrupted");
		} catch (Failure failure) {
			System.err.println("lock: " + failure.getMessage());
			Runtime.getRuntime().removeShutdownHook(hook);
			System.exit(failure.exitStatus);
		}
	}
}
