package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// RunUntilIdle handles executions one after the other until none is claimable, and returns their number. It is for
// tests, and for programs that empty their lanes and end. RunUntilIdle renews no leases and runs no background work.
// Frames of a stream are appended when the handler flushes the stream, fills its buffer or returns. Handlers get ctx
// itself. If ctx ends, RunUntilIdle does not settle the current execution, whose lease then expires.
//
// Errors: [fferr.ErrInvalidInput] for a bad registration or none; [ErrRunning]; errors of claims; why an outcome could
// not be settled; ctx's cause.
func (w *Worker) RunUntilIdle(ctx context.Context) (int, error) {
	kinds, err := w.handledKinds()
	if err != nil {
		return 0, err
	}
	if !w.running.CompareAndSwap(false, true) {
		return 0, ErrRunning
	}
	defer w.running.Store(false)
	r, err := w.newRun(ctx, kinds)
	if err != nil {
		return 0, fmt.Errorf("worker: %w", err)
	}
	defer r.disconnect()
	r.base, r.drained = ctx, ctx
	// Beside the handler its statements would come in another order each time.
	r.appender.inline = func(ctx context.Context) { r.appendInline(ctx, true) }
	var recording sync.WaitGroup
	recording.Go(r.recordSteps)
	defer recording.Wait()
	defer close(r.recorder.stopped)

	handled := 0
	for before := -1; handled > before; {
		before = handled
		for _, l := range r.lanes {
			n, err := r.empty(ctx, l)
			handled += n
			if err != nil {
				return handled, fmt.Errorf("worker: %w", err)
			}
		}
		if len(r.lanes) == 1 {
			break
		}
	}
	return handled, nil
}

// empty handles the executions of a lane until none is claimable. Each claim completes the previous execution.
func (r *run) empty(ctx context.Context, l *lane) (handled int, err error) {
	var previous *task
	for {
		if err := r.lookFromHead(l, handled); err != nil {
			return handled, err
		}
		asked := time.Now()
		var claimed []engine.Claimed
		if previous != nil {
			claimed, err = r.completeAndClaim(ctx, l, previous)
		} else {
			claimed, err = l.claimer.Claim(ctx, 1)
		}
		if err != nil || len(claimed) == 0 {
			return handled, err
		}
		t := r.handleHere(ctx, claimed[0], asked)
		handled++
		if ctx.Err() != nil {
			return handled, context.Cause(ctx)
		}
		if previous = t; t.verdict == complete && t.work.Flow == nil {
			continue
		}
		previous = nil
		if err := r.settleHere(t); err != nil {
			return handled, err
		}
	}
}

// shortLane is the most executions in a lane for claims from its head. In a longer lane, such a claim would read the
// index entries of all handled executions, and of all kinds without a handler.
const shortLane = 100

// lookFromHead makes the next claim look from the head of the lane, since a handler may have created work of a higher
// priority. A claimer without scan positions does so anyway. A claimer with scan positions would look after its
// positions first.
func (r *run) lookFromHead(l *lane, handled int) (err error) {
	if handled > shortLane {
		l.claimer.Wake()
		return nil
	}
	l.claimer, err = r.settling.NewClaimer(r.claimSpec(l.name, l.kinds))
	return err
}

// handleHere runs the handler of an execution on a goroutine of its own, which the handler may end, and waits for the
// outcome.
func (r *run) handleHere(ctx context.Context, work engine.Claimed, asked time.Time) *task {
	t := newTask(ctx, work, r.handlers[work.Kind], asked, time.Now())
	r.held.add([]*task{t})
	go func() { r.perform(t, thisGoroutine()) }()
	select {
	case <-r.handled:
	case <-r.members:
	case <-r.places:
	}
	return t
}

// completeAndClaim completes an execution and claims the next one, in one transaction.
func (r *run) completeAndClaim(ctx context.Context, l *lane, t *task) ([]engine.Claimed, error) {
	outcomes, claimed, err := l.claimer.CompleteAndClaim(ctx, completionsOf([]*task{t}), 1)
	if err != nil {
		return nil, err
	}
	if err := t.completed(outcomes[0]); err != nil {
		return nil, errors.Join(err, r.giveBackClaimed(ctx, claimed))
	}
	if t.settlement == "" { // the result was refused
		return claimed, r.settleHere(t)
	}
	r.forget([]*task{t})
	return claimed, nil
}

func (r *run) giveBackClaimed(ctx context.Context, claimed []engine.Claimed) error {
	for _, c := range claimed {
		if _, err := r.settling.ReleaseLeases(ctx, []engine.Lease{c.Lease}); err != nil {
			return err
		}
	}
	return nil
}

// settleHere settles a task, or returns the error. As in the retrier, a refused wait is repeated until the execution
// fails.
func (r *run) settleHere(t *task) error {
	s := &settler{run: r}
	for {
		refusals := t.refusals
		s.commit([]*task{t})
		switch reason := r.retrier.takeBack(); {
		case reason == nil:
			return nil
		case t.refusals == refusals:
			return fmt.Errorf("cannot settle: %w", reason)
		}
	}
}
