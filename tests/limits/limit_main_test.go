package limits

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// sync has a tenant, and a weight.
type sync struct {
	Tenant string
	Weight int
}

// kindOf is a kind of the fixture's lane with limits.
func kindOf(f *fixture.Fixture, limits ...engine.Limit[sync]) engine.Kind[sync, struct{}] {
	return engine.Kind[sync, struct{}]{Name: "sync", Lane: f.Lane, Limits: limits}
}

func tenantOf(a sync) string { return a.Tenant }

// atOnce is a limit for each tenant of what runs at once.
func atOnce(n int) engine.Limit[sync] { return engine.Concurrency[sync](n).Per("tenant", tenantOf) }

// created creates an execution.
func created(t *testing.T, eng *engine.Engine, kind engine.Kind[sync, struct{}], args sync) engine.Created {
	t.Helper()
	x, err := kind.Create(t.Context(), eng, args)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

var perTenant = limit.Name{Name: "sync/tenant"}

func describe(t *testing.T, f *fixture.Fixture, x id.ExecutionID) *engine.ExecutionSnapshot {
	t.Helper()
	s, err := f.DescribeExecution(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const minute = time.Minute
