// Package policy describes how to try work. [Execution] has retries, time limits and requirements, [Group] the upstreams
// an execution waits for, and [Class] the kinds of failures.
//
// The zero value of a field is its default, given in the field's comment. Named values switch a feature off: [NoRetries],
// [NoReclaims], [NoReplays], [NoDedup].
package policy

import (
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// Execution is the policy of an execution. The zero value retries for about a day, allows up to 100 lost leases, and sets
// no time limit and no required capabilities. Durations are stored in milliseconds, rounded up, so none becomes 0.
type Execution struct {
	// Retry selects the failures to retry, how often and after which pauses. nil: as the zero [Retry], up to 24 retries in
	// about a day. Use [ImmediateRetries] to retry without a pause, and a MaxRetries of [NoRetries] for none.
	Retry *Retry

	// AttemptTimeout limits one attempt. A longer attempt fails with the class [TimedOut] and is retried like any other
	// failure. 0: no limit.
	AttemptTimeout time.Duration

	// Deadline is the time after creation at which the execution ends as expired, in any state. 0: never. An instant in the
	// execution's own spec takes precedence.
	Deadline time.Duration

	// DelayUntil is the earliest time at which the execution can be claimed. Zero: at once. An instant in the execution's own
	// spec takes precedence.
	DelayUntil time.Time

	// MaxReclaims is how many leases the execution may lose and continue; it fails with the next one. 0: [DefaultMaxReclaims].
	// [NoReclaims]: it fails with the first. At most [ReclaimLimit].
	MaxReclaims int

	// MaxReplays is how often the execution may be replayed. 0: [DefaultMaxReplays]. [NoReplays]: never. At most 2147483647.
	MaxReplays int

	// DedupWindow is the time after creation during which the same idempotency key is a duplicate. 0: [DefaultDedupWindow].
	// [NoDedup]: the key is stored but prevents no creation.
	DedupWindow time.Duration

	// Retention is how long to keep the execution after it has ended. 0: the default of its lane or the engine. [KeepForever]:
	// until it is deleted explicitly. At least [MinRetention].
	Retention time.Duration

	// Capabilities lists the capabilities a worker must offer, in any order. nil: none.
	Capabilities id.Capabilities
}

// The defaults.
const (
	DefaultMaxRetries  = 24
	DefaultMaxReclaims = 100
	DefaultMaxReplays  = 10
	DefaultDedupWindow = 24 * time.Hour
)

// ReclaimLimit is the largest number of leases an execution may lose under any policy, or without one.
const ReclaimLimit = 1000

// DefaultMaxSignals is how many signals an execution may have.
const DefaultMaxSignals = 10_000

// Values that mean none, in fields whose 0 is the default.
const (
	NoRetries                = -1
	NoReclaims               = -1
	NoReplays                = -1
	NoDedup    time.Duration = -1
)

// KeepForever is the retention of work that is never deleted.
const KeepForever time.Duration = -1

// MinRetention is the shortest retention of ended work.
const MinRetention = time.Minute
