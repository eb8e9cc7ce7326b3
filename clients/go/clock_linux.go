// SPDX-License-Identifier: MIT

package redlockd

import (
	"syscall"
	"time"
	"unsafe"
)

const boottime = 7 // CLOCK_BOOTTIME

// clock returns the time since the boot. It goes on while the machine sleeps, and nobody can set it.
func clock() time.Duration {
	var now syscall.Timespec
	_, _, failure := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&now)), 0)
	if failure != 0 {
		panic(failure) // each Linux on which Go runs has it
	}
	return time.Duration(now.Nano())
}
