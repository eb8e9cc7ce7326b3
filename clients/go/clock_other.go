//go:build !linux

package redlockd

import "time"

var started = time.Now()

// readClock is monotonic. Whether it goes on while the machine sleeps depends on the system.
func readClock() time.Duration { return time.Since(started) }
