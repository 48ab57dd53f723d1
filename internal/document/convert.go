package document

import (
	"time"

	"github.com/flowfabric/flowfabric-go/policy"
)

// ExecutionOf returns the document of a valid policy. Durations are rounded up to whole milliseconds.
func ExecutionOf(p policy.Execution) Execution {
	e := Execution{
		MaxReclaimCount: new(count(p.MaxReclaims, policy.DefaultMaxReclaims)), MaxReplayCount: new(count(p.MaxReplays, policy.DefaultMaxReplays)),
	}
	if p.Retry != nil {
		e.Retry = new(RetryOf(*p.Retry))
	}
	if p.AttemptTimeout > 0 || p.Deadline > 0 {
		// The smaller of the two counts applies, so the one here must not be below the policy's.
		e.Timeout = &Timeout{MaxReclaimCount: new(max(*e.MaxReclaimCount, DefaultMaxReclaimCount))}
		if p.AttemptTimeout > 0 {
			e.Timeout.AttemptTimeoutMs = new(milliseconds(p.AttemptTimeout))
		}
		if p.Deadline > 0 {
			e.Timeout.ExecutionDeadlineMs = new(milliseconds(p.Deadline))
		}
	}
	if !p.DelayUntil.IsZero() {
		e.DelayUntilMs = new(p.DelayUntil.UnixMilli())
	}
	if p.DedupWindow != 0 {
		e.DedupWindowMs = new(milliseconds(p.DedupWindow))
	}
	switch {
	case p.Retention == policy.KeepForever:
		e.RetentionMs = new(int64(-1))
	case p.Retention > 0:
		e.RetentionMs = new(int64(milliseconds(p.Retention)))
	}
	if len(p.Capabilities) > 0 {
		e.Routing = &Routing{RequiredCapabilities: p.Capabilities}
	}
	return e.WithDefaults()
}

// RetryOf converts a retry policy.
func RetryOf(p policy.Retry) Retry {
	r := Retry{
		MaxRetries:          new(count(p.MaxRetries, policy.DefaultMaxRetries)),
		RetryableCategories: p.Categories,
	}
	switch b := p.Backoff; {
	case b == policy.Backoff{}:
		r.Backoff = Backoff{Type: BackoffPatient}
	case b == policy.Fixed(b.First):
		r.Backoff = FixedBackoff(milliseconds(b.First))
	default:
		r.Backoff = ExponentialBackoff(milliseconds(b.First), milliseconds(b.Max), b.Factor)
		r.Backoff.Jitter = b.Jitter
	}
	return r
}

// count returns the stored form of a number: 0 is the default, a negative one none.
func count(n, byDefault int) uint32 {
	if n == 0 {
		n = byDefault
	}
	return uint32(max(n, 0))
}

// milliseconds rounds up, so only a zero or negative duration becomes 0.
func milliseconds(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/time.Millisecond) + 1
}
