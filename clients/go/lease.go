// SPDX-License-Identifier: MIT

package redlockd

// A lease: for how long it may be relied on, its renewal, its end.
//
// Timers only tell a loss to those who wait for it. Each question looks at the clock, so that the first one of a
// process that was stopped gets the right answer.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// Lease is a lock that is held, and renewed in the background until [Lease.Unlock]. It is safe for concurrent use.
type Lease struct {
	Resources []string // all names that it covers
	Fence     int64    // larger than that of every holder before: the storage can refuse a write with a smaller one
	Slot      int      // with [Slots], a number below their count that no other holder has; otherwise -1

	wanted *acquisition
	grant  *grant          // has the token, and hides it from fmt
	stop   atomic.Int64    // a time.Duration by clock(): until then the lease may be relied on
	held   context.Context // its Cause is the *LockLost once that is over
	end    context.CancelCauseFunc
	ctx    leaseContext
	cancel context.CancelCauseFunc
	first  func() bool // whether this Unlock is the first one, and before Close
	look   *time.Timer // calls watch

	keepUntil time.Duration // by clock(), as due; nobody else gets the lock earlier
	waiters   atomic.Int64
	wakes     chan struct{}
	size      int           // of its part of a renewal, in bytes
	due       time.Duration // when the next renewal is to be sent
	failed    bool          // the last renewal did
	ttl       time.Duration // of the server
	asked     time.Duration // of the next renewal; 0: the server chooses it
	slot      slot          // of the renewer

	bounded atomic.Bool           // the last renewal gave less than was asked for
	asking  atomic.Bool           // a renewal is under way
	failure atomic.Pointer[Error] // of the last renewal
}

// newLease returns nil if the lease came too late to be used. It is renewed from when that is due.
func newLease(q *acquisition, given *answer) *Lease {
	g := given.grant
	waited := min(g.waited/100*99, clock()-given.asked) // the server's clock may differ by a hundredth
	begin := given.asked + waited
	stop := begin + g.validity - q.marginOf(g.ttl)
	if clock() >= stop {
		return nil
	}
	l := &Lease{Resources: slices.Clone(q.names), Fence: g.fence, Slot: g.slot, wanted: q, grant: g}
	l.keepUntil, l.due, l.wakes = clock()+q.atLeast, begin+g.ttl/3, make(chan struct{}, 1)
	l.ttl, l.asked = g.ttl, g.ttl
	item, _ := json.Marshal(l.item()) // cannot fail
	l.size = len(item) + 1
	l.stop.Store(int64(stop))
	l.held, l.end = context.WithCancelCause(context.Background()) // no callback of the caller can delay it
	ctx, cancel := context.WithCancelCause(q.parent)
	l.ctx, l.cancel = leaseContext{ctx, l}, cancel
	l.look = time.AfterFunc(longest, l.watch)
	l.first = context.AfterFunc(q.client.closed, func() { l.release(0) })
	l.watch()
	q.client.renewer.add(l)
	l.wanted.log(slog.LevelDebug, "redlockd: acquired", "fence", l.Fence)
	return l
}

// tooLate is the cause if the time is over now.
func (l *Lease) tooLate() *Error {
	switch failure := l.failure.Load(); {
	case l.bounded.Load():
		return notRenewed(ErrMaxHold, "the server does not extend it any further (--max-hold-ms)", nil)
	case failure != nil:
		return notRenewed(failure.Code, ErrNotRenewed.Error(), failure)
	case l.asking.Load():
		return notRenewed(ErrNoAnswer, "it could not be renewed in time: no server answered yet", nil)
	}
	why := "it was not renewed in time: the machine slept, or the program was stopped or busy"
	return notRenewed(ErrLate, why, nil)
}

// lose counts the lease as lost. Only the first cause counts.
func (l *Lease) lose(cause *Error) {
	lost := &LockLost{l.Resources, cause}
	l.end(lost)
	survive(func() { l.cancel(context.Cause(l.held)) }) // it also asks the context that the caller gave
	l.look.Stop()
	l.wanted.client.renewer.remove(l)
	if context.Cause(l.held) == error(lost) && cause != released {
		l.wanted.log(slog.LevelWarn, lost.Error())
	}
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
		l.lose(l.tooLate())
	}
	if l.held.Err() != nil {
		return 0
	}
	return left
}

// String names the lock, the fence and the time that is left, without the token.
func (l *Lease) String() string {
	left := l.Remaining().Round(time.Millisecond)
	return fmt.Sprintf("lease on %s, fence %d, %v left", namesOf(l.Resources), l.Fence, left)
}

// Waiters is how many waited for the lock at its last renewal.
func (l *Lease) Waiters() int { return int(l.waiters.Load()) }

// Wanted has a value each time that a renewal finds waiters where there were none: a holder that works in pieces can
// give way. It is never closed.
func (l *Lease) Wanted() <-chan struct{} { return l.wakes }

// extend never moves the end back, and revives no lease that is lost.
func (l *Lease) extend(end time.Duration) {
	if stop := int64(end - l.wanted.marginOf(l.ttl)); l.Err() == nil && stop > l.stop.Load() {
		l.stop.Store(stop)
	}
}

// watch tells the loss to those who wait for the context. Timers stand still while the machine sleeps.
func (l *Lease) watch() {
	if left := l.Remaining(); left > 0 {
		l.look.Reset(min(left, time.Second))
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
	byWork := errors.Is(lost, ErrReleased) && l.wanted.client.closed.Err() == nil
	if err == nil && errors.Is(lost, ErrLockLost) && !byWork {
		return lost
	}
	return err
}

// Unlock ends the renewal and releases the lock, whatever became of the context. It takes at most two seconds for each
// server. The error is a *[LockLost] if the lease was lost before, with the cause [ErrReleased] if it was released
// before. Any other error says that no server confirms the release: then the lease ends by itself.
func (l *Lease) Unlock() error { return l.UnlockAndKeep(0) }

// UnlockAndKeep is [Lease.Unlock], and then nobody gets the lock for this time. The server has a largest one.
func (l *Lease) UnlockAndKeep(keep time.Duration) error {
	if keep < 0 {
		return fmt.Errorf("redlockd: keep must be from 0: %v", keep)
	}
	if !l.first() {
		return &LockLost{l.Resources, released}
	}
	return l.release(keep)
}

func (l *Lease) release(keep time.Duration) error {
	c := l.wanted.client
	defer c.users.RUnlock()
	lost := l.Err()
	l.lose(released) // whatever the server answers
	keep = max(keep, l.keepUntil-clock())
	given := c.askEach(context.Background(), l.wanted.delete(l.grant.token, c.timeout, keep))
	if given.err == nil {
		l.wanted.log(slog.LevelDebug, "redlockd: released")
		return lost
	}
	level := slog.LevelWarn
	if lost != nil && given.isFinal() { // the loss was a warning already
		level = slog.LevelDebug
	}
	l.wanted.log(level, "redlockd: not released", "error", given.err)
	if lost == nil && given.isFinal() {
		lost = &LockLost{l.Resources, given.err}
	}
	return cmp.Or(lost, error(given.err))
}
