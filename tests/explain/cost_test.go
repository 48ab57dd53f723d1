package explain

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Six statements in one round trip, beside the one of the settings, and in a caller's transaction the same.
func TestExplainTakesOneRoundTrip(t *testing.T) {
	shared := fixture.NewCloned(t)
	log := new(fixture.RoundTripLog)
	f := fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url)
	x := f.Create(t)
	tx := f.BeginTx(t)
	for name, eng := range map[string]*engine.Engine{"on a pool": f.Engine, "in a transaction": f.WithTx(tx)} {
		ask := func() {
			if why, err := explain.Execution(t.Context(), eng, x); err != nil || len(why.Causes) != 1 {
				t.Errorf("%s: %+v, %v", name, why, err)
			}
		}
		ask() // prepares the statements
		sent, trips := log.Of(ask)
		queries := 0
		for _, statement := range sent {
			if !fixture.IsSettings(statement) && !strings.HasPrefix(statement, "--") {
				queries++
			}
		}
		if trips != 1 || queries != 6 {
			t.Errorf("%s: %d round trips, %d statements: %q", name, trips, queries, sent)
		}
	}
}

// A read-only transaction may ask, and holds no lock on rows afterwards.
func TestExplainOnlyReads(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t)
	tx, err := f.Pool.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly, IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := explain.Execution(t.Context(), f.WithTx(tx), x); err != nil {
		t.Fatal(err)
	}
	f.ClaimOne(t) // not locked
}
