package policy

import "time"

// Retry says which failures are retried, how often and after which pause. Its zero value: three times, whatever the
// category, after 1, 2 and 4 seconds.
//
// A retry is another attempt. Failures of the classes [Permanent] and [Cancelled] are never retried.
type Retry struct {
	// MaxRetries is how many attempts may follow the first. 0: [DefaultMaxRetries]. At most 2147483647. [NoRetries]: none.
	MaxRetries int

	// Backoff is the pause before each retry. Zero: Exponential(time.Second, time.Minute).
	Backoff Backoff

	// Categories are those of the failures to retry. Empty: all. A failure that names no category has its class as one.
	Categories []string
}

// Backoff is the pause before each retry: First before the first, and Factor times the one before for each that
// follows, but never longer than Max.
//
// Write it with [Fixed] or [Exponential] and change what should differ. The zero value is Exponential(time.Second,
// time.Minute); any other is taken as it stands.
type Backoff struct {
	First  time.Duration
	Max    time.Duration // at least First
	Factor float64       // above 0; 1: the pauses are equally long
	Jitter bool          // each pause is of random length, between half and all of it
}

// Fixed pauses equally long before every retry. Fixed(0) retries at once.
func Fixed(pause time.Duration) Backoff { return Backoff{First: pause, Max: pause, Factor: 1} }

// Exponential doubles the pause from retry to retry, up to a limit.
func Exponential(first, limit time.Duration) Backoff {
	return Backoff{First: first, Max: limit, Factor: 2}
}

// ImmediateRetries retries up to n times, at once: for failures that pass as soon as they are tried again, such as a lost
// race. 0: [DefaultMaxRetries]. [NoRetries]: none.
func ImmediateRetries(n int) *Retry { return &Retry{MaxRetries: n, Backoff: Fixed(0)} }

// Class is what kind of failure an attempt ended with, as its worker sees it.
type Class string

// The classes.
const (
	Transient  Class = "transient"   // may go well next time; the default
	Permanent  Class = "permanent"   // would fail again: not retried
	InfraCrash Class = "infra_crash" // the machinery broke, not the work
	TimedOut   Class = "timeout"     // took too long
	Cancelled  Class = "cancelled"   // no longer wanted: not retried
)
