package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// eachWay runs a test of a claim four times: claiming from the head of the lane, together with claims from other lanes,
// after scan positions, and after these one by one.
func eachWay(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	t.Run("from the head", func(t *testing.T) { test(t, newFixture(t)) })
	t.Run("together with other lanes", func(t *testing.T) {
		f := newFixture(t)
		f.together = true
		test(t, f)
	})
	for _, oneByOne := range []bool{false, true} {
		t.Run(fmt.Sprintf("after positions, one by one %t", oneByOne), func(t *testing.T) {
			f := newFixture(t)
			f.after = f.engineOn(t, openPool(t, f.url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = fullScanGuard{} }), engine.Config{})
			f.oneByOne = oneByOne
			test(t, f)
		})
	}
}

// Claim claims in the fixture's way.
func (f *fixture) Claim(ctx context.Context, spec engine.ClaimSpec, n int) ([]engine.Claimed, error) {
	if f.together {
		return f.claimTogether(ctx, spec, n)
	}
	if f.after == nil {
		return f.Engine.Claim(ctx, spec, n)
	}
	if _, err := f.after.NewClaimer(spec); err != nil || n < 1 {
		return f.Engine.Claim(ctx, spec, n) // refused
	}
	return f.claimAfterPositions(ctx, spec, n)
}

// claimTogether claims between claims from two lanes that have nothing.
func (f *fixture) claimTogether(ctx context.Context, spec engine.ClaimSpec, n int) ([]engine.Claimed, error) {
	claims := make([]engine.LaneClaim, 3)
	for i := range claims {
		spec := spec
		if i != 1 {
			spec.Lane += "-beside"
		}
		claimer, err := f.Engine.NewClaimer(spec)
		if err != nil || n < 1 || n+2 > engine.MaxBatch {
			return f.Engine.Claim(ctx, spec, n)
		}
		claims[i] = engine.LaneClaim{Claimer: claimer, Limit: 1}
	}
	claims[1].Limit = n
	outcomes, err := f.Engine.ClaimEach(ctx, claims)
	if err != nil {
		return nil, err
	}
	return outcomes[1].Value, errors.Join(outcomes[0].Err, outcomes[1].Err, outcomes[2].Err)
}

// claimAfterPositions claims by a claimer whose positions stand before everything on the lane, and has a full scan add
// what the positions hide: interrupted attempts. Should it find anything else, the claim after the positions lost it.
func (f *fixture) claimAfterPositions(ctx context.Context, spec engine.ClaimSpec, n int) ([]engine.Claimed, error) {
	var claimed []engine.Claimed
	for way := new(positionsOnly); !way.gone; {
		claimer, err := f.positioned(ctx, spec)
		if err != nil {
			return nil, err
		}
		if claimed, err = f.claimEach(context.WithValue(ctx, positionsOnly{}, way), claimer, n); err != nil && !way.refused {
			return nil, err
		}
		way.refused = false
	}
	if len(claimed) == n {
		return claimed, nil
	}
	interrupted, err := f.interrupted(ctx)
	if err != nil {
		return nil, err
	}
	more, err := f.Engine.Claim(ctx, spec, n-len(claimed))
	for i := range more {
		if x := more[i].ID; !slices.Contains(interrupted, x.UUID()) {
			return nil, fmt.Errorf("a claim after the positions passed %s over", x)
		}
	}
	return append(claimed, more...), err
}

// claimEach claims n at once, or one by one until there is nothing more.
func (f *fixture) claimEach(ctx context.Context, claimer *engine.Claimer, n int) ([]engine.Claimed, error) {
	if !f.oneByOne {
		return claimer.Claim(ctx, n)
	}
	var claimed []engine.Claimed
	for len(claimed) < n {
		one, err := claimer.Claim(ctx, 1)
		if claimed = append(claimed, one...); err != nil || len(one) == 0 {
			return claimed, err
		}
	}
	return claimed, nil
}

// positioned returns a claimer that has just claimed something older than anything else on the lane, at each of its
// priorities, and has completed it.
func (f *fixture) positioned(ctx context.Context, spec engine.ClaimSpec) (*engine.Claimer, error) {
	tx, err := f.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	rows, _ := tx.Query(ctx, `SELECT r.rank FROM ffx_ready AS r LEFT JOIN LATERAL (
			SELECT FROM ff_exec_core AS e WHERE e.partition_key = r.partition_key AND e.execution_id = r.execution_id
			FOR UPDATE SKIP LOCKED
		) AS held ON true WHERE r.lane_id = $1`, string(f.lane))
	ranks, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	slices.Sort(ranks)
	var oldest []engine.ExecutionSpec
	if len(ranks) == 0 {
		ranks = []int64{0}
	}
	for _, rank := range slices.Compact(ranks) {
		oldest = append(oldest, engine.ExecutionSpec{
			Lane: f.lane, Kind: append(spec.Kinds, "test")[0], Priority: int(-rank), CreatedAt: start.Add(-1000 * time.Hour),
		})
	}
	if _, err := f.CreateExecutions(ctx, oldest); err != nil {
		return nil, err
	}
	claimer, err := f.after.NewClaimer(spec)
	if err != nil {
		return nil, err
	}
	claimed, err := claimer.Claim(ctx, len(oldest))
	if err != nil {
		return nil, err
	}
	var done []engine.Completion
	for i := range claimed {
		done = append(done, engine.Completion{Lease: claimed[i].Lease})
	}
	outcomes, err := f.CompleteExecutions(ctx, done)
	return claimer, errors.Join(append(outcomes, err)...)
}

// interrupted are the executions of the lane whose attempt was interrupted.
func (f *fixture) interrupted(ctx context.Context) ([]id.ExecutionUUID, error) {
	rows, _ := f.pool.Query(ctx, `SELECT e.execution_id FROM ffx_ready AS r
		JOIN ff_exec_core AS e ON e.partition_key = r.partition_key AND e.execution_id = r.execution_id
		WHERE r.lane_id = $1 AND e.attempt_state = 'attempt_interrupted'`, string(f.lane))
	return pgx.CollectRows(rows, pgx.RowTo[id.ExecutionUUID])
}

// positionsOnly is a value of a context in which a full scan is refused before it is sent.
type positionsOnly struct {
	gone    bool // a claim after positions was sent
	refused bool // a full scan was not
}

// A fullScanGuard is the tracer that refuses it.
type fullScanGuard struct{}

func (fullScanGuard) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	way, _ := ctx.Value(positionsOnly{}).(*positionsOnly)
	if way == nil {
		return ctx
	}
	var sent []string
	for _, q := range data.Batch.QueuedQueries {
		sent = append(sent, q.SQL)
	}
	sent = names(sent)
	way.gone = way.gone || slices.Contains(sent, "ClaimAfterPositions") || slices.Contains(sent, "ClaimOneAfterPosition")
	if !slices.Contains(sent, "ClaimFromHead") {
		return ctx
	}
	way.refused = true
	refused, cancel := context.WithCancel(ctx)
	cancel()
	return refused
}

func (fullScanGuard) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (fullScanGuard) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (fullScanGuard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (fullScanGuard) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
