package sequences

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func begin(t *testing.T, l *line, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := l.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func run(t *testing.T, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// While another transaction holds the next execution, or the sequence, an end does not wait. It leaves a note, and the next
// one gets its turn once the lock is gone.
func TestEndsWaitForNoLock(t *testing.T) {
	for name, lock := range map[string]string{
		"next execution": `SELECT FROM ff_exec_core WHERE ffx_sequence IS NOT NULL AND public_state = 'waiting_children' FOR UPDATE`,
		"sequence":       `SELECT FROM ffx_sequence FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			l := lineOf(t, 2, engine.SequenceStops)
			c := l.wantTurn(t, 0)
			holder := begin(t, l, pgx.ReadCommitted)
			run(t, holder, lock)
			l.complete(t, c)
			l.wantTurn(t, -1)
			l.wantRows(t, 1, 1, 1)
			fixture.Run(t, upkeep.Of(l.Engine).AdvanceSequences, 0)
			commit(t, holder)
			fixture.Run(t, upkeep.Of(l.Engine).AdvanceSequences, 1)
			l.wantRows(t, 1, 1, 0)
			l.complete(t, l.wantTurn(t, 1))
			l.wantRows(t, 0, 0, 0)
		})
	}
}

// A member is created in a transaction that stays open while the last one before it ends.
func TestCreatorInALongTransaction(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits %v", commits), func(t *testing.T) {
			l := lineOf(t, 1, engine.SequenceStops)
			c := l.wantTurn(t, 0)
			creator := begin(t, l, pgx.ReadCommitted)
			created, err := l.WithTx(creator).CreateExecution(t.Context(), engine.ExecutionSpec{Lane: l.Lane, Kind: "test", Sequence: engine.Sequence{Key: account}})
			if err != nil {
				t.Fatal(err)
			}
			l.members = append(l.members, created.ID)
			l.complete(t, c)
			if commits {
				commit(t, creator)
			} else if err := creator.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.wantTurn(t, -1)
			fixture.Run(t, upkeep.Of(l.Engine).AdvanceSequences, 1)
			if commits {
				l.complete(t, l.wantTurn(t, 1))
			}
			l.wantRows(t, 0, 0, 0)
		})
	}
}

// A creator waits for the end of the last member, and its own is the first then.
func TestCreatorWaitsForAnEnd(t *testing.T) {
	l := lineOf(t, 1, engine.SequenceStops)
	c := l.wantTurn(t, 0)
	ender := begin(t, l, pgx.ReadCommitted)
	if err := l.WithTx(ender).CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	creator := l.Rival(t)
	done := make(chan engine.Created, 1)
	go func() {
		created, err := creator.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: l.Lane, Kind: "test", Sequence: engine.Sequence{Key: account}})
		if err != nil {
			t.Error(err)
		}
		done <- created
	}()
	creator.AwaitBlocked(t, l.Fixture)
	commit(t, ender)
	created := <-done
	l.members = append(l.members, created.ID)
	l.complete(t, l.wantTurn(t, 1))
	l.wantRows(t, 0, 0, 0)
}

// The first member ends while the one behind it is cancelled, in both orders, and the third gets its turn.
func TestTwoEndsAtOnce(t *testing.T) {
	for _, endsFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("ends first %v", endsFirst), func(t *testing.T) {
			l := lineOf(t, 3, engine.SequenceStops)
			c := l.wantTurn(t, 0)
			ender, canceller := begin(t, l, pgx.ReadCommitted), begin(t, l, pgx.ReadCommitted)
			acts := []func() error{
				func() error { return l.WithTx(ender).CompleteExecution(t.Context(), c.Lease, nil) },
				func() error {
					return l.WithTx(canceller).CancelExecution(t.Context(), engine.CancelSpec{ID: l.members[1]})
				},
			}
			if !endsFirst {
				slices.Reverse(acts)
			}
			if endsFirst {
				// It would lock the second one before it is cancelled.
				run(t, canceller, "SELECT FROM ff_exec_core WHERE execution_id = $1 FOR UPDATE", l.members[1].UUID())
			}
			for _, act := range acts {
				if err := act(); err != nil {
					t.Fatal(err)
				}
			}
			commit(t, canceller)
			commit(t, ender)
			for _, n := range []int{100} {
				if _, err := upkeep.Of(l.Engine).AdvanceSequences(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
			l.complete(t, l.wantTurn(t, 2))
			l.wantRows(t, 0, 0, 0)
		})
	}
}

// At a stricter level of isolation a transaction may not see the newest members, so the background work looks.
func TestEndsAtStricterLevels(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			l := lineOf(t, 1, engine.SequenceStops)
			c := l.wantTurn(t, 0)
			tx := begin(t, l, level)
			run(t, tx, "SELECT FROM ffx_sequence")
			l.members = append(l.members, l.Create(t, of(engine.Sequence{Key: account})))
			if err := l.WithTx(tx).CompleteExecution(t.Context(), c.Lease, nil); err != nil {
				t.Fatal(err)
			}
			commit(t, tx)
			fixture.Run(t, upkeep.Of(l.Engine).AdvanceSequences, 1)
			l.complete(t, l.wantTurn(t, 1))
			l.wantRows(t, 0, 0, 0)
		})
	}
}

// Deleted members are passed over, but a sequence stays stopped when retention deletes the one that it stopped at.
func TestDeletedMembers(t *testing.T) {
	l := lineOf(t, 4, engine.SequenceStops)
	remove := func(n int) {
		l.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", l.members[n].UUID())
	}
	remove(1)
	l.wantRows(t, 1, 3, 0)
	l.wantTurn(t, 0)
	remove(0)
	l.fail(t, l.wantTurn(t, 2))
	remove(2)
	l.wantTurn(t, -1)
	if s := l.describe(t); s.StoppedAt.IsZero() || s.First != l.members[2] {
		t.Errorf("%+v", s)
	}
	if err := operator.ContinueSequence(t.Context(), l.Fixture.Engine, engine.SequenceName{Key: account}); err != nil {
		t.Fatal(err)
	}
	l.complete(t, l.wantTurn(t, 3))
	l.wantRows(t, 0, 0, 0)
}

// A sequence that has stopped stays stopped at later ends too, after retention has deleted the member that it stopped at.
func TestStoppedSequenceOutlastsItsMember(t *testing.T) {
	l := lineOf(t, 4, engine.SequenceStops)
	l.fail(t, l.wantTurn(t, 0))
	l.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", l.members[0].UUID())
	if err := l.CancelExecution(t.Context(), engine.CancelSpec{ID: l.members[1]}); err != nil {
		t.Fatal(err)
	}
	l.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", l.members[2].UUID())
	if _, err := upkeep.Of(l.Engine).AdvanceSequences(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	l.wantTurn(t, -1)
	if s := l.describe(t); s.StoppedAt.IsZero() || s.First != l.members[0] {
		t.Errorf("%+v", s)
	}
	if err := operator.ContinueSequence(t.Context(), l.Fixture.Engine, engine.SequenceName{Key: account}); err != nil {
		t.Fatal(err)
	}
	l.complete(t, l.wantTurn(t, 3))
}
