package executions

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// lockKeyOf locks the unique key of an execution, as a transaction that takes it over.
func lockKeyOf(t *testing.T, tx pgx.Tx, x id.ExecutionID) {
	t.Helper()
	fixture.ExecIn(t, tx, `SELECT FROM ffx_unique WHERE key = (
		SELECT ffx_unique_key FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2
	) FOR UPDATE`, x.Partition(), x.UUID())
}

// keyOrder returns two executions in the order of their unique keys.
func keyOrder(t *testing.T, f *fixture.Fixture, a, b id.ExecutionID) (id.ExecutionID, id.ExecutionID) {
	t.Helper()
	first := fixture.Texts(t, f.Pool, `SELECT execution_id::text FROM ffx_unique WHERE execution_id = ANY ($1) ORDER BY key LIMIT 1`,
		[]string{a.UUID().String(), b.UUID().String()})
	if first[0] == a.UUID().String() {
		return a, b
	}
	return b, a
}

// sequenceOrder returns the keys of two new sequences in the order of their ids.
func sequenceOrder(t *testing.T, f *fixture.Fixture) (lower, higher string) {
	t.Helper()
	tx := f.BeginTx(t)
	for _, key := range []string{"a", "b"} {
		create(t, f.WithTx(tx), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Sequence: engine.Sequence{Key: key}})
	}
	err := tx.QueryRow(t.Context(), `
		SELECT (array_agg(key ORDER BY partition_key, sequence_id)) [1], (array_agg(key ORDER BY partition_key, sequence_id)) [2]
		FROM ffx_sequence`).Scan(&lower, &higher)
	if err != nil {
		t.Fatal(err)
	}
	f.End(t, tx, false)
	return lower, higher
}

// Creators and replays lock keys, then executions, then sequences, and each kind in its order. A call that waits at a lock
// has none that comes later, so a transaction with this order gets these, and neither is given up as a deadlock. L6
func TestUniqueCreatorsHaveOneOrderOfLocks(t *testing.T) {
	cancelling, replacing := ifTaken(engine.CancelExisting), ifTaken(engine.ReplaceWaiting)
	for _, c := range []struct {
		name string
		// arrange creates, locks in tx, and returns the call that has to wait, and what tx does then.
		arrange func(t *testing.T, f *fixture.Fixture, tx pgx.Tx) (call func(context.Context, *engine.Engine) error, then func())
	}{
		{"a cancelled member of a sequence", func(t *testing.T, f *fixture.Fixture, tx pgx.Tx) (func(context.Context, *engine.Engine) error, func()) {
			spec := uniqueSpec(f, "1", cancelling)
			spec.Sequence.Key = f.Name
			lockKeyOf(t, tx, create(t, f.Engine, spec).ID)
			return func(ctx context.Context, e *engine.Engine) error { _, err := e.CreateExecution(ctx, spec); return err }, func() {
				create(t, f.WithTx(tx), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Sequence: spec.Sequence})
			}
		}},
		{"one is replaced and one cancelled", func(t *testing.T, f *fixture.Fixture, tx pgx.Tx) (func(context.Context, *engine.Engine) error, func()) {
			specs := []engine.ExecutionSpec{uniqueSpec(f, "1", replacing), uniqueSpec(f, "2", replacing)}
			first, last := create(t, f.Engine, specs[0]).ID, create(t, f.Engine, specs[1]).ID
			if last.Compare(first) < 0 {
				first, last = last, first
				specs[0], specs[1] = specs[1], specs[0]
			}
			specs[0].Unique = &engine.Unique{ByLane: true, ByArgs: true, IfTaken: engine.CancelExisting}
			fixture.LockExecution(t, tx, first)
			return func(ctx context.Context, e *engine.Engine) error {
					_, err := e.CreateExecutions(ctx, specs)
					return err
				}, func() {
					fixture.LockExecution(t, tx, last)
				}
		}},
		{"the same key twice", func(t *testing.T, f *fixture.Fixture, tx pgx.Tx) (func(context.Context, *engine.Engine) error, func()) {
			specs := []engine.ExecutionSpec{uniqueSpec(f, "1", cancelling), uniqueSpec(f, "2", cancelling)}
			x, y := create(t, f.Engine, specs[0]).ID, create(t, f.Engine, specs[1]).ID
			first, last := keyOrder(t, f, x, y)
			if first == x {
				specs[0], specs[1] = specs[1], specs[0]
			}
			lockKeyOf(t, tx, first)
			batch := []engine.ExecutionSpec{specs[0], specs[0], specs[1]}
			return func(ctx context.Context, e *engine.Engine) error {
					_, err := e.CreateExecutions(ctx, batch)
					return err
				}, func() {
					lockKeyOf(t, tx, last)
				}
		}},
		{"new sequences, in the other order", func(t *testing.T, f *fixture.Fixture, tx pgx.Tx) (func(context.Context, *engine.Engine) error, func()) {
			lower, higher := sequenceOrder(t, f)
			specs := []engine.ExecutionSpec{uniqueSpec(f, "1", cancelling), uniqueSpec(f, "1", cancelling)} // two runs
			specs[0].Sequence.Key, specs[1].Sequence.Key = higher, lower
			create(t, f.WithTx(tx), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Sequence: engine.Sequence{Key: lower}})
			return func(ctx context.Context, e *engine.Engine) error {
					_, err := e.CreateExecutions(ctx, specs)
					return err
				}, func() {
					create(t, f.WithTx(tx), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Sequence: engine.Sequence{Key: higher}})
				}
		}},
		{"a replay", func(t *testing.T, f *fixture.Fixture, tx pgx.Tx) (func(context.Context, *engine.Engine) error, func()) {
			x := create(t, f.Engine, uniqueSpec(f, "1")).ID
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
				t.Fatal(err)
			}
			lockKeyOf(t, tx, x)
			return func(ctx context.Context, e *engine.Engine) error {
					_, err := operator.Replay(ctx, e, x)
					return err
				}, func() {
					fixture.LockExecution(t, tx, x)
				}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			f.Create(t)
			log := new(fixture.StatementLog)
			late := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
			registerLane(t, late.Engine, f.Lane)
			tx := f.BeginTx(t)
			call, then := c.arrange(t, f, tx)
			wait := fixture.Async(t, func(ctx context.Context) error { return call(ctx, late.Engine) })
			late.AwaitBlocked(t, f)
			then()
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Error(err)
			}
			if aborted := log.Aborted(); len(aborted) > 0 {
				t.Errorf("the server gave up %v", aborted)
			}
		})
	}
}

// A creation that locks its keys first waits for a replay that takes its key again, and is a duplicate after the commit.
func TestKeyedCreationWaitsForAReplay(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(map[bool]string{true: "commits", false: "rolls back"}[commits], func(t *testing.T) {
			f := fixture.NewCloned(t)
			spec := uniqueSpec(f, "1")
			x := wantNew(t, create(t, f.Engine, spec))
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
				t.Fatal(err)
			}
			late := f.Rival(t)
			tx := f.BeginTx(t)
			if _, err := operator.Replay(t.Context(), f.WithTx(tx), x); err != nil {
				t.Fatal(err)
			}
			spec.IdempotencyKey = f.Key("1")
			wait := beside(t, late.Engine, spec)
			late.AwaitBlocked(t, f)
			f.End(t, tx, commits)
			o := wait()
			switch {
			case o.Err != nil:
				t.Fatal(o.Err)
			case commits:
				wantDuplicate(t, o.Value, x)
			default:
				wantNew(t, o.Value)
			}
		})
	}
}

// A creation that has found a key left does not take it over if the former holder runs again before it can: the creation waits
// at the lower of two keys meanwhile.
func TestKeyOfAReplayedHolderIsNotTakenOver(t *testing.T) {
	f := fixture.NewCloned(t)
	specs := []engine.ExecutionSpec{uniqueSpec(f, "1"), uniqueSpec(f, "2")}
	x, y := create(t, f.Engine, specs[0]).ID, create(t, f.Engine, specs[1]).ID
	lower, higher := keyOrder(t, f, x, y)
	for i, of := range []id.ExecutionID{x, y} {
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: of}); err != nil {
			t.Fatal(err)
		}
		specs[i].IdempotencyKey = f.Key(string(specs[i].Payload)) // keys are then locked one kind after the other
	}
	late := f.Rival(t)
	tx := f.BeginTx(t)
	lockKeyOf(t, tx, lower)
	wait := fixture.Async(t, func(ctx context.Context) []creating {
		outcomes, err := late.CreateExecutions(ctx, specs)
		if err != nil {
			t.Error(err)
		}
		return outcomes
	})
	late.AwaitBlocked(t, f)
	if _, err := operator.Replay(t.Context(), f.Engine, higher); err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	for i, o := range wait() {
		if of := []id.ExecutionID{x, y}[i]; of == higher {
			wantDuplicate(t, o.Value, higher)
		} else {
			wantNew(t, o.Value)
		}
	}
}

// An execution whose key lasts beyond its start, and that starts while a creation waits to replace it, keeps its payload.
func TestReplaceWaitingSparesWorkThatHasStarted(t *testing.T) {
	f := fixture.NewCloned(t)
	spec := uniqueSpec(f, `{"order":1}`, byOrder)
	late := f.Rival(t)
	registerLane(t, late.Engine, f.Lane)
	f.ClaimN(t, 1)
	x := wantNew(t, create(t, f.Engine, spec))
	tx := f.BeginTx(t)
	claimed, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 10)
	if err != nil || len(claimed) != 1 || claimed[0].ID != x {
		t.Fatal(claimed, err)
	}
	spec.Payload = []byte(`{"order":1,"n":2}`)
	spec.Unique = &engine.Unique{ByLane: true, Fields: []string{"order"}, IfTaken: engine.ReplaceWaiting}
	wait := beside(t, late.Engine, spec)
	late.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	o := wait()
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	wantDuplicate(t, o.Value, x)
	input, err := f.ExecutionInput(t.Context(), x)
	if err != nil || o.Value.Replaced || bytes.Contains(input.Payload, []byte("2")) {
		t.Errorf("%+v with payload %s, error %v", o.Value, input.Payload, err)
	}
}

// A key that lasts until the start is free after it, however the creation that took it had to lock: for a new key, a key that
// was left, and a key of a batch whose first creation is refused.
func TestWaitingKeyOfALockingCreationEndsWithTheStart(t *testing.T) {
	f := fixture.New(t)
	spec := uniqueSpec(f, "1", while(engine.WhileWaiting))
	holder := create(t, f.Engine, engine.ExecutionSpec{Kind: "test", Lane: f.Lane + "-other", BusinessKey: id.BusinessKey{Name: "order", Value: f.Name}})
	for i, name := range []string{"new", "left", "of a batch"} {
		spec.IdempotencyKey = f.Key(name)
		specs := []engine.ExecutionSpec{spec}
		if name == "of a batch" {
			refused := spec
			refused.IdempotencyKey, refused.Unique = "", &engine.Unique{ByLane: true, ByArgs: true}
			refused.ID = holder.ID // exists, so its key goes to the next one
			specs = []engine.ExecutionSpec{refused, spec}
		}
		outcomes, err := f.CreateExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		x := wantNew(t, outcomes[len(outcomes)-1].Value)
		if c := f.ClaimOne(t); c.ID != x {
			t.Fatalf("%d %s: claimed %s, want %s", i, name, c.ID, x)
		}
	}
	spec.IdempotencyKey = ""
	wantNew(t, create(t, f.Engine, spec))
}

// The deletion of an execution that has lost its key to a later one leaves that one's key.
func TestDeletionOfAFormerHolderLeavesTheKey(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, f *fixture.Fixture){
		"bulk": func(t *testing.T, f *fixture.Fixture) {
			done, err := operator.DeleteWhere(t.Context(), f.Engine, engine.ExecutionFilter{Lane: f.Lane, Order: engine.NewestFirst}, operator.Bulk{})
			if err != nil || done.Changed != 1 {
				t.Fatal(done, err)
			}
		},
		"retention": func(t *testing.T, f *fixture.Fixture) {
			f.Advance(365 * 24 * time.Hour)
			if n, err := upkeep.Of(f.Engine).Retain(t.Context(), 10); err != nil || n == 0 {
				t.Fatal(n, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			spec := uniqueSpec(f, "1")
			x := wantNew(t, create(t, f.Engine, spec))
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
				t.Fatal(err)
			}
			y := wantNew(t, create(t, f.Engine, spec))
			remove(t, f)
			if n := len(fixture.Texts(t, f.Pool, "SELECT execution_id::text FROM ff_exec_core WHERE execution_id = $1", x.UUID())); n != 0 {
				t.Fatalf("%s still exists", x)
			}
			wantDuplicate(t, create(t, f.Engine, spec), y)
		})
	}
}
