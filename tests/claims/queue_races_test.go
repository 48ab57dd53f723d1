package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// readied are writes that make an execution claimable, and the steps before them.
var readied = map[string]struct {
	arrange func(t *testing.T, f *fixture.Fixture) id.ExecutionID
	write   func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, x id.ExecutionID)
}{
	"creation": {
		func(_ *testing.T, f *fixture.Fixture) id.ExecutionID {
			return id.NewExecutionID(f.Lane, id.Partitions{})
		},
		func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, x id.ExecutionID) {
			if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: x, Lane: f.Lane}); err != nil {
				t.Fatal(err)
			}
		},
	},
	"release": {
		func(t *testing.T, f *fixture.Fixture) id.ExecutionID { return f.Start(t).ID },
		func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, _ id.ExecutionID) {
			f.Advance(fixture.LeaseTTL)
			if n, err := upkeep.Of(f.WithTx(tx)).ExpireLeases(t.Context(), 10); err != nil || n != 1 {
				t.Fatal(n, err)
			}
		},
	},
	"another's release": {
		func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			x := f.Create(t)
			f.SetExecution(t, x, foreignBlock)
			return x
		},
		func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, x id.ExecutionID) {
			fixture.ExecIn(t, tx, fixture.UpdateExecution(fixture.ForeignReady), x.Partition(), x.UUID())
		},
	},
}

// An execution that becomes claimable in a transaction is claimed once that has committed; no claim waits for it.
func TestClaimSeesAnEntryAfterItsCommit(t *testing.T) {
	for name, c := range readied {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := c.arrange(t, f)
			late, log := f.ShortWaitRival(t)
			tx := f.BeginTx(t)
			c.write(t, f, tx, x)
			log.During(func() {
				if claimed, err := late.Claim(t.Context(), f.Worker(), 10); err != nil || len(claimed) != 0 {
					t.Errorf("claimed %v, %v", claimed, err)
				}
			})
			if states := log.Aborted(); len(states) > 0 {
				t.Errorf("the claim waited: %q", states)
			}
			fixture.Commit(t, tx)
			if got := f.ClaimOne(t); got.ID != x {
				t.Errorf("claimed %s, want %s", got.ID, x)
			}
			f.WantQueue(t, t, name)
		})
	}
}

// A claim skips an execution that an operator is changing, and never waits.
func TestClaimSkipsAnUncommittedChange(t *testing.T) {
	for _, c := range []struct {
		name, change string
		commits      bool
		claimable    int // of two, afterwards
	}{
		{"cancel that commits", fixture.ForeignCancel, true, 1},
		{"cancel that is rolled back", fixture.ForeignCancel, false, 2},
		{"priority that commits", "priority = 9", true, 2},
		{"priority that is rolled back", "priority = 9", false, 2},
		{"lane that commits", "lane_id = lane_id || '-other'", true, 1},
		{"claim of another program's that commits", fixture.ForeignClaim, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x, other := f.Create(t), f.Create(t)
			late, log := f.ShortWaitRival(t)
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, fixture.UpdateExecution(c.change), x.Partition(), x.UUID())
			mine := fixture.BeginWith(t, late.Pool, pgx.TxOptions{})
			claimed, err := late.WithTx(mine).Claim(t.Context(), f.Worker(), 10)
			if got := fixture.ExecutionsOf(claimed); err != nil || !slices.Equal(got, []id.ExecutionID{other}) {
				t.Errorf("claimed %v, %v; want %s", got, err, other)
			}
			if states := log.Aborted(); len(states) > 0 {
				t.Errorf("the claim waited: %q", states)
			}
			if err := mine.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.commits {
				fixture.Commit(t, tx)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.WantQueue(t, t, c.name)
			if got := len(f.ClaimN(t, 10)); got != c.claimable {
				t.Errorf("claimed %d, want %d", got, c.claimable)
			}
			f.WantQueue(t, t, "claimed")
		})
	}
}

// Of two concurrent claims the second takes the executions that the first leaves, from the head of the lane and after
// positions.
func TestConcurrentClaimsShareTheLane(t *testing.T) {
	for _, c := range []struct {
		name      string
		commits   bool
		n         int // that the second takes after its positions
		statement string
	}{
		{"the first commits", true, 1, "ClaimOneAfterPosition"},
		{"the first commits, two by two", true, 2, "ClaimAfterPositions"},
		{"the first rolls back", false, 1, "ClaimOneAfterPosition"},
		{"the first rolls back, two by two", false, 2, "ClaimAfterPositions"},
	} {
		// again is true if the claims took longer than a claimer keeps its positions.
		var again bool
		once := func(t *testing.T) {
			f := fixture.Clone(t)
			var created []id.ExecutionID
			for range 6 {
				created = append(created, f.Create(t))
			}
			late, log := f.ShortWaitRival(t)
			claimer, err := late.NewClaimer(f.Worker())
			if err != nil {
				t.Fatal(err)
			}
			take := func(n int) []id.ExecutionID {
				claimed, err := claimer.Claim(t.Context(), n)
				if err != nil {
					t.Fatal(err)
				}
				return fixture.ExecutionsOf(claimed)
			}
			scanned := time.Now()
			second := take(1)
			tx := f.BeginTx(t)
			claimed, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 2)
			if err != nil {
				t.Fatal(err)
			}
			first := fixture.ExecutionsOf(claimed)
			sent := fixture.Names(log.During(func() { second = append(second, take(c.n)...) }))
			fromHead := slices.Contains(sent, "ClaimFromHead")
			again = time.Since(scanned) >= time.Second //pace:allow it is repeated on a slow machine
			if !again && (fromHead || !slices.Contains(sent, c.statement)) {
				t.Errorf("the second sends %q, want it to claim after its positions", sent)
			}
			second = append(second, take(10)...)
			if got := slices.Concat(second[:1], first, second[1:]); !slices.Equal(got, created) {
				t.Errorf("claimed %v and %v, want %v between them", first, second, created)
			}
			if states := log.Aborted(); len(states) > 0 {
				t.Errorf("the second claim waited: %q", states)
			}
			left := 0
			if c.commits {
				fixture.Commit(t, tx)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			} else {
				left = len(first)
			}
			f.WantQueue(t, t, c.name)
			// Not by the claimer, which leaves the head alone for a while where a full scan took long.
			if got := len(f.ClaimN(t, 10)); got != left {
				t.Errorf("claimed %d more, want %d", got, left)
			}
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for again = true; again; {
				once(t)
			}
		})
	}
}

// A repair beside a write that makes an execution claimable: it is queued when both have committed, whichever locked
// the row first. Before, its entry is missing, or one stands that does not hold yet.
func TestRepairQueueBesideAnUncommittedWrite(t *testing.T) {
	release := readied["release"]
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, f *fixture.Fixture) id.ExecutionID
		write   func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, x id.ExecutionID)
	}{
		{"an early entry and a release", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			x := release.arrange(t, f)
			f.Exec(t, `INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
				SELECT lane_id, - priority::bigint, created_at_ms, execution_id, partition_key, required_capabilities, '' FROM ff_exec_core`)
			return x
		}, release.write},
		{"a missing entry and another priority", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			x := f.Create(t)
			f.Unseen(t, x, "DELETE FROM ffx_ready")
			return x
		}, func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, x id.ExecutionID) {
			fixture.ExecIn(t, tx, fixture.UpdateExecution("priority = 9"), x.Partition(), x.UUID())
		}},
		{"a missing entry and another tag", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			x := f.Create(t)
			f.Unseen(t, x, "DELETE FROM ffx_ready")
			return x
		}, func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, x id.ExecutionID) {
			fixture.ExecIn(t, tx, fixture.UpdateExecution("cancellation_reason = 'x'"), x.Partition(), x.UUID())
		}},
	} {
		sweep := func(t *testing.T, e *engine.Engine) (repaired int) {
			for range 2 {
				n, err := upkeep.Of(e).RepairQueue(t.Context(), 10)
				if err != nil {
					t.Fatal(err)
				}
				repaired += n
			}
			return repaired
		}
		t.Run(c.name+", the write first", func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := c.arrange(t, f)
			late, log := f.ShortWaitRival(t)
			tx := f.BeginTx(t)
			c.write(t, f, tx, x)
			if repaired := sweep(t, late.Engine); repaired != 0 {
				t.Errorf("repaired %d, want the row passed over", repaired)
			}
			if states := log.Aborted(); len(states) > 0 {
				t.Errorf("the repair waited: %q", states)
			}
			fixture.Commit(t, tx)
			f.WantQueue(t, t, "both committed")
			if got := f.ClaimOne(t); got.ID != x {
				t.Errorf("claimed %s, want %s", got.ID, x)
			}
		})
		t.Run(c.name+", the repair first", func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := c.arrange(t, f)
			tx := f.BeginTx(t)
			if repaired := sweep(t, f.WithTx(tx)); repaired != 1 {
				t.Errorf("repaired %d, want 1", repaired)
			}
			late := f.Rival(t)
			f.Advance(fixture.LeaseTTL)
			wait := fixture.Async(t, func(ctx context.Context) error {
				behind, err := late.Pool.Begin(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = behind.Rollback(ctx) }()
				if _, err := behind.Exec(ctx, fixture.UpdateExecution("priority = 3, "+fixture.ForeignReady), x.Partition(), x.UUID()); err != nil {
					return err
				}
				return behind.Commit(ctx)
			})
			late.AwaitBlocked(t, f)
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			f.WantQueue(t, t, "both committed")
			if got := f.ClaimOne(t); got.ID != x {
				t.Errorf("claimed %s, want %s", got.ID, x)
			}
		})
	}
}

// afterItsSnapshot runs a statement of the queue's, unchanged except for a wait between its snapshot and its first
// row, during which meanwhile runs.
func afterItsSnapshot(t *testing.T, f *fixture.Fixture, name string, meanwhile func(), args ...any) []string {
	t.Helper()
	first := map[string]string{
		"SweepQueue": "ffx_ready AS r\n", "QueueUnqueued": "input AS i\n", "ListUnlisted": "input AS i\n", "TakeClaimable": "ffx_ready AS q\n",
	}[name]
	text := strings.Replace(fixture.Queries(t)[name], "FROM "+first, "FROM held CROSS JOIN "+first, 1)
	_, body, _ := strings.Cut(text, "\n")
	held := "WITH held AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(4713))"
	if rest, ok := strings.CutPrefix(body, "WITH "); ok {
		body = held + ", " + rest
	} else {
		body = held + " " + body
	}
	late := f.Rival(t)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(4713)")
	wait := fixture.Async(t, func(ctx context.Context) []string {
		rows, err := late.Pool.Query(ctx, body, args...)
		if err != nil {
			t.Error(err)
			return nil
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			values, err := row.Values()
			return fmt.Sprint(values[:min(2, len(values))]), err
		})
		if err != nil {
			t.Error(err)
		}
		return found
	})
	late.AwaitBlocked(t, f)
	meanwhile()
	fixture.Commit(t, tx)
	return wait()
}

// The statements of the queue decide about the rows that they have locked, not about those of their snapshot.
func TestQueueStatementsDecideOnLockedRows(t *testing.T) {
	cancelled := func(f *fixture.Fixture, t *testing.T, x id.ExecutionID) { f.SetExecution(t, x, fixture.ForeignCancel) }
	preferred := func(f *fixture.Fixture, t *testing.T, x id.ExecutionID) { f.SetExecution(t, x, "priority = 5") }
	moved := func(f *fixture.Fixture, t *testing.T, x id.ExecutionID) {
		f.SetExecution(t, x, "lane_id = lane_id || '-other'")
	}
	ready := func(f *fixture.Fixture, t *testing.T, x id.ExecutionID) { f.SetExecution(t, x, fixture.ForeignReady) }
	missing := func(f *fixture.Fixture, t *testing.T, x id.ExecutionID) { f.Unseen(t, x, "DELETE FROM ffx_ready") }
	stale := func(f *fixture.Fixture, t *testing.T, x id.ExecutionID) {
		f.Unseen(t, x, "UPDATE ff_exec_core SET "+foreignBlock)
	}
	key := func(_ *fixture.Fixture, x id.ExecutionID) []any {
		return []any{[]int16{x.Partition()}, []id.ExecutionUUID{x.UUID()}}
	}
	fromLane := func(f *fixture.Fixture, _ id.ExecutionID) []any {
		return []any{f.Lane, []string{}, []string{}, 10, "w", nil}
	}
	for _, c := range []struct {
		statement, name string
		before, since   func(f *fixture.Fixture, t *testing.T, x id.ExecutionID)
		args            func(f *fixture.Fixture, x id.ExecutionID) []any
		found           int
	}{
		{"SweepQueue", "becomes claimable", stale, ready, func(*fixture.Fixture, id.ExecutionID) []any { return []any{10, nil} }, 0},
		{"QueueUnqueued", "is cancelled", missing, cancelled, key, 0},
		{"QueueUnqueued", "gets another priority", missing, preferred, key, 0},
		{"ListUnlisted", "becomes claimable", stale, ready, func(f *fixture.Fixture, x id.ExecutionID) []any {
			return append([]any{nil}, key(f, x)...)
		}, 0},
		{"TakeClaimable", "is cancelled", nil, cancelled, fromLane, 0},
		{"TakeClaimable", "is moved to another lane", nil, moved, fromLane, 0},
	} {
		t.Run(c.statement+": the execution "+c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := f.Create(t)
			if c.before != nil {
				c.before(f, t, x)
			}
			found := afterItsSnapshot(t, f, c.statement, func() { c.since(f, t, x) }, c.args(f, x)...)
			if c.statement == "SweepQueue" { // it answers with a count
				found = slices.DeleteFunc(found, func(row string) bool { return row == "[0]" })
			}
			if len(found) != c.found {
				t.Errorf("found %v, want %d rows", found, c.found)
			}
			f.WantQueue(t, t, "both committed")
		})
	}
}
