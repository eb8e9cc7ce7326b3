// SPDX-License-Identifier: MIT

// Package leaderlock lets the leader election of client-go elect by a lock of redlockd instead of a Lease of a
// Kubernetes API server.
package leaderlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	redlockd "github.com/OWNER/redlockd/clients/go"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrNotLeader is the error of a [Lock] without a lease.
var ErrNotLeader = errors.New("redlockd: not the leader")

const (
	identityMax = 128 // bytes: the longest owner of a lease
	looks       = 100 // of Update in a LeaseDuration, while it waits for a renewal
)

// Config is what a [Lock] needs: all of it. The durations are those of leaderelection.LeaderElectionConfig.
type Config struct {
	Client   *redlockd.Client
	Name     string // of the lock
	Identity string // of this candidate, different from all others; at most 128 bytes
	// LeaseDuration is the TTL of the lease: after a crash of the leader, the next one follows when it is over.
	LeaseDuration time.Duration
	// RenewDeadline and RetryPeriod together are at most four fifths of LeaseDuration. client-go stops a leader at
	// most so long after an Update that succeeded, and the lease must last until then. Of the rest, half is the
	// margin of the library, and a hundredth of the lease is for clocks that differ. The remainder is the time
	// after each renewal in which an Update can succeed.
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
}

func (c *Config) check() error {
	switch need := c.RenewDeadline + c.RetryPeriod; {
	case c.Client == nil:
		return errors.New("redlockd: Client must not be nil")
	case c.Name == "":
		return errors.New("redlockd: Name must not be empty")
	case c.Identity == "" || len(c.Identity) > identityMax:
		return fmt.Errorf("redlockd: Identity must have 1 to %d bytes: %q", identityMax, c.Identity)
	case c.LeaseDuration < time.Second:
		return fmt.Errorf("redlockd: LeaseDuration must be at least %v: %v", time.Second, c.LeaseDuration)
	case c.RenewDeadline <= 0 || c.RetryPeriod <= 0:
		why := "redlockd: RenewDeadline and RetryPeriod must be positive: %v and %v"
		return fmt.Errorf(why, c.RenewDeadline, c.RetryPeriod)
	case need > c.LeaseDuration/5*4:
		why := "redlockd: RenewDeadline + RetryPeriod must be at most 4/5 of LeaseDuration %v, " +
			"or a leader could go on after the end of its lease: %v + %v"
		return fmt.Errorf(why, c.LeaseDuration, c.RenewDeadline, c.RetryPeriod)
	}
	return nil
}

// Lock is a resourcelock.Interface. From Create until the leader stops it holds one lease, which the library renews. A
// lease that is lost stays lost: the leader stops, and only then this Lock can take another one. It is safe for
// concurrent use, but for one LeaderElector only.
type Lock struct {
	config  Config
	mu      sync.Mutex
	lease   *redlockd.Lease // guarded by mu, as failing is; of this leader. nil: it is none
	failing bool            // the last Update failed
	records atomic.Int64    // of other leaders
}

var _ resourcelock.Interface = (*Lock)(nil)

// New makes a Lock. The error names the field that is wrong.
func New(config Config) (*Lock, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	return &Lock{config: config}, nil
}

// Lease returns the lease of the leader, with its Fence and a Context that is cancelled before it ends. The error is
// [ErrNotLeader], or a *[redlockd.LockLost] while a leader that has lost its lease stops. It compares the clock, so it
// is right also after the process was stopped; the IsLeader of a LeaderElector may not be.
func (l *Lock) Lease() (*redlockd.Lease, error) {
	lease := l.current()
	if lease == nil {
		return nil, ErrNotLeader
	}
	return lease, lease.Err()
}

// Leading makes an OnStartedLeading of work. Its context is cancelled when the leader stops, and at once if the lease
// is lost: client-go stops only when RenewDeadline is over. Send the Fence of the lease with each write.
func (l *Lock) Leading(work func(ctx context.Context, lease *redlockd.Lease)) func(context.Context) {
	return func(ctx context.Context) {
		lease, err := l.Lease()
		if err != nil {
			return // it was lost before it was used; the leader stops
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		held := lease.Context()
		defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
		work(ctx, lease)
	}
}

// Identity returns that of the candidate.
func (l *Lock) Identity() string { return l.config.Identity }

// Describe returns the name of the lock.
func (l *Lock) Describe() string { return "redlockd " + l.config.Name }

func (l *Lock) current() *redlockd.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease
}
