// SPDX-License-Identifier: MIT

package redlockd

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// journal writes to a logger in the background: a handler that blocks or panics delays and ends nothing but the log. It
// is safe for concurrent use.
type journal struct {
	logger  *slog.Logger
	pending chan func() // lines in their order; if there is no room for a line, it is dropped
	begun   atomic.Bool // writeAll is about to be called
	writing sync.Mutex
}

const writeAfter = 10 * time.Millisecond // several lines at once take less time

func newJournal(logger *slog.Logger) *journal {
	return &journal{logger: logger, pending: make(chan func(), 1000)}
}

// log never blocks. Handlers get the values of ctx.
func (j *journal) log(ctx context.Context, level slog.Level, message string, arguments ...any) {
	line := slog.NewRecord(time.Now(), level, message, 0)
	line.Add(arguments...)
	ctx = context.WithoutCancel(ctx)
	j.add(func() {
		if handler := j.logger.Handler(); handler.Enabled(ctx, level) {
			_ = handler.Handle(ctx, line)
		}
	})
}

func (j *journal) add(write func()) {
	select {
	case j.pending <- write:
		if !j.begun.Swap(true) {
			time.AfterFunc(writeAfter, j.writeAll)
		}
	default:
	}
}

func (j *journal) writeAll() {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.begun.Store(false)
	for {
		select {
		case write := <-j.pending:
			survive(write)
		default:
			return
		}
	}
}

// survive calls code of the caller that may panic.
func survive(call func()) {
	defer func() { _ = recover() }()
	call()
}

// flush waits until all lines are written, for limit at most.
func (j *journal) flush(limit time.Duration) {
	written := make(chan struct{})
	j.add(func() { close(written) })
	select {
	case <-written:
	case <-time.After(limit):
	}
}
