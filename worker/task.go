package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// task is a claimed execution in the worker. The fetcher, a handler's goroutine and the settler own the task in turn.
// The heartbeat runs beside them and only renews or cancels it.
type task struct {
	work   engine.Claimed
	handle handler

	claimAsked time.Time // when the claim began

	// ctx is the handler's context. It ends with a cause: lease lost, attempt timed out, or worker shut down.
	ctx    context.Context
	cancel context.CancelCauseFunc
	free   context.CancelFunc // stops the timer of the attempt's timeout

	// Set when the handler has returned.
	verdict  verdict
	result   []byte
	err      error
	failure  engine.Failure
	delay    time.Duration
	until    time.Time
	wait     engine.SuspendSpec
	refusals int // of the wait, by the server
	ran      time.Duration
	reportTo func(Report) // from the observer; may be nil
	trace    string       // context of the run, to be stored

	// Set when the task is settled.
	settlement Settlement
	retryAt    time.Time

	goroutine atomic.Int64 // runs the handler; 0 while none does
	startedAt atomic.Int64 // when the handler was started, since the run's beginning

	lost atomic.Pointer[error] // why the lease is lost; nil while possibly alive

	// Owned by holding, under its lock.
	slot      int
	renewed   time.Time // when the lease was last known to be alive
	asked     time.Time // when the call began that claimed or last renewed the lease
	overSince time.Time // when the handler's context was first seen ended
	saidStuck bool
	blocked   bool // other transactions had locked the row at the last renewal
}

// lease returns the lease for the settlement. The heartbeat reads the one in t.work at the same time.
func (t *task) lease() engine.Lease {
	l := t.work.Lease
	l.Trace = t.trace
	return l
}

// verdict selects the engine call that settles a task.
type verdict int

const (
	abandon  verdict = iota // nothing to call: the lease is lost or settled by a turn, or the engine ends the attempt
	complete                // success
	fail                    // failure
	delay                   // unfinished; continues later
	await                   // unfinished; continues when its upstreams have ended
	suspend                 // unfinished; continues when signals have arrived
	giveBack                // unfinished; returns to its lane
	verdicts
)

// newTask returns a task for an execution from a claim that was called at calledAt and answered at receivedAt.
func newTask(base context.Context, work engine.Claimed, handle handler, calledAt, receivedAt time.Time) *task {
	t := &task{work: work, handle: handle, claimAsked: calledAt, renewed: receivedAt, asked: calledAt}
	t.ctx, t.cancel = context.WithCancelCause(base)
	if !work.TimeoutAt.IsZero() {
		// Both instants are from the database's clock. Only their difference is measured by the process's clock.
		claimedAt := work.ExpiresAt.Add(-work.Lease.TTL)
		t.ctx, t.free = context.WithDeadlineCause(t.ctx, calledAt.Add(work.TimeoutAt.Sub(claimedAt)), ErrAttemptTimeout)
	}
	return t
}

// decide sets the verdict for a task whose handler returned result and err.
func (t *task) decide(result []byte, err error) {
	t.result, t.err = result, err
	cause := context.Cause(t.ctx)
	on, goesOn := isLater(err)
	switch {
	case goesOn && on.settled != "":
		t.verdict, t.settlement, t.err = abandon, on.settled, nil
	case errors.Is(cause, ErrLeaseLost):
		t.verdict, t.err = abandon, cause
	case err == nil:
		t.verdict = complete
	case isFail(err):
		t.fail(err)
	case goesOn:
		t.verdict, t.result, t.delay, t.until, t.wait, t.err = on.verdict, on.result, on.by, on.until, on.wait, nil
	case errors.Is(cause, ErrShutdown):
		t.verdict = giveBack
	case errors.Is(cause, ErrAttemptTimeout):
		t.verdict = abandon
	default:
		t.fail(err)
	}
}

func (t *task) fail(err error) { t.verdict, t.err, t.failure = fail, err, failureOf(err) }

func isFail(err error) bool {
	_, ok := errors.AsType[*Fail](err)
	return ok
}

// end cancels the handler's context and frees the timer.
func (t *task) end() {
	t.cancel(nil)
	if t.free != nil {
		t.free()
	}
}

// lose records the loss of the lease and cancels the handler. It reports whether a handler was still running.
func (t *task) lose(reason error) bool {
	reason = lossOf(reason)
	if !t.lost.CompareAndSwap(nil, &reason) || t.ctx.Err() != nil {
		return false
	}
	t.cancel(reason)
	return true
}

// lostBy returns why the lease is lost, or nil.
func (t *task) lostBy() error {
	if reason := t.lost.Load(); reason != nil {
		return *reason
	}
	return nil
}

// holding is the set of tasks whose leases this worker holds, from the claim to the settlement.
type holding struct {
	mu    sync.Mutex
	tasks []*task
}

func (h *holding) add(tasks []*task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range tasks {
		t.slot = len(h.tasks)
		h.tasks = append(h.tasks, t)
	}
}

func (h *holding) remove(tasks []*task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range tasks {
		last := len(h.tasks) - 1
		moved := h.tasks[last]
		h.tasks[t.slot], moved.slot = moved, t.slot
		h.tasks[last] = nil
		h.tasks = h.tasks[:last]
	}
}

func (h *holding) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tasks)
}

// renewedBefore returns the tasks whose leases are not lost and were last known to be alive before an instant.
func (h *holding) renewedBefore(instant time.Time) []*task {
	return h.alive(func(t *task) bool { return t.renewed.Before(instant) })
}

// askedBefore returns the tasks whose leases are not lost, and were last asked for before an instant: their time runs from
// then on at the earliest.
func (h *holding) askedBefore(instant time.Time) []*task {
	return h.alive(func(t *task) bool { return t.asked.Before(instant) })
}

func (h *holding) alive(fits func(*task) bool) []*task {
	h.mu.Lock()
	defer h.mu.Unlock()
	var tasks []*task
	for _, t := range h.tasks {
		if fits(t) && t.lostBy() == nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// renew records a renewal: when its call began, and an instant at which the leases were alive.
func (h *holding) renew(tasks []*task, asked, instant time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range tasks {
		t.renewed, t.asked, t.blocked = instant, asked, false
	}
}

// block records that other transactions had locked the rows of leases at a renewal.
func (h *holding) block(tasks []*task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range tasks {
		t.blocked = true
	}
}

// anyLate reports whether one of the leases was nearly over at an instant, counted from its claim or last renewal. It
// ignores leases with rows locked by others.
func (h *holding) anyLate(tasks []*task, instant time.Time, ttl time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	nearlyOver := instant.Add(-ttl / 3 * 2)
	return slices.ContainsFunc(tasks, func(t *task) bool { return !t.blocked && t.asked.Before(nearlyOver) })
}

// interrupt cancels all handlers and returns their number.
func (h *holding) interrupt(cause error) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, t := range h.tasks {
		if t.ctx.Err() == nil {
			t.cancel(cause)
			n++
		}
	}
	return n
}
