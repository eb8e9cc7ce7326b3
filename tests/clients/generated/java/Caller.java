// SPDX-License-Identifier: MIT
// A caller of the Java client that openapi-generator makes from openapi.yaml: takes a lock, is refused a second time, extends, looks, releases.
// Prints one word for each step; test_generated.py reads them.
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import java.util.List;
import java.util.stream.Stream;
import org.example.redlockd.ApiClient;
import org.example.redlockd.ApiException;
import org.example.redlockd.ApiResponse;
import org.example.redlockd.api.LeasesApi;
import org.example.redlockd.api.OperationApi;
import org.example.redlockd.model.AcquireRequest;
import org.example.redlockd.model.AcquireUnavailableProblem;
import org.example.redlockd.model.ExtendItem;
import org.example.redlockd.model.ExtendLocks200Response;
import org.example.redlockd.model.ExtendNamedRequest;
import org.example.redlockd.model.ExtendRequest;
import org.example.redlockd.model.Lease;
import org.example.redlockd.model.LeaseExpiredProblem;
import org.example.redlockd.model.LeaseResultsLeasesInner;
import org.example.redlockd.model.LockList;
import org.example.redlockd.model.LockState;
import org.example.redlockd.model.LockedProblem;
import org.example.redlockd.model.MasterList;
import org.example.redlockd.model.ReleaseRequest;

public final class Caller {
	private interface Call {
		void run() throws ApiException;
	}

	/** An answer of one type or another is read as the first whose members it has: so members that a type lacks are refused. */
	private static ApiClient client(String url) {
		ApiClient client = new ApiClient();
		client.updateBaseUri(url);
		client.setObjectMapper(ApiClient.createDefaultObjectMapper().enable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES));
		return client;
	}

	private static ApiException problem(Call call) {
		try {
			call.run();
		} catch (ApiException problem) {
			return problem;
		}
		throw new IllegalStateException("no problem");
	}

	/** This generator makes types of the problems, and leaves it to the caller to read them. */
	private static <T> T read(ApiException problem, Class<T> type) throws JsonProcessingException {
		return ApiClient.createDefaultObjectMapper().readValue(problem.getResponseBody(), type);
	}

	private static void say(Object... words) {
		StringBuilder line = new StringBuilder();
		for (Object word : words)
			line.append(line.length() > 0 ? " " : "").append(word);
		System.out.println(line);
	}

	public static void main(String[] arguments) throws ApiException, JsonProcessingException {
		LeasesApi leases = new LeasesApi(client(arguments[0]));
		LeasesApi ill = new LeasesApi(client(arguments[2]));
		String resource = arguments[1];
		AcquireRequest wanted = new AcquireRequest().resource(resource).ttlMs(30000);

		ApiResponse<Lease> acquired = leases.acquireLockWithHttpInfo(wanted, null);
		Lease lease = acquired.getData();
		say("acquired", acquired.getStatusCode(), lease.getFence() > 0 && lease.getValidityMs() < 30000);

		ApiException refused = problem(() -> leases.acquireLock(wanted, null));
		LockedProblem locked = read(refused, LockedProblem.class);
		say("refused", refused.getCode(), true, locked.getCode().getValue(), locked.getRetryAfterMs() > 0,
			locked.getHolder().getFence().equals(lease.getFence()), locked.getVotes().getNeeded());

		ApiResponse<Lease> extended = leases.extendLockWithHttpInfo(resource, lease.getToken(), new ExtendRequest().ttlMs(60000));
		say("extended", extended.getStatusCode(), extended.getData().getValidityMs() > 30000,
			extended.getData().getFence().equals(lease.getFence()));

		LockState state = leases.inspectLock(resource, null, null, null);
		say("inspected", state.getHeld(), state.getFence().equals(lease.getFence()));

		ApiResponse<ExtendLocks200Response> named = leases.extendLocksWithHttpInfo(new ExtendNamedRequest().resource(resource).ttlMs(60000), lease.getToken());
		LockState one = leases.getLocks(null, null, null, null, resource, null, null, null).getLockState();
		LockList page = leases.getLocks(resource, null, null, null, null, null, null, null).getLockList();
		say("named", named.getStatusCode(), named.getData().getLease().getFence().equals(lease.getFence()), one.getFence().equals(lease.getFence()),
			page.getLocks().size());

		List<ExtendItem> items = Stream.of("", "/other").map(end -> new ExtendItem().resource(resource + end).token(lease.getToken())).toList();
		ApiResponse<ExtendLocks200Response> many = leases.extendLocksWithHttpInfo(new ExtendNamedRequest().leases(items), null);
		List<LeaseResultsLeasesInner> results = many.getData().getLeaseResults().getLeases();
		say("many", many.getStatusCode(), results.get(0).getLease().getFence().equals(lease.getFence()), results.get(1).getLeaseProblem().getCode().getValue());

		ReleaseRequest given = new ReleaseRequest().token(lease.getToken());
		say("released", leases.releaseLockWithHttpInfo(resource, null, null, null, null, given).getStatusCode());

		ApiException gone = problem(() -> leases.releaseLock(resource, null, null, null, null, given));
		say("expired", gone.getCode(), true, read(gone, LeaseExpiredProblem.class).getCode().getValue());

		ApiException unavailable = problem(() -> ill.acquireLock(wanted, null));
		AcquireUnavailableProblem why = read(unavailable, AcquireUnavailableProblem.class);
		say("unavailable", unavailable.getCode(), true, why.getCode().getValue(), why.getVotes().getNeeded());

		MasterList masters = new OperationApi(client(arguments[0])).getMasters();
		say("masters", masters.getQuorum().getVoting(), masters.getMasters().get(0).getReason() == null,
			masters.getMasters().get(0).getVersion() != null);
	}
}
