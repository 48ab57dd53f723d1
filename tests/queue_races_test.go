package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// The same of any sequence of writes, of this library's and others', after each of them.
func TestQueue_follows_any_sequence_of_writes(t *testing.T) {
	shared := cloneFixture(t)
	const others = `execution_id IN (
		SELECT execution_id FROM (SELECT execution_id, row_number() OVER (ORDER BY created_at_ms) AS n FROM ff_exec_core) AS r
		WHERE n % $1::integer = 0)`
	rapid.Check(t, func(r *rapid.T) {
		shared.clear(t)
		f := flowsOn(fixtureOn(t, shared.pool, shared.url))
		lanes := []id.LaneID{f.lane, f.lane + "-other"}
		var held []engine.Lease // some of them stale
		take := func() []engine.Lease {
			n := min(len(held), rapid.IntRange(1, 3).Draw(r, "leases"))
			taken := slices.Clone(held[:n])
			held = slices.Delete(held, 0, n)
			return taken
		}
		may := func(label string) bool { return rapid.IntRange(0, 4).Draw(r, label) == 0 }
		spec := func() engine.ExecutionSpec {
			s := engine.ExecutionSpec{Lane: rapid.SampledFrom(lanes).Draw(r, "lane"), Priority: rapid.IntRange(0, 2).Draw(r, "priority")}
			s.Policy = &policy.Execution{Retry: &policy.Retry{Backoff: policy.FixedBackoff(uint64(rapid.IntRange(0, 1).Draw(r, "backoff") * 1000))}}
			if may("timeout") {
				s.Policy.Timeout = &policy.Timeout{AttemptTimeoutMs: new(uint64(2000))}
			}
			if may("delay") {
				s.DelayUntil = f.now().Add(time.Second)
			}
			if may("deadline") {
				s.Deadline = f.now().Add(3 * time.Second)
			}
			if may("capability") {
				s.Policy.Routing = &policy.Routing{RequiredCapabilities: []string{"gpu"}}
			}
			return s
		}
		specs := func() []engine.ExecutionSpec {
			all := make([]engine.ExecutionSpec, rapid.IntRange(1, 4).Draw(r, "executions"))
			for i := range all {
				all[i] = spec()
			}
			return all
		}
		check := func(err error) {
			if err != nil {
				r.Fatal(err)
			}
		}
		operations := map[string]func(){
			"create": func() { _, err := f.CreateExecutions(t.Context(), specs()); check(err) },
			"create in a transaction": func() {
				tx, err := f.pool.Begin(t.Context())
				check(err)
				defer func() { _ = tx.Rollback(t.Context()) }()
				_, err = f.WithTx(tx).CreateExecutions(t.Context(), specs())
				check(err)
				execIn(t, tx, rapid.SampledFrom([]string{"COMMIT", "ROLLBACK"}).Draw(r, "end"))
			},
			"create a flow": func() { f.draw(t, nil, "a>c", "b>c", "c>d") },
			"claim": func() {
				worker := f.worker()
				worker.Lane = rapid.SampledFrom(lanes).Draw(r, "lane")
				if may("capable") {
					worker.Capabilities = id.Capabilities{"gpu"}
				}
				claimed, err := f.Claim(t.Context(), worker, rapid.IntRange(1, 5).Draw(r, "n"))
				check(err)
				for _, c := range claimed {
					held = append(held, c.Lease)
				}
			},
			"complete": func() {
				var completions []engine.Completion
				for _, l := range take() {
					completions = append(completions, engine.Completion{Lease: l})
				}
				_, err := f.CompleteExecutions(t.Context(), completions)
				check(err)
			},
			"fail": func() {
				var failures []engine.Failing
				for _, l := range take() {
					failures = append(failures, engine.Failing{Lease: l, Failure: rapid.SampledFrom([]engine.Failure{{}, forGood}).Draw(r, "failure")})
				}
				_, err := f.FailExecutions(t.Context(), failures)
				check(err)
			},
			"release": func() { _, err := f.ReleaseLeases(t.Context(), take()); check(err) },
			"advance": func() {
				f.advance(time.Duration(rapid.SampledFrom([]int{1000, 2000, 10_000}).Draw(r, "ms")) * time.Millisecond)
				f.background(t)
			},
			"another's write": func() {
				assignments := rapid.SampledFrom([]string{
					foreignClaim, foreignCancel, foreignBlock, foreignReady, foreignReady + ", priority = 5", "priority = 1 - priority",
					"priority = -2147483648", "required_capabilities = '{gpu}'", "lane_id = '" + string(lanes[1]) + "'", "created_at_ms = created_at_ms - 1",
					"ffx_lease_epoch = coalesce(ffx_lease_epoch, 0) + 1", "ffx_lease_epoch = coalesce(ffx_lease_epoch, 0) + 1, " + foreignBlock,
				}).Draw(r, "assignments")
				f.exec(t, "UPDATE ff_exec_core SET "+assignments+" WHERE "+others, rapid.IntRange(1, 3).Draw(r, "every"))
			},
			"another's creation": func() {
				f.seed(t, columns{"lifecycle_phase": "runnable", "attempt_state": rapid.SampledFrom([]string{"pending_first_attempt", "attempt_interrupted"}).Draw(r, "attempt state")})
			},
			"delete": func() { f.exec(t, "DELETE FROM ff_exec_core WHERE "+others, rapid.IntRange(2, 4).Draw(r, "every")) },
			"repair": func() {
				if repaired := f.repair(t, 3); repaired != 0 {
					r.Errorf("repaired %d", repaired)
				}
			},
		}
		names := make([]string, 0, len(operations))
		for name := range operations {
			names = append(names, name)
		}
		slices.Sort(names)
		var done []string
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 20).Draw(r, "operations") {
			f.advance(time.Millisecond)
			operations[name]()
			done = append(done, name)
			f.wantQueue(t, r, strings.Join(done, ", "))
			if r.Failed() {
				return
			}
		}
	})
}

// repair walks through all executions, n at a time, and returns how many were put right.
func (f *fixture) repair(t *testing.T, n int) int {
	t.Helper()
	total := 0
	var after id.ExecutionID
	for range 1000 {
		next, repaired, err := f.RepairQueue(t.Context(), after, n)
		if err != nil {
			t.Fatal(err)
		}
		total += repaired
		if after = next; after == (id.ExecutionID{}) && repaired < n {
			return total
		}
	}
	t.Fatalf("the walk does not come to an end; it is at %s", after)
	panic("unreachable")
}

// unseen writes without the queue's triggers, as a replica or a restore does.
func (f *fixture) unseen(t *testing.T, x id.ExecutionID, sql string) {
	t.Helper()
	tx := f.begin(t)
	execIn(t, tx, "SET LOCAL session_replication_role = replica")
	execIn(t, tx, sql+" WHERE partition_key = $1::smallint AND execution_id = $2", x.Partition(), x.UUID())
	commit(t, tx)
}

// What the triggers did not see: a claim passes a hint over that does not hold, and does not see an execution without
// one. The repair, in pages of any size, puts both right.
func TestRepairQueue_puts_right_what_the_triggers_did_not_see(t *testing.T) {
	const set = "UPDATE ff_exec_core SET "
	for _, c := range []struct {
		name     string
		unseen   []string // what happens to one of seven executions each
		repaired int
		before   int // claimed before the repair; -1: by the old place or not at all
		after    int // claimed after it
	}{
		{"nothing", nil, 0, 7, 7},
		{"missing", []string{"DELETE FROM ffx_ready"}, 1, 6, 7},
		{"all missing", slices.Repeat([]string{"DELETE FROM ffx_ready"}, 7), 7, 0, 7},
		{"cancelled", []string{set + foreignCancel}, 1, 6, 6},
		{"blocked", []string{set + foreignBlock}, 1, 6, 6},
		{"gone", []string{"DELETE FROM ff_exec_core"}, 1, 6, 6},
		{"all gone", slices.Repeat([]string{"DELETE FROM ff_exec_core"}, 7), 7, 0, 0},
		{"with another priority", []string{set + "priority = 3"}, 2, -1, 7},
		{"with another age", []string{set + "created_at_ms = created_at_ms + 1"}, 2, -1, 7},
		{"on another lane", []string{set + "lane_id = lane_id || '-other'"}, 2, 6, 6},
		{"each of them", []string{"DELETE FROM ffx_ready", set + foreignCancel, "DELETE FROM ff_exec_core", set + "priority = 3"}, 5, -1, 5},
	} {
		for _, page := range []int{1, 3, engine.MaxBatch} {
			t.Run(fmt.Sprintf("%s, %d a page", c.name, page), func(t *testing.T) {
				f := cloneFixture(t)
				for i := range 7 {
					x := f.create(t, func(spec *engine.ExecutionSpec) {
						spec.ID = id.NewExecutionID(id.LaneID(fmt.Sprint(i%3)), id.Partitions{})
					})
					if i < len(c.unseen) {
						f.unseen(t, x, c.unseen[i])
					}
				}
				if got := f.wouldClaim(t); c.before >= 0 && got != c.before {
					t.Errorf("%d are claimed before the repair, want %d", got, c.before)
				}
				if repaired := f.repair(t, page); repaired != c.repaired {
					t.Errorf("repaired %d, want %d", repaired, c.repaired)
				}
				f.wantQueue(t, t, "after the repair")
				if repaired := f.repair(t, page); repaired != 0 {
					t.Errorf("repaired %d the second time", repaired)
				}
				if got := f.wouldClaim(t); got != c.after {
					t.Errorf("%d are claimed after the repair, want %d", got, c.after)
				}
			})
		}
	}
}

// wouldClaim returns how many executions of the fixture's lane a claim takes; it is rolled back.
func (f *fixture) wouldClaim(t *testing.T) int {
	t.Helper()
	tx := f.begin(t)
	claimed, err := f.WithTx(tx).Claim(t.Context(), f.worker(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return len(claimed)
}

// A second hint, under an earlier priority, neither leases an execution twice nor stands in the way of the others.
func TestClaim_of_an_execution_that_is_queued_twice(t *testing.T) {
	for name, arrange := range map[string]func(f *fixture, t *testing.T, x id.ExecutionID){
		"lean":                           func(*fixture, *testing.T, id.ExecutionID) {},
		"by the statement that locks it": func(f *fixture, t *testing.T, x id.ExecutionID) { f.seedAttempt(t, x, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			f := cloneFixture(t)
			x, other := f.create(t), f.create(t)
			arrange(f, t, x)
			f.exec(t, `INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities)
				SELECT lane_id, -9, created_at_ms, execution_id, partition_key, required_capabilities FROM ffx_ready WHERE execution_id = $1`, x.UUID())
			if got, want := executionsOf(f.claimN(t, 10)), []id.ExecutionID{x, other}; !slices.Equal(got, want) {
				t.Errorf("claimed %v, want %v", got, want)
			}
			if repaired := f.repair(t, 10); repaired != 1 {
				t.Errorf("repaired %d, want the second hint swept", repaired)
			}
			f.wantQueue(t, t, name)
		})
	}
}

func TestRepairQueue_tells_of_the_work_it_found(t *testing.T) {
	f := cloneFixture(t)
	x := f.create(t)
	e := f.rival(t).listen(t, f.lane)
	f.unseen(t, x, "DELETE FROM ffx_ready")
	if next, repaired, err := f.RepairQueue(t.Context(), id.ExecutionID{}, 10); err != nil || repaired != 1 || next != x {
		t.Fatal(next, repaired, err)
	}
	e.want(t, f.lane)
}

func TestRepairQueue_refuses_bad_input(t *testing.T) {
	f := newFixture(t)
	after := id.NewExecutionID(f.lane, id.Partitions{})
	for _, n := range []int{-1, 0, engine.MaxBatch + 1} {
		next, repaired, err := f.RepairQueue(t.Context(), after, n)
		wantInputError(t, err, "batch")
		if next != after || repaired != 0 {
			t.Errorf("%d: next %s, repaired %d", n, next, repaired)
		}
	}
}

// readied are writes that make an execution claimable, and what comes before them.
var readied = map[string]struct {
	arrange func(t *testing.T, f *fixture) id.ExecutionID
	write   func(t *testing.T, f *fixture, tx pgx.Tx, x id.ExecutionID)
}{
	"creation": {
		func(_ *testing.T, f *fixture) id.ExecutionID { return id.NewExecutionID(f.lane, id.Partitions{}) },
		func(t *testing.T, f *fixture, tx pgx.Tx, x id.ExecutionID) {
			if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{ID: x, Lane: f.lane}); err != nil {
				t.Fatal(err)
			}
		},
	},
	"release": {
		func(t *testing.T, f *fixture) id.ExecutionID { return f.start(t).Execution },
		func(t *testing.T, f *fixture, tx pgx.Tx, _ id.ExecutionID) {
			f.advance(leaseTTL)
			if n, err := f.WithTx(tx).ExpireLeases(t.Context(), 10); err != nil || n != 1 {
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
func TestInterleaving_claim_before_the_hint_is_committed(t *testing.T) {
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
			if got := f.claim(t); got.Execution != x {
				t.Errorf("claimed %s, want %s", got.Execution, x)
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

// Of two claims at once the second takes what the first leaves, from the head of the lane as well as behind bounds.
func TestInterleaving_two_claims(t *testing.T) {
	for name, commits := range map[string]bool{"the first commits": true, "the first rolls back": false} {
		t.Run(name, func(t *testing.T) {
			f := cloneFixture(t)
			var created []id.ExecutionID
			for range 5 {
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
			second := take(1)
			tx := f.begin(t)
			claimed, err := f.WithTx(tx).Claim(t.Context(), f.worker(), 2)
			if err != nil {
				t.Fatal(err)
			}
			first := executionsOf(claimed)
			sent := names(log.during(func() { second = append(second, take(1)...) }))
			if !slices.Contains(sent, "ClaimBehind") || slices.Contains(sent, "ClaimFromHead") {
				t.Errorf("the second sends %q, want it to claim behind its bounds", sent)
			}
			second = append(second, take(10)...)
			if got := slices.Concat(second[:1], first, second[1:]); !slices.Equal(got, created) {
				t.Errorf("claimed %v and %v, want %v between them", first, second, created)
			}
			if states := log.aborted(); len(states) > 0 {
				t.Errorf("the second claim waited: %q", states)
			}
			left := 0
			if commits {
				commit(t, tx)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			} else {
				left = len(first)
			}
			f.wantQueue(t, t, name)
			if got := len(take(10)); got != left {
				t.Errorf("claimed %d more, want %d", got, left)
			}
		})
	}
}

// A repair beside a write that makes an execution claimable: it is queued when both have committed, whichever locked
// the row first. Before, its hint is missing, or one stands that does not hold yet.
func TestInterleaving_repair_beside_an_uncommitted_write(t *testing.T) {
	release := readied["release"]
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, f *fixture) id.ExecutionID
		write   func(t *testing.T, f *fixture, tx pgx.Tx, x id.ExecutionID)
	}{
		{"an early hint and a release", func(t *testing.T, f *fixture) id.ExecutionID {
			x := release.arrange(t, f)
			f.exec(t, `INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities)
				SELECT lane_id, - priority::bigint, created_at_ms, execution_id, partition_key, required_capabilities FROM ff_exec_core`)
			return x
		}, release.write},
		{"a missing hint and another priority", func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.unseen(t, x, "DELETE FROM ffx_ready")
			return x
		}, func(t *testing.T, _ *fixture, tx pgx.Tx, x id.ExecutionID) {
			execIn(t, tx, updateExecution("priority = 9"), x.Partition(), x.UUID())
		}},
		{"a missing hint and another tag", func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.unseen(t, x, "DELETE FROM ffx_ready")
			return x
		}, func(t *testing.T, _ *fixture, tx pgx.Tx, x id.ExecutionID) {
			execIn(t, tx, updateExecution("cancellation_reason = 'x'"), x.Partition(), x.UUID())
		}},
	} {
		walk := func(t *testing.T, e *engine.Engine) (repaired int) {
			var after id.ExecutionID
			for range 2 {
				next, n, err := e.RepairQueue(t.Context(), after, 10)
				if err != nil {
					t.Fatal(err)
				}
				after, repaired = next, repaired+n
			}
			return repaired
		}
		t.Run(c.name+", the write first", func(t *testing.T) {
			f := cloneFixture(t)
			x := c.arrange(t, f)
			late, log := f.impatient(t)
			tx := f.begin(t)
			c.write(t, f, tx, x)
			if repaired := walk(t, late.Engine); repaired != 0 {
				t.Errorf("repaired %d, want the row passed over", repaired)
			}
			if states := log.aborted(); len(states) > 0 {
				t.Errorf("the repair waited: %q", states)
			}
			commit(t, tx)
			f.wantQueue(t, t, "both committed")
			if got := f.claim(t); got.Execution != x {
				t.Errorf("claimed %s, want %s", got.Execution, x)
			}
		})
		t.Run(c.name+", the repair first", func(t *testing.T) {
			f := cloneFixture(t)
			x := c.arrange(t, f)
			tx := f.begin(t)
			if repaired := walk(t, f.WithTx(tx)); repaired != 1 {
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
			if got := f.claim(t); got.Execution != x {
				t.Errorf("claimed %s, want %s", got.Execution, x)
			}
		})
	}
}

// afterItsSnapshot runs a statement of the queue's, as it stands but for a wait between its snapshot and its first row,
// and meanwhile whatever else is committed.
func (f *fixture) afterItsSnapshot(t *testing.T, name string, meanwhile func(), args ...any) []string {
	t.Helper()
	first := "ffx_ready AS r\n"
	if name == "RepairQueue" {
		first = "ff_exec_core AS e\n"
	}
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
			return fmt.Sprint(values[:2]), err
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
		{"SweepQueue", "becomes claimable", stale, ready, func(*fixture) []any { return []any{10} }, 0},
		{"RepairQueue", "is cancelled", missing, cancelled, func(*fixture) []any { return []any{-1, id.ExecutionUUID{}, 10} }, 1},
		{"RepairQueue", "gets another priority", missing, preferred, func(*fixture) []any { return []any{-1, id.ExecutionUUID{}, 10} }, 1},
		{"TakeClaimable", "is cancelled", nil, cancelled, func(f *fixture) []any { return []any{f.lane, []string{}, 10} }, 0},
		{"TakeClaimable", "is moved to another lane", nil, moved, func(f *fixture) []any { return []any{f.lane, []string{}, 10} }, 0},
	} {
		t.Run(c.statement+": the execution "+c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.create(t)
			if c.before != nil {
				c.before(f, t, x)
			}
			found := f.afterItsSnapshot(t, c.statement, func() { c.since(f, t, x) }, c.args(f)...)
			if len(found) != c.found {
				t.Errorf("found %v, want %d rows", found, c.found)
			}
			f.wantQueue(t, t, "both committed")
		})
	}
}
