package upkeep

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// purge purges flows until nothing is due.
func purge(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	for {
		n, err := upkeep.Of(f.Engine).PurgeFlows(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if n < 100 {
			return
		}
	}
}

func wantFlow(t *testing.T, f *fixture.Fixture, flow id.FlowID, stored bool) {
	t.Helper()
	if n := len(fixture.Texts(t, f.Pool, "SELECT flow_id::text FROM ff_flow_core WHERE flow_id = $1", flow)); (n == 1) != stored {
		t.Errorf("flow %s: %d rows", flow, n)
	}
}

// A flow goes with its edges, groups and summary once its last member is gone.
func TestPurgeFlowsDeletesWholeFlows_F38(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	f.Retain(t)
	empty := counts(t, f.Fixture)
	flow := f.Draw(t, fixture.When{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c", "d")
	f.Succeed(t, flow, "a", "b", "d")
	f.Succeed(t, flow, "c")
	key := fixture.Columns{"partition_key": fixture.PartitionOf(flow), "flow_id": flow}
	f.Insert(t, "ff_flow_summary", key, fixture.Columns{"last_summary_update_at": int64(1), "public_flow_state": "completed"})
	f.Insert(t, "ff_cancel_dispatch_outbox", key, fixture.Columns{"downstream_eid": flow, "target_exec_id": flow, "reason": "r", "enqueued_at_ms": int64(1)})
	f.Advance(fixture.Week - time.Minute)
	f.Retain(t)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, true)
	if err := operator.SetLaneRetention(t.Context(), f.Fixture.Engine, f.Lane, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.Retain(t)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, true) // its members are gone, and it is young
	f.Exec(t, "DELETE FROM ffx_lane_retention")
	f.Advance(2 * time.Minute)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, false)
	f.Retain(t) // drops the timer of a flow deleted early
	trim(t, f.Fixture)
	if status := retentionStatus(t, f.Fixture); status.FlowsDeleted != 1 || status.Deleted != 4 {
		t.Errorf("%+v", status)
	}
	after := counts(t, f.Fixture)
	empty["ff_lane_registry"], empty["ffx_outbox_floor"], empty["ffx_lease_timer"] = "1", after["ffx_outbox_floor"], after["ffx_lease_timer"]
	fixture.WantEqual(t, "rows left", after, empty)
}

// Unfinished flows are kept.
func TestPurgeFlowsKeepsUnfinishedFlows_F38(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	f.Retain(t)
	never := f.Draw(t, nil)
	backlog, pending, running := f.Draw(t, nil, "a"), f.Draw(t, nil, "a"), f.Draw(t, nil, "a>b")
	f.Succeed(t, backlog, "a")
	f.Succeed(t, pending, "a")
	f.Succeed(t, running, "a")
	f.Insert(t, "ff_cancel_backlog", fixture.Columns{"partition_key": fixture.PartitionOf(backlog), "flow_id": backlog, "requested_at_ms": int64(1), "cancellation_policy": "cancel_all"}, nil)
	f.Insert(t, "ff_pending_cancel_groups", fixture.Columns{"partition_key": fixture.PartitionOf(pending), "flow_id": pending, "downstream_eid": pending, "enqueued_at_ms": int64(1)}, nil)
	cancelled := f.Draw(t, nil)
	f.Exec(t, "UPDATE ff_flow_core SET public_flow_state = 'cancelled', terminal_at_ms = $2 WHERE flow_id = $1", cancelled, f.Clock.Load())
	f.Advance(2 * fixture.Week)
	f.Retain(t)
	purge(t, f.Fixture)
	for _, flow := range []id.FlowID{never, running, backlog, pending} {
		wantFlow(t, f.Fixture, flow, true)
	}
	wantFlow(t, f.Fixture, cancelled, false) // met by the sweep: no member of it ever went
	f.Exec(t, "DELETE FROM ff_cancel_backlog")
	f.Exec(t, "DELETE FROM ff_pending_cancel_groups")
	f.Succeed(t, running, "b")
	f.Advance(2 * fixture.Week)
	f.Retain(t)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, never, true)
	for _, flow := range []id.FlowID{running, backlog, pending} {
		wantFlow(t, f.Fixture, flow, false)
	}
}

// A locked flow is skipped, in either form of the lock; the others go.
func TestPurgeFlowsNeverWaits(t *testing.T) {
	for name, lock := range map[string]string{
		"lock": "SELECT pg_advisory_xact_lock(ffx_flow_key($1))",
		"row":  "SELECT FROM ff_flow_core WHERE flow_id = $1 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			held, free := f.Draw(t, nil, "a"), f.Draw(t, nil, "a")
			f.Succeed(t, held, "a")
			f.Succeed(t, free, "a")
			f.Advance(2 * fixture.Week)
			f.Retain(t)
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, lock, held)
			purge(t, f.Fixture)
			wantFlow(t, f.Fixture, held, true)
			wantFlow(t, f.Fixture, free, false)
			fixture.Commit(t, tx)
			f.Advance(2 * time.Minute)
			purge(t, f.Fixture)
			wantFlow(t, f.Fixture, held, false)
		})
	}
}

func TestPurgeFlowsInATransaction(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a")
	f.Succeed(t, flow, "a")
	f.Advance(2 * fixture.Week)
	f.Retain(t)
	for _, end := range []string{"rollback", "commit"} {
		tx := f.BeginTx(t)
		bound := f.WithTx(tx)
		if _, err := upkeep.Of(bound).PurgeFlows(t.Context(), 0); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Fatal(err)
		}
		if n, err := upkeep.Of(bound).PurgeFlows(t.Context(), 100); n != 1 || err != nil {
			t.Fatalf("purged %d, error %v", n, err)
		}
		fixture.ExecIn(t, tx, end)
		wantFlow(t, f.Fixture, flow, end == "rollback")
	}
}

// Growth that waits for the lock of a flow that is being deleted finds it gone.
func TestPurgeFlowsRacesGrowth(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a")
	f.Succeed(t, flow, "a")
	f.Advance(2 * fixture.Week)
	f.Retain(t)
	tx := f.BeginTx(t)
	if n, err := upkeep.Of(f.WithTx(tx)).PurgeFlows(t.Context(), 100); n != 1 || err != nil {
		t.Fatalf("purged %d, error %v", n, err)
	}
	r := f.Rival(t)
	done := asyncCreate(t, r, engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Flow: &flow})
	r.AwaitBlocked(t, f.Fixture)
	fixture.Commit(t, tx)
	if err := done(); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("error %v, want not found", err)
	}
}

func asyncCreate(t *testing.T, r *fixture.Rival, spec engine.ExecutionSpec) func() error {
	t.Helper()
	return fixture.Async(t, func(ctx context.Context) error {
		_, err := r.CreateExecution(ctx, spec)
		return err
	})
}
