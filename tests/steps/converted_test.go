package steps

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// An execution that FlowFabric made before the conversion has steps and calls like any other.
func TestStepsOfAConvertedExecution(t *testing.T) {
	f := fixture.ReferenceFixture(t)
	x := f.Seed(t, nil)
	f.Adopt(t)
	c := &caller{Fixture: f, Claimed: f.ClaimOne(t)}
	if c.ID != x {
		t.Fatalf("claimed %s, want %s", c.ID, x)
	}
	record(t, f.Engine, c.Lease, "a", 1)
	c.called = c.call(t, 1)
	c.wait(t)
	c.finish(t)
	c.resume(t, 1)
	c.WantState(t, x, fixture.StateResumable)
	again := c.ClaimOne(t)
	if _, err := c.RecordStep(t.Context(), engine.StepRecord{Lease: again.Lease, Name: "parts", Result: []byte("out")}); err != nil {
		t.Error(err)
	}
	wantSteps(t, c.Engine, x, "parts=out", "a=a!")
}
