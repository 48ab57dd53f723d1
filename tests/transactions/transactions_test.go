package transactions

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// eachOperation arranges for every operation and runs the test with it. Those that look at all rows share
// a database of the test's own and run one after the other: none leaves a row behind that another would act on.
func eachOperation(t *testing.T, test func(t *testing.T, o fixture.Operation, f *fixture.Fixture, l engine.Lease, before string)) {
	t.Parallel()
	shared := fixture.Clone(t)
	for _, o := range fixture.Operations() {
		t.Run(o.Name, func(t *testing.T) {
			var f *fixture.Fixture
			switch {
			case o.Alone:
				f = fixture.Clone(t)
			case o.Whole:
				f = fixture.On(t, shared.Pool, shared.Url)
			default:
				f = fixture.New(t)
			}
			l := o.Arrange(t, f)
			test(t, o, f, l, f.Dump(t, l.Execution))
		})
	}
}

// In each way to send statements, for behind some poolers only two of them work.
func TestOperationsOnAPoolInEachQueryMode(t *testing.T) {
	t.Parallel()
	others := fixture.Clone(t)
	for _, mode := range fixture.QueryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			jobs := fixture.Clone(t)
			onJobs, onOthers := fixture.OpenInMode(t, jobs.Url, mode), fixture.OpenInMode(t, others.Url, mode)
			for _, o := range fixture.Operations() {
				t.Run(o.Name, func(t *testing.T) {
					f := o.Fixture(t, fixture.Clone, jobs, others)
					pool := onOthers
					switch f.Url {
					case others.Url:
					case jobs.Url:
						pool = onJobs
					default:
						pool = fixture.OpenInMode(t, f.Url, mode)
					}
					f.Engine = f.EngineOn(t, pool, engine.Config{})
					l := o.Arrange(t, f)
					before := f.Dump(t, l.Execution)
					if mode == fixture.QueryModes[0] {
						if err := o.Refused(t.Context(), f, f.Engine, l); !errors.Is(err, o.Reason) {
							t.Errorf("got %v, want %v", err, o.Reason)
						}
						f.WantUnchanged(t, l.Execution, before)
					}
					if err := o.Do(t.Context(), f, f.Engine, l); err != nil {
						t.Fatal(err)
					}
					o.WantDone(t, f, l, before)
				})
			}
		})
	}
}

func TestOperationsInATransactionThatCommits(t *testing.T) {
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			eachOperation(t, func(t *testing.T, o fixture.Operation, f *fixture.Fixture, l engine.Lease, before string) {
				for {
					tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
					err := o.Do(t.Context(), f, f.WithTx(tx), l)
					if err == nil {
						f.WantUnchanged(t, l.Execution, before) // as others see it
						if got := fixture.Texts(t, tx, "SHOW transaction_isolation")[0]; got != string(level) {
							t.Errorf("the transaction runs at %s", got)
						}
						err = tx.Commit(t.Context())
					}
					if err == nil {
						break
					}
					if level != pgx.Serializable || pgtx.SQLState(err) != "40001" {
						t.Fatal(err)
					}
					_ = tx.Rollback(t.Context()) // another test's transaction is in the way
				}
				o.WantDone(t, f, l, before)
			})
		})
	}
}

func TestOperationsInATransactionThatRollsBack(t *testing.T) {
	eachOperation(t, func(t *testing.T, o fixture.Operation, f *fixture.Fixture, l engine.Lease, before string) {
		tx := f.BeginTx(t)
		if err := o.Do(t.Context(), f, f.WithTx(tx), l); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.WantUnchanged(t, l.Execution, before)
		if err := o.Do(t.Context(), f, f.Engine, l); err != nil {
			t.Fatal(err)
		}
		o.WantDone(t, f, l, before)
	})
}

func TestTransactionContinuesAfterARefusal(t *testing.T) {
	eachOperation(t, func(t *testing.T, o fixture.Operation, f *fixture.Fixture, l engine.Lease, before string) {
		tx := f.BeginTx(t)
		spoil(t, tx)
		set := plannerSettings(t, tx)
		fixture.ExecIn(t, tx, "INSERT INTO ff_lane_registry VALUES ($1, 0, 'the caller')", f.Name+"-x")
		if err := o.Refused(t.Context(), f, f.WithTx(tx), l); !errors.Is(err, o.Reason) {
			t.Errorf("got %v, want %v", err, o.Reason)
		}
		if now := plannerSettings(t, tx); now != set {
			t.Errorf("after the refusal the caller's settings are %s, were %s", now, set)
		}
		if err := o.Do(t.Context(), f, f.WithTx(tx), l); err != nil {
			t.Fatal(err)
		}
		if now := plannerSettings(t, tx); now != set {
			t.Errorf("the caller's settings are %s, were %s", now, set)
		}
		fixture.Commit(t, tx)
		o.WantDone(t, f, l, before)
		if got := len(fixture.Texts(t, f.Pool, "SELECT lane_id FROM ff_lane_registry WHERE lane_id = $1", f.Name+"-x")); got != 1 {
			t.Error("the caller's own write was lost")
		}
	})
}

// Several operations are one change.
func TestWithTxTiesOperationsTogether(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	tx := f.BeginTx(t)
	bound := f.WithTx(tx)
	if err := bound.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	next, err := bound.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane})
	if err != nil {
		t.Fatal(err)
	}
	if snapshot, err := bound.DescribeExecution(t.Context(), next.ID); err != nil || snapshot == nil {
		t.Errorf("the transaction does not see its own creation: %v, %v", snapshot, err)
	}
	if claimed, err := bound.Claim(t.Context(), f.Worker(), 1); err != nil || len(claimed) != 1 {
		t.Errorf("claimed %v, %v", claimed, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, l.Execution, fixture.StateRunning)
	if _, err := f.DescribeExecution(t.Context(), next.ID); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("got %v; want none", err)
	}
}

// A snapshot that is too old is the caller's to deal with: the error goes up, nothing is retried, nothing stays.
func TestOperationsInATransactionWithAnOldSnapshot(t *testing.T) {
	eachOperation(t, func(t *testing.T, o fixture.Operation, f *fixture.Fixture, l engine.Lease, _ string) {
		tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: pgx.Serializable})
		fixture.Texts(t, tx, "SELECT lane_id FROM ff_lane_registry LIMIT 1") // takes the snapshot
		if touched := touch(t, f, l.Execution); !touched || o.Beside {
			return // it writes to no row that changed in the meantime
		}
		before := f.Dump(t, l.Execution)
		err := o.Do(t.Context(), f, f.WithTx(tx), l)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "40001" || !errors.Is(err, fferr.ErrContention) {
			t.Errorf("got %v, want the server's serialization failure", err)
		}
		if got := fixture.Texts(t, tx, "SELECT 'usable'"); len(got) != 1 {
			t.Error("the transaction is not usable any more")
		}
		fixture.Commit(t, tx)
		f.WantUnchanged(t, l.Execution, before)
		if err := o.Do(t.Context(), f, f.Engine, l); err != nil {
			t.Fatal(err)
		}
		o.WantDone(t, f, l, before)
	})
}

// touch changes an execution and its attempt without a meaning; false: there is none yet.
func touch(t *testing.T, f *fixture.Fixture, x id.ExecutionID) bool {
	t.Helper()
	f.Exec(t, "UPDATE ff_attempt SET usage = '{}' WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID())
	f.SetExecution(t, x, "cancelled_by = cancelled_by")
	return f.Kept(t, f.Pool, x) == "kept"
}
