package redlockd

// A lease: for how long it may be relied on, its renewal, its end.
//
// Timers only tell a loss to those who wait for it. Each question looks at the clock, so that the first one of a
// process that was stopped gets the right answer.

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

const (
	releaseMax = 2 * time.Second // of one server
	lookEvery  = time.Second     // timers stand still while the machine sleeps
)

// Lease is a lock that is held, and renewed in the background until [Lease.Unlock]. It is safe for concurrent use.
type Lease struct {
	Resources []string // all names that it covers
	Fence     int64    // larger than that of every holder before: the storage can refuse a write with a smaller one
	Slot      int      // with [Slots], a number below their count that no other holder has; otherwise -1

	client  *Client
	wanted  *wanted
	grant   *grant
	ctx     context.Context
	cancel  context.CancelCauseFunc
	renewal context.CancelFunc // ends it
	once    sync.Once          // for the release

	mu   sync.Mutex
	stop time.Duration // by clock(): until then the lease may be relied on
	lost error         // a *LockLost once that is over; it stays so
}

// newLease returns one that ends at that time, and perhaps is lost already.
func newLease(q *acquisition, g *grant, end time.Duration) *Lease {
	l := &Lease{Resources: q.names, Fence: g.Fence, Slot: -1, client: q.client, wanted: q.wanted, grant: g}
	l.stop = end - *q.margin
	if g.Slot != nil {
		l.Slot = *g.Slot
	}
	ctx, cancel := context.WithCancelCause(q.parent)
	l.ctx, l.cancel = leaseContext{ctx, l}, cancel
	return l
}

// start begins with the renewals, the first one at that time.
func (l *Lease) start(due time.Duration) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.ctx))
	l.renewal = cancel
	l.watch()
	go l.renew(ctx, due)
	l.client.leases.Store(l, nil)
	l.client.log.DebugContext(ctx, "redlockd: acquired", "resources", l.Resources, "fence", l.Fence)
}

// look returns why the lease is lost, by the clock. The caller has mu.
func (l *Lease) look() error {
	if l.lost == nil && clock() >= l.stop {
		l.lose(ErrNotRenewed)
	}
	return l.lost
}

// lose counts the lease as lost. The caller has mu.
func (l *Lease) lose(cause error) {
	if l.lost == nil {
		l.lost = &LockLost{l.Resources, cause}
		l.cancel(l.lost)
	}
}

// Err returns a *[LockLost] if the lease cannot be relied on any more, by the clock. Call it right before each write.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.look()
}

// Remaining is how long the lease may be relied on if it is not renewed.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look() != nil {
		return 0
	}
	return max(0, l.stop-clock())
}

// extend never moves the end back, and revives no lease that is lost.
func (l *Lease) extend(end time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look() == nil {
		l.stop = max(l.stop, end-*l.wanted.margin)
	}
}

// watch tells the loss to those who wait for the context.
func (l *Lease) watch() {
	if l.Err() == nil {
		time.AfterFunc(min(l.Remaining(), lookEvery), l.watch)
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
	if err := work(l.ctx); err != nil {
		return err
	}
	if err := l.Unlock(); errors.Is(err, ErrLockLost) && !errors.Is(err, ErrReleased) {
		return err
	}
	return nil
}

// Unlock ends the renewal and releases the lock, whatever became of the context. It takes at most two seconds for each
// server. The error is a *[LockLost] if the lease was lost before, with the cause [ErrReleased] if it was released
// before. Any other error says that no server confirms the release: then the lease ends by itself.
func (l *Lease) Unlock() error {
	var err error = &LockLost{l.Resources, ErrReleased}
	l.once.Do(func() { err = l.release() })
	return err
}

func (l *Lease) release() error {
	defer l.client.leases.Delete(l)
	l.renewal()
	l.mu.Lock()
	lost := l.look()
	l.lose(ErrReleased) // whatever the server answers
	l.mu.Unlock()
	ctx := context.WithoutCancel(l.ctx)
	given := l.client.askEach(ctx, l.wanted.release(l.grant.Token, min(l.client.timeout, releaseMax)))
	if given.status == 204 {
		l.client.log.DebugContext(ctx, "redlockd: released", "resources", l.Resources)
		return lost
	}
	l.client.log.WarnContext(ctx, "redlockd: not released", "resources", l.Resources, "error", given.err)
	if lost == nil && (given.status == 409 || given.status == 410) {
		lost = &LockLost{l.Resources, given.err}
	}
	return cmp.Or(lost, error(given.err))
}

// renew ends with the lease.
func (l *Lease) renew(ctx context.Context, due time.Duration) {
	for failures := 0; sleep(ctx, due-clock()) && l.Err() == nil; {
		sent := clock()
		given := l.client.ask(ctx, l.renewAsk())
		if ctx.Err() != nil {
			return
		}
		if g := parseGrant(given); g != nil && given.status == 200 {
			l.extend(sent + milliseconds(*g.Validity))
			due, failures = sent+l.wanted.ttl/3, 0
			continue
		}
		l.client.log.WarnContext(ctx, "redlockd: not renewed", "resources", l.Resources, "error", given.err)
		if given.status == 409 || given.status == 410 {
			l.mu.Lock()
			l.lose(given.err)
			l.mu.Unlock()
		} else if failures++; failures%len(l.client.servers) == 0 { // the old end holds; at once at the next one
			due = clock() + l.wanted.ttl/10
		}
	}
}

func (l *Lease) renewAsk() ask {
	body := members{"ttl_ms": l.wanted.ttl.Milliseconds()}
	maps.Copy(body, l.wanted.set)
	limit := min(l.wanted.ttl/5, l.client.timeout, l.Remaining())
	return ask{"PUT", l.wanted.path, limit, body, map[string]string{"Lock-Token": l.grant.Token}}
}
