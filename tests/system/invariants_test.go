package system

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Every invariant can be broken, and is found broken.
func TestEveryInvariantCanFail(t *testing.T) {
	f := fixture.NewCloned(t)
	succeeded := f.Start(t)
	if err := f.CompleteExecution(t.Context(), succeeded.Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.Fail(t, f.Start(t, fixture.Retrying(*policy.ImmediateRetries(0))).Lease, engine.Failure{})
	f.ClaimOne(t)
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.Time().Add(time.Hour) })
	f.Create(t)
	if _, err := operator.Block(t.Context(), f.Engine, f.Create(t), state.PausedByOperator, ""); err != nil {
		t.Fatal(err)
	}
	fixture.FlowsOn(f).Draw(t, nil, "a>b")
	for _, c := range append(fixture.Invariants, fixture.Invariant{
		Name: "is miscounted", Breach: "UPDATE ff_edge_group SET running_count = 0",
	}, fixture.Invariant{
		Name: "is not consistent", Breach: "UPDATE ff_exec_core SET public_state = 'running' WHERE public_state = 'completed'",
	}) {
		tx := f.BeginTx(t)
		if broken, err := fixture.Judge(t.Context(), tx, nil); err != nil || len(broken) > 0 {
			t.Fatal(broken, err)
		}
		if _, err := tx.Exec(t.Context(), c.Breach); err != nil {
			t.Fatal(err)
		}
		broken, err := fixture.Judge(t.Context(), tx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(broken, func(text string) bool { return strings.Contains(text, c.Name) }) {
			t.Errorf("%s is not found broken after %s, but %q", c.Name, c.Breach, broken)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
