// SPDX-License-Identifier: MIT

// Package gocronlock lets several schedulers of gocron share their jobs by locks of redlockd: a [Locker] for each job,
// or an [Elector] for all of them.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	redlockd "github.com/OWNER/redlockd/clients/go"
	"github.com/go-co-op/gocron/v2"
)

// Locker is a gocron.Locker: of all schedulers that want to run a job at the same time, one runs it. It is safe for
// concurrent use, and for several schedulers of a process.
type Locker struct {
	client  *redlockd.Client
	prefix  string
	options []redlockd.Option
	mu      sync.Mutex
	running map[string][]*jobLock // guarded by mu; the runs of this process by their key
}

// NewLocker makes a Locker. The lock of a job is named prefix and then the name of the job. The options are those of
// [redlockd.Client.TryLock]. With [redlockd.AtLeast] the lock is kept after a short run until this time is over since
// its beginning, so that a scheduler whose clock is behind does not run the job again. The time must be longer than the
// difference of the clocks, and shorter than the interval of the job.
func NewLocker(client *redlockd.Client, prefix string, options ...redlockd.Option) *Locker {
	return &Locker{client: client, prefix: prefix, options: slices.Clone(options), running: map[string][]*jobLock{}}
}

// Lock takes the lock of a job, or returns an error at once, and gocron skips this run: [redlockd.ErrLocked] if another
// scheduler has it. It is renewed until Unlock. It never waits, since a run that waited would be the second one.
// Any other error is also a warning of slog: perhaps no scheduler runs the job.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.client.TryLock(ctx, l.prefix+key, l.options...)
	if err != nil {
		if !errors.Is(err, redlockd.ErrLocked) {
			slog.WarnContext(ctx, "redlockd: a job is skipped", "job", key, "error", err)
		}
		return nil, err
	}
	lock := &jobLock{l, key, lease}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[key] = append(l.running[key], lock)
	return lock, nil
}

// Lease is for the job itself: the lease of its run in this process. Ask for it when the job begins, send its Fence
// with each write, and work with its Context, which is cancelled if the lease is lost, or the job removed. The error is
// a *[redlockd.LockLost] if the lease is lost already.
//
// After a loss, this process may begin the next run while the former one goes on. Then both get an error, since it is
// not known which of them asks.
func (l *Locker) Lease(key string) (*redlockd.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch runs := l.running[key]; len(runs) {
	case 0:
		return nil, fmt.Errorf("redlockd: this process does not run the job %q", key)
	case 1:
		return runs[0].lease, runs[0].lease.Err()
	default:
		return nil, fmt.Errorf("redlockd: this process runs %q twice, and cannot tell which run asks", key)
	}
}

type jobLock struct {
	locker *Locker
	key    string
	lease  *redlockd.Lease
}

// Unlock releases the lock, also if ctx is cancelled: gocron cancels it when a job is removed.
func (j *jobLock) Unlock(context.Context) error {
	j.locker.forget(j)
	return j.lease.Unlock()
}

func (l *Locker) forget(j *jobLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[j.key] = slices.DeleteFunc(l.running[j.key], func(other *jobLock) bool { return other == j })
	if len(l.running[j.key]) == 0 {
		delete(l.running, j.key)
	}
}
