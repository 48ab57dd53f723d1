package worker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/stream"
)

// errNoTx is the error of [StepTx] in a job of [JobForTest].
var errNoTx = errors.New("a job for a test has no transaction: test this handler with a worker and a database")

// JobForTest returns a job without a worker, for a test calling a handler without a database. received has the signals
// for its waits, one list for each wait; an empty list is a timeout. A further wait returns [fferr.ErrAwaiting].
//
//	approved := []engine.ReceivedSignal{{Name: "approved", Payload: payload}}
//	out, err := publish(ctx, worker.JobForTest(Draft{Title: "On waiting"}, approved))
//
// [Step] runs its function and refuses a repeated name. [Sleep] returns at once. [StepTx] returns an error, since it
// needs a database. No server accepts the token from [Job.Waitpoint]. A signal with another Key than its wait fails the
// handler: set the Key of a waitpoint to test a link. [Job.Progress] and [Job.HoldLimit] do nothing. [Job.Stream] keeps its frames for
// [FramesForTest]. The job's ID is new. The conditions of the waits are not evaluated: give signals that satisfy them.
// [NextRunForTest] runs the handler again, as after a failure or a wait.
func JobForTest[In any](args In, received ...[]engine.ReceivedSignal) Job[In] {
	return Job[In]{
		Args:    args,
		Claimed: engine.Claimed{ID: id.NewExecutionID(engine.DefaultLane, id.Partitions{})},
		waits:   &waits{given: received},
		steps:   newStepsForTest(make(map[string]engine.Step), make(map[id.WaitpointKey]engine.Waitpoint), 0),
	}
}

// NextRunForTest returns the job of [JobForTest] for the next run of its handler. It has the results of the finished
// steps, which don't run again, and the signals of the first run, followed by received.
//
//	job := worker.JobForTest(Draft{Title: "On waiting"})
//	_, err := publish(ctx, job) // fferr.ErrAwaiting
//	out, err := publish(ctx, worker.NextRunForTest(job, approved))
//
// For a job of a worker it returns one whose steps report an error.
func NextRunForTest[In any](job Job[In], received ...[]engine.ReceivedSignal) Job[In] {
	if !job.isForTest() {
		return Job[In]{Args: job.Args}
	}
	job.waits = &waits{given: slices.Concat(job.waits.given, received)}
	job.steps.mu.Lock()
	defer job.steps.mu.Unlock()
	job.steps = newStepsForTest(maps.Clone(job.steps.known), maps.Clone(job.steps.points), job.steps.next)
	return job
}

func newStepsForTest(known map[string]engine.Step, points map[id.WaitpointKey]engine.Waitpoint, next int) *steps {
	return &steps{
		read: true, known: known, used: make(map[string]bool), next: next, waited: make(map[id.WaitpointKey]int), points: points,
	}
}

// FramesForTest returns the frames written to the stream of a [JobForTest] job, in order.
func FramesForTest[In any](job Job[In]) []stream.FrameSpec {
	if !job.isForTest() {
		return nil
	}
	stream := job.Stream()
	stream.mu.Lock()
	defer stream.mu.Unlock()
	stream.writeRests()
	return slices.Clone(stream.frames)
}

// isForTest reports whether a job comes from [JobForTest].
func (j Job[In]) isForTest() bool { return j.eng == nil && j.steps != nil }

// take returns the signals that a test gave for the next wait. The caller holds the mutex of s.
func (w *waits) take(s *steps, spec engine.SuspendSpec) ([]engine.ReceivedSignal, error) {
	if w == nil || w.taken == len(w.given) {
		return nil, &later{verdict: suspend, wait: spec}
	}
	signals, keys := slices.Clone(w.given[w.taken]), spec.Condition.WaitpointKeys()
	w.taken++
	for _, key := range keys {
		delete(s.points, key) // the end of a wait closes its waitpoints
	}
	if len(signals) == 0 {
		return nil, timedOut(keys)
	}
	for i := range signals {
		switch key := signals[i].Key; {
		case key == "" && len(keys) == 1:
			signals[i].Key = keys[0]
		case key != "" && !slices.Contains(keys, key):
			return nil, badWait(fmt.Errorf("the test gives a signal that came to the waitpoint %q, and the wait has the waitpoints %q", key, keys))
		}
	}
	return signals, nil
}

// remember keeps a finished step of a test's job for the next run.
func (s *steps) remember(record engine.StepRecord) engine.Recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[record.Name] = engine.Step{
		Name: record.Name, Seq: record.Seq, Form: record.Form, Outcome: record.Outcome, Result: record.Result,
	}
	return engine.Recorded{Result: record.Result}
}

// openForTest returns the open waitpoint with a key, or a new one, with a token that no server accepts.
func (s *steps) openForTest(x id.ExecutionID, key id.WaitpointKey, ttl time.Duration) engine.Waitpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.points[key]; ok {
		w.Created = false
		return w
	}
	w := id.NewWaitpointID()
	s.points[key] = engine.Waitpoint{
		Execution: x, ID: w, Key: key, Token: wire.SignWaitpoint(wire.NewSecret(), "test", x, w),
		ExpiresAt: time.Now().Add(ttl), Created: true,
	}
	return s.points[key]
}
