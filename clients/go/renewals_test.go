// SPDX-License-Identifier: MIT

package redlockd

// Many leases of one client, and what a lease learns by its renewals.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Neither while they are held nor while they are renewed.
func TestManyLeasesNeedFewGoroutines(t *testing.T) {
	f := newFake(t, nil)
	client := f.client(t)
	_ = lock(t, client).Unlock()
	before, count := runtime.NumGoroutine(), 1000
	for number := range count {
		if _, err := client.Lock(context.Background(), fmt.Sprint(number), TTL(9*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	renewed := map[any]bool{}
	for len(renewed) < count {
		if now := runtime.NumGoroutine(); now > before+count/5 { // those of the server are among them
			t.Fatal(now, before)
		}
		for _, sent := range f.of(t, "PUT", 1) {
			for _, item := range sent.body["leases"].([]any) {
				renewed[item.(map[string]any)["resource"]] = true
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	if requests := len(f.of(t, "PUT", 1)); requests > count/10 {
		t.Error(requests)
	}
	client.Close()
}

// A value for each time that nobody waited before; one that nobody receives is enough.
func TestWanted(t *testing.T) {
	waiters := make(chan int, 1)
	f := newFake(t, map[string]http.HandlerFunc{"PUT": func(w http.ResponseWriter, r *http.Request) {
		var all struct{ Leases []map[string]any }
		_ = json.NewDecoder(r.Body).Decode(&all)
		grantFor(all.Leases[0], time.Minute)
		all.Leases[0]["waiters"] = <-waiters
		_ = json.NewEncoder(w).Encode(members{"leases": all.Leases})
	}})
	client := f.client(t)
	defer client.Close()
	l, events := lock(t, client), 0
	for _, count := range []int{0, 2, 1, 0, 0, 3, 4, 0, 1} {
		waiters <- count
		renewNow(l)
		if l.Waiters() != count {
			t.Error(l.Waiters(), count)
		}
		if count < 3 {
			select {
			case <-l.Wanted():
				events++
			default:
			}
		}
	}
	if events != 3 {
		t.Error(events)
	}
}

func TestKeepingALock(t *testing.T) {
	f := newFake(t, nil)
	client := f.client(t)
	_ = lock(t, client, AtLeast(time.Minute)).Unlock()
	_ = lock(t, client, AtLeast(time.Minute)).UnlockAndKeep(time.Hour)
	l := lock(t, client, AtLeast(time.Minute))
	if said := fmt.Sprint(l); !strings.HasPrefix(said, "lease on x, fence 7, ") {
		t.Error(said)
	}
	l.keepUntil = clock()
	_ = l.Unlock()
	if ttl := f.of(t, "POST", 1)[0].body["ttl_ms"]; ttl != 60000.0 {
		t.Error(ttl)
	}
	sent := f.of(t, "DELETE", 3)
	rest, isThere := sent[0].body["keep_ms"].(float64)
	longer, isOver := sent[1].body["keep_ms"], sent[2].body["keep_ms"]
	if !isThere || rest > 60000 || rest < 40000 || longer != 3600000.0 || isOver != nil {
		t.Error(sent)
	}
}

func TestATokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for _, text := range []string{"", " \n", "two words", "é"} {
		_ = os.WriteFile(path, []byte(text), 0o600)
		if _, err := New(Config{TokenFile: path}); err == nil {
			t.Error(text)
		}
	}
	_ = os.WriteFile(path, []byte("good\n"), 0o600)
	if _, err := New(Config{TokenFile: path, Key: "key"}); err == nil {
		t.Error("one of them only")
	}
	f := newFake(t, nil)
	_ = lock(t, newClient(t, Config{Servers: []string{f.URL}, TokenFile: path})).Unlock()
	if sent := f.of(t, "DELETE", 1)[0].header.Get("Authorization"); sent != "Bearer good" {
		t.Error(sent)
	}
}
