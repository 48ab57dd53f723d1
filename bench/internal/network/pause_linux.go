package network

import (
	"syscall"
	"time"
)

// startup is roughly the time the kernel takes to start a sleeping thread.
const startup = 60 * time.Microsecond

// pauseUntil returns at the given time. Go's timers are too coarse below a millisecond, since an idle process sleeps for
// whole ones.
func pauseUntil(due time.Time) {
	if left := time.Until(due) - startup; left > 0 {
		ts := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&ts, nil)
	}
}
