package policy

import "time"

// Retry says which failures to retry, how often and after which pause. The zero value retries every category up to 24
// times in about a day, as an execution without a Retry does.
//
// A retry is a new attempt. Failures of the classes [Permanent] and [Cancelled] are never retried.
type Retry struct {
	// MaxRetries is the number of attempts after the first. 0: [DefaultMaxRetries]. At most 2147483647. [NoRetries]: none.
	MaxRetries int

	// Backoff is the pause before each retry. Zero: 1 s, 5 s, 30 s, 2 min, 10 min, and then an hour each, whatever MaxRetries
	// is.
	Backoff Backoff

	// Categories lists the categories of failures to retry. Empty: all. A failure without a category has its class as one.
	Categories []string
}

// Backoff is the pause before each retry: First before the first, then each Factor times the previous one, up to Max.
//
// Create one with [Fixed] or [Exponential] and change fields as needed. The zero value has the growing pauses of
// [Retry].Backoff; any other value is used as it is.
type Backoff struct {
	First  time.Duration
	Max    time.Duration // at least First
	Factor float64       // above 0; 1 for equal pauses
	Jitter bool          // randomize each pause between half and all of its length
}

// Fixed returns a backoff with equal pauses. Fixed(0) retries at once.
func Fixed(pause time.Duration) Backoff { return Backoff{First: pause, Max: pause, Factor: 1} }

// Exponential returns a backoff that doubles the pause with each retry, up to a limit.
func Exponential(first, limit time.Duration) Backoff {
	return Backoff{First: first, Max: limit, Factor: 2}
}

// ImmediateRetries returns a policy of up to n retries without a pause, for failures that go away when tried again, such
// as a lost race. 0: [DefaultMaxRetries]. [NoRetries]: none.
func ImmediateRetries(n int) *Retry { return &Retry{MaxRetries: n, Backoff: Fixed(0)} }

// Class is the kind of an attempt's failure, as reported by its worker.
type Class string

// The classes.
const (
	Transient  Class = "transient"   // may succeed next time; the default
	Permanent  Class = "permanent"   // would fail again: not retried
	InfraCrash Class = "infra_crash" // the infrastructure failed, not the work
	TimedOut   Class = "timeout"     // took too long
	Cancelled  Class = "cancelled"   // no longer wanted: not retried
)
