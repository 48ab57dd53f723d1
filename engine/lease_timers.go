package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// A leaseTimer is a row of ffx_lease_timer that a claim of this process wrote. When all its leases have ended
// with success, as nearly always, nobody needs to look at them when they would have run out.
//
// It is only ever forgotten for what this process knows to be committed. All else is found by the look:
// what another process settled, or fails, or is in doubt.
type leaseTimer struct {
	dueMs int64
	id    id.LeaseID
	open  int // leases that are not known to be over; under the lock of the memory
}

// maxEndedTimers bounds what is kept until the next [Maintenance.ExpireLeases]. In a process that never calls
// it the others look at the leases.
const maxEndedTimers = 10_000

// over records that a lease of t has ended, and says whether it was the last.
func (t *leaseTimer) over() bool {
	t.open--
	return t.open == 0
}

// forgetLeaseTimers deletes the rows of timers whose leases are all over. What an error leaves is looked at.
func (e *Engine) forgetLeaseTimers(ctx context.Context, op string) error {
	if e.tx != nil {
		return nil // it may be rolled back
	}
	for ended := range slices.Chunk(e.leases.takeEnded(), MaxBatch) {
		var params db.ForgetLeaseTimersParams
		for _, w := range ended {
			params.DueAtMs = append(params.DueAtMs, w.dueMs)
			params.TimerIDs = append(params.TimerIDs, pgtype.UUID{Bytes: w.id, Valid: true})
		}
		if _, err := inStatement(ctx, e.impatient(), op, func(conn db.DBTX, _ *notifications) (struct{}, error) {
			return struct{}{}, e.q.ForgetLeaseTimers(ctx, conn, params)
		}); err != nil && !errors.Is(err, ErrBusy) {
			return err
		}
	}
	return nil
}
