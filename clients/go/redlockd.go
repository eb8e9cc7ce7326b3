// SPDX-License-Identifier: MIT

// Package redlockd is a client of redlockd, a distributed lock service over HTTP. It takes locks, renews them in the
// background, and tells in time if one is lost.
//
//	client, err := redlockd.New(redlockd.Config{Servers: []string{"https://a:8443", "https://b:8443"}, Key: key})
//	…
//	defer client.Close()
//	lease, err := client.Lock(ctx, "orders/42", redlockd.Wait(time.Minute))
//	…
//	defer lease.Unlock()
//	return work(lease.Context(), lease.Fence) // the context is cancelled before the lease ends
package redlockd

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Version is that of this library.
const Version = "0.1.0"

const watchWait = 20 * time.Second // of one request

var keys = regexp.MustCompile(`^[!-~]*$`)

// Config is what a [Client] needs. All of it can be left out.
type Config struct {
	// Servers are the addresses of one cluster: https://host:port, http://host:port or unix:/path. If one fails,
	// the next one is used. By default there is one, http://127.0.0.1:8080.
	Servers []string
	Key     string // an API key
	// TokenFile has a token instead of a Key. It is read for each request, so that a token that is replaced there
	// needs nothing else.
	TokenFile string
	Owner     string // the label of all locks that have no other one
	// TLS is for HTTPS: RootCAs are the authorities to trust, Certificates is for a client certificate,
	// GetClientCertificate for one that is renewed.
	TLS     *tls.Config
	Timeout time.Duration // of a server's answer, beside what the request waits for; 5 s by default
	// Headers returns more headers for a request, such as a traceparent. Its ctx has the values of the call's;
	// that of a renewal or release has none. Headers that the library sets itself are left out. It must be safe for
	// concurrent use; if it panics, the request goes without them.
	Headers func(ctx context.Context) http.Header
	Logger  *slog.Logger // never gets keys or tokens, and delays nothing; slog.Default() by default
	tokens  *tokenFile
}

// Client is a client of one cluster of redlockd. It is safe for concurrent use; one for each program is enough.
type Client struct {
	servers []*server
	inUse   atomic.Int64 // an index of servers
	owner   string
	timeout time.Duration
	journal *journal
	renewer *renewer
	users   sync.RWMutex // read by each acquisition and its lease until its release, written by Close
	closed  context.Context
	close   context.CancelFunc
}

// New makes a client. It connects to no server yet; the error is that of a wrong configuration.
func New(config Config) (*Client, error) {
	config.Timeout = min(cmp.Or(config.Timeout, 5*time.Second), longest)
	if !keys.MatchString(config.Key) || config.Timeout < 0 {
		return nil, errors.New("redlockd: the key has characters that no key has, or the timeout is negative")
	}
	if len(config.Servers) == 0 {
		config.Servers = []string{"http://127.0.0.1:8080"}
	}
	c := &Client{owner: config.Owner, timeout: config.Timeout}
	c.journal = newJournal(cmp.Or(config.Logger, slog.Default()))
	if config.TokenFile != "" {
		if config.Key != "" {
			return nil, errors.New("redlockd: Key and TokenFile: one of them only")
		}
		file := &tokenFile{path: config.TokenFile}
		if err := file.read(); err != nil {
			return nil, fmt.Errorf("redlockd: TokenFile: %w", err)
		}
		config.tokens = file
	}
	for _, address := range config.Servers {
		s := newServer(address, config)
		if _, err := http.NewRequest("GET", s.base, nil); err != nil || !addresses.MatchString(address) {
			const forms = "http://host:port, https://host:port or unix:/path"
			return nil, fmt.Errorf("redlockd: not the address of a server: %q: use %s", address, forms)
		}
		c.servers = append(c.servers, s)
	}
	c.renewer = newRenewer(c)
	c.closed, c.close = context.WithCancel(context.Background())
	return c, nil
}

// Lock waits for the lock, in a queue. The error is [ErrLocked] if somebody else has it until the wait is over. If ctx
// is cancelled meanwhile, the error is its [context.Cause], and neither a waiting request nor a lease is left.
//
// The lease is renewed until [Lease.Unlock]. A ctx that is cancelled later cancels [Lease.Context], so limit the wait
// with [Wait] and not with ctx.
func (c *Client) Lock(ctx context.Context, resource string, options ...Option) (*Lease, error) {
	return c.lock(ctx, &acquisition{names: []string{resource}, named: members{"resource": resource}}, options)
}

// TryLock is [Client.Lock] without waiting.
func (c *Client) TryLock(ctx context.Context, resource string, options ...Option) (*Lease, error) {
	return c.Lock(ctx, resource, append(slices.Clip(options), Wait(0))...)
}

// LockAll is [Client.Lock] for 2 to 16 resources: all of them or none, in one lease. With Wait(0) it does not wait.
func (c *Client) LockAll(ctx context.Context, resources []string, options ...Option) (*Lease, error) {
	names := slices.Clone(resources)
	return c.lock(ctx, &acquisition{names: names, named: members{"resources": names}}, options)
}

// Do is [Client.Lock], and then [Lease.Do] with this work: the lock is released when the work ends. The error is that
// of Lock, or that of the work, or a *[LockLost] if the lease was lost meanwhile.
func (c *Client) Do(
	ctx context.Context, resource string, work func(ctx context.Context, lease *Lease) error, options ...Option,
) error {
	lease, err := c.Lock(ctx, resource, options...)
	if err != nil {
		return err
	}
	return lease.Do(func(ctx context.Context) error { return work(ctx, lease) })
}

func (c *Client) lock(ctx context.Context, q *acquisition, options []Option) (lease *Lease, err error) {
	q.client, q.parent, q.key, q.began, q.body = c, ctx, newKey(), clock(), maps.Clone(q.named)
	q.keyed = q.began
	if err := q.choose(options); err != nil {
		return nil, err
	}
	c.users.RLock()
	defer func() {
		if lease == nil { // also after a panic
			c.users.RUnlock()
		}
	}()
	return q.acquire()
}

// Close releases all leases of the client and ends what waits for locks; it returns when that is done. Call it at the
// end of the program, for which Go has no hook: otherwise the locks stay held until their TTL is over.
func (c *Client) Close() {
	c.close()
	c.users.Lock() // there is no acquisition and no lease any more
	defer c.users.Unlock()
	c.closeConnections()
	c.journal.flush(time.Second)
}

// Force is for operators: it takes the lock from its holder; if fence is not 0, only from the one with this fence.
func (c *Client) Force(ctx context.Context, resource string, fence int64) error {
	if err := checkNames(resource); err != nil {
		return err
	}
	path := "/locks?force=true"
	if fence != 0 {
		path += fmt.Sprintf("&fence=%d", fence)
	}
	body := members{"resource": resource}
	request := ask{method: "DELETE", path: path, timeout: c.timeout, once: fence == 0, body: body}
	if given := c.askEach(ctx, request); given.err != nil {
		return given.err
	}
	return nil
}

// State is that of a lock. It is for those who look, not to decide by: it is old when it arrives.
type State struct {
	Held     bool
	Owner    string // of the holder, if there is one alone; so are Fence and Metadata
	Fence    int64
	Metadata json.RawMessage
	Waiters  int
	JSON     json.RawMessage `json:"-"` // all that the server says
	Err      error           `json:"-"` // with the last value of a channel, why no more come
}

// State returns that of a lock now. If a server does not answer, it asks the next one; each once.
func (c *Client) State(ctx context.Context, resource string) (State, error) {
	if err := checkNames(resource); err != nil {
		return State{}, err
	}
	request := ask{method: "GET", path: "/locks?resource=" + url.QueryEscape(resource), timeout: c.timeout}
	request.read = func(given *answer) (wrong string) {
		if name, isText := textOf(given.body["resource"]); !isText || name != resource { // a 304 has none
			return "resource"
		}
		return readState(given)
	}
	given := c.askEach(ctx, request)
	switch {
	case given.err == nil:
		return given.state, nil
	case ctx.Err() != nil:
		return State{}, context.Cause(ctx)
	}
	return State{}, given.err
}

// Watch sends the state of a lock now, and at each change of the holder; changes that come faster than they are
// received are told as one. It goes on while no server answers. The channel is closed when ctx is done: cancel it if
// you stop receiving. It is also closed after an error that repeating does not help, which is in the last value.
func (c *Client) Watch(ctx context.Context, resource string) <-chan State {
	states := make(chan State)
	go c.watch(ctx, resource, states)
	return states
}

func (c *Client) watch(ctx context.Context, resource string, states chan<- State) {
	defer close(states)
	path := fmt.Sprintf("/locks?resource=%s&wait_ms=%d", url.QueryEscape(resource), watchWait.Milliseconds())
	request := ask{method: "GET", path: path, timeout: watchWait + c.timeout, waits: true, read: readState}
	tag := `"none"` // which no state has: the first one comes at once
	for ctx.Err() == nil {
		request.header = http.Header{"If-None-Match": {tag}}
		given := c.askEach(ctx, request)
		if given.isUnhelpful() {
			sleep(ctx, given.pause())
			continue
		} else if given.status == http.StatusNotModified {
			sleep(ctx, given.asked+apart-clock())
			continue
		}
		if given.err != nil {
			given.state.Err = given.err
		}
		select {
		case states <- given.state:
		case <-ctx.Done():
		}
		if given.err != nil {
			return
		}
		known := tag
		if tag = cmp.Or(given.header.Get("ETag"), known); tag == known { // a proxy strips the tags
			sleep(ctx, time.Second)
		}
	}
}
