// SPDX-License-Identifier: MIT

package leaderlock_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	leaderlock "github.com/OWNER/redlockd/clients/adapters/client-go"
	redlockd "github.com/OWNER/redlockd/clients/go"
	"k8s.io/client-go/tools/leaderelection"
)

func lead(ctx context.Context, client *redlockd.Client, identity string) error {
	config := leaderelection.LeaderElectionConfig{
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
	}
	lock, err := leaderlock.New(leaderlock.Config{
		Client: client, Name: "controllers/orders", Identity: identity, LeaseDuration: config.LeaseDuration,
		RenewDeadline: config.RenewDeadline, RetryPeriod: config.RetryPeriod,
	})
	if err != nil {
		return err
	}
	config.Lock = lock
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: lock.Leading(func(ctx context.Context, lease *redlockd.Lease) {
			control(ctx, lease.Fence) // ends when ctx is cancelled
		}),
		OnStoppedLeading: func() {},
	}
	leaderelection.RunOrDie(ctx, config) // until ctx is cancelled, or the lease could not be renewed
	return nil
}

var controlled = make(chan int64, 1)

func control(ctx context.Context, fence int64) {
	controlled <- fence
	<-ctx.Done()
}

func TestTheExample(t *testing.T) {
	servers := os.Getenv("REDLOCKD_SERVERS")
	if servers == "" {
		t.Skip("REDLOCKD_SERVERS names no redlockd")
	}
	client, err := redlockd.New(redlockd.Config{Servers: strings.Split(servers, ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- lead(ctx, client, "example") }()
	select {
	case fence := <-controlled:
		if fence <= 0 {
			t.Error(fence)
		}
	case err := <-ended:
		t.Fatal("it has ended:", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	lease, err := client.TryLock(context.Background(), "controllers/orders")
	if err != nil {
		t.Fatal("it is not released:", err)
	}
	lease.Unlock()
}
