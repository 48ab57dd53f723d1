// Package worker handles executions: it claims them from lanes, runs the handlers that are registered for their
// kinds, keeps their leases alive meanwhile and settles what became of them.
//
//	var Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}
//
//	w, err := worker.New(eng, worker.Config{})
//	worker.Handle(w, Resize, func(ctx context.Context, job worker.Job[ResizeArgs]) (ResizeResult, error) { … })
//	err = w.Run(ctx) // until ctx ends, then drains
//
// One process runs one worker for all its handlers: one fetcher claims for them in batches, settlers complete and
// fail in batches, one heartbeat renews all leases in one statement. A worker that claims one execution at a time
// ([Config.FetchBatch]) completes the one before it in the same transaction. An execution is handled at least once;
// its result is stored exactly once, by the holder of the newest lease. Nothing is acknowledged before it is
// committed, so a worker that is killed loses no work: its leases run out, and others go on.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/reconcile"
)

// callTimeout is how long one claim or settlement may take.
const callTimeout = 30 * time.Second

// ErrRunning: the worker runs already.
var ErrRunning = errors.New("worker runs already")

// Worker runs handlers for the executions of some lanes.
type Worker struct {
	eng       operations
	cfg       Config
	reconcile func(context.Context, *run)
	running   atomic.Bool

	hookPanics atomic.Int64

	poolConnections int // that the worker itself may use of the pool at once

	mu       sync.Mutex
	kinds    handledKinds
	mistakes []error // of registrations
}

// handledKinds is the kinds that a worker has handlers for.
type handledKinds struct {
	handlers map[string]handler // by the kind's name
	lanes    []id.LaneID        // of the kinds, one for each
}

// operations is what this package needs of an engine.
type operations interface {
	Log() *slog.Logger
	Prepare(ctx context.Context, roles ...engine.Role) error
	Listen(ctx context.Context, wake func(id.LaneID)) error
	ListenLost(ctx context.Context, instance id.WorkerInstanceID, lost func()) error
	NewClaimer(spec engine.ClaimSpec) (claimer, error)
	RenewLeases(ctx context.Context, renewals []engine.Renewal) ([]engine.Outcome[time.Time], error)
	CompleteExecution(ctx context.Context, l engine.Lease, result []byte) error
	CompleteExecutions(ctx context.Context, completions []engine.Completion) ([]error, error)
	FailExecution(ctx context.Context, l engine.Lease, f engine.Failure) (engine.Failed, error)
	FailExecutions(ctx context.Context, failures []engine.AttemptFailure) ([]engine.Outcome[engine.Failed], error)
	DelayExecutions(ctx context.Context, delays []engine.Delay) ([]error, error)
	WaitForChildren(ctx context.Context, l engine.Lease) (engine.Waiting, error)
	WaitForChildrenEach(ctx context.Context, leases []engine.Lease) ([]engine.Outcome[engine.Waiting], error)
	ReleaseLeases(ctx context.Context, leases []engine.Lease) ([]error, error)
	ReportProgress(ctx context.Context, l engine.Lease, p engine.Progress) error
	UpstreamResults(ctx context.Context, x id.ExecutionID) ([]engine.UpstreamResult, error)
	QueuedLanes(ctx context.Context, lanes []id.LaneID) ([]id.LaneID, error)
	WaitingKinds(ctx context.Context, filter engine.WaitingFilter) ([]engine.WaitingKind, error)

	// completeIn completes an execution in a handler's transaction.
	completeIn(ctx context.Context, tx pgx.Tx, l engine.Lease, result []byte) error

	// claimEach fills in claims by one transaction.
	claimEach(ctx context.Context, claims []*laneClaim)

	// connections is how many the engine's pool may have. apart returns the engine on others than these, and what
	// closes them.
	connections() int
	apart(connections int32) (operations, func(), error)
}

// claimer is an [engine.Claimer].
type claimer interface {
	Claim(ctx context.Context, n int) ([]engine.Claimed, error)
	CompleteAndClaim(ctx context.Context, completions []engine.Completion, n int) ([]error, []engine.Claimed, error)
	Wake()
	Halted() engine.Halt
}

// New returns a worker without handlers. It does not touch the database.
//
// What the worker claims, renews and settles does not depend on the pool of eng: [Worker.Run] opens up to six connections
// of its own beside it, unless [Config.SharePool] forbids it. Handlers may hold the whole pool; that costs time, not
// leases. Of the pool itself the worker uses, for a moment each, one connection to notify others, one to look for work
// that nobody takes, and one for each background job that is at work.
//
// Errors: [engine.ErrInvalidInput] naming the field of cfg that is out of its bounds, as "Config.LeaseTTL", or the engine
// if it is nil or bound to a transaction.
func New(eng *engine.Engine, cfg Config) (*Worker, error) {
	if eng == nil {
		return nil, &engine.InputError{Field: "engine", Reason: "is nil"}
	}
	if eng.Tx() != nil {
		return nil, &engine.InputError{Field: "engine", Reason: "is bound to a transaction, and a worker outlives it"}
	}
	w, err := newWorker(onEngine{eng}, cfg)
	if err != nil || cfg.NoReconcile {
		return w, err
	}
	background := func(r *run) (*reconcile.Reconciler, error) {
		rc := reconcile.Config{Instance: w.cfg.Instance, Log: w.cfg.Log}
		if r != nil && w.cfg.PollInterval <= reconcile.DefaultInterval {
			rc.Lanes, rc.Queued = r.laneNames, r.poll
		}
		return reconcile.New(eng, rc)
	}
	of, err := background(nil)
	if err != nil {
		return nil, err
	}
	w.poolConnections += of.Jobs() + 1
	w.reconcile = func(ctx context.Context, r *run) {
		if of, err := background(r); err == nil { // as before: the lanes are valid
			of.Run(ctx)
		}
	}
	return w, nil
}

// newWorker is a worker without background work.
func newWorker(eng operations, cfg Config) (*Worker, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, eng.Log())
	return &Worker{
		eng: eng, cfg: cfg, poolConnections: 1, kinds: handledKinds{handlers: make(map[string]handler)},
	}, nil
}

// register takes a handler, or remembers why it cannot be taken.
func (w *Worker) register(kind string, lane id.LaneID, mistake error, h handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	refuse := func(reason string) error {
		return &engine.InputError{Field: fmt.Sprintf("handler of the kind %q", kind), Reason: reason}
	}
	_, taken := w.kinds.handlers[kind]
	switch {
	case mistake != nil:
	case h == nil:
		mistake = refuse("is nil")
	case taken:
		mistake = refuse("is the second one")
	default:
		w.kinds.handlers[kind] = h
		w.kinds.lanes = append(w.kinds.lanes, cmp.Or(lane, engine.DefaultLane))
		return
	}
	w.mistakes = append(w.mistakes, fmt.Errorf("worker: %w", mistake))
}

// handledKinds returns what is handled, or what was wrong with the registrations.
func (w *Worker) handledKinds() (handledKinds, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mistakes) > 0 {
		return handledKinds{}, errors.Join(w.mistakes...)
	}
	if len(w.kinds.handlers) == 0 {
		return handledKinds{}, fmt.Errorf("worker: %w", &engine.InputError{Field: "handlers", Reason: "there is none"})
	}
	return handledKinds{handlers: maps.Clone(w.kinds.handlers), lanes: slices.Clone(w.kinds.lanes)}, nil
}

// run is what the goroutines of one run of a worker share.
type run struct {
	*Worker
	handlers  map[string]handler
	laneNames []id.LaneID
	lanes     []*lane

	base    context.Context // the values of Run's context, but not its end
	drained context.Context // ends when the drain timeout has passed

	renewing   operations // on connections of their own
	settling   operations // and claiming
	disconnect func()

	held    holding
	late    throttle // of a worker that is late for its leases
	aside   *aside
	queue   chan *task    // claimed and waiting for a handler
	handled chan *task    // waiting to be settled
	members chan *task    // the same, of flows
	turns   turns         // of those who settle members
	roused  chan struct{} // the fetcher may have something to do
	losses  chan struct{} // some leases are said to be lost

	polledAt atomic.Int64 // when the lanes were last looked at by somebody else, since began
	began    time.Time
	heard    atomic.Int64 // how often somebody said that a lane has work
	load     atomic.Int64 // executions that are queued or with a handler
	refillAt atomic.Int64 // the load at which the fetcher is roused
	ran      atomic.Int64 // how long handlers have run for, all together
	renews   atomic.Bool  // a renewal is under way
	pool     sync.WaitGroup
}

// Run handles executions until ctx ends. Then it claims no more, gives queued work back, and lets running handlers
// finish for up to [Config.DrainTimeout] before it cancels them; those that then return an error go back to their lane
// at no cost. It returns when all handlers have returned and everything is settled, and leaves no goroutine behind: a
// handler that ignores its context keeps Run from returning. The handlers' contexts carry the values of ctx.
//
// Run opens connections of its own and closes them when it returns ([New]). It warns, once, when the pool is smaller
// than what the worker itself may use of it.
//
// A database that goes away while the worker runs is waited for. A result that cannot be settled, because somebody else
// has locked its execution or its flow, is set aside and tried again while the others are settled. It is given up when
// its lease is lost, and not before: renewals wait for nobody. While a thousand results wait like that, the worker
// claims no more. After ctx has ended and all handlers have returned, results that are left are tried for as long as a
// lease lasts, and work that goes back unfinished for three seconds; what is given up then is handled again by others.
//
// Errors: nil after ctx has ended. Otherwise the worker did not start: [engine.ErrInvalidInput] for a mistaken
// registration, and for none at all; [ErrRunning]; or the database is not fit for the engine, with the errors of
// [engine.Engine.Prepare].
func (w *Worker) Run(ctx context.Context) error {
	kinds, err := w.handledKinds()
	if err != nil {
		return err
	}
	if !w.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer w.running.Store(false)
	r, err := w.newRun(ctx, kinds)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer r.disconnect()
	if err := r.renewing.Prepare(ctx, engine.RoleWorker); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("worker: %w", err)
	}
	r.work(ctx)
	return nil
}

// newRun prepares a run. Its connections are to be closed when it is over.
func (w *Worker) newRun(ctx context.Context, kinds handledKinds) (*run, error) {
	lanes := w.cfg.Lanes
	if len(lanes) == 0 {
		lanes = slices.Compact(slices.Sorted(slices.Values(kinds.lanes)))
	}
	r := &run{
		Worker:    w,
		handlers:  kinds.handlers,
		laneNames: lanes,
		base:      context.WithoutCancel(ctx),
		began:     time.Now(),
		queue:     make(chan *task, w.cfg.Concurrency+maxQueued(w.cfg)),
		handled:   make(chan *task, w.cfg.SettleBatch),
		members:   make(chan *task, w.cfg.SettleBatch),
		turns:     turns{one: make(chan struct{}, 1)},
		roused:    make(chan struct{}, 1),
		losses:    make(chan struct{}, 1),
	}
	r.late.every = w.cfg.LeaseTTL / 3
	r.aside = newAside(r)
	if err := r.connect(); err != nil {
		return nil, err
	}
	for _, name := range lanes {
		c, err := r.settling.NewClaimer(r.claimSpec(name))
		if err != nil {
			r.disconnect()
			return nil, err
		}
		r.lanes = append(r.lanes, &lane{name: name, claimer: c})
	}
	return r, nil
}

func (r *run) claimSpec(lane id.LaneID) engine.ClaimSpec {
	return engine.ClaimSpec{
		Lane:         lane,
		Capabilities: id.NewCapabilities(r.cfg.Capabilities...),
		Kinds:        slices.Sorted(maps.Keys(r.handlers)), // the rest is for others
		Worker:       r.cfg.Worker,
		Instance:     r.cfg.Instance,
		LeaseTTL:     r.cfg.LeaseTTL,
	}
}

// oneByOne: the fetcher settles too, each completion in one transaction with the next claim. In batches that
// wins nothing, and one at a time it is half of the commits.
func (r *run) oneByOne() bool { return r.cfg.FetchBatch == 1 }

// work starts the goroutines of a run and ends them in order: the fetcher, the handlers, the settlers, the aside, the
// heartbeat.
func (r *run) work(ctx context.Context) {
	drained, endDrain := context.WithCancel(r.base)
	defer endDrain()
	r.drained = drained

	var beside, settling, beating sync.WaitGroup
	defer beside.Wait()
	if r.reconcile != nil {
		beside.Go(func() { r.reconcile(ctx, r) })
	}
	beside.Go(func() {
		if err := r.eng.Listen(ctx, r.hear); ctx.Err() == nil {
			r.cfg.Log.Warn("not told of new work; lanes are polled: check the engine's Listener", "error", err)
		}
	})
	beside.Go(func() { r.watchUnserved(ctx) })
	stopped := make(chan struct{})
	hearing, stopHearing := context.WithCancel(r.base)
	defer stopHearing()
	beating.Go(func() { r.heartbeat(stopped) })
	beating.Go(func() { r.hearLosses(hearing) })
	r.aside.begin()
	fetching := &fetcher{run: r, stopped: make(chan struct{})}
	settling.Go(func() {
		if r.oneByOne() {
			<-fetching.stopped
		}
		(&settler{run: r, tasks: r.handled}).settle()
	})
	for range memberSettlers {
		settling.Go((&settler{run: r, tasks: r.members, turns: &r.turns}).settle)
	}
	for range r.cfg.Concurrency {
		r.pool.Go(r.handleQueued)
	}
	r.pool.Go(func() { fetching.fetch(ctx) })

	handled := make(chan struct{})
	go func() {
		r.pool.Wait()
		close(handled)
	}()
	<-ctx.Done()
	r.cfg.Log.Info("worker drains", "under_way", r.held.len())
	patience := time.NewTimer(r.cfg.DrainTimeout)
	defer patience.Stop()
	select {
	case <-handled:
	case <-patience.C:
		endDrain()
		r.cfg.Log.Warn("handlers are cancelled since the drain timeout has passed: raise DrainTimeout if they need longer", "running", r.held.interrupt(ErrShutdown))
		<-handled
	}
	close(r.handled)
	close(r.members)
	settling.Wait()
	r.aside.end(r.cfg.LeaseTTL)
	stopHearing()
	close(stopped)
	beating.Wait()
}
