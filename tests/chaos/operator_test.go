//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
)

// operated counts the acts of an operator during the test.
type operated struct{ cancelled, replayed, paused int }

const (
	pauseOneIn, maxPauses = 8, 3

	// A claim that was under way may still end in the first moments of a pause.
	underWay, pausedFor = 200 * time.Millisecond, 100 * time.Millisecond
)

// operate cancels endless executions, replays failed ones, and pauses the lane now and then, until ctx ends. It
// repeats each call until it succeeds, beside the workers.
func (f *fleet) operate(ctx context.Context, eng *engine.Engine) (done operated) {
	o := eng
	for round := 0; ctx.Err() == nil; round++ {
		endless := f.executions(ctx, `raw_fields ->> 'execution_kind' = 'endless' AND lifecycle_phase <> 'cancelled'
			AND random() < CASE lifecycle_phase WHEN 'active' THEN 0.3 ELSE 0.03 END LIMIT 20`)
		if len(endless) > 0 {
			f.tolerate(ctx, "cancel", eng.CancelExecution(ctx, engine.CancelSpec{ID: endless[0], Reason: "enough"}))
			specs := make([]engine.CancelSpec, len(endless))
			for i, x := range endless {
				specs[i] = engine.CancelSpec{ID: x, Reason: "enough"}
			}
			outcomes, err := eng.CancelExecutions(ctx, specs)
			f.tolerate(ctx, "cancel many", errors.Join(append(outcomes, err)...))
			done.cancelled += len(endless)
		}
		for _, x := range f.executions(ctx, `public_state = 'failed' LIMIT 20`) {
			_, err := operator.Replay(ctx, o, x, operator.ReplayCompleted)
			f.tolerate(ctx, "replay", err)
			done.replayed++
		}
		if done.paused < maxPauses && (rand.IntN(pauseOneIn) == 0 || round == pauseOneIn) {
			f.pause(ctx, o)
			done.paused++
		}
		pause(ctx, 50*time.Millisecond)
	}
	return done
}

// pause pauses the lane for a moment, in which no worker gets a lease. A process that was frozen may have been in the
// middle of a claim.
func (f *fleet) pause(ctx context.Context, o *engine.Engine) {
	f.tolerate(ctx, "pause", operator.PauseLane(ctx, o, lane, operator.LanePause{Reason: "a moment"}))
	paused := f.count("SELECT ffx_now_ms(NULL)")
	for range 100 { // a call that a frozen process began does not end before it goes on
		pause(ctx, underWay)
		if f.count(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND xact_start <= to_timestamp($1 / 1000.0)`, paused) == 0 {
			break
		}
	}
	from := f.count("SELECT ffx_now_ms(NULL)")
	pause(ctx, pausedFor)
	f.mu.Lock()
	thawed := []id.WorkerInstanceID{}
	for _, p := range f.processes {
		if p.wasFrozen {
			thawed = append(thawed, p.instance)
		}
	}
	f.mu.Unlock()
	if n := f.count(`SELECT count(*) FROM ff_lease_event
		WHERE event_type = 'acquired' AND occurred_at_ms > $1 AND ffx_worker_instance_id <> ALL ($2)`, from, thawed); n > 0 {
		f.t.Errorf("%d were claimed on a paused lane", n)
	}
	f.tolerate(ctx, "resume", operator.ResumeLane(context.WithoutCancel(ctx), o, lane))
}

// tolerate fails the test for an error that a repetition does not mend.
func (f *fleet) tolerate(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, fferr.ErrBusy) || errors.Is(err, fferr.ErrContention) {
		return
	}
	f.t.Errorf("%s: %v", what, err)
}

// executions returns the ids of those that meet a condition.
func (f *fleet) executions(ctx context.Context, condition string) []id.ExecutionID {
	rows, _ := f.pool.Query(ctx, "SELECT partition_key, execution_id FROM ff_exec_core WHERE "+condition)
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id.ExecutionID, error) {
		var partition int16
		var uuid id.ExecutionUUID
		err := row.Scan(&partition, &uuid)
		return id.ExecutionIDFromRow(partition, uuid), err
	})
	f.tolerate(ctx, "read", err)
	return found
}
