// SPDX-License-Identifier: MIT

package redlockd

// The answers that count: "Which answers count" in docs/reference/client-rules.md.

import (
	"encoding/json"
	"errors"
	"fmt"
	random "math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	numberMax = 1<<53 - 1              // each parser of JSON keeps it
	longest   = 10000 * 24 * time.Hour // it can be added to the clock
)

var (
	successes = map[string][]int{"POST": {200, 201}, "PUT": {200}, "DELETE": {204}, "GET": {200, 304}}
	tokens    = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// members are those of a body in JSON.
type members map[string]any

// ask is a request to one server after the other.
type ask struct {
	method, path string
	timeout      time.Duration // of each server
	body         members       // nil: none
	header       http.Header
	waits        bool                 // the server may wait before it answers
	once         bool                 // it must not be carried out twice
	read         func(*answer) string // reads a success, or returns the member that is wrong; nil: nothing to read
}

// answer is what a server says: a lease, a state, or a problem.
type answer struct {
	status int // 0: no answer of redlockd came
	header http.Header
	body   map[string]json.RawMessage
	text   []byte
	grant  *grant    // of a POST or PUT that succeeds
	parts  []*answer // of a PUT for several leases that succeeds
	state  State     // of a GET that succeeds
	err    *Error    // nil: it succeeds
	sent   bool      // the request may have been carried out
	queued bool      // its time ended before it had a connection
	asked  time.Duration
}

// grant is a lease as a server says it.
type grant struct {
	token                 string
	fence                 int64
	slot                  int // -1: none was asked for
	ttl, validity, waited time.Duration
	waiters               int64
}

func noAnswer(sent bool, cause error) *answer {
	err := &Error{Code: ErrNoAnswer, Detail: "no answer of redlockd: " + cause.Error(), cause: cause}
	return &answer{err: err, sent: sent}
}

// parse returns the error that says why this is no answer to the request.
func (a ask) parse(status int, header http.Header, text []byte) (*answer, error) {
	given := &answer{status: status, header: header, text: text, sent: true}
	if len(text) > 0 && (!utf8.Valid(text) || json.Unmarshal(text, &given.body) != nil || given.body == nil) {
		return nil, fmt.Errorf("status %d without a JSON object", status)
	}
	if slices.Contains(successes[a.method], status) {
		if a.read != nil {
			if member := a.read(given); member != "" {
				return nil, errors.New(member + " does not fit the request")
			}
		}
		return given, nil
	}
	code, hasCode := textOf(given.body["code"])
	if status < 400 || !hasCode {
		return nil, fmt.Errorf("status %d does not fit the request", status)
	}
	given.err = &Error{Code: Code(code), Status: status, Detail: detailOf(given.body), Problem: text}
	return given, nil
}

// textOf returns false if this is no text in JSON.
func textOf(raw json.RawMessage) (text string, isText bool) {
	isText = len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
	return text, isText
}

// number returns false if there is no integer in these bounds. One with a fraction or an exponent is none.
func (a *answer) number(name string, least, most int64) (number int64, fits bool) {
	number, err := strconv.ParseInt(string(a.body[name]), 10, 64)
	return number, err == nil && least <= number && number <= most
}

func milliseconds(count int64) time.Duration {
	return time.Duration(min(count, longest.Milliseconds())) * time.Millisecond
}

// readGrant reads a lease, or returns the member that is wrong. token is that of a renewal, otherwise empty; ttl is the
// largest that it may have, in milliseconds.
func (q *acquisition) readGrant(given *answer, token string, ttl int64) (wrong string) {
	if member := q.isNamed(given); member != "" {
		return member
	}
	g := &grant{slot: -1}
	if g.token, _ = textOf(given.body["token"]); !tokens.MatchString(g.token) || token != "" && token != g.token {
		return "token"
	}
	var numbers [3]int64
	for index, member := range []string{"fence", "ttl_ms", "validity_ms"} {
		most, fits := []int64{numberMax, ttl, numbers[1]}[index], false
		if numbers[index], fits = given.number(member, 1, most); !fits {
			return member
		}
	}
	g.fence, g.ttl, g.validity = numbers[0], milliseconds(numbers[1]), milliseconds(numbers[2])
	given.grant = g
	if token == "" {
		return q.readWait(given)
	}
	if _, isThere := given.body["waiters"]; isThere {
		fits := false
		if g.waiters, fits = given.number("waiters", 0, numberMax); !fits {
			return "waiters"
		}
	}
	return ""
}

// readWait reads what only a POST is answered with.
func (q *acquisition) readWait(given *answer) (wrong string) {
	if _, isThere := given.body["waited_ms"]; isThere {
		waited, fits := given.number("waited_ms", 0, numberMax)
		if passed := float64(clock()-q.keyed) / 1e6; !fits || 0.99*float64(waited) > passed+1 {
			return "waited_ms"
		}
		given.grant.waited = milliseconds(waited)
	}
	if count, asked := q.body["slots"].(int); asked {
		slot, fits := given.number("slot", 0, int64(count)-1)
		if !fits {
			return "slot"
		}
		given.grant.slot = int(slot)
	}
	return ""
}

// isNamed returns the member that should name what was asked for and does not.
func (q *acquisition) isNamed(given *answer) (wrong string) {
	if _, single := q.named["resource"]; single {
		if name, isText := textOf(given.body["resource"]); !isText || name != q.names[0] {
			return "resource"
		}
		return ""
	}
	var all []json.RawMessage
	_ = json.Unmarshal(given.body["resources"], &all) // which leaves none
	names := []string{}
	for _, each := range all {
		if name, isText := textOf(each); isText {
			names = append(names, name)
		}
	}
	wanted := slices.Clone(q.names)
	slices.Sort(wanted)
	slices.Sort(names)
	if len(all) != len(names) || !slices.Equal(names, wanted) {
		return "resources"
	}
	return ""
}

// readState reads the state of a lock, or returns the member that is wrong.
func readState(given *answer) (wrong string) {
	if given.status == http.StatusNotModified {
		return ""
	}
	s := &given.state
	s.JSON = given.text
	held := string(given.body["held"])
	if s.Held = held == "true"; !s.Held && held != "false" {
		return "held"
	}
	values := members{"owner": &s.Owner, "fence": &s.Fence, "metadata": &s.Metadata, "waiters": &s.Waiters}
	for member, value := range values {
		if raw, isThere := given.body[member]; isThere && json.Unmarshal(raw, value) != nil {
			return member
		}
	}
	return ""
}

// isUnhelpful means that another server may help.
func (a *answer) isUnhelpful() bool { return a.status == 0 || a.status == 429 || a.status == 503 }

// isFinal means that the lease is over, whatever another server says.
func (a *answer) isFinal() bool {
	return a.status == 409 && a.err.Code == ErrNotOwner || a.status == 410 && a.err.Code == ErrLeaseExpired
}

// isDecided means that the lease is extended or released, or over.
func (a *answer) isDecided() bool { return a.err == nil || a.isFinal() }

// isFailedBy means that another server is to be asked. A renewal or a release needs a success or a final refusal.
func (a ask) isFailedBy(given *answer) bool {
	if a.once && given.sent {
		return false
	}
	switch {
	case a.method == "PUT":
		isOpen := func(part *answer) bool { return !part.isDecided() }
		return given.err != nil || slices.ContainsFunc(given.parts, isOpen)
	case a.header.Get("Lock-Token") != "":
		return !given.isDecided()
	}
	return given.isUnhelpful()
}

// keepsPlace means that the wait can go on in its place, if the next request comes soon.
func (a *answer) keepsPlace() bool {
	_, keeps := a.number("place_kept_ms", 1, numberMax)
	return keeps
}

// pause is how long to wait if no server helps.
func (a *answer) pause() time.Duration {
	seconds, err := strconv.ParseUint(a.header.Get("Retry-After"), 10, 16)
	if err != nil {
		seconds = 1
	}
	if a.keepsPlace() { // after Retry-After the place would be gone
		seconds = 0
	}
	return time.Duration(seconds)*time.Second + random.N(time.Second)
}
