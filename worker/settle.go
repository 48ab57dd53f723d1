package worker

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
)

// settler settles finished executions in batches. Their leases are renewed until the settlement is committed.
type settler struct {
	*run
	tasks  <-chan *task
	turns  *turns // nil if there is only one settler
	groups [verdicts][]*task
}

// memberSettlers is the number of settlers for members of flows. Completions that release others take several statements,
// so the settlers run at once and one computes while the other waits for the server. Otherwise they take turns, since a
// single settler makes larger, faster batches.
const memberSettlers = 2

// turns lets settlers of the same tasks take turns.
type turns struct {
	one       chan struct{} // holds a value while a settler has its turn
	releasing atomic.Bool   // the last batch seems to have made a lane claimable
}

// take waits for its turn, if settlers take turns at all, and returns a function to end the turn.
func (t *turns) take() (end func()) {
	if t == nil || t.releasing.Load() {
		return func() {}
	}
	t.one <- struct{}{}
	return func() { <-t.one }
}

// settleLater passes a task to a settler, or to the fetcher, and reports whether it was the fetcher.
func (r *run) settleLater(t *task) (fetcher bool) {
	switch {
	case t.work.Flow != nil:
		r.members <- t
		return false
	case r.oneByOne():
		r.handled <- t
		return true
	case t.work.Limited && t.verdict == complete && len(r.queue) == 0:
		r.places <- t
		return true
	}
	r.handled <- t
	return false
}

// settle runs until no more tasks can come. A batch takes the tasks that arrived during the previous commit: batches grow
// under load, and a single result does not wait.
func (s *settler) settle() {
	batch := make([]*task, 0, s.cfg.SettleBatch)
	for t := range s.tasks {
		endTurn := s.turns.take()
		runtime.Gosched() // let handlers that end now add their tasks
		batch = s.gather(append(batch, t))
		notified := s.notified.Load()
		s.commit(batch)
		if s.turns != nil {
			s.turns.releasing.Store(s.notified.Load() != notified)
		}
		endTurn()
		clear(batch)
		batch = batch[:0]
	}
}

// gather adds the tasks that are ready to a batch.
func (s *settler) gather(batch []*task) []*task {
	for len(batch) < s.cfg.SettleBatch {
		select {
		case t, ok := <-s.tasks:
			if !ok {
				return batch
			}
			batch = append(batch, t)
		default:
			return batch
		}
	}
	return batch
}

// commit settles a batch. Tasks that cannot be settled at once go to the retrier, so the next batch does not wait.
func (s *settler) commit(batch []*task) {
	for v := range s.groups {
		clear(s.groups[v])
		s.groups[v] = s.groups[v][:0]
	}
	for _, t := range batch {
		s.groups[t.verdict] = append(s.groups[t.verdict], t)
	}
	var reason error
	for _, v := range []verdict{complete, suspend} {
		reason = cmp.Or(reason, s.deliver(v))
		for _, t := range s.groups[v] {
			if t.verdict == fail { // the server refused the result or the wait
				s.groups[fail] = append(s.groups[fail], t)
			}
		}
	}
	for _, v := range []verdict{fail, delay, await, giveBack} {
		reason = cmp.Or(reason, s.deliver(v))
	}
	for _, t := range s.groups[abandon] {
		t.settlement = cmp.Or(t.settlement, Abandoned)
	}
	over := batch
	if reason != nil {
		left := without(batch, func(t *task) bool { return t.settlement != "" })
		over = without(batch, func(t *task) bool { return t.settlement == "" })
		s.retrier.put(left, reason)
	}
	s.forget(over)
}

// forget reports settled tasks and stops renewing their leases.
func (r *run) forget(tasks []*task) {
	r.held.remove(tasks)
	now, released, called, sequenced := time.Now(), false, false, false
	var abandoned []*task
	for _, t := range tasks {
		if t.settlement == Abandoned && t.lostBy() == nil { // the others have been noted
			abandoned = append(abandoned, t)
		}
		r.report(t)
		ended := t.settlement == Completed || t.settlement == Failed
		called = called || ended && t.work.Tags[engine.CallerTag] != ""
		released = released || ended && t.work.Flow != nil
		sequenced = sequenced || ended && t.work.Tags[engine.SequenceTag] != ""
	}
	if called {
		// The database may report the ends to another process, and later.
		r.settling.callEnded()
	}
	if sequenced {
		r.settling.sequenceEnded(r.laneNames)
	}
	if released || sequenced {
		// Downstream executions, or the next of a sequence, may be claimable now, and a notification can be lost.
		r.wakeLane("")
	}
	r.noteLate(abandoned, now, true)
	r.wakeThrottled(now)
}

// deliver calls the engine for all tasks of a verdict, and returns the reason if some stay open.
func (s *settler) deliver(v verdict) error {
	tasks := open(s.groups[v], v)
	if len(tasks) == 0 {
		return nil
	}
	calling, cancel := context.WithTimeout(s.base, callTimeout)
	defer cancel()
	reasons, err := s.call(calling, v, tasks)
	return cmp.Or(err, cmp.Or(reasons...))
}

// open returns the unsettled tasks of a verdict, or tasks itself if all match.
func open(tasks []*task, v verdict) []*task {
	return without(tasks, func(t *task) bool { return t.settlement != "" || t.verdict != v })
}

func without(tasks []*task, leaveOut func(*task) bool) []*task {
	if !slices.ContainsFunc(tasks, leaveOut) {
		return tasks
	}
	return slices.DeleteFunc(slices.Clone(tasks), leaveOut)
}

// call settles tasks of one verdict with the engine. It returns an error for each open task, or one error for all. Open
// tasks are tried again, which is safe: each of these operations recognises its own repetition.
func (r *run) call(ctx context.Context, v verdict, tasks []*task) ([]error, error) {
	switch v {
	case complete:
		return r.completeAll(ctx, tasks)
	case fail:
		return r.failAll(ctx, tasks)
	case delay:
		return r.delayAll(ctx, tasks)
	case await:
		return r.awaitAll(ctx, tasks)
	case suspend:
		return r.suspendAll(ctx, tasks)
	case giveBack:
		return r.giveBackAll(ctx, tasks)
	}
	return make([]error, len(tasks)), nil
}

func (r *run) completeAll(ctx context.Context, tasks []*task) ([]error, error) {
	outcomes, err := r.settling.CompleteExecutions(ctx, completionsOf(tasks))
	if err != nil {
		return nil, err
	}
	return settleCompleted(tasks, outcomes), nil
}

func completionsOf(tasks []*task) []engine.Completion {
	completions := make([]engine.Completion, len(tasks))
	for i, t := range tasks {
		completions[i] = engine.Completion{Lease: t.lease(), Result: t.result}
	}
	return completions
}

// settleCompleted records the engine's answers. It returns the errors of open tasks.
func settleCompleted(tasks []*task, outcomes []error) []error {
	reasons := make([]error, len(tasks))
	for i, t := range tasks {
		reasons[i] = t.completed(outcomes[i])
	}
	return reasons
}

func (r *run) failAll(ctx context.Context, tasks []*task) ([]error, error) {
	failures := make([]engine.AttemptFailure, len(tasks))
	for i, t := range tasks {
		failures[i] = engine.AttemptFailure{Lease: t.lease(), Failure: t.failure}
	}
	results, err := r.settling.FailExecutions(ctx, failures)
	if err != nil {
		return nil, err
	}
	reasons := make([]error, len(tasks))
	for i, t := range tasks {
		reasons[i] = t.failed(results[i].Value, results[i].Err)
	}
	return reasons, nil
}

func (r *run) giveBackAll(ctx context.Context, tasks []*task) ([]error, error) {
	leases := make([]engine.Lease, len(tasks))
	for i, t := range tasks {
		leases[i] = t.lease()
	}
	outcomes, err := r.settling.ReleaseLeases(ctx, leases)
	if err != nil {
		return nil, err
	}
	reasons := make([]error, len(tasks))
	for i, t := range tasks {
		reasons[i] = t.settled(Released, outcomes[i])
	}
	return reasons, nil
}

// completed records the engine's answer to a success. If the engine refuses the result, the task fails.
func (t *task) completed(err error) error {
	if errors.Is(err, fferr.ErrInvalidInput) {
		t.fail(&Fail{Class: policy.Permanent, Category: "result", Err: err})
		return nil
	}
	return t.settled(Completed, err)
}

// suspended records the engine's answer to a wait. If the engine refuses the wait, the task fails.
func (t *task) suspended(err error) error {
	if errors.Is(err, fferr.ErrInvalidInput) {
		t.fail(badWait(err))
		return nil
	}
	return t.settled(Suspended, err)
}

// badWait is the failure for a wait that is not possible.
func badWait(err error) error { return &Fail{Class: policy.Permanent, Category: "wait", Err: err} }

// failed records the engine's answer to a failure.
func (t *task) failed(result engine.Failed, err error) error {
	settlement := Failed
	if err == nil && result.Retry {
		settlement, t.retryAt = Retrying, result.RetryAt
	}
	return t.settled(settlement, err)
}

// settled records the engine's answer. It returns an error if the task stays open: the lease is not lost, and repeating
// the call may help.
func (t *task) settled(as Settlement, err error) error {
	switch {
	case err == nil:
		t.settlement = as
	case isLost(err):
		t.settlement, t.err = Abandoned, lossOf(err)
	case errors.Is(err, fferr.ErrInvalidInput):
		t.settlement, t.err = Abandoned, err
	default:
		return err
	}
	return nil
}
