// SPDX-License-Identifier: MIT

//go:build !linux

package redlockd

import "time"

var started = time.Now()

// clock is monotonic. Whether it goes on while the machine sleeps depends on the system.
func clock() time.Duration { return time.Since(started) }
