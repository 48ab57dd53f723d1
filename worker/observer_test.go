package worker

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// With an observer a job is made of no more than without one: only a part, if there is one, has a value of its own.
func TestObserverCostsNoAllocationPerJob(t *testing.T) {
	kind := engine.Kind[struct{}, struct{}]{Name: "quick"}
	count := func(w *Worker) float64 {
		return testing.AllocsPerRun(100, func() { kept = newJob(w, &engine.Claimed{}, time.Time{}, kind, struct{}{}) })
	}
	if plain, observed := count(&Worker{}), count(&Worker{cfg: Config{Observer: hooked(nil)}}); plain != observed {
		t.Errorf("%v allocations with an observer, %v without", observed, plain)
	}
}

// kept keeps a job from being put on the stack.
var kept Job[struct{}]
