package worker

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// fakeEngine claims from its lanes, and records every call with the bubble's time.
type fakeEngine struct {
	wake   func(id.LaneID)
	lose   func()       // notifies that leases were lost
	beside atomic.Int64 // calls that last as long as the run
	apartN atomic.Int64 // separate connections of the run that are open
	causes chan error   // causes of cancelled contexts, from the handlers of untilCancelled

	mu    sync.Mutex
	lanes map[id.LaneID][]engine.Claimed
	record

	// Results of calls; nil means success. They are called under the lock.
	prepareErr  error
	claimErr    func() error
	renewErr    func(engine.Lease) (item, call error)
	renewTakes  func(leases int) time.Duration
	expires     map[id.ExecutionID]time.Time // when leases expire; nil for never
	doneErr     func([]engine.Completion) (item, call error)
	failErr     func([]engine.AttemptFailure) (item, call error)
	backErr     func(engine.Lease) error
	suspendErr  error
	cancelled   map[id.ExecutionID]bool
	waits       map[id.ExecutionID]engine.Waiting
	locked      map[id.ExecutionID]bool // by another transaction
	lockedLease map[id.ExecutionID]bool // like locked, for its attempt
	inLine      func(engine.Lease)      // called when a call waits for its lock
	claimTakes  time.Duration
	claimHangs  id.LaneID     // claims from this lane take a minute
	settleTakes time.Duration // duration of every settling call, but not of renewals
	claimBlind  func() bool   // whether claims miss the lane's work
	halts       map[id.LaneID]state.Halt
	waiting     func(engine.WaitingFilter) ([]engine.WaitingKind, error)

	streams fakeStreams

	background   func() (bool, error) // whether a process does background work; nil: one does
	presenceErr  func(call string) error
	drainedSince time.Time
	others       []engine.RegisteredWorker
}

// record is the calls that the engine received.
type record struct {
	claims  []call[id.LaneID]
	joint   []call[id.LaneID] // of several lanes together
	looks   []time.Duration   // times of polls of the lanes
	renewed []call[engine.Renewal]
	done    []call[engine.Completion]
	ended   map[id.ExecutionID]int // how often each was completed
	failed  []call[engine.AttemptFailure]
	back    []call[engine.Lease]
	flushed int // calls of back before the last Flush

	delayed  []call[engine.Delay]
	awaiting []call[engine.Lease]

	beats        []beat // calls of the registry
	registration engine.WorkerRegistration

	woken    int // total number of wake-ups of claimers
	together int // claims that also completed work

	claimsNow, claimsMost   int // in progress
	settlesNow, settlesMost int
}

// beat is one call of the registry: register, heartbeat, or the reason of the removal.
type beat struct {
	at       time.Duration
	call     string
	running  int
	stopping bool
	started  int // in all lanes
	full     []string
	stuck    int
}

// call is one batch passed to the engine, or one claim: its size and lane.
type call[T any] struct {
	at    time.Duration // since the engine was made
	items []T
	n     int
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // start of every bubble's clock

func sinceEpoch() time.Duration { return time.Since(epoch) }

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		lanes:       make(map[id.LaneID][]engine.Claimed),
		causes:      make(chan error, 8),
		halts:       make(map[id.LaneID]state.Halt),
		locked:      make(map[id.ExecutionID]bool),
		lockedLease: make(map[id.ExecutionID]bool),
		record:      record{ended: make(map[id.ExecutionID]int)},
	}
}

// work returns an execution of a kind, as from a claim.
func work(kind string) engine.Claimed {
	x := id.ExecutionIDFromRow(0, id.NewExecutionUUID())
	return engine.Claimed{ID: x, Lease: engine.Lease{Fence: id.Fence{Execution: x, Epoch: 1}}, Kind: kind}
}

func (f *fakeEngine) put(lane id.LaneID, works ...engine.Claimed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lanes[lane] = append(f.lanes[lane], works...)
}

func (f *fakeEngine) backgroundRuns(context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.background == nil {
		return true, nil
	}
	return f.background()
}

// putMany puts n executions of a kind into the default lane.
func (f *fakeEngine) putMany(n int, kind string) {
	for range n {
		f.put(engine.DefaultLane, work(kind))
	}
}

func (f *fakeEngine) log() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (f *fakeEngine) clock() func() time.Time { return nil }

func (f *fakeEngine) connections() int { return 100 }

func (f *fakeEngine) apart(connections int32) (operations, func(), error) {
	f.apartN.Add(int64(connections))
	return f, func() { f.apartN.Add(-int64(connections)) }, nil
}

func (f *fakeEngine) Prepare(context.Context, ...engine.Role) error { return f.prepareErr }

func (f *fakeEngine) Listen(ctx context.Context, wake func(id.LaneID)) error {
	f.wake = wake
	f.accompany(ctx)
	return ctx.Err()
}

func (f *fakeEngine) traceContext(context.Context) string { return "" }

func (f *fakeEngine) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushed = len(f.back)
}

func (f *fakeEngine) ListenLost(ctx context.Context, _ id.WorkerInstanceID, lost func()) error {
	f.lose = lost
	f.beside.Add(1)
	defer f.beside.Add(-1)
	<-ctx.Done()
	return ctx.Err()
}

// accompany returns a moment after ctx has ended.
//
//pace:allow the fake runs in bubbles alone
func (f *fakeEngine) accompany(ctx context.Context) {
	f.beside.Add(1)
	defer f.beside.Add(-1)
	<-ctx.Done()
	<-time.After(10 * time.Millisecond)
}

type fakeClaimer struct {
	*fakeEngine
	spec engine.ClaimSpec
}

func (f *fakeEngine) NewClaimer(spec engine.ClaimSpec) (claimer, error) {
	return &fakeClaimer{f, spec}, nil
}

func (c *fakeClaimer) Halted() state.Halt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.halts[c.spec.Lane]
}

// halt pauses a lane, or resumes it, without notifying the worker.
func (f *fakeEngine) halt(lane id.LaneID, halt state.Halt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.halts[lane] = halt
}

func (c *fakeClaimer) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.woken++
}

func (f *fakeEngine) WaitingKinds(_ context.Context, filter engine.WaitingFilter) ([]engine.WaitingKind, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		return nil, nil
	}
	return f.waiting(filter)
}

func (f *fakeEngine) RegisterWorker(_ context.Context, w engine.WorkerRegistration) (engine.Presence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registration = w
	return f.beat(beat{call: "register"})
}

func (f *fakeEngine) HeartbeatWorker(_ context.Context, b engine.Heartbeat) (engine.Presence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	started := 0
	for _, n := range b.Started {
		started += n
	}
	return f.beat(beat{call: "heartbeat", running: b.Running, stopping: b.Stopping, started: started, full: b.FullKinds, stuck: b.Stuck})
}

func (f *fakeEngine) MarkWorkerDead(_ context.Context, _ engine.WorkerName, _ id.WorkerID, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.beat(beat{call: reason})
	return err
}

// beat records a call of the registry. The caller holds the lock.
func (f *fakeEngine) beat(b beat) (engine.Presence, error) {
	b.at = sinceEpoch()
	f.beats = append(f.beats, b)
	if f.presenceErr != nil {
		if err := f.presenceErr(b.call); err != nil {
			return engine.Presence{}, err
		}
	}
	return engine.Presence{DrainedSince: f.drainedSince}, nil
}

func (f *fakeEngine) ListWorkers(_ context.Context, filter engine.WorkerFilter, _ string, _ int) (engine.Page[engine.RegisteredWorker], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var page engine.Page[engine.RegisteredWorker]
	for _, w := range f.others {
		if slices.Contains(w.Lanes, filter.Lane) {
			page.Items = append(page.Items, w)
		}
	}
	return page, nil
}

func (f *fakeEngine) QueuedLanes(ctx context.Context, lanes []id.LaneID) ([]id.LaneID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks = append(f.looks, sinceEpoch())
	var queued []id.LaneID
	for _, lane := range lanes {
		if len(f.lanes[lane]) > 0 {
			queued = append(queued, lane)
		}
	}
	return queued, ctx.Err()
}

//pace:allow the fake runs in bubbles alone
func (c *fakeClaimer) Claim(ctx context.Context, n int) ([]engine.Claimed, error) {
	at := sinceEpoch()
	c.claiming(1)
	defer c.claiming(-1)
	if c.spec.Lane == c.claimHangs {
		<-time.After(time.Minute)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(c.claimTakes):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims = append(c.claims, call[id.LaneID]{at: at, items: []id.LaneID{c.spec.Lane}, n: n})
	if c.claimErr != nil {
		if err := c.claimErr(); err != nil {
			return nil, err
		}
	}
	if c.halts[c.spec.Lane] != state.NotHalted || c.claimBlind != nil && c.claimBlind() {
		return nil, nil
	}
	var claimed, passedOver []engine.Claimed
	rest := c.lanes[c.spec.Lane]
	for ; len(rest) > 0 && len(claimed) < n; rest = rest[1:] {
		if x := rest[0]; slices.Contains(c.spec.Kinds, x.Kind) {
			claimed = append(claimed, x)
		} else {
			passedOver = append(passedOver, x)
		}
	}
	if len(passedOver) > 0 { // otherwise avoid copying the lane, which may be long
		rest = append(passedOver, rest...)
	}
	c.lanes[c.spec.Lane] = rest
	for i := range claimed {
		claimed[i].Lease.TTL = c.spec.LeaseTTL
		claimed[i].Lease.Lane = c.spec.Lane
		_ = c.lease(claimed[i].Lease)
	}
	return claimed, nil
}

// claiming counts the claims in progress.
func (f *fakeEngine) claiming(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claimsNow += n
	f.claimsMost = max(f.claimsMost, f.claimsNow)
}

func (f *fakeEngine) completeIn(ctx context.Context, _ pgx.Tx, l engine.Lease, result []byte) error {
	return f.CompleteExecution(ctx, l, result)
}

func (f *fakeEngine) claimEach(ctx context.Context, claims []*laneClaim) {
	tx := call[id.LaneID]{at: sinceEpoch()}
	for _, c := range claims {
		tx.items, tx.n = append(tx.items, c.lane.name), tx.n+c.n
	}
	f.mu.Lock()
	f.joint = append(f.joint, tx)
	f.mu.Unlock()
	for _, c := range claims {
		c.claimed, c.err = c.lane.claimer.Claim(ctx, c.n)
	}
}

func (c *fakeClaimer) CompleteAndClaim(
	ctx context.Context, completions []engine.Completion, n int,
) ([]error, []engine.Claimed, error) {
	outcomes, err := c.CompleteExecutions(ctx, completions)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	c.together++
	c.mu.Unlock()
	claimed, _ := c.Claim(ctx, n)
	return outcomes, claimed, nil
}

//pace:allow the fake runs in bubbles alone
func (f *fakeEngine) RenewLeases(ctx context.Context, renewals []engine.Renewal) ([]fferr.Outcome[time.Time], error) {
	f.mu.Lock()
	takes := f.renewTakes
	f.mu.Unlock()
	if takes != nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(takes(len(renewals))):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = append(f.renewed, call[engine.Renewal]{at: sinceEpoch(), items: renewals})
	results := make([]fferr.Outcome[time.Time], len(renewals))
	for i, r := range renewals {
		if f.lockedLease[r.Lease.Execution] {
			results[i].Err = fferr.ErrBusy
		} else {
			results[i].Err = f.lease(r.Lease)
		}
		if f.renewErr != nil {
			item, err := f.renewErr(r.Lease)
			if err != nil {
				return nil, err
			}
			results[i].Err = cmp.Or(item, results[i].Err)
		}
	}
	return results, nil
}

// lease starts or renews a lease, unless it has expired.
func (f *fakeEngine) lease(l engine.Lease) error {
	if f.expires == nil {
		return nil
	}
	if err := f.expired(l); err != nil {
		return err
	}
	f.expires[l.Execution] = time.Now().Add(l.TTL)
	return nil
}

//pace:allow the fake runs in bubbles alone
func (f *fakeEngine) expired(l engine.Lease) error {
	if until, leased := f.expires[l.Execution]; leased && !time.Now().Before(until) {
		return &fferr.LeaseError{Err: fferr.ErrLeaseExpired}
	}
	return nil
}

// busy returns the answer of a call that does not wait for locks.
func (f *fakeEngine) busy(l engine.Lease) error {
	if f.locked[l.Execution] {
		return fmt.Errorf("settle: %w", fferr.ErrBusy)
	}
	return nil
}

// lock makes another transaction lock an execution, or unlock it.
func (f *fakeEngine) lock(x id.ExecutionID, locked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locked[x] = locked
}

// lockLease makes another transaction lock an attempt, or unlock it.
func (f *fakeEngine) lockLease(x id.ExecutionID, locked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lockedLease[x] = locked
}

// await waits for a lock as calls for one execution do.
//
//pace:allow the fake runs in bubbles alone
func (f *fakeEngine) await(ctx context.Context, l engine.Lease) error {
	f.mu.Lock()
	if f.inLine != nil {
		f.inLine(l)
	}
	f.mu.Unlock()
	for range 600 {
		f.mu.Lock()
		locked := f.locked[l.Execution]
		f.mu.Unlock()
		if !locked {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("settle: %w", fferr.ErrContention)
}

func (f *fakeEngine) CompleteExecution(ctx context.Context, l engine.Lease, result []byte) error {
	if err := f.await(ctx, l); err != nil {
		return err
	}
	outcomes, err := f.CompleteExecutions(ctx, []engine.Completion{{Lease: l, Result: result}})
	if err != nil {
		return err
	}
	return outcomes[0]
}

func (f *fakeEngine) FailExecution(ctx context.Context, l engine.Lease, failure engine.Failure) (engine.Failed, error) {
	if err := f.await(ctx, l); err != nil {
		return engine.Failed{}, err
	}
	results, err := f.FailExecutions(ctx, []engine.AttemptFailure{{Lease: l, Failure: failure}})
	if err != nil {
		return engine.Failed{}, err
	}
	return results[0].Value, results[0].Err
}

// settling lets the time go by that a settlement takes.
//
//pace:allow the fake runs in bubbles alone
func (f *fakeEngine) settling() {
	count := func(n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.settlesNow += n
		f.settlesMost = max(f.settlesMost, f.settlesNow)
	}
	count(1)
	defer count(-1)
	if f.settleTakes > 0 {
		<-time.After(f.settleTakes)
	}
}

func (f *fakeEngine) CompleteExecutions(_ context.Context, completions []engine.Completion) ([]error, error) {
	f.settling()
	f.mu.Lock()
	defer f.mu.Unlock()
	outcomes := make([]error, len(completions))
	f.done = append(f.done, call[engine.Completion]{at: sinceEpoch(), items: completions})
	if f.doneErr != nil {
		item, err := f.doneErr(completions)
		if err != nil {
			return nil, err
		}
		for i := range outcomes {
			outcomes[i] = item
		}
	}
	for i, c := range completions {
		if outcomes[i] = cmp.Or(outcomes[i], f.expired(c.Lease), f.busy(c.Lease)); outcomes[i] == nil {
			f.ended[c.Lease.Execution]++
		}
	}
	return outcomes, nil
}

func (f *fakeEngine) FailExecutions(_ context.Context, failures []engine.AttemptFailure) ([]fferr.Outcome[engine.Failed], error) {
	f.settling()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, call[engine.AttemptFailure]{at: sinceEpoch(), items: failures})
	results := make([]fferr.Outcome[engine.Failed], len(failures))
	if f.failErr != nil {
		item, err := f.failErr(failures)
		if err != nil {
			return nil, err
		}
		for i := range results {
			results[i].Err = item
		}
	}
	for i, failing := range failures {
		results[i].Err = cmp.Or(results[i].Err, f.busy(failing.Lease))
	}
	return results, nil
}

func (f *fakeEngine) DelayExecutions(_ context.Context, delays []engine.Delay) ([]error, error) {
	f.settling()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delayed = append(f.delayed, call[engine.Delay]{at: sinceEpoch(), items: delays})
	outcomes := make([]error, len(delays))
	for i, d := range delays {
		outcomes[i] = f.busy(d.Lease)
	}
	return outcomes, nil
}

func (f *fakeEngine) WaitForChildren(ctx context.Context, l engine.Lease) (engine.Waiting, error) {
	if err := f.await(ctx, l); err != nil {
		return "", err
	}
	results, err := f.WaitForChildrenEach(ctx, []engine.Lease{l})
	if err != nil {
		return "", err
	}
	return results[0].Value, results[0].Err
}

func (f *fakeEngine) WaitForChildrenEach(_ context.Context, leases []engine.Lease) ([]fferr.Outcome[engine.Waiting], error) {
	f.settling()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.awaiting = append(f.awaiting, call[engine.Lease]{at: sinceEpoch(), items: leases})
	results := make([]fferr.Outcome[engine.Waiting], len(leases))
	for i, l := range leases {
		results[i] = fferr.Outcome[engine.Waiting]{Value: f.waits[l.Execution], Err: f.busy(l)}
	}
	return results, nil
}

func (f *fakeEngine) ReleaseLeases(_ context.Context, leases []engine.Lease) ([]error, error) {
	f.settling()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.back = append(f.back, call[engine.Lease]{at: sinceEpoch(), items: leases})
	outcomes := make([]error, len(leases))
	for i, l := range leases {
		if f.backErr != nil {
			outcomes[i] = f.backErr(l)
		}
		outcomes[i] = cmp.Or(outcomes[i], f.busy(l))
	}
	return outcomes, nil
}

func (f *fakeEngine) ReportProgress(context.Context, engine.Lease, engine.Progress) error { return nil }

func (f *fakeEngine) ReportUsage(context.Context, budget.Usage) (budget.Result, error) {
	return budget.Result{}, nil
}

func (f *fakeEngine) HoldLimit(context.Context, id.ExecutionID, engine.LimitKey, time.Time) error {
	return nil
}

func (f *fakeEngine) Reserve(context.Context, id.Fence, budget.ReserveSpec) (budget.Result, error) {
	return budget.Result{}, nil
}

func (f *fakeEngine) Settle(context.Context, id.Fence, budget.SettleSpec) (budget.Result, error) {
	return budget.Result{}, nil
}

func (f *fakeEngine) UpstreamResults(context.Context, id.ExecutionID) ([]engine.UpstreamResult, error) {
	return []engine.UpstreamResult{{Kind: "upstream", Outcome: state.OutcomeSuccess, Result: []byte(`{"Width":7}`)}}, nil
}

// outOfReach returns an answer for a database that fails the first completions.
func outOfReach(calls int) func([]engine.Completion) (item, call error) {
	return func([]engine.Completion) (item, call error) {
		if calls--; calls >= 0 {
			return nil, fmt.Errorf("complete: %w", fferr.ErrUnavailable)
		}
		return nil, nil
	}
}

// items counts the items of some calls.
func items[T any](calls []call[T]) int {
	n := 0
	for _, c := range calls {
		n += len(c.items)
	}
	return n
}

// bubble is a run of a worker on a fake engine and a fake clock.
type bubble struct {
	*run
	eng  *fakeEngine
	log  *bytes.Buffer // read it only after stop
	stop func()        // ends the run and waits for it
}

// inBubble calls test once a worker, with the handlers from setUp, is running and idle. After test it stops the worker; a
// goroutine left behind fails the test.
func inBubble(t *testing.T, cfg Config, setUp func(*Worker, *fakeEngine), test func(t *testing.T, b *bubble)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{eng: newFakeEngine(), log: new(bytes.Buffer)}
		cfg.Log = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		w := onFake(t, b.eng, cfg)
		if !cfg.NoReconcile {
			w.reconcile = func(ctx context.Context, _ *run) { b.eng.accompany(ctx) }
		}
		setUp(w, b.eng)
		kinds, err := w.handledKinds()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if b.run, err = w.newRun(ctx, kinds); err != nil {
			t.Fatal(err)
		}
		ran := make(chan struct{})
		go func() {
			defer close(ran)
			defer b.disconnect()
			b.work(ctx)
		}()
		b.stop = func() {
			cancel()
			<-ran
			if n := b.eng.beside.Load(); n != 0 {
				t.Errorf("%d calls outlast the run", n)
			}
			if n := b.eng.apartN.Load(); n != 0 {
				t.Errorf("%d connections outlast the run", n)
			}
		}
		defer b.stop()
		synctest.Wait()
		test(t, b)
	})
}

// bothWays runs [inBubble] for a worker that claims and settles in batches, and for one that does it one by one.
func bothWays(t *testing.T, cfg Config, setUp func(*Worker, *fakeEngine), test func(t *testing.T, b *bubble)) {
	t.Helper()
	t.Run("in batches", func(t *testing.T) { inBubble(t, cfg, setUp, test) })
	cfg.FetchBatch, cfg.SettleBatch = 1, 1
	t.Run("one by one", func(t *testing.T) { inBubble(t, cfg, setUp, test) })
}

// wakeLane wakes the worker like a notification, and returns once the worker waits again.
func (b *bubble) wakeLane() {
	b.eng.wake(engine.DefaultLane)
	synctest.Wait()
}

// seen returns the calls that the engine has received.
func (b *bubble) seen() record {
	b.eng.mu.Lock()
	defer b.eng.mu.Unlock()
	seen := b.eng.record
	seen.ended = maps.Clone(seen.ended)
	return seen
}

// left returns the number of executions waiting in a lane.
func (b *bubble) left(lane id.LaneID) int {
	b.eng.mu.Lock()
	defer b.eng.mu.Unlock()
	return len(b.eng.lanes[lane])
}

// pass lets time pass.
func (b *bubble) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// onFake returns a worker without handlers.
func onFake(t *testing.T, eng *fakeEngine, cfg Config) *Worker {
	t.Helper()
	w, err := newWorker(eng, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// on is [Handle] for a kind that only has a name and types.
func on[In, Out any](w *Worker, kind string, fn func(context.Context, Job[In]) (Out, error)) {
	Handle(w, engine.Kind[In, Out]{Name: kind}, fn)
}

// hookFunc receives the report of each execution.
type hookFunc func(Report)

func (f hookFunc) BeginRun(ctx context.Context, _ *engine.Claimed) (context.Context, func(Report)) {
	return ctx, f
}

func (hookFunc) BeginPart(ctx context.Context, _ Part) (context.Context, func(PartReport)) {
	return ctx, nil
}

func (f *fakeEngine) SuspendEach(_ context.Context, specs []engine.SuspendSpec) ([]fferr.Outcome[engine.Suspended], error) {
	f.settling()
	f.mu.Lock()
	defer f.mu.Unlock()
	outcomes := make([]fferr.Outcome[engine.Suspended], len(specs))
	for i, s := range specs {
		outcomes[i].Value.ID = s.ID
		outcomes[i].Err = cmp.Or(f.busy(s.Lease), f.suspendErr)
	}
	return outcomes, nil
}

func (f *fakeEngine) ReceivedSignals(context.Context, id.ExecutionID) ([]engine.ReceivedSignal, error) {
	return nil, nil
}

func (f *fakeEngine) CreateWaitpoint(_ context.Context, spec engine.WaitpointSpec) (engine.Waitpoint, error) {
	return engine.Waitpoint{Execution: spec.Lease.Execution, Key: spec.Key}, nil
}
