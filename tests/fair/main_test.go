package fair

import (
	"fmt"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// A lane has the tenants of the executions that a test creates on one lane.
type lane struct {
	*fixture.Fixture
	name     id.LaneID
	tenantOf map[id.ExecutionID]string
}

func newLane(f *fixture.Fixture, suffix string) *lane {
	return &lane{f, f.Lane + id.LaneID(suffix), make(map[id.ExecutionID]string)}
}

// add creates executions for a tenant in one call; for the empty tenant plain ones.
func (l *lane) add(t *testing.T, eng *engine.Engine, n int, share engine.FairShare, change ...func(*engine.ExecutionSpec)) []id.ExecutionID {
	t.Helper()
	specs := make([]engine.ExecutionSpec, n)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: l.name, Kind: "test", Fair: share}
		for _, c := range change {
			c(&specs[i])
		}
	}
	outcomes, err := eng.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	created := make([]id.ExecutionID, n)
	for i, o := range outcomes {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		created[i] = o.Value.ID
		l.tenantOf[created[i]] = share.Tenant
	}
	return created
}

// take claims up to n executions from the head of the lane.
func (l *lane) take(t *testing.T, n int) []engine.Claimed {
	t.Helper()
	spec := l.Worker()
	spec.Lane = l.name
	claimed, err := l.Claim(t.Context(), spec, n)
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

// order returns the tenants of claimed executions, in the order of their claims.
func (l *lane) order(claimed []engine.Claimed) []string {
	of := make([]string, len(claimed))
	for i, c := range claimed {
		of[i] = l.tenantOf[c.ID]
	}
	return of
}

// named is a share of a numbered tenant.
func named(n, weight int) engine.FairShare {
	return engine.FairShare{Tenant: fmt.Sprint("tenant ", n), Weight: weight}
}

func of(tenant string) engine.FairShare { return engine.FairShare{Tenant: tenant} }
