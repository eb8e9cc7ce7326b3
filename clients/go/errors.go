// SPDX-License-Identifier: MIT

package redlockd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Code is the code of an error, and a target of [errors.Is]:
//
//	if errors.Is(err, redlockd.ErrLocked) { … }
type Code string

// The codes that docs/reference/errors.md explains, and two of the library's own.
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
)

// Error makes a Code an error.
func (c Code) Error() string { return "redlockd: " + string(c) }

// The causes of a [LockLost] that are no answer of a server, and the error of a client after its Close.
var (
	ErrNotRenewed = errors.New("it could not be renewed in time")
	ErrReleased   = errors.New("it was released")
	ErrClosed     = errors.New("redlockd: the client is closed")
)

// Error is an answer that is a problem, or no answer at all: then its Code is ErrNoAnswer and its Status 0. Codes that
// this library does not know are kept.
type Error struct {
	Code    Code
	Status  int             // of HTTP
	Detail  string          // for people
	Problem json.RawMessage // the whole answer: with ErrLocked the holder, with ErrInvalidRequest each wrong field
	cause   error           // why there is no answer
}

func (e *Error) Error() string { return e.Code.Error() + ": " + e.Detail }

// Is tells [errors.Is] whether the error has this [Code].
func (e *Error) Is(target error) bool { return target == e.Code }

// Unwrap returns why there is no answer, for instance an error of crypto/x509.
func (e *Error) Unwrap() error { return e.cause }

// LockLost says that a lease cannot be relied on any more: stop the work.
type LockLost struct {
	Resources []string
	Cause     error // ErrNotRenewed, the *Error of a server that refused the renewal, or ErrReleased after Unlock
}

func (e *LockLost) Error() string {
	return fmt.Sprintf("redlockd: lease on %s lost: %v", strings.Join(e.Resources, ", "), e.Cause)
}

// Is tells [errors.Is] that this is [ErrLockLost].
func (e *LockLost) Is(target error) bool { return target == ErrLockLost }

// Unwrap returns the cause.
func (e *LockLost) Unwrap() error { return e.Cause }
