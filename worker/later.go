package worker

import (
	"context"
	"errors"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// Delay is the error by which a handler says that its attempt goes on later:
//
//	return out, job.Delay(time.Minute)
//
// The same attempt is handled again once d has passed, from its beginning, by this worker or another: nothing has failed,
// no retry is used up, and the result beside the error is discarded. What the handler has to remember it stores itself.
// 0 and less: at once. It counts from when the worker tells the engine, by the database's clock. The deadline of the
// execution stands; the timeout of the attempt begins anew.
func (j Job[In]) Delay(d time.Duration) error { return &later{verdict: delay, by: max(d, 0)} }

// WaitForChildren is the error by which a handler says that its attempt goes on when the executions that its own depends
// on have ended as its group asks:
//
//	return out, job.WaitForChildren()
//
// It is for a member of a flow that was given more to depend on while it ran. Where they have ended already the attempt
// is handled again at once, and where they cannot satisfy it any more the execution is skipped:
// [engine.Engine.WaitForChildren].
func (j Job[In]) WaitForChildren() error { return &later{verdict: await} }

// later is what a handler returns that is not done.
type later struct {
	verdict verdict
	by      time.Duration
}

func (l *later) Error() string {
	if l.verdict == delay {
		return "the attempt goes on in " + l.by.String()
	}
	return "the attempt goes on when what it depends on has ended"
}

// isLater tells whether a handler's error is one of these.
func isLater(err error) (*later, bool) { return errors.AsType[*later](err) }

func (r *run) delayAll(ctx context.Context, tasks []*task) ([]error, error) {
	delays := make([]engine.Delay, len(tasks))
	for i, t := range tasks {
		delays[i] = engine.Delay{Lease: t.work.Lease, For: t.delay}
	}
	outcomes, err := r.settling.DelayExecutions(ctx, delays)
	if err != nil {
		return nil, err
	}
	reasons := make([]error, len(tasks))
	for i, t := range tasks {
		reasons[i] = t.settled(Delayed, outcomes[i])
	}
	return reasons, nil
}

func (r *run) awaitAll(ctx context.Context, tasks []*task) ([]error, error) {
	leases := make([]engine.Lease, len(tasks))
	for i, t := range tasks {
		leases[i] = t.work.Lease
	}
	results, err := r.settling.WaitForChildrenEach(ctx, leases)
	if err != nil {
		return nil, err
	}
	reasons := make([]error, len(tasks))
	for i, t := range tasks {
		reasons[i] = t.awaits(results[i].Value, results[i].Err)
	}
	return reasons, nil
}

// awaits records the engine's answer to a wait.
func (t *task) awaits(result engine.Waiting, err error) error {
	if result == engine.WaitingSkipped {
		return t.settled(Skipped, err)
	}
	return t.settled(WaitingForChildren, err)
}
