package redlockd

// A lease: its acquisition, for how long it may be relied on, its renewal, its end.
//
// All requests of an acquisition have one Idempotency-Key, so that each finds the lease whose answer was lost.
//
// Timers only tell a loss to those who wait for it. Each question looks at the clock, so that the first one of a
// process that was stopped gets the right answer.

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	random "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
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
	margin    *time.Duration
	err       error // of the metadata
	key       string
	began     time.Duration // by clock()
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
	if q.ttl < time.Millisecond || q.wait < 0 || q.margin != nil && (*q.margin < 0 || *q.margin > q.ttl/2) {
		return errors.New("redlockd: TTL must be positive, Wait not negative, Margin at most half of TTL")
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

// acquire leaves neither a waiting request nor a lease if it returns an error.
func (q *acquisition) acquire() (*Lease, error) {
	if q.client.closed.Err() != nil {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(q.parent)
	defer cancel(nil)
	defer context.AfterFunc(q.client.closed, func() { cancel(ErrClosed) })()
	lease, err := q.run(ctx)
	if err != nil && q.unknown { // nobody wants the lease that may have been granted
		ctx, limit := context.WithoutCancel(ctx), min(q.client.timeout, time.Second)
		if token := q.client.ask(ctx, q.post(0, limit)).Token; token != "" {
			q.client.ask(ctx, q.delete(token, limit))
		}
	}
	return lease, err
}

func (q *acquisition) post(wait, timeout time.Duration) ask {
	body := maps.Clone(q.body)
	body["wait_ms"] = wait.Milliseconds()
	return ask{"POST", "/locks", timeout, body, http.Header{"Idempotency-Key": {q.key}}}
}

func (q *acquisition) delete(token string, timeout time.Duration) ask {
	return ask{"DELETE", "/locks", timeout, q.named, http.Header{"Lock-Token": {token}}}
}

// run asks until there is a lease that can be used, or repeating does not help, or the wait is over.
func (q *acquisition) run(ctx context.Context) (*Lease, error) {
	for failures := 1; ; failures++ {
		wait := min(max(q.left(), 0), time.Minute) // the default of --max-wait-ms
		given := q.client.ask(ctx, q.post(wait, wait+q.client.timeout))
		if lease := q.use(given); lease != nil {
			return lease, nil
		}
		left, servers, pause := q.left(), len(q.client.servers), time.Duration(0)
		switch locked := given.status == 409; {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case locked && left > 0:
			failures = 0
			if clock()-given.asked < wait-time.Second/2 && given.PlaceKept == 0 { // it did not wait
				pause = time.Second/2 + random.N(time.Second)
			}
		case given.status >= 400 && !given.isUnhelpful():
			return nil, given.err
		case left > 0 && failures%servers == 0:
			pause = given.pause()
		case left <= 0 && failures == servers && given.status == 0 && given.sent: // the answer was lost: once more
		case left <= 0 && failures >= servers:
			return nil, given.err
		}
		q.client.log.DebugContext(ctx, "redlockd: not acquired yet", "resources", q.names, "error", given.err)
		sleep(ctx, min(pause, left))
	}
}

// marginOf is the one that was chosen, or a tenth of the TTL.
func (q *acquisition) marginOf(ttl time.Duration) time.Duration {
	tenth := ttl / 10
	return min(*cmp.Or(q.margin, &tenth), ttl/2)
}

// left is the rest of the wait.
func (q *acquisition) left() time.Duration { return q.wait - (clock() - q.began) }

// use returns nil if there is no lease in the answer, or it came too late. Then it is released, and the next request
// asks for another one.
func (q *acquisition) use(given *answer) *Lease {
	undecided := given.sent && slices.Contains([]int{0, 200, 201, 503}, given.status)
	q.unknown = given.status != 409 && (q.unknown || undecided) // a 409: none; others say nothing of earlier requests
	if given.Token == "" || given.TTL <= 0 {
		return nil
	}
	ttl := milliseconds(given.TTL)
	begin := given.asked + milliseconds(given.Waited)/100*99 // the server's clock may differ by a hundredth
	stop := begin + milliseconds(given.Validity) - q.marginOf(ttl)
	if clock() < stop {
		return newLease(q, given, begin+ttl/3, stop)
	}
	q.client.ask(context.WithoutCancel(q.parent), q.delete(given.Token, q.client.timeout))
	q.key, q.unknown = newKey(), false
	return nil
}

// Lease is a lock that is held, and renewed in the background until [Lease.Unlock]. It is safe for concurrent use.
type Lease struct {
	Resources []string // all names that it covers
	Fence     int64    // larger than that of every holder before: the storage can refuse a write with a smaller one
	Slot      int      // with [Slots], a number below their count that no other holder has; otherwise -1

	wanted *acquisition
	given  *answer         // has the token, and hides it from fmt
	stop   atomic.Int64    // a time.Duration by clock(): until then the lease may be relied on
	held   context.Context // its Cause is the *LockLost once that is over
	end    context.CancelCauseFunc
	ctx    leaseContext
	cancel context.CancelCauseFunc
	first  func() bool // whether this Unlock is the first one, and before Close
}

// newLease begins with the renewals, the first one when it is due.
func newLease(q *acquisition, given *answer, due, stop time.Duration) *Lease {
	l := &Lease{Resources: q.names, Fence: given.Fence, Slot: given.Slot, wanted: q, given: given}
	l.stop.Store(int64(stop))
	l.held, l.end = context.WithCancelCause(context.WithoutCancel(q.parent))
	ctx, cancel := context.WithCancelCause(q.parent)
	l.ctx, l.cancel = leaseContext{ctx, l}, cancel
	l.first = context.AfterFunc(q.client.closed, func() { l.release() })
	l.watch()
	go l.renew(due)
	q.client.log.DebugContext(ctx, "redlockd: acquired", "resources", l.Resources, "fence", l.Fence)
	return l
}

// lose counts the lease as lost. Only the first cause counts.
func (l *Lease) lose(cause error) {
	l.end(&LockLost{l.Resources, cause})
	l.cancel(context.Cause(l.held))
}

// Err returns a *[LockLost] if the lease cannot be relied on any more, by the clock. Call it right before each write.
func (l *Lease) Err() error {
	l.Remaining()
	return context.Cause(l.held)
}

// Remaining is how long the lease may be relied on if it is not renewed.
func (l *Lease) Remaining() time.Duration {
	left := time.Duration(l.stop.Load()) - clock()
	if left <= 0 {
		l.lose(ErrNotRenewed)
	}
	if l.held.Err() != nil {
		return 0
	}
	return left
}

// extend never moves the end back, and revives no lease that is lost.
func (l *Lease) extend(end time.Duration) {
	if stop := int64(end - l.wanted.marginOf(milliseconds(l.given.TTL))); l.Err() == nil && stop > l.stop.Load() {
		l.stop.Store(stop)
	}
}

// watch tells the loss to those who wait for the context. Timers stand still while the machine sleeps.
func (l *Lease) watch() {
	if left := l.Remaining(); left > 0 {
		time.AfterFunc(min(left, time.Second), l.watch)
	}
}

// leaseContext looks at the clock at each question.
type leaseContext struct {
	context.Context
	lease *Lease
}

func (c leaseContext) Done() <-chan struct{} {
	c.lease.Err()
	return c.Context.Done()
}

func (c leaseContext) Err() error {
	c.lease.Err()
	return c.Context.Err()
}

// Context is cancelled before the lease ends, with a *[LockLost] as its [context.Cause]; also by Unlock, and with the
// context that was given to Lock. Its Done and Err look at the clock; those of contexts that are made from it do not.
func (l *Lease) Context() context.Context { return l.ctx }

// Do calls work with [Lease.Context], then Unlock, also after a panic. It returns the error of work, or else a
// *[LockLost] if the lease was lost meanwhile: then others may have worked at the same time.
func (l *Lease) Do(work func(ctx context.Context) error) error {
	defer l.Unlock()
	err := work(l.ctx)
	lost := l.Unlock()
	if err == nil && errors.Is(lost, ErrLockLost) && !errors.Is(lost, ErrReleased) {
		return lost
	}
	return err
}

// Unlock ends the renewal and releases the lock, whatever became of the context. It takes at most two seconds for each
// server. The error is a *[LockLost] if the lease was lost before, with the cause [ErrReleased] if it was released
// before. Any other error says that no server confirms the release: then the lease ends by itself.
func (l *Lease) Unlock() error {
	if !l.first() {
		return &LockLost{l.Resources, ErrReleased}
	}
	return l.release()
}

func (l *Lease) release() error {
	c := l.wanted.client
	defer c.users.RUnlock()
	lost := l.Err()
	l.lose(ErrReleased) // whatever the server answers
	ctx := context.WithoutCancel(l.held)
	given := c.askEach(ctx, l.wanted.delete(l.given.Token, min(c.timeout, 2*time.Second)))
	if given.status == 204 {
		c.log.DebugContext(ctx, "redlockd: released", "resources", l.Resources)
		return lost
	}
	c.log.WarnContext(ctx, "redlockd: not released", "resources", l.Resources, "error", given.err)
	if lost == nil && given.isLoss() {
		lost = &LockLost{l.Resources, given.err}
	}
	return cmp.Or(lost, error(given.err))
}

// renew ends with the lease.
func (l *Lease) renew(due time.Duration) {
	c, ttl := l.wanted.client, milliseconds(l.given.TTL)
	body := members{"ttl_ms": ttl.Milliseconds()}
	maps.Copy(body, l.wanted.named)
	put := ask{"PUT", "/locks", min(ttl/5, c.timeout, 5*time.Second), body, http.Header{"Lock-Token": {l.given.Token}}}
	for sleep(l.held, due-clock()) && l.Err() == nil {
		given := c.askEach(l.held, put)
		if l.held.Err() != nil {
			return
		}
		if given.status == 200 && given.Validity > 0 {
			l.extend(given.asked + milliseconds(given.Validity))
			due = given.asked + ttl/3
			continue
		}
		c.log.WarnContext(l.held, "redlockd: not renewed", "resources", l.Resources, "error", given.err)
		if given.isLoss() {
			l.lose(given.err)
		}
		due = clock() + ttl/10 // the old end holds
	}
}
