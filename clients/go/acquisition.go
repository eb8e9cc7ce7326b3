// SPDX-License-Identifier: MIT

package redlockd

// An acquisition: "Acquire" in docs/reference/client-rules.md. All of its requests have one Idempotency-Key, so
// that each finds the lease whose answer was lost.

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	random "math/rand/v2"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	waitMax    = time.Minute            // of one request: the default of --max-wait-ms
	apart      = 500 * time.Millisecond // from one request to the next one that asks the same
	releaseMax = 2 * time.Second        // for the answer to a DELETE

	atLeastOfLease = 10 * time.Second // a shorter lease is not worth its renewals
)

// Option is for one acquisition.
type Option func(*acquisition)

// TTL is how long the lease lasts without a renewal, by default what the server says: 30 s, or its largest if that is
// less. It is renewed when a third of it is over.
func TTL(ttl time.Duration) Option {
	return func(q *acquisition) { q.ttl, q.body["ttl_ms"] = ttl, ttl.Milliseconds() }
}

// Wait is how long to wait for the lock, a minute by default. 0: the lock is tried once.
func Wait(wait time.Duration) Option { return func(q *acquisition) { q.wait = wait } }

// Margin is how long before its end the lease counts as lost: the time of the longest step of the work that cannot be
// interrupted. By default it is a tenth of the TTL, and at most half of it.
func Margin(margin time.Duration) Option { return func(q *acquisition) { q.margin = &margin } }

// AtLeast is how long nobody else gets the lock after it was granted, also if it is released earlier: a short job then
// does not run again on a machine whose clock is behind. It is at most the TTL. If none is given, it is the TTL, too,
// from 10 s on.
func AtLeast(atLeast time.Duration) Option { return func(q *acquisition) { q.atLeast = atLeast } }

// Owner is a label for whoever inspects the lock. By default it is that of the client.
func Owner(owner string) Option { return func(q *acquisition) { q.body["owner"] = owner } }

// Metadata is for whoever inspects the lock: anything that encoding/json makes an object of.
func Metadata(metadata any) Option {
	text, err := json.Marshal(metadata)
	return func(q *acquisition) { q.body["metadata"], q.err = json.RawMessage(text), err }
}

// Shared takes the lock together with others that share it.
func Shared() Option { return func(q *acquisition) { q.body["mode"] = "shared" } }

// Slots lets so many hold the lock at once, each on a [Lease.Slot] of its own.
func Slots(count int) Option { return func(q *acquisition) { q.body["slots"] = count } }

// acquisition is of one resource, or of all of several at once.
type acquisition struct {
	client    *Client
	parent    context.Context // of the context of the lease
	names     []string
	body      members // of the POST, without wait_ms
	named     members // the part of it that a PUT or DELETE has, too
	ttl, wait time.Duration
	atLeast   time.Duration
	byAtLeast bool // it is the ttl, too
	margin    *time.Duration
	err       error // of the metadata
	key       string
	began     time.Duration // by clock()
	keyed     time.Duration // the same, before the first request with this key
	failures  int           // in a row
	silent    int           // answers in a row that did not come
	told      bool          // the warning of that
	unknown   bool          // there may be a lease of which nobody knows
}

func newKey() string {
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		panic(err) // no key would be secret
	}
	return fmt.Sprintf("%x", key)
}

// choose fills in what was chosen.
func (q *acquisition) choose(options []Option) error {
	q.ttl, q.wait = math.MaxInt64, time.Minute // the server chooses the TTL
	if q.client.owner != "" {
		q.body["owner"] = q.client.owner
	}
	for _, option := range options {
		option(q)
	}
	if q.atLeast >= atLeastOfLease && q.body["ttl_ms"] == nil {
		q.byAtLeast = true
		TTL(q.atLeast)(q) // a server that grants such a lease also keeps a lock for so long
	}
	switch {
	case q.ttl < time.Millisecond:
		return fmt.Errorf("redlockd: TTL must be at least %v: %v", time.Millisecond, q.ttl)
	case q.wait < 0:
		return fmt.Errorf("redlockd: Wait must not be negative: %v", q.wait)
	case q.atLeast < 0 || q.atLeast > q.ttl:
		return fmt.Errorf("redlockd: AtLeast must be from 0 to TTL: %v", q.atLeast)
	case q.margin != nil && (*q.margin < 0 || *q.margin > q.ttl/2):
		return fmt.Errorf("redlockd: Margin must be from 0 to half of TTL: %v", *q.margin)
	}
	return cmp.Or(checkNames(q.names...), q.err)
}

// checkNames refuses what would be another name in JSON.
func checkNames(names ...string) error {
	if !utf8.ValidString(strings.Join(names, " ")) {
		return fmt.Errorf("redlockd: not UTF-8: %q", names)
	}
	return nil
}

// acquire leaves neither a waiting request nor a lease if it returns an error or panics.
func (q *acquisition) acquire() (lease *Lease, err error) {
	if q.client.closed.Err() != nil {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(q.parent)
	defer cancel(nil)
	defer context.AfterFunc(q.client.closed, func() { cancel(ErrClosed) })()
	defer func() {
		if lease == nil && q.unknown {
			q.takeBack()
		}
	}()
	return q.run(ctx)
}

// run asks until there is a lease that can be used, or repeating does not help, or the wait is over.
func (q *acquisition) run(ctx context.Context) (*Lease, error) {
	for ctx.Err() == nil {
		wait := min(max(q.left(), 0), waitMax)
		given := q.request(ctx, wait)
		if given.grant != nil {
			if lease := newLease(q, given); lease != nil {
				return lease, nil
			}
			given = q.giveBack(given)
		}
		if ctx.Err() != nil {
			break
		}
		pause, err := q.pause(given, wait)
		if err != nil {
			return nil, err
		}
		q.log(slog.LevelDebug, "redlockd: not acquired yet", "error", given.err)
		q.warn(given)
		sleep(ctx, pause)
	}
	return nil, context.Cause(ctx)
}

// warn writes a line once, after the first round in which no server answered.
func (q *acquisition) warn(given *answer) {
	q.silent++
	if given.status != 0 {
		q.silent = 0
	}
	if q.silent >= len(q.client.servers) && !q.told && q.left() > 0 {
		q.told = true
		until := fmt.Sprintf("; waiting up to %v for the lock on %s", q.wait, namesOf(q.names))
		q.log(slog.LevelWarn, "redlockd: "+given.err.Detail+until)
	}
}

func (q *acquisition) log(level slog.Level, message string, arguments ...any) {
	q.client.journal.log(q.parent, level, message, append(arguments, "resources", q.names)...)
}

// request asks once, and tells unknown what the answer means for a lease that may have been granted.
func (q *acquisition) request(ctx context.Context, wait time.Duration) *answer {
	before := q.unknown
	q.unknown = true // also if this panics
	given := q.client.ask(ctx, q.post(wait, wait+q.client.timeout), map[*server]bool{})
	switch {
	case given.err == nil:
	case given.err.Code == ErrLocked:
		given.err.Detail = heldBy(given.body, namesOf(q.names))
	case given.err.Code == ErrInvalidRequest && q.byAtLeast:
		given.err.Detail = strings.ReplaceAll(given.err.Detail, "TTL:", "AtLeast:")
	}
	undecided := given.sent && (given.status == 0 || given.status == 503) || given.grant != nil
	q.unknown = given.status != 409 && (before || undecided) // a 409: none; others say nothing of earlier requests
	return given
}

// giveBack is for a lease that came too late: the next request asks for another one.
func (q *acquisition) giveBack(given *answer) *answer {
	q.client.askEach(context.Background(), q.delete(given.grant.token, q.client.timeout, 0))
	q.key, q.keyed, q.unknown, q.silent = newKey(), clock(), false, -1 // the server was not silent
	return noAnswer(false, errors.New("the lease came too late to be used"))
}

// takeBack finds and releases the lease that may have been granted, since nobody wants it any more.
func (q *acquisition) takeBack() {
	ctx, limit := context.Background(), min(q.client.timeout, time.Second)
	if given := q.client.askEach(ctx, q.post(0, limit)); given.grant != nil {
		q.client.askEach(ctx, q.delete(given.grant.token, limit, 0))
	}
}

func (q *acquisition) post(wait, timeout time.Duration) ask {
	body := maps.Clone(q.body)
	body["wait_ms"] = wait.Milliseconds()
	ttl, chosen := body["ttl_ms"].(int64)
	if !chosen {
		ttl = numberMax
	}
	return ask{
		method: "POST", path: "/locks", timeout: timeout, body: body, waits: wait > 0,
		header: http.Header{"Idempotency-Key": {q.key}},
		read:   func(given *answer) string { return q.readGrant(given, "", ttl) },
	}
}

// delete releases the lease. For the time of keep, if it is positive, nobody gets the lock then.
func (q *acquisition) delete(token string, timeout, keep time.Duration) ask {
	body := maps.Clone(q.named)
	if keep > 0 {
		body["keep_ms"] = (keep + time.Millisecond - 1).Milliseconds()
	}
	return ask{
		method: "DELETE", path: "/locks", timeout: min(timeout, releaseMax), body: body,
		header: http.Header{"Lock-Token": {token}},
	}
}

// pause is how long to wait before the next request; the error says why there is none.
func (q *acquisition) pause(given *answer, wait time.Duration) (pause time.Duration, err error) {
	left, servers := q.left(), len(q.client.servers)
	if given.status == 409 && given.err.Code == ErrLocked {
		q.failures = 0
		if left <= 0 {
			return 0, given.err
		}
		if clock()-given.asked < wait-time.Second/2 && !given.keepsPlace() { // it did not wait
			pause = time.Second/2 + random.N(time.Second)
		}
		return max(min(pause, left), given.asked+apart-clock()), nil
	}
	q.failures++
	again := 0 // after the wait, once more if the answer was lost
	if given.status == 0 && given.sent {
		again = 1
	}
	switch {
	case !given.isUnhelpful(), left <= 0 && q.failures >= servers+again:
		return 0, given.err
	case left > 0 && q.failures%servers == 0:
		return min(given.pause(), left), nil
	}
	return 0, nil
}

// marginOf is the one that was chosen, or a tenth of the TTL.
func (q *acquisition) marginOf(ttl time.Duration) time.Duration {
	tenth := ttl / 10
	return min(*cmp.Or(q.margin, &tenth), ttl/2)
}

// left is the rest of the wait.
func (q *acquisition) left() time.Duration { return q.wait - (clock() - q.began) }
