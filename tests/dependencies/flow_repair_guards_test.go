package dependencies

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A call of RepairGroups ends with a group of very many edges, and the next one goes on behind it, though a transaction
// holds that group's flow.
func TestRepairGroupsContinuesBehindALargeHeldGroup(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	large, other := f.Draw(t, nil, "a>b"), f.Draw(t, nil, "a>b")
	for fixture.PartitionOf(large) >= fixture.PartitionOf(other) { // so that the large one comes first
		large, other = other, f.Draw(t, nil, "a>b")
	}
	f.SetGroup(t, large, "b", "running_count = 60000") // a repair counts one
	f.EndElsewhere(t, other, "a", "success", time.Minute)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", large)
	for call, want := range []int{0, 1} {
		if n, err := upkeep.Of(f.Engine).RepairGroups(t.Context(), 100); err != nil || n != want {
			t.Errorf("call %d repaired %d groups, %v; want %d", call, n, err, want)
		}
	}
	f.WantState(t, f.NodeID(other, "b"), fixture.StateReady)
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
	f.WantGroup(t, large, "b", fixture.StoredGroup{Running: 1, KTarget: 1})
}
