// SPDX-License-Identifier: MIT

package redlockd

// The renewals of the leases of a client: those that are due about the same time go in one request. Each lease is
// decided alone: "Renew" in docs/reference/client-rules.md.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	random "math/rand/v2"
	"sync"
	"time"
)

const (
	batchMax      = 256      // leases of a request
	batchBytesMax = 64 << 10 // of its body
	earlier       = 8        // a renewal may come by this part of the TTL earlier, to go with others
)

// slot is a time in which leases are due. Leases whose last renewal failed and leases with a much shorter TTL have less
// time, and so slots of their own.
type slot struct {
	failed     bool
	width, due time.Duration
}

type dueLeases struct {
	timer  *time.Timer
	leases map[*Lease]bool
}

// renewer has a timer for each slot. Each request has a goroutine: one that is not answered holds up no other. A lease
// is in one slot or in one request, so its due and failed need no lock.
type renewer struct {
	client *Client
	phase  time.Duration // random, so that not all clients of a machine renew at once
	mu     sync.Mutex
	slots  map[slot]*dueLeases // guarded by mu, as the slot of each lease
}

func newRenewer(c *Client) *renewer {
	return &renewer{client: c, phase: random.N(time.Hour), slots: map[slot]*dueLeases{}}
}

func (r *renewer) add(l *Lease) {
	at := slot{l.failed, max(1, time.Duration(1)<<(bits.Len64(uint64(l.ttl))-1)/earlier), l.due}
	if !l.failed {
		at.due = (l.due+r.phase)/at.width*at.width - r.phase
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.slots[at] == nil {
		timer := time.AfterFunc(at.due-clock(), func() { r.begin(at) })
		r.slots[at] = &dueLeases{timer, map[*Lease]bool{}}
	}
	l.slot, r.slots[at].leases[l] = at, true
}

func (r *renewer) remove(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if due := r.slots[l.slot]; due != nil {
		delete(due.leases, l)
		if len(due.leases) == 0 {
			due.timer.Stop()
			delete(r.slots, l.slot)
		}
	}
}

// begin starts a request for each batch of the slot.
func (r *renewer) begin(at slot) {
	r.mu.Lock()
	due := r.slots[at]
	delete(r.slots, at)
	r.mu.Unlock()
	if due == nil { // the last lease has just been removed
		return
	}
	var batch []*Lease
	size := len(`{"leases":[]}`)
	for l := range due.leases {
		if len(batch) == batchMax || len(batch) > 0 && size+l.size > batchBytesMax {
			go r.renew(batch)
			batch, size = nil, len(`{"leases":[]}`)
		}
		batch, size = append(batch, l), size+l.size
	}
	r.renew(batch)
}

// renew goes on after a panic: then the renewal of all leases failed.
func (r *renewer) renew(batch []*Lease) {
	var parts [][]*Lease
	defer func() {
		if fault := recover(); fault != nil {
			for _, l := range batch {
				l.wanted.log(slog.LevelError, "redlockd: not renewed", "error", fault)
			}
			fail(batch, false)
		}
		for _, part := range parts {
			go r.renew(part)
		}
		for _, l := range batch {
			if len(parts) == 0 && l.Err() == nil {
				r.add(l)
			}
		}
	}()
	parts = r.client.renewAtEach(batch)
}

// renewAtEach asks each server once, until all leases are decided. It returns parts of the batch that are to be asked
// by themselves: a server refuses a request as a whole for one lease that it does not take.
func (c *Client) renewAtEach(batch []*Lease) (parts [][]*Lease) {
	asked, halve := map[*server]bool{}, false
	for left := len(c.servers); left > 0; left-- {
		limit := min(c.timeout, 5*time.Second)
		var held []*Lease
		for _, l := range batch {
			if remaining := l.Remaining(); remaining > 0 { // some of it is left for each server
				held, limit = append(held, l), min(limit, l.ttl/5, remaining/time.Duration(left))
				l.asking.Store(true)
			}
		}
		if batch = held; len(batch) == 0 {
			return nil
		}
		given := c.ask(c.closed, renewal(batch, limit), asked)
		if c.closed.Err() != nil { // all leases are being released
			return nil
		}
		if given.status == 400 && leaveTTLs(batch, given) {
			return [][]*Lease{batch}
		}
		if half := len(batch) / 2; half > 0 && (given.status == 400 || given.status == 413) {
			return [][]*Lease{batch[:half], batch[half:]}
		}
		held, halve = nil, given.status == 429
		for index, l := range batch {
			its := given
			if given.err == nil {
				its = given.parts[index]
			}
			if its.asked = given.asked; !l.decide(its) {
				held = append(held, l)
			}
		}
		batch = held
	}
	fail(batch, halve)
	return nil
}

// leaveTTLs returns whether the server names leases whose TTL its bounds do not allow any more. It chooses the next one
// of these.
func leaveTTLs(batch []*Lease, given *answer) bool {
	var named []struct{ Field string }
	_ = json.Unmarshal(given.body["errors"], &named) // of another form: it names none
	wrong := map[time.Duration]bool{}
	for _, each := range named {
		var index int
		_, err := fmt.Sscanf(each.Field, "leases[%d].ttl_ms", &index)
		if err == nil && index >= 0 && index < len(batch) {
			wrong[batch[index].asked] = true
		}
	}
	delete(wrong, 0)
	for _, l := range batch {
		if wrong[l.asked] {
			l.asked = 0
		}
	}
	return len(wrong) > 0
}

// renewal is a request for several leases.
func renewal(batch []*Lease, timeout time.Duration) ask {
	items := []members{}
	for _, l := range batch {
		items = append(items, l.item())
	}
	return ask{
		method: "PUT", path: "/locks", timeout: timeout, body: members{"leases": items},
		read: func(given *answer) string { return readParts(given, batch) },
	}
}

// readParts reads the answer to each lease, or returns the member that is wrong.
func readParts(given *answer, batch []*Lease) (wrong string) {
	var parts []json.RawMessage
	if json.Unmarshal(given.body["leases"], &parts) != nil || len(parts) != len(batch) {
		return "leases"
	}
	for index, part := range parts {
		var body map[string]json.RawMessage
		_ = json.Unmarshal(part, &body) // of another form: nil, which is no grant
		given.parts = append(given.parts, batch[index].readPart(body))
	}
	return ""
}

// readPart reads the answer to this lease, of a request for several.
func (l *Lease) readPart(body map[string]json.RawMessage) *answer {
	part := &answer{status: 200, body: body, sent: true}
	code, isProblem := textOf(body["code"])
	wrong := ""
	if isProblem {
		status, fits := part.number("status", 400, 599)
		part.status = int(status)
		text, _ := json.Marshal(body)
		part.err = &Error{Code: Code(code), Status: part.status, Detail: detailOf(body), Problem: text}
		if !fits {
			wrong = "status"
		}
	} else {
		wrong = l.wanted.readGrant(part, l.grant.token, cmp.Or(l.asked.Milliseconds(), numberMax))
	}
	if wrong != "" {
		return noAnswer(true, errors.New(wrong+" does not fit the request"))
	}
	return part
}

// item is the lease in the request for several.
func (l *Lease) item() members {
	item := members{"token": l.grant.token}
	if l.asked > 0 {
		item["ttl_ms"] = l.asked.Milliseconds()
	}
	for name, value := range l.wanted.named {
		item[name] = value
	}
	return item
}

// decide returns false if another server is to be asked.
func (l *Lease) decide(given *answer) bool {
	l.asking.Store(false)
	if given.grant != nil {
		if l.asked == 0 {
			l.asked, l.ttl = given.grant.ttl, given.grant.ttl
		}
		l.bounded.Store(given.grant.ttl < l.asked)
		l.failure.Store(nil)
		l.extend(given.asked + given.grant.validity)
		l.failed, l.due = false, given.asked+l.ttl/3
		l.countWaiters(given.grant.waiters)
		return true
	}
	if l.held.Err() != nil {
		return true
	}
	l.failure.Store(given.err)
	if given.isFinal() {
		l.lose(given.err)
		return true
	}
	l.wanted.log(slog.LevelWarn, "redlockd: not renewed", "error", given.err)
	return false
}

// fail means that the old ends hold, and the renewals are tried again soon, all of them together. With halve half of
// them come later, since each lease counts for the rate of the server.
func fail(batch []*Lease, halve bool) {
	now := clock()
	for index, l := range batch {
		l.asking.Store(false)
		l.failed, l.due = true, now+l.ttl/10
		if halve && 2*index >= len(batch) {
			l.due += l.ttl / 20
		}
	}
}

func (l *Lease) countWaiters(count int64) {
	if before := l.waiters.Swap(count); count > 0 && before == 0 {
		select {
		case l.wakes <- struct{}{}:
		default: // the last one was not received yet
		}
	}
}
