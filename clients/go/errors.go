// SPDX-License-Identifier: MIT

package redlockd

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Code is the code of an error, and a target of [errors.Is]:
//
//	if errors.Is(err, redlockd.ErrLocked) { … }
type Code string

// The codes that docs/reference/errors.md explains, and those of the library's own.
const (
	ErrInvalidRequest   Code = "invalid-request"
	ErrUnauthorized     Code = "unauthorized"
	ErrForbidden        Code = "forbidden"
	ErrNotFound         Code = "not-found"
	ErrMethodNotAllowed Code = "method-not-allowed"
	ErrLocked           Code = "locked" // somebody else has the lock, and the wait is over
	ErrNotOwner         Code = "not-owner"
	ErrLeaseExpired     Code = "lease-expired"
	ErrTooLarge         Code = "too-large"
	ErrTooManyRequests  Code = "too-many-requests"
	ErrNoQuorum         Code = "no-quorum"
	ErrSplitVote        Code = "split-vote"
	ErrDraining         Code = "draining"
	ErrNoAnswer         Code = "no-answer" // no server of redlockd answered
	ErrLockLost         Code = "lock-lost" // any *LockLost
	ErrMaxHold          Code = "max-hold"  // the server extends no lease any further: --max-hold-ms
	ErrLate             Code = "late"      // no renewal in time: the machine slept, or the program was stopped
	ErrReleased         Code = "released"  // by Unlock or Close
)

// Error makes a Code an error.
func (c Code) Error() string { return "redlockd: " + string(c) }

// ErrNotRenewed is for [errors.Is], of each [LockLost] whose time is over; ErrClosed is of a client after its Close.
var (
	ErrNotRenewed = errors.New("it could not be renewed in time")
	ErrClosed     = errors.New("redlockd: the client is closed")
)

// Error is an answer that is a problem, or no answer at all: then its Code is ErrNoAnswer and its Status 0. Codes that
// this library does not know are kept.
type Error struct {
	Code    Code
	Status  int             // of HTTP
	Detail  string          // for people: with ErrLocked the lock and its holder
	Problem json.RawMessage // the whole answer: with ErrLocked the holder, with ErrInvalidRequest each wrong field
	cause   error           // why there is no answer
}

func (e *Error) Error() string { return e.Code.Error() + ": " + e.Detail }

// Is tells [errors.Is] whether the error has this [Code].
func (e *Error) Is(target error) bool { return target == e.Code }

// Unwrap returns why there is no answer, for instance an error of crypto/x509.
func (e *Error) Unwrap() error { return e.cause }

// LockLost says that a lease cannot be relied on any more: stop the work. The Code of its Cause says why:
//
//   - [ErrNotOwner], [ErrLeaseExpired]: a server said so, also after a forced release
//   - [ErrMaxHold]: the server extends no lease any further
//   - [ErrNoQuorum], [ErrNoAnswer] or another code: the last renewal failed so, and the time is over
//   - [ErrLate]: no renewal was sent in time
//   - [ErrReleased]: by Unlock or Close
type LockLost struct {
	Resources []string
	Cause     *Error
}

func (e *LockLost) Error() string {
	why := string(e.Cause.Code) + ": " + e.Cause.Detail
	return fmt.Sprintf("redlockd: lease on %s lost: %s", namesOf(e.Resources), why)
}

// Is tells [errors.Is] that this is [ErrLockLost].
func (e *LockLost) Is(target error) bool { return target == ErrLockLost }

// Unwrap returns the cause.
func (e *LockLost) Unwrap() error { return e.Cause }

// released is the cause after Unlock and Close.
var released = &Error{Code: ErrReleased, Detail: "it was released"}

// notRenewed is the cause where the time is over.
func notRenewed(code Code, why string, failure *Error) *Error {
	if failure == nil {
		return &Error{Code: code, Detail: why, cause: ErrNotRenewed}
	}
	return &Error{
		Code: code, Status: failure.Status, Detail: why + ": " + failure.Detail, Problem: failure.Problem,
		cause: errors.Join(ErrNotRenewed, failure),
	}
}
