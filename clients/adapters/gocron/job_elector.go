// SPDX-License-Identifier: MIT

package gocronlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	redlockd "github.com/OWNER/redlockd/clients/go"
)

// ErrNotLeader is the error of a scheduler that is not the leader, or of an [Elector] that is closed.
var ErrNotLeader = errors.New("redlockd: not the leader")

const electionWait = 365 * 24 * time.Hour // one wait, so that the Elector keeps its place in the queue

// Elector is a gocron.Elector: one scheduler runs all jobs, and another one takes over when it ends. It is safe for
// concurrent use.
type Elector struct {
	client  *redlockd.Client
	name    string
	options []redlockd.Option
	close   context.CancelFunc
	ended   chan struct{}
	mu      sync.Mutex
	lease   *redlockd.Lease // guarded by mu, as why is; nil: it waits for the lock
	why     error           // there is no lease
}

// NewElector tries to take the lock of this name, and then waits for it in the background, until Close. The options
// are those of [redlockd.Client.Lock]. The error is one that repeating does not help: an option is wrong, or the key
// has no right to this lock. After a crash of the leader, the next one follows when the TTL is over.
func NewElector(client *redlockd.Client, name string, options ...redlockd.Option) (*Elector, error) {
	ctx, cancel := context.WithCancel(context.Background())
	lease, err := client.TryLock(ctx, name, options...)
	if err != nil && !canPass(err) {
		cancel()
		return nil, err
	}
	e := &Elector{client: client, name: name, close: cancel, ended: make(chan struct{})}
	e.lease, e.why = lease, err
	e.options = append(slices.Clone(options), redlockd.Wait(electionWait))
	go e.run(ctx, lease)
	return e, nil
}

// canPass tells whether the lock may be granted later: it is held, or no server decides.
func canPass(err error) bool {
	var failure *redlockd.Error
	if !errors.As(err, &failure) {
		return false
	}
	return failure.Code == redlockd.ErrNoAnswer || slices.Contains([]int{409, 429, 503}, failure.Status)
}

// IsLeader returns nil only if the lease can be relied on now, by the clock, also if the process was stopped before.
// It asks no server. Its error is [ErrNotLeader], with the reason.
func (e *Elector) IsLeader(context.Context) error {
	_, err := e.Lease()
	return err
}

// Lease is for the jobs of the leader: send its Fence with each write, and work with its Context, which is cancelled if
// the lease is lost, or by Close. The error is that of IsLeader.
func (e *Elector) Lease() (*redlockd.Lease, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	why := e.why
	if e.lease != nil {
		if why = e.lease.Err(); why == nil {
			return e.lease, nil
		}
	}
	return nil, errors.Join(ErrNotLeader, why)
}

// Close releases the lock, so that another scheduler becomes the leader at once. Shut the scheduler down before, so
// that no job runs any more.
func (e *Elector) Close() {
	e.close()
	<-e.ended
}

func (e *Elector) run(ctx context.Context, lease *redlockd.Lease) {
	defer close(e.ended)
	for {
		if lease != nil {
			<-lease.Context().Done()
			e.set(nil, lease.Err())
			lease.Unlock()
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		lease, err = e.client.Lock(ctx, e.name, e.options...)
		e.set(lease, err)
		if err != nil {
			pause(ctx) // for example, the key has lost its right
		}
	}
}

func (e *Elector) set(lease *redlockd.Lease, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lease, e.why = lease, why
}

func pause(ctx context.Context) {
	select {
	case <-time.After(time.Second + rand.N(time.Second)):
	case <-ctx.Done():
	}
}
