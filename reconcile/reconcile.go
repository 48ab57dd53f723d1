// Package reconcile runs the engine's background work: it decides when, the engine decides what.
//
// Every worker runs it by default (package worker), and any number of processes may. Of all of them one does each job,
// as long as it lives: which one stands in the database, and another takes over within five seconds of its death.
// That is economy, not correctness. Each job may be done by any number of processes at once: rows that one works on are
// passed over by the others, and whatever a process leaves undone when it dies is found by the next call.
//
// A process that has nothing to do asks the database every second and a half, in one statement, which jobs have
// something to do and when. Only these are called, at their instant.
package reconcile

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// Config holds what a [Reconciler] can be told. Its zero value is the documented default of every field.
type Config struct {
	// Interval is how often the database is asked what is to be done: as long as this, at most, work waits that came
	// up since it was asked, as a lease or a delay shorter than it. What is due later is done at its instant. Two
	// and two thirds of it is how long others leave a job to a process that has fallen silent. Default 1.5 s.
	Interval time.Duration

	// Instance names this process among those that do background work on the database. Default: random letters.
	Instance id.WorkerInstanceID

	// Lanes are those of which Queued is told, each time the database is asked, which have work queued. Default: nobody
	// is told.
	Lanes  []id.LaneID
	Queued func(lanes []id.LaneID)

	// Batch is how many rows one call of the engine acts on, at most [engine.MaxBatch]. A job is called again as long as
	// it was that many. Default 500.
	Batch int

	// Log receives failures of the engine, which are repeated: those of one job at Warn at most once a minute, and at Debug
	// in between. Default: the engine's, and so [slog.Default]. slog.New(slog.DiscardHandler) logs nothing.
	Log *slog.Logger
}

// Defaults of [Config].
const (
	DefaultInterval = 1500 * time.Millisecond
	DefaultBatch    = 500
)

const (
	maxPause    = 30 * time.Second // after failures
	callTimeout = time.Minute      // of one call
	askTimeout  = 10 * time.Second // of the question what is to be done
	stopTimeout = 2 * time.Second  // for giving up the jobs
)

// Reconciler runs background work until it is told to stop.
type Reconciler struct {
	eng  operations
	jobs []job
	cfg  Config
}

// A job is one operation of the engine.
type job struct {
	name engine.Job

	// every is the least time between two calls, where the interval is the default one. Without sweep the job is called
	// when the database says that there is something to do, else each time that long has passed: ever longer, up to idle,
	// while it has nothing to do.
	every time.Duration
	idle  time.Duration
	sweep bool
	after engine.Job // what a sweep comes soon after, once that has done something
	batch int        // that of the configuration if zero

	act func(ctx context.Context, batch int) (int, error)
}

// operations is what this package needs of an engine beside the jobs.
type operations interface {
	TakeJobs(ctx context.Context, spec engine.JobSpec) (engine.JobsTaken, error)
	ReturnJobs(ctx context.Context, holder id.WorkerInstanceID) error
	Undispatched() <-chan struct{}
	Unneeded() <-chan struct{}
	Delayed() <-chan struct{}
	ListenForeign(ctx context.Context, wake func()) error
}

// jobsOf is all background work. A job that the database cannot tell of is a sweep, and costs statements where there is
// nothing to do: a process has sixty a minute for everything.
func jobsOf(m engine.Maintenance) []job {
	return []job{
		{name: engine.JobExpireLeases, every: 1500 * time.Millisecond, act: m.ExpireLeases},
		{name: engine.JobPromoteDelayed, every: 750 * time.Millisecond, act: m.PromoteDelayed},
		{name: engine.JobExpireAttempts, every: 2 * time.Second, act: m.ExpireAttempts},
		{name: engine.JobExpireDeadlines, every: 5 * time.Second, act: m.ExpireDeadlines},
		{name: engine.JobPruneCreationKeys, every: time.Minute, act: m.PruneCreationKeys},
		{name: engine.JobDispatchCompletions, every: time.Second, act: m.DispatchCompletions},
		{name: engine.JobCancelFlows, every: 1500 * time.Millisecond, act: m.CancelFlows},
		// Each may have as many upstreams as it likes.
		{name: engine.JobCancelSiblings, every: time.Second, batch: 50, act: m.CancelSiblings},
		{name: engine.JobAdopt, every: 500 * time.Millisecond, batch: engine.MaxBatch, act: m.Adopt},
		{name: engine.JobExpireGrants, every: 5 * time.Second, act: m.ExpireGrants},
		{name: engine.JobUnblockRoutes, every: 5 * time.Second, act: m.UnblockRoutes},
		// Short transactions: a claim beside a batch of 1,000 took twice as long at the 99th percentile as beside 200.
		{name: engine.JobRetain, every: time.Second, batch: 200, act: m.Retain},
		{name: engine.JobTrimOutboxes, every: 5 * time.Second, sweep: true, idle: 10 * time.Minute, after: engine.JobRetain, batch: 200, act: m.TrimOutboxes},
		{name: engine.JobPurgeFlows, every: 5 * time.Second, sweep: true, idle: 10 * time.Minute, after: engine.JobRetain, act: m.PurgeFlows},
		// 500 rows a second.
		{name: engine.JobRepairQueue, every: 30 * time.Second, sweep: true, batch: engine.MaxSweep, act: m.RepairQueue},
		{name: engine.JobRepairGroups, every: time.Minute, sweep: true, batch: engine.MaxSweep, act: m.RepairGroups},
		{name: engine.JobSummariseFlows, every: 15 * time.Second, sweep: true, idle: time.Minute, batch: engine.MaxSweep, act: m.SummariseFlows},
	}
}

// New returns a reconciler for the database of eng.
//
// Errors: [engine.ErrInvalidInput] naming the field of cfg that is out of its bounds, or the engine if it is nil or bound
// to a transaction.
func New(eng *engine.Engine, cfg Config) (*Reconciler, error) {
	if eng == nil {
		return nil, &engine.InputError{Field: "engine", Reason: "is nil"}
	}
	if eng.Tx() != nil {
		return nil, &engine.InputError{Field: "engine", Reason: "is bound to a transaction, and a reconciler outlives it"}
	}
	cfg.Log = cmp.Or(cfg.Log, eng.Log())
	return newReconciler(eng.Maintenance(), jobsOf(eng.Maintenance()), cfg)
}

func newReconciler(eng operations, jobs []job, cfg Config) (*Reconciler, error) {
	refuse := func(field, reason string) error {
		return &engine.InputError{Field: "Config." + field, Reason: reason}
	}
	switch {
	case cfg.Interval < 0:
		return nil, refuse("Interval", "is negative")
	case cfg.Interval == 0:
		cfg.Interval = DefaultInterval
	case cfg.Interval < time.Millisecond || cfg.Interval > 24*time.Hour:
		return nil, refuse("Interval", "must be between 1ms and 24h")
	}
	switch {
	case cfg.Batch < 0 || cfg.Batch > engine.MaxBatch:
		return nil, refuse("Batch", "must be between 0 and 1000")
	case cfg.Batch == 0:
		cfg.Batch = DefaultBatch
	}
	if cfg.Instance == "" {
		cfg.Instance = id.WorkerInstanceID(rand.Text())
	}
	if err := cfg.Instance.Validate(); err != nil {
		return nil, refuse("Instance", err.Error())
	}
	for _, lane := range cfg.Lanes {
		if err := lane.Validate(); err != nil {
			return nil, refuse("Lanes", err.Error())
		}
	}
	if (cfg.Queued == nil) != (len(cfg.Lanes) == 0) {
		return nil, refuse("Queued", "and Lanes go together")
	}
	return &Reconciler{eng: eng, jobs: jobs, cfg: cfg}, nil
}

// Jobs is how many jobs there are: the most connections that [Reconciler.Run] uses at once, but for the one by which it
// asks what is to be done.
func (r *Reconciler) Jobs() int { return len(r.jobs) }

// hold is how long a job stays with a process that is silent.
func (r *Reconciler) hold() time.Duration { return r.scaled(4 * time.Second) }

// scaled is a time of the default interval for the configured one.
func (r *Reconciler) scaled(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)*(float64(r.cfg.Interval)/float64(DefaultInterval))), time.Millisecond)
}

// Run does background work until ctx ends, gives its jobs up for others, and returns when the last call has. A failure
// of the engine is logged and repeated, so there is no error to return. It may be called any number of times, also at
// once. By the engine's connection for that it listens for executions that FlowFabric creates.
func (r *Reconciler) Run(ctx context.Context) {
	s := newSchedule(r, time.Now())
	defer s.end()
	foreign := make(chan struct{}, 1)
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		_ = r.eng.ListenForeign(ctx, func() {
			select {
			case foreign <- struct{}{}:
			default:
			}
		})
	})
	timer := time.NewTimer(time.Until(s.next()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case c := <-s.called:
			s.note(c, time.Now())
		case <-r.eng.Undispatched():
			s.call(engine.JobDispatchCompletions)
		case <-r.eng.Unneeded():
			s.call(engine.JobCancelSiblings)
		case <-r.eng.Delayed():
			s.expectDelay()
		case <-foreign:
			s.expect(engine.JobAdopt)
		}
		if !time.Now().Before(s.askAt) {
			s.ask(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		s.begin(ctx, time.Now())
		timer.Reset(time.Until(s.next()))
	}
}
