package operators

import (
	"errors"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The moved execution is claimed from its new lane, a new one, and no more from the old.
func TestMoveChangesTheLane(t *testing.T) {
	f := fixture.New(t)
	x, other := f.Create(t), f.Lane+".other"
	for range 2 {
		if err := operator.Move(t.Context(), f.Engine, x, other); err != nil {
			t.Fatal(err)
		}
	}
	if claimed := f.ClaimN(t, 1); len(claimed) != 0 {
		t.Errorf("claimed %v from the old lane", claimed)
	}
	spec := f.Worker()
	spec.Lane = other
	claimed, err := f.Engine.Claim(t.Context(), spec, 1)
	if got := fixture.ExecutionsOf(claimed); err != nil || !slices.Equal(got, []id.ExecutionID{x}) {
		t.Errorf("claimed %v, %v from the new lane, want %s", got, err, x)
	}
	if err := operator.Move(t.Context(), f.Engine, x, f.Lane); !errors.Is(err, fferr.ErrNotEligible) {
		t.Errorf("moved a running execution: %v", err)
	}
	if err := operator.Move(t.Context(), f.Engine, x, ""); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("moved to no lane: %v", err)
	}
}

// A move in a transaction that rolls back changes nothing.
func TestMoveJoinsATransaction(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	before := f.Dump(t, x)
	tx := f.BeginTx(t)
	if err := operator.Move(t.Context(), f.WithTx(tx), x, f.Lane+".other"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.WantUnchanged(t, x, before)
}

// A transaction with an open snapshot is listed until it ends, and tables have counters.
func TestDatabaseListsOldSnapshots(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Create(t)
	tx := f.BeginTx(t)
	if _, err := tx.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SET application_name = 'a report'"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM ff_exec_core"); err != nil {
		t.Fatal(err)
	}
	open := func() bool {
		status, err := operator.Database(t.Context(), f.Engine)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(status.Tables, func(s operator.TableStatus) bool { return s.Name != "" }) {
			t.Error("no table has counters")
		}
		return slices.ContainsFunc(status.Snapshots, func(s operator.OldSnapshot) bool {
			return s.Application == "a report" && s.State == "idle in transaction" && s.PID > 0 && s.User != ""
		})
	}
	if !open() {
		t.Error("the snapshot is not listed")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if open() {
		t.Error("the snapshot is listed after its end")
	}
}
