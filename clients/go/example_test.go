// SPDX-License-Identifier: MIT

package redlockd_test

import (
	"context"
	"errors"
	"log"
	"os/signal"
	"syscall"
	"time"

	redlockd "github.com/OWNER/redlockd/clients/go"
)

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client, err := redlockd.New(redlockd.Config{Servers: []string{"https://a:8443", "https://b:8443"}})
	if err != nil {
		log.Print(err)
		return
	}
	defer client.Close()
	lease, err := client.Lock(ctx, "orders/42", redlockd.Wait(time.Minute))
	if errors.Is(err, redlockd.ErrLocked) {
		log.Print("somebody else has it")
	}
	if err != nil {
		log.Print(err)
		return
	}
	err = lease.Do(func(ctx context.Context) error {
		return save(ctx, "order 42", lease.Fence)
	})
	if errors.Is(err, redlockd.ErrLockLost) {
		log.Print("others may have worked at the same time")
	}
}

// save stands for a write to a storage that refuses smaller fences than those it has seen.
func save(context.Context, string, int64) error { return nil }
