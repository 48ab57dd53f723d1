package limits

import (
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// Executions that name a limit which does not exist are refused, each by itself, and the others are created: in time that
// grows with their number, not with its square. L16.
func TestUndeclaredLimitsRefuseTheirOwnExecutions_L16(t *testing.T) {
	f := fixture.NewCloned(t)
	specs := make([]engine.ExecutionSpec, soak.Size(t, 2_000, 100_000))
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}
		if i%1000 != 7 {
			specs[i].Limits = []engine.LimitKey{{Name: "undeclared"}}
		}
	}
	outcomes, err := f.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if refused := errors.Is(o.Err, fferr.ErrInvalidInput); refused != (i%1000 != 7) || !refused && o.Err != nil {
			t.Fatalf("%d: %v", i, o.Err)
		}
	}
	if n := len(fixture.Texts(t, f.Pool, "SELECT 'x' FROM ff_exec_core")); n != len(specs)/1000 {
		t.Errorf("%d were created, want %d", n, len(specs)/1000)
	}
}
