// SPDX-License-Identifier: MIT

// A lock service over HTTP such as one writes oneself with redsync: the same calls as redlockd's, over the same masters.
// As a service (-listen), or calling the library directly without HTTP (-direct SECONDS -parallel N), which prints acquisitions per second as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type lockRequest struct {
	Resource string `json:"resource"`
	TTL      int64  `json:"ttl_ms"`
}

func answer(writer http.ResponseWriter, status int, body any) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(status)
	json.NewEncoder(writer).Encode(body)
}

func acquire(sync *redsync.Redsync, resource string, ttl time.Duration) (*redsync.Mutex, error) {
	mutex := sync.NewMutex(resource, redsync.WithExpiry(ttl), redsync.WithTries(1))
	return mutex, mutex.TryLockContext(context.Background())
}

func serve(sync *redsync.Redsync, address string) {
	http.HandleFunc("POST /locks", func(writer http.ResponseWriter, request *http.Request) {
		var body lockRequest
		if err := json.NewDecoder(request.Body).Decode(&body); err != nil || body.Resource == "" || body.TTL <= 0 {
			answer(writer, 400, map[string]string{"code": "invalid-request"})
			return
		}
		mutex, err := acquire(sync, body.Resource, time.Duration(body.TTL)*time.Millisecond)
		if err != nil {
			answer(writer, 409, map[string]string{"code": "locked"})
			return
		}
		answer(writer, 201, map[string]any{"resource": body.Resource, "token": mutex.Value(), "validity_ms": time.Until(mutex.Until()).Milliseconds()})
	})
	http.HandleFunc("DELETE /locks/{resource...}", func(writer http.ResponseWriter, request *http.Request) {
		mutex := sync.NewMutex(request.PathValue("resource"), redsync.WithValue(request.Header.Get("Lock-Token")))
		if ok, err := mutex.Unlock(); !ok || err != nil {
			answer(writer, 410, map[string]string{"code": "lease-expired"})
			return
		}
		writer.WriteHeader(204)
	})
	log.Fatal(http.ListenAndServe(address, nil))
}

func direct(redsync_ *redsync.Redsync, seconds, parallel int) {
	var group sync.WaitGroup
	counts := make([]int, parallel)
	begin := time.Now()
	for worker := range parallel {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Since(begin) < time.Duration(seconds)*time.Second {
				name := fmt.Sprintf("direct/%d/%d/%d", os.Getpid(), worker, counts[worker])
				if _, err := acquire(redsync_, name, 10*time.Second); err != nil {
					log.Fatal(err)
				}
				counts[worker]++
			}
		}()
	}
	group.Wait()
	total := 0
	for _, count := range counts {
		total += count
	}
	fmt.Printf("{\"acquisitions\":%d,\"seconds\":%.3f}\n", total, time.Since(begin).Seconds())
}

// Wants each of the names, as takeover.py asks: renews every third of the expiry, and releases at the end of the input.
func contend(redsync_ *redsync.Redsync, names []string, expiry time.Duration) {
	ended, over := make(chan struct{}), sync.WaitGroup{}
	for _, name := range names {
		over.Add(1)
		go func() {
			defer over.Done()
			mutex := redsync_.NewMutex(name, redsync.WithExpiry(expiry))
			for mutex.Lock() != nil { // 32 tries, 50 to 250 ms apart
			}
			fmt.Println("granted", name)
			for ticker := time.NewTicker(expiry / 3); ; {
				select {
				case <-ended:
					mutex.Unlock()
					return
				case <-ticker.C:
					for ok, _ := mutex.Extend(); !ok; ok, _ = mutex.Extend() {
						if time.Now().After(mutex.Until()) {
							fmt.Println("lost", name)
							return
						}
						time.Sleep(100 * time.Millisecond)
					}
				}
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	close(ended)
	go func() { // one that still waits is not waited for
		time.Sleep(5 * time.Second)
		os.Exit(0)
	}()
	over.Wait()
}

func main() {
	masters := flag.String("masters", "", "paths of the masters' Unix sockets, or host:port, separated by commas")
	listen := flag.String("listen", "", "host:port")
	seconds := flag.Int("direct", 0, "seconds of direct calls")
	parallel := flag.Int("parallel", 1, "direct calls at once")
	names := flag.String("contend", "", "locks, separated by commas, that are wanted and held until the end of the input")
	expiry := flag.Duration("expiry", 8*time.Second, "of those; the default is that of redsync")
	flag.Parse()
	var pools []syncredis.Pool
	for _, master := range strings.Split(*masters, ",") {
		options := &redis.Options{Addr: master}
		if strings.HasPrefix(master, "/") {
			options.Network = "unix"
		}
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}
	if *seconds > 0 {
		direct(redsync.New(pools...), *seconds, *parallel)
		return
	}
	if *names != "" {
		contend(redsync.New(pools...), strings.Split(*names, ","), *expiry)
		return
	}
	serve(redsync.New(pools...), *listen)
}
