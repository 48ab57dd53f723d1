package core

import (
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/policy"
)

// Forever is the retention of subjects that are never deleted, in milliseconds.
const Forever = math.MaxInt64

// RetentionMs returns a retention in milliseconds, rounded up.
func RetentionMs(d time.Duration) int64 {
	if d == policy.KeepForever {
		return Forever
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
