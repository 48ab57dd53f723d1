package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// Other parts make another key. W12
func TestKey(t *testing.T) {
	t.Parallel()
	keys := map[string]string{
		Key("page"): "page", Key("page", 3): "page/3", Key("page", "a/b", 1): "page/a%2Fb/1", Key("page", "a", "b"): "page/a/b",
		Key("a/b", "c"): "a%2Fb/c", Key("a", "b", "c"): "a/b/c", Key("a%2Fb", "c"): "a%252Fb/c", Key("a b"): "a b",
	}
	for got, want := range keys {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStepWithoutWorker(t *testing.T) {
	t.Parallel()
	_, err := Step(t.Context(), Job[int]{}, "a", func(context.Context) (int, error) { panic("must not run") })
	if err == nil || !strings.Contains(err.Error(), "worker") {
		t.Error(err)
	}
	if key := IdempotencyKey(t.Context()); key != "" {
		t.Errorf("%q outside of a step", key)
	}
}

func (f *fakeEngine) RecordStep(_ context.Context, step engine.StepRecord) (engine.Recorded, error) {
	return engine.Recorded{Result: step.Result}, nil
}

func (f *fakeEngine) RecordSteps(_ context.Context, steps []engine.StepRecord) ([]fferr.Outcome[engine.Recorded], error) {
	outcomes := make([]fferr.Outcome[engine.Recorded], len(steps))
	for i, step := range steps {
		outcomes[i].Value.Result = step.Result
	}
	return outcomes, nil
}

func (f *fakeEngine) Call(context.Context, engine.CallSpec) ([]id.ExecutionID, error) {
	return nil, nil
}

func (f *fakeEngine) CalledResults(context.Context, []id.ExecutionID) ([]engine.CalledResult, error) {
	return nil, nil
}

func (f *fakeEngine) callEnded() {}

func (f *fakeEngine) sequenceEnded([]id.LaneID) {}

func (f *fakeEngine) StepResults(context.Context, id.ExecutionID) ([]engine.Step, error) {
	return nil, nil
}

func (f *fakeEngine) turnIn(
	_ context.Context, fn func(pgx.Tx, *engine.Engine) (engine.StepRecord, error),
	_ func(context.Context, frameAppender) error, _ func(context.Context, *engine.Engine) (bool, error),
) (engine.Recorded, error) {
	step, err := fn(nil, nil)
	return engine.Recorded{Result: step.Result}, err
}

// Waits for other keys have steps of other names, all of them short enough.
func TestNamesOfWaits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 120)
	names := make(map[string]bool)
	for _, keys := range [][]id.WaitpointKey{
		{"a"},
		{"a", "b"},
		{"a, b"},
		{`a\, b`},
		{`a\`, "b"},
		{"a#2"},
		{id.WaitpointKey(long), "x"},
		{id.WaitpointKey(long), "y"},
		{id.WaitpointKey(long), id.WaitpointKey(long)},
	} {
		name := waitName(keys)
		if names[name] || len(name) > engine.MaxStepName || !utf8.ValidString(name) || !strings.HasPrefix(name, waitPrefix) {
			t.Errorf("%q has the name %q of %d bytes", keys, name, len(name))
		}
		names[name] = true
	}
	if !names["signal a"] || !names["signal a, b"] || !names["signal a#2"] {
		t.Errorf("%v", names)
	}
}

// No wait has the waitpoint of another one, whatever the keys are. W12
func TestKeysOfWaits(t *testing.T) {
	t.Parallel()
	s := &steps{waited: make(map[id.WaitpointKey]int)}
	keys := make(map[id.WaitpointKey]bool)
	for range 3 {
		for _, key := range []id.WaitpointKey{"a", "a#2", "a#2#1", "a#", "a#b", "#1", "a#02", "a#1"} {
			next := s.nextKey(key)
			if keys[next] {
				t.Errorf("wait %d at %q has the key %q of an earlier one", s.waited[key]+1, key, next)
			}
			keys[next] = true
			s.waited[key]++
		}
	}
	for _, key := range []id.WaitpointKey{"a", "a#2", "a#3", "a#2#1", "a#", "a##2", "a#b"} {
		if !keys[key] {
			t.Errorf("no wait has the key %q", key)
		}
	}
}

// A wait counts as a step.
func TestMostStepsOfWaits(t *testing.T) {
	t.Parallel()
	job := Job[int]{eng: new(fakeEngine), steps: &steps{}}
	spec := engine.SuspendSpec{Condition: engine.Received("a")}
	var suspended *later
	if _, err := job.AwaitSignals(t.Context(), spec); !errors.As(err, &suspended) || suspended.wait.Step != "signal a" || suspended.wait.StepSeq != 0 {
		t.Fatalf("%+v, error %v", suspended, err)
	}
	if p, _, err := job.beginStep(t.Context(), "b", engine.FormStep, nil); err != nil || p.seq != 1 {
		t.Fatal(p, err)
	}
	job.steps.next = engine.MaxSteps
	_, err := job.AwaitSignals(t.Context(), spec)
	if failure, ok := errors.AsType[*Fail](err); !ok || failure.Category != "wait" || !errors.Is(err, fferr.ErrInvalidInput) {
		t.Error(err)
	}
}
