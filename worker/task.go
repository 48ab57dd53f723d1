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

// A task is a claimed execution on its way through the worker: from the fetcher to a handler's goroutine to the
// settler, each of which owns it in turn. The heartbeat sees it from the side, and only renews or cancels.
type task struct {
	work   engine.Claimed
	handle handler

	// ctx is the handler's. It ends with a cause: the lease lost, the attempt timed out, the worker shut down.
	ctx    context.Context
	cancel context.CancelCauseFunc
	free   context.CancelFunc // frees the timer of the attempt's timeout

	// Decided when the handler has returned.
	verdict verdict
	result  []byte
	err     error
	failure engine.Failure
	delay   time.Duration
	ran     time.Duration
	told    func(Report) // of the hooks; may be nil

	// Known when it is settled; empty until then.
	settlement Settlement
	retryAt    time.Time

	lost atomic.Pointer[error] // why the lease is gone; nil while it may live

	// Of the held leases, under their lock.
	slot    int
	renewed time.Time // when the lease was last known to be alive
	asked   time.Time // when the call began that gave the lease, or renewed it last
	blocked bool      // others held its row when it was to be renewed
}

// A verdict is what is to be told to the engine about a task.
type verdict int

const (
	abandon  verdict = iota // nothing: the lease is lost, or others end the attempt
	complete                // success
	fail                    // failure
	delay                   // unfinished: it goes on later
	await                   // unfinished: it goes on when its upstreams have ended
	giveBack                // unfinished: its lane gets it back
	verdicts
)

// newTask prepares the handling of what a call to claim, begun at calledAt, has returned.
func newTask(base context.Context, work engine.Claimed, handle handler, calledAt, receivedAt time.Time) *task {
	t := &task{work: work, handle: handle, renewed: receivedAt, asked: calledAt}
	t.ctx, t.cancel = context.WithCancelCause(base)
	if !work.TimeoutAt.IsZero() {
		// Both instants are the database's: their difference, and nothing else, is measured by this clock.
		claimedAt := work.ExpiresAt.Add(-work.Lease.TTL)
		t.ctx, t.free = context.WithDeadlineCause(t.ctx, calledAt.Add(work.TimeoutAt.Sub(claimedAt)), ErrAttemptTimeout)
	}
	return t
}

// judge decides what is told about a task whose handler returned result and err.
func (t *task) judge(result []byte, err error) {
	t.result, t.err = result, err
	cause := context.Cause(t.ctx)
	on, goesOn := isLater(err)
	switch {
	case errors.Is(cause, ErrLeaseLost):
		t.verdict, t.err = abandon, cause
	case err == nil:
		t.verdict = complete
	case isFail(err):
		t.fail(err)
	case goesOn:
		t.verdict, t.delay, t.err = on.verdict, on.by, nil
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

// end cancels what the handler may have left behind.
func (t *task) end() {
	t.cancel(nil)
	if t.free != nil {
		t.free()
	}
}

// lose records that the lease is gone and cancels the handler. It reports whether there was one to cancel.
func (t *task) lose(reason error) bool {
	reason = lossOf(reason)
	if !t.lost.CompareAndSwap(nil, &reason) || t.ctx.Err() != nil {
		return false
	}
	t.cancel(reason)
	return true
}

// lostBy returns why the lease is gone, or nil.
func (t *task) lostBy() error {
	if reason := t.lost.Load(); reason != nil {
		return *reason
	}
	return nil
}

// holding is the tasks whose leases this worker holds: from the claim until they are settled.
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

// renewedBefore returns the tasks whose leases are not lost, and were last known to be alive before an instant.
func (h *holding) renewedBefore(instant time.Time) []*task {
	h.mu.Lock()
	defer h.mu.Unlock()
	var tasks []*task
	for _, t := range h.tasks {
		if t.renewed.Before(instant) && t.lostBy() == nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// renew records that a call that began at asked renewed leases, and that they were alive at an instant.
func (h *holding) renew(tasks []*task, asked, instant time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range tasks {
		t.renewed, t.asked, t.blocked = instant, asked, false
	}
}

// block records that others held the rows of leases when these were to be renewed.
func (h *holding) block(tasks []*task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range tasks {
		t.blocked = true
	}
}

// anyLate reports whether a lease among these was given or renewed so long before an instant that it is, or was, nearly
// over. Those whose rows others have held don't count.
func (h *holding) anyLate(tasks []*task, instant time.Time, ttl time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	nearlyOver := instant.Add(-ttl / 3 * 2)
	return slices.ContainsFunc(tasks, func(t *task) bool { return !t.blocked && t.asked.Before(nearlyOver) })
}

// interrupt cancels all handlers.
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
