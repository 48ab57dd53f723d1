package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func TestKey(t *testing.T) {
	t.Parallel()
	keys := map[string]string{
		Key("page"): "page", Key("page", 3): "page/3", Key("page", "a/b", 1): "page/a%2Fb/1", Key("page", "a", "b"): "page/a/b",
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

func (f *fakeEngine) RecordSteps(_ context.Context, steps []engine.StepRecord) ([]engine.Outcome[engine.Recorded], error) {
	outcomes := make([]engine.Outcome[engine.Recorded], len(steps))
	for i, step := range steps {
		outcomes[i].Value.Result = step.Result
	}
	return outcomes, nil
}

func (f *fakeEngine) StepResults(context.Context, id.ExecutionID) ([]engine.Step, error) {
	return nil, nil
}

func (f *fakeEngine) recordIn(_ context.Context, fn func(pgx.Tx) (engine.StepRecord, error)) (engine.Recorded, error) {
	step, err := fn(nil)
	return engine.Recorded{Result: step.Result}, err
}
