package executions

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The stored policy has two counts of lost leases, of which the smaller applies: neither is in the way of the
// caller's.
func TestPolicyMaxReclaimsTakesTheSmallerCount(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, c := range []struct {
		name   string
		policy *policy.Execution
		limit  int
	}{
		{"no policy", nil, policy.ReclaimLimit},
		{"default", &policy.Execution{}, policy.DefaultMaxReclaims},
		{"default beside a time limit", &policy.Execution{AttemptTimeout: time.Hour}, policy.DefaultMaxReclaims},
		{"fewer", &policy.Execution{AttemptTimeout: time.Hour, MaxReclaims: 2}, 2},
		{"more", &policy.Execution{MaxReclaims: 500}, 500},
		{"more, beside a time limit", &policy.Execution{Deadline: time.Hour, MaxReclaims: 500}, 500},
		{"as many as may be", &policy.Execution{AttemptTimeout: time.Hour, MaxReclaims: policy.ReclaimLimit}, policy.ReclaimLimit},
		{"none", &policy.Execution{AttemptTimeout: time.Hour, MaxReclaims: policy.NoReclaims}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Policy = c.policy })
			if c.limit > 0 {
				f.SetExecution(t, held.ID, fmt.Sprintf("lease_reclaim_count = %d", c.limit-1))
				f.Advance(fixture.LeaseTTL)
				fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
				f.WantState(t, held.ID, fixture.StateReturned)
				f.ClaimOne(t)
			}
			f.Advance(fixture.LeaseTTL)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			f.WantState(t, held.ID, fixture.StateFailed)
		})
	}
}

// The stored policy is its document, as the database reads it back.
func TestPolicyIsStoredWhole(t *testing.T) {
	f := fixture.New(t)
	given := policy.Execution{
		Retry:          &policy.Retry{MaxRetries: 7, Backoff: policy.Fixed(1500 * time.Microsecond), Categories: []string{"net"}},
		AttemptTimeout: time.Minute, Deadline: time.Hour, DelayUntil: fixture.Start.Add(time.Second), MaxReclaims: 3,
		DedupWindow: time.Minute, Capabilities: []string{"gpu", "arm"},
	}
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Policy = &given })
	want, err := json.Marshal(document.ExecutionOf(given))
	if err != nil {
		t.Fatal(err)
	}
	fixture.WantJSON(t, *f.Stored(t, x).Policy, string(want))
}
