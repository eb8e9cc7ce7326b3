// SPDX-License-Identifier: MIT

package redlockd

// The parts that only the library for Go has: contexts, Do, Unlock, Close. The suite of all languages is in
// tests/clients.

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTheClockDecidesNotATimer(t *testing.T) {
	client := newFake(t, nil).client(t)
	for name, ask := range map[string]func(*Lease) bool{
		"Err":           func(l *Lease) bool { return errors.Is(l.Err(), ErrLockLost) },
		"Remaining":     func(l *Lease) bool { return l.Remaining() == 0 },
		"Context().Err": func(l *Lease) bool { return l.Context().Err() == context.Canceled },
		"Done":          func(l *Lease) bool { return done(l.Context()) },
		"Unlock":        func(l *Lease) bool { return errors.Is(l.Unlock(), ErrNotRenewed) },
	} {
		l := lock(t, client)
		if l.Err() != nil || done(l.Context()) || l.Remaining() < 50*time.Second {
			t.Error("it is held", name)
		}
		endNow(l)
		if !ask(l) {
			t.Error("it is lost, says the clock, but not", name)
		}
	}
	client.Close()
}

func TestALossIsFinal(t *testing.T) {
	l := lock(t, newFake(t, nil).client(t))
	defer l.Unlock()
	endNow(l)
	l.extend(clock() + time.Hour) // the answer to a renewal, right after it
	if l.Err() == nil || l.Remaining() != 0 || !done(l.Context()) {
		t.Error("a renewal revived it")
	}
}

func TestALossEndsContextsOfWhatWaits(t *testing.T) {
	l := lock(t, newFake(t, nil).client(t))
	defer l.Unlock()
	below, cancel := context.WithTimeout(l.Context(), time.Hour)
	defer cancel()
	time.AfterFunc(10*time.Millisecond, func() { endNow(l) })
	select {
	case <-below.Done():
	case <-time.After(patience):
		t.Fatal("a context below that of the lease does not end")
	}
	var lost *LockLost
	if !errors.As(context.Cause(below), &lost) || !errors.Is(lost, ErrNotRenewed) || lost.Resources[0] != "x" {
		t.Error(context.Cause(below))
	}
	if l.Err() != error(lost) {
		t.Error(context.Cause(below), l.Err())
	}
}

func TestLocksWithinLocks(t *testing.T) {
	client := newFake(t, nil).client(t)
	outer := lock(t, client)
	inner, err := client.Lock(outer.Context(), "y")
	if err != nil {
		t.Fatal(err)
	}
	endNow(outer)
	<-inner.Context().Done()
	if inner.Err() != nil || context.Cause(inner.Context()) != outer.Err() {
		t.Error(context.Cause(inner.Context()), inner.Err(), outer.Err())
	}
	if inner.Unlock() != nil || !errors.Is(outer.Unlock(), ErrLockLost) {
		t.Error("it is released although the context has ended")
	}
}

func TestTheContextThatWasGiven(t *testing.T) {
	type key struct{}
	f := newFake(t, nil)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, 5))
	l, err := f.client(t).Lock(ctx, "x")
	if err != nil || l.Context().Value(key{}) != 5 {
		t.Fatal("the values are there", err)
	}
	cancel()
	if !done(l.Context()) || l.Context().Err() != context.Canceled || l.Err() != nil || l.Remaining() == 0 {
		t.Error("the context ends, the lease does not")
	}
	renewNow(l)
	f.of(t, "PUT", 1)
	if err := l.Unlock(); err != nil || len(f.of(t, "DELETE", 1)) != 1 {
		t.Error("it is renewed until it is released", err)
	}
}

// Neither a waiting request nor a lease is left, and the error is the usual one.
func TestCancelling(t *testing.T) {
	why := errors.New("why")
	for want, ctx := range map[error]func() (context.Context, func()){
		context.Canceled: func() (context.Context, func()) { return context.WithCancel(context.Background()) },
		context.DeadlineExceeded: func() (context.Context, func()) {
			return context.WithTimeout(context.Background(), 300*time.Millisecond)
		},
		why: func() (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(context.Background())
			return ctx, func() { cancel(why) }
		},
	} {
		gone := make(chan bool, 1)
		f := newFake(t, map[string]http.HandlerFunc{"POST": waitsFirst(gone)})
		waiting, cancel := ctx()
		result := make(chan error)
		go func() {
			_, err := f.client(t).Lock(waiting, "x", Wait(time.Hour))
			result <- err
		}()
		f.of(t, "POST", 1)
		if want != context.DeadlineExceeded {
			cancel()
		}
		if err := <-result; !errors.Is(err, want) || !<-gone {
			t.Error(err, want)
		}
		posts := f.of(t, "POST", 2)
		first, second := posts[0].header.Get("Idempotency-Key"), posts[1].header.Get("Idempotency-Key")
		if posts[1].body["wait_ms"] != 0.0 || first != second {
			t.Error("the same request again, without a wait", posts)
		}
		if f.of(t, "DELETE", 1)[0].header.Get("Lock-Token") != aToken {
			t.Error("it was granted, and is released")
		}
		cancel()
	}
}

func TestAContextThatHasEnded(t *testing.T) {
	f := newFake(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := f.client(t).TryLock(ctx, "x")
	if !errors.Is(err, context.Canceled) || len(f.calls) != 0 {
		t.Error(err, f.calls)
	}
	if err := f.client(t).Force(ctx, "x", 0); err == nil || len(f.calls) != 0 {
		t.Error(err, f.calls)
	}
}

func TestDo(t *testing.T) {
	own := errors.New("own")
	f := newFake(t, nil)
	client := f.client(t)
	for _, one := range []struct {
		work func(*Lease) error
		want error
	}{
		{func(*Lease) error { return nil }, nil},
		{func(*Lease) error { return own }, own},
		{func(l *Lease) error { endNow(l); return nil }, ErrLockLost},
		{func(l *Lease) error { endNow(l); return own }, own},
		{func(l *Lease) error { return l.Unlock() }, nil},
	} {
		l := lock(t, client)
		err := l.Do(func(ctx context.Context) error {
			if ctx != l.Context() || done(ctx) {
				t.Error("it has the context of the lease")
			}
			return one.work(l)
		})
		if !errors.Is(err, one.want) || !done(l.Context()) {
			t.Error(err, one.want)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_ = lock(t, client).Do(func(context.Context) error { panic("at the disco") })
	}()
	if len(f.of(t, "DELETE", 6)) != 6 {
		t.Error("each is released once, also after a panic")
	}
}

func TestUnlock(t *testing.T) {
	for answer, want := range map[*http.HandlerFunc]error{
		pointer(problem(409, "not-owner")):     ErrNotOwner,
		pointer(problem(410, "lease-expired")): ErrLockLost,
		pointer(problem(503, "draining")):      ErrDraining,
		pointer(hangUp):                        ErrNoAnswer,
	} {
		l := lock(t, newFake(t, map[string]http.HandlerFunc{"DELETE": *answer}).client(t))
		if err := l.Unlock(); !errors.Is(err, want) || errors.Is(err, ErrReleased) {
			t.Error(err, want)
		}
		isLost := errors.Is(l.Err(), ErrReleased) && errors.Is(l.Err(), ErrLockLost)
		if !isLost || !errors.Is(l.Unlock(), ErrReleased) {
			t.Error("it does not count any more", l.Err())
		}
		if context.Cause(l.Context()) != l.Err() {
			t.Error(context.Cause(l.Context()))
		}
	}
}

func TestClose(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, r *http.Request) {
		if f := r.Header.Get("Idempotency-Key"); f == "" {
			t.Error("no key")
		}
		lease(w, r, time.Minute)
	}})
	client := f.client(t)
	first, second := lock(t, client), lock(t, client)
	_ = first.Unlock()
	client.Close()
	if !errors.Is(second.Err(), ErrReleased) || len(f.of(t, "DELETE", 2)) != 2 {
		t.Error("what is held is released, the rest is not", second.Err())
	}
	if _, err := client.Lock(context.Background(), "x"); err != ErrClosed {
		t.Error(err)
	}
	client.Close()
}

func TestCloseEndsWhatWaits(t *testing.T) {
	gone := make(chan bool, 1)
	f := newFake(t, map[string]http.HandlerFunc{"POST": waitsFirst(gone)})
	client, result := f.client(t), make(chan error, 1)
	go func() {
		_, err := client.Lock(context.Background(), "x", Wait(time.Hour))
		result <- err
	}()
	f.of(t, "POST", 1)
	client.Close()
	f.mu.Lock()
	count := len(f.calls)
	f.mu.Unlock()
	if count != 3 || len(f.of(t, "DELETE", 1)) != 1 {
		t.Error("nothing is left when it returns")
	}
	if err := <-result; err != ErrClosed || !<-gone {
		t.Error(err)
	}
}

// An Unlock elsewhere is under way: Close waits for it.
func TestCloseWaitsForUnlock(t *testing.T) {
	began, goOn := make(chan bool), make(chan bool)
	f := newFake(t, map[string]http.HandlerFunc{"DELETE": func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-goOn
		w.WriteHeader(204)
	}})
	client, closed := f.client(t), make(chan bool)
	l := lock(t, client)
	go l.Unlock()
	<-began
	go func() {
		client.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	<-closed
}

// Also with a TTL and a Timeout that are longer: then the next server is asked.
func TestARenewalMayTakeFiveSeconds(t *testing.T) {
	first := newFake(t, map[string]http.HandlerFunc{"PUT": waitsFirst(make(chan bool, 1))})
	second := newFake(t, nil)
	client := newClient(t, Config{Servers: []string{first.URL, second.URL}, Timeout: time.Minute})
	defer client.Close()
	l, began := lock(t, client, TTL(time.Minute)), time.Now()
	go renewNow(l)
	second.of(t, "PUT", 1)
	if took := time.Since(began); took < 5*time.Second || took > 11*time.Second {
		t.Error(took)
	}
}

func TestConcurrentUse(t *testing.T) {
	f := newFake(t, nil)
	client := newClient(t, Config{Servers: []string{f.URL, "http://127.0.0.1:1"}})
	shared := lock(t, client)
	var all sync.WaitGroup
	var ended atomic.Bool
	go func() {
		for !ended.Load() {
			renewNow(shared)
		}
	}()
	for range 30 {
		all.Add(1)
		go func() {
			defer all.Done()
			l, err := client.Lock(shared.Context(), "x")
			for range 20 {
				if err != nil || l.Err() != nil || shared.Remaining() == 0 || done(shared.Context()) {
					t.Error(err, "it is held")
				}
			}
			_ = l.Unlock()
			_ = shared.Err()
		}()
	}
	all.Wait()
	ended.Store(true)
	all.Add(9)
	for range 9 {
		go func() {
			defer all.Done()
			_ = shared.Unlock()
		}()
	}
	all.Wait()
	if count := len(f.of(t, "DELETE", 31)); count != 31 {
		t.Error(count)
	}
}
