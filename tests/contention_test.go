package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// impatient is a rival that waits 20 ms for a lock and whose statements are logged.
func (f *fixture) impatient(t *testing.T) (*rival, *statementLog) {
	t.Helper()
	log := new(statementLog)
	return f.rival(t, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["lock_timeout"] = "20ms"
		config.ConnConfig.Tracer = log
	}), log
}

// The reference takes an aborted transaction and a lease that another holds for the same thing, and tries both again.
func TestE37_only_aborted_transactions_are_tried_again(t *testing.T) {
	t.Run("rows that stay locked", func(t *testing.T) {
		for _, o := range waitingOperations() {
			t.Run(o.name+" waiting for "+o.what, func(t *testing.T) {
				f := newFixture(t)
				l := o.arrange(t, f)
				before := f.dump(t, l.Execution)
				late, log := f.impatient(t)
				tx := f.begin(t)
				o.hold(t, f, tx, l)
				sent := names(log.during(func() {
					if err := o.do(t.Context(), f, late.Engine, l); !errors.Is(err, engine.ErrContention) {
						t.Errorf("got %v, want contention", err)
					}
				}))
				if tries := countTries(sent); tries != 3 {
					t.Errorf("%d tries: %q; want 3", tries, sent)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.wantUnchanged(t, l.Execution, before)
				if err := o.do(t.Context(), f, late.Engine, l); err != nil {
					t.Fatal(err)
				}
				o.wantDone(t, f, l, before)
			})
		}
	})
	t.Run("a lease that another holds", func(t *testing.T) {
		for call, do := range holderCalls {
			f := anotherFixture(t)
			c := f.start(t)
			f.setAttempt(t, c.ID, 0, "lease_epoch = 2")
			late, log := f.impatient(t)
			sent := names(log.during(func() { wantLeaseError(t, do(t, late.Engine, c.Lease), engine.ErrStaleLease) }))
			sent = slices.DeleteFunc(sent, isSettings)
			slices.Sort(sent)
			if again := slices.Index(sent, "CompleteOne"); call == "complete and claim" {
				sent = slices.Delete(sent, again, again+1) // first beside the claim, then alone
			}
			if once := slices.Compact(slices.Clone(sent)); len(log.aborted()) > 0 || len(once) != len(sent) {
				t.Errorf("%s sends %q", call, sent)
			}
		}
	})
	t.Run("in a caller's transaction nothing is", func(t *testing.T) {
		f := newFixture(t)
		c := f.start(t)
		late, log := f.impatient(t)
		held := f.begin(t)
		lockExecution(t, held, c.ID)
		tx := beginWith(t, late.pool, pgx.TxOptions{})
		err := late.WithTx(tx).CompleteExecution(t.Context(), c.Lease, nil)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "55P03" || errors.Is(err, engine.ErrContention) {
			t.Errorf("got %v, want the server's error", err)
		}
		if got, want := log.aborted(), []string{"55P03"}; !slices.Equal(got, want) {
			t.Errorf("the server gave up %q, want %q", got, want)
		}
		commit(t, held)
		if err := late.WithTx(tx).CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Error(err)
		}
		commit(t, tx)
		f.wantState(t, c.ID, stateCompleted)
	})
}

// isSettings recognises the statement with which every transaction of the engine's own begins.
func isSettings(name string) bool { return name == "select" || strings.HasPrefix(name, "begin") }

// countTries counts how often the form that came last was tried: a fast path may have come before it.
func countTries(sent []string) int {
	var settings []string
	for _, name := range sent {
		if isSettings(name) {
			settings = append(settings, name)
		}
	}
	last := settings[len(settings)-1]
	return len(settings) - len(slices.DeleteFunc(slices.Clone(settings), func(name string) bool { return name == last }))
}

// batches are the batch forms of the calls of holders, with the outcome of each item.
var batches = map[string]func(context.Context, *engine.Engine, []engine.Lease) ([]error, error){
	"renew": func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		renewals := make([]engine.Renewal, len(leases))
		for i, l := range leases {
			renewals[i].Lease = l
		}
		results, err := e.RenewLeases(ctx, renewals)
		outcomes := make([]error, len(results))
		for i := range results {
			outcomes[i] = results[i].Err
		}
		return outcomes, err
	},
	"complete": func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		completions := make([]engine.Completion, len(leases))
		for i, l := range leases {
			completions[i].Lease = l
		}
		return e.CompleteExecutions(ctx, completions)
	},
	"complete and claim": func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		completions := make([]engine.Completion, len(leases))
		for i, l := range leases {
			completions[i].Lease = l
		}
		claimer, err := e.NewClaimer(engine.ClaimSpec{Lane: leases[0].Lane + ".next", Worker: "worker", Instance: "worker", LeaseTTL: leaseTTL})
		if err != nil {
			return nil, err
		}
		outcomes, _, err := claimer.CompleteAndClaim(ctx, completions, 1)
		return outcomes, err
	},
	"fail": func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		return failBatch(ctx, e, leases, engine.Failure{Message: "once more"})
	},
	"fail for good": func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		return failBatch(ctx, e, leases, forGood)
	},
	"delay": func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		delays := make([]engine.Delay, len(leases))
		for i, l := range leases {
			delays[i] = engine.Delay{Lease: l, For: time.Minute}
		}
		return e.DelayExecutions(ctx, delays)
	},
	"wait for children": func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		results, err := e.WaitForChildrenEach(ctx, leases)
		outcomes := make([]error, len(results))
		for i := range results {
			outcomes[i] = results[i].Err
		}
		return outcomes, err
	},
	"release": func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		return e.ReleaseLeases(ctx, leases)
	},
}

func failBatch(ctx context.Context, e *engine.Engine, leases []engine.Lease, failure engine.Failure) ([]error, error) {
	failures := make([]engine.AttemptFailure, len(leases))
	for i, l := range leases {
		failures[i] = engine.AttemptFailure{Lease: l, Failure: failure}
	}
	results, err := e.FailExecutions(ctx, failures)
	outcomes := make([]error, len(results))
	for i := range results {
		outcomes[i] = results[i].Err
	}
	return outcomes, err
}

// free says whether nobody holds the row that the statement would lock.
func (f *fixture) free(t *testing.T, table string, x id.ExecutionID) bool {
	t.Helper()
	tx := f.begin(t)
	_, err := tx.Exec(t.Context(), fmt.Sprintf("SELECT FROM %s WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE NOWAIT", table),
		x.Partition(), x.UUID())
	if rollback := tx.Rollback(t.Context()); rollback != nil {
		t.Fatal(rollback)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "55P03" {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// Some calls of the reference lock the attempt before the execution, others after it, and batches in no order:
// deadlocks. Here the execution comes first.
func TestE38_locks_are_taken_in_one_order(t *testing.T) {
	for _, call := range []string{"progress", "complete", "fail", "fail for good", "delay", "wait for children"} {
		t.Run(call, func(t *testing.T) {
			f := newFixture(t)
			c := f.start(t)
			late := f.rival(t)
			tx := f.begin(t)
			lockAttempt(t, tx, c.ID, 0)
			wait := async(t, func(context.Context) error { return holderCalls[call](t, late.Engine, c.Lease) })
			late.awaitBlocked(t, f)
			if f.free(t, "ff_exec_core", c.ID) {
				t.Error("it waits for the attempt without holding the execution")
			}
			commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A process of the reference may still lock the other way round. The server breaks the deadlock, and the call that it
// aborts is repeated.
func TestE38_deadlock_with_the_reference_is_survived(t *testing.T) {
	f := newFixture(t)
	log := new(statementLog)
	ours := f.rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
	for range 5 {
		c := f.start(t)
		tx := f.begin(t)
		lockAttempt(t, tx, c.ID, 0)
		wait := async(t, func(ctx context.Context) error { return ours.CompleteExecution(ctx, c.Lease, []byte("out")) })
		ours.awaitBlocked(t, f)
		_, err := tx.Exec(t.Context(), updateExecution("priority = 9"), c.ID.Partition(), c.ID.UUID())
		if err := errors.Join(err, tx.Commit(t.Context())); err != nil {
			t.Log(err) // on a slow machine the other may be the one that is aborted
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		if got := f.stored(t, c.ID); got.State != stateCompleted || got.Priority != 9 {
			t.Errorf("stored %+v", got)
		}
		if len(log.aborted()) == 0 {
			t.Error("the server gave up nothing")
		}
		return
	}
	t.Error("the server never aborted the call")
}
