package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// A memory of leases, without the database; tests/leases/lease_memory_test.go shows its use.

func leased(n int, ttl time.Duration, flow *id.FlowID) []Claimed {
	claimed := make([]Claimed, n)
	for i := range claimed {
		x := id.NewExecutionID("lane", id.Partitions{})
		claimed[i] = Claimed{ID: x, Lease: Lease{Fence: Fence{Execution: x, Epoch: 1}, TTL: ttl}, Flow: flow}
	}
	return claimed
}

func fencesOf(claimed []Claimed) []Fence {
	fences := make([]Fence, len(claimed))
	for i := range claimed {
		fences[i] = claimed[i].Lease.Fence
	}
	return fences
}

func (m *leaseMemory) want(t *testing.T, leases, ended int) {
	t.Helper()
	if len(m.leases) != leases || len(m.timers) != ended {
		t.Errorf("%d leases and %d ended timers are remembered, want %d and %d", len(m.leases), len(m.timers), leases, ended)
	}
}

func TestLeaseMemoryLastsUntilTheLeaseEnds(t *testing.T) {
	var m leaseMemory
	flow := id.NewFlowID()
	claimed := leased(3, time.Minute, &flow)
	m.learn(claimed, &leaseTimer{})
	m.want(t, 3, 0)
	if flows := m.flowsOf(3, func(i int) *Lease { return &claimed[i].Lease }); *flows[0] != flow || *flows[2] != flow {
		t.Errorf("flows %v", flows)
	}
	fences := fencesOf(claimed)
	m.ended(fences[:2])
	m.ended(fences[:2]) // a repetition counts for nothing
	m.want(t, 1, 0)
	m.ended(fences[2:])
	m.want(t, 0, 1)
	if taken := m.takeEnded(); len(taken) != 1 {
		t.Errorf("%d timers have ended, want 1", len(taken))
	}
	m.want(t, 0, 0)

	// A lost lease keeps its claim's timer from being deleted.
	claimed = leased(2, time.Minute, nil)
	fences = fencesOf(claimed)
	m.learn(claimed, &leaseTimer{})
	m.forget(fences[:1])
	m.ended(fences)
	m.want(t, 0, 0)

	// Without a flow or a timer there is nothing to remember.
	m.learn(leased(2, time.Minute, nil), nil)
	m.want(t, 0, 0)
	m.learn(leased(2, time.Minute, &flow), nil)
	m.want(t, 2, 0)
}

// Leases that are never settled: no more expired ones are remembered than live ones, and no more live ones than the
// limit.
func TestLeaseMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m leaseMemory
		for range 1000 {
			m.learn(leased(500, time.Minute, nil), &leaseTimer{})
			time.Sleep(time.Minute)
			if n := len(m.leases); n > firstSweep {
				t.Fatalf("%d leases are remembered, of which 500 are live", n)
			}
		}
		for range 2 * maxRemembered / 500 {
			m.learn(leased(500, time.Hour, nil), &leaseTimer{})
		}
		if n := len(m.leases); n > maxRemembered || n < maxRemembered-1000 {
			t.Errorf("%d live leases are remembered, want about %d", n, maxRemembered)
		}
		time.Sleep(time.Hour)
		last := leased(500, time.Hour, nil)
		m.learn(last, &leaseTimer{})
		m.want(t, 500, 0)

		// A renewed lease is remembered for longer.
		m.renewed([]*renewing{
			{Fence: last[0].Lease.Fence, renewed: true, ttlMs: (2 * time.Hour).Milliseconds()},
			{Fence: last[1].Lease.Fence, renewed: true, ttlMs: time.Hour.Milliseconds()},
			{Fence: last[6].Lease.Fence, renewed: true, ttlMs: (2 * time.Hour).Milliseconds()},
			{Fence: last[7].Lease.Fence},
			{Fence: last[8].Lease.Fence, missed: fferr.ErrStaleLease},
		})
		m.want(t, 499, 0)
		time.Sleep(time.Hour + time.Second)
		m.sweepAt = 0
		m.learn(leased(1, time.Hour, nil), &leaseTimer{})
		m.want(t, 3, 0)
	})
}
