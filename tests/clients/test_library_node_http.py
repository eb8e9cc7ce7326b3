# SPDX-License-Identifier: MIT
"""The answers and the connections of the library for Node."""

import base64
import json

import pytest

from certificates import Authority
from driver import DRIVERS
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import SLOW, starved_seconds, wait_until
from node_programs import end, run, start
from test_library_connections import closing_after, connections, until_read
from test_library import url_of
from test_redlockctl_tls import context

if "node" not in DRIVERS:
    pytest.skip("REDLOCKD_TEST_LANGUAGES does not name node", allow_module_level=True)


# ---- answers ----

NUMBERS = {
    '{"a":7}': [7], '{"a": -7 }': [-7], '{"a":9007199254740991}': [2**53 - 1], '{"a":9007199254740992}': [None],
    '{"a":9007199254740993}': [None], '{"a":123456789012345678901}': [None], '{"a":7.0}': [None], '{"a":7.5}': [None],
    '{"a":7e0}': [None], '{"a":70E-1}': [None], '{"a":1e400}': [None], '{"a":1,"a":2}': [2], '{"\\u0061":7}': [7],
    '{"A":7,"a":8}': [7, 8], '{"a":"7.0"}': ["7.0"], '{"a":"\\"7.0"}': ['"7.0'], '{"a":"x\\\\","b":7.0}': ["x\\", None],
    '{"a":["7e0",7e0,{"7.5":7.5}]}': [["7e0", None, {"7.5": None}]],
    '\r\n\t {"a":7} \n': [7], '{"a":true,"b":null}': [True, None],
}
BAD = [b"", b" ", b"[]", b"null", b"7", b'"a"', b'{"a":01}', b'{"a":1.}', b'{"a":+1}', b'{"a":1,}', b"{} {}", b"{}x",
       b"\xef\xbb\xbf{}",
       b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b"{'a':1}", b'{"a":"\t"}', b"[" * 50000]
READ = """
const { parseAnswer } = require("./answer.js");
const read = (base64) => {
    let seen;
    const ask = { method: "POST", wrong: (body) => { seen = Object.values(body); } };
    try {
        parseAnswer(ask, { statusCode: 201, headers: {} }, Buffer.from(base64, "base64"));
        return seen;
    } catch (error) {
        return error.message;
    }
};
"""


def test_numbers_are_integers_of_json():
    """A number with a fraction or an exponent is none, nor one that is rounded; texts and names stay as they are."""
    texts = [base64.b64encode(text.encode()).decode() for text in NUMBERS]
    assert run(READ + "given.map(read).forEach(say);", "http://a", "x", *texts) == list(NUMBERS.values())


def test_what_is_no_object():
    texts = [base64.b64encode(text).decode() for text in BAD]
    said = run(READ + "given.map(read).forEach(say);", "http://a", "x", *texts)
    assert said == ["its body is no JSON object"] * len(BAD)


def raw(data):
    """Answers with these bytes, and closes the connection."""
    def behave(call):
        call.connection.sendall(data)
        call.connection.close()
    return behave


LEASE = json.dumps({"resource": "x", "token": TOKEN, "fence": 7, "ttl_ms": 30000, "validity_ms": 20000}).encode()


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 201 X\r\nContent-Length: 500\r\n\r\n" + LEASE,
    b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(LEASE), LEASE),
    b"HTTP/1.1 201 X\r\n\r\n" + LEASE[:-1],
    b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + LEASE,
    b"HTTP/1.1 201 X\r\nContent-Length: 9000000\r\n\r\n" + b" " * 9000000,
    b"SSH-2.0-OpenSSH_9.2\r\n",
], ids=["length", "chunked", "close", "upgrade", "long", "ssh"])
def test_an_answer_that_is_cut_off_or_no_http(fake, data):
    """Even where what came would be a lease."""
    server = fake(acquire=raw(data))
    assert run('say(await codeOf(client.acquire("x", { wait: 0 })));', server.address) == ["no-answer"]
    assert len(server.of("acquire")) >= 2


# ---- servers ----


def test_a_name_with_several_addresses(fake):
    """localhost is ::1 first in many places, and this server listens on 127.0.0.1 only."""
    server = fake(port=True)
    said = run("""
    require("node:dns").lookup = (name, options, done) => {
        const both = [{ address: "::1", family: 6 }, { address: "127.0.0.1", family: 4 }];
        process.nextTick(() => (options.all ? done(null, both) : done(null, "::1", 6)));
    };
    say((await new redlockd.Client(`http://localhost:${given[0]}/`).acquire("x", { wait: 0 })).fence);
    """, server.address, "x", server.port)
    assert said == [7]


def test_a_path_before_the_calls(fake):
    paths = []

    def behave(call):
        paths.append(call.path)
        call.lease()
    server = fake(port=True, acquire=behave)
    assert run("say((await new redlockd.Client(`${url}/a/b/`).acquire('x')).fence);", server.address) == [7] and paths == ["/a/b/locks"]


def test_certificates_are_always_checked(lab, fake):
    """Also where the environment says that they are not."""
    server = fake(tls=context(Authority(lab.folder).issue("server", "IP:127.0.0.1", usage="serverAuth")))
    said = run('say(await codeOf(client.acquire("x", { wait: 0 })));', server.address, env={"NODE_TLS_REJECT_UNAUTHORIZED": "0"})
    assert said == ["no-answer"] and not server.calls


def test_nothing_is_left_of_health_checks(fake):
    """The one that is under way when the answer comes does not keep the program alive."""
    def slow(call):
        call.server.call("health")
        call.lease()
    first, second = fake(acquire=slow, health=lambda call: call.connection.recv(1)), fake()
    said = run("""
    const lease = await new redlockd.Client([url, resource], { timeout: 6000 }).acquire("x");
    const since = performance.now();
    process.on("exit", () => say([lease.fence, performance.now() - since < 5000]));
    """, first.address, second.address)
    assert said == [[7, True]] and not second.of("acquire")


def test_a_renewal_without_an_answer_is_given_up(fake):
    """After a fifth of the ttl, although a server may take five seconds for other requests; the next one renews."""
    starved = starved_seconds()
    first, second = fake(extend=lambda call: call.until_hung_up()), fake()
    said, = run("""
    const lease = await new redlockd.Client([url, resource]).acquire("x", { ttl: 9000 });
    for (let before = Infinity, now = lease.remaining; now && now <= before;) { // until it is renewed
        await pause(5);
        [before, now] = [now, lease.remaining];
    }
    say([lease.signal.aborted, await lease.release()]);
    """, first.address, second.address)
    assert said == [False, True] and len(first.of("extend")) == 1
    took, starved_for = second.call("extend").came - first.call("extend").came, starved_seconds() - starved
    assert 1.7 - starved_for < took < 4 + starved_for


# ---- kept connections ----


def test_idle_connections_end_with_the_program(fake):
    """A connection that may be kept for ten minutes keeps the program alive for no second."""
    kept = {"Keep-Alive": "timeout=600"}
    server = fake(
        port=True, acquire=lambda call: call.lease(headers=kept), release=lambda call: call.answer(204, **kept)
    )
    assert run('say(await (await client.tryAcquire("x")).release());', server.address) == [True]
    assert connections(server) == 1


def with_tls(lab, fake, **behaviour):
    authority = Authority(lab.folder)
    issued = authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
    return fake(tls=context(issued), **behaviour), authority.certificate


PAIRS = """
const mine = new redlockd.Client(url, { ca: given[0] });
for (let left = 5; left > 0; left--) say(await (await mine.tryAcquire("x")).release());
"""


def test_pairs_share_a_connection_with_tls(lab, fake):
    server, authority = with_tls(lab, fake)
    assert run(PAIRS, server.address, "x", authority) == [True] * 5
    assert len(server.calls) == 10 and connections(server) == 1


def test_requests_share_16_connections(lab):
    """An answer may be there before Node knows that the request is written: the next request waits for both. It takes a
    real server with TLS, which is fast enough. A request that is given up may open another connection."""
    authority = Authority(lab.folder)
    issued = authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
    service = lab.service(
        3,
        *("--tls-cert", issued.certificate, "--tls-key", issued.key),
        trust=authority.certificate,
        listen=["https://127.0.0.1:0"],
    )
    opened, failed, asked = run("""
    const tls = require("node:tls");
    const { connect } = tls;
    let opened = 0, failed = 0;
    tls.connect = (...how) => connect(...how).once("secureConnect", () => opened++);
    const log = () => {};
    const warn = () => failed++;
    const mine = new redlockd.Client(url, { ca: given[0], timeout: 60000, logger: { debug: log, info: log, warn } });
    const options = { ttl: Number(given[1]) };
    let asked = 0;
    const repeat = async (_, number) => {
        while ((asked += 2) <= 1000) await (await mine.tryAcquire(`it/${number}/${asked}`, options)).release();
    };
    await Promise.all(Array.from({ length: 400 }, repeat));
    [opened, failed, asked].forEach(say);
    process.exit();
    """, url_of(service), "x", authority.certificate, round(9000 * SLOW))
    assert asked >= 1000 and 1 <= opened <= 16 + failed


def test_a_kept_connection_that_is_closed_with_tls(lab, fake):
    """Whether the client has seen it or not, the request is sent on a new one, and the connection is no failure."""
    server, authority = with_tls(lab, fake, acquire=closing_after(lambda call: call.lease()))
    assert run(PAIRS, server.address, "x", authority) == [True] * 5
    assert len(server.of("acquire")) == len(server.of("release")) == 5


def test_a_request_that_meets_a_closed_connection_with_tls(lab, fake):
    """The server has read it, and closes."""
    def release(call):
        if [other for other in call.server.calls if other.connection is call.connection][0] is call:
            call.answer(204)
    server, authority = with_tls(lab, fake, release=release)
    assert run(PAIRS, server.address, "x", authority) == [True] * 5
    assert len(server.of("acquire")) == 5 and len(server.of("release")) == 10


def test_an_answer_that_nobody_asked_for(fake):
    """It closes the connection on which it comes, and is not the answer to the next request."""
    def twice(call):
        call.lease(headers={"Keep-Alive": "timeout=600"})
        if call.name == "x":
            until_read(call.connection)
            call.lease(fence=666)
            call.until_hung_up()
            hung_up.append(call)
    hung_up = []
    server = fake(acquire=twice)
    process = start("""
    const lease = await client.tryAcquire("x");
    for await (const _ of process.stdin) { /* until it is closed */ }
    say([lease.fence, (await client.tryAcquire("y")).fence]);
    """, server.address, stdin=True)
    wait_until(lambda: hung_up, what="the client closes the connection")
    assert end(process) == [[7, 7]]
    assert len({call.connection for call in server.of("acquire")}) == 2


def test_requests_in_the_queue_are_given_up_in_time(fake):
    """A server that hangs takes all turns; those that wait for one fail at the same time, and every turn comes back."""
    server = fake(acquire=lambda call: call.until_hung_up() if call.name.startswith("hung") else call.lease())
    said, = run("""
    const mine = new redlockd.Client(url, { timeout: Number(given[0]) });
    const each = (work) => Promise.all(Array.from({ length: 40 }, (_, number) => work(number)));
    const codes = new Set(await each((number) => codeOf(mine.tryAcquire(`hung/${number}`))));
    const free = await each((number) => mine.tryAcquire(`free/${number}`, { ttl: 60000 }));
    say([[...codes], free.every((lease) => lease.fence === 7)]);
    """, server.address, "x", round(3000 * SLOW))
    assert said == [["no-answer"], True]
    hung = {call.name for call in server.of("acquire") if call.name.startswith("hung")}
    assert len(hung) < 40, "some were never sent"
