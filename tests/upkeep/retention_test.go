package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// counts are how many rows each table has.
func counts(t *testing.T, f *fixture.Fixture) map[string]string {
	t.Helper()
	counts := make(map[string]string)
	for _, table := range f.Tables(t) {
		counts[table] = fixture.Texts(t, f.Pool, "SELECT count(*)::text FROM "+table)[0]
	}
	return counts
}

// A life, with a row of every kind, leaves nothing behind in any table once it is over.
func TestRetentionEmptiesEveryTable_E33(t *testing.T) {
	for _, phase := range []string{"terminal", "cancelled"} {
		t.Run(phase, func(t *testing.T) {
			f := trimmingFixture(t)
			eng := f.EngineOn(t, f.Pool, engine.Config{Retention: time.Minute, OutboxRetention: time.Minute})
			if _, err := upkeep.Of(eng).Retain(t.Context(), 100); err != nil { // makes the rows of its sources
				t.Fatal(err)
			}
			bystander := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Lane += "-bystander" })
			before := counts(t, f)
			one := f.Ended(t)
			f.SetExecution(t, one, fmt.Sprintf("lifecycle_phase = '%s'", phase))
			seedChildren(t, f, one)
			seedChildrenOf(t, f, bystander)
			seeded := counts(t, f)
			for _, table := range []string{
				"ff_attempt", "ff_claim_grant", "ff_stream_frame", "ff_stream_meta", "ff_stream_summary", "ff_suspension_current",
				"ff_waitpoint_pending", "ff_budget_usage_by_exec", "ff_operator_event", "ff_signal_event", "ff_lease_event",
			} {
				if seeded[table] == before[table] {
					t.Errorf("%s has no row", table)
				}
			}
			f.Advance(2 * time.Minute)
			if n, err := upkeep.Of(eng).Retain(t.Context(), 100); n != 1 || err != nil {
				t.Fatalf("looked at %d, error %v", n, err)
			}
			f.WantKept(t, "gone kept", one, bystander)
			if _, err := upkeep.Of(eng).TrimOutboxes(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
			after := counts(t, f)
			left := maps.Clone(seeded)
			for table := range left {
				left[table] = before[table]
			}
			// The bystander has its children; deletions raise the floors.
			for table, n := range map[string]string{
				"ff_lane_registry": "2", "ff_claim_grant": "1", "ff_stream_frame": "1", "ff_stream_meta": "1", "ff_stream_summary": "1",
				"ff_suspension_current": "1", "ff_waitpoint_pending": "1", "ff_budget_usage_by_exec": "1",
				"ffx_lease_timer": seeded["ffx_lease_timer"], "ffx_outbox_floor": "4",
			} {
				left[table] = n
			}
			fixture.WantEqual(t, "rows left", after, left)
		})
	}
}

// seedChildren writes a row of every kind that names the execution, in the id form of each table, events among them.
func seedChildren(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
	t.Helper()
	seedChildrenOf(t, f, x)
	bare := x.UUID().String()
	at := f.Clock.Load()
	f.Insert(t, "ff_operator_event", fixture.Columns{"execution_id": bare, "event_type": "replayed", "occurred_at_ms": at, "partition_key": int32(x.Partition())}, nil)
	for _, form := range []string{bare, x.String()} {
		f.Insert(t, "ff_signal_event", fixture.Columns{"execution_id": form, "signal_id": "s", "delivered_at_ms": at, "partition_key": int32(x.Partition())}, nil)
	}
}

// seedChildrenOf is seedChildren without events.
func seedChildrenOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
	t.Helper()
	at := f.Clock.Load()
	key := fixture.Columns{"partition_key": x.Partition(), "execution_id": x.UUID()}
	attempt := fixture.Columns{"partition_key": x.Partition(), "execution_id": x.UUID(), "attempt_index": int32(0)}
	f.Insert(t, "ff_claim_grant", key, fixture.Columns{"grant_id": x.UUID().String()[:16], "kind": "claim", "worker_id": "w", "worker_instance_id": "w", "grant_ttl_ms": int64(1), "issued_at_ms": at, "expires_at_ms": at})
	f.Insert(t, "ff_stream_frame", attempt, fixture.Columns{"ts_ms": at, "seq": int32(0), "fields": "{}", "mode": "durable", "created_at_ms": at})
	f.Insert(t, "ff_stream_meta", attempt, nil)
	f.Insert(t, "ff_stream_summary", attempt, fixture.Columns{"document_json": "{}", "last_updated_ms": at, "first_applied_ms": at})
	f.Insert(t, "ff_suspension_current", key, fixture.Columns{"suspension_id": x.UUID(), "suspended_at_ms": at, "condition": `"OperatorOnly"`})
	f.Insert(t, "ff_waitpoint_pending", key, fixture.Columns{"waitpoint_id": x.UUID(), "token_kid": "k", "token": "k:00", "created_at_ms": at})
	// In the partition of the budget, not of the execution.
	f.Insert(t, "ff_budget_usage_by_exec", fixture.Columns{"partition_key": (x.Partition() + 1) % 32, "execution_id": x.UUID()}, fixture.Columns{"budget_id": "b", "dimensions_key": "d", "updated_at_ms": at})
}

// drawPruned draws a flow whose members go before it, which stays for ever.
func drawPruned(t *testing.T, f *fixture.Flows, after time.Duration, parts ...string) id.FlowID {
	t.Helper()
	spec := fixture.Chart(nil, parts...)
	spec.PruneMembersAfter, spec.Retention = after, policy.KeepForever
	return f.NewFlowOf(t, spec)
}

// Needed rows are kept, and deleted once they are not needed.
func TestRetentionKeepsNeededRows_E33(t *testing.T) {
	for _, c := range []struct {
		name  string
		need  func(*testing.T, *fixture.Flows, id.FlowID)
		leave func(*testing.T, *fixture.Flows, id.FlowID)
	}{
		{
			"by a dependent that has not ended",
			func(t *testing.T, f *fixture.Flows, flow id.FlowID) {},
			func(t *testing.T, f *fixture.Flows, flow id.FlowID) { f.Succeed(t, flow, "b") },
		},
		{
			"for an event that is not dispatched",
			func(t *testing.T, f *fixture.Flows, flow id.FlowID) {
				f.Succeed(t, flow, "b")
				f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = NULL WHERE execution_id = $1", f.NodeID(flow, "a").UUID())
			},
			func(t *testing.T, f *fixture.Flows, flow id.FlowID) {
				f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = 1 WHERE dispatched_at_ms IS NULL")
			},
		},
		{
			"by the backlog of a cancelled flow",
			func(t *testing.T, f *fixture.Flows, flow id.FlowID) {
				f.Succeed(t, flow, "b")
				f.Insert(t, "ff_cancel_backlog_member", fixture.Columns{"partition_key": fixture.PartitionOf(flow), "flow_id": flow, "execution_id": f.NodeID(flow, "a").String()}, nil)
			},
			func(t *testing.T, f *fixture.Flows, flow id.FlowID) {
				f.Exec(t, "DELETE FROM ff_cancel_backlog_member")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.FlowsOn(trimmingFixture(t))
			flow := drawPruned(t, f, fixture.Week, "a>b")
			f.Succeed(t, flow, "a")
			a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
			c.need(t, f, flow)
			f.Advance(fixture.Week)
			f.Retain(t)
			if got := f.Kept(t, f.Pool, a); got != "kept" {
				t.Fatalf("the upstream is %s", got)
			}
			f.Retain(t) // not due yet
			if n := retentionStatus(t, f.Fixture).Waiting; n == 0 {
				t.Error("nothing waits to be looked at again")
			}
			c.leave(t, f, flow)
			f.Retain(t)
			f.WantKept(t, "kept", a)
			f.Advance(fixture.Day)
			f.Retain(t)
			f.WantKept(t, "gone", a)
			f.Advance(fixture.Week)
			f.Retain(t)
			f.WantKept(t, "gone gone", a, b)
		})
	}
}

func retentionStatus(t *testing.T, f *fixture.Fixture) operator.RetentionStatus {
	t.Helper()
	status, err := operator.Retention(t.Context(), f.Engine)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// The backlog names executions in full, and a bare id in it matches none.
func TestRetentionReadsFullIDsOfTheBacklog_I42(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	flow := drawPruned(t, f, fixture.Week, "a", "b")
	f.Succeed(t, flow, "a", "b")
	a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
	member := fixture.Columns{"partition_key": fixture.PartitionOf(flow), "flow_id": flow}
	f.Insert(t, "ff_cancel_backlog_member", member, fixture.Columns{"execution_id": a.String()})
	f.Insert(t, "ff_cancel_backlog_member", member, fixture.Columns{"execution_id": b.UUID().String()})
	f.Advance(fixture.Week)
	f.Retain(t)
	f.WantKept(t, "kept gone", a, b)
}

// An execution that is replayed during retention is kept, in either order.
func TestRetentionRacesAReplay_E33(t *testing.T) {
	replayed := `lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_replay_attempt', terminal_at_ms = NULL`
	t.Run("which came first", func(t *testing.T) {
		f := trimmingFixture(t)
		x := f.Ended(t)
		f.Advance(fixture.Week)
		tx := f.BeginTx(t)
		fixture.ExecIn(t, tx, fixture.UpdateExecution(replayed), x.Partition(), x.UUID())
		f.Retain(t)
		fixture.Commit(t, tx)
		f.WantKept(t, "kept", x)
		f.Advance(fixture.Day)
		f.Retain(t)
		f.WantKept(t, "kept", x)
		if status := retentionStatus(t, f); status.Waiting != 0 || status.Deleted != 0 {
			t.Errorf("%+v", status)
		}
	})
	t.Run("which came between its looking and its locking", func(t *testing.T) {
		f := trimmingFixture(t)
		x := f.Ended(t)
		f.Retain(t)
		f.Advance(fixture.Week)
		f.Exec(t, "UPDATE ffx_retention SET event_id = 0")
		r := f.StoppedBefore(t, "TakeEnded")
		done := fixture.Async(t, func(ctx context.Context) error { _, err := upkeep.Of(r.Engine).Retain(ctx, 10); return err })
		r.AwaitStop(t)
		f.SetExecution(t, x, replayed)
		r.Resume()
		if err := done(); err != nil {
			t.Fatal(err)
		}
		f.WantKept(t, "kept", x)
	})
	t.Run("which cannot come between its locking and its deleting", func(t *testing.T) {
		f := trimmingFixture(t)
		x := f.Ended(t)
		f.Advance(fixture.Week)
		r := f.StoppedBefore(t, "DropAttemptsOf")
		done := fixture.Async(t, func(ctx context.Context) error { _, err := upkeep.Of(r.Engine).Retain(ctx, 10); return err })
		r.AwaitStop(t)
		if free := fixture.Texts(t, f.Pool, "SELECT 'free' FROM ff_exec_core WHERE execution_id = $1 FOR NO KEY UPDATE SKIP LOCKED", x.UUID()); len(free) != 0 {
			t.Error("the execution is not locked")
		}
		r.Resume()
		if err := done(); err != nil {
			t.Fatal(err)
		}
		f.WantKept(t, "gone", x)
	})
	t.Run("which came last", func(t *testing.T) {
		f := trimmingFixture(t)
		x := f.Ended(t)
		f.Advance(fixture.Week)
		tx := f.BeginTx(t)
		if n, err := upkeep.Of(f.WithTx(tx)).Retain(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("looked at %d, error %v", n, err)
		}
		r := f.Rival(t)
		done := fixture.Async(t, func(ctx context.Context) int64 {
			tag, err := r.Pool.Exec(ctx, fixture.UpdateExecution(replayed), x.Partition(), x.UUID())
			if err != nil {
				t.Error(err)
			}
			return tag.RowsAffected()
		})
		r.AwaitBlocked(t, f)
		fixture.Commit(t, tx)
		if n := done(); n != 0 {
			t.Errorf("%d rows were run again", n)
		}
		f.WantKept(t, "gone", x)
		if n := len(f.StoredAttempts(t, x)); n != 0 {
			t.Errorf("%d attempts are left", n)
		}
	})
}

// How long an execution is kept: its policy, its lane, the engine.
func TestRetentionPeriods(t *testing.T) {
	f := trimmingFixture(t)
	byDefault := f.Ended(t)
	long := f.Ended(t, fixture.KeepFor(30*fixture.Day))
	short := f.Ended(t, fixture.KeepFor(time.Hour))
	ever := f.Ended(t, fixture.KeepFor(policy.KeepForever))
	all := []id.ExecutionID{byDefault, long, short, ever}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{
		{time.Hour - 1, "kept kept kept kept"},
		{time.Hour + 10*time.Minute, "kept kept gone kept"},
		{fixture.Week - time.Minute, "kept kept gone kept"},
		{fixture.Week + time.Minute, "gone kept gone kept"},
		{30*fixture.Day - time.Minute, "gone kept gone kept"},
		{30*fixture.Day + time.Minute, "gone gone gone kept"},
		{10 * 365 * fixture.Day, "gone gone gone kept"},
	} {
		f.Clock.Store(fixture.Start.Add(step.at).UnixMilli())
		f.Retain(t)
		if got := f.Kept(t, f.Pool, all...); got != step.want {
			t.Errorf("after %v: %s, want %s", step.at, got, step.want)
		}
	}
	if status := retentionStatus(t, f); status.Deleted != 3 || status.Waiting != 0 || status.LookAfter > 2*time.Hour || status.LookAfter < time.Hour {
		t.Errorf("%+v", status)
	}
}

// Readers of a document find the stored retention of a policy, and few periods are registered.
func TestRetentionRegistersPolicyPeriods(t *testing.T) {
	f := trimmingFixture(t)
	periods := func() []string {
		return fixture.Texts(t, f.Pool, "SELECT p.period_ms::text FROM ffx_retention_period AS p ORDER BY p.period_ms DESC")
	}
	x := f.Create(t, fixture.KeepFor(policy.KeepForever))
	if got := periods(); len(got) != 0 {
		t.Errorf("for ever: %q", got)
	}
	if got := *f.Stored(t, x).Policy; !strings.Contains(got, `"ffx_retention_ms": -1`) {
		t.Errorf("stored %s", got)
	}
	f.Create(t, fixture.KeepFor(time.Hour))
	f.Create(t, fixture.KeepFor(59*time.Minute+59*time.Second))
	f.Create(t, fixture.KeepFor(2*time.Hour))
	if got := periods(); len(got) != 1 {
		t.Errorf("%q, want one", got)
	}
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Policy: &policy.Execution{Retention: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := periods(); len(got) != 1 {
		t.Errorf("after a rollback: %q, want one", got)
	}
	node := engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Policy: &policy.Execution{Retention: time.Minute}}
	if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: node}}}); err != nil {
		t.Fatal(err)
	}
	if got := periods(); len(got) != 2 || got[1] != "61440" {
		t.Errorf("%q, want the shorter one too", got)
	}
}

// A lane has a retention of its own, which also applies to earlier ends.
func TestSetLaneRetention(t *testing.T) {
	f := trimmingFixture(t)
	set := func(d time.Duration) {
		t.Helper()
		if err := operator.SetLaneRetention(t.Context(), f.Engine, f.Lane, d); err != nil {
			t.Fatal(err)
		}
	}
	x, mine := f.Ended(t), f.Ended(t, fixture.KeepFor(2*fixture.Day))
	f.Advance(time.Hour)
	f.Retain(t)
	set(time.Hour)
	f.Retain(t)
	f.WantKept(t, "gone kept", x, mine)
	if lanes := retentionStatus(t, f).Lanes; len(lanes) != 1 || lanes[0] != (operator.LaneRetention{Lane: f.Lane, Keep: time.Hour}) {
		t.Errorf("%+v", lanes)
	}
	set(policy.KeepForever)
	x = f.Ended(t)
	f.Advance(fixture.Week)
	f.Retain(t)
	f.WantKept(t, "kept gone", x, mine)
	set(0)
	f.Retain(t)
	f.WantKept(t, "gone", x)
	if lanes := retentionStatus(t, f).Lanes; len(lanes) != 0 {
		t.Errorf("%+v", lanes)
	}
	set(0)

	// In a caller's transaction it is that transaction's.
	x = f.Ended(t)
	f.Advance(time.Hour)
	tx := f.BeginTx(t)
	if err := operator.SetLaneRetention(t.Context(), f.WithTx(tx), f.Lane, time.Minute); err != nil {
		t.Fatal(err)
	}
	err := operator.SetLaneRetention(t.Context(), f.WithTx(tx), f.Lane, time.Second)
	fixture.WantInputError(t, err, "keep")
	if _, err := upkeep.Of(f.WithTx(tx)).Retain(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if got := f.Kept(t, tx, x); got != "gone" {
		t.Errorf("in the transaction: %s", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Retain(t)
	f.WantKept(t, "kept", x)
}

func TestRetentionRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	for name, j := range map[string]fixture.Job{"retain": upkeep.Of(f.Engine).Retain, "trim": upkeep.Of(f.Engine).TrimOutboxes, "purge": upkeep.Of(f.Engine).PurgeFlows} {
		for _, batch := range []int{-1, 0, engine.MaxBatch + 1} {
			if _, err := j(t.Context(), batch); err == nil {
				t.Errorf("%s: a batch of %d was not refused", name, batch)
			} else {
				fixture.WantInputError(t, err, "batch")
			}
		}
	}
	for _, d := range []time.Duration{-2, time.Minute - 1, 1} {
		fixture.WantInputError(t, operator.SetLaneRetention(t.Context(), f.Engine, f.Lane, d), "keep")
		_, err := engine.New(f.Pool, engine.Config{Retention: d})
		fixture.WantInputError(t, err, "Config.Retention")
		_, err = engine.New(f.Pool, engine.Config{OutboxRetention: d})
		fixture.WantInputError(t, err, "Config.OutboxRetention")
		_, err = f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Policy: &policy.Execution{Retention: d}})
		fixture.WantInputError(t, err, "Policy.Retention")
	}
	fixture.WantInputError(t, operator.SetLaneRetention(t.Context(), f.Engine, "", time.Hour), "lane")
}

// Locked rows are skipped, however long they are locked; the others go.
func TestRetentionNeverWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		hold func(*testing.T, *fixture.Fixture, pgx.Tx, id.ExecutionID)
	}{
		{"execution", func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, x id.ExecutionID) { fixture.LockExecution(t, tx, x) }},
		{"attempt", func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, x id.ExecutionID) { fixture.LockAttempt(t, tx, x, 0) }},
		{"waitpoint", func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, x id.ExecutionID) {
			seedChildrenOf(t, f, x)
			fixture.ExecIn(t, tx, "SELECT FROM ff_waitpoint_pending WHERE execution_id = $1 FOR UPDATE", x.UUID())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := trimmingFixture(t)
			var others []id.ExecutionID
			for range 5 {
				others = append(others, f.Ended(t))
			}
			x := f.Ended(t)
			for range 5 {
				others = append(others, f.Ended(t))
			}
			f.Advance(fixture.Week)
			tx := f.BeginTx(t)
			c.hold(t, f, tx, x)
			f.Retain(t)
			f.WantKept(t, "kept"+strings.Repeat(" gone", 10), append([]id.ExecutionID{x}, others...)...)
			if n := len(f.StoredAttempts(t, x)); n != 1 {
				t.Errorf("%d attempts are left of what is kept", n)
			}
			fixture.Commit(t, tx)
			f.Retain(t)
			f.WantKept(t, "kept", x)
			f.Advance(2 * time.Minute)
			f.Retain(t)
			f.WantKept(t, "gone", x)
			if status := retentionStatus(t, f); status.Deleted != 11 || status.Waiting != 0 {
				t.Errorf("%+v", status)
			}
		})
	}
}

// While a batch of retention is not committed, claims go on, and so does all other work.
func TestRetentionNeverBlocksClaims(t *testing.T) {
	f := trimmingFixture(t)
	for range 20 {
		f.Ended(t)
	}
	f.Advance(fixture.Week)
	tx := f.BeginTx(t)
	if n, err := upkeep.Of(f.WithTx(tx)).Retain(t.Context(), 100); n != 20 || err != nil {
		t.Fatalf("looked at %d, error %v", n, err)
	}
	x := f.Ended(t)
	fixture.Run(t, upkeep.Of(f.Engine).RepairQueue, 0)
	if n, err := upkeep.Of(f.Engine).Retain(t.Context(), 100); n != 0 || err != nil {
		t.Errorf("another process looked at %d, error %v", n, err)
	}
	fixture.Commit(t, tx)
	f.WantKept(t, "kept", x)
}

// One process works at a source at a time; the next goes on where it stopped.
func TestRetentionRunsInOneProcessPerSource(t *testing.T) {
	f := trimmingFixture(t)
	var all []id.ExecutionID
	for range 6 {
		all = append(all, f.Ended(t))
	}
	f.Advance(fixture.Week)
	tx := f.BeginTx(t)
	if n, err := upkeep.Of(f.WithTx(tx)).Retain(t.Context(), 2); n != 2 || err != nil {
		t.Fatalf("looked at %d, error %v", n, err)
	}
	r := f.Rival(t)
	if n, err := upkeep.Of(r.Engine).Retain(t.Context(), 2); n != 0 || err != nil {
		t.Fatalf("the other looked at %d, error %v", n, err)
	}
	fixture.Commit(t, tx)
	if n, err := upkeep.Of(r.Engine).Retain(t.Context(), 2); n != 2 || err != nil {
		t.Fatalf("the other looked at %d, error %v", n, err)
	}
	f.WantKept(t, "gone gone gone gone kept kept", all...)
	fixture.Run(t, upkeep.Of(f.Engine).Retain, 2)
	if status := retentionStatus(t, f); status.Deleted != 6 {
		t.Errorf("%d deleted, want 6", status.Deleted)
	}
}

// Without an event, or with one that was committed when others behind it had been looked at, the sweep finds it.
func TestRetentionSweepFindsMissedEnds(t *testing.T) {
	f := trimmingFixture(t)
	f.Retain(t)
	silent, late, young := f.Ended(t), f.Ended(t), f.Ended(t, fixture.KeepFor(30*fixture.Day))
	f.Exec(t, "DELETE FROM ff_completion_event WHERE execution_id = $1", silent.UUID())
	f.Advance(fixture.Week)
	f.Exec(t, "UPDATE ffx_retention SET event_id = (SELECT max(event_id) FROM ff_completion_event) WHERE source = 'ends'")
	fixture.Run(t, upkeep.Of(f.Engine).Retain, 0)
	fixture.Run(t, upkeep.Of(f.Engine).RepairQueue, 2)
	f.WantKept(t, "gone gone kept", silent, late, young)
	if status := retentionStatus(t, f); status.Deleted != 2 {
		t.Errorf("%d deleted, want 2", status.Deleted)
	}
	// An end by the reference.
	x := f.Seed(t, fixture.Columns{"lifecycle_phase": "terminal", "eligibility_state": "not_applicable", "public_state": "running", "terminal_at_ms": fixture.Start.UnixMilli()})
	if _, err := upkeep.Of(f.Engine).RepairQueue(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := upkeep.Of(f.Engine).RepairQueue(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	f.WantKept(t, "gone", x)
}

// Ends are examined by the time at which the database wrote them, in order: a younger one delays later ones.
func TestRetentionFollowsTheOrderOfEnds(t *testing.T) {
	f := trimmingFixture(t)
	a, b, c := f.Ended(t), f.Ended(t), f.Ended(t)
	f.Advance(fixture.Week)
	f.Exec(t, "UPDATE ff_completion_event SET committed_at_ms = $1 WHERE execution_id = $2", f.Clock.Load()-fixture.Week.Milliseconds()+1000, b.UUID())
	fixture.Run(t, upkeep.Of(f.Engine).Retain, 1)
	f.WantKept(t, "gone kept kept", a, b, c)
	status := retentionStatus(t, f)
	if status.Behind != 0 || !status.NextEnd.Equal(f.Time().Add(time.Second-fixture.Week)) {
		t.Errorf("%+v", status)
	}
	f.Advance(2 * time.Second)
	if status := retentionStatus(t, f); status.Behind != time.Second {
		t.Errorf("behind %v, want 1s", status.Behind)
	}
	fixture.Run(t, upkeep.Of(f.Engine).Retain, 2)
	f.WantKept(t, "gone gone gone", a, b, c)
	if status := retentionStatus(t, f); status.Behind != 0 || !status.NextEnd.IsZero() || status.Deleted != 3 {
		t.Errorf("%+v", status)
	}
	f.Advance(time.Minute)
	if status := retentionStatus(t, f); status.DeletedLately != 3 {
		t.Errorf("%d deleted in the last minute, want 3", status.DeletedLately)
	}
	f.Advance(time.Minute)
	if status := retentionStatus(t, f); status.DeletedLately != 0 {
		t.Errorf("%d deleted in the last minute, want 0", status.DeletedLately)
	}
}

// In a caller's transaction retention is that transaction's.
func TestRetentionInATransaction(t *testing.T) {
	f := trimmingFixture(t)
	x := f.Ended(t)
	f.Advance(fixture.Week)
	for _, end := range []string{"rollback", "commit"} {
		tx := f.BeginTx(t)
		fixture.ExecIn(t, tx, "SET LOCAL synchronous_commit = local") // whatever the server's is
		bound := f.WithTx(tx)
		if _, err := upkeep.Of(bound).Retain(t.Context(), 0); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Fatal(err)
		}
		if n, err := upkeep.Of(bound).Retain(t.Context(), 100); n != 1 || err != nil {
			t.Fatalf("looked at %d, error %v", n, err)
		}
		if got := f.Kept(t, tx, x); got != "gone" {
			t.Errorf("in the transaction: %s", got)
		}
		if got := fixture.Texts(t, tx, "SHOW synchronous_commit")[0]; got != "local" {
			t.Errorf("the caller's commit waits as %s says", got)
		}
		fixture.ExecIn(t, tx, end)
		f.WantKept(t, map[string]string{"rollback": "kept", "commit": "gone"}[end], x)
	}
}

// A timer stands for many.
func TestRetentionTimersAreShared(t *testing.T) {
	f := trimmingFixture(t)
	f.Create(t, fixture.KeepFor(time.Minute)) // ends are looked at soon
	if n := len(startAndEnd(t, f, 300)); n != 300 {
		t.Fatalf("%d ended", n)
	}
	f.Advance(2 * time.Minute)
	for {
		n, err := upkeep.Of(f.Engine).Retain(t.Context(), 300)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	type timers struct {
		N     int
		Items int
	}
	if got := fixture.One[timers](t, f.Pool, "SELECT count(*)::integer AS n, sum(items)::integer AS items FROM ffx_retention_timer"); got != (timers{1, 300}) {
		t.Errorf("%+v, want one timer for 300", got)
	}
	f.Exec(t, "DELETE FROM ff_completion_event")
	f.Advance(fixture.Week)
	f.Retain(t)
	if status := retentionStatus(t, f); status.Deleted != 300 || status.Waiting != 0 {
		t.Errorf("%+v", status)
	}
}

// startAndEnd completes n executions.
func startAndEnd(t *testing.T, f *fixture.Fixture, n int) []error {
	t.Helper()
	f.Exec(t, "UPDATE ff_exec_core SET eligibility_state = 'blocked_by_operator' WHERE eligibility_state = 'eligible_now'")
	var completions []engine.Completion
	for _, c := range f.StartMany(t, n) {
		completions = append(completions, engine.Completion{Lease: c.Lease})
	}
	outcomes, err := f.CompleteExecutions(t.Context(), completions)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}
