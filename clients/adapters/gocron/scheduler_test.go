// SPDX-License-Identifier: MIT

package gocronlock_test

// With REDLOCKD_SCHEDULER this program is not a test but the scheduler of a machine. tests/adapters/test_gocron.py
// starts several of them, and kills some. It reads lines from its input:
//
//	run NAME   a job of this name, now. It says "ran NAME FENCE", or "skipped". One named hold/… never ends
//	end        the scheduler shuts down

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	gocronlock "github.com/OWNER/redlockd/clients/adapters/gocron"
	redlockd "github.com/OWNER/redlockd/clients/go"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv("REDLOCKD_SCHEDULER"); kind != "" {
		if err := runScheduler(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

func runScheduler(kind string) error {
	client, err := redlockd.New(redlockd.Config{Servers: strings.Split(os.Getenv("REDLOCKD_SERVERS"), ",")})
	if err != nil {
		return err
	}
	defer client.Close()
	ttl, err := time.ParseDuration(os.Getenv("REDLOCKD_TTL"))
	if err != nil {
		return err
	}
	var option gocron.SchedulerOption
	var leaseOf func(job string) (*redlockd.Lease, error)
	switch kind {
	case "locker":
		locker := gocronlock.NewLocker(client, "jobs/", redlockd.TTL(ttl), redlockd.AtLeast(ttl))
		option, leaseOf = gocron.WithDistributedLocker(locker), locker.Lease
	case "elector":
		elector, err := gocronlock.NewElector(client, "scheduler", redlockd.TTL(ttl))
		if err != nil {
			return err
		}
		defer elector.Close()
		option = gocron.WithDistributedElector(asked{elector})
		leaseOf = func(string) (*redlockd.Lease, error) { return elector.Lease() }
	}
	scheduler, err := gocron.NewScheduler(option)
	if err != nil {
		return err
	}
	scheduler.Start()
	fmt.Println("started")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() && input.Text() != "end" {
		if err := runJob(scheduler, strings.TrimPrefix(input.Text(), "run "), leaseOf); err != nil {
			return err
		}
	}
	return scheduler.Shutdown()
}

func runJob(scheduler gocron.Scheduler, name string, leaseOf func(string) (*redlockd.Lease, error)) error {
	work := func(ctx context.Context) {
		lease, err := leaseOf(name)
		if err != nil {
			fmt.Println("failed", name, err)
			return
		}
		fmt.Println("ran", name, lease.Fence)
		if strings.HasPrefix(name, "hold/") {
			<-ctx.Done()
		}
	}
	skipped := func(uuid.UUID, string, error) { fmt.Println("skipped") }
	_, err := scheduler.NewJob(
		gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(work), gocron.WithName(name),
		gocron.WithEventListeners(gocron.AfterLockError(skipped)))
	return err
}

// asked tells that a job is skipped, which gocron does not.
type asked struct{ *gocronlock.Elector }

func (a asked) IsLeader(ctx context.Context) error {
	err := a.Elector.IsLeader(ctx)
	if err != nil {
		fmt.Println("skipped")
	}
	return err
}
