package redlockd

// What only the library for Go has: contexts, errors, Close, the logger. tests/clients has the suite of all languages.

import (
	"bytes"
	"cmp"
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
	"runtime"
	"slices"
	"strings"
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
}

func newFake(t *testing.T, answers map[string]http.HandlerFunc) *fake {
	f := &fake{}
	f.Server = httptest.NewServer(f.handler(answers))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) handler(answers map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		c := call{method: r.Method, path: r.URL.EscapedPath(), query: r.URL.RawQuery, agent: r.UserAgent(), header: r.Header}
		_ = json.Unmarshal(text, &c.body)
		f.mu.Lock()
		f.calls = append(f.calls, c)
		f.mu.Unlock()
		if answer := answers[r.Method]; answer != nil {
			answer(w, r)
		} else if r.Method == "DELETE" {
			w.WriteHeader(204)
		} else {
			ttl, _ := c.body["ttl_ms"].(float64)
			leaseOf(w, cmp.Or(int(ttl), 30000), 60000)
		}
	}
}

func lease(w http.ResponseWriter, validity int) { leaseOf(w, 30000, validity) }

func leaseOf(w http.ResponseWriter, ttl, validity int) {
	w.WriteHeader(map[bool]int{true: 201, false: 200}[validity > 0])
	fmt.Fprintf(w, `{"resource":"x","token":"%s","fence":7,"ttl_ms":%d,"validity_ms":%d}`, aToken, ttl, validity)
}

func problem(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":"%s","status":%d,"detail":"%s, it says","holder":{"owner":"me"}}`, code, status, code)
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
	if !errors.As(context.Cause(below), &lost) || lost.Cause != ErrNotRenewed || lost.Resources[0] != "x" || l.Err() != error(lost) {
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
	l, err := f.client(t).Lock(ctx, "x", TTL(300*time.Millisecond))
	if err != nil || l.Context().Value(key{}) != 5 {
		t.Fatal("the values are there", err)
	}
	cancel()
	if !done(l.Context()) || l.Context().Err() != context.Canceled || l.Err() != nil || l.Remaining() == 0 {
		t.Error("the context ends, the lease does not")
	}
	f.of(t, "PUT", 2)
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
		if posts[1].body["wait_ms"] != 0.0 || posts[0].header.Get("Idempotency-Key") != posts[1].header.Get("Idempotency-Key") {
			t.Error("the same request again, without a wait", posts)
		}
		if f.of(t, "DELETE", 1)[0].header.Get("Lock-Token") != aToken {
			t.Error("it was granted, and is released")
		}
		cancel()
	}
}

// waitsFirst lets those wait that want to, until they have gone.
func waitsFirst(gone chan bool) http.HandlerFunc {
	var asked atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if asked.Swap(true) {
			lease(w, 60000)
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
		if !errors.Is(l.Err(), ErrReleased) || !errors.Is(l.Err(), ErrLockLost) || !errors.Is(l.Unlock(), ErrReleased) {
			t.Error("it does not count any more", l.Err())
		}
		if context.Cause(l.Context()) != l.Err() {
			t.Error(context.Cause(l.Context()))
		}
	}
}

func pointer(handler http.HandlerFunc) *http.HandlerFunc { return &handler }

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestClose(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, r *http.Request) {
		if f := r.Header.Get("Idempotency-Key"); f == "" {
			t.Error("no key")
		}
		lease(w, 60000)
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
	go l.renew(clock())
	second.of(t, "PUT", 1)
	if took := time.Since(began); took < 5*time.Second || took > 9*time.Second {
		t.Error(took)
	}
}

func TestErrors(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"POST": problem(409, "locked"), "DELETE": problem(418, "new-code")})
	_, err := f.client(t).TryLock(context.Background(), "x")
	var failure *Error
	if !errors.Is(err, ErrLocked) || errors.Is(err, ErrNotOwner) || !errors.As(err, &failure) || failure.Status != 409 {
		t.Fatal(err)
	}
	var locked struct{ Holder struct{ Owner string } }
	if json.Unmarshal(failure.Problem, &locked) != nil || locked.Holder.Owner != "me" || failure.Detail != "locked, it says" {
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
	for _, address := range []string{"", "127.0.0.1:8080", "ftp://a", "https://", "https://u:p@a", "http://a\r\nX: y", "http://a/?b",
		"http://a/#b", "unix:", "http://a:b", "http://é"} {
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
	for number, options := range [][]Option{{TTL(0)}, {TTL(time.Microsecond)}, {Wait(-1)}, {Margin(-1)}, {TTL(time.Second), Margin(501 * time.Millisecond)},
		{Metadata(make(chan int))}} {
		if _, err := f.client(t).Lock(context.Background(), "x", options...); err == nil {
			t.Error(number)
		}
	}
	if _, err := f.client(t).LockAll(context.Background(), []string{"a\xc3", "\xa9"}); err == nil || len(f.calls) != 0 {
		t.Error("in JSON it would be another name", err)
	}
}

func TestMembersThatAreHandedOn(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		fmt.Fprintf(w, `{"token":"%s","fence":7,"ttl_ms":20000,"validity_ms":9000,"slot":3,"future":[1]}`, aToken)
	}})
	client := newClient(t, Config{Servers: []string{f.URL + "/below/"}, Owner: "all", Key: "secret"})
	l := lock(t, client, Slots(4), Owner("mine"), Metadata(map[string]int{"job": 7}), TTL(20*time.Second), Wait(2*time.Second))
	want := map[string]any{"resource": "x", "slots": 4.0, "owner": "mine", "metadata": map[string]any{"job": 7.0}, "ttl_ms": 20000.0}
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
		if _, isThere := sent.body[name]; isThere || sent.body["mode"] != "shared" || sent.body["owner"] != "all" {
			t.Error(sent)
		}
	}
	client.Close()
}

func TestSeveralAtOnce(t *testing.T) {
	f := newFake(t, nil)
	names := []string{"a/b", "c"}
	l, err := f.client(t).LockAll(context.Background(), names, TTL(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	names[0] = "of the caller"
	renewal := f.of(t, "PUT", 1)[0]
	_ = l.Unlock()
	for _, sent := range []call{f.of(t, "POST", 1)[0], renewal, f.of(t, "DELETE", 1)[0]} {
		if sent.path != "/locks" || fmt.Sprint(sent.body["resources"]) != "[a/b c]" || sent.body["resource"] != nil {
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
	if query, err := url.ParseQuery(sent.query); sent.path != "/locks" || err != nil || query.Get("resource") != name || len(query) != 2 {
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
		if last := sent[len(sent)-1]; last.path != "/locks" || last.query != query || last.body["resource"] != "a/b" {
			t.Error(last)
		}
	}
	if err := f.client(t).Force(context.Background(), "a\xc3", 0); err == nil || len(f.of(t, "DELETE", 2)) != 2 {
		t.Error("in JSON it would be another name", err)
	}
}

// states answers with a state that has another tag each time, and then with a problem.
func states(count int) http.HandlerFunc {
	number := 0
	return func(w http.ResponseWriter, r *http.Request) {
		if number++; number > count {
			problem(403, "forbidden")(w, r)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, number))
		fmt.Fprintf(w, `{"held":true,"owner":"me","fence":%d,"waiters":2,"metadata":{"a":1},"mode":"exclusive"}`, number)
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
	if s := seen[0]; !s.Held || s.Owner != "me" || s.Waiters != 2 || string(s.Metadata) != `{"a":1}` || !bytes.Contains(s.JSON, []byte("exclusive")) {
		t.Error(s)
	}
	for number, tag := range []string{`"none"`, `"1"`, `"2"`} {
		if sent := f.of(t, "GET", 3)[number]; sent.header.Get("If-None-Match") != tag {
			t.Error(sent)
		}
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

// At all levels, in text and JSON, with answers that are lost, refused and too late; and in what fmt makes of a lease.
func TestNoSecretsInTheLog(t *testing.T) {
	var log bytes.Buffer
	answers := make(chan http.HandlerFunc, 3) // each request has a goroutine of its own
	answers <- hangUp
	answers <- problem(503, "no-quorum")
	answers <- func(w http.ResponseWriter, _ *http.Request) { lease(w, 1) }
	f := newFake(t, map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, r *http.Request) {
		select {
		case next := <-answers:
			next(w, r)
		default:
			lease(w, 60000)
		}
	}, "PUT": problem(410, "lease-expired"), "DELETE": hangUp})
	f.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError)
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client := newClient(t, Config{Servers: []string{f.URL, f.URL, f.URL, f.URL}, Key: "secret-key", Logger: logger})
	l := lock(t, client, TTL(200*time.Millisecond))
	<-l.Context().Done()
	err := l.Unlock()
	logger.Info("of the program", "lease", l, "error", err)
	fmt.Fprintf(&log, "%v %+v %v %+v", client, client, err, l.Context())
	for _, text := range []string{"acquired", "not acquired yet", "not renewed", "not released", "no-quorum", "lease-expired"} {
		if !strings.Contains(log.String(), text) {
			t.Error("not in the log: " + text)
		}
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

func TestConcurrentUse(t *testing.T) {
	f := newFake(t, nil)
	client := newClient(t, Config{Servers: []string{f.URL, "http://127.0.0.1:1"}})
	shared := lock(t, client, TTL(300*time.Millisecond))
	var all sync.WaitGroup
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
