package leases

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// wantTimers fails the test when other leases have timers than one for each of the given instants.
func wantTimers(t *testing.T, f *fixture.Fixture, due ...time.Time) {
	t.Helper()
	var want []string
	for _, at := range due {
		want = append(want, fmt.Sprint(at.UnixMilli()))
	}
	if got := fixture.Texts(t, f.Pool, "SELECT due_at_ms::text FROM ("+fixture.Timed+") AS w ORDER BY due_at_ms"); !slices.Equal(got, want) {
		t.Errorf("leases are looked at %v, want %v", got, want)
	}
}

// A scan drops the timers of returned leases, and sets new ones for renewed leases.
func TestLeaseTimersFollowRenewals(t *testing.T) {
	f := fixture.NewCloned(t)
	const total = 2*engine.MaxBatch + 500
	for range total / 500 {
		if _, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}}, 500)); err != nil {
			t.Fatal(err)
		}
	}
	var held []engine.Claimed
	for len(held) < total {
		held = append(held, f.ClaimN(t, 500)...)
		f.Advance(time.Millisecond)
	}
	if rows := fixture.Texts(t, f.Pool, "SELECT timer_id::text FROM ffx_lease_timer"); len(rows) != total/500 {
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
	f.Advance(fixture.LeaseTTL / 2)
	until, err := f.RenewLease(t.Context(), renewed.Lease, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(fixture.LeaseTTL / 2)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0) // drops settled ones
	wantTimers(t, f, until)
	if c := f.ClaimOne(t); c.ID != lost.ID || !c.Resumed {
		t.Errorf("claimed %+v, want the lost one", c)
	}
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 2)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0) // drops settled ones
	wantTimers(t, f)
}

// A call returns a locked lease once, however often it scans.
func TestLeaseTimersMeetALockedLeaseOncePerCall(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, c.ID)
	log := new(fixture.StatementLog)
	late := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	for range 10 { // the timer gets an id by chance each time
		sent := fixture.Names(log.During(func() { fixture.Run(t, upkeep.Of(late).ExpireLeases, 0) }))
		if n := len(sent) - len(slices.DeleteFunc(slices.Clone(sent), func(name string) bool { return name == "LookAtLeases" })); n != 2 {
			t.Fatalf("sends %q, want two looks, the second of which finds nothing", sent)
		}
	}
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
}

// A lease that this process has ended needs no scan. A single lease of a claim that it has not keeps its row, and so does one
// completed in a caller's transaction, which may have been rolled back.
func TestLeaseTimersAreDroppedOnSettlement(t *testing.T) {
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
		end  func(t *testing.T, f *fixture.Fixture, held []engine.Claimed)
		kept int // leases with timers afterwards
		lost int // of them run out
	}{
		{"all completed", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) { complete(t, f.Engine, held) }, 0, 0},
		{"one by one", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) {
			for i := range held {
				complete(t, f.Engine, held[i:i+1])
			}
		}, 0, 0},
		{"failed, delayed and released", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) {
			if _, err := f.FailExecution(t.Context(), held[0].Lease, engine.Failure{Message: "no"}); err != nil {
				t.Fatal(err)
			}
			outcomes, err := f.DelayExecutions(t.Context(), []engine.Delay{{Lease: held[1].Lease, For: time.Minute}})
			if err = errors.Join(append(outcomes, err)...); err != nil {
				t.Fatal(err)
			}
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{held[2].Lease}); err != nil {
				t.Fatal(err)
			}
		}, 0, 0},
		{"all but one", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) { complete(t, f.Engine, held[1:]) }, 3, 1},
		{"one of them twice", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) {
			complete(t, f.Engine, held[:2])
			complete(t, f.Engine, held[:1])
		}, 3, 1},
		{"by another process", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) {
			complete(t, f.Rival(t).Engine, held)
		}, 3, 0},
		{"in a transaction, rolled back", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) {
			tx := f.BeginTx(t)
			complete(t, f.WithTx(tx), held)
			f.End(t, tx, false)
		}, 3, 3},
		{"one by one in a transaction, rolled back", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) {
			tx := f.BeginTx(t)
			for i := range held {
				if err := f.WithTx(tx).CompleteExecution(t.Context(), held[i].Lease, nil); err != nil {
					t.Fatal(err)
				}
			}
			f.End(t, tx, false)
		}, 3, 3},
		{"in a transaction, committed", func(t *testing.T, f *fixture.Fixture, held []engine.Claimed) {
			tx := f.BeginTx(t)
			complete(t, f.WithTx(tx), held)
			f.End(t, tx, true)
		}, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			c.end(t, f, f.StartMany(t, 3))
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0)
			wantTimers(t, f, slices.Repeat([]time.Time{fixture.Start.Add(fixture.LeaseTTL)}, c.kept)...)
			f.WantTimer(t, t, c.name)
			f.Advance(fixture.LeaseTTL)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, c.lost)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0) // drops settled ones
			wantTimers(t, f)
		})
	}
}

// An attempt that its execution left behind has no holder.
func TestLeaseTimersDropOrphanedAttempts(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	f.Exec(t, "DELETE FROM ff_exec_core")
	f.Advance(fixture.LeaseTTL)
	before := f.Dump(t, c.ID)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0)
	wantTimers(t, f)
	f.WantUnchanged(t, c.ID, before)
}

// Other programs know nothing of lease timers, and may take any lease.
func TestLeaseTimersOfForeignLeases(t *testing.T) {
	at := func(d time.Duration) int64 { return fixture.Start.Add(d).UnixMilli() }
	for _, c := range []struct {
		name  string
		write func(t *testing.T, f *fixture.Fixture, x id.ExecutionID)
		due   []time.Duration
	}{
		{"of a new attempt", func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SeedAttempt(t, x, 0, fixture.Columns{"lease_expires_at_ms": at(time.Minute)})
		}, []time.Duration{time.Minute}},
		{"of a new attempt, and renews it", func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SeedAttempt(t, x, 0, fixture.Columns{"lease_expires_at_ms": at(time.Minute)})
			f.SetAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", at(time.Hour)))
		}, []time.Duration{time.Minute}},
		{"of an attempt that is there", func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SeedAttempt(t, x, 0, nil)
			f.SetAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", at(time.Minute)))
		}, []time.Duration{time.Minute}},
		{"of an attempt that this library had leased", func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{f.ClaimOne(t).Lease}); err != nil {
				t.Fatal(err)
			}
			f.SetAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", at(time.Minute)))
		}, []time.Duration{fixture.LeaseTTL, time.Minute}},
		{"over this library's, for a shorter time", func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.ClaimOne(t)
			f.SetAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", at(time.Second)))
		}, []time.Duration{time.Second, fixture.LeaseTTL}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := f.Create(t)
			c.write(t, f, x)
			f.WantTimer(t, t, c.name)
			var due []time.Time
			for _, d := range c.due {
				due = append(due, fixture.Start.Add(d))
			}
			wantTimers(t, f, due...)
			f.SetExecution(t, x, fixture.ForeignClaim)
			f.Advance(2 * time.Hour)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0) // drops settled ones
			wantTimers(t, f)
		})
	}
}

// The plain work of this library calls no trigger of the attempts.
func TestLeaseTimersCallNoTriggerForOwnWrites(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Create(t)
	f.Create(t)
	f.Advance(time.Millisecond) // within that of its creation a claim calls one for nothing
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SET LOCAL track_functions = 'pl'")
	before := fixture.TriggerCalls(t, tx)
	e := f.WithTx(tx)
	held, err := e.Claim(t.Context(), f.Worker(), 2)
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	if _, err := e.RenewLease(t.Context(), held[0].Lease, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range held {
		if err := e.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	if calls := fixture.TriggerCalls(t, tx) - before; calls != 0 {
		t.Errorf("trigger functions are called %d times", calls)
	}
	fixture.Commit(t, tx)
}

// A lease taken while triggers were disabled is scanned after the next sweep.
func TestRepairQueueTimesOverdueLeases(t *testing.T) {
	f := fixture.NewCloned(t)
	held := f.StartMany(t, 3)
	f.Exec(t, "DELETE FROM ffx_lease_timer")
	f.Advance(fixture.LeaseTTL + 59*time.Second)
	f.Repair(t, 2)
	wantTimers(t, f)
	f.Advance(time.Second)
	f.Repair(t, 2)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 3)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0) // drops settled ones
	wantTimers(t, f)
	for _, c := range held {
		fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), fferr.ErrStaleLease)
	}
}

// A lease that is not committed yet during a scan, one that is renewed during it, and one that is lost while its row
// is locked: none is forgotten.
func TestLeaseTimersRaceClaimsAndRenewals(t *testing.T) {
	renew := func(t *testing.T, f *fixture.Fixture, e *engine.Engine, held engine.Claimed) {
		if _, err := e.RenewLease(t.Context(), held.Lease, 0); err != nil {
			t.Fatal(err)
		}
	}
	complete := func(t *testing.T, _ *fixture.Fixture, e *engine.Engine, held engine.Claimed) {
		if err := e.CompleteExecution(t.Context(), held.Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(t *testing.T, f *fixture.Fixture, e *engine.Engine, _ engine.Claimed) {
		if claimed, err := e.Claim(t.Context(), f.Worker(), 1); err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
	}
	look := func(t *testing.T, f *fixture.Fixture, e *engine.Engine, _ engine.Claimed) {
		if n, err := upkeep.Of(e).ExpireLeases(t.Context(), 10); err != nil || n > 1 {
			t.Fatal(n, err)
		}
	}
	for _, c := range []struct {
		name    string
		write   func(t *testing.T, f *fixture.Fixture, e *engine.Engine, held engine.Claimed)
		after   time.Duration // the write, of the claim; the look comes when that lease is over
		commits bool
		expired int // once the transaction has ended, and a whole lease after
	}{
		{"a claim, committed", claim, fixture.LeaseTTL, true, 2},
		{"a claim, rolled back", claim, fixture.LeaseTTL, false, 1},
		{"a renewal, committed", renew, fixture.LeaseTTL / 2, true, 1},
		{"a renewal, rolled back", renew, fixture.LeaseTTL / 2, false, 1},
		{"a completion, committed", complete, fixture.LeaseTTL / 2, true, 0},
		{"a completion, rolled back", complete, fixture.LeaseTTL / 2, false, 1},
		{"a look, committed", look, fixture.LeaseTTL, true, 1},
		{"a look, rolled back", look, fixture.LeaseTTL, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			held := f.Start(t)
			f.Create(t)
			f.Advance(c.after)
			tx := f.BeginTx(t)
			c.write(t, f, f.WithTx(tx), held)
			f.Advance(fixture.LeaseTTL - c.after)
			late, log := f.ShortWaitRival(t)
			before, err := upkeep.Of(late.Engine).ExpireLeases(t.Context(), 10)
			if err != nil || len(log.Aborted()) > 0 {
				t.Errorf("expired %d, %v, waiting: %q", before, err, log.Aborted())
			}
			f.End(t, tx, c.commits)
			f.WantTimer(t, t, "ended")
			f.Advance(2 * fixture.LeaseTTL)
			after, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 10)
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
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0) // drops settled ones
			wantTimers(t, f)
		})
	}
}
