package signals

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Two callers signal two executions in opposite orders, each in a transaction of its own. The server ends one of them, which
// says so by the sentinel; the other goes on. W15
func TestDeadlockOfCallersIsContention(t *testing.T) {
	f := fixture.New(t)
	x, y := f.Create(t), f.Create(t)
	rival := f.Rival(t)
	one, other := fixture.BeginWith(t, f.Pool, pgx.TxOptions{}), fixture.BeginWith(t, rival.Pool, pgx.TxOptions{})
	send := func(ctx context.Context, tx pgx.Tx, to id.ExecutionID) error {
		_, err := f.WithTx(tx).Signal(ctx, engine.SignalSpec{Execution: to, Name: "ready"})
		if err != nil {
			err = errors.Join(err, tx.Rollback(ctx)) // it still holds the first execution
		}
		return err
	}
	for tx, to := range map[pgx.Tx]id.ExecutionID{one: x, other: y} {
		if err := send(t.Context(), tx, to); err != nil {
			t.Fatal(err)
		}
	}
	second := fixture.Async(t, func(ctx context.Context) error { return send(ctx, other, x) })
	rival.AwaitBlocked(t, f)
	errs := []error{send(t.Context(), one, y), second()}
	refused := 0
	for i, err := range errs {
		switch {
		case err == nil:
			continue
		case !errors.Is(err, fferr.ErrContention) || pgtx.SQLState(err) != "40P01":
			t.Errorf("caller %d: %v, want contention", i, err)
		}
		refused++
	}
	if refused != 1 {
		t.Errorf("%v, want one refusal", errs)
	}
}
