// Package reconcile runs the engine's background work: it decides when, the engine decides what. Each loop calls one
// operation of the engine until nothing is due, then waits.
//
// Every worker runs these loops by default (package worker), and any number of processes may: rows that one works on
// are passed over by the others, and whatever a process leaves undone when it dies is found by the next call.
package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
)

// Config holds what a [Reconciler] can be told. Its zero value is the documented default of every field.
type Config struct {
	// LeaseExpiry is how often work is taken back whose lease has run out: the longest time, beyond the lease itself,
	// that the work of a crashed worker lies still. Default 1.5 s.
	LeaseExpiry time.Duration

	// DelayedPromotion is how often delayed work and retries are looked for whose time has come. Default 0.75 s.
	DelayedPromotion time.Duration

	// AttemptTimeout is how often running attempts are looked for that have taken too long. Default 2 s.
	AttemptTimeout time.Duration

	// ExecutionDeadline is how often executions are looked for whose deadline has passed. Default 5 s.
	ExecutionDeadline time.Duration

	// CreationKeys is how often idempotency keys are forgotten whose window has passed. Default 60 s.
	CreationKeys time.Duration

	// Retention is how often executions are looked for whose retention is over, and events and flows with them.
	// Default 5 s.
	Retention time.Duration

	// GrantExpiry is how often grants are looked for that were not used in time: the longest time, beyond the grant
	// itself, that what a worker was granted and did not claim lies still. Default 5 s.
	GrantExpiry time.Duration

	// QueueRepair is how often the next executions, a batch of them, are looked at for work that is claimable but
	// not queued, or active or granted though nobody has a lease or a grant of it. The database queues work itself; this finds what was
	// written while its triggers were disabled, and what another program left half-done.
	// Default 1 s.
	QueueRepair time.Duration

	// Dispatch is how often ended executions are looked for whose dependents are not resolved yet: the last level
	// of a skip that goes deeper than one transaction, and what FlowFabric ended. Where this process leaves some it
	// goes on at once; this is for what others leave. Default 1 s.
	Dispatch time.Duration

	// RouteUnblocking is how often executions that are blocked for want of a capable worker are looked for, where one
	// has registered meanwhile. Default 5 s.
	RouteUnblocking time.Duration

	// Batch is how many rows one call of the engine acts on, at most [engine.MaxBatch]. A loop calls again as long as
	// it was that many. Default 500.
	Batch int

	// Log receives failures of the engine, which are repeated. Default: nothing is logged.
	Log *slog.Logger
}

// Defaults of [Config].
const (
	DefaultLeaseExpiry       = 1500 * time.Millisecond
	DefaultDelayedPromotion  = 750 * time.Millisecond
	DefaultAttemptTimeout    = 2 * time.Second
	DefaultExecutionDeadline = 5 * time.Second
	DefaultCreationKeys      = 60 * time.Second
	DefaultRetention         = 5 * time.Second
	DefaultGrantExpiry       = 5 * time.Second
	DefaultQueueRepair       = time.Second
	DefaultDispatch          = time.Second
	DefaultRouteUnblocking   = 5 * time.Second
	DefaultBatch             = 500
)

const (
	maxPause    = 30 * time.Second // after failures
	callTimeout = time.Minute      // of one call
)

// Reconciler runs background work until it is told to stop.
type Reconciler struct {
	jobs  []job
	batch int
	log   *slog.Logger
}

// A job is one operation of the engine and how often it is due.
type job struct {
	name  string
	every time.Duration
	act   func(ctx context.Context, batch int) (int, error)
	wake  <-chan struct{} // it is due at once; nil for most
}

// operations is what this package needs of an engine.
type operations interface {
	ExpireLeases(ctx context.Context, batch int) (int, error)
	PromoteDelayed(ctx context.Context, batch int) (int, error)
	ExpireAttempts(ctx context.Context, batch int) (int, error)
	ExpireDeadlines(ctx context.Context, batch int) (int, error)
	PruneCreationKeys(ctx context.Context, batch int) (int, error)
	Retain(ctx context.Context, batch int) (int, error)
	TrimOutboxes(ctx context.Context, batch int) (int, error)
	PurgeFlows(ctx context.Context, batch int) (int, error)
	ExpireGrants(ctx context.Context, batch int) (int, error)
	RepairQueue(ctx context.Context, batch int) (int, error)
	DispatchCompletions(ctx context.Context, batch int) (int, error)
	UnblockRoutes(ctx context.Context, batch int) (int, error)
	Undispatched() <-chan struct{}
}

// New returns a reconciler for the database of eng.
//
// Errors: [engine.ErrInvalidInput] naming the field of cfg that is out of its bounds.
func New(eng *engine.Engine, cfg Config) (*Reconciler, error) {
	if eng == nil {
		return nil, &engine.InputError{Field: "engine", Reason: "is nil"}
	}
	return newReconciler(eng.Maintenance(), cfg)
}

func newReconciler(eng operations, cfg Config) (*Reconciler, error) {
	r := &Reconciler{batch: cfg.Batch, log: cfg.Log}
	for _, j := range []struct {
		field      string
		configured time.Duration
		job
	}{
		{"LeaseExpiry", cfg.LeaseExpiry, job{"lease expiry", DefaultLeaseExpiry, eng.ExpireLeases, nil}},
		{"DelayedPromotion", cfg.DelayedPromotion, job{"delayed promotion", DefaultDelayedPromotion, eng.PromoteDelayed, nil}},
		{"AttemptTimeout", cfg.AttemptTimeout, job{"attempt timeout", DefaultAttemptTimeout, eng.ExpireAttempts, nil}},
		{"ExecutionDeadline", cfg.ExecutionDeadline, job{"execution deadline", DefaultExecutionDeadline, eng.ExpireDeadlines, nil}},
		{"CreationKeys", cfg.CreationKeys, job{"creation keys", DefaultCreationKeys, eng.PruneCreationKeys, nil}},
		{"Retention", cfg.Retention, job{"retention", DefaultRetention, eng.Retain, nil}},
		{"Retention", cfg.Retention, job{"outbox trimming", DefaultRetention, eng.TrimOutboxes, nil}},
		{"Retention", cfg.Retention, job{"flow purge", DefaultRetention, eng.PurgeFlows, nil}},
		{"GrantExpiry", cfg.GrantExpiry, job{"grant expiry", DefaultGrantExpiry, eng.ExpireGrants, nil}},
		{"QueueRepair", cfg.QueueRepair, job{"queue repair", DefaultQueueRepair, eng.RepairQueue, nil}},
		{"Dispatch", cfg.Dispatch, job{"dispatch", DefaultDispatch, eng.DispatchCompletions, eng.Undispatched()}},
		{"RouteUnblocking", cfg.RouteUnblocking, job{"route unblocking", DefaultRouteUnblocking, eng.UnblockRoutes, nil}},
	} {
		switch {
		case j.configured < 0:
			return nil, &engine.InputError{Field: "Config." + j.field, Reason: "is negative"}
		case j.configured > 0:
			j.every = j.configured
		}
		r.jobs = append(r.jobs, j.job)
	}
	switch {
	case r.batch < 0 || r.batch > engine.MaxBatch:
		return nil, &engine.InputError{Field: "Config.Batch", Reason: "must be between 0 and 1000"}
	case r.batch == 0:
		r.batch = DefaultBatch
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r, nil
}

// Jobs is how many jobs there are: the most connections that [Reconciler.Run] uses at once.
func (r *Reconciler) Jobs() int { return len(r.jobs) }

// Run does background work until ctx ends, and returns when the last call has. A failure of the engine is logged and
// repeated, so there is no error to return. It may be called any number of times, also at once.
func (r *Reconciler) Run(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	for _, j := range r.jobs {
		loops.Go(func() { r.loop(ctx, j) })
	}
}

// loop does what is due, then waits for the next interval, or to be woken. The first look comes after an interval too,
// so that processes that start together spread out, and one that only tries its start does nothing.
func (r *Reconciler) loop(ctx context.Context, j job) {
	failing := backoff.Backoff{First: j.every, Max: max(j.every, maxPause)}
	pause := backoff.Spread(j.every)
	for backoff.WaitOr(ctx, pause, j.wake) {
		done, err := r.exhaust(ctx, j)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = failing.Next()
			r.log.Warn("background work failed; it is repeated", "job", j.name, "error", err, "retry_in", pause)
		default:
			failing.Reset()
			pause = backoff.Spread(j.every)
			if done > 0 {
				r.log.Debug("background work done", "job", j.name, "rows", done)
			}
		}
	}
}

// exhaust repeats a job while its batches are full and returns how many rows it acted on.
func (r *Reconciler) exhaust(ctx context.Context, j job) (int, error) {
	for done := 0; ; {
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		n, err := j.act(calling, r.batch)
		cancel()
		done += n
		if err != nil || n < r.batch {
			return done, err
		}
	}
}
