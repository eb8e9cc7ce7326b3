// SPDX-License-Identifier: MIT

// Package time is that of Go with this file and a change of Now: build_driver_go of tests/dev/clients.sh builds the
// driver with it. It moves the time of day as tests/e2e/redis_clock.c does, which reaches only what asks the C library:
// by as many microseconds as the first eight bytes of the file REDIS_CLOCK_FILE say. Monotonic time is left alone.
package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var movedMicroseconds = mapClock()

// mapClock ends a program whose clock cannot be moved though that was asked for: its tests would test nothing.
func mapClock() *int64 {
	path, found := syscall.Getenv("REDIS_CLOCK_FILE")
	if !found {
		return new(int64)
	}
	file, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("cannot open REDIS_CLOCK_FILE: " + err.Error())
	}
	mapped, err := syscall.Mmap(file, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("cannot map REDIS_CLOCK_FILE: " + err.Error())
	}
	syscall.Close(file)
	return (*int64)(unsafe.Pointer(&mapped[0]))
}

func moved(sec int64, nsec int32) (int64, int32) {
	sum := sec*1e9 + int64(nsec) + 1000*atomic.LoadInt64(movedMicroseconds)
	return sum / 1e9, int32(sum % 1e9)
}
