package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// maxRemembered limits the leases remembered by a process. Others are settled like a lease from a handle: a member's
// needs one more read, and the lease timer is checked when due.
const maxRemembered = 100_000

// firstSweep is the number of remembered leases at which expired ones are first removed.
const firstSweep = 1024

// LeaseMemory remembers the leases claimed by a process, until their end, loss or expiry. It only saves work;
// correctness does not depend on it.
type LeaseMemory struct {
	mu      sync.Mutex
	leases  map[id.Fence]remembered
	sweepAt int       // number of leases
	rest    time.Time // at the limit: no sweep before this time

	timers []*LeaseTimer // whose leases have all ended, until the next upkeep.Upkeep.ExpireLeases
}

// remembered has the known facts of one lease. The zero value is an unknown lease.
type remembered struct {
	timer *LeaseTimer   // nil if the claim may have been rolled back
	flow  id.FlowID     // zero outside a flow
	gates []pgtype.UUID // of the limits
	until int64         // milliseconds of the process's clock, used only by LeaseMemory
}

// Leased has the facts of a claimed lease.
type Leased struct {
	id.Fence
	Flow    *id.FlowID
	Limits  []pgtype.UUID
	Limited bool
	TTL     time.Duration
}

// Learn remembers the leases of a claim, which share one row of lease timers. timer is nil if the row may not exist.
func (m *LeaseMemory) Learn(claimed []Leased, timer *LeaseTimer) {
	if len(claimed) == 0 || timer == nil && !slices.ContainsFunc(claimed, func(l Leased) bool { return l.Flow != nil || l.Limited }) {
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
		l := &claimed[i]
		m.leases[l.Fence] = remembered{timer, Deref(l.Flow), l.Limits, now.Add(l.TTL).UnixMilli()}
	}
}

// room reports whether n more leases may be remembered. It removes expired ones when the number has doubled.
func (m *LeaseMemory) room(n int, now time.Time) bool {
	if m.leases == nil {
		m.leases, m.sweepAt = make(map[id.Fence]remembered), firstSweep
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

// FlowsOf returns the flows of n leases, by item: nil if the flow is unknown, or outside a flow.
func (m *LeaseMemory) FlowsOf(n int, lease func(int) id.Fence) []*id.FlowID {
	flows := make([]*id.FlowID, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range flows {
		if r := m.leases[lease(i)]; !r.flow.IsZero() {
			flows[i] = &r.flow
		}
	}
	return flows
}

// GatesOf returns the limits of a lease, nil without limits or for an unknown lease.
func (m *LeaseMemory) GatesOf(of id.Fence) []pgtype.UUID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leases[of].gates
}

// outside reports whether n leases are known to have been claimed outside flows.
func (m *LeaseMemory) outside(n int, lease func(int) id.Fence) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range n {
		if r, ok := m.leases[lease(i)]; !ok || !r.flow.IsZero() {
			return false
		}
	}
	return true
}

// RenewedLease is a renewed or lost lease.
type RenewedLease struct {
	id.Fence
	TTL  time.Duration
	Lost bool
}

// Renewed remembers renewed leases for another TTL from now on, and forgets lost ones.
func (m *LeaseMemory) Renewed(leases []RenewedLease) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range leases {
		r, ok := m.leases[l.Fence]
		switch {
		case l.Lost:
			delete(m.leases, l.Fence)
		case ok:
			r.until = max(r.until, now.Add(l.TTL).UnixMilli())
			m.leases[l.Fence] = r
		}
	}
}

// Ended removes leases ended by their holder in a committed transaction, and counts their timers down.
func (m *LeaseMemory) Ended(fences []id.Fence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, fence := range fences {
		r := m.leases[fence]
		delete(m.leases, fence)
		if r.timer != nil && r.timer.over() && len(m.timers) < maxEndedTimers {
			m.timers = append(m.timers, r.timer)
		}
	}
}

// Forget removes lost leases. Their timers will be checked.
func (m *LeaseMemory) Forget(fences []id.Fence) {
	if len(fences) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, fence := range fences {
		delete(m.leases, fence)
	}
}

// takeEnded returns the timers whose leases have all ended, once.
func (m *LeaseMemory) takeEnded() []*LeaseTimer {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.timers
	m.timers = nil
	return taken
}

// A LeaseTimer is a row of ffx_lease_timer written by a claim of this process. If the holder has ended all leases of
// the timer, as nearly always, no check is needed at their expiry.
//
// A timer is only deleted if all ends are known to be committed. The check finds all other cases: leases settled by
// another process or in a caller's transaction, and unknown outcomes.
type LeaseTimer struct {
	DueMs int64
	ID    id.LeaseID
	open  int // leases not known to have ended; under the lock of LeaseMemory
}

// maxEndedTimers limits the timers kept until the next upkeep.Upkeep.ExpireLeases. If a process never calls
// ExpireLeases, other processes check the leases.
const maxEndedTimers = 10_000

// over counts the end of a lease of t, and reports whether none is left.
func (t *LeaseTimer) over() bool {
	t.open--
	return t.open == 0
}

// ForgetLeaseTimers deletes the rows of timers whose leases have all ended. After an error the leases will be checked.
func (c *Core) ForgetLeaseTimers(ctx context.Context, op string) error {
	if c.Tx != nil {
		return nil // the ends may be rolled back
	}
	for ended := range slices.Chunk(c.Leases.takeEnded(), MaxBatch) {
		var params db.ForgetLeaseTimersParams
		for _, w := range ended {
			params.DueAtMs = append(params.DueAtMs, w.DueMs)
			params.TimerIDs = append(params.TimerIDs, pgtype.UUID{Bytes: w.ID, Valid: true})
		}
		if _, err := InStatement(ctx, c.ShortWait(), op, func(conn db.DBTX, _ *Notifications) (struct{}, error) {
			return struct{}{}, c.Q.ForgetLeaseTimers(ctx, conn, params)
		}); err != nil && !errors.Is(err, fferr.ErrBusy) {
			return err
		}
	}
	return nil
}
