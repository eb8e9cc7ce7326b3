package redlockd

// One acquisition: what is wanted, and the requests until it is there. All of them have one Idempotency-Key, so that
// each finds the lease whose answer was lost.

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	random "math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

const waitMax = time.Minute // of one request: the default of --max-wait-ms

var tokens = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Option is for one acquisition.
type Option func(*wanted)

// TTL is how long the lease lasts without a renewal, 30 s by default. It is renewed when a third of it is over.
func TTL(ttl time.Duration) Option { return func(w *wanted) { w.ttl = ttl } }

// Wait is how long to wait for the lock, a minute by default. 0: the lock is tried once.
func Wait(wait time.Duration) Option { return func(w *wanted) { w.wait = wait } }

// Margin is how long before its end the lease counts as lost: the time of the longest step of the work that cannot be
// interrupted. By default it is a tenth of the TTL, and at most half of it.
func Margin(margin time.Duration) Option { return func(w *wanted) { w.margin = &margin } }

// Owner is a label for whoever inspects the lock. By default it is that of the client.
func Owner(owner string) Option { return func(w *wanted) { w.body["owner"] = owner } }

// Metadata is for whoever inspects the lock: anything that encoding/json makes an object of.
func Metadata(metadata any) Option {
	text, err := json.Marshal(metadata)
	return func(w *wanted) { w.body["metadata"], w.err = json.RawMessage(text), err }
}

// Shared takes the lock together with others that share it.
func Shared() Option { return func(w *wanted) { w.body["mode"] = "shared" } }

// Slots lets so many hold the lock at once, each on a [Lease.Slot] of its own.
func Slots(count int) Option { return func(w *wanted) { w.body["slots"] = count } }

// wanted is what is asked for: one resource, or all of several at once.
type wanted struct {
	names     []string
	path      string
	body      members // of the POST, without wait_ms
	set       members // names the resources of a set in a PUT or DELETE
	ttl, wait time.Duration
	margin    *time.Duration
	err       error // of the metadata
}

func pathOf(resource string) string { return "/locks/" + url.PathEscape(resource) }

// choose fills in what was chosen.
func (w *wanted) choose(owner string, options []Option) error {
	w.ttl, w.wait = 30*time.Second, time.Minute
	if owner != "" {
		w.body["owner"] = owner
	}
	for _, option := range options {
		option(w)
	}
	w.body["ttl_ms"] = w.ttl.Milliseconds()
	if w.margin == nil {
		margin := w.ttl / 10
		w.margin = &margin
	}
	if w.ttl < time.Millisecond || w.wait < 0 || *w.margin < 0 || *w.margin > w.ttl/2 {
		return errors.New("redlockd: TTL must be positive, Wait not negative, Margin at most half of TTL")
	}
	if !utf8.ValidString(strings.Join(w.names, " ")) { // in JSON it would be another name
		return fmt.Errorf("redlockd: not UTF-8: %q", w.names)
	}
	return w.err
}

func (w *wanted) acquire(key string, wait, timeout time.Duration) ask {
	body := maps.Clone(w.body)
	body["wait_ms"] = wait.Milliseconds()
	return ask{"POST", "/locks", wait + timeout, body, map[string]string{"Idempotency-Key": key}}
}

func (w *wanted) release(token string, timeout time.Duration) ask {
	return ask{"DELETE", w.path, timeout, w.set, map[string]string{"Lock-Token": token}}
}

// grant is what the answer to a POST or PUT says.
type grant struct {
	Token    string
	Fence    int64
	Slot     *int
	Validity *int64 `json:"validity_ms"`
	Waited   int64  `json:"waited_ms"`
}

// parseGrant returns nil if this is no lease of redlockd.
func parseGrant(given answer) *grant {
	g := &grant{}
	if given.status != 200 && given.status != 201 || json.Unmarshal(given.text, g) != nil || g.Validity == nil {
		return nil
	}
	return g
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

type acquisition struct {
	*wanted
	client  *Client
	parent  context.Context // of the context of the lease
	key     string
	until   time.Duration // by clock()
	unknown bool          // there may be a lease of which nobody knows
}

func newKey() string {
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		panic(err) // no key would be secret
	}
	return fmt.Sprintf("%x", key)
}

// run asks until there is a lease that can be used, or repeating does not help, or the wait is over.
func (q *acquisition) run(ctx context.Context) (*Lease, error) {
	for failures := 0; ; {
		sent := clock() // before the request: the lease lasts for so long from here, or longer
		wait := min(max(q.until-sent, 0), waitMax)
		given := q.client.ask(ctx, q.acquire(q.key, wait, q.client.timeout))
		if lease := q.use(given, sent); lease != nil {
			return lease, nil
		}
		if failures++; given.status == 409 {
			failures = 0
		}
		pause, again := q.pause(given, failures, clock()-sent < wait-time.Second/2)
		if !again && ctx.Err() == nil {
			return nil, given.err
		}
		q.client.log.DebugContext(ctx, "redlockd: not acquired yet", "resources", q.names, "error", given.err)
		if !sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

// use returns nil if there is no lease in the answer, or it came too late. Then it is released, and the next request
// asks for another one.
func (q *acquisition) use(given answer, sent time.Duration) *Lease {
	undecided := given.sent && (given.status == 0 || given.status == 200 || given.status == 201 || given.status == 503)
	q.unknown = given.status != 409 && (q.unknown || undecided) // a 409: none; others say nothing of earlier requests
	g := parseGrant(given)
	if g == nil || !tokens.MatchString(g.Token) {
		return nil
	}
	begin := sent + milliseconds(g.Waited)/100*99 // the clocks of server and client may differ by a hundredth
	lease := newLease(q, g, begin+milliseconds(*g.Validity))
	if lease.Err() == nil {
		lease.start(begin + q.ttl/3)
		return lease
	}
	q.client.ask(context.WithoutCancel(q.parent), q.release(g.Token, q.client.timeout))
	q.key, q.unknown = newKey(), false
	return nil
}

// pause comes before the next request. early: the server answered before the wait was over.
func (q *acquisition) pause(given answer, failures int, early bool) (pause time.Duration, again bool) {
	left, servers, locked := q.until-clock(), len(q.client.servers), given.status == 409
	if given.status >= 400 && !locked && !given.isUnhelpful() {
		return 0, false
	}
	if left <= 0 { // each server once, and once more if the answer was lost
		if given.status == 0 && given.sent {
			servers++
		}
		return 0, !locked && failures < servers
	}
	if locked && !early || !locked && failures%servers != 0 { // at once: the wait is over, or there is another server
		return 0, true
	}
	pause = given.retryAfter()
	if locked {
		pause = min(pause, time.Second)
	}
	return min(left, pause+random.N(time.Second)), true
}

// takeBack is for a lock that nobody wants any more: it finds and releases the lease that may have been granted.
func (q *acquisition) takeBack() {
	ctx, limit := context.WithoutCancel(q.parent), min(q.client.timeout, time.Second)
	if g := parseGrant(q.client.ask(ctx, q.acquire(q.key, 0, limit))); g != nil {
		q.client.ask(ctx, q.release(g.Token, limit))
	}
}
