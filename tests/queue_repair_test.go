package tests

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// repair goes through all executions, n at a time, and returns how many were put right.
func (f *fixture) repair(t *testing.T, n int) int {
	t.Helper()
	total := 0
	pages := (len(texts(t, f.pool, "SELECT 'row' FROM ff_exec_core")) + n - 1) / n
	for call := range 1000 {
		repaired, err := f.Maintenance().RepairQueue(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		total += repaired
		if call >= pages && repaired < n {
			return total
		}
	}
	t.Fatal("the queue's sweep does not come to an end")
	return total
}

// unseen writes without the queue's triggers, as a replica or a restore does.
func (f *fixture) unseen(t *testing.T, x id.ExecutionID, sql string) {
	t.Helper()
	tx := f.begin(t)
	execIn(t, tx, "SET LOCAL session_replication_role = replica")
	execIn(t, tx, sql+" WHERE partition_key = $1::smallint AND execution_id = $2", x.Partition(), x.UUID())
	commit(t, tx)
}

// What the triggers did not see: a claim passes an entry over that does not hold, and does not see an execution without
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
		{"blocked", []string{set + foreignBlock}, 2, 6, 6}, // taken out of the queue, and listed
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

// A second entry, under an earlier priority, neither leases an execution twice nor stands in the way of the others.
func TestClaim_of_an_execution_that_is_queued_twice(t *testing.T) {
	for name, arrange := range map[string]func(f *fixture, t *testing.T, x id.ExecutionID){
		"the fast path": func(*fixture, *testing.T, id.ExecutionID) {},
		"the slow path": func(f *fixture, t *testing.T, x id.ExecutionID) { f.seedAttempt(t, x, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			f := cloneFixture(t)
			x, other := f.create(t), f.create(t)
			arrange(f, t, x)
			f.exec(t, `INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
				SELECT lane_id, -9, created_at_ms, execution_id, partition_key, required_capabilities, kind FROM ffx_ready WHERE execution_id = $1`, x.UUID())
			if got, want := executionsOf(f.claimN(t, 10)), []id.ExecutionID{x, other}; !slices.Equal(got, want) {
				t.Errorf("claimed %v, want %v", got, want)
			}
			if repaired := f.repair(t, 10); repaired != 1 {
				t.Errorf("repaired %d, want the second entry swept", repaired)
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
	run(t, f.Maintenance().RepairQueue, 1)
	e.want(t, f.lane)
}

func TestRepairQueue_refuses_bad_input(t *testing.T) {
	f := newFixture(t)
	for _, n := range []int{-1, 0, engine.MaxSweep + 1} {
		repaired, err := f.Maintenance().RepairQueue(t.Context(), n)
		wantInputError(t, err, "batch")
		if repaired != 0 {
			t.Errorf("%d: repaired %d", n, repaired)
		}
	}
}

// All handles of an engine go on where any of them stopped. One that fails stays there, and what a caller's transaction
// did not commit is found the next time round.
func TestRepairQueue_goes_on_where_it_stopped(t *testing.T) {
	f := cloneFixture(t)
	var executions []id.ExecutionID
	for range 3 {
		executions = append(executions, f.create(t))
	}
	slices.SortFunc(executions, id.ExecutionID.Compare)
	queued := func() (missing []id.ExecutionID) {
		for _, x := range executions {
			if len(texts(t, f.pool, fmt.Sprintf("SELECT 'row' FROM ffx_ready WHERE execution_id = '%s'", x.UUID()))) == 0 {
				missing = append(missing, x)
			}
		}
		return missing
	}
	for _, x := range executions {
		f.unseen(t, x, "DELETE FROM ffx_ready")
	}
	step := func(e *engine.Engine, want int) {
		t.Helper()
		if n, err := e.Maintenance().RepairQueue(t.Context(), 1); err != nil || n != want {
			t.Fatalf("repaired %d, %v; want %d", n, err, want)
		}
	}
	step(f.Engine, 1)
	tx := f.begin(t)
	step(f.WithTx(tx), 1)
	f.end(t, tx, false)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Maintenance().RepairQueue(stopped, 1); err == nil {
		t.Error("repaired without a context")
	}
	if got := queued(); !slices.Equal(got, executions[1:]) {
		t.Errorf("not queued are %v, want %v", got, executions[1:])
	}
	step(f.WithPool(f.pool), 1)
	if got := queued(); !slices.Equal(got, executions[1:2]) {
		t.Errorf("not queued are %v, want %v", got, executions[1:2])
	}
	step(f.Engine, 0) // behind the last
	step(f.Engine, 0) // queued
	step(f.Engine, 1)
}
