package workers

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A handler that worker.Timeout ends fails its attempt. Without a retry left the execution is failed, not expired as by the
// timeout of its policy.
func TestTimeoutOfAKindFailsTheExecution(t *testing.T) {
	c := fixture.NewCrew(t)
	c.Work(t, fixture.Alone, func(w *worker.Worker) {
		worker.Handle(w, engine.Kind[struct{}, struct{}]{Name: "test"}, func(ctx context.Context, _ worker.Job[struct{}]) (struct{}, error) {
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		}, worker.Timeout(time.Millisecond))
	})
	x := c.Create(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{Retry: policy.ImmediateRetries(1)}
	})
	settled := c.Next(t, 2)
	if got := []worker.Settlement{settled[0].Settlement, settled[1].Settlement}; !slices.Equal(got, []worker.Settlement{worker.Retrying, worker.Failed}) {
		t.Errorf("settled as %v", got)
	}
	s, err := c.Eng.DescribeExecution(t.Context(), x)
	if err != nil || s.State.Public != state.PublicFailed || s.Attempts != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for attempt, err := range c.Eng.Attempts(t.Context(), x) {
		if err != nil || attempt.Failure.Class != policy.TimedOut {
			t.Errorf("%+v, %v", attempt, err)
		}
	}
}
