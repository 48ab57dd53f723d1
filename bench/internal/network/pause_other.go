//go:build !linux

package network

import "time"

// pauseUntil returns at the given time, or up to a millisecond later.
func pauseUntil(due time.Time) { time.Sleep(time.Until(due)) }
