package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/policy"
)

// A settler tells the engine what became of executions, many at a time. Until that has been committed the leases are
// renewed.
type settler struct {
	*run
	tasks  <-chan *task
	groups [verdicts][]*task
}

const (
	firstSettlePause = 50 * time.Millisecond // after a failure
	maxSettlePause   = 2 * time.Second
	triesTogether    = 3 // of a batch, before it is halved
)

// memberSettlers settle members of flows: a completion that releases others takes several statements, and while one
// waits for the server the other computes. Of other executions a single settler makes the larger batches, and is faster.
const memberSettlers = 2

// settleLater passes a task on to a settler.
func (r *run) settleLater(t *task) {
	if t.work.Flow != nil {
		r.members <- t
		return
	}
	r.handled <- t
}

// settle works until no more tasks can come. A batch is what has come while the last one was committed: under load
// batches grow until they keep up, and a single result does not wait.
func (s *settler) settle() {
	batch := make([]*task, 0, s.cfg.SettleBatch)
	for t := range s.tasks {
		batch = s.gather(append(batch, t))
		s.commit(batch)
		clear(batch)
		batch = batch[:0]
	}
}

// gather fills a batch with what is there.
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

// commit settles a batch and lets go of it.
func (s *settler) commit(batch []*task) {
	for v := range s.groups {
		clear(s.groups[v])
		s.groups[v] = s.groups[v][:0]
	}
	for _, t := range batch {
		s.groups[t.verdict] = append(s.groups[t.verdict], t)
	}
	s.deliver(complete)
	for _, t := range s.groups[complete] {
		if t.verdict == fail { // its result was refused
			s.groups[fail] = append(s.groups[fail], t)
		}
	}
	s.deliver(fail)
	s.deliver(giveBack)
	for _, t := range s.groups[abandon] {
		t.settlement = Abandoned
	}
	s.held.remove(batch)

	released := false
	for _, t := range batch {
		s.report(t)
		released = released || t.work.Flow != nil && (t.settlement == Completed || t.settlement == Failed)
	}
	if released {
		// What depended on these may be claimable by now, and perhaps nobody will say so: notifications can be lost.
		s.tell("")
	}
}

// deliver calls the engine until all tasks of a verdict are settled or given up. A task is given up when it has been
// tried for as long as a lease lasts: either the database was out of reach, and the lease is over, or it is this task
// that cannot be settled.
func (s *settler) deliver(v verdict) {
	s.deliverUntil(time.Now().Add(s.cfg.LeaseTTL), v, s.groups[v])
}

// deliverUntil halves a batch that fails again and again, so that one task does not keep the others.
func (s *settler) deliverUntil(deadline time.Time, v verdict, tasks []*task) {
	failing := backoff.Backoff{First: firstSettlePause, Max: maxSettlePause}
	for try := 1; ; try++ {
		if tasks = open(tasks, v); len(tasks) == 0 {
			return
		}
		calling, cancel := context.WithTimeout(s.base, callTimeout)
		err := s.call(calling, v, tasks)
		cancel()
		if err == nil {
			return
		}
		tasks = open(tasks, v)
		switch {
		case time.Now().After(deadline):
			for _, t := range tasks {
				t.settlement, t.err = Abandoned, err
			}
			return
		case try >= triesTogether && len(tasks) > 1:
			s.deliverUntil(deadline, v, tasks[:len(tasks)/2])
			s.deliverUntil(deadline, v, tasks[len(tasks)/2:])
			return
		}
		pause := failing.Next()
		s.cfg.Log.Warn("cannot settle; it is tried again", "error", err, "executions", len(tasks), "retry_in", pause)
		backoff.Wait(s.base, pause)
	}
}

// open returns the tasks of a verdict that are not settled: tasks itself when that is all of them.
func open(tasks []*task, v verdict) []*task {
	isOpen := func(t *task) bool { return t.settlement == "" && t.verdict == v }
	if !slices.ContainsFunc(tasks, func(t *task) bool { return !isOpen(t) }) {
		return tasks
	}
	return slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return !isOpen(t) })
}

// call tells the engine about tasks of one verdict. An error leaves some of them open, to be told again: every one of
// these operations recognises its own repetition.
func (s *settler) call(ctx context.Context, v verdict, tasks []*task) error {
	switch v {
	case complete:
		return s.completeAll(ctx, tasks)
	case fail:
		return s.failAll(ctx, tasks)
	case giveBack:
		return s.giveBackAll(ctx, tasks)
	}
	return nil
}

func (s *settler) completeAll(ctx context.Context, tasks []*task) error {
	outcomes, err := s.eng.CompleteExecutions(ctx, completionsOf(tasks))
	if err != nil {
		return err
	}
	return settleCompleted(tasks, outcomes)
}

func completionsOf(tasks []*task) []engine.Completion {
	completions := make([]engine.Completion, len(tasks))
	for i, t := range tasks {
		completions[i] = engine.Completion{Lease: t.work.Lease, Result: t.result}
	}
	return completions
}

// settleCompleted records the engine's answers. A result that it refuses makes a failure of its task.
func settleCompleted(tasks []*task, outcomes []error) (err error) {
	for i, t := range tasks {
		if errors.Is(outcomes[i], engine.ErrInvalidInput) {
			t.fail(&Fail{Class: policy.Permanent, Category: "result", Err: outcomes[i]})
			continue
		}
		err = cmp.Or(err, t.settled(Completed, outcomes[i]))
	}
	return err
}

func (s *settler) failAll(ctx context.Context, tasks []*task) error {
	failures := make([]engine.Failing, len(tasks))
	for i, t := range tasks {
		failures[i] = engine.Failing{Lease: t.work.Lease, Failure: t.failure}
	}
	results, err := s.eng.FailExecutions(ctx, failures)
	if err != nil {
		return err
	}
	for i, t := range tasks {
		settlement := Failed
		if results[i].Retry {
			settlement, t.retryAt = Retrying, results[i].RetryAt
		}
		err = cmp.Or(err, t.settled(settlement, results[i].Err))
	}
	return err
}

func (s *settler) giveBackAll(ctx context.Context, tasks []*task) error {
	leases := make([]engine.Lease, len(tasks))
	for i, t := range tasks {
		leases[i] = t.work.Lease
	}
	outcomes, err := s.eng.ReleaseLeases(ctx, leases)
	if err != nil {
		return err
	}
	for i, t := range tasks {
		err = cmp.Or(err, t.settled(Released, outcomes[i]))
	}
	return err
}

// settled records the engine's answer. It returns an error that leaves the task open.
func (t *task) settled(as Settlement, err error) error {
	switch {
	case err == nil:
		t.settlement = as
	case isPassing(err):
		return err
	default:
		t.settlement, t.err = Abandoned, err
	}
	return nil
}

// isPassing says whether a call that failed for one item may succeed later. It stands for the transaction that the item
// was in, when that was not the call's first.
func isPassing(err error) bool {
	for _, sentinel := range []error{
		engine.ErrContention, engine.ErrTransport, engine.ErrUnavailable, engine.ErrReadOnly,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}
