package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// A watch is a row of ffx_lease_watch that a claim of this process wrote. When all its leases have ended
// with success, as nearly always, nobody needs to look at them when they would have run out.
//
// It is only ever forgotten for what this process knows to be committed. All else is found by the look:
// what another process settled, or fails, or is in doubt.
type watch struct {
	dueMs int64
	id    id.LeaseID
	open  atomic.Int32 // leases that are not known to be over
}

// maxEndedTimers bounds what is kept until the next [Engine.ExpireLeases]. In a process that never calls
// it the others look at the leases.
const maxEndedTimers = 10_000

// endedTimers are those whose leases are all over.
type endedTimers struct {
	mu      sync.Mutex
	watches []*watch
}

// rememberTimer connects the leases of a claim with its row in the watch.
func rememberTimer(claimed []Claimed, rowID id.LeaseID) {
	if len(claimed) == 0 {
		return
	}
	w := &watch{dueMs: claimed[0].ExpiresAt.UnixMilli(), id: rowID}
	w.open.Store(int32(len(claimed)))
	for i := range claimed {
		claimed[i].watch = w
	}
}

// over records that a lease of w has ended, once the transaction that ended it is committed: a lease ends
// once, and whoever repeats that is told by another statement.
func (s *endedTimers) over(w *watch) {
	if w == nil || w.open.Add(-1) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watches) < maxEndedTimers {
		s.watches = append(s.watches, w)
	}
}

func (s *endedTimers) take() []*watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.watches
	s.watches = nil
	return taken
}

// forgetLeaseTimers deletes the rows of watches whose leases are all over. What an error leaves is looked at.
func (e *Engine) forgetLeaseTimers(ctx context.Context, op string) error {
	if e.tx != nil {
		return nil // it may be rolled back
	}
	for ended := range slices.Chunk(e.ended.take(), MaxBatch) {
		var params db.ForgetLeaseTimersParams
		for _, w := range ended {
			params.DueAtMs = append(params.DueAtMs, w.dueMs)
			params.TimerIds = append(params.TimerIds, pgtype.UUID{Bytes: w.id, Valid: true})
		}
		if _, err := inStatement(ctx, e.impatient(), op, func(conn db.DBTX, _ *notifications) (struct{}, error) {
			return struct{}{}, e.q.ForgetLeaseTimers(ctx, conn, params)
		}); err != nil && !errors.Is(err, ErrBusy) {
			return err
		}
	}
	return nil
}
