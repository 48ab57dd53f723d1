package transactions

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// After a commit that the server refused, the connection stays with the caller until the rollback: the caller may ask
// whether it was lost, and no other caller gets it before.
func TestBeginForeignKeepsItsConnectionAfterARefusal(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t)
	f.AtCommit(t, "RAISE EXCEPTION 'not today'")
	pool := fixture.OpenPool(t, f.Url, func(*pgxpool.Config) {})
	runner := pgtx.NewRunner(pool)
	tx, err := runner.BeginForeign(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fixture.ExecIn(t, tx, "UPDATE ff_exec_core SET priority = 7 WHERE execution_id = $1", x.UUID())
	if err := tx.Commit(t.Context()); pgtx.SQLState(err) != "P0001" {
		t.Fatalf("got %v, want what refused the commit", err)
	}
	if held := pool.Stat().AcquiredConns(); held != 1 || tx.Conn().IsClosed() {
		t.Errorf("after the refusal %d connections are held, want the one", held)
	}
	pgtx.Rollback(tx)
	if held := pool.Stat().AcquiredConns(); held != 0 {
		t.Errorf("after the rollback %d connections are held", held)
	}
}
