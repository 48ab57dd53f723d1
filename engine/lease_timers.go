package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// A leaseTimer is a row of ffx_lease_timer that a claim of this process wrote. If all its leases have ended with
// success, as they nearly always do, they need no check at their expiry.
//
// A timer is only deleted if this process knows that the ends were committed. The check finds all other cases: leases
// settled by another process, failures, and unknown outcomes.
type leaseTimer struct {
	dueMs int64
	id    id.LeaseID
	open  int // leases not known to have ended; under the memory's lock
}

// maxEndedTimers limits the timers kept until the next [Maintenance.ExpireLeases]. If a process never calls it, other
// processes check the leases.
const maxEndedTimers = 10_000

// over records that a lease of t has ended, and reports whether it was the last.
func (t *leaseTimer) over() bool {
	t.open--
	return t.open == 0
}

// forgetLeaseTimers deletes the rows of timers whose leases have all ended. After an error they will be checked.
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
