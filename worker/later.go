package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
)

// Delay returns an error that postpones the attempt by d:
//
//	return out, job.Delay(time.Minute)
//
// The same attempt runs again from its beginning after d, on this worker or another. A delay is not a failure and uses
// no retry. The result beside the error is discarded; the handler must store any state. If d is 0 or less, the attempt
// runs again at once. The database's clock counts d from the settlement of the attempt. The execution's deadline stays;
// the attempt's timeout starts anew.
func (j Job[In]) Delay(d time.Duration) error { return &later{verdict: delay, by: max(d, 0)} }

// WaitForChildren returns an error that postpones the attempt until the execution's upstream group is satisfied:
//
//	return out, job.WaitForChildren()
//
// Use WaitForChildren in a flow member with upstreams added while it ran. If all have already ended, the attempt runs
// again at once. If the group can no longer be satisfied, the execution is skipped. See
// [engine.Engine.WaitForChildren].
func (j Job[In]) WaitForChildren() error { return &later{verdict: await} }

// later is a handler's error for postponing its attempt.
type later struct {
	verdict verdict
	by      time.Duration
	until   time.Time // instead of by, if it is not zero
	wait    engine.SuspendSpec

	// Of a turn.
	result  []byte     // of a completion
	early   bool       // the signals of the wait had come, so the lease is still held
	settled Settlement // the turn is committed; the worker has nothing to settle
}

func (l *later) Error() string {
	switch l.verdict {
	case delay:
		if !l.until.IsZero() {
			return "the attempt continues at " + l.until.UTC().Format(time.RFC3339)
		}
		return "the attempt continues in " + l.by.String()
	case suspend:
		return "the attempt continues when signals have arrived"
	case complete:
		return "the turn has completed the execution"
	}
	return "the attempt continues when its upstreams have ended"
}

// Is makes a wait for signals [fferr.ErrAwaiting].
func (l *later) Is(target error) bool { return l.verdict == suspend && target == fferr.ErrAwaiting }

// isLater returns the later in err's chain, if any.
func isLater(err error) (*later, bool) { return errors.AsType[*later](err) }

// pauses returns an error for the handler to return, and records that the handler must. The caller does not hold the
// mutex.
func (s *steps) pauses(name string, on *later) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = name
	return on
}

// returned returns the error of a handler. If the handler has dropped the error of a wait, it is a permanent failure instead of
// a success, and another failure has a remark.
func (s *steps) returned(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, goesOn := isLater(err); goesOn || s.paused == "" {
		return err
	}
	if err == nil {
		return badWait(fmt.Errorf("%q is not over, and the handler has returned no error: return the error of the wait, as it is or wrapped by %%w", s.paused))
	}
	return fmt.Errorf("%w (%q is not over: to wait, return the error of the wait, as it is or wrapped by %%w)", err, s.paused)
}

func (r *run) delayAll(ctx context.Context, tasks []*task) ([]error, error) {
	delays := make([]engine.Delay, len(tasks))
	for i, t := range tasks {
		delays[i] = engine.Delay{Lease: t.lease(), For: t.delay, Until: t.until}
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
		leases[i] = t.lease()
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

// awaits records the engine's answer to a wait for children.
func (t *task) awaits(result engine.Waiting, err error) error {
	if result == engine.WaitingSkipped {
		return t.settled(Skipped, err)
	}
	return t.settled(WaitingForChildren, err)
}
