package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// maxRemembered bounds the leases that a process remembers. Whatever else it holds is settled as a lease from a
// handle is: a member by one read more, and its lease timer is looked at when it is due.
const maxRemembered = 100_000

// firstSweep is how many leases are remembered before those that have run out are looked for.
const firstSweep = 1024

// leaseMemory is what a process remembers of the leases it claimed, until they end, are lost or run out. All of it
// saves work, and nothing depends on it.
type leaseMemory struct {
	mu      sync.Mutex
	leases  map[Fence]remembered
	sweepAt int       // leases
	rest    time.Time // no sweep before it, at the bound

	ended []*leaseTimer // whose leases are all over, until the next [Maintenance.ExpireLeases]
}

// remembered is what is known of one lease. Its zero value is nothing.
type remembered struct {
	timer *leaseTimer // nil where the claim may have been rolled back
	flow  id.FlowID   // zero outside a flow
	until int64       // milliseconds of this process's clock, which decides about nothing but this memory
}

// learn remembers the leases of a claim, in one row of lease timers: nil where that may not be there.
func (m *leaseMemory) learn(claimed []Claimed, timer *leaseTimer) {
	if len(claimed) == 0 || timer == nil && !slices.ContainsFunc(claimed, func(c Claimed) bool { return c.Flow != nil }) {
		return
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.room(len(claimed), now) {
		return
	}
	if timer != nil {
		timer.open = len(claimed)
	}
	for i := range claimed {
		c := &claimed[i]
		m.leases[c.Lease.Fence] = remembered{timer, deref(c.Flow), now.Add(c.Lease.TTL).UnixMilli()}
	}
}

// room says whether n leases more may be remembered, and forgets those that have run out when there are twice as many
// as the last time.
func (m *leaseMemory) room(n int, now time.Time) bool {
	if m.leases == nil {
		m.leases, m.sweepAt = make(map[Fence]remembered), firstSweep
	}
	if len(m.leases)+n > m.sweepAt && !now.Before(m.rest) {
		for fence, r := range m.leases {
			if r.until <= now.UnixMilli() {
				delete(m.leases, fence)
			}
		}
		m.sweepAt = max(firstSweep, min(2*(len(m.leases)+n), maxRemembered))
		if m.sweepAt == maxRemembered {
			m.rest = now.Add(time.Second)
		}
	}
	return len(m.leases)+n <= maxRemembered
}

// flowsOf returns the flows of n leases, by item; nil for one whose flow is not known, or that is in none.
func (m *leaseMemory) flowsOf(n int, lease func(int) *Lease) []*id.FlowID {
	flows := make([]*id.FlowID, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range flows {
		if r := m.leases[lease(i).Fence]; !r.flow.IsZero() {
			flows[i] = &r.flow
		}
	}
	return flows
}

// extend remembers leases for another ttl from now on.
func (m *leaseMemory) extend(fences []Fence, ttls []time.Duration) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, fence := range fences {
		if r, ok := m.leases[fence]; ok {
			r.until = max(r.until, now.Add(ttls[i]).UnixMilli())
			m.leases[fence] = r
		}
	}
}

// completed forgets leases that ended with success, in a transaction that is committed, and counts them as over.
func (m *leaseMemory) completed(fences []Fence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, fence := range fences {
		r := m.leases[fence]
		delete(m.leases, fence)
		if r.timer != nil && r.timer.over() && len(m.ended) < maxEndedTimers {
			m.ended = append(m.ended, r.timer)
		}
	}
}

// forget forgets leases that ended otherwise or were lost. Their timer is looked at.
func (m *leaseMemory) forget(fences []Fence) {
	if len(fences) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, fence := range fences {
		delete(m.leases, fence)
	}
}

// takeEnded returns the timers whose leases are all over, once.
func (m *leaseMemory) takeEnded() []*leaseTimer {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.ended
	m.ended = nil
	return taken
}
