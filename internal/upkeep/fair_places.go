package upkeep

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// oldPlaceAfter is the age at which the place of a started execution is deleted.
const oldPlaceAfter = time.Hour

// fairSweep is where the next call of the job forget_fair_places continues.
type fairSweep struct {
	mu    sync.Mutex
	begun bool
	from  fairPosition
}

// fairPosition is a row, or several, of ffx_fair_place.
type fairPosition struct{ key, placeNs int64 }

// ForgetFairPlaces deletes places of fair work that no creation needs: places of tenants with a greater one, and places
// older than an hour whose executions have started. A tenant without places counts as new. It examines up to batch
// places, at least 2 and at most [core.MaxSweep], and returns how many it deleted. Each call continues after the
// previous one of the same engine, and begins again after the last place.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked rows. Safe to repeat and to run in any number of
// processes.
func (u *Upkeep) ForgetFairPlaces(ctx context.Context, batch int) (int, error) {
	const op = "forget places of fair work"
	u = u.shortWait()
	if batch < 2 || batch > core.MaxSweep {
		return 0, core.Invalid("batch", fmt.Sprintf("must be between 2 and %d", core.MaxSweep))
	}
	first := fairPosition{math.MinInt64, math.MinInt64}
	u.fairSweep.mu.Lock()
	from := u.fairSweep.from
	if !u.fairSweep.begun {
		from = first
	}
	u.fairSweep.mu.Unlock()
	row, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, _ *core.Notifications) (db.DropPassedPlacesRow, error) {
		return u.c.Q.DropPassedPlaces(ctx, conn, db.DropPassedPlacesParams{
			NowMs: u.c.NowMs(), KeepMs: oldPlaceAfter.Milliseconds(), FromFairKey: from.key, FromPlaceNs: from.placeNs, PageSize: int32(batch),
		})
	})
	if err != nil {
		return 0, err
	}
	u.fairSweep.mu.Lock()
	u.fairSweep.begun = int(row.Examined) == batch
	u.fairSweep.from = fairPosition{row.LastFairKey, row.LastPlaceNs}
	u.fairSweep.mu.Unlock()
	return int(row.Deleted), nil
}
