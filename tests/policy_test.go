package tests

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/policy"
)

// The stored policy has two counts of lost leases, of which the smaller holds: neither is in the way of the caller's.
func TestPolicy_MaxReclaims(t *testing.T) {
	f := cloneFixture(t)
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
			held := f.start(t, func(spec *engine.ExecutionSpec) { spec.Policy = c.policy })
			if c.limit > 0 {
				f.setExecution(t, held.ID, fmt.Sprintf("lease_reclaim_count = %d", c.limit-1))
				f.advance(leaseTTL)
				run(t, f.Maintenance().ExpireLeases, 1)
				f.wantState(t, held.ID, stateReturned)
				f.claim(t)
			}
			f.advance(leaseTTL)
			run(t, f.Maintenance().ExpireLeases, 1)
			f.wantState(t, held.ID, stateFailed)
		})
	}
}

// What is stored is the document of the policy, as the database reads it back.
func TestPolicy_is_stored_whole(t *testing.T) {
	f := newFixture(t)
	given := policy.Execution{
		Retry:          &policy.Retry{MaxRetries: 7, Backoff: policy.Fixed(1500 * time.Microsecond), Categories: []string{"net"}},
		AttemptTimeout: time.Minute, Deadline: time.Hour, DelayUntil: start.Add(time.Second), MaxReclaims: 3,
		DedupWindow: time.Minute, Capabilities: []string{"gpu", "arm"},
	}
	x := f.create(t, func(spec *engine.ExecutionSpec) { spec.Policy = &given })
	want, err := json.Marshal(document.ExecutionOf(given))
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, *f.stored(t, x).Policy, string(want))
}
