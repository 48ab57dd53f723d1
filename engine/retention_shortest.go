package engine

import (
	"math/bits"
	"sync/atomic"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// shortestPeriod is the shortest retention registered by this process, in milliseconds; 0 if none. Ends are first
// examined after this time, however long executions are kept.
type shortestPeriod struct{ ms atomic.Int64 }

// shortestOf returns the shortest retention in the policies of creations.
func shortestOf(creations []creation) int64 {
	shortest := int64(core.Forever)
	for i := range creations {
		if ms := creations[i].retentionMs; ms > 0 {
			shortest = min(shortest, ms)
		}
	}
	return shortest
}

// missingBelow returns the period to register for a retention, or 0. Periods are rounded up to four significant bits,
// so only few are stored.
func (p *shortestPeriod) missingBelow(shortest int64) int64 {
	if shortest == core.Forever {
		return 0
	}
	if low := bits.Len64(uint64(shortest)) - 4; low > 0 {
		if up := shortest + 1<<low - 1; up > 0 {
			shortest = up >> low << low
		}
	}
	if known := p.ms.Load(); known != 0 && known <= shortest {
		return 0
	}
	return shortest
}

// remember records a registered period after the commit.
func (p *shortestPeriod) remember(ms int64) {
	for known := p.ms.Load(); ms != 0 && (known == 0 || ms < known); known = p.ms.Load() {
		if p.ms.CompareAndSwap(known, ms) {
			return
		}
	}
}
