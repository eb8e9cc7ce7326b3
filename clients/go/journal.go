package redlockd

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// journal writes to a logger in goroutines that do nothing else: a handler that blocks or panics delays and ends
// nothing but the log. It is safe for concurrent use.
type journal struct {
	logger  *slog.Logger
	pending chan func() // lines in their order; if there is no room for a line, it is dropped
	writing sync.Mutex
}

func newJournal(logger *slog.Logger) *journal {
	return &journal{logger: logger, pending: make(chan func(), 1000)}
}

// log never blocks. Handlers get the values of ctx.
func (j *journal) log(ctx context.Context, level slog.Level, message string, arguments ...any) {
	ctx = context.WithoutCancel(ctx)
	j.add(func() { j.logger.Log(ctx, level, message, arguments...) })
}

func (j *journal) add(write func()) {
	select {
	case j.pending <- write:
		go j.writeNext()
	default:
	}
}

func (j *journal) writeNext() {
	j.writing.Lock()
	defer j.writing.Unlock()
	defer func() { _ = recover() }()
	(<-j.pending)()
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
