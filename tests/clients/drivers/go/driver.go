// SPDX-License-Identifier: MIT

// The driver of the library for Go: tests/clients/driver.py has its protocol.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	redlockd "github.com/OWNER/redlockd/clients/go"
)

var errRaised = errors.New("raised by the block")

type command struct {
	ID            int64
	Do            string
	Client        string
	Lease         string
	Server        string
	Servers       []string
	Key           string
	TokenFile     string `json:"token_file"`
	Owner         string
	Timeout       float64
	CA            string
	Certificate   []string
	Headers       map[string]string
	Resource      any
	TTL           *float64
	Wait          *float64
	Margin        *float64
	AtLeast       float64 `json:"at_least"`
	Keep          float64
	Metadata      map[string]any
	Mode          string
	Slots         *int
	Try           bool
	Interruptible bool
	UntilLost     bool `json:"until_lost"`
	Raise         bool
	Seconds       float64
	Times         int
	Count         int
	File          string
	Fence         int64
}

type answer map[string]any

// driver has what was made. mu is for all of it, and for the output.
type driver struct {
	mu        sync.Mutex
	clients   map[string]*redlockd.Client
	leases    map[string]*redlockd.Lease
	wanted    map[string]int // how often somebody wanted the lease
	interrupt context.CancelFunc
	output    *json.Encoder
}

func (d *driver) say(id int64, said answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	said["id"] = id
	if err := d.output.Encode(said); err != nil {
		panic(err)
	}
}

func errorOf(err error) answer {
	var problem *redlockd.Error
	var lost *redlockd.LockLost
	said := answer{"code": "other", "detail": err.Error(), "status": 0}
	switch {
	case errors.As(err, &lost):
		said["code"], said["cause"] = redlockd.ErrLockLost, lost.Cause.Code
	case errors.As(err, &problem):
		said["code"], said["status"] = problem.Code, problem.Status
	case errors.Is(err, context.Canceled):
		said["code"] = "interrupted"
	case errors.Is(err, errRaised):
		said["code"] = "raised"
	}
	return answer{"error": said}
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

func secured(c command) (*tls.Config, error) {
	config := &tls.Config{}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(text)
	}
	if c.Certificate != nil {
		pair, err := tls.LoadX509KeyPair(c.Certificate[0], c.Certificate[1])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (d *driver) newClient(c command) error {
	secure, err := secured(c)
	if err != nil {
		return err
	}
	config := redlockd.Config{
		Servers: c.Servers, Key: c.Key, TokenFile: c.TokenFile, Owner: c.Owner, TLS: secure,
		Timeout: seconds(c.Timeout),
	}
	if c.Headers != nil {
		config.Headers = func(context.Context) http.Header {
			header := http.Header{}
			for name, value := range c.Headers {
				header[name] = []string{value}
			}
			return header
		}
	}
	client, err := redlockd.New(config)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clients[c.Client] = client
	return err
}

func options(c command) []redlockd.Option {
	all := []redlockd.Option{}
	if c.TTL != nil {
		all = append(all, redlockd.TTL(seconds(*c.TTL)))
	}
	if c.Wait != nil {
		all = append(all, redlockd.Wait(seconds(*c.Wait)))
	}
	if c.Margin != nil {
		all = append(all, redlockd.Margin(seconds(*c.Margin)))
	}
	if c.AtLeast != 0 {
		all = append(all, redlockd.AtLeast(seconds(c.AtLeast)))
	}
	if c.Owner != "" {
		all = append(all, redlockd.Owner(c.Owner))
	}
	if c.Metadata != nil {
		all = append(all, redlockd.Metadata(c.Metadata))
	}
	if c.Mode == "shared" {
		all = append(all, redlockd.Shared())
	}
	if c.Slots != nil {
		all = append(all, redlockd.Slots(*c.Slots))
	}
	return all
}

func (d *driver) lock(ctx context.Context, c command) (*redlockd.Lease, error) {
	d.mu.Lock()
	client := d.clients[c.Client]
	d.mu.Unlock()
	lease, err := take(ctx, client, c)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.leases[c.Lease] = lease
		go d.countWanted(c.Lease, lease)
	}
	return lease, err
}

func (d *driver) countWanted(name string, lease *redlockd.Lease) {
	for {
		select {
		case <-lease.Wanted():
			d.mu.Lock()
			d.wanted[name]++
			d.mu.Unlock()
		case <-lease.Context().Done():
			return
		}
	}
}

func (d *driver) waiters(name string) answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return answer{"waiters": d.leases[name].Waiters(), "wanted": d.wanted[name]}
}

func take(ctx context.Context, client *redlockd.Client, c command) (*redlockd.Lease, error) {
	name, single := c.Resource.(string)
	switch {
	case single && c.Try:
		return client.TryLock(ctx, name, options(c)...)
	case single:
		return client.Lock(ctx, name, options(c)...)
	}
	names, all := []string{}, options(c)
	for _, one := range c.Resource.([]any) {
		names = append(names, one.(string))
	}
	if c.Try {
		all = append(all, redlockd.Wait(0))
	}
	return client.LockAll(ctx, names, all...)
}

func (d *driver) contextOf(c command) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx := context.Background()
	if c.Interruptible {
		ctx, d.interrupt = context.WithCancel(ctx)
	}
	return ctx
}

func (d *driver) acquire(c command) (answer, error) {
	lease, err := d.lock(d.contextOf(c), c)
	if c.Try && errors.Is(err, redlockd.ErrLocked) {
		return answer{"held": false}, nil
	} else if err != nil {
		return nil, err
	}
	said := answer{"fence": lease.Fence, "remaining": lease.Remaining().Seconds(), "slot": nil}
	if lease.Slot >= 0 {
		said["slot"] = lease.Slot
	}
	return said, nil
}

func (d *driver) block(c command) (answer, error) {
	lease, err := d.lock(context.Background(), c)
	if err != nil {
		return nil, err
	}
	return answer{"fence": lease.Fence}, lease.Do(func(ctx context.Context) error {
		time.Sleep(time.Duration(c.Seconds * float64(time.Second)))
		if c.UntilLost {
			<-ctx.Done()
		}
		if c.Raise {
			return errRaised
		}
		return nil
	})
}

// addOne is for one at a time.
func addOne(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	time.Sleep(time.Millisecond)
	return os.WriteFile(path, []byte(strconv.Itoa(number+1)), 0o600)
}

func (d *driver) count(c command) (answer, error) {
	fences := []int64{}
	for range c.Times {
		lease, err := d.lock(context.Background(), c)
		if err != nil {
			return nil, err
		}
		if err := lease.Do(func(context.Context) error { return addOne(c.File) }); err != nil {
			return nil, err
		}
		fences = append(fences, lease.Fence)
	}
	return answer{"fences": fences}, nil
}

func (d *driver) watch(client *redlockd.Client, c command) (answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := c.Count
	for state := range client.Watch(ctx, c.Resource.(string)) {
		if left--; state.Err != nil || left == 0 {
			return answer{"state": state.JSON}, state.Err
		}
		d.say(c.ID, answer{"state": state.JSON, "more": true})
	}
	return nil, errors.New("the channel is closed")
}

func lost(lease *redlockd.Lease, timeout time.Duration) answer {
	select {
	case <-lease.Context().Done():
	case <-time.After(timeout):
	}
	return answer{"lost": lease.Err() != nil}
}

func average(begin time.Time, times int) answer {
	return answer{"milliseconds": float64(time.Since(begin)) / float64(time.Millisecond) / float64(times)}
}

func pairs(client *redlockd.Client, c command) (answer, error) {
	begin := time.Now()
	for range c.Times {
		lease, err := client.TryLock(context.Background(), c.Resource.(string))
		if err == nil {
			err = lease.Unlock()
		}
		if err != nil {
			return nil, err
		}
	}
	return average(begin, c.Times), nil
}

// send is a request without the library; it returns the token of the answer.
func send(client *http.Client, c command, method, header, value string) (string, error) {
	body, _ := json.Marshal(map[string]any{"resource": c.Resource})
	request, err := http.NewRequest(method, c.Server+"/locks", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(header, value)
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var given struct{ Token string }
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &given)
	}
	return given.Token, err
}

func newKey() string {
	key := make([]byte, 16)
	_, _ = rand.Read(key)
	return fmt.Sprintf("%x", key)
}

func bare(c command) (answer, error) {
	secure, err := secured(c)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	defer client.CloseIdleConnections()
	begin := time.Now()
	for range c.Times {
		token, err := send(client, c, "POST", "Idempotency-Key", newKey())
		if err == nil {
			_, err = send(client, c, "DELETE", "Lock-Token", token)
		}
		if err != nil {
			return nil, err
		}
	}
	return average(begin, c.Times), nil
}

func (d *driver) carryOut(c command) (answer, error) {
	d.mu.Lock()
	client, lease := d.clients[c.Client], d.leases[c.Lease]
	d.mu.Unlock()
	switch c.Do {
	case "client":
		return answer{}, d.newClient(c)
	case "acquire":
		return d.acquire(c)
	case "block":
		return d.block(c)
	case "check":
		return answer{}, lease.Err()
	case "remaining":
		return answer{"remaining": lease.Remaining().Seconds()}, nil
	case "lost":
		return lost(lease, seconds(c.Timeout)), nil
	case "release":
		err := lease.UnlockAndKeep(seconds(c.Keep))
		if c.Keep < 0 {
			return nil, err
		}
		return answer{"released": err == nil}, nil
	case "waiters":
		return d.waiters(c.Lease), nil
	case "count":
		return d.count(c)
	case "watch":
		return d.watch(client, c)
	case "state":
		state, err := client.State(context.Background(), c.Resource.(string))
		return answer{"state": state.JSON}, err
	case "force":
		return answer{}, client.Force(context.Background(), c.Resource.(string), c.Fence)
	case "pairs":
		return pairs(client, c)
	case "bare":
		return bare(c)
	case "time":
		return answer{"time": float64(time.Now().UnixMilli()) / 1000}, nil
	}
	return nil, fmt.Errorf("no such command: %s", c.Do)
}

func (d *driver) answer(c command) {
	said, err := d.carryOut(c)
	if err != nil {
		said = errorOf(err)
	}
	d.say(c.ID, said)
}

func (d *driver) take(c command) {
	switch c.Do {
	case "client":
		d.answer(c)
	case "interrupt":
		d.mu.Lock()
		d.interrupt()
		d.mu.Unlock()
	default:
		go d.answer(c)
	}
}

func main() {
	d := &driver{
		clients: map[string]*redlockd.Client{}, leases: map[string]*redlockd.Lease{}, wanted: map[string]int{},
	}
	d.output = json.NewEncoder(os.Stdout)
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<20)
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			panic(err)
		}
		d.take(c)
	}
	for _, client := range d.clients {
		client.Close() // the errors are in the log
	}
}
