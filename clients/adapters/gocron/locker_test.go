// SPDX-License-Identifier: MIT

package gocronlock

// Locker and Elector with a real redlockd at the addresses in REDLOCKD_SERVERS, and with schedulers of gocron whose
// clocks are moved by hand. tests/adapters/test_gocron.py in the repository runs these tests.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	redlockd "github.com/OWNER/redlockd/clients/go"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
)

const patience = 2 * time.Minute // for what must come; only a failure takes that long

func connect(t *testing.T) *redlockd.Client {
	t.Helper()
	servers := os.Getenv("REDLOCKD_SERVERS")
	if servers == "" {
		t.Skip("REDLOCKD_SERVERS names no redlockd")
	}
	client, err := redlockd.New(redlockd.Config{Servers: strings.Split(servers, ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func nameOf(t *testing.T) string { return fmt.Sprintf("%s/%x", t.Name(), rand.Uint64()) }

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return value
}

func until(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !isTrue(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

func isFree(t *testing.T, client *redlockd.Client, lock string) bool {
	lease, err := client.TryLock(context.Background(), lock)
	if err == nil {
		lease.Unlock()
	} else if !errors.Is(err, redlockd.ErrLocked) {
		t.Error(err)
	}
	return err == nil
}

// awaitRelease waits until nobody has a lease of the lock. It may be kept.
func awaitRelease(t *testing.T, client *redlockd.Client, lock string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for state := range client.Watch(ctx, lock) {
		if !state.Held || strings.Contains(string(state.JSON), `"kept":true`) {
			return
		}
	}
	t.Fatal("it is never released")
}

// machine is a scheduler with a clock of its own. Each run of its job is an event, and so is each one that is skipped.
type machine struct {
	clock  *clockwork.FakeClock
	events chan string
}

func newMachine(t *testing.T, locker gocron.Locker, job string, at time.Time) *machine {
	m := &machine{clockwork.NewFakeClockAt(at), make(chan string, 100)}
	scheduler, err := gocron.NewScheduler(gocron.WithClock(m.clock), gocron.WithDistributedLocker(locker))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scheduler.Shutdown() })
	_, err = scheduler.NewJob(
		gocron.DurationJob(time.Minute), gocron.NewTask(func() { m.events <- "run" }), gocron.WithName(job),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			m.events <- fmt.Sprint("skipped, locked: ", errors.Is(err, redlockd.ErrLocked))
		})))
	if err != nil {
		t.Fatal(err)
	}
	scheduler.Start()
	return m
}

// minute lets the next minute begin on this machine, and returns what comes of the job.
func (m *machine) minute(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.clock.BlockUntilContext(ctx, 1); err != nil {
		t.Fatal(err)
	}
	m.clock.Advance(time.Minute)
	return receive(t, m.events)
}

// The minute begins on a machine whose clock is behind when the job has run already.
func TestClocksThatDiffer(t *testing.T) {
	client, now := connect(t), time.Now()
	for said, options := range map[string][]redlockd.Option{
		"run": nil, "skipped, locked: true": {redlockd.AtLeast(time.Minute)},
	} {
		locker, job := NewLocker(client, "jobs/", options...), nameOf(t)
		ahead, behind := newMachine(t, locker, job, now), newMachine(t, locker, job, now.Add(-5*time.Second))
		if first := ahead.minute(t); first != "run" {
			t.Error(first)
		}
		awaitRelease(t, client, "jobs/"+job)
		if second := behind.minute(t); second != said {
			t.Error(second, "instead of", said)
		}
	}
}

func TestALockIsHeldUntilUnlock(t *testing.T) {
	client, job := connect(t), nameOf(t)
	locker := NewLocker(client, "jobs/")
	ctx, cancel := context.WithCancel(context.Background())
	lock, err := locker.Lock(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Lock(ctx, job); !errors.Is(err, redlockd.ErrLocked) {
		t.Error("two have it:", err)
	}
	cancel() // the job was removed, and goes on until it looks at its context
	if isFree(t, client, "jobs/"+job) {
		t.Error("it is free while the job goes on")
	}
	if err := lock.Unlock(ctx); err != nil || !isFree(t, client, "jobs/"+job) {
		t.Error("it is not free:", err)
	}
}

// gocron tells nobody why it skips a job, unless there is a listener.
func TestAJobThatNobodyRunsIsLogged(t *testing.T) {
	client, job, ctx := connect(t), nameOf(t), context.Background()
	var log strings.Builder
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	locker := NewLocker(client, "jobs/")
	lock, err := locker.Lock(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Lock(ctx, job); !errors.Is(err, redlockd.ErrLocked) || log.Len() > 0 {
		t.Error("another run is no reason for a warning:", err, log.String())
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Error(err)
	}
	_, err = NewLocker(client, "jobs/", redlockd.AtLeast(-time.Second)).Lock(ctx, job)
	if err == nil || !strings.Contains(log.String(), "AtLeast") || !strings.Contains(log.String(), job) {
		t.Error("no warning:", err, log.String())
	}
}

func TestTheLeaseOfAJob(t *testing.T) {
	client, job, ctx := connect(t), nameOf(t), context.Background()
	locker := NewLocker(client, "jobs/", redlockd.TTL(9*time.Second))
	if _, err := locker.Lease(job); err == nil {
		t.Error("a lease without a run")
	}
	former, err := locker.Lock(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locker.Lease(job)
	if err != nil || lease.Fence == 0 || lease.Context().Err() != nil {
		t.Fatal(lease, err)
	}
	if err := client.Force(ctx, "jobs/"+job, lease.Fence); err != nil {
		t.Fatal(err)
	}
	receive(t, lease.Context().Done())
	if _, err := locker.Lease(job); !errors.Is(err, redlockd.ErrLockLost) {
		t.Error("it is lost, but:", err)
	}
	later, err := locker.Lock(ctx, job) // the next run begins while the former one goes on
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Lease(job); err == nil {
		t.Error("the former run gets the lease of the later one")
	}
	if err := former.Unlock(ctx); !errors.Is(err, redlockd.ErrLockLost) {
		t.Error(err)
	}
	if next, err := locker.Lease(job); err != nil || next.Fence <= lease.Fence {
		t.Error(next, err)
	}
	if err := later.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if _, err := locker.Lease(job); err == nil {
		t.Error("a lease after the run")
	}
}

func TestOneElectorLeads(t *testing.T) {
	client, name, ctx := connect(t), nameOf(t), context.Background()
	elect := func() *Elector {
		e, err := NewElector(client, name, redlockd.TTL(9*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
	first, second := elect(), elect()
	lease, err := first.Lease()
	if err != nil {
		t.Fatal("the first one leads at once:", err)
	}
	if err := second.IsLeader(ctx); !errors.Is(err, ErrNotLeader) {
		t.Fatal("two lead:", err)
	}
	if err := client.Force(ctx, name, lease.Fence); err != nil {
		t.Fatal(err)
	}
	until(t, "the second one leads after a loss", func() bool { return second.IsLeader(ctx) == nil })
	receive(t, lease.Context().Done())
	if err := first.IsLeader(ctx); !errors.Is(err, ErrNotLeader) {
		t.Error("two lead:", err)
	}
	stale := &Elector{lease: lease} // it has not been told of the loss
	if err := stale.IsLeader(ctx); !errors.Is(err, ErrNotLeader) || !errors.Is(err, redlockd.ErrLockLost) {
		t.Error("it believes in a lease that is lost:", err)
	}
	next, err := second.Lease()
	if err != nil || next.Fence <= lease.Fence {
		t.Error(next, err)
	}
	second.Close()
	if err := second.IsLeader(ctx); !errors.Is(err, ErrNotLeader) {
		t.Error("it leads after its end:", err)
	}
	until(t, "the first one leads again", func() bool { return first.IsLeader(ctx) == nil })
	first.Close()
	if !isFree(t, client, name) {
		t.Error("closed, but the lock is held")
	}
}

func TestAnElectorWithAMistake(t *testing.T) {
	client := connect(t)
	_, err := NewElector(client, "x", redlockd.TTL(-time.Second))
	if err == nil || !strings.Contains(err.Error(), "TTL") {
		t.Error(err)
	}
	_, err = NewElector(client, "")
	if !errors.Is(err, redlockd.ErrInvalidRequest) || !strings.Contains(err.Error(), "resource") {
		t.Error(err)
	}
}
