// SPDX-License-Identifier: MIT

// Wants leases of Kubernetes for takeover.py, by client-go's leader election with its defaults. It prints "waiting
// NAME", "granted NAME" and "lost NAME", and releases at the end of its input.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The defaults of Kubernetes' own components; ReleaseOnCancel lets go of the lease at the end.
const leaseDuration, renewDeadline, retryPeriod = 15 * time.Second, 10 * time.Second, 2 * time.Second

// dialFirst connects to the first of the servers that accepts. client-go has one address only, that of a load balancer
// or a service; this takes its place.
func dialFirst(servers []string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (connection net.Conn, err error) {
		for _, server := range servers {
			dialer := net.Dialer{Timeout: 5 * time.Second}
			if connection, err = dialer.DialContext(ctx, network, server); err == nil {
				return connection, nil
			}
		}
		return nil, err
	}
}

// want returns when the lease is released or lost. Each lock has a client of its own, since a client sends at most five
// requests a second.
func want(ctx context.Context, config *rest.Config, name string) {
	identity := fmt.Sprintf("%d-%s", os.Getpid(), name)
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "default", name,
		resourcelock.ResourceLockConfig{Identity: identity}, config, renewDeadline)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting", name)
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Name: name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { fmt.Println("granted", name) },
			OnStoppedLeading: func() {},
		},
	})
	if ctx.Err() == nil {
		fmt.Println("lost", name)
	}
}

func main() {
	servers := flag.String("servers", "", "host:port of each kube-apiserver, separated by commas: the preferred one first")
	token := flag.String("token", "", "bearer token")
	names := flag.String("contend", "", "leases, separated by commas, that are wanted and held until the end of the input")
	flag.Parse()
	addresses := strings.Split(*servers, ",")
	config := &rest.Config{Host: "https://" + addresses[0], BearerToken: *token, Dial: dialFirst(addresses)}
	config.TLSClientConfig.Insecure = true // a certificate of the server's own
	ctx, end := context.WithCancel(context.Background())
	var over sync.WaitGroup
	for _, name := range strings.Split(*names, ",") {
		over.Add(1)
		go func() {
			defer over.Done()
			want(ctx, config, name)
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	end()
	over.Wait()
}
