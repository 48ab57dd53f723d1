package claims

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Without triggers there are stale entries, which a claim skips, and executions without an entry, which it does not
// see. The repair, in pages of any size, fixes both.
func TestRepairQueueFixesRowsMissedByTriggers(t *testing.T) {
	const set = "UPDATE ff_exec_core SET "
	for _, c := range []struct {
		name     string
		unseen   []string // one event for each of seven executions
		repaired int
		before   int // claimed before the repair; -1: by the old place or not at all
		after    int // claimed after it
	}{
		{"nothing", nil, 0, 7, 7},
		{"missing", []string{"DELETE FROM ffx_ready"}, 1, 6, 7},
		{"all missing", slices.Repeat([]string{"DELETE FROM ffx_ready"}, 7), 7, 0, 7},
		{"cancelled", []string{set + fixture.ForeignCancel}, 1, 6, 6},
		{"blocked", []string{set + foreignBlock}, 2, 6, 6}, // taken out of the queue, and listed
		{"gone", []string{"DELETE FROM ff_exec_core"}, 1, 6, 6},
		{"all gone", slices.Repeat([]string{"DELETE FROM ff_exec_core"}, 7), 7, 0, 0},
		{"with another priority", []string{set + "priority = 3"}, 2, -1, 7},
		{"with another age", []string{set + "created_at_ms = created_at_ms + 1"}, 2, -1, 7},
		{"on another lane", []string{set + "lane_id = lane_id || '-other'"}, 2, 6, 6},
		{"each of them", []string{"DELETE FROM ffx_ready", set + fixture.ForeignCancel, "DELETE FROM ff_exec_core", set + "priority = 3"}, 5, -1, 5},
	} {
		for _, page := range []int{1, 3, engine.MaxBatch} {
			t.Run(fmt.Sprintf("%s, %d a page", c.name, page), func(t *testing.T) {
				f := fixture.NewCloned(t)
				for i := range 7 {
					x := f.Create(t, func(spec *engine.ExecutionSpec) {
						spec.ID = id.NewExecutionID(id.LaneID(fmt.Sprint(i%3)), id.Partitions{})
					})
					if i < len(c.unseen) {
						f.Unseen(t, x, c.unseen[i])
					}
				}
				if got := wouldClaim(t, f); c.before >= 0 && got != c.before {
					t.Errorf("%d are claimed before the repair, want %d", got, c.before)
				}
				if repaired := f.Repair(t, page); repaired != c.repaired {
					t.Errorf("repaired %d, want %d", repaired, c.repaired)
				}
				f.WantQueue(t, t, "after the repair")
				if repaired := f.Repair(t, page); repaired != 0 {
					t.Errorf("repaired %d the second time", repaired)
				}
				if got := wouldClaim(t, f); got != c.after {
					t.Errorf("%d are claimed after the repair, want %d", got, c.after)
				}
			})
		}
	}
}

// wouldClaim returns how many executions of the fixture's lane a claim takes; it is rolled back.
func wouldClaim(t *testing.T, f *fixture.Fixture) int {
	t.Helper()
	tx := f.BeginTx(t)
	claimed, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return len(claimed)
}

// A second entry, under an earlier priority, neither leases an execution twice nor stands in the way of the others.
func TestClaimLeasesATwiceQueuedExecutionOnce(t *testing.T) {
	for name, arrange := range map[string]func(f *fixture.Fixture, t *testing.T, x id.ExecutionID){
		"the fast path": func(*fixture.Fixture, *testing.T, id.ExecutionID) {},
		"the slow path": func(f *fixture.Fixture, t *testing.T, x id.ExecutionID) { f.SeedAttempt(t, x, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x, other := f.Create(t), f.Create(t)
			arrange(f, t, x)
			f.Exec(t, `INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
				SELECT lane_id, -9, created_at_ms, execution_id, partition_key, required_capabilities, kind FROM ffx_ready WHERE execution_id = $1`, x.UUID())
			if got, want := fixture.ExecutionsOf(f.ClaimN(t, 10)), []id.ExecutionID{x, other}; !slices.Equal(got, want) {
				t.Errorf("claimed %v, want %v", got, want)
			}
			if repaired := f.Repair(t, 10); repaired != 1 {
				t.Errorf("repaired %d, want the second entry swept", repaired)
			}
			f.WantQueue(t, t, name)
		})
	}
}

func TestRepairQueueWakesForTheWorkItFound(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t)
	e := f.Rival(t).ListenTo(t, f.Lane)
	f.Unseen(t, x, "DELETE FROM ffx_ready")
	fixture.Run(t, upkeep.Of(f.Engine).RepairQueue, 1)
	e.Want(t, f.Lane)
}

func TestRepairQueueRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	for _, n := range []int{-1, 0, core.MaxSweep + 1} {
		repaired, err := upkeep.Of(f.Engine).RepairQueue(t.Context(), n)
		fixture.WantInputError(t, err, "batch")
		if repaired != 0 {
			t.Errorf("%d: repaired %d", n, repaired)
		}
	}
}

// All handles of an engine continue where any of them stopped. One that fails stays there, and uncommitted repairs of
// a caller's transaction are repeated in the next round.
func TestRepairQueueContinuesWhereItStopped(t *testing.T) {
	f := fixture.NewCloned(t)
	var executions []id.ExecutionID
	for range 3 {
		executions = append(executions, f.Create(t))
	}
	slices.SortFunc(executions, id.ExecutionID.Compare)
	queued := func() (missing []id.ExecutionID) {
		for _, x := range executions {
			if len(fixture.Texts(t, f.Pool, fmt.Sprintf("SELECT 'row' FROM ffx_ready WHERE execution_id = '%s'", x.UUID()))) == 0 {
				missing = append(missing, x)
			}
		}
		return missing
	}
	for _, x := range executions {
		f.Unseen(t, x, "DELETE FROM ffx_ready")
	}
	step := func(e *engine.Engine, want int) {
		t.Helper()
		if n, err := upkeep.Of(e).RepairQueue(t.Context(), 1); err != nil || n != want {
			t.Fatalf("repaired %d, %v; want %d", n, err, want)
		}
	}
	step(f.Engine, 1)
	tx := f.BeginTx(t)
	step(f.WithTx(tx), 1)
	f.End(t, tx, false)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := upkeep.Of(f.Engine).RepairQueue(stopped, 1); err == nil {
		t.Error("repaired without a context")
	}
	if got := queued(); !slices.Equal(got, executions[1:]) {
		t.Errorf("not queued are %v, want %v", got, executions[1:])
	}
	step(f.WithPool(f.Pool), 1)
	if got := queued(); !slices.Equal(got, executions[1:2]) {
		t.Errorf("not queued are %v, want %v", got, executions[1:2])
	}
	step(f.Engine, 0) // behind the last
	step(f.Engine, 0) // queued
	step(f.Engine, 1)
}
