package tests

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
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// ended creates an execution and works it to its end.
func (f *fixture) ended(t *testing.T, change ...func(*engine.ExecutionSpec)) id.ExecutionID {
	t.Helper()
	claimed := f.start(t, change...)
	if err := f.CompleteExecution(t.Context(), claimed.Lease, []byte("out")); err != nil {
		t.Fatal(err)
	}
	return claimed.ID
}

// kept tells of each of the executions whether it is stored, as text.
func (f *fixture) kept(t *testing.T, on querier, executions ...id.ExecutionID) string {
	t.Helper()
	var kept []string
	for _, x := range executions {
		n := one[struct{ N int }](t, on, "SELECT count(*)::integer AS n FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID())
		kept = append(kept, map[bool]string{true: "kept", false: "gone"}[n.N > 0])
	}
	return strings.Join(kept, " ")
}

func (f *fixture) wantKept(t *testing.T, want string, executions ...id.ExecutionID) {
	t.Helper()
	if got := f.kept(t, f.pool, executions...); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// retain runs retention until nothing is due.
func (f *fixture) retain(t *testing.T) {
	t.Helper()
	for {
		n, err := f.Maintenance().Retain(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if n < 100 {
			return
		}
	}
}

func keepFor(d time.Duration) func(*engine.ExecutionSpec) {
	return func(spec *engine.ExecutionSpec) { spec.Policy = &policy.Execution{Retention: d} }
}

// counts are how many rows each table has.
func (f *fixture) counts(t *testing.T) map[string]string {
	t.Helper()
	counts := make(map[string]string)
	for _, table := range f.tables(t) {
		counts[table] = texts(t, f.pool, "SELECT count(*)::text FROM "+table)[0]
	}
	return counts
}

// A life, with a row of every kind, leaves nothing behind in any table once it is over.
func TestE33_retention_empties_every_table(t *testing.T) {
	for _, phase := range []string{"terminal", "cancelled"} {
		t.Run(phase, func(t *testing.T) {
			f := trimmingFixture(t)
			eng := f.engineOn(t, f.pool, engine.Config{Retention: time.Minute, OutboxRetention: time.Minute})
			if _, err := eng.Maintenance().Retain(t.Context(), 100); err != nil { // makes the rows of its sources
				t.Fatal(err)
			}
			bystander := f.create(t, func(spec *engine.ExecutionSpec) { spec.Lane += "-bystander" })
			before := f.counts(t)
			one := f.ended(t)
			f.setExecution(t, one, fmt.Sprintf("lifecycle_phase = '%s'", phase))
			f.seedChildren(t, one)
			f.seedChildrenOf(t, bystander)
			seeded := f.counts(t)
			for _, table := range []string{
				"ff_attempt", "ff_claim_grant", "ff_stream_frame", "ff_stream_meta", "ff_stream_summary", "ff_suspension_current",
				"ff_waitpoint_pending", "ff_budget_usage_by_exec", "ff_operator_event", "ff_signal_event", "ff_lease_event",
			} {
				if seeded[table] == before[table] {
					t.Errorf("%s has no row", table)
				}
			}
			f.advance(2 * time.Minute)
			if n, err := eng.Maintenance().Retain(t.Context(), 100); n != 1 || err != nil {
				t.Fatalf("looked at %d, error %v", n, err)
			}
			f.wantKept(t, "gone kept", one, bystander)
			if _, err := eng.Maintenance().TrimOutboxes(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
			after := f.counts(t)
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
			wantEqual(t, "rows left", after, left)
		})
	}
}

// seedChildren writes a row of every kind that names the execution, in the id form of each table, events among them.
func (f *fixture) seedChildren(t *testing.T, x id.ExecutionID) {
	t.Helper()
	f.seedChildrenOf(t, x)
	bare := x.UUID().String()
	at := f.clock.Load()
	f.insert(t, "ff_operator_event", columns{"execution_id": bare, "event_type": "replayed", "occurred_at_ms": at, "partition_key": int32(x.Partition())}, nil)
	for _, form := range []string{bare, x.String()} {
		f.insert(t, "ff_signal_event", columns{"execution_id": form, "signal_id": "s", "delivered_at_ms": at, "partition_key": int32(x.Partition())}, nil)
	}
}

// seedChildrenOf is seedChildren without events.
func (f *fixture) seedChildrenOf(t *testing.T, x id.ExecutionID) {
	t.Helper()
	at := f.clock.Load()
	key := columns{"partition_key": x.Partition(), "execution_id": x.UUID()}
	attempt := columns{"partition_key": x.Partition(), "execution_id": x.UUID(), "attempt_index": int32(0)}
	f.insert(t, "ff_claim_grant", key, columns{"grant_id": x.UUID().String()[:16], "kind": "claim", "worker_id": "w", "worker_instance_id": "w", "grant_ttl_ms": int64(1), "issued_at_ms": at, "expires_at_ms": at})
	f.insert(t, "ff_stream_frame", attempt, columns{"ts_ms": at, "seq": int32(0), "fields": "{}", "mode": "durable", "created_at_ms": at})
	f.insert(t, "ff_stream_meta", attempt, nil)
	f.insert(t, "ff_stream_summary", attempt, columns{"document_json": "{}", "last_updated_ms": at, "first_applied_ms": at})
	f.insert(t, "ff_suspension_current", key, columns{"suspension_id": x.UUID(), "suspended_at_ms": at, "condition": `"OperatorOnly"`})
	f.insert(t, "ff_waitpoint_pending", key, columns{"waitpoint_id": x.UUID(), "token_kid": "k", "token": "k:00", "created_at_ms": at})
	// In the partition of the budget, not of the execution.
	f.insert(t, "ff_budget_usage_by_exec", columns{"partition_key": (x.Partition() + 1) % 32, "execution_id": x.UUID()}, columns{"budget_id": "b", "dimensions_key": "d", "updated_at_ms": at})
}

// What is still needed is kept, and goes when it is not.
func TestE33_retention_keeps_what_is_needed(t *testing.T) {
	for _, c := range []struct {
		name  string
		need  func(*testing.T, *flowFixture, id.FlowID)
		leave func(*testing.T, *flowFixture, id.FlowID)
	}{
		{
			"by a dependent that has not ended",
			func(t *testing.T, f *flowFixture, flow id.FlowID) {},
			func(t *testing.T, f *flowFixture, flow id.FlowID) { f.succeed(t, flow, "b") },
		},
		{
			"for an event that is not dispatched",
			func(t *testing.T, f *flowFixture, flow id.FlowID) {
				f.succeed(t, flow, "b")
				f.exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = NULL WHERE execution_id = $1", f.NodeID(flow, "a").UUID())
			},
			func(t *testing.T, f *flowFixture, flow id.FlowID) {
				f.exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = 1 WHERE dispatched_at_ms IS NULL")
			},
		},
		{
			"by the backlog of a cancelled flow",
			func(t *testing.T, f *flowFixture, flow id.FlowID) {
				f.succeed(t, flow, "b")
				f.insert(t, "ff_cancel_backlog_member", columns{"partition_key": partitionOf(flow), "flow_id": flow, "execution_id": f.NodeID(flow, "a").String()}, nil)
			},
			func(t *testing.T, f *flowFixture, flow id.FlowID) { f.exec(t, "DELETE FROM ff_cancel_backlog_member") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := flowsOn(trimmingFixture(t))
			flow := f.draw(t, nil, "a>b")
			f.succeed(t, flow, "a")
			a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
			c.need(t, f, flow)
			f.advance(week)
			f.retain(t)
			if got := f.kept(t, f.pool, a); got != "kept" {
				t.Fatalf("the upstream is %s", got)
			}
			f.retain(t) // not due yet
			if n := f.status(t).Waiting; n == 0 {
				t.Error("nothing waits to be looked at again")
			}
			c.leave(t, f, flow)
			f.retain(t)
			f.wantKept(t, "kept", a)
			f.advance(day)
			f.retain(t)
			f.wantKept(t, "gone", a)
			f.advance(week)
			f.retain(t)
			f.wantKept(t, "gone gone", a, b)
		})
	}
}

func (f *fixture) status(t *testing.T) engine.RetentionStatus {
	t.Helper()
	status, err := f.Operator().Retention(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// The backlog names executions in full, and the bare id of one is nobody's.
func TestI42_retention_reads_the_backlog_in_its_form(t *testing.T) {
	f := flowsOn(trimmingFixture(t))
	flow := f.draw(t, nil, "a", "b")
	f.succeed(t, flow, "a", "b")
	a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
	member := columns{"partition_key": partitionOf(flow), "flow_id": flow}
	f.insert(t, "ff_cancel_backlog_member", member, columns{"execution_id": a.String()})
	f.insert(t, "ff_cancel_backlog_member", member, columns{"execution_id": b.UUID().String()})
	f.advance(week)
	f.retain(t)
	f.wantKept(t, "kept gone", a, b)
}

// Who is run again while retention looks is left alone, whoever comes first.
func TestE33_retention_against_a_replay(t *testing.T) {
	replayed := `lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_replay_attempt', terminal_at_ms = NULL`
	t.Run("which came first", func(t *testing.T) {
		f := trimmingFixture(t)
		x := f.ended(t)
		f.advance(week)
		tx := f.begin(t)
		execIn(t, tx, updateExecution(replayed), x.Partition(), x.UUID())
		f.retain(t)
		commit(t, tx)
		f.wantKept(t, "kept", x)
		f.advance(day)
		f.retain(t)
		f.wantKept(t, "kept", x)
		if status := f.status(t); status.Waiting != 0 || status.Deleted != 0 {
			t.Errorf("%+v", status)
		}
	})
	t.Run("which came between its looking and its locking", func(t *testing.T) {
		f := trimmingFixture(t)
		x := f.ended(t)
		f.retain(t)
		f.advance(week)
		f.exec(t, "UPDATE ffx_retention SET event_id = 0")
		r := f.stoppedBefore(t, "TakeEnded")
		done := async(t, func(ctx context.Context) error { _, err := r.Maintenance().Retain(ctx, 10); return err })
		r.awaitStop(t)
		f.setExecution(t, x, replayed)
		r.resume()
		if err := done(); err != nil {
			t.Fatal(err)
		}
		f.wantKept(t, "kept", x)
	})
	t.Run("which cannot come between its locking and its deleting", func(t *testing.T) {
		f := trimmingFixture(t)
		x := f.ended(t)
		f.advance(week)
		r := f.stoppedBefore(t, "DropAttemptsOf")
		done := async(t, func(ctx context.Context) error { _, err := r.Maintenance().Retain(ctx, 10); return err })
		r.awaitStop(t)
		if free := texts(t, f.pool, "SELECT 'free' FROM ff_exec_core WHERE execution_id = $1 FOR NO KEY UPDATE SKIP LOCKED", x.UUID()); len(free) != 0 {
			t.Error("the execution is not locked")
		}
		r.resume()
		if err := done(); err != nil {
			t.Fatal(err)
		}
		f.wantKept(t, "gone", x)
	})
	t.Run("which came last", func(t *testing.T) {
		f := trimmingFixture(t)
		x := f.ended(t)
		f.advance(week)
		tx := f.begin(t)
		if n, err := f.WithTx(tx).Maintenance().Retain(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("looked at %d, error %v", n, err)
		}
		r := f.rival(t)
		done := async(t, func(ctx context.Context) int64 {
			tag, err := r.pool.Exec(ctx, updateExecution(replayed), x.Partition(), x.UUID())
			if err != nil {
				t.Error(err)
			}
			return tag.RowsAffected()
		})
		r.awaitBlocked(t, f)
		commit(t, tx)
		if n := done(); n != 0 {
			t.Errorf("%d rows were run again", n)
		}
		f.wantKept(t, "gone", x)
		if n := len(f.attempts(t, x)); n != 0 {
			t.Errorf("%d attempts are left", n)
		}
	})
}

// How long an execution is kept: its policy, its lane, the engine.
func TestRetention_periods(t *testing.T) {
	f := trimmingFixture(t)
	byDefault := f.ended(t)
	long := f.ended(t, keepFor(30*day))
	short := f.ended(t, keepFor(time.Hour))
	ever := f.ended(t, keepFor(policy.KeepForever))
	all := []id.ExecutionID{byDefault, long, short, ever}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{
		{time.Hour - 1, "kept kept kept kept"},
		{time.Hour + 10*time.Minute, "kept kept gone kept"},
		{week - time.Minute, "kept kept gone kept"},
		{week + time.Minute, "gone kept gone kept"},
		{30*day - time.Minute, "gone kept gone kept"},
		{30*day + time.Minute, "gone gone gone kept"},
		{10 * 365 * day, "gone gone gone kept"},
	} {
		f.clock.Store(start.Add(step.at).UnixMilli())
		f.retain(t)
		if got := f.kept(t, f.pool, all...); got != step.want {
			t.Errorf("after %v: %s, want %s", step.at, got, step.want)
		}
	}
	if status := f.status(t); status.Deleted != 3 || status.Waiting != 0 || status.LookAfter > 2*time.Hour || status.LookAfter < time.Hour {
		t.Errorf("%+v", status)
	}
}

// What is stored of a policy is found by whoever reads the document, and few periods are.
func TestRetention_of_policies_is_registered(t *testing.T) {
	f := trimmingFixture(t)
	periods := func() []string {
		return texts(t, f.pool, "SELECT p.period_ms::text FROM ffx_retention_period AS p ORDER BY p.period_ms DESC")
	}
	x := f.create(t, keepFor(policy.KeepForever))
	if got := periods(); len(got) != 0 {
		t.Errorf("for ever: %q", got)
	}
	if got := *f.stored(t, x).Policy; !strings.Contains(got, `"ffx_retention_ms": -1`) {
		t.Errorf("stored %s", got)
	}
	f.create(t, keepFor(time.Hour))
	f.create(t, keepFor(59*time.Minute+59*time.Second))
	f.create(t, keepFor(2*time.Hour))
	if got := periods(); len(got) != 1 {
		t.Errorf("%q, want one", got)
	}
	tx := f.begin(t)
	if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.lane, Policy: &policy.Execution{Retention: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := periods(); len(got) != 1 {
		t.Errorf("after a rollback: %q, want one", got)
	}
	node := engine.ExecutionSpec{Kind: "test", Lane: f.lane, Policy: &policy.Execution{Retention: time.Minute}}
	if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: node}}}); err != nil {
		t.Fatal(err)
	}
	if got := periods(); len(got) != 2 || got[1] != "61440" {
		t.Errorf("%q, want the shorter one too", got)
	}
}

// A lane has a retention of its own, for what has ended before too.
func TestSetLaneRetention(t *testing.T) {
	f := trimmingFixture(t)
	set := func(d time.Duration) {
		t.Helper()
		if err := f.Operator().SetLaneRetention(t.Context(), f.lane, d); err != nil {
			t.Fatal(err)
		}
	}
	x, mine := f.ended(t), f.ended(t, keepFor(2*day))
	f.advance(time.Hour)
	f.retain(t)
	set(time.Hour)
	f.retain(t)
	f.wantKept(t, "gone kept", x, mine)
	if lanes := f.status(t).Lanes; len(lanes) != 1 || lanes[0] != (engine.LaneRetention{Lane: f.lane, Keep: time.Hour}) {
		t.Errorf("%+v", lanes)
	}
	set(policy.KeepForever)
	x = f.ended(t)
	f.advance(week)
	f.retain(t)
	f.wantKept(t, "kept gone", x, mine)
	set(0)
	f.retain(t)
	f.wantKept(t, "gone", x)
	if lanes := f.status(t).Lanes; len(lanes) != 0 {
		t.Errorf("%+v", lanes)
	}
	set(0)

	// In a caller's transaction it is that transaction's.
	x = f.ended(t)
	f.advance(time.Hour)
	tx := f.begin(t)
	if err := f.WithTx(tx).Operator().SetLaneRetention(t.Context(), f.lane, time.Minute); err != nil {
		t.Fatal(err)
	}
	err := f.WithTx(tx).Operator().SetLaneRetention(t.Context(), f.lane, time.Second)
	wantInputError(t, err, "keep")
	if _, err := f.WithTx(tx).Maintenance().Retain(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if got := f.kept(t, tx, x); got != "gone" {
		t.Errorf("in the transaction: %s", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.retain(t)
	f.wantKept(t, "kept", x)
}

func TestRetention_refuses_bad_input(t *testing.T) {
	f := newFixture(t)
	for name, j := range map[string]job{"retain": f.Maintenance().Retain, "trim": f.Maintenance().TrimOutboxes, "purge": f.Maintenance().PurgeFlows} {
		for _, batch := range []int{-1, 0, engine.MaxBatch + 1} {
			if _, err := j(t.Context(), batch); err == nil {
				t.Errorf("%s: a batch of %d was not refused", name, batch)
			} else {
				wantInputError(t, err, "batch")
			}
		}
	}
	for _, d := range []time.Duration{-2, time.Minute - 1, 1} {
		wantInputError(t, f.Operator().SetLaneRetention(t.Context(), f.lane, d), "keep")
		_, err := engine.New(f.pool, engine.Config{Retention: d})
		wantInputError(t, err, "Config.Retention")
		_, err = engine.New(f.pool, engine.Config{OutboxRetention: d})
		wantInputError(t, err, "Config.OutboxRetention")
		_, err = f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.lane, Policy: &policy.Execution{Retention: d}})
		wantInputError(t, err, "Policy.Retention")
	}
	wantInputError(t, f.Operator().SetLaneRetention(t.Context(), "", time.Hour), "lane")
}

// Rows that somebody holds, for however long, are passed over; the others go.
func TestRetention_waits_for_nobody(t *testing.T) {
	for _, c := range []struct {
		name string
		hold func(*testing.T, *fixture, pgx.Tx, id.ExecutionID)
	}{
		{"execution", func(t *testing.T, _ *fixture, tx pgx.Tx, x id.ExecutionID) { lockExecution(t, tx, x) }},
		{"attempt", func(t *testing.T, _ *fixture, tx pgx.Tx, x id.ExecutionID) { lockAttempt(t, tx, x, 0) }},
		{"waitpoint", func(t *testing.T, f *fixture, tx pgx.Tx, x id.ExecutionID) {
			f.seedChildrenOf(t, x)
			execIn(t, tx, "SELECT FROM ff_waitpoint_pending WHERE execution_id = $1 FOR UPDATE", x.UUID())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := trimmingFixture(t)
			var others []id.ExecutionID
			for range 5 {
				others = append(others, f.ended(t))
			}
			x := f.ended(t)
			for range 5 {
				others = append(others, f.ended(t))
			}
			f.advance(week)
			tx := f.begin(t)
			c.hold(t, f, tx, x)
			f.retain(t)
			f.wantKept(t, "kept"+strings.Repeat(" gone", 10), append([]id.ExecutionID{x}, others...)...)
			if n := len(f.attempts(t, x)); n != 1 {
				t.Errorf("%d attempts are left of what is kept", n)
			}
			commit(t, tx)
			f.retain(t)
			f.wantKept(t, "kept", x)
			f.advance(2 * time.Minute)
			f.retain(t)
			f.wantKept(t, "gone", x)
			if status := f.status(t); status.Deleted != 11 || status.Waiting != 0 {
				t.Errorf("%+v", status)
			}
		})
	}
}

// While a batch of retention is not committed, claims go on, and so does everybody else's work.
func TestRetention_does_not_stop_claims(t *testing.T) {
	f := trimmingFixture(t)
	for range 20 {
		f.ended(t)
	}
	f.advance(week)
	tx := f.begin(t)
	if n, err := f.WithTx(tx).Maintenance().Retain(t.Context(), 100); n != 20 || err != nil {
		t.Fatalf("looked at %d, error %v", n, err)
	}
	x := f.ended(t)
	run(t, f.Maintenance().RepairQueue, 0)
	if n, err := f.Maintenance().Retain(t.Context(), 100); n != 0 || err != nil {
		t.Errorf("another process looked at %d, error %v", n, err)
	}
	commit(t, tx)
	f.wantKept(t, "kept", x)
}

// One process works at a source at a time; the next goes on where it stopped.
func TestRetention_of_two_processes(t *testing.T) {
	f := trimmingFixture(t)
	var all []id.ExecutionID
	for range 6 {
		all = append(all, f.ended(t))
	}
	f.advance(week)
	tx := f.begin(t)
	if n, err := f.WithTx(tx).Maintenance().Retain(t.Context(), 2); n != 2 || err != nil {
		t.Fatalf("looked at %d, error %v", n, err)
	}
	r := f.rival(t)
	if n, err := r.Maintenance().Retain(t.Context(), 2); n != 0 || err != nil {
		t.Fatalf("the other looked at %d, error %v", n, err)
	}
	commit(t, tx)
	if n, err := r.Maintenance().Retain(t.Context(), 2); n != 2 || err != nil {
		t.Fatalf("the other looked at %d, error %v", n, err)
	}
	f.wantKept(t, "gone gone gone gone kept kept", all...)
	run(t, f.Maintenance().Retain, 2)
	if status := f.status(t); status.Deleted != 6 {
		t.Errorf("%d deleted, want 6", status.Deleted)
	}
}

// Without an event, or with one that was committed when others behind it had been looked at, the sweep finds it.
func TestRetention_sweep(t *testing.T) {
	f := trimmingFixture(t)
	f.retain(t)
	silent, late, young := f.ended(t), f.ended(t), f.ended(t, keepFor(30*day))
	f.exec(t, "DELETE FROM ff_completion_event WHERE execution_id = $1", silent.UUID())
	f.advance(week)
	f.exec(t, "UPDATE ffx_retention SET event_id = (SELECT max(event_id) FROM ff_completion_event) WHERE source = 'ends'")
	run(t, f.Maintenance().Retain, 0)
	run(t, f.Maintenance().RepairQueue, 2)
	f.wantKept(t, "gone gone kept", silent, late, young)
	if status := f.status(t); status.Deleted != 2 {
		t.Errorf("%d deleted, want 2", status.Deleted)
	}
	// What the reference ended.
	x := f.seed(t, columns{"lifecycle_phase": "terminal", "eligibility_state": "not_applicable", "public_state": "running", "terminal_at_ms": start.UnixMilli()})
	if _, err := f.Maintenance().RepairQueue(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Maintenance().RepairQueue(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	f.wantKept(t, "gone", x)
}

// Ends are looked at by the time at which the database wrote them, in order: a younger one holds up what follows.
func TestRetention_follows_the_ends(t *testing.T) {
	f := trimmingFixture(t)
	a, b, c := f.ended(t), f.ended(t), f.ended(t)
	f.advance(week)
	f.exec(t, "UPDATE ff_completion_event SET committed_at_ms = $1 WHERE execution_id = $2", f.clock.Load()-week.Milliseconds()+1000, b.UUID())
	run(t, f.Maintenance().Retain, 1)
	f.wantKept(t, "gone kept kept", a, b, c)
	status := f.status(t)
	if status.Behind != 0 || !status.NextEnd.Equal(f.now().Add(time.Second-week)) {
		t.Errorf("%+v", status)
	}
	f.advance(2 * time.Second)
	if status := f.status(t); status.Behind != time.Second {
		t.Errorf("behind %v, want 1s", status.Behind)
	}
	run(t, f.Maintenance().Retain, 2)
	f.wantKept(t, "gone gone gone", a, b, c)
	if status := f.status(t); status.Behind != 0 || !status.NextEnd.IsZero() || status.Deleted != 3 {
		t.Errorf("%+v", status)
	}
	f.advance(time.Minute)
	if status := f.status(t); status.DeletedLately != 3 {
		t.Errorf("%d deleted in the last minute, want 3", status.DeletedLately)
	}
	f.advance(time.Minute)
	if status := f.status(t); status.DeletedLately != 0 {
		t.Errorf("%d deleted in the last minute, want 0", status.DeletedLately)
	}
}

// In a caller's transaction retention is that transaction's.
func TestRetention_in_a_transaction(t *testing.T) {
	f := trimmingFixture(t)
	x := f.ended(t)
	f.advance(week)
	for _, end := range []string{"rollback", "commit"} {
		tx := f.begin(t)
		bound := f.WithTx(tx)
		if _, err := bound.Maintenance().Retain(t.Context(), 0); !errors.Is(err, engine.ErrInvalidInput) {
			t.Fatal(err)
		}
		if n, err := bound.Maintenance().Retain(t.Context(), 100); n != 1 || err != nil {
			t.Fatalf("looked at %d, error %v", n, err)
		}
		if got := f.kept(t, tx, x); got != "gone" {
			t.Errorf("in the transaction: %s", got)
		}
		if got := texts(t, tx, "SHOW synchronous_commit")[0]; got == "off" {
			t.Error("the caller's commit does not wait for the disk")
		}
		execIn(t, tx, end)
		f.wantKept(t, map[string]string{"rollback": "kept", "commit": "gone"}[end], x)
	}
}

// A timer stands for many.
func TestRetention_timers(t *testing.T) {
	f := trimmingFixture(t)
	f.create(t, keepFor(time.Minute)) // ends are looked at soon
	if n := len(f.startAndEnd(t, 300)); n != 300 {
		t.Fatalf("%d ended", n)
	}
	f.advance(2 * time.Minute)
	for {
		n, err := f.Maintenance().Retain(t.Context(), 300)
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
	if got := one[timers](t, f.pool, "SELECT count(*)::integer AS n, sum(items)::integer AS items FROM ffx_retention_timer"); got != (timers{1, 300}) {
		t.Errorf("%+v, want one timer for 300", got)
	}
	f.exec(t, "DELETE FROM ff_completion_event")
	f.advance(week)
	f.retain(t)
	if status := f.status(t); status.Deleted != 300 || status.Waiting != 0 {
		t.Errorf("%+v", status)
	}
}

// startAndEnd completes n executions.
func (f *fixture) startAndEnd(t *testing.T, n int) []error {
	t.Helper()
	f.exec(t, "UPDATE ff_exec_core SET eligibility_state = 'blocked_by_operator' WHERE eligibility_state = 'eligible_now'")
	var completions []engine.Completion
	for _, c := range f.startMany(t, n) {
		completions = append(completions, engine.Completion{Lease: c.Lease})
	}
	outcomes, err := f.CompleteExecutions(t.Context(), completions)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}
