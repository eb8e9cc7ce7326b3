// SPDX-License-Identifier: MIT

// A caller of the Go client that openapi-generator makes from openapi.yaml: takes a lock, is refused a second time, extends, looks, releases.
// Prints one word for each step; test_generated.py reads them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	redlockd "example.org/caller/redlockd"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	configuration := redlockd.NewConfiguration()
	configuration.Servers = redlockd.ServerConfigurations{{URL: os.Args[1]}}
	leases, ctx := redlockd.NewAPIClient(configuration).LeasesAPI, context.WithValue(context.Background(), redlockd.ContextAccessToken, os.Getenv("REDLOCKD_KEY"))
	resource := os.Args[2]

	wanted := redlockd.NewAcquireRequest()
	wanted.SetResource(resource)
	wanted.SetTtlMs(30000)
	lease, answer, err := leases.AcquireLock(ctx).AcquireRequest(*wanted).Execute()
	check(err)
	fmt.Println("acquired", answer.StatusCode, lease.Fence > 0 && lease.ValidityMs < 30000)

	_, answer, err = leases.AcquireLock(ctx).AcquireRequest(*wanted).Execute()
	var problem *redlockd.GenericOpenAPIError
	if !errors.As(err, &problem) {
		check(fmt.Errorf("no problem: %v", err))
	}
	locked, typed := problem.Model().(redlockd.LockedProblem)
	fmt.Println("refused", answer.StatusCode, typed, locked.Code, locked.RetryAfterMs > 0, locked.Holder.GetFence() == lease.Fence, locked.Votes.Needed)

	longer := redlockd.NewExtendRequest()
	longer.SetTtlMs(60000)
	extended, answer, err := leases.ExtendLock(ctx, resource).LockToken(lease.Token).ExtendRequest(*longer).Execute()
	check(err)
	fmt.Println("extended", answer.StatusCode, extended.ValidityMs > 30000, extended.Fence == lease.Fence)

	held, _, err := leases.InspectLock(ctx, resource).Execute()
	check(err)
	fmt.Println("inspected", held.Held, held.GetFence() == lease.Fence)

	named := redlockd.NewExtendNamedRequest()
	named.SetResource(resource)
	again, answer, err := leases.ExtendLocks(ctx).LockToken(lease.Token).ExtendNamedRequest(*named).Execute()
	check(err)
	one, _, err := leases.GetLocks(ctx).Resource(resource).Execute()
	check(err)
	page, _, err := leases.GetLocks(ctx).Prefix(resource).Execute()
	check(err)
	fmt.Println("named", answer.StatusCode, again.Lease.Fence == lease.Fence, one.LockState.GetFence() == lease.Fence, len(page.LockList.Locks))

	many := redlockd.NewExtendNamedRequest()
	for _, name := range []string{resource, resource + "/other"} {
		item := redlockd.NewExtendItem(lease.Token)
		item.SetResource(name)
		many.Leases = append(many.Leases, *item)
	}
	several, answer, err := leases.ExtendLocks(ctx).ExtendNamedRequest(*many).Execute()
	check(err)
	results := several.LeaseResults.Leases
	fmt.Println("many", answer.StatusCode, results[0].Lease.Fence == lease.Fence, results[1].LeaseProblem.Code)

	given := redlockd.NewReleaseRequest() // always a body: this generator sends null for one that is left out
	given.SetToken(lease.Token)
	answer, err = leases.ReleaseLock(ctx, resource).ReleaseRequest(*given).Execute()
	check(err)
	fmt.Println("released", answer.StatusCode)

	answer, err = leases.ReleaseLock(ctx, resource).ReleaseRequest(*given).Execute()
	if !errors.As(err, &problem) {
		check(fmt.Errorf("no problem: %v", err))
	}
	expired, typed := problem.Model().(redlockd.LeaseExpiredProblem)
	fmt.Println("expired", answer.StatusCode, typed, expired.Code)

	ill := redlockd.NewConfiguration()
	ill.Servers = redlockd.ServerConfigurations{{URL: os.Args[3]}}
	_, answer, err = redlockd.NewAPIClient(ill).LeasesAPI.AcquireLock(ctx).AcquireRequest(*wanted).Execute()
	if !errors.As(err, &problem) {
		check(fmt.Errorf("no problem: %v", err))
	}
	unavailable, typed := problem.Model().(redlockd.AcquireUnavailableProblem)
	fmt.Println("unavailable", answer.StatusCode, typed, unavailable.Code, unavailable.Votes.Needed)

	masters, _, err := redlockd.NewAPIClient(configuration).OperationAPI.GetMasters(ctx).Execute()
	check(err)
	fmt.Println("masters", masters.Quorum.Voting, masters.Masters[0].Reason.Get() == nil, masters.Masters[0].Version.Get() != nil)
}
