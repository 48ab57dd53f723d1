package tests

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// The leases that have timers, each with when it is looked at.
const timed = `SELECT due_at_ms, unnest(partition_keys) AS partition_key, unnest(execution_ids) AS execution_id,
	unnest(attempt_indexes) AS attempt_index FROM ffx_lease_timer`

// wantTimer fails the test when a lease is looked at by nobody when it runs out.
func (f *fixture) wantTimer(t *testing.T, on reporter, after string) {
	t.Helper()
	for _, row := range texts(t, f.pool, `SELECT q::text FROM (
		SELECT partition_key, execution_id, a.attempt_index, lease_expires_at_ms FROM ff_attempt AS a
		JOIN ff_exec_core AS e USING (partition_key, execution_id)
		WHERE lease_expires_at_ms IS NOT NULL AND NOT EXISTS (
			SELECT FROM (`+timed+`) AS w
			WHERE w.partition_key = a.partition_key AND w.execution_id = a.execution_id
				AND w.attempt_index = a.attempt_index AND w.due_at_ms <= a.lease_expires_at_ms
		)) AS q`) {
		on.Errorf("%s: the lease of %s has no timer", after, row)
	}
}

// wantTimers fails the test when other leases have timers than one for each of the given instants.
func (f *fixture) wantTimers(t *testing.T, due ...time.Time) {
	t.Helper()
	var want []string
	for _, at := range due {
		want = append(want, fmt.Sprint(at.UnixMilli()))
	}
	if got := texts(t, f.pool, "SELECT due_at_ms::text FROM ("+timed+") AS w ORDER BY due_at_ms"); !slices.Equal(got, want) {
		t.Errorf("leases are looked at %v, want %v", got, want)
	}
}

// A look forgets what was given back, and sets a timer for what was renewed.
func TestWatch_is_kept_by_looks(t *testing.T) {
	f := cloneFixture(t)
	const total = 2*engine.MaxBatch + 500
	for range total / 500 {
		if _, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: f.lane}}, 500)); err != nil {
			t.Fatal(err)
		}
	}
	var held []engine.Claimed
	for len(held) < total {
		held = append(held, f.claimN(t, 500)...)
		f.advance(time.Millisecond)
	}
	if rows := texts(t, f.pool, "SELECT timer_id::text FROM ffx_lease_timer"); len(rows) != total/500 {
		t.Errorf("%d claims write %d rows", total/500, len(rows))
	}
	renewed, lost := held[7], held[total-1]
	var completions []engine.Completion
	for i := range held {
		if x := held[i].ID; x != renewed.ID && x != lost.ID {
			completions = append(completions, engine.Completion{Lease: held[i].Lease})
		}
	}
	for batch := range slices.Chunk(completions, engine.MaxBatch) {
		if _, err := f.CompleteExecutions(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	f.advance(leaseTTL / 2)
	until, err := f.RenewLease(t.Context(), renewed.Lease, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.advance(leaseTTL / 2)
	run(t, f.Maintenance().ExpireLeases, 1)
	run(t, f.Maintenance().ExpireLeases, 0) // forgets what was settled
	f.wantTimers(t, until)
	if c := f.claim(t); c.ID != lost.ID || !c.Resumed {
		t.Errorf("claimed %+v, want the lost one", c)
	}
	f.advance(leaseTTL)
	run(t, f.Maintenance().ExpireLeases, 2)
	run(t, f.Maintenance().ExpireLeases, 0) // forgets what was settled
	f.wantTimers(t)
}

// A lease that somebody holds is met once by a call, however often that looks.
func TestLeaseTimers_meet_what_is_held_once_a_call(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t)
	f.advance(leaseTTL)
	tx := f.begin(t)
	lockExecution(t, tx, c.ID)
	log := new(statementLog)
	late := f.engineOn(t, log.open(t, f.url), engine.Config{})
	for range 10 { // the timer gets an id by chance each time
		sent := names(log.during(func() { run(t, late.Maintenance().ExpireLeases, 0) }))
		if n := len(sent) - len(slices.DeleteFunc(slices.Clone(sent), func(name string) bool { return name == "LookAtLeases" })); n != 2 {
			t.Fatalf("sends %q, want two looks, the second of which finds nothing", sent)
		}
	}
	commit(t, tx)
	run(t, f.Maintenance().ExpireLeases, 1)
}

// What this process saw end with success needs no look. A single lease of a claim that did not keeps its row, and so
// does what a caller's transaction completed: it may have been rolled back.
func TestWatch_is_forgotten_by_whoever_completes(t *testing.T) {
	complete := func(t *testing.T, e *engine.Engine, held []engine.Claimed) {
		completions := make([]engine.Completion, len(held))
		for i := range held {
			completions[i].Lease = held[i].Lease
		}
		for range 2 { // a repetition counts for nothing
			if outcomes, err := e.CompleteExecutions(t.Context(), completions); err != nil || errors.Join(outcomes...) != nil {
				t.Fatal(outcomes, err)
			}
		}
	}
	for _, c := range []struct {
		name string
		end  func(t *testing.T, f *fixture, held []engine.Claimed)
		kept int // leases with timers afterwards
		lost int // of them run out
	}{
		{"all completed", func(t *testing.T, f *fixture, held []engine.Claimed) { complete(t, f.Engine, held) }, 0, 0},
		{"one by one", func(t *testing.T, f *fixture, held []engine.Claimed) {
			for i := range held {
				complete(t, f.Engine, held[i:i+1])
			}
		}, 0, 0},
		{"all but one", func(t *testing.T, f *fixture, held []engine.Claimed) { complete(t, f.Engine, held[1:]) }, 3, 1},
		{"one of them twice", func(t *testing.T, f *fixture, held []engine.Claimed) {
			complete(t, f.Engine, held[:2])
			complete(t, f.Engine, held[:1])
		}, 3, 1},
		{"by another process", func(t *testing.T, f *fixture, held []engine.Claimed) {
			complete(t, f.rival(t).Engine, held)
		}, 3, 0},
		{"in a transaction, rolled back", func(t *testing.T, f *fixture, held []engine.Claimed) {
			tx := f.begin(t)
			complete(t, f.WithTx(tx), held)
			f.end(t, tx, false)
		}, 3, 3},
		{"one by one in a transaction, rolled back", func(t *testing.T, f *fixture, held []engine.Claimed) {
			tx := f.begin(t)
			for i := range held {
				if err := f.WithTx(tx).CompleteExecution(t.Context(), held[i].Lease, nil); err != nil {
					t.Fatal(err)
				}
			}
			f.end(t, tx, false)
		}, 3, 3},
		{"in a transaction, committed", func(t *testing.T, f *fixture, held []engine.Claimed) {
			tx := f.begin(t)
			complete(t, f.WithTx(tx), held)
			f.end(t, tx, true)
		}, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			c.end(t, f, f.startMany(t, 3))
			run(t, f.Maintenance().ExpireLeases, 0)
			f.wantTimers(t, slices.Repeat([]time.Time{start.Add(leaseTTL)}, c.kept)...)
			f.wantTimer(t, t, c.name)
			f.advance(leaseTTL)
			run(t, f.Maintenance().ExpireLeases, c.lost)
			run(t, f.Maintenance().ExpireLeases, 0) // forgets what was settled
			f.wantTimers(t)
		})
	}
}

// An attempt that was left behind by its execution is nobody's.
func TestWatch_forgets_attempts_without_an_execution(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t)
	f.exec(t, "DELETE FROM ff_exec_core")
	f.advance(leaseTTL)
	before := f.dump(t, c.ID)
	run(t, f.Maintenance().ExpireLeases, 0)
	f.wantTimers(t)
	f.wantUnchanged(t, c.ID, before)
}

// Other programs know nothing of lease timers, and may take any lease.
func TestWatch_of_leases_that_another_program_takes(t *testing.T) {
	at := func(d time.Duration) int64 { return start.Add(d).UnixMilli() }
	for _, c := range []struct {
		name  string
		write func(t *testing.T, f *fixture, x id.ExecutionID)
		due   []time.Duration
	}{
		{"of a new attempt", func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.seedAttempt(t, x, 0, columns{"lease_expires_at_ms": at(time.Minute)})
		}, []time.Duration{time.Minute}},
		{"of a new attempt, and renews it", func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.seedAttempt(t, x, 0, columns{"lease_expires_at_ms": at(time.Minute)})
			f.setAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", at(time.Hour)))
		}, []time.Duration{time.Minute}},
		{"of an attempt that is there", func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.seedAttempt(t, x, 0, nil)
			f.setAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", at(time.Minute)))
		}, []time.Duration{time.Minute}},
		{"of an attempt that this library had leased", func(t *testing.T, f *fixture, x id.ExecutionID) {
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{f.claim(t).Lease}); err != nil {
				t.Fatal(err)
			}
			f.setAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", at(time.Minute)))
		}, []time.Duration{leaseTTL, time.Minute}},
		{"over this library's, for a shorter time", func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.claim(t)
			f.setAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", at(time.Second)))
		}, []time.Duration{time.Second, leaseTTL}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.create(t)
			c.write(t, f, x)
			f.wantTimer(t, t, c.name)
			var due []time.Time
			for _, d := range c.due {
				due = append(due, start.Add(d))
			}
			f.wantTimers(t, due...)
			f.setExecution(t, x, foreignClaim)
			f.advance(2 * time.Hour)
			run(t, f.Maintenance().ExpireLeases, 1)
			run(t, f.Maintenance().ExpireLeases, 0) // forgets what was settled
			f.wantTimers(t)
		})
	}
}

// The plain work of this library calls no trigger of the attempts.
func TestWatch_calls_no_trigger_for_this_library(t *testing.T) {
	f := cloneFixture(t)
	f.create(t)
	f.create(t)
	f.advance(time.Millisecond) // within that of its creation a claim calls one for nothing
	tx := f.begin(t)
	execIn(t, tx, "SET LOCAL track_functions = 'pl'")
	before := triggerCalls(t, tx)
	e := f.WithTx(tx)
	held, err := e.Claim(t.Context(), f.worker(), 2)
	if err != nil {
		t.Fatal(err)
	}
	f.advance(time.Second)
	if _, err := e.RenewLease(t.Context(), held[0].Lease, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range held {
		if err := e.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	if calls := triggerCalls(t, tx) - before; calls != 0 {
		t.Errorf("trigger functions are called %d times", calls)
	}
	commit(t, tx)
}

// What was leased while triggers were disabled is looked at once the sweep has come by.
func TestRepairQueue_watches_overdue_leases(t *testing.T) {
	f := cloneFixture(t)
	held := f.startMany(t, 3)
	f.exec(t, "DELETE FROM ffx_lease_timer")
	f.advance(leaseTTL + 59*time.Second)
	f.repair(t, 2)
	f.wantTimers(t)
	f.advance(time.Second)
	f.repair(t, 2)
	run(t, f.Maintenance().ExpireLeases, 3)
	run(t, f.Maintenance().ExpireLeases, 0) // forgets what was settled
	f.wantTimers(t)
	for _, c := range held {
		wantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), engine.ErrStaleLease)
	}
}

// A lease that nobody has committed yet when others look, one that is renewed meanwhile, and one that is lost while its
// row is held: none is forgotten.
func TestInterleaving_looks_at_leases(t *testing.T) {
	renew := func(t *testing.T, f *fixture, e *engine.Engine, held engine.Claimed) {
		if _, err := e.RenewLease(t.Context(), held.Lease, 0); err != nil {
			t.Fatal(err)
		}
	}
	complete := func(t *testing.T, _ *fixture, e *engine.Engine, held engine.Claimed) {
		if err := e.CompleteExecution(t.Context(), held.Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(t *testing.T, f *fixture, e *engine.Engine, _ engine.Claimed) {
		if claimed, err := e.Claim(t.Context(), f.worker(), 1); err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
	}
	look := func(t *testing.T, f *fixture, e *engine.Engine, _ engine.Claimed) {
		if n, err := e.Maintenance().ExpireLeases(t.Context(), 10); err != nil || n > 1 {
			t.Fatal(n, err)
		}
	}
	for _, c := range []struct {
		name    string
		write   func(t *testing.T, f *fixture, e *engine.Engine, held engine.Claimed)
		after   time.Duration // the write, of the claim; the look comes when that lease is over
		commits bool
		expired int // once the transaction has ended, and a whole lease after
	}{
		{"a claim, committed", claim, leaseTTL, true, 2},
		{"a claim, rolled back", claim, leaseTTL, false, 1},
		{"a renewal, committed", renew, leaseTTL / 2, true, 1},
		{"a renewal, rolled back", renew, leaseTTL / 2, false, 1},
		{"a completion, committed", complete, leaseTTL / 2, true, 0},
		{"a completion, rolled back", complete, leaseTTL / 2, false, 1},
		{"a look, committed", look, leaseTTL, true, 1},
		{"a look, rolled back", look, leaseTTL, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			held := f.start(t)
			f.create(t)
			f.advance(c.after)
			tx := f.begin(t)
			c.write(t, f, f.WithTx(tx), held)
			f.advance(leaseTTL - c.after)
			late, log := f.impatient(t)
			before, err := late.Maintenance().ExpireLeases(t.Context(), 10)
			if err != nil || len(log.aborted()) > 0 {
				t.Errorf("expired %d, %v, waiting: %q", before, err, log.aborted())
			}
			f.end(t, tx, c.commits)
			f.wantTimer(t, t, "ended")
			f.advance(2 * leaseTTL)
			after, err := f.Maintenance().ExpireLeases(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			inTx := 0
			if c.commits && c.name == "a look, committed" {
				inTx = 1
			}
			if before+inTx+after != c.expired {
				t.Errorf("expired %d meanwhile and %d after, want %d in all", before, after, c.expired)
			}
			run(t, f.Maintenance().ExpireLeases, 0) // forgets what was settled
			f.wantTimers(t)
		})
	}
}

func (f *fixture) end(t *testing.T, tx pgx.Tx, commits bool) {
	t.Helper()
	if commits {
		commit(t, tx)
	} else if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
