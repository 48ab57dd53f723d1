// Package policy says how work is to be tried: an [Execution] has retries, time limits and requirements, a [Group]
// the upstreams that an execution waits for, and a failure its [Class].
//
// The zero value of a field is its default, and the field's comment says which. What can be switched off altogether is
// switched off by name: [NoRetries], [NoReclaims], [NoDedup].
package policy

import (
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// Execution is the policy of an execution. Its zero value is patient retries for about a day, no time limits, any worker
// and up to 100 lost leases. Durations are kept in milliseconds and rounded up, so none becomes 0.
type Execution struct {
	// Retry says which failures another attempt follows. nil: up to 24 retries in about a day, after 1 s, 5 s, 30 s, 2 min
	// and 10 min, and then every hour. [ImmediateRetries] pauses before none, and with a MaxRetries of [NoRetries]
	// there are none.
	Retry *Retry

	// AttemptTimeout is how long one attempt may run. One that runs longer has failed with the class [TimedOut], and
	// is retried as any other failure. 0: no limit.
	AttemptTimeout time.Duration

	// Deadline is how long after its creation the execution ends as expired, in whatever state it is. 0: never. An
	// instant in the execution's own spec goes first.
	Deadline time.Duration

	// DelayUntil keeps the execution from being claimed before. Zero: it may start at once. An instant in the
	// execution's own spec goes first.
	DelayUntil time.Time

	// MaxReclaims is how many of its leases the execution may lose and go on; with the next one it ends as failed.
	// 0: [DefaultMaxReclaims]. [NoReclaims]: it ends with the first. At most [ReclaimLimit].
	MaxReclaims int

	// DedupWindow is how long after the creation another one with the same idempotency key is a duplicate.
	// 0: [DefaultDedupWindow]. [NoDedup]: the key is stored, and keeps nothing from being created.
	DedupWindow time.Duration

	// Retention is how long the execution is kept after it has ended. 0: as its lane or the engine says.
	// [KeepForever]: until somebody deletes it. At least [MinRetention].
	Retention time.Duration

	// Capabilities are what a worker must offer to be given the execution, in any order. nil: nothing.
	Capabilities id.Capabilities
}

// The defaults.
const (
	DefaultMaxRetries  = 3
	DefaultMaxReclaims = 100
	DefaultDedupWindow = 24 * time.Hour
)

// ReclaimLimit is how many leases an execution may lose at most, whatever its policy; where it has none, this many.
const ReclaimLimit = 1000

// None at all, for the fields in which 0 is the default.
const (
	NoRetries                = -1
	NoReclaims               = -1
	NoDedup    time.Duration = -1
)

// KeepForever is the retention of what is never deleted.
const KeepForever time.Duration = -1

// MinRetention is the shortest time for which anything is kept that has ended.
const MinRetention = time.Minute
