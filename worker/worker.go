// Package worker runs handlers for executions. A worker claims executions from lanes, runs the handlers registered for
// their kinds, renews the leases and settles the outcomes.
//
//	var Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}
//
//	w, err := worker.New(eng, worker.Config{})
//	worker.Handle(w, Resize, func(ctx context.Context, job worker.Job[ResizeArgs]) (ResizeResult, error) { … })
//	err = w.Run(ctx) // until ctx ends, then drains
//
// Run one worker per process for all its handlers. One fetcher claims in batches, settlers complete and fail in batches,
// and one heartbeat renews all leases in one statement. A worker that claims one execution at a time ([Config.FetchBatch])
// completes the previous one in the same transaction.
//
// A handler that has to wait for a signal, a time or other executions returns the error of the wait. Its execution
// leaves the worker, and the handler runs again from its beginning after the wait.
//
// An execution is handled at least once. The holder of the newest lease stores its result, exactly once. Work is
// acknowledged only after the commit, so a killed worker loses none: its leases expire, and other workers continue.
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

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/stream"
)

// callTimeout limits one claim or settlement.
const callTimeout = 30 * time.Second

// ErrRunning reports that the worker is already running.
var ErrRunning = errors.New("worker runs already")

// Worker runs handlers for executions from a set of lanes.
type Worker struct {
	eng       operations
	cfg       Config
	reconcile func(context.Context, *run)
	running   atomic.Bool
	recorder  *recorder
	appender  *appender

	observerPanics atomic.Int64
	stuckHandlers  atomic.Int64

	current  atomic.Pointer[run] // while it runs
	returned atomic.Bool         // the last run is over

	mu         sync.Mutex
	kinds      handledKinds
	middleware []Middleware
	mistakes   []error // bad registrations
}

// handledKinds lists the kinds that a worker has handlers for.
type handledKinds struct {
	handlers map[string]handler // by kind name
	lanes    []id.LaneID        // the lane of each kind
	most     map[string]int     // the concurrency of the kinds that have a limit; nil if none has

	timeouts map[string]time.Duration // of the kinds that have one; nil if none has
}

// operations are the engine operations used by this package.
type operations interface {
	log() *slog.Logger
	traceContext(ctx context.Context) string
	clock() func() time.Time // nil: the database's
	Prepare(ctx context.Context, roles ...engine.Role) error
	Listen(ctx context.Context, wake func(id.LaneID)) error
	ListenLost(ctx context.Context, instance id.WorkerInstanceID, lost func()) error
	Flush()
	NewClaimer(spec engine.ClaimSpec) (claimer, error)
	RenewLeases(ctx context.Context, renewals []engine.Renewal) ([]fferr.Outcome[time.Time], error)
	CompleteExecution(ctx context.Context, l engine.Lease, result []byte) error
	CompleteExecutions(ctx context.Context, completions []engine.Completion) ([]error, error)
	FailExecution(ctx context.Context, l engine.Lease, f engine.Failure) (engine.Failed, error)
	FailExecutions(ctx context.Context, failures []engine.AttemptFailure) ([]fferr.Outcome[engine.Failed], error)
	DelayExecutions(ctx context.Context, delays []engine.Delay) ([]error, error)
	WaitForChildren(ctx context.Context, l engine.Lease) (engine.Waiting, error)
	WaitForChildrenEach(ctx context.Context, leases []engine.Lease) ([]fferr.Outcome[engine.Waiting], error)
	SuspendEach(ctx context.Context, specs []engine.SuspendSpec) ([]fferr.Outcome[engine.Suspended], error)
	ReceivedSignals(ctx context.Context, x id.ExecutionID) ([]engine.ReceivedSignal, error)
	RecordStep(ctx context.Context, step engine.StepRecord) (engine.Recorded, error)
	RecordSteps(ctx context.Context, steps []engine.StepRecord) ([]fferr.Outcome[engine.Recorded], error)
	StepResults(ctx context.Context, x id.ExecutionID) ([]engine.Step, error)
	checkFrame(f *stream.FrameSpec) error
	maxPayload() int // of a frame
	frameAppender
	appendEach(ctx context.Context, batches []stream.Batch) ([]fferr.Outcome[stream.Appended], error)
	Call(ctx context.Context, spec engine.CallSpec) ([]id.ExecutionID, error)
	CalledResults(ctx context.Context, called []id.ExecutionID) ([]engine.CalledResult, error)
	CreateWaitpoint(ctx context.Context, spec engine.WaitpointSpec) (engine.Waitpoint, error)
	ReleaseLeases(ctx context.Context, leases []engine.Lease) ([]error, error)
	ReportProgress(ctx context.Context, l engine.Lease, p engine.Progress) error
	ReportUsage(ctx context.Context, usage budget.Usage) (budget.Result, error)
	Reserve(ctx context.Context, f id.Fence, spec budget.ReserveSpec) (budget.Result, error)
	Settle(ctx context.Context, f id.Fence, spec budget.SettleSpec) (budget.Result, error)
	HoldLimit(ctx context.Context, x id.ExecutionID, key engine.LimitKey, until time.Time) error
	UpstreamResults(ctx context.Context, x id.ExecutionID) ([]engine.UpstreamResult, error)
	QueuedLanes(ctx context.Context, lanes []id.LaneID) ([]id.LaneID, error)
	WaitingKinds(ctx context.Context, filter engine.WaitingFilter) ([]engine.WaitingKind, error)
	RegisterWorker(ctx context.Context, w engine.WorkerRegistration) (engine.Presence, error)
	HeartbeatWorker(ctx context.Context, beat engine.Heartbeat) (engine.Presence, error)
	MarkWorkerDead(ctx context.Context, name engine.WorkerName, worker id.WorkerID, reason string) error
	ListWorkers(ctx context.Context, filter engine.WorkerFilter, after string, limit int) (engine.Page[engine.RegisteredWorker], error)

	// completeIn completes an execution in a handler's transaction.
	completeIn(ctx context.Context, tx pgx.Tx, l engine.Lease, result []byte) error

	// inTx appends frames in a handler's transaction.
	inTx(tx pgx.Tx) frameAppender

	// turnIn runs fn, appends its frames, stores the returned step and calls end, all in one transaction: see onEngine.
	turnIn(
		ctx context.Context, fn func(tx pgx.Tx, eng *engine.Engine) (engine.StepRecord, error),
		frames func(ctx context.Context, eng frameAppender) error,
		end func(ctx context.Context, eng *engine.Engine) (ended bool, err error),
	) (engine.Recorded, error)

	// backgroundRuns reports whether a process holds a background job.
	backgroundRuns(ctx context.Context) (bool, error)

	// callEnded notes that a called execution has ended.
	callEnded()

	// sequenceEnded notes that executions of sequences have ended. The next ones are probably on the given lanes.
	sequenceEnded(lanes []id.LaneID)

	// claimEach fills in claims by one transaction.
	claimEach(ctx context.Context, claims []*laneClaim)

	// connections returns the size of the engine's pool. apart returns the engine on separate connections, and a
	// function to close them.
	connections() int
	apart(connections int32) (operations, func(), error)
}

// claimer is an [engine.Claimer].
type claimer interface {
	Claim(ctx context.Context, n int) ([]engine.Claimed, error)
	CompleteAndClaim(ctx context.Context, completions []engine.Completion, n int) ([]error, []engine.Claimed, error)
	Wake()
	Halted() state.Halt
}

// New returns a worker without handlers. It does not use the database.
//
// By default [Worker.Run] claims, renews, settles and does the background work on connections of its own, up to
// fourteen, or eight with [Config.NoReconcile]. Run opens connections when needed, and closes them after a minute
// without use. So handlers that use up the pool of eng cost time, not leases. [Config.SharePool] turns this off. From
// the pool itself the worker briefly uses one connection for notifications.
//
// Errors: [fferr.ErrInvalidInput] with the invalid field of cfg, such as "Config.LeaseTTL", or for an engine that is
// nil or bound to a transaction.
func New(eng *engine.Engine, cfg Config) (*Worker, error) {
	if eng == nil {
		return nil, &fferr.InputError{Field: "engine", Reason: "is nil"}
	}
	if core.Of(eng).Tx != nil {
		return nil, &fferr.InputError{Field: "engine", Reason: "is bound to a transaction, and a worker outlives it"}
	}
	w, err := newWorker(onEngine{eng}, cfg)
	if err != nil || cfg.NoReconcile {
		return w, err
	}
	w.reconcile = func(ctx context.Context, r *run) {
		rc := reconcile.Config{Instance: w.cfg.Instance, Log: w.cfg.Log}
		if w.cfg.PollInterval <= reconcile.DefaultInterval {
			rc.Lanes, rc.Queued = r.laneNames, r.poll
		}
		if of, err := reconcile.New(r.settling.(onEngine).Engine, rc); err == nil { // all of it was validated already
			of.Run(ctx)
		}
	}
	return w, nil
}

// newWorker returns a worker without background work.
func newWorker(eng operations, cfg Config) (*Worker, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, eng.log())
	return &Worker{
		eng: eng, cfg: cfg, kinds: handledKinds{handlers: make(map[string]handler)},
	}, nil
}

// register adds a handler, or records why it is refused.
func (w *Worker) register(kind string, lane id.LaneID, mistake error, h handler, given kindOptions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	refuse := func(reason string) error {
		return &fferr.InputError{Field: fmt.Sprintf("handler of the kind %q", kind), Reason: reason}
	}
	_, taken := w.kinds.handlers[kind]
	switch {
	case mistake != nil:
	case h == nil:
		mistake = refuse("is nil")
	case taken:
		mistake = refuse("is registered twice")
	default:
		w.kinds.handlers[kind] = h
		w.kinds.lanes = append(w.kinds.lanes, cmp.Or(lane, engine.DefaultLane))
		if given.concurrency {
			if w.kinds.most == nil {
				w.kinds.most = make(map[string]int)
			}
			w.kinds.most[kind] = given.most
		}
		if given.timeout {
			if w.kinds.timeouts == nil {
				w.kinds.timeouts = make(map[string]time.Duration)
			}
			w.kinds.timeouts[kind] = given.after
		}
		return
	}
	w.mistakes = append(w.mistakes, fmt.Errorf("worker: %w", mistake))
}

// handledKinds returns the registered kinds, or the registration errors.
func (w *Worker) handledKinds() (handledKinds, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mistakes) > 0 {
		return handledKinds{}, errors.Join(w.mistakes...)
	}
	if len(w.kinds.handlers) == 0 {
		return handledKinds{}, fmt.Errorf("worker: %w", &fferr.InputError{Field: "handlers", Reason: "none is registered"})
	}
	kinds := handledKinds{
		handlers: maps.Clone(w.kinds.handlers), lanes: slices.Clone(w.kinds.lanes),
		most: maps.Clone(w.kinds.most), timeouts: maps.Clone(w.kinds.timeouts),
	}
	if len(w.middleware) == 0 {
		return kinds, nil
	}
	for kind, inner := range kinds.handlers {
		var err error
		if kinds.handlers[kind], err = wrapped(kind, inner, w.middleware); err != nil {
			return handledKinds{}, fmt.Errorf("worker: %w", err)
		}
	}
	return kinds, nil
}

// run is the state shared by the goroutines of one run.
type run struct {
	*Worker
	handlers  map[string]handler
	laneNames []id.LaneID
	lanes     []*lane
	slots     map[string]*slots    // of the kinds with a limit; nil if none has
	laneSlots map[id.LaneID]*slots // of all lanes; nil if none has handlers for itself
	timeouts  map[string]time.Duration
	hurry     <-chan struct{} // closed to cancel the handlers of a draining run at once; may be nil
	life      signsOfLife

	base    context.Context // Run's context without its end
	drained context.Context // ends after the drain timeout

	renewing   operations // on separate connections
	settling   operations // settles and claims, on separate connections
	disconnect func()

	held       holding
	late       throttle // limits claims while leases are renewed late
	retrier    *retrier
	queue      chan *task    // claimed and waiting for a handler
	handled    chan *task    // waiting to be settled
	members    chan *task    // like handled, for members of flows
	places     chan *task    // like handled, for those whose limit may let the next execution start
	turns      turns         // of the settlers of members
	recheck    chan struct{} // makes the fetcher check again
	losses     chan struct{} // notifies that leases may be lost
	drainCheck chan struct{} // notifies that the worker may be drained

	drainedBefore atomic.Bool  // logged that an operator has drained the worker
	answers       atomic.Int64 // answers to claims

	polledAt atomic.Int64 // when the background work last polled the lanes, since began
	began    time.Time
	notified atomic.Int64 // number of notifications about lanes
	load     atomic.Int64 // executions queued or with a handler
	refillAt atomic.Int64 // the load at which handlers notify the fetcher
	ran      atomic.Int64 // total running time of handlers
	renews   atomic.Bool  // a renewal is in progress
	pool     sync.WaitGroup
}

// Run handles executions until ctx ends. Then it stops claiming, returns queued work to its lane, and waits up to
// [Config.DrainTimeout] for running handlers before cancelling them. Executions whose handlers then return an error go
// back to their lane at no cost. Run returns when every handler has returned and every outcome is settled, so a handler
// that ignores its context blocks Run. Handlers get the values of ctx.
//
// Run waits through outages of the database. If the row or the flow of an execution is locked, Run keeps the result,
// renews the lease and retries until the lease is lost. With a thousand such results, Run stops claiming. After the
// handlers have returned, Run retries the rest for one more lease, and unfinished work for three seconds; other workers
// then handle it again.
//
// Errors: nil once ctx has ended. Otherwise the worker did not start: [fferr.ErrInvalidInput] for a bad registration or
// none; [ErrRunning]; the errors of [engine.Engine.Prepare].
func (w *Worker) Run(ctx context.Context) error { return w.run(ctx, nil) }

// run is Run. Closing hurry ends the drain timeout.
func (w *Worker) run(ctx context.Context, hurry <-chan struct{}) error {
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
	r.hurry = hurry
	r.warnOfPool()
	r.work(ctx)
	return nil
}

// newRun prepares a run. The caller closes its connections.
func (w *Worker) newRun(ctx context.Context, kinds handledKinds) (*run, error) {
	var lanes []id.LaneID
	for _, lane := range w.cfg.Lanes {
		lanes = append(lanes, lane.Name)
	}
	if len(lanes) == 0 {
		lanes = slices.Compact(slices.Sorted(slices.Values(kinds.lanes)))
	}
	r := &run{
		Worker:     w,
		handlers:   kinds.handlers,
		timeouts:   kinds.timeouts,
		laneNames:  lanes,
		base:       context.WithoutCancel(ctx),
		began:      time.Now(),
		queue:      make(chan *task, w.cfg.handlers()+maxQueued(w.cfg)),
		handled:    make(chan *task, w.cfg.SettleBatch),
		members:    make(chan *task, w.cfg.SettleBatch),
		places:     make(chan *task, w.cfg.SettleBatch),
		turns:      turns{one: make(chan struct{}, 1)},
		recheck:    make(chan struct{}, 1),
		losses:     make(chan struct{}, 1),
		drainCheck: make(chan struct{}, 1),
	}
	w.recorder, w.appender = newRecorder(), newAppender(w.eng)
	r.late.capacity, r.late.every = w.cfg.handlers(), w.cfg.LeaseTTL/3
	r.retrier = newRetrier(r)
	if err := r.connect(); err != nil {
		return nil, err
	}
	if err := r.addLanes(kinds.most); err != nil {
		r.disconnect()
		return nil, err
	}
	return r, nil
}

// addLanes adds the lanes: each once for the kinds without a limit, and once for each kind with one.
func (r *run) addLanes(most map[string]int) error {
	var together []string
	for kind := range r.handlers {
		if _, limited := most[kind]; !limited {
			together = append(together, kind)
		}
	}
	slices.Sort(together)
	if len(most) > 0 {
		r.slots = make(map[string]*slots, len(most))
	}
	for kind, n := range most {
		r.slots[kind] = &slots{most: n}
	}
	if r.cfg.ownHandlers() > 0 {
		shared := &slots{most: r.cfg.Concurrency}
		r.laneSlots = make(map[id.LaneID]*slots, len(r.cfg.Lanes))
		for _, lane := range r.cfg.Lanes {
			r.laneSlots[lane.Name] = shared
			if lane.Concurrency > 0 {
				r.laneSlots[lane.Name] = &slots{most: lane.Concurrency}
			}
		}
	}
	for _, name := range r.laneNames {
		first := len(r.lanes)
		if len(together) > 0 {
			if err := r.addLane(name, together); err != nil {
				return err
			}
		}
		for _, kind := range slices.Sorted(maps.Keys(most)) {
			if err := r.addLane(name, []string{kind}); err != nil {
				return err
			}
		}
		for _, l := range r.lanes[first+1:] {
			l.again = true
		}
	}
	return nil
}

func (r *run) addLane(name id.LaneID, kinds []string) error {
	c, err := r.settling.NewClaimer(r.claimSpec(name, kinds))
	if err == nil {
		// A kind with a limit is claimed alone.
		r.lanes = append(r.lanes, &lane{name: name, kinds: kinds, claimer: c, slots: r.limitsOf(name, kinds[0])})
	}
	return err
}

// limitsOf returns the limits of a kind in a lane.
func (r *run) limitsOf(lane id.LaneID, kind string) (of limits) {
	if s := r.slots[kind]; s != nil {
		of = append(of, s)
	}
	if s := r.laneSlots[lane]; s != nil {
		of = append(of, s)
	}
	return of
}

func (r *run) claimSpec(lane id.LaneID, kinds []string) engine.ClaimSpec {
	return engine.ClaimSpec{
		Lane:         lane,
		Capabilities: id.NewCapabilities(r.cfg.Capabilities...),
		Kinds:        kinds, // others stay in the lane
		Worker:       r.cfg.Worker,
		Instance:     r.cfg.Instance,
		LeaseTTL:     r.cfg.LeaseTTL,
	}
}

// oneByOne reports whether the fetcher also settles, each completion in one transaction with the next claim. One
// transaction halves the commits of a worker claiming one at a time. With batches the gain is nothing, except for work
// whose limit is full.
func (r *run) oneByOne() bool { return r.cfg.FetchBatch == 1 }

// work starts the goroutines of a run and stops them in order: fetcher, handlers, settlers, retrier, heartbeat.
func (r *run) work(ctx context.Context) {
	drained, endDrain := context.WithCancel(r.base)
	defer endDrain()
	r.drained = drained
	r.current.Store(r)
	defer func() {
		r.returned.Store(true)
		r.current.Store(nil)
	}()

	var beside, settling, beating sync.WaitGroup
	defer func() {
		beside.Wait()
		r.eng.Flush() // the caller may close the pool next
	}()
	beside.Go(func() { r.background(ctx) })
	beside.Go(func() {
		if err := r.eng.Listen(ctx, r.onNotification); ctx.Err() == nil {
			r.cfg.Log.Warn("no notifications of new work; polling the lanes: check the engine's Listener", "error", err)
		}
	})
	beside.Go(func() { r.watchUnserved(ctx) })
	stopped := make(chan struct{})
	listening, stopListening := context.WithCancel(r.base)
	defer stopListening()
	beating.Go(func() { r.heartbeat(stopped) })
	beating.Go(func() { r.listenForLosses(listening) })
	beating.Go(func() { r.watchStuck(stopped) })
	if !r.cfg.NoRegister {
		beating.Go(func() { r.keepPresence(ctx, stopped) })
	}
	r.retrier.begin()
	fetching := &fetcher{run: r, stopped: make(chan struct{})}
	settling.Go(func() {
		if r.oneByOne() {
			<-fetching.stopped
		}
		(&settler{run: r, tasks: r.handled}).settle()
	})
	settling.Go(func() {
		<-fetching.stopped
		(&settler{run: r, tasks: r.places}).settle()
	})
	for range memberSettlers {
		settling.Go((&settler{run: r, tasks: r.members, turns: &r.turns}).settle)
	}
	beating.Go(r.recordSteps)
	beating.Go(r.appendFrames)
	for range r.cfg.handlers() {
		r.pool.Go(r.handleQueued)
	}
	r.pool.Go(func() { fetching.fetch(ctx) })

	handled := make(chan struct{})
	go func() {
		r.pool.Wait()
		close(handled)
	}()
	<-ctx.Done()
	r.life.draining.Store(true)
	r.cfg.Log.Info("worker drains", "under_way", r.held.len())
	patience := time.NewTimer(r.cfg.DrainTimeout)
	defer patience.Stop()
	select {
	case <-handled:
	case <-patience.C:
		endDrain()
		r.cfg.Log.Warn("drain timeout has passed; cancelling handlers: raise DrainTimeout if they need longer", "running", r.held.interrupt(ErrShutdown))
		<-handled
	case <-r.hurry:
		endDrain()
		r.cfg.Log.Warn("second signal; cancelling handlers", "running", r.held.interrupt(ErrShutdown))
		<-handled
	}
	close(r.handled)
	close(r.members)
	close(r.places)
	settling.Wait()
	r.retrier.end(r.cfg.LeaseTTL)
	stopListening()
	close(stopped)
	close(r.recorder.stopped)
	close(r.appender.stopped)
	beating.Wait()
}
