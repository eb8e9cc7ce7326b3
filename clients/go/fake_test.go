// SPDX-License-Identifier: MIT

package redlockd

// A server that answers as a test wants it, and what the tests share.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	aToken   = "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"
	patience = 20 * time.Second // only a failure takes that long
)

type call struct {
	method, path, query, agent string
	header                     http.Header
	body                       map[string]any
}

// fake is a server that answers as a test wants it, or usefully.
type fake struct {
	*httptest.Server
	mu    sync.Mutex
	calls []call
	open  atomic.Int32 // connections
}

func newFake(t *testing.T, answers map[string]http.HandlerFunc) *fake {
	f := &fake{}
	f.Server = httptest.NewUnstartedServer(f.handler(answers))
	f.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		f.open.Add(map[http.ConnState]int32{http.StateNew: 1, http.StateClosed: -1}[state])
	}
	f.Start()
	t.Cleanup(f.Close)
	return f
}

func (f *fake) handler(answers map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(text))
		c := call{
			method: r.Method, path: r.URL.EscapedPath(), query: r.URL.RawQuery, agent: r.UserAgent(),
			header: r.Header,
		}
		_ = json.Unmarshal(text, &c.body)
		f.mu.Lock()
		f.calls = append(f.calls, c)
		f.mu.Unlock()
		if answer := answers[r.Method]; answer != nil {
			answer(w, r)
		} else if r.Method == "DELETE" {
			w.WriteHeader(204)
		} else {
			lease(w, r, time.Minute)
		}
	}
}

// lease grants or extends what was asked for, for a minute where no TTL was chosen.
func lease(w http.ResponseWriter, r *http.Request, validity time.Duration) {
	var all struct{ Leases []map[string]any }
	text, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(text, &all)
	for _, given := range all.Leases {
		grantFor(given, validity)
	}
	if r.Method == "PUT" {
		_ = json.NewEncoder(w).Encode(map[string]any{"leases": all.Leases})
		return
	}
	given := map[string]any{"ttl_ms": 60000.0}
	_ = json.Unmarshal(text, &given)
	grantFor(given, validity)
	w.WriteHeader(201)
	_ = json.NewEncoder(w).Encode(given)
}

func grantFor(given map[string]any, validity time.Duration) {
	given["token"], given["fence"] = aToken, 7
	given["validity_ms"] = min(given["ttl_ms"].(float64), float64(validity.Milliseconds()))
}

// problem answers a request, or one lease of a renewal.
func problem(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		given := `{"code":"%s","status":%d,"detail":"%[1]s, it says","holder":{"owner":"me"}}`
		if r.Method == "PUT" {
			given = `{"leases":[` + given + `]}`
		} else {
			w.WriteHeader(status)
		}
		fmt.Fprintf(w, given, code, status)
	}
}

// of waits for so many calls of this method.
func (f *fake) of(t *testing.T, method string, count int) []call {
	t.Helper()
	var found []call
	eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		found = slices.DeleteFunc(slices.Clone(f.calls), func(c call) bool { return c.method != method })
		return len(found) >= count
	})
	return found
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it does not happen")
		}
	}
}

func newClient(t *testing.T, config Config) *Client {
	t.Helper()
	client, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (f *fake) client(t *testing.T) *Client { return newClient(t, Config{Servers: []string{f.URL}}) }

func lock(t *testing.T, client *Client, options ...Option) *Lease {
	t.Helper()
	lease, err := client.Lock(context.Background(), "x", options...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// renewNow renews it, although that is not due.
func renewNow(l *Lease) {
	l.wanted.client.renewer.remove(l)
	l.wanted.client.renewer.renew([]*Lease{l})
}

// endNow is what the clock does while a process is stopped or a machine sleeps: timers know nothing of it yet.
func endNow(l *Lease) {
	l.stop.Store(int64(clock()))
}

func done(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// waitsFirst lets those wait that want to, until they have gone.
func waitsFirst(gone chan bool) http.HandlerFunc {
	var asked atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if asked.Swap(true) {
			lease(w, r, time.Minute)
			return
		}
		select {
		case <-r.Context().Done():
			gone <- true
		case <-time.After(patience):
			gone <- false
		}
	}
}

func pointer(handler http.HandlerFunc) *http.HandlerFunc { return &handler }

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
