// SPDX-License-Identifier: MIT

package gocronlock_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	gocronlock "github.com/OWNER/redlockd/clients/adapters/gocron"
	redlockd "github.com/OWNER/redlockd/clients/go"
	"github.com/go-co-op/gocron/v2"
)

func schedule(ctx context.Context, client *redlockd.Client) error {
	locker := gocronlock.NewLocker(client, "jobs/", redlockd.AtLeast(5*time.Second))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	report := func(ctx context.Context) error {
		lease, err := locker.Lease("report") // at the beginning of the job
		if err != nil {
			return err
		}
		return save(lease.Context(), "report", lease.Fence)
	}
	everyTenSeconds := gocron.CronJob("*/10 * * * * *", true)
	if _, err := scheduler.NewJob(everyTenSeconds, gocron.NewTask(report), gocron.WithName("report")); err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	return scheduler.Shutdown() // it waits for the jobs
}

var saved = make(chan int64, 10)

// save stands for a write to a storage that refuses smaller fences than those it has seen.
func save(ctx context.Context, _ string, fence int64) error {
	saved <- fence
	return ctx.Err()
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
	go func() { ended <- schedule(ctx, client) }()
	select {
	case fence := <-saved:
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
}
