package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// waits has the signals that a job's execution has received, and how often the handler has waited for each.
type waits struct {
	mu     sync.Mutex
	read   bool
	known  []engine.ReceivedSignal
	before map[id.WaitpointKey]int // waits of this run, by key

	given [][]engine.ReceivedSignal // by a test, for one wait after the other
	taken int                       // how many of given have ended a wait
}

func timedOut(keys []id.WaitpointKey) error {
	return fmt.Errorf("waiting for %q: %w", keys, engine.ErrWaitTimeout)
}

// AwaitSignals returns the signals that satisfied a wait of this execution, for [engine.Signal.Await] and its like. In a
// first attempt that was not interrupted there are none to read. A wait that is not possible is a permanent failure of the
// category "wait".
func (j Job[In]) AwaitSignals(ctx context.Context, spec engine.SuspendSpec) ([]engine.ReceivedSignal, error) {
	if err := spec.Validate(); err != nil {
		return nil, badWait(err)
	}
	w := j.waits
	if j.eng == nil {
		return w.take(spec)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.read && (j.Resumed || j.Lease.Attempt > 0) {
		var err error
		if w.known, err = j.eng.ReceivedSignals(ctx, j.ID); err != nil {
			return nil, err
		}
	}
	w.read = true
	spec.Lease, spec.ID = j.Lease, id.NewSuspensionID()
	spec.Condition = spec.Condition.Numbered(w.number(spec.Condition.WaitpointKeys()))
	keys := spec.Condition.WaitpointKeys()
	var received []engine.ReceivedSignal
	for _, signal := range w.known {
		if signal.TimedOut(keys) {
			return nil, timedOut(keys)
		}
		if signal.Matched && slices.Contains(keys, signal.Key) {
			received = append(received, signal)
		}
	}
	if len(received) == 0 {
		return nil, &later{verdict: suspend, wait: spec}
	}
	return received, nil
}

// number returns how many waits of this run had one of the keys before, and counts this one.
func (w *waits) number(keys []id.WaitpointKey) int {
	if w.before == nil {
		w.before = make(map[id.WaitpointKey]int)
	}
	n := 0
	for _, key := range keys {
		n = max(n, w.before[key])
	}
	for _, key := range keys {
		w.before[key] = n + 1
	}
	return n
}

// Waitpoint opens a waitpoint and returns it with a token: the part of a link that lets a person without an account send
// a signal. A wait with the same key uses it. Call it in a [Step] that also hands out the link: if that runs again before
// the wait is over, it gets the same waitpoint. After the wait the call would open another. Don't return the token from
// the step: results are stored as plain text. See [engine.Engine.CreateWaitpoint].
func (j Job[In]) Waitpoint(ctx context.Context, key id.WaitpointKey, ttl time.Duration) (engine.Waitpoint, error) {
	if j.isForTest() {
		return waitpointForTest(j.ID, key, ttl), nil
	}
	if j.eng == nil {
		return engine.Waitpoint{}, errNoWorker
	}
	return j.eng.CreateWaitpoint(ctx, engine.WaitpointSpec{Lease: j.Lease, Key: key, TTL: ttl})
}

// suspendAll suspends executions. Those whose signals came early go back to their lanes, to be handled again.
func (r *run) suspendAll(ctx context.Context, tasks []*task) ([]error, error) {
	specs := make([]engine.SuspendSpec, len(tasks))
	for i, t := range tasks {
		specs[i] = t.wait
	}
	outcomes, err := r.settling.SuspendEach(ctx, specs)
	if err != nil {
		return nil, err
	}
	reasons := make([]error, len(tasks))
	var early []*task
	var places []int // of these among the tasks
	for i, t := range tasks {
		if outcomes[i].Err == nil && outcomes[i].Value.Satisfied {
			early, places = append(early, t), append(places, i)
			continue
		}
		reasons[i] = t.suspended(outcomes[i].Err)
	}
	if len(early) == 0 {
		return reasons, nil
	}
	released, err := r.giveBackAll(ctx, early)
	if err != nil {
		return nil, err
	}
	for i, t := range early {
		if released[i] == nil && t.settlement == Released {
			t.settlement = Suspended
		}
		reasons[places[i]] = released[i]
	}
	return reasons, nil
}
