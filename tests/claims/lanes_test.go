package claims

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// lanesOf goes through the lanes, a page at a time.
func lanesOf(t *testing.T, eng *engine.Engine, limit int) []engine.LaneSummary {
	t.Helper()
	var lanes []engine.LaneSummary
	for after := ""; ; {
		page, err := eng.ListLanes(t.Context(), engine.LaneFilter{}, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		lanes = append(lanes, page.Items...)
		if after = page.Next; after == "" {
			return lanes
		}
	}
}

func TestLanesDepth(t *testing.T) {
	f := fixture.NewCloned(t)
	ctx := t.Context()
	other := f.Lane + "2"
	on := func(lane id.LaneID, priority int) func(*engine.ExecutionSpec) {
		return func(spec *engine.ExecutionSpec) { spec.Lane, spec.Priority = lane, priority }
	}
	want := func(want ...engine.LaneSummary) {
		t.Helper()
		for _, limit := range []int{0, 1} {
			if got := lanesOf(t, f.Engine, limit); !slices.Equal(got, want) {
				t.Errorf("%d a page:\n\t%+v, want\n\t%+v", limit, got, want)
			}
		}
	}
	want()
	// Two running, one of which ends; one that is retried later; one that ends without success.
	retried := func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{Retry: &policy.Retry{Backoff: policy.Fixed(time.Hour)}}
	}
	completed, running, again, failed := f.Start(t), f.Start(t), f.Start(t, retried), f.Start(t)
	if err := f.CompleteExecution(ctx, completed.Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.Advance(30 * time.Second)
	for c, class := range map[*engine.Claimed]policy.Class{&again: policy.Transient, &failed: policy.Permanent} {
		if _, err := f.RenewLease(ctx, c.Lease, time.Hour); err == nil {
			t.Fatal("a lease that ran out was renewed")
		}
		_ = class
	}
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 3)
	claimed, err := f.Claim(ctx, f.Worker(), 10)
	if err != nil || len(claimed) != 3 {
		t.Fatal(len(claimed), err)
	}
	for _, c := range claimed {
		switch c.ID {
		case again.ID:
			_, err = f.FailExecution(ctx, c.Lease, engine.Failure{})
		case failed.ID:
			_, err = f.FailExecution(ctx, c.Lease, engine.Failure{Class: policy.Permanent})
		default:
			running = c
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.Time().Add(time.Hour) })
	one := engine.LaneSummary{ID: f.Lane, Delayed: engine.Count{N: 2}, Active: engine.Count{N: 1}, EndedPerMinute: 2, Ended: [12]int{5: 1, 11: 1}}
	want(one)

	// The oldest waiting execution is the one of the lower priority.
	f.Create(t, on(other, 0))
	since := f.Time()
	f.Advance(time.Second)
	f.Create(t, on(other, 9))
	f.Create(t, on(other, 9))
	two := engine.LaneSummary{ID: other, Waiting: engine.Count{N: 3}, WaitingSince: since}
	want(one, two)

	// Paused, also one that nothing was ever created on.
	if err := operator.PauseLane(ctx, f.Engine, other, operator.LanePause{Reason: "upstream is down"}); err != nil {
		t.Fatal(err)
	}
	if err := operator.PauseLane(ctx, f.Engine, "a lane to come", operator.LanePause{}); err != nil {
		t.Fatal(err)
	}
	two.PausedSince, two.PauseReason = f.Time(), "upstream is down"
	three := engine.LaneSummary{ID: "a lane to come", PausedSince: f.Time()}
	want(three, one, two)

	// A minute later, older ends have left the count.
	f.Advance(31 * time.Second)
	one.EndedPerMinute, one.Ended = 1, [12]int{5: 1}
	want(three, one, two)
	if err := operator.ResumeLane(ctx, f.Engine, "a lane to come"); err != nil {
		t.Fatal(err)
	}

	// In a transaction it is seen before its commit, and elsewhere not.
	tx, err := f.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if err := f.WithTx(tx).CompleteExecution(ctx, running.Lease, nil); err == nil {
		t.Fatal("a lease that ran out was completed")
	}
	if _, err := f.WithTx(tx).CreateExecution(ctx, engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}); err != nil {
		t.Fatal(err)
	}
	inside := one
	inside.Waiting, inside.WaitingSince = engine.Count{N: 1}, f.Time()
	if got := lanesOf(t, f.WithTx(tx), 0); !slices.Equal(got, []engine.LaneSummary{inside, two}) {
		t.Errorf("in the transaction: %+v", got)
	}
	want(one, two)
}

// Blocked executions are counted by their lane.
func TestLanesBlocked(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t)
	f.Create(t)
	f.SetExecution(t, x, `eligibility_state = 'blocked_by_operator', blocking_reason = 'paused_by_operator'`)
	want := []engine.LaneSummary{{
		ID: f.Lane, Waiting: engine.Count{N: 1}, WaitingSince: f.Time(), Blocked: engine.Count{N: 1},
	}}
	if got := lanesOf(t, f.Engine, 0); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Counts stop at a bound: beyond it they mean at least that many.
func TestLanesCountUpToABound_I48(t *testing.T) {
	f := fixture.NewCloned(t)
	const n = engine.MaxCounted + 7
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.Lane = "few" })
	f.Advance(time.Hour)
	insert := func(lane, phase, eligibility, public, more, values string) {
		t.Helper()
		f.Exec(t, fmt.Sprintf(`INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state,
			eligibility_state, public_state, attempt_state, created_at_ms%s)
			SELECT i %% 256, gen_random_uuid(), '%s', '%s', 'unowned', '%s', '%s', 'pending_first_attempt', $2%s
			FROM generate_series(1, $1::integer) AS i`, more, lane, phase, eligibility, public, values), n, f.Time().UnixMilli())
	}
	insert("many", "runnable", "eligible_now", "waiting", "", "")
	insert("late", "runnable", "not_eligible_until_time", "delayed", ", ffx_delay_until_ms", ", i")
	insert("gone", "terminal", "not_applicable", "completed", ", terminal_at_ms", ", i")
	// Twenty a millisecond, the last of them now.
	f.Exec(t, `INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms, dispatched_at_ms)
		SELECT partition_key, execution_id, 'success', $1::bigint - terminal_at_ms / 20, 1 FROM ff_exec_core WHERE lane_id = 'gone'
		ORDER BY terminal_at_ms DESC`, f.Time().UnixMilli())
	f.Exec(t, `INSERT INTO ff_lane_registry SELECT unnest('{many,late,gone}'::text[]), 0, 'test'`)
	f.Exec(t, `INSERT INTO ffx_waiting (gate_id, rank, created_at_ms, execution_id, partition_key, is_budget)
		SELECT gen_random_uuid(), 0, 0, gen_random_uuid(), 0, false FROM generate_series(1, $1::integer)`, n)
	got := make(map[id.LaneID]engine.LaneSummary)
	for _, lane := range lanesOf(t, f.Engine, 0) {
		got[lane.ID] = lane
	}
	bound := engine.Count{N: engine.MaxCounted, AtLeast: true}
	if lane := got["many"]; lane.Waiting != bound || !lane.WaitingSince.Equal(f.Time()) || lane.Active != (engine.Count{}) {
		t.Errorf("many waiting: %+v", lane)
	}
	if lane := got["few"]; lane.Waiting != (engine.Count{N: 1}) || !lane.WaitingSince.Equal(fixture.Start) || !lane.Delayed.AtLeast || lane.Delayed.N != 0 {
		t.Errorf("one waiting: %+v", lane)
	}
	if lane := got["late"]; lane.Delayed.N < engine.MaxCounted || !lane.Delayed.AtLeast {
		t.Errorf("many delayed: %+v", lane)
	}
	// What the first entries are not may be behind them.
	if lane := got["few"]; !lane.Limited.AtLeast || lane.Suspended.AtLeast || lane.Dependent.AtLeast {
		t.Errorf("many behind a limit: %+v", lane)
	}
	// 10,001 in 500 ms.
	if lane := got["gone"]; lane.EndedPerMinute < 1_190_000 || lane.EndedPerMinute > 1_210_000 || lane.Ended != [12]int{11: engine.MaxCounted + 1} {
		t.Errorf("many ended: %+v", lane)
	}
}

// A small bound counts some of each state, evenly if there are many, and estimates ends from some of them.
func TestLanesCountUpToASmallBound(t *testing.T) {
	f := fixture.NewCloned(t)
	insert := func(n int, lane, phase, eligibility, into string) {
		t.Helper()
		f.Exec(t, fmt.Sprintf(`WITH made AS (INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state,
			eligibility_state, public_state, attempt_state, created_at_ms, terminal_at_ms)
			SELECT 7, gen_random_uuid(), '%s', '%s', 'unowned', '%s', 'waiting', 'pending_first_attempt', i, i FROM generate_series(1, $1::integer) AS i
			RETURNING partition_key, execution_id, terminal_at_ms) %s`, lane, phase, eligibility, into), n)
	}
	f.Exec(t, `INSERT INTO ff_lane_registry SELECT unnest('{queue,busy,asks,ends}'::text[]), 0, 'test'`)
	insert(1100, "queue", "runnable", "eligible_now", "SELECT 1")
	insert(50, "busy", "runnable", "blocked_by_quota", `INSERT INTO ffx_waiting (gate_id, rank, created_at_ms, execution_id, partition_key, is_budget)
		SELECT gen_random_uuid(), 0, 0, execution_id, partition_key, false FROM made`)
	insert(20, "asks", "suspended", "not_applicable", `INSERT INTO ff_suspension_current (partition_key, execution_id, suspension_id,
		suspended_at_ms, condition, ffx_open_since_ms) SELECT partition_key, execution_id, gen_random_uuid(), 1, '{}', 1 FROM made`)
	insert(600, "ends", "terminal", "not_applicable", fmt.Sprintf(`INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms,
		dispatched_at_ms) SELECT partition_key, execution_id, 'success', %d + terminal_at_ms * 100, 1 FROM made ORDER BY terminal_at_ms`, f.Time().UnixMilli()-60_000))
	for _, c := range []struct{ counted, waiting, limited, suspended int }{
		{60, 1000, 15, 15}, // 30 looked up
		{88, 1000, 23, 20}, // of 44
		{200, 1000, 50, 20},
		{1200, 1100, 50, 20},
		{0, 1100, 50, 20},
	} {
		got := make(map[id.LaneID]engine.LaneSummary)
		for lane, err := range f.Lanes(t.Context(), engine.LaneFilter{Counted: c.counted}) {
			if err != nil {
				t.Fatal(err)
			}
			got[lane.ID] = lane
		}
		count := func(n, of int) engine.Count { return engine.Count{N: n, AtLeast: n < of} }
		if n := got["queue"].Waiting; n != count(c.waiting, 1100) {
			t.Errorf("up to %d: %+v waiting, want %d", c.counted, n, c.waiting)
		}
		if n := got["busy"].Limited; n != count(c.limited, 50) {
			t.Errorf("up to %d: %+v behind limits, want %d", c.counted, n, c.limited)
		}
		if n := got["asks"].Suspended; n != count(c.suspended, 20) {
			t.Errorf("up to %d: %+v suspended, want %d", c.counted, n, c.suspended)
		}
		ends, sum := got["ends"], 0
		for i, n := range ends.Ended {
			if sum += n; n < 30 || n > 70 {
				t.Errorf("up to %d: %d ended in the %d. five seconds, want 50", c.counted, n, i)
			}
		}
		if math.Abs(ends.EndedPerMinute-599) > 15 || ends.EndedPerMinute != float64(sum) {
			t.Errorf("up to %d: %v ended, %d in all, want 599", c.counted, ends.EndedPerMinute, sum)
		}
	}
	for _, counted := range []int{-1, engine.MaxCounted + 1} {
		_, err := f.ListLanes(t.Context(), engine.LaneFilter{Counted: counted}, "", 0)
		fixture.WantInputError(t, err, "counted")
	}
}

// A filter of one lane lists it, or nothing.
func TestListOneLane(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, lane := range []id.LaneID{"a", "b", "bb"} {
		f.Create(t, func(spec *engine.ExecutionSpec) { spec.Lane = lane })
	}
	all := lanesOf(t, f.Engine, 0)
	for i, lane := range []id.LaneID{"a", "b", "bb"} {
		if got := fixture.Listed(t, f.Lanes(t.Context(), engine.LaneFilter{Lane: lane})); !slices.Equal(got, all[i:i+1]) {
			t.Errorf("%s: %+v, want %+v", lane, got, all[i])
		}
	}
	for _, lane := range []id.LaneID{"A", "aa", "ba", "c"} {
		if got := fixture.Listed(t, f.Lanes(t.Context(), engine.LaneFilter{Lane: lane})); len(got) > 0 {
			t.Errorf("%s: %+v, want none", lane, got)
		}
	}
	page, err := f.ListLanes(t.Context(), engine.LaneFilter{}, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.ListLanes(t.Context(), engine.LaneFilter{Lane: "b"}, page.Next, 1)
	fixture.WantInputError(t, err, "after")
	_, err = f.ListLanes(t.Context(), engine.LaneFilter{Lane: "\n"}, "", 1)
	fixture.WantInputError(t, err, "lane")
}

// All listings return [engine.MaxPage] at most, and lanes in byte order, in any collation of the database.
func TestLanesArePagedInByteOrder_I48(t *testing.T) {
	f := fixture.NewCloned(t)
	const n = engine.MaxPage + 5
	f.Exec(t, "INSERT INTO ff_lane_registry SELECT chr(33 + i % 90) || i, 0, 'test' FROM generate_series(1, $1::integer) AS i", n)
	page, err := f.ListLanes(t.Context(), engine.LaneFilter{}, "", engine.MaxPage+1)
	if err != nil || len(page.Items) != engine.MaxPage || page.Next == "" {
		t.Fatalf("a page of %d, next %q, %v", len(page.Items), page.Next, err)
	}
	lanes := lanesOf(t, f.Engine, 0)
	sorted := slices.IsSortedFunc(lanes, func(a, b engine.LaneSummary) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	if len(lanes) != n || !sorted {
		t.Errorf("%d lanes, want %d; sorted by bytes: %t", len(lanes), n, sorted)
	}
}

// An execution created with required capabilities is listed as waiting, and claimed only by a worker that has them.
func TestRequiredCapabilitiesAreStored_I5(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{Capabilities: id.NewCapabilities("gpu", "avx")}
	})
	if got := f.Describe(t, x); got.State.Public != state.PublicWaiting || !slices.Equal(got.RequiredCapabilities, id.NewCapabilities("avx", "gpu")) {
		t.Errorf("described as %+v", got)
	}
	if got := f.Stored(t, x).Capabilities; !slices.Equal(got, []string{"avx", "gpu"}) {
		t.Errorf("stored %q", got)
	}
	f.WantNothingClaimable(t)
	worker := f.Worker()
	worker.Capabilities = id.NewCapabilities("gpu", "avx", "big")
	if claimed, err := f.Claim(t.Context(), worker, 1); err != nil || len(claimed) != 1 || claimed[0].ID != x {
		t.Errorf("claimed %v, %v", claimed, err)
	}
}
