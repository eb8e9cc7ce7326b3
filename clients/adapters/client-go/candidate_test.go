// SPDX-License-Identifier: MIT

package leaderlock_test

// With REDLOCKD_CANDIDATE this program is not a test but a candidate of this name. tests/adapters/test_client_go.py
// starts several of them, and stops and kills some. It says
//
//	leads FENCE    the work of a leader begins. It has the file in REDLOCKD_WORK for itself
//	crowded        the same, but another process works
//	works no more  and why: this line and the next one come in any order
//	stopped        client-go calls OnStoppedLeading
//
// and is a candidate again. Its input is one line, at which it ends its work, and then the election.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	leaderlock "github.com/OWNER/redlockd/clients/adapters/client-go"
	redlockd "github.com/OWNER/redlockd/clients/go"
	"k8s.io/client-go/tools/leaderelection"
)

func TestMain(m *testing.M) {
	if identity := os.Getenv("REDLOCKD_CANDIDATE"); identity != "" {
		if err := runCandidate(identity); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

func runCandidate(identity string) error {
	client, err := redlockd.New(redlockd.Config{Servers: strings.Split(os.Getenv("REDLOCKD_SERVERS"), ",")})
	if err != nil {
		return err
	}
	defer client.Close()
	duration, err := time.ParseDuration(os.Getenv("REDLOCKD_TTL"))
	if err != nil {
		return err
	}
	config := leaderelection.LeaderElectionConfig{LeaseDuration: duration, ReleaseOnCancel: true}
	config.RenewDeadline, config.RetryPeriod = duration/3*2, duration/8
	lock, err := leaderlock.New(leaderlock.Config{
		Client: client, Name: "controller", Identity: identity,
		LeaseDuration: duration, RenewDeadline: config.RenewDeadline, RetryPeriod: config.RetryPeriod,
	})
	if err != nil {
		return err
	}
	working, endWork := context.WithCancel(context.Background())
	electing, endElection := context.WithCancel(context.Background())
	var works sync.WaitGroup
	config.Lock = lock
	config.Callbacks.OnStoppedLeading = func() { fmt.Println("stopped") }
	config.Callbacks.OnStartedLeading = lock.Leading(func(ctx context.Context, lease *redlockd.Lease) {
		works.Add(1)
		defer works.Done()
		ctx, cancel := context.WithCancelCause(ctx)
		defer context.AfterFunc(working, func() { cancel(errors.New("told to end")) })()
		work(ctx, lease)
	})
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		endWork() // as ReleaseOnCancel demands: the work ends before the election
		works.Wait()
		endElection()
	}()
	for electing.Err() == nil {
		leaderelection.RunOrDie(electing, config)
	}
	return nil
}

func work(ctx context.Context, lease *redlockd.Lease) {
	file, err := os.OpenFile(os.Getenv("REDLOCKD_WORK"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		defer file.Close()
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		fmt.Println("crowded", err)
		return
	}
	fmt.Println("leads", lease.Fence)
	<-ctx.Done()
	var lost *redlockd.LockLost
	if errors.As(lease.Err(), &lost) {
		fmt.Println("works no more: lost", string(lost.Cause.Code))
	} else {
		fmt.Println("works no more:", context.Cause(ctx))
	}
}
