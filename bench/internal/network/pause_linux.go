package network

import (
	"syscall"
	"time"
)

// startup is about how long the kernel takes to come back from a sleep.
const startup = 60 * time.Microsecond

// pauseUntil returns when it is due. The timers of Go are of no use for less than a millisecond: a process that has
// nothing else to do sleeps for whole ones.
func pauseUntil(due time.Time) {
	if left := time.Until(due) - startup; left > 0 {
		ts := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&ts, nil)
	}
}
