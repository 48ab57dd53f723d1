package workers

import (
	"context"
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
	k := fixture.NewKit(t)
	worker.Handle(k.Worker, engine.Kind[struct{}, struct{}]{Name: "test"}, func(ctx context.Context, _ worker.Job[struct{}]) (struct{}, error) {
		<-ctx.Done()
		return struct{}{}, ctx.Err()
	}, worker.Timeout(time.Millisecond))
	x := k.Create(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{Retry: policy.ImmediateRetries(1)}
	})
	k.WantSettled(t, worker.Retrying, worker.Failed)
	s, err := k.DescribeExecution(t.Context(), x)
	if err != nil || s.State.Public != state.PublicFailed || s.Attempts != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for attempt, err := range k.Attempts(t.Context(), x) {
		if err != nil || attempt.Failure.Class != policy.TimedOut {
			t.Errorf("%+v, %v", attempt, err)
		}
	}
}
