package tests

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
)

// readied are writes that make an execution claimable, and what comes before them.
var readied = map[string]struct {
	arrange func(t *testing.T, f *fixture) id.ExecutionID
	write   func(t *testing.T, f *fixture, tx pgx.Tx, x id.ExecutionID)
}{
	"creation": {
		func(_ *testing.T, f *fixture) id.ExecutionID { return id.NewExecutionID(f.lane, id.Partitions{}) },
		func(t *testing.T, f *fixture, tx pgx.Tx, x id.ExecutionID) {
			if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: x, Lane: f.lane}); err != nil {
				t.Fatal(err)
			}
		},
	},
	"release": {
		func(t *testing.T, f *fixture) id.ExecutionID { return f.start(t).ID },
		func(t *testing.T, f *fixture, tx pgx.Tx, _ id.ExecutionID) {
			f.advance(leaseTTL)
			if n, err := f.WithTx(tx).Maintenance().ExpireLeases(t.Context(), 10); err != nil || n != 1 {
				t.Fatal(n, err)
			}
		},
	},
	"another's release": {
		func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.setExecution(t, x, foreignBlock)
			return x
		},
		func(t *testing.T, _ *fixture, tx pgx.Tx, x id.ExecutionID) {
			execIn(t, tx, updateExecution(foreignReady), x.Partition(), x.UUID())
		},
	},
}

// What becomes claimable in a transaction is claimed once that has committed; nobody waits for it.
func TestInterleaving_claim_before_the_entry_is_committed(t *testing.T) {
	for name, c := range readied {
		t.Run(name, func(t *testing.T) {
			f := cloneFixture(t)
			x := c.arrange(t, f)
			late, log := f.impatient(t)
			tx := f.begin(t)
			c.write(t, f, tx, x)
			log.during(func() {
				if claimed, err := late.Claim(t.Context(), f.worker(), 10); err != nil || len(claimed) != 0 {
					t.Errorf("claimed %v, %v", claimed, err)
				}
			})
			if states := log.aborted(); len(states) > 0 {
				t.Errorf("the claim waited: %q", states)
			}
			commit(t, tx)
			if got := f.claim(t); got.ID != x {
				t.Errorf("claimed %s, want %s", got.ID, x)
			}
			f.wantQueue(t, t, name)
		})
	}
}

// A claim passes over what an operator is about to change, and waits for nobody.
func TestInterleaving_claim_beside_an_uncommitted_change(t *testing.T) {
	for _, c := range []struct {
		name, change string
		commits      bool
		claimable    int // of two, afterwards
	}{
		{"cancel that commits", foreignCancel, true, 1},
		{"cancel that is rolled back", foreignCancel, false, 2},
		{"priority that commits", "priority = 9", true, 2},
		{"priority that is rolled back", "priority = 9", false, 2},
		{"lane that commits", "lane_id = lane_id || '-other'", true, 1},
		{"claim of another program's that commits", foreignClaim, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x, other := f.create(t), f.create(t)
			late, log := f.impatient(t)
			tx := f.begin(t)
			execIn(t, tx, updateExecution(c.change), x.Partition(), x.UUID())
			mine := beginWith(t, late.pool, pgx.TxOptions{})
			claimed, err := late.WithTx(mine).Claim(t.Context(), f.worker(), 10)
			if got := executionsOf(claimed); err != nil || !slices.Equal(got, []id.ExecutionID{other}) {
				t.Errorf("claimed %v, %v; want %s", got, err, other)
			}
			if states := log.aborted(); len(states) > 0 {
				t.Errorf("the claim waited: %q", states)
			}
			if err := mine.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.commits {
				commit(t, tx)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.wantQueue(t, t, c.name)
			if got := len(f.claimN(t, 10)); got != c.claimable {
				t.Errorf("claimed %d, want %d", got, c.claimable)
			}
			f.wantQueue(t, t, "claimed")
		})
	}
}

// Of two claims at once the second takes what the first leaves, from the head of the lane as well as after positions.
func TestInterleaving_two_claims(t *testing.T) {
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
			f := newClone(t)
			var created []id.ExecutionID
			for range 6 {
				created = append(created, f.create(t))
			}
			late, log := f.impatient(t)
			claimer, err := late.NewClaimer(f.worker())
			if err != nil {
				t.Fatal(err)
			}
			take := func(n int) []id.ExecutionID {
				claimed, err := claimer.Claim(t.Context(), n)
				if err != nil {
					t.Fatal(err)
				}
				return executionsOf(claimed)
			}
			scanned := time.Now()
			second := take(1)
			tx := f.begin(t)
			claimed, err := f.WithTx(tx).Claim(t.Context(), f.worker(), 2)
			if err != nil {
				t.Fatal(err)
			}
			first := executionsOf(claimed)
			sent := names(log.during(func() { second = append(second, take(c.n)...) }))
			fromHead := slices.Contains(sent, "ClaimFromHead")
			again = time.Since(scanned) >= time.Second //pace:allow it is repeated on a slow machine
			if !again && (fromHead || !slices.Contains(sent, c.statement)) {
				t.Errorf("the second sends %q, want it to claim after its positions", sent)
			}
			second = append(second, take(10)...)
			if got := slices.Concat(second[:1], first, second[1:]); !slices.Equal(got, created) {
				t.Errorf("claimed %v and %v, want %v between them", first, second, created)
			}
			if states := log.aborted(); len(states) > 0 {
				t.Errorf("the second claim waited: %q", states)
			}
			left := 0
			if c.commits {
				commit(t, tx)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			} else {
				left = len(first)
			}
			f.wantQueue(t, t, c.name)
			// Not by the claimer, which leaves the head alone for a while where a full scan took long.
			if got := len(f.claimN(t, 10)); got != left {
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
func TestInterleaving_repair_beside_an_uncommitted_write(t *testing.T) {
	release := readied["release"]
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, f *fixture) id.ExecutionID
		write   func(t *testing.T, f *fixture, tx pgx.Tx, x id.ExecutionID)
	}{
		{"an early entry and a release", func(t *testing.T, f *fixture) id.ExecutionID {
			x := release.arrange(t, f)
			f.exec(t, `INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
				SELECT lane_id, - priority::bigint, created_at_ms, execution_id, partition_key, required_capabilities, '' FROM ff_exec_core`)
			return x
		}, release.write},
		{"a missing entry and another priority", func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.unseen(t, x, "DELETE FROM ffx_ready")
			return x
		}, func(t *testing.T, _ *fixture, tx pgx.Tx, x id.ExecutionID) {
			execIn(t, tx, updateExecution("priority = 9"), x.Partition(), x.UUID())
		}},
		{"a missing entry and another tag", func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.unseen(t, x, "DELETE FROM ffx_ready")
			return x
		}, func(t *testing.T, _ *fixture, tx pgx.Tx, x id.ExecutionID) {
			execIn(t, tx, updateExecution("cancellation_reason = 'x'"), x.Partition(), x.UUID())
		}},
	} {
		sweep := func(t *testing.T, e *engine.Engine) (repaired int) {
			for range 2 {
				n, err := e.Maintenance().RepairQueue(t.Context(), 10)
				if err != nil {
					t.Fatal(err)
				}
				repaired += n
			}
			return repaired
		}
		t.Run(c.name+", the write first", func(t *testing.T) {
			f := cloneFixture(t)
			x := c.arrange(t, f)
			late, log := f.impatient(t)
			tx := f.begin(t)
			c.write(t, f, tx, x)
			if repaired := sweep(t, late.Engine); repaired != 0 {
				t.Errorf("repaired %d, want the row passed over", repaired)
			}
			if states := log.aborted(); len(states) > 0 {
				t.Errorf("the repair waited: %q", states)
			}
			commit(t, tx)
			f.wantQueue(t, t, "both committed")
			if got := f.claim(t); got.ID != x {
				t.Errorf("claimed %s, want %s", got.ID, x)
			}
		})
		t.Run(c.name+", the repair first", func(t *testing.T) {
			f := cloneFixture(t)
			x := c.arrange(t, f)
			tx := f.begin(t)
			if repaired := sweep(t, f.WithTx(tx)); repaired != 1 {
				t.Errorf("repaired %d, want 1", repaired)
			}
			late := f.rival(t)
			f.advance(leaseTTL)
			wait := async(t, func(ctx context.Context) error {
				behind, err := late.pool.Begin(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = behind.Rollback(ctx) }()
				if _, err := behind.Exec(ctx, updateExecution("priority = 3, "+foreignReady), x.Partition(), x.UUID()); err != nil {
					return err
				}
				return behind.Commit(ctx)
			})
			late.awaitBlocked(t, f)
			commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			f.wantQueue(t, t, "both committed")
			if got := f.claim(t); got.ID != x {
				t.Errorf("claimed %s, want %s", got.ID, x)
			}
		})
	}
}

// afterItsSnapshot runs a statement of the queue's, as it stands but for a wait between its snapshot and its first row,
// and meanwhile whatever else is committed.
func (f *fixture) afterItsSnapshot(t *testing.T, name string, meanwhile func(), args ...any) []string {
	t.Helper()
	first := map[string]string{
		"SweepQueue": "ffx_ready AS r\n", "RepairQueue": "ff_exec_core AS e\n", "TakeClaimable": "ffx_ready AS q\n",
	}[name]
	text := strings.Replace(queries(t)[name], "FROM "+first, "FROM held CROSS JOIN "+first, 1)
	_, body, _ := strings.Cut(text, "\n")
	held := "WITH held AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(4713))"
	if rest, ok := strings.CutPrefix(body, "WITH "); ok {
		body = held + ", " + rest
	} else {
		body = held + " " + body
	}
	late := f.rival(t)
	tx := f.begin(t)
	execIn(t, tx, "SELECT pg_advisory_xact_lock(4713)")
	wait := async(t, func(ctx context.Context) []string {
		rows, err := late.pool.Query(ctx, body, args...)
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
	late.awaitBlocked(t, f)
	meanwhile()
	commit(t, tx)
	return wait()
}

// The statements of the queue decide about the rows that they have locked, not about those of their snapshot.
func TestInterleaving_queue_statements_with_an_old_snapshot(t *testing.T) {
	cancelled := func(f *fixture, t *testing.T, x id.ExecutionID) { f.setExecution(t, x, foreignCancel) }
	preferred := func(f *fixture, t *testing.T, x id.ExecutionID) { f.setExecution(t, x, "priority = 5") }
	moved := func(f *fixture, t *testing.T, x id.ExecutionID) {
		f.setExecution(t, x, "lane_id = lane_id || '-other'")
	}
	ready := func(f *fixture, t *testing.T, x id.ExecutionID) { f.setExecution(t, x, foreignReady) }
	missing := func(f *fixture, t *testing.T, x id.ExecutionID) { f.unseen(t, x, "DELETE FROM ffx_ready") }
	stale := func(f *fixture, t *testing.T, x id.ExecutionID) {
		f.unseen(t, x, "UPDATE ff_exec_core SET "+foreignBlock)
	}
	for _, c := range []struct {
		statement, name string
		before, since   func(f *fixture, t *testing.T, x id.ExecutionID)
		args            func(f *fixture) []any
		found           int
	}{
		{"SweepQueue", "becomes claimable", stale, ready, func(*fixture) []any { return []any{10, nil} }, 0},
		{"RepairQueue", "is cancelled", missing, cancelled, func(*fixture) []any { return []any{nil, week.Milliseconds(), -1, id.ExecutionUUID{}, 10} }, 1},
		{"RepairQueue", "gets another priority", missing, preferred, func(*fixture) []any { return []any{nil, week.Milliseconds(), -1, id.ExecutionUUID{}, 10} }, 1},
		{"TakeClaimable", "is cancelled", nil, cancelled, func(f *fixture) []any { return []any{f.lane, []string{}, []string{}, 10, "w"} }, 0},
		{"TakeClaimable", "is moved to another lane", nil, moved, func(f *fixture) []any { return []any{f.lane, []string{}, []string{}, 10, "w"} }, 0},
	} {
		t.Run(c.statement+": the execution "+c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.create(t)
			if c.before != nil {
				c.before(f, t, x)
			}
			found := f.afterItsSnapshot(t, c.statement, func() { c.since(f, t, x) }, c.args(f)...)
			if c.statement == "SweepQueue" { // it answers with a count
				found = slices.DeleteFunc(found, func(row string) bool { return row == "[0]" })
			}
			if len(found) != c.found {
				t.Errorf("found %v, want %d rows", found, c.found)
			}
			f.wantQueue(t, t, "both committed")
		})
	}
}
