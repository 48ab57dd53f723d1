package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// purge purges flows until nothing is due.
func (f *fixture) purge(t *testing.T) {
	t.Helper()
	for {
		n, err := f.Maintenance().PurgeFlows(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if n < 100 {
			return
		}
	}
}

func (f *fixture) wantFlow(t *testing.T, flow id.FlowID, stored bool) {
	t.Helper()
	if n := len(texts(t, f.pool, "SELECT flow_id::text FROM ff_flow_core WHERE flow_id = $1", flow)); (n == 1) != stored {
		t.Errorf("flow %s: %d rows", flow, n)
	}
}

// A flow goes with its edges, groups and summary once its last member is gone.
func TestF38_flows_are_purged(t *testing.T) {
	f := flowsOn(trimmingFixture(t))
	f.retain(t)
	empty := f.counts(t)
	flow := f.draw(t, when{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c", "d")
	f.succeed(t, flow, "a", "b", "d")
	f.succeed(t, flow, "c")
	key := columns{"partition_key": partitionOf(flow), "flow_id": flow}
	f.insert(t, "ff_flow_summary", key, columns{"last_summary_update_at": int64(1), "public_flow_state": "completed"})
	f.insert(t, "ff_cancel_dispatch_outbox", key, columns{"downstream_eid": flow, "target_exec_id": flow, "reason": "r", "enqueued_at_ms": int64(1)})
	f.advance(week - time.Minute)
	f.retain(t)
	f.purge(t)
	f.wantFlow(t, flow, true)
	if err := f.Operator().SetLaneRetention(t.Context(), f.lane, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.retain(t)
	f.purge(t)
	f.wantFlow(t, flow, true) // its members are gone, and it is young
	f.exec(t, "DELETE FROM ffx_lane_retention")
	f.advance(2 * time.Minute)
	f.purge(t)
	f.wantFlow(t, flow, false)
	f.retain(t) // forgets the timer of what went before its time
	f.trim(t)
	if status := f.status(t); status.FlowsDeleted != 1 || status.Deleted != 4 {
		t.Errorf("%+v", status)
	}
	after := f.counts(t)
	empty["ff_lane_registry"], empty["ffx_outbox_floor"], empty["ffx_lease_timer"] = "1", after["ffx_outbox_floor"], after["ffx_lease_timer"]
	wantEqual(t, "rows left", after, empty)
}

// What is not over is kept.
func TestF38_flows_that_are_not_over_are_kept(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	f.retain(t)
	never := f.draw(t, nil)
	backlog, pending, running := f.draw(t, nil, "a"), f.draw(t, nil, "a"), f.draw(t, nil, "a>b")
	f.succeed(t, backlog, "a")
	f.succeed(t, pending, "a")
	f.succeed(t, running, "a")
	f.insert(t, "ff_cancel_backlog", columns{"partition_key": partitionOf(backlog), "flow_id": backlog, "requested_at_ms": int64(1), "cancellation_policy": "cancel_all"}, nil)
	f.insert(t, "ff_pending_cancel_groups", columns{"partition_key": partitionOf(pending), "flow_id": pending, "downstream_eid": pending, "enqueued_at_ms": int64(1)}, nil)
	cancelled := f.draw(t, nil)
	f.exec(t, "UPDATE ff_flow_core SET public_flow_state = 'cancelled', terminal_at_ms = $2 WHERE flow_id = $1", cancelled, f.clock.Load())
	f.advance(2 * week)
	f.retain(t)
	f.purge(t)
	for _, flow := range []id.FlowID{never, running, backlog, pending} {
		f.wantFlow(t, flow, true)
	}
	f.wantFlow(t, cancelled, false) // met by the sweep: no member of it ever went
	f.exec(t, "DELETE FROM ff_cancel_backlog")
	f.exec(t, "DELETE FROM ff_pending_cancel_groups")
	f.succeed(t, running, "b")
	f.advance(2 * week)
	f.retain(t)
	f.purge(t)
	f.wantFlow(t, never, true)
	for _, flow := range []id.FlowID{running, backlog, pending} {
		f.wantFlow(t, flow, false)
	}
}

// A flow that somebody has locked is passed over, in either form of the lock; the others go.
func TestPurgeFlows_waits_for_nobody(t *testing.T) {
	for name, lock := range map[string]string{
		"lock": "SELECT pg_advisory_xact_lock(ffx_flow_key($1))",
		"row":  "SELECT FROM ff_flow_core WHERE flow_id = $1 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			held, free := f.draw(t, nil, "a"), f.draw(t, nil, "a")
			f.succeed(t, held, "a")
			f.succeed(t, free, "a")
			f.advance(2 * week)
			f.retain(t)
			tx := f.begin(t)
			execIn(t, tx, lock, held)
			f.purge(t)
			f.wantFlow(t, held, true)
			f.wantFlow(t, free, false)
			commit(t, tx)
			f.advance(2 * time.Minute)
			f.purge(t)
			f.wantFlow(t, held, false)
		})
	}
}

func TestPurgeFlows_in_a_transaction(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a")
	f.succeed(t, flow, "a")
	f.advance(2 * week)
	f.retain(t)
	for _, end := range []string{"rollback", "commit"} {
		tx := f.begin(t)
		bound := f.WithTx(tx)
		if _, err := bound.Maintenance().PurgeFlows(t.Context(), 0); !errors.Is(err, engine.ErrInvalidInput) {
			t.Fatal(err)
		}
		if n, err := bound.Maintenance().PurgeFlows(t.Context(), 100); n != 1 || err != nil {
			t.Fatalf("purged %d, error %v", n, err)
		}
		execIn(t, tx, end)
		f.wantFlow(t, flow, end == "rollback")
	}
}

// Growth that waits for the lock of a flow that is being deleted finds it gone.
func TestPurgeFlows_against_growth(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a")
	f.succeed(t, flow, "a")
	f.advance(2 * week)
	f.retain(t)
	tx := f.begin(t)
	if n, err := f.WithTx(tx).Maintenance().PurgeFlows(t.Context(), 100); n != 1 || err != nil {
		t.Fatalf("purged %d, error %v", n, err)
	}
	r := f.rival(t)
	done := asyncCreate(t, r, engine.ExecutionSpec{Kind: "test", Lane: f.lane, Flow: &flow})
	r.awaitBlocked(t, f.fixture)
	commit(t, tx)
	if err := done(); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("error %v, want not found", err)
	}
}

func asyncCreate(t *testing.T, r *rival, spec engine.ExecutionSpec) func() error {
	t.Helper()
	return async(t, func(ctx context.Context) error {
		_, err := r.CreateExecution(ctx, spec)
		return err
	})
}
