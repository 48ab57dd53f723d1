package executions

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

type creating = fferr.Outcome[engine.Created]

// beside creates an execution beside the test.
func beside(t *testing.T, e *engine.Engine, spec engine.ExecutionSpec) func() creating {
	t.Helper()
	return fixture.Async(t, func(ctx context.Context) creating {
		created, err := e.CreateExecution(ctx, spec)
		return creating{Value: created, Err: err}
	})
}

// registerLane makes an engine know the lane, so its next creation is one statement.
func registerLane(t *testing.T, e *engine.Engine, lane id.LaneID) {
	t.Helper()
	create(t, e, engine.ExecutionSpec{Kind: "lane", Lane: lane})
}

// While a unique creation is not committed, others with its key wait, in however many processes. After its commit they
// find its execution in their way; after its rollback one of them wins, and the others find that.
func TestConcurrentUniqueCreators(t *testing.T) {
	const creators, engines, sessions = 64, 4, 2
	for _, policy := range []engine.UniquePolicy{engine.KeepExisting, engine.ReplaceWaiting, engine.CancelExisting} {
		for _, commits := range []bool{true, false} {
			t.Run(string(policy)+map[bool]string{true: " after a commit", false: " after a rollback"}[commits], func(t *testing.T) {
				f := fixture.NewCloned(t)
				spec := uniqueSpec(f, `{"order":1}`, ifTaken(policy))
				f.Create(t) // registers the lane
				held := f.BeginTx(t)
				first := wantNew(t, create(t, f.WithTx(held), spec))
				var waits []func() creating
				for range engines {
					late := f.Rival(t, func(config *pgxpool.Config) { config.MaxConns = sessions })
					registerLane(t, late.Engine, f.Lane)
					for range creators / engines {
						waits = append(waits, beside(t, late.Engine, spec))
					}
					late.AwaitSessions(t, f, sessions)
				}
				f.End(t, held, commits)
				made, fresh := make(map[id.ExecutionID]bool), 0
				for _, wait := range waits {
					o := wait()
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					made[o.Value.ID] = true
					if !o.Value.Duplicate {
						fresh++
					}
				}
				if want := map[bool]int{true: 0, false: 1}[commits]; policy != engine.CancelExisting && (fresh != want || len(made) != 1 || commits != made[first]) {
					t.Errorf("%d creations are new, want %d; they name %v, the first is %s", fresh, want, made, first)
				}
				left := fixture.Texts(t, f.Pool, `
					SELECT execution_id::text FROM ff_exec_core
					WHERE lane_id = $1 AND ffx_unique_key IS NOT NULL AND lifecycle_phase = 'runnable'`, f.Lane)
				if len(left) != 1 {
					t.Errorf("%d executions wait, want 1", len(left))
				}
			})
		}
	}
}

// A holder that starts, ends or is cancelled in a transaction is in the way until its commit, and never makes a creator
// wait.
func TestUniqueHolderLeavesBesideACreator(t *testing.T) {
	type leaving func(t *testing.T, f *fixture.Fixture, inTx *engine.Engine, claim func(*engine.Engine) engine.Claimed) error
	for _, c := range []struct {
		name  string
		while engine.UniqueWhile
		leave leaving
	}{
		{"starts", engine.WhileWaiting, func(_ *testing.T, _ *fixture.Fixture, inTx *engine.Engine, claim func(*engine.Engine) engine.Claimed) error {
			claim(inTx)
			return nil
		}},
		{"completes", engine.WhileUnfinished, func(t *testing.T, f *fixture.Fixture, inTx *engine.Engine, claim func(*engine.Engine) engine.Claimed) error {
			return inTx.CompleteExecution(t.Context(), claim(f.Engine).Lease, nil)
		}},
		{"is cancelled", engine.WhileUnfinished, func(t *testing.T, f *fixture.Fixture, inTx *engine.Engine, claim func(*engine.Engine) engine.Claimed) error {
			return inTx.CancelExecution(t.Context(), engine.CancelSpec{ID: claim(f.Engine).ID})
		}},
	} {
		for _, commits := range []bool{true, false} {
			t.Run(c.name+map[bool]string{true: " and commits", false: " and rolls back"}[commits], func(t *testing.T) {
				f := fixture.New(t)
				spec := uniqueSpec(f, `{"order":1}`, while(c.while))
				x := wantNew(t, create(t, f.Engine, spec))
				tx := f.BeginTx(t)
				claim := func(e *engine.Engine) engine.Claimed {
					claimed, err := e.Claim(t.Context(), f.Worker(), 1)
					if err != nil || len(claimed) != 1 {
						t.Fatal(claimed, err)
					}
					return claimed[0]
				}
				if err := c.leave(t, f, f.WithTx(tx), claim); err != nil {
					t.Fatal(err)
				}
				wantDuplicate(t, create(t, f.Engine, spec), x)
				f.End(t, tx, commits)
				if created := create(t, f.Engine, spec); commits {
					wantNew(t, created)
				} else {
					wantDuplicate(t, created, x)
				}
				if n := uniqueKeys(t, f); n != 1 {
					t.Errorf("%d keys, want 1", n)
				}
			})
		}
	}
}

// A creation that takes a left key over waits for a transaction in which another creation takes it, or in which its
// former holder runs again, and its statement began before that. After the commit it is a duplicate.
func TestUniqueKeyIsTakenOverOnce(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, inTx *engine.Engine, spec engine.ExecutionSpec, left id.ExecutionID) id.ExecutionID{
		"by a creation": func(t *testing.T, inTx *engine.Engine, spec engine.ExecutionSpec, _ id.ExecutionID) id.ExecutionID {
			return wantNew(t, create(t, inTx, spec))
		},
		"by a batch": func(t *testing.T, inTx *engine.Engine, spec engine.ExecutionSpec, _ id.ExecutionID) id.ExecutionID {
			given := spec
			given.ID = inTx.NewExecutionID(spec.Lane)
			outcomes, err := inTx.CreateExecutions(t.Context(), []engine.ExecutionSpec{given, spec})
			if err != nil {
				t.Fatal(err)
			}
			wantDuplicate(t, outcomes[1].Value, given.ID)
			return wantNew(t, outcomes[0].Value)
		},
		"by a replay": func(t *testing.T, inTx *engine.Engine, _ engine.ExecutionSpec, left id.ExecutionID) id.ExecutionID {
			if _, err := operator.Replay(t.Context(), inTx, left); err != nil {
				t.Fatal(err)
			}
			return left
		},
	} {
		for _, commits := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", commits", false: ", rolls back"}[commits], func(t *testing.T) {
				f := fixture.NewCloned(t)
				spec := uniqueSpec(f, `{"order":1}`)
				left := wantNew(t, create(t, f.Engine, spec))
				if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: left}); err != nil {
					t.Fatal(err)
				}
				late := f.Rival(t)
				registerLane(t, late.Engine, f.Lane)
				tx := f.BeginTx(t)
				x := take(t, f.WithTx(tx), spec, left)
				wait := beside(t, late.Engine, spec)
				late.AwaitBlocked(t, f)
				f.End(t, tx, commits)
				o := wait()
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				if commits {
					wantDuplicate(t, o.Value, x)
				} else {
					wantNew(t, o.Value)
				}
				if n := uniqueKeys(t, f); n != 1 {
					t.Errorf("%d keys, want 1", n)
				}
			})
		}
	}
}

// A replay waits for a creation that takes its key over, and is refused after the commit.
func TestReplayWaitsForACreatorOfItsUniqueKey(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(map[bool]string{true: "commits", false: "rolls back"}[commits], func(t *testing.T) {
			f := fixture.NewCloned(t)
			spec := uniqueSpec(f, `{"order":1}`)
			x := wantNew(t, create(t, f.Engine, spec))
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
				t.Fatal(err)
			}
			late := f.Rival(t)
			tx := f.BeginTx(t)
			y := wantNew(t, create(t, f.WithTx(tx), spec))
			wait := fixture.Async(t, func(ctx context.Context) error {
				_, err := operator.Replay(ctx, late.Engine, x)
				return err
			})
			late.AwaitBlocked(t, f)
			f.End(t, tx, commits)
			conflict, refused := errors.AsType[*fferr.KeyConflictError](wait())
			if refused != commits || refused && conflict.Existing != y {
				t.Errorf("refused: %v (%+v), want %v by %s", refused, conflict, commits, y)
			}
		})
	}
}

// A creation that replaces or cancels the execution in its way waits for the transaction that has it, and acts on what
// that leaves.
func TestUniqueCreationWaitsForTheExecutionInItsWay(t *testing.T) {
	for _, policy := range []engine.UniquePolicy{engine.ReplaceWaiting, engine.CancelExisting} {
		for _, commits := range []bool{true, false} {
			t.Run(string(policy)+map[bool]string{true: " after a commit", false: " after a rollback"}[commits], func(t *testing.T) {
				f := fixture.NewCloned(t)
				spec := uniqueSpec(f, `{"order":1}`, byOrder, ifTaken(policy))
				x := wantNew(t, create(t, f.Engine, spec))
				late := f.Rival(t)
				registerLane(t, late.Engine, f.Lane)
				tx := f.BeginTx(t)
				// It ends in the transaction, but the key is free only after the commit.
				if err := f.WithTx(tx).CancelExecution(t.Context(), engine.CancelSpec{ID: x, Reason: "first"}); err != nil {
					t.Fatal(err)
				}
				spec.Payload = []byte(`{"order":1,"n":2}`)
				wait := beside(t, late.Engine, spec)
				late.AwaitBlocked(t, f)
				f.End(t, tx, commits)
				o := wait()
				switch {
				case o.Err != nil:
					t.Fatal(o.Err)
				case commits:
					if wantNew(t, o.Value); !o.Value.Cancelled.IsZero() {
						t.Errorf("created %+v: it cancelled what had ended", o.Value)
					}
				case policy == engine.ReplaceWaiting:
					if wantDuplicate(t, o.Value, x); !o.Value.Replaced {
						t.Error("was not replaced")
					}
				default:
					if wantNew(t, o.Value); o.Value.Cancelled != x {
						t.Errorf("created %+v, want %s to be cancelled", o.Value, x)
					}
				}
			})
		}
	}
}

// Two batches that need keys of each other wait in the order of the keys, so they never deadlock.
func TestUniqueKeysAreTakenInOrder(t *testing.T) {
	f := fixture.NewCloned(t)
	var specs, turned []engine.ExecutionSpec
	for _, order := range []string{"1", "2", "3", "4", "5", "6"} {
		spec := uniqueSpec(f, order)
		specs, turned = append(specs, spec), append([]engine.ExecutionSpec{spec}, turned...)
	}
	f.Create(t)
	late := f.Rival(t)
	held := f.BeginTx(t)
	created, err := f.WithTx(held).CreateExecutions(t.Context(), specs[:3])
	if err != nil {
		t.Fatal(err)
	}
	wait := fixture.Async(t, func(ctx context.Context) []creating {
		outcomes, err := late.CreateExecutions(ctx, turned)
		if err != nil {
			t.Error(err)
		}
		return outcomes
	})
	late.AwaitBlocked(t, f)
	fixture.Commit(t, held)
	for i, o := range wait() {
		if i < 3 {
			wantNew(t, o.Value)
		} else {
			wantDuplicate(t, o.Value, created[5-i].Value.ID)
		}
	}
}

// A caller's transaction stays usable after each answer, and keeps or loses all of them at its end.
func TestUniqueInTheCallersTransaction(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(map[bool]string{true: "commits", false: "rolls back"}[commits], func(t *testing.T) {
			f := fixture.New(t)
			keep, cancel := uniqueSpec(f, "1"), uniqueSpec(f, "2", ifTaken(engine.CancelExisting))
			x, y := create(t, f.Engine, keep).ID, create(t, f.Engine, cancel).ID
			tx := f.BeginTx(t)
			eng := f.WithTx(tx)
			wantDuplicate(t, create(t, eng, keep), x)
			created := create(t, eng, cancel)
			if wantNew(t, created); created.Cancelled != y {
				t.Errorf("created %+v, want %s to be cancelled", created, y)
			}
			wantNew(t, create(t, eng, uniqueSpec(f, "3")))
			f.End(t, tx, commits)
			want := state.PublicWaiting
			if commits {
				want = state.PublicCancelled
			}
			if s, err := f.DescribeExecution(t.Context(), y); err != nil || s.State.Public != want {
				t.Errorf("%s, %v; want %s", s.State.Public, err, want)
			}
			if n := uniqueKeys(t, f); n != map[bool]int{true: 3, false: 2}[commits] {
				t.Errorf("%d keys", n)
			}
		})
	}
}

// At a higher isolation level a creation that meets a key its snapshot doesn't show is the server's to refuse.
func TestUniqueAtRepeatableRead(t *testing.T) {
	f := fixture.New(t)
	f.Create(t)
	tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	eng := f.WithTx(tx)
	wantNew(t, create(t, eng, uniqueSpec(f, "1")))
	create(t, f.Engine, uniqueSpec(f, "2"))
	if created, err := eng.CreateExecution(t.Context(), uniqueSpec(f, "2")); !errors.Is(err, fferr.ErrContention) && pgtx.SQLState(err) != "40001" {
		t.Errorf("created %+v, %v", created, err)
	}
}

// An ended execution that runs again takes its key again, or is refused with the execution that has it. One that had it
// until its first start has started.
func TestReplayTakesTheUniqueKeyAgain(t *testing.T) {
	for _, c := range []engine.UniqueWhile{engine.WhileWaiting, engine.WhileUnfinished, engine.WhileUnfailed, engine.WhileKept} {
		t.Run(string(c), func(t *testing.T) {
			f := fixture.New(t)
			spec := uniqueSpec(f, "1", while(c))
			x := create(t, f.Engine, spec).ID
			cancel := func(x id.ExecutionID) {
				t.Helper()
				if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
					t.Fatal(err)
				}
			}
			replay := func() error {
				_, err := operator.Replay(t.Context(), f.Engine, x)
				return err
			}
			cancel(x)
			y := create(t, f.Engine, spec)
			if c == engine.WhileKept {
				wantDuplicate(t, y, x)
			} else if wantNew(t, y); c != engine.WhileWaiting {
				if conflict, ok := errors.AsType[*fferr.KeyConflictError](replay()); !ok || conflict.Existing != y.ID {
					t.Errorf("got %+v, want a conflict with %s", conflict, y.ID)
				}
				cancel(y.ID)
			}
			if err := replay(); err != nil {
				t.Fatal(err)
			}
			if c == engine.WhileWaiting {
				wantDuplicate(t, create(t, f.Engine, spec), y.ID)
				return
			}
			wantDuplicate(t, create(t, f.Engine, spec), x)
			f.ClaimOne(t)
			wantDuplicate(t, create(t, f.Engine, spec), x)
		})
	}
}

// A key whose holder was deleted by another program is not in the way.
func TestUniqueKeyOfAMissingHolder(t *testing.T) {
	for _, policy := range []engine.UniquePolicy{engine.KeepExisting, engine.ReplaceWaiting, engine.CancelExisting} {
		t.Run(string(policy), func(t *testing.T) {
			f := fixture.New(t)
			spec := uniqueSpec(f, "1", ifTaken(policy))
			missing := create(t, f.Engine, spec).ID
			if _, err := f.Pool.Exec(t.Context(), "DELETE FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2",
				missing.Partition(), missing.UUID()); err != nil {
				t.Fatal(err)
			}
			x := create(t, f.Engine, spec)
			if wantNew(t, x); !x.Cancelled.IsZero() {
				t.Errorf("created %+v: it cancelled what is missing", x)
			}
			if policy == engine.KeepExisting {
				wantDuplicate(t, create(t, f.Engine, spec), x.ID)
			}
		})
	}
}
