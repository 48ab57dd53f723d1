//go:build unix

package events

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The server prepares no transaction that has notified. One that defers its notifications may be prepared, with any
// operations.
func TestOperationsInAPreparedTransaction(t *testing.T) {
	_, on := onServer(t)
	refusals := 0
	levels := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}
	for i, o := range fixture.Operations() {
		level := pgx.TxOptions{IsoLevel: levels[i%len(levels)]}
		if o.Whole || o.Alone {
			continue // background work
		}
		f := fixture.On(t, on.Pool, on.Url)
		l := o.Arrange(t, f)
		before := f.Dump(t, l.Execution)

		refused := fixture.BeginWith(t, f.Pool, level)
		if err := o.Do(t.Context(), f, f.WithTx(refused), l); err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		name := "'" + f.Name + "'"
		_, err := refused.Exec(t.Context(), "PREPARE TRANSACTION "+name)
		switch {
		case err == nil: // it writes no event
			fixture.ExecIn(t, refused, "ROLLBACK PREPARED "+name)
		case strings.Contains(err.Error(), "NOTIFY"):
			refusals++
		default:
			t.Errorf("%s: %v", o.Name, err)
		}
		rollBack(t, refused)
		f.WantUnchanged(t, l.Execution, before)

		tx := fixture.BeginWith(t, f.Pool, level)
		fixture.ExecIn(t, tx, "SET LOCAL ffx.defer_notify = on")
		if err := o.Do(t.Context(), f, f.WithTx(tx), l); err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		fixture.ExecIn(t, tx, "PREPARE TRANSACTION "+name)
		f.WantUnchanged(t, l.Execution, before)
		fixture.ExecIn(t, tx, "COMMIT PREPARED "+name)
		rollBack(t, tx)
		o.WantDone(t, f, l, before)
	}
	if refusals == 0 {
		t.Error("the server prepares transactions that have notified, against what docs/transactions.md says")
	}
}
