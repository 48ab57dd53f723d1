package transactions

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

// One key is one row at each isolation level. A transaction at READ COMMITTED finds what another has committed since it
// began; one whose snapshot does not show that is the server's to refuse. The keys of signals have a test of their own. W7
func TestKeysAtEachIsolationLevel(t *testing.T) {
	for name, with := range map[string]func(*engine.ExecutionSpec){
		"an idempotency key": func(s *engine.ExecutionSpec) { s.IdempotencyKey = "k" },
		"a business key":     func(s *engine.ExecutionSpec) { s.BusinessKey = id.BusinessKey{Name: "order", Value: "1"} },
		"unique work":        func(s *engine.ExecutionSpec) { s.Unique = &engine.Unique{ByLane: true} },
	} {
		for _, level := range append(higherLevels, pgx.ReadCommitted) {
			t.Run(name+", "+string(level), func(t *testing.T) {
				f := fixture.NewCloned(t)
				create := func(ctx context.Context, eng *engine.Engine) (engine.Created, error) {
					spec := engine.ExecutionSpec{Kind: "test", Lane: f.Lane}
					with(&spec)
					return eng.CreateExecution(ctx, spec)
				}
				tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
				fixture.ExecIn(t, tx, "SELECT FROM ff_exec_core LIMIT 1") // its snapshot
				first, err := create(t.Context(), f.Engine)
				if err != nil {
					t.Fatal(err)
				}
				second, err := create(t.Context(), f.WithTx(tx))
				switch {
				case level != pgx.ReadCommitted:
					if !errors.Is(err, fferr.ErrContention) && pgtx.SQLState(err) != "40001" {
						t.Errorf("created %+v, %v", second, err)
					}
				case !errors.Is(err, fferr.ErrKeyConflict) && (err != nil || !second.Duplicate || second.ID != first.ID):
					t.Errorf("created %+v, %v", second, err)
				}
				_ = tx.Rollback(t.Context())
				if n := fixture.Texts(t, f.Pool, "SELECT execution_id::text FROM ff_exec_core"); len(n) != 1 {
					t.Errorf("%d executions", len(n))
				}
			})
		}
	}
}
