package transactions

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The reference takes an aborted transaction and a lease that another holds for the same thing, and tries both again.
func TestOnlyAbortedTransactionsAreRetried_E37(t *testing.T) {
	t.Run("rows that stay locked", func(t *testing.T) {
		for _, o := range waitingOperations() {
			t.Run(o.Name+" waiting for "+o.what, func(t *testing.T) {
				f := fixture.New(t)
				l := o.Arrange(t, f)
				before := f.Dump(t, l.Execution)
				late, log := f.ShortWaitRival(t)
				tx := f.BeginTx(t)
				o.hold(t, f, tx, l)
				sent := fixture.Names(log.During(func() {
					if err := o.Do(t.Context(), f, late.Engine, l); !errors.Is(err, fferr.ErrContention) {
						t.Errorf("got %v, want contention", err)
					}
				}))
				if tries := fixture.CountTries(fixture.WithoutReads(sent)); tries != 3 {
					t.Errorf("%d tries: %q; want 3", tries, sent)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.WantUnchanged(t, l.Execution, before)
				if err := o.Do(t.Context(), f, late.Engine, l); err != nil {
					t.Fatal(err)
				}
				o.WantDone(t, f, l, before)
			})
		}
	})
	t.Run("a lease that another holds", func(t *testing.T) {
		for call, do := range fixture.HolderCalls {
			f := fixture.Another(t)
			c := f.Start(t)
			f.SetAttempt(t, c.ID, 0, "lease_epoch = 2")
			late, log := f.ShortWaitRival(t)
			sent := fixture.Names(log.During(func() { fixture.WantLeaseError(t, do(t, late.Engine, c.Lease), fferr.ErrStaleLease) }))
			sent = slices.DeleteFunc(sent, fixture.IsSettings)
			slices.Sort(sent)
			if again := slices.Index(sent, "CompleteOne"); call == "complete and claim" {
				sent = slices.Delete(sent, again, again+1) // first beside the claim, then alone
			}
			if once := slices.Compact(slices.Clone(sent)); len(log.Aborted()) > 0 || len(once) != len(sent) {
				t.Errorf("%s sends %q", call, sent)
			}
		}
	})
	t.Run("in a caller's transaction nothing is", func(t *testing.T) {
		f := fixture.New(t)
		c := f.Start(t)
		late, log := f.ShortWaitRival(t)
		held := f.BeginTx(t)
		fixture.LockExecution(t, held, c.ID)
		tx := fixture.BeginWith(t, late.Pool, pgx.TxOptions{})
		err := late.WithTx(tx).CompleteExecution(t.Context(), c.Lease, nil)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "55P03" || !errors.Is(err, fferr.ErrContention) {
			t.Errorf("got %v, want the server's error", err)
		}
		if got, want := log.Aborted(), []string{"55P03"}; !slices.Equal(got, want) {
			t.Errorf("the server gave up %q, want %q", got, want)
		}
		fixture.Commit(t, held)
		if err := late.WithTx(tx).CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Error(err)
		}
		fixture.Commit(t, tx)
		f.WantState(t, c.ID, fixture.StateCompleted)
	})
}

// Some calls of the reference lock the attempt before the execution, others after it, and batches in no order:
// deadlocks. Here the execution comes first.
func TestLocksAreTakenInOneOrder_E38(t *testing.T) {
	for _, call := range []string{"progress", "complete", "fail", "fail for good", "delay", "wait for children", "call", "record the end of a turn"} {
		t.Run(call, func(t *testing.T) {
			f := fixture.New(t)
			c := f.Start(t)
			late := f.Rival(t)
			tx := f.BeginTx(t)
			fixture.LockAttempt(t, tx, c.ID, 0)
			wait := fixture.Async(t, func(context.Context) error { return fixture.HolderCalls[call](t, late.Engine, c.Lease) })
			late.AwaitBlocked(t, f)
			if f.Free(t, "ff_exec_core", c.ID) {
				t.Error("it waits for the attempt without holding the execution")
			}
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A process of the reference may still lock the other way round. The server breaks the deadlock, and the call that it
// aborts is repeated.
func TestDeadlockWithTheReferenceIsRetried_E38(t *testing.T) {
	f := fixture.New(t)
	log := new(fixture.StatementLog)
	ours := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
	for range 5 {
		c := f.Start(t)
		tx := f.BeginTx(t)
		fixture.LockAttempt(t, tx, c.ID, 0)
		wait := fixture.Async(t, func(ctx context.Context) error { return ours.CompleteExecution(ctx, c.Lease, []byte("out")) })
		ours.AwaitBlocked(t, f)
		_, err := tx.Exec(t.Context(), fixture.UpdateExecution("priority = 9"), c.ID.Partition(), c.ID.UUID())
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
		if got := f.Stored(t, c.ID); got.State != fixture.StateCompleted || got.Priority != 9 {
			t.Errorf("stored %+v", got)
		}
		if len(log.Aborted()) == 0 {
			t.Error("the server gave up nothing")
		}
		return
	}
	t.Error("the server never aborted the call")
}
