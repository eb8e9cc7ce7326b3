// SPDX-License-Identifier: MIT

package leaderlock

// The calls that client-go makes, with a real redlockd at the addresses in REDLOCKD_SERVERS.
// tests/adapters/test_client_go.py in the repository runs these tests.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	redlockd "github.com/OWNER/redlockd/clients/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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

// candidate is a Lock, and the record that its election writes.
type candidate struct {
	*Lock
	record resourcelock.LeaderElectionRecord
}

func newCandidate(t *testing.T, client *redlockd.Client, name, identity string) candidate {
	return newCandidateOf(t, Config{client, name, identity, 30 * time.Second, 20 * time.Second, 4 * time.Second})
}

func newCandidateOf(t *testing.T, config Config) candidate {
	t.Helper()
	lock, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.RecordEvent(stopped) })
	seconds := int(config.LeaseDuration / time.Second)
	return candidate{lock, resourcelock.LeaderElectionRecord{
		HolderIdentity: config.Identity, LeaseDurationSeconds: seconds,
	}}
}

func (c candidate) create() error { return c.Create(context.Background(), c.record) }

// update is that of a leader: with a deadline.
func (c candidate) update() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.RenewDeadline)
	defer cancel()
	return c.Update(ctx, c.record)
}

func (c candidate) release() error {
	return c.Update(context.Background(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1})
}

// holder is that of the record, "" if there is none.
func (c candidate) holder(t *testing.T) (holder string, raw []byte) {
	t.Helper()
	record, raw, err := c.Get(context.Background())
	if apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		t.Fatal(err)
	}
	return record.HolderIdentity, raw
}

func TestConfigurations(t *testing.T) {
	client, err := redlockd.New(redlockd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	second, long := time.Second, strings.Repeat("x", 129)
	for _, c := range []struct {
		wrong string
		Config
	}{
		{"", Config{client, "a", "b", 15 * second, 10 * second, 2 * second}}, // the defaults of Kubernetes
		{"", Config{client, "a", long[1:], second, second / 2, second / 10}},
		{"Client", Config{nil, "a", "b", 15 * second, 10 * second, 2 * second}},
		{"Name", Config{client, "", "b", 15 * second, 10 * second, 2 * second}},
		{"Identity", Config{client, "a", "", 15 * second, 10 * second, 2 * second}},
		{"Identity", Config{client, "a", long, 15 * second, 10 * second, 2 * second}},
		{"LeaseDuration", Config{client, "a", "b", second - 1, second / 2, second / 10}},
		{"RenewDeadline", Config{client, "a", "b", 15 * second, 0, 2 * second}},
		{"RetryPeriod", Config{client, "a", "b", 15 * second, 10 * second, -second}},
		{"RenewDeadline + RetryPeriod", Config{client, "a", "b", 15 * second, 10*second + 1, 2 * second}},
	} {
		_, err := New(c.Config)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q: %v", c.wrong, err)
		}
	}
}

func TestOneLeads(t *testing.T) {
	client, name := connect(t), nameOf(t)
	first, second := newCandidate(t, client, name, "first"), newCandidate(t, client, name, "second")
	if holder, _ := first.holder(t); holder != "" {
		t.Error(holder)
	}
	if _, err := first.Lease(); err != ErrNotLeader {
		t.Error(err)
	}
	if err := first.create(); err != nil {
		t.Fatal(err)
	}
	if err := second.create(); !errors.Is(err, redlockd.ErrLocked) {
		t.Error("two lead:", err)
	}
	if err := second.update(); err != ErrNotLeader {
		t.Error("a candidate renews:", err)
	}
	if err := first.update(); err != nil {
		t.Error(err)
	}
	if holder, _ := first.holder(t); holder != "first" {
		t.Error(holder)
	}
	holder, raw := second.holder(t)
	_, later := second.holder(t)
	if holder != "first" || bytes.Equal(raw, later) {
		t.Error("the record looks old: ", holder, string(raw), string(later))
	}
	lease, err := first.Lease()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.release(); err != ErrNotLeader {
		t.Error(err)
	}
	if err := first.release(); err != nil {
		t.Error(err)
	}
	if err := second.create(); err != nil {
		t.Fatal("it is not free:", err)
	}
	if next, err := second.Lease(); err != nil || next.Fence <= lease.Fence {
		t.Error(next, err)
	}
	if err := first.update(); err != ErrNotLeader {
		t.Error("it renews after its end:", err)
	}
}

// A candidate asks once for each try, and keeps its connection.
func TestACandidateCostsLittle(t *testing.T) {
	client, name := connect(t), nameOf(t)
	leader := newCandidate(t, client, name, "leader")
	if err := leader.create(); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(strings.Split(os.Getenv("REDLOCKD_SERVERS"), ",")[0])
	if err != nil {
		t.Fatal(err)
	}
	var requests, connections atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(address)
	between := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	between.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	between.Start()
	defer between.Close()
	behind, err := redlockd.New(redlockd.Config{Servers: []string{between.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	other := newCandidate(t, behind, name, "other")
	for range 5 {
		if holder, _ := other.holder(t); holder != "leader" {
			t.Error(holder)
		}
	}
	if requests.Load() != 5 || connections.Load() != 1 {
		t.Error(requests.Load(), "requests on", connections.Load(), "connections")
	}
}

func TestACancelledElection(t *testing.T) {
	client, name := connect(t), nameOf(t)
	c := newCandidate(t, client, name, "x")
	ctx, cancel := context.WithTimeout(context.Background(), c.config.RenewDeadline)
	if err := c.Create(ctx, c.record); err != nil {
		t.Fatal(err)
	}
	cancel() // as the election does, when it has the lock
	lease, err := c.Lease()
	if err != nil || lease.Context().Err() != nil {
		t.Error("the lease has ended with the election:", err)
	}
	if err := c.Update(ctx, c.record); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := c.release(); err != nil {
		t.Error(err)
	}
	if holder, _ := c.holder(t); holder != "" {
		t.Error("it is not free after a leader that could renew:", holder)
	}
	if err := c.Create(ctx, c.record); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if holder, _ := c.holder(t); holder != "" {
		t.Error("a lease is left:", holder)
	}
}

// A leader without renewals stops later than it releases, and the work of a leader that stops may go on.
func TestTheLockIsKept(t *testing.T) {
	client := connect(t)
	for why, end := range map[string]func(c candidate) error{
		"no renewal": func(c candidate) error {
			ctx, cancel := context.WithTimeout(context.Background(), 0)
			defer cancel()
			if err := c.Update(ctx, c.record); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("an Update after its deadline: %w", err)
			}
			return c.release()
		},
		"no release": func(c candidate) error {
			c.RecordEvent("became leader")
			c.RecordEvent(stopped)
			return nil
		},
	} {
		name := nameOf(t)
		c := newCandidate(t, client, name, "same")
		if err := c.create(); err != nil {
			t.Fatal(err)
		}
		lease, _ := c.Lease()
		if err := end(c); err != nil {
			t.Fatal(why, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for state := range client.Watch(ctx, name) { // until the release has arrived
			if strings.Contains(string(state.JSON), `"kept":true`) {
				cancel()
			} else if !state.Held {
				t.Fatal("it is free:", why)
			}
		}
		if lease.Context().Err() == nil {
			t.Error("the lease is held:", why)
		}
		if err := c.create(); !errors.Is(err, redlockd.ErrLocked) {
			t.Error(why, err)
		}
		if holder, _ := c.holder(t); holder != fmt.Sprintf("same (fence %d)", lease.Fence) {
			t.Error("the election would take it for its own:", holder)
		}
	}
}

func TestALossIsFinal(t *testing.T) {
	client, name := connect(t), nameOf(t)
	c := newCandidateOf(t, Config{client, name, "x", 6 * time.Second, 4 * time.Second, time.Second / 2})
	if err := c.create(); err != nil {
		t.Fatal(err)
	}
	lease, _ := c.Lease()
	ended := make(chan error, 1)
	go c.Leading(func(ctx context.Context, _ *redlockd.Lease) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
	})(context.Background())
	if err := client.Force(context.Background(), name, lease.Fence); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, redlockd.ErrLockLost) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the work goes on")
	}
	if _, err := c.Lease(); !errors.Is(err, redlockd.ErrLockLost) {
		t.Error(err)
	}
	if err := c.update(); !errors.Is(err, redlockd.ErrLockLost) {
		t.Error(err)
	}
	if _, _, err := c.Get(context.Background()); !errors.Is(err, redlockd.ErrLockLost) {
		t.Error("the election would create another record:", err)
	}
	if err := c.create(); err == nil {
		t.Error("a leader that did not stop leads again")
	}
	c.RecordEvent(stopped)
	if err := c.create(); err != nil {
		t.Fatal(err)
	}
	if next, err := c.Lease(); err != nil || next.Fence <= lease.Fence {
		t.Error(next, err)
	}
}

func TestAnElectionThatIsConfiguredOtherwise(t *testing.T) {
	client, name := connect(t), nameOf(t)
	c := newCandidate(t, client, name, "x")
	wrong := c.record
	wrong.LeaseDurationSeconds = 40
	if err := c.Create(context.Background(), wrong); err == nil || !strings.Contains(err.Error(), "LeaseDuration") {
		t.Error(err)
	}
	wrong = c.record
	wrong.HolderIdentity = "y"
	if err := c.Create(context.Background(), wrong); err == nil || !strings.Contains(err.Error(), "Identity") {
		t.Error(err)
	}
	if err := c.create(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.config.RenewDeadline+time.Minute)
	defer cancel()
	if err := c.Update(ctx, c.record); err == nil || !strings.Contains(err.Error(), "RenewDeadline") {
		t.Error(err)
	}
}
