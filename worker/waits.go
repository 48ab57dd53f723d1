package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// waits has the signals that a test gave to a job, for one wait after the other.
type waits struct {
	given [][]engine.ReceivedSignal
	taken int // how many of given have ended a wait
}

func timedOut(keys []id.WaitpointKey) error {
	return fmt.Errorf("waiting for %q: %w", keys, fferr.ErrWaitTimeout)
}

// AwaitSignals returns the signals that satisfied a wait of this execution, for [engine.Signal.Await] and similar
// methods. Like a [Step], the wait has a place and a stored result, and a name of its own: "signal approved". An
// invalid wait is a permanent failure of the category "wait".
func (j Job[In]) AwaitSignals(ctx context.Context, spec engine.SuspendSpec) ([]engine.ReceivedSignal, error) {
	if err := spec.Validate(); err != nil {
		return nil, badWait(err)
	}
	if err := j.outsideTurn(ctx); err != nil {
		return nil, err
	}
	if j.steps == nil { // a literal of a test
		return nil, &later{verdict: suspend, wait: spec}
	}
	var isNew bool
	received, err := j.await(ctx, &spec, &isNew)
	if p := j.parts(); p != nil && isNew {
		part := Part{PartSignal, strings.TrimPrefix(waitName(spec.Condition.WaitpointKeys()), waitPrefix)}
		_, end := p.begin(ctx, part)
		report := partReport(err)
		report.Signals = received
		p.end(part, end, report)
	}
	return received, err
}

// await is AwaitSignals for a valid wait. It numbers the keys of the wait, and sets isNew if the wait begins, or if this
// is the first run after its end.
func (j Job[In]) await(ctx context.Context, wait *engine.SuspendSpec, isNew *bool) ([]engine.ReceivedSignal, error) {
	s := j.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx, j.eng, j.recorder, &j.Claimed); err != nil {
		return nil, err
	}
	waited := wait.Condition.WaitpointKeys()
	wait.Condition = wait.Condition.Renamed(s.nextKey)
	for _, key := range waited {
		s.waited[key]++
	}
	if j.isForTest() {
		return j.waits.take(s, *wait)
	}
	keys := wait.Condition.WaitpointKeys()
	// By key instead of by name: new code may wait for more signals than the code that waited.
	received, err := ended(s.signals, keys)
	if err != nil || len(received) > 0 {
		arrived, timeout := ended(s.arrived, keys)
		*isNew = timeout != nil || len(arrived) > 0
		return received, err
	}
	if s.later {
		// Before it waits again: another program may have suspended the execution without a step.
		all, err := repeat(ctx, j.recorder, func() ([]engine.ReceivedSignal, error) { return j.eng.ReceivedSignals(ctx, j.ID) })
		if err != nil {
			return nil, err
		}
		received, err = ended(all, keys)
		if err != nil || len(received) > 0 {
			*isNew = true
			return received, err
		}
	}
	wait.Lease, wait.ID = j.Lease, id.NewSuspensionID()
	if len(keys) > 0 {
		seq, err := s.place()
		if err != nil {
			return nil, badWait(err)
		}
		wait.Step, wait.StepSeq = waitName(keys), seq
		if _, stored := s.known[wait.Step]; stored {
			return nil, badWait(fmt.Errorf("step %q has no signal of this wait", wait.Step))
		}
	}
	*isNew = true
	s.paused = waitName(keys)
	return nil, &later{verdict: suspend, wait: *wait}
}

// ended returns the signals for a wait at the waitpoints with the given keys, or the error of its timeout.
func ended(signals []engine.ReceivedSignal, keys []id.WaitpointKey) (received []engine.ReceivedSignal, err error) {
	for _, signal := range signals {
		if signal.TimedOut(keys) {
			return nil, timedOut(keys)
		}
		if signal.Matched && slices.Contains(keys, signal.Key) {
			received = append(received, signal)
		}
	}
	return received, nil
}

// nextKey returns the waitpoint key for the next wait of this run with the given key. The first wait has the key
// itself, and the second of "a" has "a#2". A given key of this form gets a number from the beginning: "a#2#1" is no key
// of a wait for "a". The caller holds the mutex.
func (s *steps) nextKey(key id.WaitpointKey) id.WaitpointKey {
	n := s.waited[key] + 1
	if n == 1 && !numberedKey.MatchString(string(key)) {
		return key
	}
	return id.WaitpointKey(fmt.Sprintf("%s#%d", key, n))
}

var numberedKey = regexp.MustCompile("#[0-9]+$")

// waitPrefix begins the names of the steps of waits.
const waitPrefix = "signal "

var escapeKey = strings.NewReplacer(`\`, `\\`, ",", `\,`)

// waitName returns the name of the step of a wait at the waitpoints with the given keys. Waits with other keys have other
// names. A long one is cut, and ends with a hash of the whole.
func waitName(keys []id.WaitpointKey) string {
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = escapeKey.Replace(string(key))
	}
	name := waitPrefix + strings.Join(parts, ", ")
	if len(name) <= engine.MaxStepName {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	end := "~" + hex.EncodeToString(hash[:16])
	return storable(name, engine.MaxStepName-len(end)) + end
}

// Waitpoint opens a waitpoint and returns it with a token: the part of a link with which a person without an account
// sends a signal. The waitpoint belongs to the next wait of this run at the key: after the first wait at "decision" its
// key is "decision#2", like the key of the second wait. Call Waitpoint in a [Step] that also sends the link: if the
// step runs again before the end of the wait, it gets the same waitpoint. After the wait the call would open another.
// Don't return the token from the step, since results are stored as plain text. See [engine.Engine.CreateWaitpoint].
func (j Job[In]) Waitpoint(ctx context.Context, key id.WaitpointKey, ttl time.Duration) (engine.Waitpoint, error) {
	if j.eng == nil && !j.isForTest() {
		return engine.Waitpoint{}, errNoWorker
	}
	j.steps.mu.Lock()
	key = j.steps.nextKey(key)
	j.steps.mu.Unlock()
	if j.isForTest() {
		return j.steps.openForTest(j.ID, key, ttl), nil
	}
	return repeat(ctx, j.recorder, func() (engine.Waitpoint, error) {
		return j.eng.CreateWaitpoint(ctx, engine.WaitpointSpec{Lease: j.Lease, Key: key, TTL: ttl})
	})
}

// suspendAll suspends executions. Those whose signals came early go back to their lanes, to be handled again.
func (r *run) suspendAll(ctx context.Context, tasks []*task) ([]error, error) {
	specs := make([]engine.SuspendSpec, len(tasks))
	for i, t := range tasks {
		specs[i] = t.wait
		specs[i].Lease = t.lease()
	}
	outcomes, err := r.settling.SuspendEach(ctx, specs)
	reasons := make([]error, len(tasks))
	if err != nil && len(tasks) == 1 && tasks[0].refusedAgain(err) {
		tasks[0].fail(badWait(fmt.Errorf("the wait is refused again and again: %w", err)))
		return reasons, nil
	}
	if err != nil {
		return nil, err
	}
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
