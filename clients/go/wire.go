package redlockd

// One request and its answer, and which server gets it.
//
// Each request has a connection of its own. So the end of a connection always says that the answer is whole or cut off,
// net/http repeats no request, and none meets a connection that the server has just closed.

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const answerMax = 4 << 20

var addresses = regexp.MustCompile(`^(unix:[!-~]+|https?://[\w.:\[\]%-]+(/[!"$->@-~]*)?)$`)

// members are those of a body in JSON.
type members map[string]any

// ask is a request to whichever server is in use; timeout is for all of it.
type ask struct {
	method, path string
	timeout      time.Duration
	body         members // nil: none
	header       map[string]string
}

// answer has the status 0 if no whole answer of redlockd came. err is never nil: also a success may be of no use.
// sent: the request may have been carried out.
type answer struct {
	status int
	header http.Header
	text   []byte
	err    *Error
	sent   bool
}

func noAnswer(sent bool, cause error) answer {
	err := &Error{Code: ErrNoAnswer, Detail: "no answer of redlockd: " + cause.Error(), cause: cause}
	return answer{err: err, sent: sent}
}

// parse decides whether this is an answer of redlockd.
func parse(response *http.Response, text []byte) answer {
	given := noAnswer(true, fmt.Errorf("a strange one with status %d", response.StatusCode))
	var object map[string]json.RawMessage
	var problem struct{ Code, Detail string }
	if len(text) > 0 && (json.Unmarshal(text, &object) != nil || object == nil) {
		return given
	}
	given.header, given.text = response.Header, text
	switch status := response.StatusCode; {
	case status == 200 || status == 201 || status == 204 || status == 304:
		given.status = status
	case json.Unmarshal(text, &problem) == nil && problem.Code != "":
		given.status = status
		given.err = &Error{Code: Code(problem.Code), Status: status, Detail: problem.Detail, Problem: text}
	}
	return given
}

// isUnhelpful means that another server may help.
func (a answer) isUnhelpful() bool { return a.status == 0 || a.status == 429 || a.status == 503 }

// retryAfter is a second if the answer names no time.
func (a answer) retryAfter() time.Duration {
	if seconds, err := strconv.ParseUint(a.header.Get("Retry-After"), 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	return time.Second
}

// server is one address of the list.
type server struct {
	address, base, key string
	transport          *http.Transport
}

func newServer(address string, config Config) (*server, error) {
	s := &server{address: address, base: strings.TrimRight(address, "/"), key: config.Key, transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, TLSClientConfig: config.TLS,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 alone
	}}
	if path, isSocket := strings.CutPrefix(address, "unix:"); isSocket {
		s.base = "http://localhost"
		s.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	if _, err := http.NewRequest("GET", s.base, nil); err != nil || !addresses.MatchString(address) {
		return nil, fmt.Errorf("redlockd: not the address of a server: %q", address)
	}
	return s, nil
}

// exchange carries out one request.
func (s *server) exchange(ctx context.Context, a ask, sent *atomic.Bool) answer {
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	response, err := s.transport.RoundTrip(s.request(httptrace.WithClientTrace(ctx, trace), a))
	if err == nil {
		defer response.Body.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(response.Body, answerMax)); err == nil {
			return parse(response, text)
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return noAnswer(sent.Load(), fmt.Errorf("%s: %w", s.address, err))
}

func (s *server) request(ctx context.Context, a ask) *http.Request {
	var content []byte
	if a.body != nil {
		content, _ = json.Marshal(a.body) // choose has tried it
	}
	request, _ := http.NewRequestWithContext(ctx, a.method, s.base+a.path, bytes.NewReader(content)) // so has newServer
	request.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"redlockd-go/" + Version}}
	if s.key != "" {
		request.Header.Set("Authorization", "Bearer "+s.key)
	}
	for name, value := range a.header {
		request.Header.Set(name, value)
	}
	return request
}

// ask asks the server in use, and goes on to the next one if it is of no help.
func (c *Client) ask(ctx context.Context, a ask) answer {
	index := c.inUse.Load()
	given := c.askServer(ctx, c.servers[index], a, len(c.servers) > 1)
	if given.isUnhelpful() && ctx.Err() == nil {
		c.inUse.CompareAndSwap(index, (index+1)%int64(len(c.servers)))
	}
	return given
}

// askEach asks each server once, until one decides.
func (c *Client) askEach(ctx context.Context, a ask) (given answer) {
	for range c.servers {
		if given = c.ask(ctx, a); !given.isUnhelpful() || ctx.Err() != nil {
			break
		}
	}
	return given
}

// askServer asks this one. probes: it is given up if it answers no health check meanwhile.
func (c *Client) askServer(ctx context.Context, s *server, a ask, probes bool) answer {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	health := ask{method: "GET", path: "/healthz", timeout: c.timeout}
	var sent atomic.Bool
	go func() {
		for until := clock() + a.timeout; sleep(ctx, min(until-clock(), c.timeout)); {
			switch {
			case !sent.Load():
				giveUp(errors.New("no connection in time"))
			case clock() >= until:
				giveUp(errors.New("it does not answer in time"))
			case probes && c.askServer(ctx, s, health, false).status == 0:
				giveUp(errors.New("it does not answer health checks"))
			}
		}
	}()
	return s.exchange(ctx, a, &sent)
}

// sleep returns false as soon as the context is done.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
