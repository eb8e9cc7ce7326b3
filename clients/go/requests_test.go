// SPDX-License-Identifier: MIT

package redlockd

// Requests and answers: options, errors, Force, State, Watch, the configuration.

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

func TestErrors(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"POST": problem(409, "locked"), "DELETE": problem(418, "new-code")})
	_, err := f.client(t).TryLock(context.Background(), "x")
	var failure *Error
	isLocked := errors.Is(err, ErrLocked) && !errors.Is(err, ErrNotOwner)
	if !isLocked || !errors.As(err, &failure) || failure.Status != 409 {
		t.Fatal(err)
	}
	var locked struct{ Holder struct{ Owner string } }
	err = json.Unmarshal(failure.Problem, &locked)
	if err != nil || locked.Holder.Owner != "me" || failure.Detail != "x: held by me" {
		t.Error(failure)
	}
	err = f.client(t).Force(context.Background(), "x", 0)
	if !errors.Is(err, Code("new-code")) || err.Error() != "redlockd: new-code: new-code, it says" {
		t.Error("codes of the future are kept", err)
	}
}

func TestAnAuthorityThatIsNotTrusted(t *testing.T) {
	f := &fake{}
	f.Server = httptest.NewUnstartedServer(f.handler(nil))
	f.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError)
	f.StartTLS()
	t.Cleanup(f.Close)
	_, err := f.client(t).TryLock(context.Background(), "x")
	var unknown x509.UnknownAuthorityError
	if !errors.Is(err, ErrNoAnswer) || !errors.As(err, &unknown) {
		t.Error(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(f.Certificate())
	client := newClient(t, Config{Servers: []string{f.URL}, TLS: &tls.Config{RootCAs: roots}})
	if err := lock(t, client).Unlock(); err != nil {
		t.Error(err)
	}
}

func TestWhatMakesNoClient(t *testing.T) {
	for _, address := range []string{
		"", "127.0.0.1:8080", "ftp://a", "https://", "https://u:p@a", "http://a\r\nX: y", "http://a/?b",
		"http://a/#b", "unix:", "http://a:b", "http://é",
	} {
		if _, err := New(Config{Servers: []string{"http://127.0.0.1:1", address}}); err == nil {
			t.Error(address)
		}
	}
	for _, config := range []Config{{Key: "a\r\nb"}, {Key: "é"}, {Timeout: -1}} {
		if _, err := New(config); err == nil {
			t.Error(config)
		}
	}
	for _, address := range []string{"http://a", "https://a:8443/", "http://[::1]:80/a/b", "unix:/a b"[:7]} {
		if _, err := New(Config{Servers: []string{address}}); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatMakesNoLock(t *testing.T) {
	f := newFake(t, nil)
	for number, options := range [][]Option{
		{TTL(0)}, {TTL(time.Microsecond)}, {Wait(-1)}, {Margin(-1)},
		{TTL(time.Second), Margin(501 * time.Millisecond)}, {Metadata(make(chan int))},
		{AtLeast(-1)}, {TTL(time.Second), AtLeast(2 * time.Second)},
	} {
		if _, err := f.client(t).Lock(context.Background(), "x", options...); err == nil {
			t.Error(number)
		}
	}
	_, err := f.client(t).LockAll(context.Background(), []string{"a\xc3", "\xa9"})
	if err == nil || len(f.calls) != 0 {
		t.Error("in JSON it would be another name", err)
	}
}

func TestMembersThatAreHandedOn(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		given := `{"resource":"x","token":"%s","fence":7,"ttl_ms":20000,"validity_ms":9000,"slot":3,"new":[1]}`
		fmt.Fprintf(w, given, aToken)
	}})
	client := newClient(t, Config{Servers: []string{f.URL + "/below/"}, Owner: "all", Key: "secret"})
	l := lock(t, client, Slots(4), Owner("mine"), Metadata(map[string]int{"job": 7}), TTL(20*time.Second),
		Wait(2*time.Second))
	want := map[string]any{
		"resource": "x", "slots": 4.0, "owner": "mine", "ttl_ms": 20000.0,
		"metadata": map[string]any{"job": 7.0},
	}
	sent := f.of(t, "POST", 1)[0]
	if wait := sent.body["wait_ms"].(float64); wait > 2000 || wait < 1000 {
		t.Error(wait)
	}
	delete(sent.body, "wait_ms")
	if fmt.Sprint(sent.body) != fmt.Sprint(want) || l.Slot != 3 || sent.path != "/below/locks" {
		t.Error(sent, l)
	}
	if sent.header.Get("Authorization") != "Bearer secret" || sent.agent != "redlockd-go/"+Version {
		t.Error(sent.header)
	}
	lock(t, client, Shared())
	sent = f.of(t, "POST", 2)[1]
	for _, name := range []string{"slots", "metadata"} {
		_, isThere := sent.body[name]
		if isThere || sent.body["mode"] != "shared" || sent.body["owner"] != "all" {
			t.Error(sent)
		}
	}
	client.Close()
}

func TestSeveralAtOnce(t *testing.T) {
	f := newFake(t, nil)
	names := []string{"a/b", "c"}
	l, err := f.client(t).LockAll(context.Background(), names)
	if err != nil {
		t.Fatal(err)
	}
	names[0] = "of the caller"
	renewNow(l)
	renewal := f.of(t, "PUT", 1)[0]
	renewal.body = renewal.body["leases"].([]any)[0].(map[string]any)
	_ = l.Unlock()
	for _, sent := range []call{f.of(t, "POST", 1)[0], renewal, f.of(t, "DELETE", 1)[0]} {
		several := fmt.Sprint(sent.body["resources"])
		if sent.path != "/locks" || several != "[a/b c]" || sent.body["resource"] != nil {
			t.Error(sent)
		}
	}
	if fmt.Sprint(l.Resources) != "[a/b c]" || l.Slot != -1 {
		t.Error(l.Resources, l.Slot)
	}
}

func TestANameThatMustBeEscaped(t *testing.T) {
	f := newFake(t, nil)
	name := `a//b c%/é?#"&+`
	client := f.client(t)
	l, err := client.Lock(context.Background(), name)
	if err != nil || l.Unlock() != nil {
		t.Fatal(err)
	}
	for _, sent := range []call{f.of(t, "POST", 1)[0], f.of(t, "DELETE", 1)[0]} {
		if sent.path != "/locks" || sent.query != "" || sent.body["resource"] != name {
			t.Error(sent)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client.Watch(ctx, name)
	sent := f.of(t, "GET", 1)[0]
	query, err := url.ParseQuery(sent.query)
	if sent.path != "/locks" || err != nil || query.Get("resource") != name || len(query) != 2 {
		t.Error(sent, err)
	}
}

func TestForce(t *testing.T) {
	f := newFake(t, nil)
	for fence, query := range map[int64]string{0: "force=true", 7: "force=true&fence=7"} {
		if err := f.client(t).Force(context.Background(), "a/b", fence); err != nil {
			t.Error(err)
		}
		sent := f.of(t, "DELETE", 1)
		last := sent[len(sent)-1]
		if last.path != "/locks" || last.query != query || last.body["resource"] != "a/b" {
			t.Error(last)
		}
	}
	if err := f.client(t).Force(context.Background(), "a\xc3", 0); err == nil || len(f.of(t, "DELETE", 2)) != 2 {
		t.Error("in JSON it would be another name", err)
	}
}

// A server may say the TTL where the caller chose none, and times that a time.Duration cannot have.
func TestTimesThatAreTooLong(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		given := `{"resource":"x","token":"%s","fence":7,"ttl_ms":%d,"validity_ms":%[2]d}`
		fmt.Fprintf(w, given, aToken, int64(numberMax))
	}})
	client := newClient(t, Config{Servers: []string{f.URL}, Timeout: 1<<63 - 1})
	defer client.Close()
	l := lock(t, client, Wait(1<<63-1))
	if left := l.Remaining(); left < longest/2 || left > longest {
		t.Error(left)
	}
}

// A state that says nothing of the holder is none, whatever the case of its names.
func TestAStateThatIsNone(t *testing.T) {
	var asked atomic.Int64
	f := newFake(t, map[string]http.HandlerFunc{"GET": func(w http.ResponseWriter, _ *http.Request) {
		answers := []string{
			`{}`, `{"HELD":false}`, `{"held":"no"}`, `{"held":true,"fence":1.5}`, `{"held":true,"Fence":9}`,
		}
		fmt.Fprint(w, answers[min(int(asked.Add(1)), len(answers))-1])
	}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := newClient(t, Config{Servers: []string{f.URL, f.URL, f.URL, f.URL, f.URL}})
	if state := <-client.Watch(ctx, "x"); !state.Held || state.Fence != 0 || asked.Load() != 5 {
		t.Error(state, asked.Load())
	}
}

// states answers with a state that has another tag each time, and then with a problem.
func states(count int) http.HandlerFunc {
	var answered atomic.Int64 // each connection has a goroutine of its own
	return func(w http.ResponseWriter, r *http.Request) {
		number := answered.Add(1)
		if number > int64(count) {
			problem(403, "forbidden")(w, r)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, number))
		given := `{"held":true,"owner":"me","fence":%d,"waiters":2,"metadata":{"a":1},"mode":"exclusive"}`
		fmt.Fprintf(w, given, number)
	}
}

func TestWatch(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"GET": states(2)})
	var seen []State
	for state := range f.client(t).Watch(context.Background(), "x") {
		seen = append(seen, state)
	}
	if len(seen) != 3 || seen[0].Err != nil || seen[1].Fence != 2 || !errors.Is(seen[2].Err, ErrForbidden) {
		t.Fatal(seen)
	}
	s := seen[0]
	if !s.Held || s.Owner != "me" || s.Waiters != 2 || string(s.Metadata) != `{"a":1}` {
		t.Error(s)
	}
	if !bytes.Contains(s.JSON, []byte("exclusive")) {
		t.Error(string(s.JSON))
	}
	for number, tag := range []string{`"none"`, `"1"`, `"2"`} {
		if sent := f.of(t, "GET", 3)[number]; sent.header.Get("If-None-Match") != tag {
			t.Error(sent)
		}
	}
}

func TestState(t *testing.T) {
	ctx := context.Background()
	f := newFake(t, map[string]http.HandlerFunc{"GET": func(w http.ResponseWriter, r *http.Request) {
		switch name := r.FormValue("resource"); name {
		case "not modified":
			w.WriteHeader(304)
		case "forbidden":
			problem(403, "forbidden")(w, r)
		case "another":
			fmt.Fprint(w, `{"resource":"x","held":false}`)
		case "slow":
			<-r.Context().Done()
		default:
			given := `{"resource":%q,"held":true,"owner":"me","fence":7,"waiters":2,"kept":true}`
			fmt.Fprintf(w, given, name)
		}
	}})
	client := f.client(t)
	state, err := client.State(ctx, "a b/ü")
	isRight := state.Held && state.Owner == "me" && state.Fence == 7 && state.Waiters == 2 && state.Err == nil
	if err != nil || !isRight || !bytes.Contains(state.JSON, []byte(`"kept":true`)) {
		t.Error(state, err)
	}
	for name, wrong := range map[string]error{
		"not modified": ErrNoAnswer, "another": ErrNoAnswer, "forbidden": ErrForbidden,
	} {
		if state, err := client.State(ctx, name); !errors.Is(err, wrong) || state.JSON != nil {
			t.Error(name, state, err)
		}
	}
	if _, err := client.State(ctx, "half \xc3"); err == nil || errors.Is(err, ErrNoAnswer) {
		t.Error("it is another name in a request", err)
	}
	if count := len(f.of(t, "GET", 4)); count != 4 {
		t.Error("it asks more than once", count)
	}
	why := errors.New("enough")
	cancelled, cancel := context.WithCancelCause(ctx)
	cancel(why)
	if _, err := client.State(cancelled, "slow"); err != why {
		t.Error(err)
	}
}

func TestStateOfAnotherServer(t *testing.T) {
	down := newFake(t, map[string]http.HandlerFunc{"GET": problem(503, "draining")})
	up := newFake(t, map[string]http.HandlerFunc{"GET": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"resource":"x","held":false}`)
	}})
	client := newClient(t, Config{Servers: []string{down.URL, up.URL}})
	if state, err := client.State(context.Background(), "x"); err != nil || state.Held || state.JSON == nil {
		t.Error(state, err)
	}
	up.Close()
	if _, err := client.State(context.Background(), "x"); !errors.Is(err, ErrDraining) {
		t.Error(err)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"GET": states(1000)})
	ctx, cancel := context.WithCancel(context.Background())
	watch := f.client(t).Watch(ctx, "x")
	<-watch
	cancel() // while it has a state that nobody receives
	for state := range watch {
		if state.Err != nil {
			t.Error("that is no error", state.Err)
		}
	}
}
