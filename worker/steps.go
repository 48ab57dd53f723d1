package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// steps has the finished steps and waits of a job's execution, and the names and waits of this run. See
// docs/internals/decisions.md#no-replay.
type steps struct {
	mu    sync.Mutex
	read  bool
	known map[string]engine.Step
	used  map[string]bool
	next  int // place of the next new step or wait

	later   bool                                 // this is not the first run: a wait without a step may be over
	signals []engine.ReceivedSignal              // of the waits that have ended
	arrived []engine.ReceivedSignal              // of the last step, if it is a wait
	waited  map[id.WaitpointKey]int              // waits of this run, by key
	points  map[id.WaitpointKey]engine.Waitpoint // open ones of a job for a test

	turns map[int64]*turn // whose functions run, by their goroutines

	paused string // the wait, pause or call whose error the handler has to return; "" for none

	reserved []id.BudgetID // on which the handler may have reservations

	askedAt time.Time // when the claim of the execution was called

	worker *Worker // nil for a test

	stream *Stream // of frames; nil until the handler uses it
	over   bool    // the handler has returned
}

// beginStep returns the stored step of a name, or the place of a new one. Only the first step or wait of a run that is
// not the execution's first reads them.
func (j Job[In]) beginStep(
	ctx context.Context, name string, form engine.StepForm, options []StepOption,
) (*place, *engine.Step, error) {
	if j.eng == nil && !j.isForTest() {
		return nil, nil, errNoWorker
	}
	if err := j.outsideTurn(ctx); err != nil {
		return nil, nil, err
	}
	p := &place{name: name, form: form}
	var o stepOptions
	for _, option := range options {
		if option == nil {
			return nil, nil, p.refuse(&fferr.InputError{Field: "options", Reason: "has a nil option"})
		}
		option(&o)
	}
	if o.retry != nil {
		if err := (&policy.Execution{Retry: o.retry}).Validate(); err != nil {
			return nil, nil, p.refuse(p.wrap(&fferr.InputError{Field: "options", Reason: err.Error()}))
		}
		retry := document.RetryOf(*o.retry)
		p.retry = &retry
	}
	s := j.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx, j.eng, j.recorder, &j.Claimed); err != nil {
		return nil, nil, err
	}
	switch {
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return nil, nil, p.refuse(&fferr.InputError{
			Field: "step", Reason: fmt.Sprintf("its name is %q: it must be valid UTF-8 without U+0000", storable(name, engine.MaxStepName)),
		})
	case name == "" || len(name) > engine.MaxStepName:
		return nil, nil, p.refuse(&fferr.InputError{
			Field: "step", Reason: fmt.Sprintf("its name has %d bytes, must have 1 to %d", len(name), engine.MaxStepName),
		})
	case strings.HasPrefix(name, waitPrefix):
		return nil, nil, p.refuse(&fferr.InputError{
			Field: "step", Reason: fmt.Sprintf("the name %q begins with %q, as the steps of waits do", name, waitPrefix),
		})
	case s.used[name]:
		return nil, nil, p.refuse(&fferr.InputError{
			Field: "step", Reason: fmt.Sprintf("the name %q was used before in this run; worker.Key makes names for loops", name),
		})
	}
	s.used[name] = true
	// See docs/internals/decisions.md#steps-by-name.
	if stored, ok := s.known[name]; ok {
		if stored.Form != form {
			return nil, nil, p.refuse(&fferr.InputError{Field: "step", Reason: fmt.Sprintf(
				"%q was stored by %s, and the code calls %s: give it another name", name, formCalls[stored.Form], formCalls[form],
			)})
		}
		return p, &stored, nil
	}
	var err error
	if p.seq, err = s.place(); err != nil {
		return nil, nil, p.refuse(err)
	}
	return p, nil, nil
}

// formCalls has the function for each form of a step.
var formCalls = map[engine.StepForm]string{
	engine.FormStep: "worker.Step", engine.FormSleep: "worker.Sleep", engine.FormTurn: "worker.Turn",
	engine.FormCall: "worker.Call", engine.FormCallAll: "worker.CallAll", engine.FormWait: "a wait for signals",
}

// place returns the place of a new step. The caller holds the mutex.
func (s *steps) place() (int, error) {
	if s.next >= engine.MaxSteps {
		return 0, &fferr.InputError{
			Field: "step", Reason: fmt.Sprintf("the execution has %d steps, the most that it may have", engine.MaxSteps),
		}
	}
	s.next++
	return s.next - 1, nil
}

// load reads the stored steps once, unless the execution runs for the first time. The caller holds the mutex.
func (s *steps) load(ctx context.Context, eng operations, r *recorder, work *engine.Claimed) error {
	if s.read {
		return nil
	}
	s.known, s.used, s.waited = make(map[string]engine.Step), make(map[string]bool), make(map[id.WaitpointKey]int)
	s.signals, s.arrived = nil, nil
	if isContinued(work) {
		stored, err := repeat(ctx, r, func() ([]engine.Step, error) { return eng.StepResults(ctx, work.ID) })
		if err != nil {
			return err
		}
		s.later = true
		var last engine.Step
		for _, step := range stored {
			signals, err := step.Signals()
			if err != nil {
				return err
			}
			if cmp.Or(step.EndedAt.Compare(last.EndedAt), step.Seq-last.Seq) >= 0 {
				last, s.arrived = step, nil
				if step.Form == engine.FormWait && step.Attempt == work.Lease.Attempt {
					s.arrived = signals
				}
			}
			s.known[step.Name], s.signals = step, append(s.signals, signals...)
			s.next = max(s.next, step.Seq+1)
		}
	}
	s.read = true
	return nil
}

// isContinued reports whether an earlier lease may have stored steps or frames of the execution. A replay continues the
// attempt that had ended.
func isContinued(work *engine.Claimed) bool {
	return work.Resumed || work.Lease.Attempt > 0 || work.Type != state.InitialAttempt
}

// databaseNow returns the database's time since the claim, or the engine's [engine.Config.Now]. It is ahead by the time
// that the claim took to reach the database: if a handler runs again before the end of a pause, the pause may end early
// by this time.
func (j Job[In]) databaseNow() time.Time {
	if j.eng != nil {
		if now := j.eng.clock(); now != nil {
			return now()
		}
	}
	return j.ExpiresAt.Add(-j.Lease.TTL).Add(time.Since(j.steps.askedAt))
}

// finishedStep is a step that waits to be stored.
type finishedStep struct {
	ctx      context.Context
	record   engine.StepRecord
	recorded engine.Recorded
	err      error
	done     chan struct{}
}

// recorder stores the steps of all handlers of a run. Steps finished during a commit share the next one.
type recorder struct {
	queue   chan *finishedStep
	stopped chan struct{} // closed when the run has ended: nothing is stored any more
}

func newRecorder() *recorder {
	return &recorder{queue: make(chan *finishedStep), stopped: make(chan struct{})}
}

// errStopped is the error of a step after its handler and its worker have ended.
var errStopped = fmt.Errorf("%w: it has stopped, and stores no steps any more", ErrShutdown)

// recordStep stores a step. It repeats until the engine stores or refuses the step, or ctx or the run ends. Meanwhile
// the heartbeat renews the lease.
func (j Job[In]) recordStep(ctx context.Context, record engine.StepRecord) (engine.Recorded, error) {
	if j.isForTest() {
		return j.steps.remember(record), nil
	}
	pause := backoff.Backoff{First: repeatFirst, Max: repeatMax}
	for {
		recorded, err := j.recorder.record(ctx, record)
		if errors.Is(err, fferr.ErrBusy) {
			// Wait for the lock here, so that other steps don't.
			recorded, err = j.eng.RecordStep(ctx, record)
		}
		switch {
		case err == nil:
			return recorded, nil
		case ctx.Err() != nil:
			return engine.Recorded{}, context.Cause(ctx)
		case isLost(err):
			return engine.Recorded{}, lossOf(err)
		case errors.Is(err, errStopped):
			return engine.Recorded{}, err
		case errors.Is(err, fferr.ErrInvalidInput):
			return engine.Recorded{}, &Fail{Class: policy.Permanent, Category: "step", Err: err}
		}
		if !backoff.Wait(ctx, pause.Next()) {
			return engine.Recorded{}, context.Cause(ctx)
		}
	}
}

// hasStopped reports whether the run has ended. A job without a worker has no recorder.
func (r *recorder) hasStopped() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.stopped:
		return true
	default:
		return false
	}
}

func (r *recorder) record(ctx context.Context, record engine.StepRecord) (engine.Recorded, error) {
	f := &finishedStep{ctx: ctx, record: record, done: make(chan struct{})}
	select {
	case r.queue <- f:
	case <-ctx.Done():
		return engine.Recorded{}, ctx.Err()
	case <-r.stopped:
		return engine.Recorded{}, errStopped
	}
	select {
	case <-f.done:
		return f.recorded, f.err
	case <-ctx.Done():
		return engine.Recorded{}, ctx.Err()
	}
}

// recordSteps stores finished steps until the recorder is stopped, when no handler runs any more.
func (r *run) recordSteps() {
	var batch []*finishedStep
	var records []engine.StepRecord
	for {
		select {
		case f := <-r.recorder.queue:
			batch = append(batch, f)
		case <-r.recorder.stopped:
			return
		}
		batch = r.recorder.gather(batch, r.cfg.SettleBatch)
		for _, f := range batch {
			records = append(records, f.record)
		}
		calling, cancel := context.WithTimeout(r.base, callTimeout)
		outcomes, err := r.settling.RecordSteps(calling, records)
		cancel()
		for i, f := range batch {
			if f.err = err; err == nil {
				f.recorded, f.err = outcomes[i].Value, outcomes[i].Err
			}
			close(f.done)
		}
		clear(batch)
		clear(records)
		batch, records = batch[:0], records[:0]
	}
}

// gather adds the steps waiting to be stored. It yields to handlers with a step just stored while they reach their next
// steps. Otherwise two groups of handlers would take turns, each with half of the steps.
func (r *recorder) gather(batch []*finishedStep, most int) []*finishedStep {
	for before := 0; before < len(batch); {
		before = len(batch)
		runtime.Gosched()
		for more := true; more && len(batch) < most; {
			select {
			case f := <-r.queue:
				batch = append(batch, f)
			default:
				more = false
			}
		}
	}
	return batch
}
