// SPDX-License-Identifier: MIT

package leaderlock

// The record of client-go's leader election. A Lease of Kubernetes is compared and swapped: each candidate decides by
// its own clock that the record of the leader is old, and replaces it. Here redlockd decides. The record of another
// leader always looks new, and there is none while the lock is free, so that the election calls Create, which acquires.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	redlockd "github.com/OWNER/redlockd/clients/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// stopped is the event of client-go when a leader has stopped. The next one begins with another call of Run.
const stopped = "stopped leading"

var locks = schema.GroupResource{Group: "redlockd", Resource: "locks"}

// Get returns the record of the leader, or a NotFound if the lock is free. A leader asks no server: it holds the lease
// until Update with an empty holder, and Get must not delay its end.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if lease := l.current(); lease != nil {
		return l.recordOf(l.config.Identity, 0), nil, lease.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.RenewDeadline)
	defer cancel()
	state, err := l.config.Client.State(ctx, l.config.Name)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("redlockd: no state of the lock %q: %w", l.config.Name, err)
	case !state.Held:
		return nil, nil, apierrors.NewNotFound(locks, l.config.Name)
	}
	var held struct {
		Milliseconds int64 `json:"held_ms"`
	}
	_ = json.Unmarshal(state.JSON, &held) // it is for people alone
	holder := cmp.Or(state.Owner, "unknown")
	if holder == l.config.Identity { // of a former process: the election would take it for this one
		holder = fmt.Sprintf("%s (fence %d)", holder, state.Fence)
	}
	raw := []byte(strconv.FormatInt(l.records.Add(1), 10)) // it is only compared, with that of the Get before
	return l.recordOf(holder, time.Duration(held.Milliseconds)*time.Millisecond), raw, nil
}

func (l *Lock) recordOf(holder string, held time.Duration) *resourcelock.LeaderElectionRecord {
	now := time.Now()
	return &resourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: int(l.config.LeaseDuration / time.Second),
		AcquireTime: metav1.NewTime(now.Add(-held)), RenewTime: metav1.NewTime(now),
	}
}

// Create acquires the lock, without waiting. The lease is renewed until the leader stops.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.checkRecord(record); err != nil {
		return err
	}
	if l.current() != nil {
		return errors.New("redlockd: this Lock holds a lease, or has lost one: the leader must stop first")
	}
	lease, err := l.acquire(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease, l.failing = lease, false
	return nil
}

func (l *Lock) acquire(ctx context.Context) (*redlockd.Lease, error) {
	// The election cancels ctx as soon as it has the lock; the context of the lease must outlive it.
	parent, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	ttl, owner := redlockd.TTL(l.config.LeaseDuration), redlockd.Owner(l.config.Identity)
	lease, err := l.config.Client.TryLock(parent, l.config.Name, ttl, owner)
	isCancelled := !detach()
	switch {
	case err != nil:
		return nil, err
	case isCancelled:
		err = context.Cause(ctx)
	case !l.lasts(lease):
		err = errors.New("redlockd: the answer took too long: the lease would end before RenewDeadline")
	default:
		return lease, nil
	}
	_ = lease.Unlock()
	return nil, err
}

// lasts tells whether the lease lasts as long as the leader may go on without another Update.
func (l *Lock) lasts(lease *redlockd.Lease) bool {
	return lease.Remaining() >= l.config.RenewDeadline+l.config.RetryPeriod
}

// Update succeeds if the lease lasts until client-go would stop without another Update. The library renews it in the
// background, so Update sends nothing; it waits for a renewal if the lease is too short. With an empty holder it
// releases the lock.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		return l.release()
	}
	err := l.checkRecord(record)
	if err == nil {
		err = l.waitUntilItLasts(ctx)
	}
	if ctx.Err() != context.Canceled { // the program stops the leader, which says nothing about the lease
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failing = err != nil
	}
	return err
}

func (l *Lock) waitUntilItLasts(ctx context.Context) error {
	for {
		lease, err := l.Lease()
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("redlockd: no renewal in time, %v are left: %w", lease.Remaining(), ctx.Err())
		case !l.isBounded(ctx):
			why := "redlockd: RenewDeadline is %v, and that of the election longer"
			return fmt.Errorf(why, l.config.RenewDeadline)
		case l.lasts(lease):
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.config.LeaseDuration / looks):
		}
	}
}

// release ends the lease. client-go calls it before it cancels the context of a leader that could not renew. The lock
// must not be free then, and the call not wait for a server.
func (l *Lock) release() error {
	lease, failing := l.end()
	switch {
	case lease == nil:
		return ErrNotLeader
	case failing:
		go lease.UnlockAndKeep(l.config.LeaseDuration)
		return nil
	}
	return lease.Unlock()
}

// RecordEvent learns that the leader has stopped. If it has not released the lock, the lock stays closed for a
// LeaseDuration, as that of Kubernetes does: the work of the leader may go on.
func (l *Lock) RecordEvent(event string) {
	if event != stopped {
		return
	}
	if lease, _ := l.end(); lease != nil {
		go lease.UnlockAndKeep(l.config.LeaseDuration)
	}
}

func (l *Lock) end() (lease *redlockd.Lease, failing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, l.lease = l.lease, nil
	return lease, l.failing
}

// checkRecord refuses the record of an election that was configured otherwise.
func (l *Lock) checkRecord(record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != l.config.Identity {
		why := "redlockd: Identity is %q, and that of the election %q"
		return fmt.Errorf(why, l.config.Identity, record.HolderIdentity)
	}
	if seconds := record.LeaseDurationSeconds; seconds != int(l.config.LeaseDuration/time.Second) {
		why := "redlockd: LeaseDuration is %v, and that of the election %d s"
		return fmt.Errorf(why, l.config.LeaseDuration, seconds)
	}
	return nil
}

// isBounded tells whether client-go stops the leader when RenewDeadline is over, if this Update fails.
func (l *Lock) isBounded(ctx context.Context) bool {
	end, isThere := ctx.Deadline()
	return isThere && time.Until(end) <= l.config.RenewDeadline
}
