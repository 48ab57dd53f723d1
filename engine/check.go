package engine

import (
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxLeaseTTL is the longest lease: 2^32-1 milliseconds. The shortest is one millisecond.
const MaxLeaseTTL = math.MaxUint32 * time.Millisecond

func checkTTL(field string, ttl time.Duration) error {
	if ttl < time.Millisecond || ttl > MaxLeaseTTL {
		return core.Invalid(field, "must be between 1ms and 2^32-1 ms")
	}
	return nil
}
