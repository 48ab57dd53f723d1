package signals

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// waitOf returns the wait that the description of an execution has.
func waitOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID) *engine.OpenWait {
	t.Helper()
	snapshot, err := f.DescribeExecution(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Wait
}

// The description of a suspended execution, the list of waits and the view say the same about its wait.
func TestWaitIsShown(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	if w := waitOf(t, f, l.Execution); w != nil {
		t.Errorf("while it runs: %+v", w)
	}
	f.Signal(t, l, "noted") // for no wait of this test
	f.Signal(t, l, "approved")
	suspended := f.SuspendAgain(t, l, engine.AtLeast(3, engine.DistinctSignals, "approved"), func(s *engine.SuspendSpec) {
		s.Asked, s.Reason, s.OnTimeout = "Publish?", state.WaitingForApproval, engine.FailOnTimeout
	})
	f.Signal(t, l, "approved")
	want := engine.OpenWait{
		Execution: l.Execution, Suspension: suspended.ID, Kind: "test", Namespace: "default", Lane: l.Lane,
		Since: fixture.Start.UTC(), Until: fixture.Start.UTC().Add(time.Hour), OnTimeout: engine.FailOnTimeout, Reason: state.WaitingForApproval, Condition: `3 of distinct signals "approved"`,
		Names: []string{"approved"}, Asked: "Publish?", Received: 2,
	}
	wantSameWait(t, waitOf(t, f, l.Execution), &want)
	page, err := f.ListWaits(t.Context(), engine.WaitFilter{}, "", 0)
	if err != nil || len(page.Items) != 1 {
		t.Fatal(page, err)
	}
	wantSameWait(t, &page.Items[0], &want)
	row := fixture.One[db.FfxWait](t, f.Pool, "SELECT * FROM ffx_wait")
	if row.ID != l.Execution.String() || row.SuspensionID != suspended.ID || !row.Since.Equal(want.Since) || !row.Until.Equal(want.Until) ||
		*row.OnTimeout != "fail" || *row.Reason != "waiting_for_approval" || !slices.Equal(row.Signals, want.Names) || *row.Asked != want.Asked ||
		row.Kind != "test" || row.LaneID != string(l.Lane) {
		t.Errorf("the view has %+v", row)
	}

	// The signals of one wait are not counted for the next one.
	if got := f.Signal(t, l, "approved"); got != "satisfied" {
		t.Fatal(got)
	}
	if w := waitOf(t, f, l.Execution); w != nil {
		t.Errorf("after the wait: %+v", w)
	}
	f.Advance(time.Minute)
	again := f.ClaimOne(t)
	f.SuspendAgain(t, again.Lease, engine.AtLeast(2, engine.DistinctSources, "approved"), func(s *engine.SuspendSpec) { s.Timeout = 0 })
	if w := waitOf(t, f, l.Execution); w == nil || w.Received != 0 || !w.Until.IsZero() || w.OnTimeout != "" || !w.Since.Equal(fixture.Start.Add(time.Minute)) {
		t.Errorf("the next wait: %+v", w)
	}
	if n := len(fixture.All[db.FfxWait](t, f.Pool, "SELECT * FROM ffx_wait")); n != 1 {
		t.Errorf("the view has %d waits", n)
	}
}

func wantSameWait(t *testing.T, got, want *engine.OpenWait) {
	t.Helper()
	if got == nil {
		t.Error("no wait")
		return
	}
	shown := *got
	shown.Since, shown.Until = shown.Since.UTC(), shown.Until.UTC()
	if !reflect.DeepEqual(shown, *want) {
		t.Errorf("%+v, want %+v", shown, *want)
	}
}

// A condition that can't be read leaves the rest of a description alone, and a list names its column.
func TestWaitWithAnUnreadableCondition(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, ready)
	f.Exec(t, `UPDATE ff_suspension_current SET condition = '"Never"', member_map = '[]'`)
	if w := waitOf(t, f, l.Execution); w == nil || w.Condition != "" || w.Until.IsZero() {
		t.Errorf("%+v", w)
	}
	_, err := f.ListWaits(t.Context(), engine.WaitFilter{}, "", 0)
	if !errors.Is(err, fferr.ErrCorruption) || !strings.Contains(err.Error(), "ff_suspension_current.condition") {
		t.Error(err)
	}
}
