// Package reconcile runs the engine's background work. The package decides when to call each job; the engine does the
// work.
//
// Every worker runs the background work by default (package worker), and any number of processes may. Each job has one
// process at a time, recorded in the database; if the process dies, another takes over within five seconds. The record
// saves work, and correctness does not depend on it: several processes may do a job at once, since each skips rows in
// use by another. The next call finds work left undone by a dead process.
//
// An idle process asks the database every 0.9 seconds, in one statement, which jobs have work and when the work is due.
// The process calls only such jobs, when due.
package reconcile

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/observe"
)

// Config configures a [Reconciler]. The zero value of every field is the default.
type Config struct {
	// Interval is the time between two questions to the database. New work due sooner, such as a short lease or delay,
	// waits up to this long; later work is done when due. A silent process loses its jobs after 4⅜ intervals. Default
	// 0.9 s.
	Interval time.Duration

	// Instance names the process among the processes running background work on the database. Default: random letters.
	Instance id.WorkerInstanceID

	// Queued is called with the members of Lanes that have work queued, for each question to the database. Set both or
	// neither. Default: none.
	Lanes  []id.LaneID
	Queued func(lanes []id.LaneID)

	// Batch limits the rows for one call of the engine, at most [engine.MaxBatch]. A job is called again while the batches
	// are full. Default 500.
	Batch int

	// Log receives failures of the engine, which are retried: for each job at Warn at most once a minute, otherwise at Debug.
	// Default: the engine's log. Use slog.New(slog.DiscardHandler) for none.
	Log *slog.Logger
}

// Defaults of [Config].
const (
	DefaultInterval = 900 * time.Millisecond
	DefaultBatch    = 500
)

// MaxConnections is how many connections of the engine's pool [Reconciler.Run] uses at most at once.
const MaxConnections = atOnce + 1 // one asks for work

const (
	atOnce       = 5                      // most calls of jobs at once; the others wait for one to end
	sweepsAtOnce = 2                      // most sweeps at once
	turn         = 250 * time.Millisecond // how long a job with more work goes on before others have their turn

	maxPause    = 30 * time.Second // longest pause after failures
	callTimeout = time.Minute      // for one call of a job
	askTimeout  = 10 * time.Second // for asking which jobs have work
	stopTimeout = 2 * time.Second  // for releasing the jobs
)

// Reconciler runs background work.
type Reconciler struct {
	eng  operations
	jobs []job
	cfg  Config

	foreseen map[upkeep.Job]time.Time // by RunDue: when work will be due
}

// job is one operation of the engine, called from time to time.
type job struct {
	name upkeep.Job

	// every is the shortest time between two calls, for the default interval. Without sweep, the job is called when the
	// database reports work. A sweep is called each time every has passed; while it finds nothing, the pauses grow up to idle.
	every time.Duration
	idle  time.Duration
	sweep bool
	after upkeep.Job // run the sweep soon after the job has done something
	batch int        // default: the configured one

	act func(ctx context.Context, batch int) (int, error)

	// next returns when the job is due after a call, zero if no work is known; nil: only the database knows.
	next func() time.Time
}

// operations is the part of an engine used here beside the jobs.
type operations interface {
	TakeJobs(ctx context.Context, spec upkeep.JobSpec) (upkeep.JobsTaken, error)
	ReturnJobs(ctx context.Context, holder id.WorkerInstanceID) error
	Undispatched() <-chan struct{}
	Unneeded() <-chan struct{}
	Delayed() <-chan struct{}
	CallEnded() <-chan struct{}
	SequenceEnded() <-chan struct{}
	Rescheduled() <-chan struct{}
	Gated() <-chan struct{}
	OverBudget() <-chan struct{}
	OnGated(wake func()) (stop func())
	AdmissionsWait() bool
	OnRescheduled(wake func()) (stop func())
	TicksWait() bool
	OnEnded(wake func()) (stop func())
}

// jobsOf lists all background work. A job is a sweep if the database cannot report its work. Sweeps cost statements even
// if there is nothing to do; an idle process may use sixty a minute in all.
func jobsOf(m *upkeep.Upkeep) []job {
	return []job{
		{name: upkeep.JobExpireLeases, every: 1500 * time.Millisecond, act: m.ExpireLeases},
		{name: upkeep.JobPromoteDelayed, every: 750 * time.Millisecond, act: m.PromoteDelayed},
		{name: upkeep.JobExpireAttempts, every: 2 * time.Second, act: m.ExpireAttempts},
		{name: upkeep.JobExpireDeadlines, every: 5 * time.Second, act: m.ExpireDeadlines},
		{name: upkeep.JobExpireWaits, every: 2 * time.Second, act: m.ExpireWaits},
		{name: upkeep.JobResumeCallers, every: time.Second, act: m.ResumeCallers},
		{name: upkeep.JobAdvanceSequences, every: time.Second, act: m.AdvanceSequences},
		// A tick should be late by some milliseconds at most.
		{name: upkeep.JobRunSchedules, every: 20 * time.Millisecond, batch: engine.MaxBatch, act: m.RunSchedules, next: m.NextSchedule},
		// The pause merges notifications.
		{name: upkeep.JobAdmitWaiting, every: 5 * time.Millisecond, act: m.AdmitWaiting, next: m.NextAdmission},
		{name: upkeep.JobExpireWaitpoints, every: 5 * time.Second, act: m.ExpireWaitpoints},
		{name: upkeep.JobPruneCreationKeys, every: time.Minute, act: m.PruneCreationKeys},
		{name: upkeep.JobResetBudgets, every: 15 * time.Second, batch: 200, act: m.ResetBudgets},
		{name: upkeep.JobPruneUsageKeys, every: time.Minute, batch: engine.MaxBatch, act: m.PruneUsageKeys},
		{name: upkeep.JobReleaseReservations, every: 15 * time.Second, act: m.ReleaseReservations},
		{name: upkeep.JobCancelOverBudget, every: 20 * time.Millisecond, batch: engine.MaxBatch, act: m.CancelOverBudget},
		{name: upkeep.JobDispatchCompletions, every: time.Second, act: m.DispatchCompletions},
		{name: upkeep.JobCancelFlows, every: 1500 * time.Millisecond, act: m.CancelFlows},
		// A group may have any number of upstreams.
		{name: upkeep.JobCancelSiblings, every: time.Second, batch: 50, act: m.CancelSiblings},
		{name: upkeep.JobExpireGrants, every: 5 * time.Second, act: m.ExpireGrants},
		{name: upkeep.JobUnblockRoutes, every: 5 * time.Second, act: m.UnblockRoutes},
		// Keep transactions short: the 99th percentile of claims was twice as high beside batches of 1,000 as beside 200.
		{name: upkeep.JobRetain, every: time.Second, batch: 200, act: m.Retain},
		{name: upkeep.JobTrimOutboxes, every: 5 * time.Second, sweep: true, idle: 10 * time.Minute, after: upkeep.JobRetain, batch: 200, act: m.TrimOutboxes},
		{name: upkeep.JobPurgeFlows, every: 5 * time.Second, sweep: true, idle: 10 * time.Minute, after: upkeep.JobRetain, act: m.PurgeFlows},
		// 500 rows a second.
		{name: upkeep.JobRepairQueue, every: 30 * time.Second, sweep: true, batch: upkeep.MaxSweep, act: m.RepairQueue},
		{name: upkeep.JobRepairGroups, every: time.Minute, sweep: true, batch: upkeep.MaxSweep, act: m.RepairGroups},
		{name: upkeep.JobSummariseFlows, every: 15 * time.Second, sweep: true, idle: time.Minute, batch: upkeep.MaxSweep, act: m.SummariseFlows},
		{name: upkeep.JobSweepWaits, every: time.Minute, sweep: true, idle: 10 * time.Minute, batch: upkeep.MaxSweep, act: m.SweepWaits},
		{name: upkeep.JobSweepWorkers, every: 30 * time.Second, sweep: true, idle: time.Minute, batch: engine.MaxBatch, act: m.SweepWorkers},
		{name: upkeep.JobPruneWorkerEvents, every: 10 * time.Minute, sweep: true, idle: time.Hour, batch: engine.MaxBatch, act: m.PruneWorkerEvents},
		{name: upkeep.JobForgetLimitKeys, every: 10 * time.Minute, sweep: true, idle: time.Hour, batch: upkeep.MaxSweep, act: m.ForgetLimitKeys},
		// 3,000 rows a second.
		{name: upkeep.JobForgetFairPlaces, every: 5 * time.Second, sweep: true, idle: 10 * time.Minute, batch: upkeep.MaxSweep, act: m.ForgetFairPlaces},
	}
}

// New returns a reconciler for the database of eng, without using the database.
//
// Errors: [fferr.ErrInvalidInput] with the invalid field of cfg, or for an engine that is nil or bound to a
// transaction.
func New(eng *engine.Engine, cfg Config) (*Reconciler, error) {
	if eng == nil {
		return nil, &fferr.InputError{Field: "engine", Reason: "is nil"}
	}
	if core.Of(eng).Tx != nil {
		return nil, &fferr.InputError{Field: "engine", Reason: "is bound to a transaction, and a reconciler outlives it"}
	}
	cfg.Log = cmp.Or(cfg.Log, core.Of(eng).Log)
	return newReconciler(upkeep.Of(eng), observed(jobsOf(upkeep.Of(eng)), core.Of(eng)), cfg)
}

// observed returns jobs that report each call to the observer, if there is one.
func observed(jobs []job, c *core.Core) []job {
	if c.Observer == nil {
		return jobs
	}
	for i := range jobs {
		name, act := string(jobs[i].name), jobs[i].act
		jobs[i].act = func(ctx context.Context, batch int) (int, error) {
			began := time.Now()
			acted, err := act(ctx, batch)
			c.Observe(ctx, observe.JobRan{Job: name, Acted: acted, Took: time.Since(began), Err: err})
			return acted, err
		}
	}
	return jobs
}

func newReconciler(eng operations, jobs []job, cfg Config) (*Reconciler, error) {
	refuse := func(field, reason string) error {
		return &fferr.InputError{Field: "Config." + field, Reason: reason}
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
		return nil, refuse("Queued", "must be set together with Lanes")
	}
	return &Reconciler{eng: eng, jobs: jobs, cfg: cfg}, nil
}

// hold returns how long a silent process keeps its jobs.
func (r *Reconciler) hold() time.Duration { return r.scaled(4 * time.Second) }

// scaled converts a time for the default interval to the configured one.
func (r *Reconciler) scaled(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)*(float64(r.cfg.Interval)/float64(DefaultInterval))), time.Millisecond)
}

// Run runs background work until ctx ends. Then Run releases its jobs and returns after the last call. Run logs and
// retries failures of the engine, and returns no error. Run may be called repeatedly and concurrently.
//
// Run doesn't check the database. A worker does at its start; a program with only a Reconciler calls
// [engine.Engine.Prepare] with [engine.RoleWorker] first. Otherwise a missing grant shows only in the log.
func (r *Reconciler) Run(ctx context.Context) {
	s := newSchedule(r, time.Now())
	defer s.end()
	defer r.eng.OnRescheduled(func() { remind(s.changed) })()
	defer r.eng.OnGated(func() { remind(s.gated) })()
	defer s.awaitEnds(false)
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
			s.call(upkeep.JobDispatchCompletions)
		case <-r.eng.Unneeded():
			s.call(upkeep.JobCancelSiblings)
		case <-r.eng.Delayed():
			s.expectDelay()
		case <-r.eng.CallEnded():
			s.call(upkeep.JobResumeCallers)
		case <-r.eng.SequenceEnded():
			s.call(upkeep.JobAdvanceSequences)
		case <-r.eng.Rescheduled():
			s.expectNearby(upkeep.JobRunSchedules)
		case <-r.eng.OverBudget():
			s.expectNearby(upkeep.JobCancelOverBudget)
		case <-r.eng.Gated():
			s.expectNearby(upkeep.JobAdmitWaiting)
		case <-s.changed:
			s.expect(upkeep.JobRunSchedules)
		case <-s.gated:
			s.expect(upkeep.JobAdmitWaiting)
		case <-s.ended:
			s.expectEnd(time.Now())
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
