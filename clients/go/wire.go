package redlockd

// One request and its answer, and which server gets it.
//
// Each request has a connection of its own. So the end of a connection always says that the answer is whole or cut off,
// net/http repeats no request, and none meets a connection that the server has just closed.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	random "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var addresses = regexp.MustCompile(`^(unix:[!-~]+|https?://[\w.:\[\]%-]+(/[!"$->@-~]*)?)$`)

// members are those of a body in JSON.
type members map[string]any

// ask is a request to whichever server is in use; timeout is for all of it.
type ask struct {
	method, path string
	timeout      time.Duration
	body         members // nil: none
	header       http.Header
}

// answer is what a server says: of a lease, or a problem.
type answer struct {
	Code, Detail, Token string
	Fence               int64
	Slot                int   // -1: none
	TTL                 int64 `json:"ttl_ms"`
	Validity            int64 `json:"validity_ms"`
	Waited              int64 `json:"waited_ms"`
	PlaceKept           int64 `json:"place_kept_ms"` // the wait may go on in its place for so long

	status int // 0: no whole answer of redlockd came
	header http.Header
	text   []byte
	err    *Error        // never nil: also a success may be of no use
	sent   bool          // the request may have been carried out
	asked  time.Duration // by clock(), before the request
}

func noAnswer(sent bool, cause error) *answer {
	err := &Error{Code: ErrNoAnswer, Detail: "no answer of redlockd: " + cause.Error(), cause: cause}
	return &answer{err: err, sent: sent}
}

// parse decides whether this is an answer of redlockd.
func parse(status int, header http.Header, text []byte) *answer {
	strange := noAnswer(true, fmt.Errorf("a strange one with status %d", status))
	given := &answer{Slot: -1, header: header, text: text, err: strange.err, sent: true}
	if len(text) > 0 && json.Unmarshal(text, &given) != nil || given == nil {
		return strange
	}
	if given.Code != "" {
		given.err = &Error{Code: Code(given.Code), Status: status, Detail: given.Detail, Problem: text}
	} else if !slices.Contains([]int{200, 201, 204, 304}, status) {
		return strange
	}
	given.status = status
	return given
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

// isUnhelpful means that another server may help.
func (a *answer) isUnhelpful() bool { return a.status == 0 || a.status == 429 || a.status == 503 }

// isLoss means that the lock is not held any more.
func (a *answer) isLoss() bool { return a.status == 409 || a.status == 410 }

// pause is how long to wait if no server helps.
func (a *answer) pause() time.Duration {
	seconds, err := strconv.ParseUint(a.header.Get("Retry-After"), 10, 16)
	if err != nil {
		seconds = 1
	}
	if a.PlaceKept > 0 { // not for as long as the server rests: the place would be gone
		seconds = 0
	}
	return time.Duration(seconds)*time.Second + random.N(time.Second)
}

// server is one address of the list.
type server struct {
	address, base string
	header        http.Header
	transport     *http.Transport
}

func newServer(address string, config Config) *server {
	dialer := &net.Dialer{Timeout: config.Timeout}
	s := &server{address: address, base: strings.TrimRight(address, "/"), transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, // and HTTP/1.1 alone, since it has a DialContext
		DialContext: dialer.DialContext, TLSHandshakeTimeout: config.Timeout, TLSClientConfig: config.TLS,
	}}
	if path, isSocket := strings.CutPrefix(address, "unix:"); isSocket {
		s.base = "http://localhost"
		s.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	}
	s.header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"redlockd-go/" + Version}}
	if config.Key != "" {
		s.header.Set("Authorization", "Bearer "+config.Key)
	}
	return s
}

// exchange carries out one request.
func (s *server) exchange(ctx context.Context, a ask) *answer {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errors.New("it does not answer in time"))
	defer cancel()
	var sent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	var content []byte
	if a.body != nil {
		content, _ = json.Marshal(a.body) // choose has tried it
	}
	ctx = httptrace.WithClientTrace(ctx, trace)
	request, _ := http.NewRequestWithContext(ctx, a.method, s.base+a.path, bytes.NewReader(content)) // so has New
	request.Header = maps.Clone(s.header)
	maps.Copy(request.Header, a.header)
	response, err := s.transport.RoundTrip(request)
	if err == nil {
		defer response.Body.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(response.Body, 4<<20)); err == nil {
			return parse(response.StatusCode, response.Header, text)
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return noAnswer(sent.Load(), fmt.Errorf("%s: %w", s.address, err))
}

// ask asks the server in use, and goes on to the next one if it is of no help.
func (c *Client) ask(ctx context.Context, a ask) *answer {
	index := c.inUse.Load()
	s := c.servers[index]
	asking, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go func() {
		health := ask{method: "GET", path: "/healthz", timeout: c.timeout}
		for len(c.servers) > 1 && sleep(asking, c.timeout) {
			if s.exchange(asking, health).status == 0 {
				giveUp(errors.New("it does not answer health checks"))
			}
		}
	}()
	asked := clock() // before the request: a lease lasts for so long from here, or longer
	given := s.exchange(asking, a)
	given.asked = asked
	if given.isUnhelpful() && ctx.Err() == nil {
		c.inUse.CompareAndSwap(index, (index+1)%int64(len(c.servers)))
	}
	return given
}

// askEach asks each server once, until one decides.
func (c *Client) askEach(ctx context.Context, a ask) (given *answer) {
	for range c.servers {
		if given = c.ask(ctx, a); !given.isUnhelpful() || ctx.Err() != nil {
			break
		}
	}
	return given
}

// sleep returns false as soon as the context is done.
func sleep(ctx context.Context, pause time.Duration) bool {
	sleeping, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	<-sleeping.Done()
	return ctx.Err() == nil
}
