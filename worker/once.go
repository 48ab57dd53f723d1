package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// RunOnce claims one execution, runs its handler and settles the outcome. It reports whether there was an execution. It is for
// tests and for programs that work off a lane and end; [Worker.Run] is faster, renews leases, and does the background work
// that RunOnce leaves to others. Handlers get ctx itself.
//
// Errors: [engine.ErrInvalidInput] for a bad registration or none; [ErrRunning]; those of a claim; the reason why the outcome
// could not be settled, and ctx's error if it ended first. In the last two cases the lease remains, and expires.
func (w *Worker) RunOnce(ctx context.Context) (bool, error) {
	kinds, err := w.handledKinds()
	if err != nil {
		return false, err
	}
	if !w.running.CompareAndSwap(false, true) {
		return false, ErrRunning
	}
	defer w.running.Store(false)
	r, err := w.newRun(ctx, kinds)
	if err != nil {
		return false, fmt.Errorf("worker: %w", err)
	}
	defer r.disconnect()
	r.base = ctx
	for _, l := range r.lanes {
		asked := time.Now()
		claimed, err := l.claimer.Claim(ctx, 1)
		if err != nil {
			return false, fmt.Errorf("worker: %w", err)
		}
		if len(claimed) > 0 {
			return true, r.runOne(ctx, claimed[0], asked)
		}
	}
	return false, nil
}

// runOne runs the handler of an execution, on a goroutine that it may end, and settles the outcome.
func (r *run) runOne(ctx context.Context, work engine.Claimed, asked time.Time) error {
	var recording sync.WaitGroup
	recording.Go(r.recordSteps)
	defer recording.Wait()
	defer close(r.recorder.stopped)

	t := newTask(ctx, work, r.handlers[work.Kind], asked, time.Now())
	r.held.add([]*task{t})
	go r.perform(t)
	select {
	case <-r.handled:
	case <-r.members:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("worker: %w", context.Cause(ctx))
	}
	(&settler{run: r}).commit([]*task{t})
	if t.settlement == "" {
		return fmt.Errorf("worker: cannot settle: %w", r.aside.takeReason())
	}
	return nil
}

// takeReason returns why the first task was set aside.
func (a *aside) takeReason() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waiting[0].reason
}
