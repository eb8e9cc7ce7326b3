// SPDX-License-Identifier: MIT

package redlockd

// What errors say, why a lease is lost, and how a loss reaches the caller.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func TestLockedNamesTheLockAndItsHolder(t *testing.T) {
	until := ", lease ends in 2.5s unless it is extended"
	for holder, want := range map[string]string{
		``: "a, b: held by somebody else", `,"holder":3`: "a, b: held by somebody else",
		`,"retry_after_ms":2500`:                             "a, b: held by somebody else" + until,
		`,"resource":"b","holder":{"fence":7}`:               "b: held by somebody else (fence 7)",
		`,"resource":"b","holder":{"owner":"me","fence":7}`:  "b: held by me (fence 7)",
		`,"resource":"b\n","holder":{"owner":"a\n","c":[1]}`: `"b\n": held by "a\n"`,
	} {
		body := `{"code":"locked"` + holder + `}`
		client := newFake(t, map[string]http.HandlerFunc{"POST": says(409, body)}).client(t)
		_, err := client.LockAll(context.Background(), []string{"a", "b"}, Wait(0))
		if err == nil || err.Error() != "redlockd: locked: "+want {
			t.Error(err, want)
		}
	}
}

func TestOptionsHaveTheirNamesAndUnits(t *testing.T) {
	body := `{"code":"invalid-request","detail":"d","errors":[
		{"field":"ttl_ms","reason":"must be from 100 to 99000; extend it for longer"},
		{"field":"slots","reason":"must be from 1 to 1024"}]}`
	want := "redlockd: invalid-request: TTL: must be from 100ms to 1m39s; extend it for longer; " +
		"slots: must be from 1 to 1024"
	client := newFake(t, map[string]http.HandlerFunc{"POST": says(400, body)}).client(t)
	if _, err := client.Lock(context.Background(), "x"); err == nil || err.Error() != want {
		t.Error(err)
	}
	for want, option := range map[string]Option{
		"TTL must": TTL(0), "Wait must": Wait(-time.Second), "Margin must": Margin(-time.Second),
	} {
		_, err := client.Lock(context.Background(), "x", option)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err, want)
		}
	}
}

// The context tells the cause, too, and each error names the lock.
func TestWhyALeaseIsLost(t *testing.T) {
	bounded := func(w http.ResponseWriter, _ *http.Request) {
		given := `{"leases":[{"resource":"x","token":"%s","fence":7,"ttl_ms":5,"validity_ms":5}]}`
		fmt.Fprintf(w, given, aToken)
	}
	for want, renewal := range map[Code]http.HandlerFunc{
		ErrNotOwner: problem(409, "not-owner"), ErrLeaseExpired: problem(410, "lease-expired"),
		ErrNoQuorum: problem(503, "no-quorum"), ErrNoAnswer: hangUp, ErrMaxHold: bounded, ErrLate: nil,
	} {
		l := lock(t, newFake(t, map[string]http.HandlerFunc{"PUT": renewal}).client(t))
		if want != ErrLate {
			renewNow(l)
		}
		endNow(l)
		<-l.Context().Done()
		var lost *LockLost
		if !errors.As(context.Cause(l.Context()), &lost) || lost.Cause.Code != want || !errors.Is(lost, want) {
			t.Error(want, lost)
		}
		refused := want == ErrNotOwner || want == ErrLeaseExpired
		if errors.Is(lost, ErrNotRenewed) == refused || errors.Is(lost, ErrReleased) {
			t.Error(want, lost)
		}
		start := fmt.Sprintf("redlockd: lease on x lost: %s: ", string(want))
		if !strings.HasPrefix(lost.Error(), start) {
			t.Error(lost)
		}
		_ = l.Unlock()
	}
}

// A renewal that is under way when the time is over has no answer.
func TestALossDuringARenewal(t *testing.T) {
	gone := make(chan bool, 1)
	f := newFake(t, map[string]http.HandlerFunc{"PUT": waitsFirst(gone)})
	l := lock(t, f.client(t))
	go renewNow(l)
	f.of(t, "PUT", 1)
	endNow(l)
	if err := l.Err(); !errors.Is(err, ErrNoAnswer) || !errors.Is(err, ErrNotRenewed) {
		t.Error(err)
	}
	<-gone
	_ = l.Unlock()
}

func TestDoOfAClient(t *testing.T) {
	own := errors.New("own")
	f := newFake(t, nil)
	client := f.client(t)
	for want, work := range map[error]func(*Lease) error{
		nil: func(*Lease) error { return nil }, own: func(*Lease) error { return own },
		ErrLockLost: func(l *Lease) error { endNow(l); return nil },
	} {
		err := client.Do(context.Background(), "x", func(ctx context.Context, lease *Lease) error {
			if ctx != lease.Context() || lease.Err() != nil || lease.Fence != 7 {
				t.Error("it has the lease")
			}
			return work(lease)
		}, TTL(time.Minute))
		if !errors.Is(err, want) {
			t.Error(err, want)
		}
	}
	if len(f.of(t, "DELETE", 3)) != 3 || f.of(t, "POST", 1)[0].body["ttl_ms"] != 60000.0 {
		t.Error("each is released, and the options arrive")
	}
	taken := newFake(t, map[string]http.HandlerFunc{"POST": problem(409, "locked")}).client(t)
	err := taken.Do(context.Background(), "x", func(context.Context, *Lease) error { panic("not held") }, Wait(0))
	if !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
}

func TestAnUnlockInADeferReportsTheLoss(t *testing.T) {
	client, own := newFake(t, nil).client(t), errors.New("own")
	do := func(work func(*Lease) error) (err error) {
		lease := lock(t, client)
		defer func() { err = errors.Join(err, lease.Unlock()) }()
		return work(lease)
	}
	if err := do(func(*Lease) error { return nil }); err != nil {
		t.Error(err)
	}
	err := do(func(l *Lease) error { endNow(l); return own })
	if !errors.Is(err, own) || !errors.Is(err, ErrLockLost) || !strings.Contains(err.Error(), "lease on x lost") {
		t.Error(err)
	}
}
