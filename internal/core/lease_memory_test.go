package core

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// A memory of leases, without the database; tests/leases/lease_memory_test.go shows its use.

func leases(n int, ttl time.Duration, flow *id.FlowID) []Leased {
	claimed := make([]Leased, n)
	for i := range claimed {
		x := id.NewExecutionID("lane", id.Partitions{})
		claimed[i] = Leased{Fence: id.Fence{Execution: x, Epoch: 1}, TTL: ttl, Flow: flow}
	}
	return claimed
}

func fencesOf(claimed []Leased) []id.Fence {
	fences := make([]id.Fence, len(claimed))
	for i := range claimed {
		fences[i] = claimed[i].Fence
	}
	return fences
}

func (m *LeaseMemory) want(t *testing.T, leases, ended int) {
	t.Helper()
	if len(m.leases) != leases || len(m.timers) != ended {
		t.Errorf("%d leases and %d ended timers are remembered, want %d and %d", len(m.leases), len(m.timers), leases, ended)
	}
}

func TestLeaseMemoryLastsUntilTheLeaseEnds(t *testing.T) {
	var m LeaseMemory
	flow := id.NewFlowID()
	claimed := leases(3, time.Minute, &flow)
	m.Learn(claimed, &LeaseTimer{})
	m.want(t, 3, 0)
	if flows := m.FlowsOf(3, func(i int) id.Fence { return claimed[i].Fence }); *flows[0] != flow || *flows[2] != flow {
		t.Errorf("flows %v", flows)
	}
	fences := fencesOf(claimed)
	m.Ended(fences[:2])
	m.Ended(fences[:2]) // a repetition counts for nothing
	m.want(t, 1, 0)
	m.Ended(fences[2:])
	m.want(t, 0, 1)
	if taken := m.takeEnded(); len(taken) != 1 {
		t.Errorf("%d timers have ended, want 1", len(taken))
	}
	m.want(t, 0, 0)

	// A lost lease keeps its claim's timer from being deleted.
	claimed = leases(2, time.Minute, nil)
	fences = fencesOf(claimed)
	m.Learn(claimed, &LeaseTimer{})
	m.Forget(fences[:1])
	m.Ended(fences)
	m.want(t, 0, 0)

	// Without a flow or a timer there is nothing to remember.
	m.Learn(leases(2, time.Minute, nil), nil)
	m.want(t, 0, 0)
	m.Learn(leases(2, time.Minute, &flow), nil)
	m.want(t, 2, 0)
}

// Leases that are never settled: no more expired ones are remembered than live ones, and no more live ones than the
// limit.
func TestLeaseMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m LeaseMemory
		for range 1000 {
			m.Learn(leases(500, time.Minute, nil), &LeaseTimer{})
			time.Sleep(time.Minute)
			if n := len(m.leases); n > firstSweep {
				t.Fatalf("%d leases are remembered, of which 500 are live", n)
			}
		}
		for range 2 * maxRemembered / 500 {
			m.Learn(leases(500, time.Hour, nil), &LeaseTimer{})
		}
		if n := len(m.leases); n > maxRemembered || n < maxRemembered-1000 {
			t.Errorf("%d live leases are remembered, want about %d", n, maxRemembered)
		}
		time.Sleep(time.Hour)
		last := leases(500, time.Hour, nil)
		m.Learn(last, &LeaseTimer{})
		m.want(t, 500, 0)

		// A renewed lease is remembered for longer.
		m.Renewed([]RenewedLease{
			{Fence: last[0].Fence, TTL: 2 * time.Hour},
			{Fence: last[1].Fence, TTL: time.Hour},
			{Fence: last[6].Fence, TTL: 2 * time.Hour},
			{Fence: last[8].Fence, Lost: true},
		})
		m.want(t, 499, 0)
		time.Sleep(time.Hour + time.Second)
		m.sweepAt = 0
		m.Learn(leases(1, time.Hour, nil), &LeaseTimer{})
		m.want(t, 3, 0)
	})
}
