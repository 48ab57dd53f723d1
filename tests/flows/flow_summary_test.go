package flows

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// summary is a stored summary: its state, and the buckets that are not empty.
func summary(t *testing.T, f *fixture.Flows, flow id.FlowID) string {
	t.Helper()
	rows := fixture.Texts(t, f.Pool, `
		SELECT concat_ws(' ', public_flow_state, total_members || '/' || sampled_members, (
			SELECT string_agg(substr(b.key, 9) || '=' || b.value, ' ' ORDER BY b.key)
			FROM jsonb_each_text(to_jsonb(s)) AS b
			WHERE b.key LIKE 'members\_%' AND b.value <> '0'
		)) FROM ff_flow_summary AS s WHERE partition_key = $1 AND flow_id = $2`, fixture.PartitionOf(flow), flow)
	if len(rows) != 1 {
		return fmt.Sprint(rows)
	}
	return rows[0]
}

func wantSummary(t *testing.T, f *fixture.Flows, flow id.FlowID, want string) {
	t.Helper()
	if got := summary(t, f, flow); got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
}

// wantOneState fails the test unless all reads of a flow give it one state.
func wantOneState(t *testing.T, f *fixture.Flows, flow id.FlowID) {
	t.Helper()
	var listed state.FlowState
	for s, err := range f.Flows(t.Context(), engine.FlowFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.ID == flow {
			listed = s.State
		}
	}
	described, err := f.DescribeFlow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	progress, err := f.FlowProgress(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	if described.State != listed || progress.State != listed {
		t.Errorf("it is listed as %s, described as %s, and its progress is %s", listed, described.State, progress.State)
	}
}

// F31: each member is counted by its phase and outcome, not by a public state that other programs leave behind.
func TestSummaryCountsMembersInEveryState_F31(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	// The outcome of the attempt comes first.
	flow := f.Draw(t, nil, "a")
	f.Fail(t, flow, "a")
	f.SetExecution(t, f.NodeID(flow, "a"), "public_state = 'running'")
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
	wantSummary(t, f, flow, "failed 1/1 failed=1")
	const ended = "lifecycle_phase = 'terminal', ownership_state = 'unowned', eligibility_state = 'not_applicable', attempt_state = 'attempt_terminal', terminal_at_ms = 1, "
	for _, c := range []struct{ change, bucket, state string }{
		{"lifecycle_phase = 'active', public_state = 'running'", "active", "running"},
		{"lifecycle_phase = 'active', public_state = 'active'", "active", "running"},
		{"lifecycle_phase = 'active', public_state = 'waiting'", "active", "running"},
		{"lifecycle_phase = 'suspended', public_state = 'suspended'", "suspended", "blocked"},
		{"public_state = 'resumable'", "suspended", "blocked"},
		{"eligibility_state = 'blocked_by_dependencies'", "waiting_children", "blocked"},
		{"public_state = 'waiting_children'", "waiting_children", "blocked"},
		{"eligibility_state = 'blocked_by_budget'", "rate_limited", "blocked"},
		{"eligibility_state = 'blocked_by_quota'", "rate_limited", "blocked"},
		{"eligibility_state = 'not_eligible_until_time'", "delayed", "blocked"},
		{"public_state = 'waiting'", "waiting", "open"},
		{"lifecycle_phase = 'submitted'", "waiting", "open"},
		{"eligibility_state = 'blocked_by_operator'", "waiting", "open"},
		{"lifecycle_phase = 'napping'", "waiting", "open"},
		{ended + "public_state = 'completed'", "completed", "completed"},
		{ended + "public_state = 'skipped'", "skipped", "completed"},
		{ended + "public_state = 'failed'", "failed", "failed"},
		{ended + "public_state = 'expired'", "expired", "failed"},
		{ended + "public_state = 'cancelled'", "cancelled", "failed"},
		{"lifecycle_phase = 'cancelled', public_state = 'completed', terminal_at_ms = 1", "cancelled", "failed"},
		// Public states that the ends of other programs leave, and traces of how they ended.
		{ended + `public_state = 'running', raw_fields = raw_fields || '{"terminal_outcome": "success"}'`, "completed", "completed"},
		{ended + `public_state = 'running', raw_fields = raw_fields || '{"last_failure_message": "attempt_timeout"}'`, "expired", "failed"},
		{ended + "public_state = 'running'", "failed", "failed"},
	} {
		flow := f.Draw(t, nil, "a")
		f.SetExecution(t, f.NodeID(flow, "a"), c.change)
		f.Advance(time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
		wantSummary(t, f, flow, fmt.Sprintf("%s 1/1 %s=1", c.state, c.bucket))
		if c.change != "public_state = 'waiting_children'" { // reads go by the eligibility, by which it can be claimed
			wantOneState(t, f, flow)
		}
	}
}

// The state of a flow follows from all its members, and is written again when it has changed.
func TestSummariseFlowsStates(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	empty := f.NewFlowOf(t, engine.FlowSpec{ID: id.NewFlowID()})
	flow := f.Draw(t, nil, "a>c", "b>c", "x>y")
	next := func(wrote int, want string) {
		t.Helper()
		f.Advance(time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, wrote)
		wantSummary(t, f, flow, want)
		wantOneState(t, f, flow) // ff flow show said open where ff flow list said failed
	}
	next(1, "blocked 5/5 waiting=3 waiting_children=2")
	next(0, "blocked 5/5 waiting=3 waiting_children=2")
	f.ClaimAll(t)
	next(1, "running 5/5 active=3 waiting_children=2")
	f.Succeed(t, flow, "a", "b")
	f.Fail(t, flow, "x")
	next(1, "open 5/5 completed=2 failed=1 skipped=1 waiting=1")
	f.Succeed(t, flow, "c")
	next(1, "failed 5/5 completed=3 failed=1 skipped=1")
	next(0, "failed 5/5 completed=3 failed=1 skipped=1")
	f.ReplayNode(t, flow, "x", "waiting")
	next(1, "open 5/5 completed=3 skipped=1 waiting=1")
	f.Succeed(t, flow, "x")
	next(1, "completed 5/5 completed=4 skipped=1")
	member := id.NewMemberExecutionID(flow, id.Partitions{})
	if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{ID: member, Kind: "test", Lane: f.Lane, Flow: &flow}); err != nil {
		t.Fatal(err)
	}
	next(1, "open 6/6 completed=4 skipped=1 waiting=1")
	wantSummary(t, f, empty, "[]")
	wantOneState(t, f, empty)
	if _, err := f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
		t.Fatal(err)
	}
	wantOneState(t, f, flow)
}

// A flow whose summary is settled is not counted again.
func TestSummariseFlowsSkipsSettledFlows(t *testing.T) {
	f, log := fixture.FlowsOn(fixture.NewCloned(t)), new(fixture.StatementLog)
	f.Engine = f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	flow := f.Draw(t, nil, "a")
	f.Succeed(t, flow, "a")
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
	for range 3 {
		for _, name := range fixture.Names(log.During(func() { fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 0) })) {
			if name == "ReadMemberCounts" {
				t.Error("it was counted again")
			}
		}
	}
}

// An older summary does not overwrite a later one.
func TestSummariseFlowsNeverGoesBack(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a")
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
	f.Exec(t, "UPDATE ff_flow_summary SET last_summary_update_at = last_summary_update_at + 1, members_waiting = 7 WHERE flow_id = $1", flow)
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 0)
	wantSummary(t, f, flow, "open 1/1 waiting=7")
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
	wantSummary(t, f, flow, "open 1/1 waiting=1")
}

// A process may count the members of a flow, and write the summary after another one has counted them again and written
// its own. The time of a summary is that of its counts, so the later counts stay.
func TestSummariseFlowsAfterLaterCounts(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a")
	partition, row := fixture.PartitionOf(flow), pgtype.UUID{Bytes: flow, Valid: true}
	q := db.New()
	counts, err := q.ReadMemberCounts(t.Context(), f.Pool, db.ReadMemberCountsParams{
		PartitionKeys: []int16{partition}, FlowIDs: []pgtype.UUID{row}, NowMs: new(f.Time().UnixMilli()),
	})
	if err != nil || len(counts) != 1 {
		t.Fatal(counts, err)
	}
	c := counts[0]
	write := func(wrote int64, want string) {
		t.Helper()
		n, err := q.SummariseFlows(t.Context(), f.Pool, db.SummariseFlowsParams{
			PartitionKeys: []int16{partition}, FlowIDs: []pgtype.UUID{row}, Total: []int64{c.Total}, Completed: []int32{c.Completed},
			Failed: []int32{c.Failed}, Cancelled: []int32{c.Cancelled}, Expired: []int32{c.Expired}, Skipped: []int32{c.Skipped},
			Active: []int32{c.Active}, Suspended: []int32{c.Suspended}, Waiting: []int32{c.Waiting}, Delayed: []int32{c.Delayed},
			RateLimited: []int32{c.RateLimited}, WaitingChildren: []int32{c.WaitingChildren}, FlowStates: []string{c.FlowState}, NowMs: c.NowMs,
		})
		if n != wrote || err != nil {
			t.Errorf("wrote %d, error %v", n, err)
		}
		wantSummary(t, f, flow, want)
	}
	f.Advance(time.Second)
	f.Succeed(t, flow, "a")
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
	write(0, "completed 1/1 completed=1")
	f.Exec(t, "DELETE FROM ff_flow_summary WHERE flow_id = $1", flow)
	write(1, "open 1/1 waiting=1") // the next round counts again: it is not settled
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
	wantSummary(t, f, flow, "completed 1/1 completed=1")
}

// It goes through all flows in pages, and begins anew.
func TestSummariseFlowsContinuesWhereItStopped(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	var flows []id.FlowID
	for range 4 {
		flows = append(flows, f.Draw(t, nil, "a", "b"))
	}
	for range flows {
		if n, err := upkeep.Of(f.Engine).SummariseFlows(t.Context(), 1); n != 1 || err != nil {
			t.Errorf("wrote %d, error %v", n, err)
		}
	}
	for _, flow := range flows {
		wantSummary(t, f, flow, "open 2/2 waiting=2")
	}
	f.Succeed(t, flows[0], "a")
	written := 0
	for range len(flows) + 1 {
		n, err := upkeep.Of(f.Engine).SummariseFlows(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		written += n
	}
	if written == 0 {
		t.Error("it does not begin anew")
	}
	for _, batch := range []int{-1, 0, core.MaxSweep + 1} {
		if _, err := upkeep.Of(f.Engine).SummariseFlows(t.Context(), batch); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("a batch of %d: %v", batch, err)
		}
	}
}

// It never waits, and no change of a flow waits for it.
func TestSummariseFlowsNeverWaits(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	held, free := f.Draw(t, nil, "a"), f.Draw(t, nil, "a")
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 2)
	f.ClaimAll(t)
	f.Advance(time.Second)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_flow_summary WHERE flow_id = $1 FOR UPDATE", held)
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
	wantSummary(t, f, held, "open 1/1 waiting=1")
	wantSummary(t, f, free, "running 1/1 active=1")
	fixture.Commit(t, tx)
	// A transaction that holds the flow exclusively neither blocks it nor is blocked.
	tx = f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", held)
	fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE flow_id = $1 FOR NO KEY UPDATE", held)
	summary := f.BeginTx(t)
	if n, err := upkeep.Of(f.WithTx(summary)).SummariseFlows(t.Context(), 10); err != nil {
		t.Fatal(n, err)
	}
	fixture.ExecIn(t, tx, "UPDATE ff_flow_core SET graph_revision = graph_revision WHERE flow_id = $1", held)
	fixture.Commit(t, tx)
	fixture.Commit(t, summary)
	// One that is being deleted gets no summary.
	gone := f.Draw(t, nil, "a")
	tx = f.BeginTx(t)
	fixture.ExecIn(t, tx, "DELETE FROM ff_flow_core WHERE flow_id = $1", gone)
	for range 3 {
		if _, err := upkeep.Of(f.Engine).SummariseFlows(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	wantSummary(t, f, gone, "[]")
	fixture.Commit(t, tx)
}

func TestSummariseFlowsInATransaction(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a")
	f.Advance(time.Second)
	for _, end := range []string{"rollback", "commit"} {
		tx := f.BeginTx(t)
		bound := upkeep.Of(f.WithTx(tx))
		if _, err := bound.SummariseFlows(t.Context(), 0); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Fatal(err)
		}
		written := 0
		for range 2 {
			n, err := bound.SummariseFlows(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			written += n
		}
		if written != 1 {
			t.Errorf("wrote %d", written)
		}
		fixture.ExecIn(t, tx, end)
		if end == "rollback" {
			wantSummary(t, f, flow, "[]")
		}
	}
	wantSummary(t, f, flow, "open 1/1 waiting=1")
}
