// Books apples into a store, one by one, while nobody else does: docs/how-to/clients.md says how and why.
//
//	go run lock.go RESOURCE STORE [STEPS [STEP_MS [TTL_MS [WAIT_MS]]]]
package main

import (
	"bytes"
	"cmp"
	"context"
	crypto "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

var base = strings.TrimRight(cmp.Or(os.Getenv("REDLOCKD_URL"), "http://127.0.0.1:8080"), "/")
var start = time.Now()

func clock() time.Duration { return time.Since(start) } // monotonic

// failure is why the program ends, and its exit status.
type failure struct {
	status int
	why    string
}

func (f failure) Error() string { return f.why }

type answer struct {
	Token, Detail string
	Fence         int64
	ValidityMS    float64       `json:"validity_ms"`
	WaitedMS      float64       `json:"waited_ms"`
	pause         time.Duration // before another try
}

func (a answer) valid() time.Duration { return time.Duration((a.ValidityMS + 0.99*a.WaitedMS) * 1e6) }

// call makes one request, with an Idempotency-Key if there is one. The status is 0 where no answer of redlockd came.
func call(ctx context.Context, method, path string, body map[string]any, timeout time.Duration, again string) (int, answer) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, _ := json.Marshal(body)
	request, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(text))
	if err != nil {
		return -1, answer{Detail: err.Error()}
	}
	request.Header.Set("Content-Type", "application/json")
	if again != "" {
		request.Header.Set("Idempotency-Key", again)
	}
	if key := os.Getenv("REDLOCKD_KEY"); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	a := answer{}
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		defer response.Body.Close()
		if response.StatusCode != 204 {
			err = json.NewDecoder(response.Body).Decode(&a)
		}
	}
	if err != nil {
		return 0, answer{Detail: fmt.Sprintf("no answer from %s: %v", base, err), pause: time.Second}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	a.pause = time.Duration(seconds)*time.Second + rand.N(time.Second)
	return response.StatusCode, a
}

// lease is a lock that is renewed in the background until release. Work with ctx: it ends when the lease is lost.
type lease struct {
	path        string
	answer      // as it was granted
	ttl, margin time.Duration
	stopAt      atomic.Int64 // by clock()
	ctx         context.Context
	lose        context.CancelCauseFunc // says why
	ended, gone chan struct{}           // closed when keep is to end, and when it has
}

func acquire(ctx context.Context, resource string, ttl, wait time.Duration) (*lease, error) {
	again := make([]byte, 16) // if an answer is lost, the next request finds the lease
	crypto.Read(again)
	for until := clock() + wait; ; {
		sent := clock() // before the request: the lease lasts for so long from here, or longer
		left := min(max(until-sent, 0), time.Minute)
		body := map[string]any{"resource": resource, "ttl_ms": ttl.Milliseconds(), "wait_ms": left.Milliseconds()}
		status, a := call(ctx, "POST", "/locks", body, left+5*time.Second, fmt.Sprintf("%x", again))
		if status == 200 || status == 201 {
			l := &lease{path: "/locks/" + url.PathEscape(resource), answer: a, ttl: ttl, margin: ttl / 5}
			l.stopAt.Store(int64(sent + a.valid() - l.margin))
			l.ctx, l.lose = context.WithCancelCause(ctx)
			l.ended, l.gone = make(chan struct{}), make(chan struct{})
			fmt.Printf("acquired fence=%d\n", l.Fence)
			go l.keep()
			return l, nil
		}
		left = until - clock()
		exit, again := map[int]int{0: 69, 409: 75, 429: 69, 503: 69}[status]
		if status == 401 || status == 403 {
			return nil, failure{77, a.Detail}
		} else if !again || left <= 0 {
			return nil, failure{cmp.Or(exit, 64), a.Detail}
		}
		select {
		case <-time.After(min(left, a.pause)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (l *lease) keep() {
	defer close(l.gone)
	pause := l.ttl / 3
	for {
		select {
		case <-l.ended:
			return
		case <-time.After(min(pause, time.Duration(l.stopAt.Load())-clock())):
		}
		sent := clock()
		left := time.Duration(l.stopAt.Load()) - sent
		if left <= 0 {
			l.lose(failure{79, "lease lost: it could not be renewed in time"})
			return
		}
		body := map[string]any{"token": l.Token, "ttl_ms": l.ttl.Milliseconds()}
		status, a := call(context.Background(), "PUT", l.path, body, min(left, l.ttl/5), "")
		pause = l.ttl / 10 // no answer, 429, 503: the old end holds, ask again soon
		switch status {
		case 200:
			l.stopAt.Store(int64(sent + a.valid() - l.margin))
			pause = l.ttl / 3
			fmt.Println("renewed")
		case 409, 410:
			l.lose(failure{79, "lease lost: " + a.Detail})
			return
		}
	}
}

// work stands for work that can be broken off at once. It looks at the clock itself: the process may have been stopped meanwhile.
func (l *lease) work(d time.Duration) error {
	select {
	case <-l.ctx.Done():
	case <-time.After(d):
	}
	if int64(clock()) >= l.stopAt.Load() {
		l.lose(failure{79, "lease lost: it could not be renewed in time"})
	}
	return context.Cause(l.ctx)
}

func (l *lease) release() {
	close(l.ended)
	<-l.gone // a renewal that comes after the release would look like a loss
	if status, a := call(context.Background(), "DELETE", l.path, map[string]any{"token": l.Token}, 2*time.Second, ""); status != 204 {
		fmt.Println("not released:", a.Detail)
		return
	}
	fmt.Println("released")
}

// update changes the resource, which refuses whoever is not the last holder: comparison and change are one statement, also with a driver for
// database/sql; Go brings none for SQLite. The longest step that cannot be broken off is as long as the margin.
func (l *lease) update(store, change string) (int, error) {
	sql := fmt.Sprintf("UPDATE stock SET %s, fence = %d WHERE item = 'apples' AND fence <= %[2]d RETURNING amount", change, l.Fence)
	out, err := exec.Command("sqlite3", "-cmd", fmt.Sprintf(".timeout %d", l.margin.Milliseconds()), store, sql).Output()
	if err != nil {
		return 0, err
	} else if len(out) == 0 {
		return 0, failure{79, "fence refused: somebody else has had the lock since"}
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}

func book(ctx context.Context, resource, store string, steps int64, step, ttl, wait time.Duration) error {
	l, err := acquire(ctx, resource, ttl, wait)
	if err != nil {
		return err
	}
	defer l.release()
	amount, err := l.update(store, "amount = amount") // brings the fence there, then reads
	for ; err == nil && steps > 0; steps-- {
		if err = l.work(step); err != nil {
			return err
		}
		if amount, err = l.update(store, fmt.Sprintf("amount = %d", amount+1)); err == nil {
			fmt.Println("wrote", amount)
		}
	}
	return err
}

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { <-signals; cancel(failure{143, "interrupted"}) }()
	n := []int64{5, 1000, 10000, 20000}
	for i := 3; i < len(os.Args); i++ {
		n[i-3], _ = strconv.ParseInt(os.Args[i], 10, 64)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	err := book(ctx, os.Args[1], os.Args[2], n[0], ms(n[1]), ms(n[2]), ms(n[3]))
	if err != nil {
		f := failure{status: 1}
		errors.As(err, &f)
		fmt.Fprintln(os.Stderr, "lock:", err)
		os.Exit(f.status)
	}
}
