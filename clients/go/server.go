// SPDX-License-Identifier: MIT

package redlockd

// The servers of the list, their connections, and which server gets a request: "Several servers" and
// "Connections" in docs/reference/client-rules.md.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	connectionsMax = 16              // of a server, for requests that do not wait; also the idle ones
	idleTime       = 5 * time.Second // where a server says none
	headMax        = 16 << 10        // bytes
	bodyMax        = 1 << 20
)

var (
	addresses = regexp.MustCompile(`^(unix:[!-~]+|https?://[\w.:\[\]%-]+(/[!"$->@-~]*)?)$`)
	timeouts  = regexp.MustCompile(`(?i)\btimeout="?([0-9]{1,6})`)
	fields    = regexp.MustCompile("^[\\w!#$%&'*+.^`|~-]+$")
	values    = regexp.MustCompile(`^[\t -~]*$`)
	// own are the headers that Config.Headers cannot set.
	own = strings.Fields("Accept Authorization Connection Content-Length Content-Type Expect Host " +
		"Idempotency-Key If-None-Match Lock-Token Te Trailer Transfer-Encoding Upgrade User-Agent X-Api-Key")
)

// connection is for one request after the other. It has a Transport of its own, which opens it, and sends a request
// again on a new one if this one was kept and ended before the first byte of the answer. A Transport for several
// connections has one idle time for all, and goes on to open one for a request that was given up.
type connection struct {
	*http.Transport
	idleUntil time.Duration // by clock()
}

// server is one address of the list. It is safe for concurrent use.
type server struct {
	address, base string
	header        http.Header
	tokens        *tokenFile                        // or nil
	more          func(context.Context) http.Header // of the program; or nil
	connect       func() *connection
	free          chan struct{} // has an element for each request under way that does not wait
	mu            sync.Mutex
	idle          []*connection // guarded by mu, as closing is; the newest last
	closing       bool          // a timer is set for the first one whose time is over
}

func newServer(address string, config Config) *server {
	dialer := &net.Dialer{Timeout: config.Timeout}
	s := &server{address: address, base: strings.TrimRight(address, "/"), free: make(chan struct{}, connectionsMax)}
	s.more, s.tokens = config.Headers, config.tokens
	dial := dialer.DialContext
	if path, isSocket := strings.CutPrefix(address, "unix:"); isSocket {
		s.base = "http://localhost"
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	}
	s.connect = func() *connection {
		return &connection{Transport: &http.Transport{ // HTTP/1.1 alone, since it has a DialContext
			DialContext: dial, TLSHandshakeTimeout: config.Timeout, TLSClientConfig: config.TLS,
			DisableCompression: true, MaxResponseHeaderBytes: headMax,
		}}
	}
	s.header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"redlockd-go/" + Version}}
	// This empty value is not sent. It tells the Transport that it may repeat the request on a new connection.
	s.header["Idempotency-Key"] = []string{}
	if config.Key != "" {
		s.header.Set("Authorization", "Bearer "+config.Key)
	}
	return s
}

// take returns the newest connection that is idle, or a new one.
func (s *server) take() *connection {
	s.closeIdle(clock())
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		return s.connect()
	}
	c := s.idle[last]
	s.idle = s.idle[:last]
	return c
}

// keep makes a connection idle. Its last answer was read to the end.
func (s *server) keep(c *connection, idle time.Duration) {
	defer s.closeIdle(clock())
	s.mu.Lock()
	defer s.mu.Unlock()
	c.idleUntil = clock() + idle
	s.idle = append(s.idle, c)
}

// closeIdle closes connections whose time is over, and the oldest if there are too many. It goes on by itself until
// none is left.
func (s *server) closeIdle(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, next := len(s.idle), time.Duration(math.MaxInt64)
	s.idle = slices.DeleteFunc(s.idle, func(c *connection) bool {
		isOver := c.idleUntil <= now || left > connectionsMax
		if isOver {
			left--
			c.CloseIdleConnections()
		} else {
			next = min(next, c.idleUntil)
		}
		return isOver
	})
	if left > 0 && !s.closing {
		s.closing = true
		time.AfterFunc(next-now, func() {
			s.mu.Lock()
			s.closing = false
			s.mu.Unlock()
			s.closeIdle(clock())
		})
	}
}

// idleTimeOf is how long a connection may be idle after an answer: a second less than the server keeps it.
func idleTimeOf(header http.Header) time.Duration {
	found := timeouts.FindStringSubmatch(header.Get("Keep-Alive"))
	if found == nil {
		return idleTime
	}
	seconds, _ := strconv.Atoi(found[1])
	return time.Duration(seconds-1) * time.Second
}

// exchange carries out one request. The connection of one that is not answered is closed.
func (s *server) exchange(ctx context.Context, a ask, alone bool) *answer {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errors.New("it does not answer in time"))
	defer cancel()
	if !a.waits && !alone {
		select {
		case s.free <- struct{}{}:
			defer func() { <-s.free }()
		case <-ctx.Done():
			none := noAnswer(false, fmt.Errorf("%s: no free connection: %w", s.address, context.Cause(ctx)))
			none.queued = true
			return none
		}
	}
	get := s.take
	if alone {
		get = s.connect
	}
	c := get()
	sent := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }}
	given, err := s.carryOut(httptrace.WithClientTrace(ctx, trace), a, c, alone)
	if err == nil {
		return given
	}
	c.CloseIdleConnections()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if strings.Contains(err.Error(), "malformed") { // it shows the answer, which may have a token
		err = errors.New("its answer is malformed")
	}
	return noAnswer(sent, fmt.Errorf("%s: %w", s.address, err))
}

// headerOf is that of each request: that of the program, as far as it can be sent, and the library's own.
func (s *server) headerOf(ctx context.Context) (header http.Header) {
	header = maps.Clone(s.header)
	if s.tokens != nil {
		header.Set("Authorization", "Bearer "+s.tokens.token())
	}
	if s.more == nil {
		return header
	}
	defer func() { _ = recover() }() // a panic of the program must not cost a lease
	for name, all := range s.more(ctx) {
		name = http.CanonicalHeaderKey(name)
		isGood := !slices.ContainsFunc(all, func(value string) bool { return !values.MatchString(value) })
		if isGood && fields.MatchString(name) && !slices.Contains(own, name) {
			header[name] = all
		}
	}
	return header
}

// carryOut returns the error that says why there is no answer.
func (s *server) carryOut(ctx context.Context, a ask, c *connection, alone bool) (*answer, error) {
	var content []byte
	if a.body != nil {
		content, _ = json.Marshal(a.body) // cannot fail: metadata that is no JSON was refused before
	}
	request, err := http.NewRequestWithContext(ctx, a.method, s.base+a.path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header, request.Close = s.headerOf(ctx), alone
	maps.Copy(request.Header, a.header)
	response, err := c.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, bodyMax+1))
	if err == nil && len(text) > bodyMax {
		err = errors.New("the body is too long")
	}
	if err != nil {
		return nil, err
	}
	given, err := a.parse(response.StatusCode, response.Header, text)
	if idle := idleTimeOf(response.Header); err == nil && idle > 0 && !response.Close && !alone {
		s.keep(c, idle)
	} else {
		c.CloseIdleConnections()
	}
	return given, err
}

// ask asks the server in use, or the next one that is not among those asked, and adds it to these. If that server
// fails, all requests of the client go to the next one.
func (c *Client) ask(ctx context.Context, a ask, asked map[*server]bool) *answer {
	index, count := c.inUse.Load(), int64(len(c.servers))
	for asked[c.servers[index]] {
		index = (index + 1) % count
	}
	s := c.servers[index]
	asked[s] = true
	asking := ctx
	if a.waits && count > 1 {
		var giveUp context.CancelCauseFunc
		asking, giveUp = context.WithCancelCause(ctx)
		defer giveUp(nil)
		go c.checkHealth(asking, s, giveUp)
	}
	before := clock()                      // a lease lasts for so long from here, or longer
	given := s.exchange(asking, a, a.once) // a kept connection may send it again
	given.asked = before
	if a.isFailedBy(given) && !given.queued && ctx.Err() == nil {
		c.inUse.CompareAndSwap(index, (index+1)%count)
	}
	return given
}

// checkHealth gives a request up if the server at which it waits hangs.
func (c *Client) checkHealth(asking context.Context, s *server, giveUp context.CancelCauseFunc) {
	for sleep(asking, c.timeout) {
		if s.exchange(asking, ask{method: "GET", path: "/healthz", timeout: c.timeout}, true).status == 0 {
			giveUp(errors.New("it does not answer health checks"))
		}
	}
}

// askEach asks each server once, until one decides.
func (c *Client) askEach(ctx context.Context, a ask) (given *answer) {
	asked := map[*server]bool{}
	for range c.servers {
		if given = c.ask(ctx, a, asked); !a.isFailedBy(given) || ctx.Err() != nil {
			break
		}
	}
	return given
}

// closeConnections closes those that are idle.
func (c *Client) closeConnections() {
	for _, s := range c.servers {
		s.closeIdle(math.MaxInt64)
	}
}

// sleep returns false as soon as the context is done.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
