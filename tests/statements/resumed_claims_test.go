package statements

import (
	"errors"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A claim finds the attempts that it resumes without comparing each execution with each attempt.
func TestResumedAttemptsAreNotSearched(t *testing.T) {
	p := fixture.NewPlanner(t)
	const n = 40
	if _, err := p.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: p.Lane}}, n)); err != nil {
		t.Fatal(err)
	}
	var leases []engine.Lease
	for _, c := range p.ClaimN(t, n) {
		leases = append(leases, c.Lease)
	}
	outcomes, err := p.ReleaseLeases(t.Context(), leases)
	if err := errors.Join(append(outcomes, err)...); err != nil {
		t.Fatal(err)
	}
	spec := p.Worker()
	claimed, compared := p.Joined(t, "ClaimFromHead", spec.Lane, spec.Instance, p.Time().UnixMilli(), core.PgUUIDs(id.NewAttemptIDs(n)), core.PgUUIDs(id.NewLeaseIDs(n)),
		[]string{}, nil, n, 60_000, spec.Worker)
	if claimed != n || compared > n {
		t.Errorf("a claim of %d resumed executions claims %d, and compares %d pairs of rows for nothing", n, claimed, compared)
	}
}
