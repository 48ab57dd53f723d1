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
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// While a creation with a business key is not committed, others with the key wait. After its commit they are refused;
// after its rollback one of them wins, and the others are refused with its id.
func TestConcurrentCreatorsOfABusinessKey(t *testing.T) {
	const creators, sessions = 64, 8
	for _, commits := range []bool{true, false} {
		t.Run(map[bool]string{true: "commits", false: "rolls back"}[commits], func(t *testing.T) {
			f := fixture.NewCloned(t)
			key := orders(f)("1")
			spec := engine.ExecutionSpec{Kind: "test", Lane: f.Lane, BusinessKey: key}
			f.Create(t) // registers the lane
			late := f.Rival(t, func(config *pgxpool.Config) { config.MaxConns = sessions })
			if _, err := late.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "lane", Lane: f.Lane}); err != nil {
				t.Fatal(err)
			}
			held := f.BeginTx(t)
			first, err := f.WithTx(held).CreateExecution(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			type outcome struct {
				created engine.Created
				err     error
			}
			var waits []func() outcome
			for range creators {
				waits = append(waits, fixture.Async(t, func(ctx context.Context) outcome {
					created, err := late.CreateExecution(ctx, spec)
					return outcome{created, err}
				}))
			}
			late.AwaitSessions(t, f, sessions)
			f.End(t, held, commits)
			winner := first.ID
			var lost []error
			for _, wait := range waits {
				if o := wait(); o.err == nil {
					if commits || winner != first.ID {
						t.Errorf("%s was created beside %s", o.created.ID, winner)
					}
					winner = o.created.ID
				} else {
					lost = append(lost, o.err)
				}
			}
			if want := creators - 1; !commits && len(lost) != want {
				t.Errorf("%d were refused, want %d", len(lost), want)
			}
			for _, err := range lost {
				wantConflict(t, err, key, winner)
			}
			if found, err := f.FindExecutionByKey(t.Context(), key.Name, key.Value); found != winner || err != nil {
				t.Errorf("found %s, %v; want %s", found, err, winner)
			}
			if n := f.CountOnLane(t); n != 3 {
				t.Errorf("%d executions, want 3", n)
			}
		})
	}
}

// A creator of a key that a transaction holds gives up after the lock timeout, three times on a pool. In a caller's
// transaction the error is the server's, and the transaction goes on.
func TestCreationGivesUpOnAHeldBusinessKey(t *testing.T) {
	f := fixture.Another(t)
	spec := engine.ExecutionSpec{Kind: "test", Lane: f.Lane, BusinessKey: orders(f)("1")}
	late, log := f.ShortWaitRival(t)
	for _, e := range []*engine.Engine{f.Engine, late.Engine} {
		if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "lane"}); err != nil {
			t.Fatal(err)
		}
	}
	held := f.BeginTx(t)
	if _, err := f.WithTx(held).CreateExecution(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	sent := fixture.Names(log.During(func() {
		if _, err := late.CreateExecution(t.Context(), spec); !errors.Is(err, fferr.ErrContention) {
			t.Errorf("got %v, want contention", err)
		}
	}))
	if tries := fixture.CountTries(sent); tries != 3 {
		t.Errorf("%d tries: %q", tries, sent)
	}
	tx := fixture.BeginWith(t, late.Pool, pgx.TxOptions{})
	if _, err := late.WithTx(tx).CreateExecution(t.Context(), spec); pgtx.SQLState(err) != "55P03" {
		t.Errorf("got %v, want the server's error", err)
	}
	f.End(t, held, false)
	created, err := late.WithTx(tx).CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	_, err = f.CreateExecution(t.Context(), spec)
	wantConflict(t, err, spec.BusinessKey, created.ID)
}

// A refusal leaves a caller's transaction usable, and the key with its execution.
func TestBusinessKeyInTheCallersTransaction(t *testing.T) {
	f := fixture.New(t)
	key := orders(f)("1")
	x := f.Create(t, func(s *engine.ExecutionSpec) { s.BusinessKey = key })
	tx := f.BeginTx(t)
	eng := f.WithTx(tx)
	spec := engine.ExecutionSpec{Kind: "test", Lane: f.Lane, BusinessKey: key}
	_, err := eng.CreateExecution(t.Context(), spec)
	wantConflict(t, err, key, x)
	spec.BusinessKey = orders(f)("2")
	created, err := eng.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	find := func(e *engine.Engine) (id.ExecutionID, error) {
		return e.FindExecutionByKey(t.Context(), spec.BusinessKey.Name, spec.BusinessKey.Value)
	}
	if found, err := find(eng); found != created.ID || err != nil {
		t.Errorf("found %s in the transaction, %v", found, err)
	}
	if _, err := find(f.Engine); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("found outside the transaction: %v", err)
	}
	fixture.Commit(t, tx)
	if found, err := find(f.Engine); found != created.ID || err != nil {
		t.Errorf("found %s, %v", found, err)
	}
}

// Two creators that need two keys of each other wait in the order of the keys, so they never deadlock.
func TestBusinessKeysAreTakenInOrder(t *testing.T) {
	f := fixture.NewCloned(t)
	specs := []engine.ExecutionSpec{}
	for _, number := range []string{"1", "2", "3", "4"} {
		specs = append(specs, engine.ExecutionSpec{Kind: "test", Lane: f.Lane, BusinessKey: orders(f)(number)})
	}
	turned := []engine.ExecutionSpec{specs[3], specs[2], specs[1], specs[0]}
	f.Create(t)
	late := f.Rival(t)
	held := f.BeginTx(t)
	created, err := f.WithTx(held).CreateExecutions(t.Context(), specs[:2])
	if err != nil {
		t.Fatal(err)
	}
	wait := fixture.Async(t, func(ctx context.Context) []fferr.Outcome[engine.Created] {
		outcomes, err := late.CreateExecutions(ctx, turned)
		if err != nil {
			t.Error(err)
		}
		return outcomes
	})
	late.AwaitBlocked(t, f)
	fixture.Commit(t, held)
	outcomes := wait()
	for i, want := range []error{nil, nil, fferr.ErrKeyConflict, fferr.ErrKeyConflict} {
		if !errors.Is(outcomes[i].Err, want) {
			t.Errorf("%d: %v, want %v", i, outcomes[i].Err, want)
		}
	}
	wantConflict(t, outcomes[3].Err, specs[0].BusinessKey, created[0].Value.ID)
}
