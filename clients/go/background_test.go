// SPDX-License-Identifier: MIT

package redlockd

// The log, code of the caller that blocks or panics, and the goroutines and connections that are left.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// transcript is a log that can be read while it is written.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *transcript) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// At all levels, in text and JSON, with answers that are lost, refused and too late; and in what fmt makes of a lease.
func TestNoSecretsInTheLog(t *testing.T) {
	var log transcript
	answers := make(chan http.HandlerFunc, 3) // each request has a goroutine of its own
	answers <- hangUp
	answers <- problem(503, "no-quorum")
	answers <- func(w http.ResponseWriter, r *http.Request) { lease(w, r, time.Millisecond) }
	f := newFake(t, map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, r *http.Request) {
		select {
		case next := <-answers:
			next(w, r)
		default:
			lease(w, r, time.Minute)
		}
	}, "PUT": problem(410, "lease-expired"), "DELETE": hangUp})
	f.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError)
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client := newClient(t, Config{Servers: []string{f.URL, f.URL, f.URL, f.URL}, Key: "secret-key", Logger: logger})
	l := lock(t, client)
	renewNow(l)
	<-l.Context().Done()
	err := l.Unlock()
	logger.Info("of the program", "lease", l, "error", err)
	fmt.Fprintf(&log, "%v %+v %v %+v", client, client, err, l.Context())
	for _, text := range []string{
		"acquired", "not acquired yet", "lease on x lost: lease-expired", "not released", "no-quorum",
	} {
		eventually(t, func() bool { return strings.Contains(log.String(), text) })
	}
	for _, secret := range []string{aToken, "secret-key", f.of(t, "POST", 4)[0].header.Get("Idempotency-Key")} {
		if strings.Contains(log.String(), secret) {
			t.Error("in the log: " + secret)
		}
	}
}

// Also of leases that were lost or came too late, and of what was cancelled.
func TestNoGoroutineIsLeft(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"GET": states(1000)})
	client, before := f.client(t), runtime.NumGoroutine()
	for range 20 {
		l := lock(t, client, TTL(5*time.Minute)) // its renewal is far away
		endNow(l)
		<-l.Context().Done()
		_ = l.Unlock()
		_ = lock(t, client, TTL(5*time.Minute)).Unlock()
		ctx, cancel := context.WithCancel(context.Background())
		<-client.Watch(ctx, "x")
		cancel()
	}
	f.CloseClientConnections()
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 })
}

// handler stands for one of the caller's that is broken.
type handler func()

func (h handler) Enabled(context.Context, slog.Level) bool {
	h()
	return true
}

func (h handler) Handle(context.Context, slog.Record) error { return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }

// Neither a renewal nor the loss waits for it, nor a release or Close.
func TestALogHandlerThatBlocksOrPanics(t *testing.T) {
	ended := make(chan bool)
	defer close(ended)
	for name, broken := range map[string]handler{
		"blocks": func() { <-ended },
		"panics": func() { panic("a handler") },
	} {
		refused := atomic.Bool{}
		f := newFake(t, map[string]http.HandlerFunc{"PUT": func(w http.ResponseWriter, r *http.Request) {
			if refused.Swap(true) {
				lease(w, r, time.Minute)
			} else {
				problem(503, "no-quorum")(w, r)
			}
		}})
		client := newClient(t, Config{Servers: []string{f.URL}, Logger: slog.New(broken)})
		l := lock(t, client)
		renewNow(l)
		stop := l.stop.Load()
		renewNow(l)
		if l.Err() != nil || l.stop.Load() <= stop {
			t.Error(name, "it is renewed", l.Err())
		}
		other := lock(t, client)
		endNow(l)
		<-l.Context().Done()
		client.Close()
		f.of(t, "DELETE", 2)
		if !errors.Is(l.Err(), ErrNotRenewed) || !errors.Is(other.Err(), ErrReleased) {
			t.Error(name, l.Err(), other.Err())
		}
	}
}

// brokenContext panics if it is asked for a value, from some time on.
type brokenContext struct {
	context.Context
	broken *atomic.Bool
}

func (c brokenContext) Value(key any) any {
	if c.broken.Load() {
		panic("a context")
	}
	return c.Context.Value(key)
}

// It neither hangs nor leaves a lease, also if that was granted before the panic.
func TestCloseAfterAPanic(t *testing.T) {
	for _, granted := range []bool{false, true} {
		var broken atomic.Bool
		f := newFake(t, map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, r *http.Request) {
			broken.Store(true)
			lease(w, r, time.Minute)
		}})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		client := f.client(t)
		broken.Store(!granted)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the caller is told")
				}
			}()
			_, _ = client.TryLock(brokenContext{ctx, &broken}, "x")
		}()
		client.Close()
		if granted && len(f.of(t, "DELETE", 1)) != 1 {
			t.Error("it is released")
		}
	}
}

func TestALossSurvivesAPanic(t *testing.T) {
	var broken atomic.Bool
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := newFake(t, nil)
	l, err := f.client(t).Lock(brokenContext{ctx, &broken}, "x")
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	endNow(l)
	<-l.ctx.Context.Done() // by the timer alone: a panic in its goroutine would end the program
	if !errors.Is(l.Unlock(), ErrNotRenewed) || len(f.of(t, "DELETE", 1)) != 1 {
		t.Error(l.Err())
	}
}

func TestARenewalSurvivesAPanic(t *testing.T) {
	client := newFake(t, nil).client(t)
	defer client.Close()
	l, servers := lock(t, client), client.servers
	client.servers = []*server{nil}
	before := clock()
	renewNow(l)
	if l.due < before+l.grant.ttl/10 || l.due > clock()+l.grant.ttl/10 || l.Err() != nil {
		t.Error(l.due, l.Err())
	}
	client.servers = servers
}

func TestCloseClosesConnections(t *testing.T) {
	f := newFake(t, nil)
	client := f.client(t)
	for range 3 {
		_ = lock(t, client).Unlock()
	}
	if f.open.Load() != 1 {
		t.Error("one is kept", f.open.Load())
	}
	client.Close()
	eventually(t, func() bool { return f.open.Load() == 0 })
}
