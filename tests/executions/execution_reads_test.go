package executions

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Every read by an unknown id has the same answer.
func TestReadsReportMissingRows(t *testing.T) {
	f := fixture.New(t)
	x := id.NewExecutionID(f.Lane, id.Partitions{})
	ctx := t.Context()
	for name, read := range map[string]func() error{
		"describe_execution_missing_returns_none":   func() error { _, err := f.DescribeExecution(ctx, x); return err },
		"read_execution_state_missing_returns_none": func() error { _, err := f.ExecutionState(ctx, x); return err },
		"get_execution_result_missing_returns_none": func() error { _, err := f.ExecutionResult(ctx, x); return err },
		"input":     func() error { _, err := f.ExecutionInput(ctx, x); return err },
		"tag":       func() error { _, _, err := f.ExecutionTag(ctx, x, "app.tenant"); return err },
		"set tag":   func() error { return f.SetExecutionTag(ctx, x, "app.tenant", "v") },
		"upstreams": func() error { _, err := f.UpstreamResults(ctx, x); return err },
	} {
		t.Run(name, func(t *testing.T) { fixture.WantNotFound(t, read(), "execution", x.String()) })
	}
}

// A caller compares an outcome with "", in an attempt and in an execution.
func TestNoOutcomeIsTheEmptyString(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	f.SetExecution(t, x, `raw_fields = raw_fields || '{"terminal_outcome": "none"}'`) // as another program notes it
	if got := f.Describe(t, x).State.Outcome; got != "" {
		t.Errorf("an execution that has not ended has the outcome %q", got)
	}
	if eligible, err := f.Eligibility(t.Context(), x); err != nil || eligible.Status != state.StatusEligible {
		t.Errorf("it is %+v, %v, want eligible", eligible, err)
	}
	c := f.ClaimOne(t)
	if got := attemptsOf(t, f.Engine, x)[0].Outcome; got != "" {
		t.Errorf("an attempt that has not ended has the outcome %q", got)
	}
	if _, err := operator.Revoke(t.Context(), f.Engine, operator.RevokeSpec{ID: x, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	err := f.CompleteExecution(t.Context(), c.Lease, nil)
	if refused, ok := errors.AsType[*fferr.LeaseError](err); !ok || refused.Outcome != "" || strings.Contains(err.Error(), "outcome") {
		t.Errorf("got %v, want a refusal without an outcome", err)
	}
}

func TestExecutionInputWithoutPayload(t *testing.T) {
	f := fixture.New(t)
	input, err := f.ExecutionInput(t.Context(), f.Seed(t, fixture.Columns{"raw_fields": `{}`}))
	if err != nil || input.Payload == nil || len(input.Payload) != 0 || input.Kind != "" || len(input.Tags) != 0 {
		t.Errorf("input %#v, %v; want an empty payload, no kind, no tags", input, err)
	}
}

func TestExecutionResult(t *testing.T) {
	f := fixture.New(t)
	notEnded := func(x id.ExecutionID) {
		t.Helper()
		if got, err := f.ExecutionResult(t.Context(), x); got != nil || !errors.Is(err, fferr.ErrNotEnded) {
			t.Errorf("got %q, %v; want not ended", got, err)
		}
	}
	for _, given := range [][]byte{nil, {}, []byte("out")} {
		x := f.Create(t)
		notEnded(x)
		c := f.ClaimOne(t)
		notEnded(x) // get_execution_result_active_returns_none
		if err := f.CompleteExecution(t.Context(), c.Lease, given); err != nil {
			t.Fatal(err)
		}
		if got, err := f.ExecutionResult(t.Context(), x); err != nil || !reflect.DeepEqual(got, given) {
			t.Errorf("get_execution_result_terminal_returns_payload: got %#v, %v; want %#v", got, err, given)
		}
	}
	notEnded(f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Hour) }))
}

// An execution that ended without success has no result, whatever the row holds: the error says how it ended.
func TestExecutionResultReportsAFailure(t *testing.T) {
	f := fixture.NewFlows(t)
	failed := f.Start(t)
	retried := f.Start(t)
	for c, class := range map[*engine.Claimed]policy.Class{&failed: policy.Permanent, &retried: policy.Transient} {
		if _, err := f.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "broken", Class: class}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.ExecutionResult(t.Context(), retried.ID); !errors.Is(err, fferr.ErrNotEnded) {
		t.Errorf("before a retry: %v", err)
	}
	flow := f.Draw(t, nil, "a>b")
	f.Fail(t, flow, "a")
	cancelled := f.Create(t)
	f.SetExecution(t, cancelled, fixture.ForeignCancel+", cancellation_reason = 'a whim', result = 'left behind'")
	for _, c := range []struct {
		x    id.ExecutionID
		want fferr.EndedError
	}{
		{failed.ID, fferr.EndedError{Outcome: state.OutcomeFailed, Failure: "broken"}},
		{f.NodeID(flow, "b"), fferr.EndedError{Outcome: state.OutcomeSkipped}},
		{cancelled, fferr.EndedError{Outcome: state.OutcomeCancelled, Failure: "a whim"}},
	} {
		c.want.Execution = c.x
		result, err := f.ExecutionResult(t.Context(), c.x)
		if ended, ok := errors.AsType[*fferr.EndedError](err); !ok || *ended != c.want || result != nil {
			t.Errorf("got %q, %v; want %+v", result, err, c.want)
		} else if text := err.Error(); !strings.Contains(text, "read execution result") || !strings.Contains(text, c.want.Failure) {
			t.Errorf("error %q", text)
		}
	}
	f.SetExecution(t, cancelled, "lifecycle_phase = 'who knows'")
	_, err := f.ExecutionResult(t.Context(), cancelled)
	fixture.WantCorruption(t, err, "ff_exec_core.lifecycle_phase")
}

func TestSetExecutionTag(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Tags = map[string]string{"app.kept": "1"} })
	f.Advance(time.Second)
	if err := f.SetExecutionTag(t.Context(), x, "app.set", "2"); err != nil {
		t.Fatal(err)
	}
	if err := f.SetExecutionTag(t.Context(), x, "app.set", "3"); err != nil {
		t.Fatal(err)
	}
	got := f.Describe(t, x)
	if want := map[string]string{"app.kept": "1", "app.set": "3"}; !maps.Equal(got.Tags, want) || !got.LastMutationAt.Equal(f.Time()) {
		t.Errorf("tags %v at %v, want %v", got.Tags, got.LastMutationAt, want)
	}
	if value, set, err := f.ExecutionTag(t.Context(), x, "app.set"); value != "3" || !set || err != nil {
		t.Errorf("tag %q, %t, %v", value, set, err)
	}
	if value, set, err := f.ExecutionTag(t.Context(), x, "app.other"); value != "" || set || err != nil {
		t.Errorf("tag that is not set: %q, %t, %v", value, set, err)
	}
	f.WantState(t, x, fixture.StateReady)
}

// The reference reports a tag as set that it could not write.
func TestTagIsSetOnARowWithoutTags_E35_I36(t *testing.T) {
	f := fixture.New(t)
	for _, fields := range []string{`{}`, `{"tags":null}`, `{"tags":["a"]}`, `{"tags":"a"}`, `[]`} {
		x := f.Seed(t, fixture.Columns{"raw_fields": fields})
		if err := f.SetExecutionTag(t.Context(), x, "app.set", "v"); err != nil {
			t.Errorf("%s: %v", fields, err)
		}
		if value, set, err := f.ExecutionTag(t.Context(), x, "app.set"); value != "v" || !set || err != nil {
			t.Errorf("%s: tag %q, %t, %v", fields, value, set, err)
		}
	}
}

func TestListExecutions(t *testing.T) {
	f := fixture.NewCloned(t)
	// Of a lane whose partition has neighbours that are others of the test's.
	for p := int16(0); p < 1 || p > 252; p = (id.Partitions{}).LanePartition(f.Lane) {
		f.Lane += "x"
	}
	var ids []id.ExecutionID
	for range 5 {
		ids = append(ids, f.Create(t))
	}
	partition := ids[0].Partition()
	for _, other := range []int16{0, partition + 1, 255} {
		x := id.ExecutionIDFromRow(other, ids[0].UUID())
		f.Create(t, func(spec *engine.ExecutionSpec) { spec.ID = x })
		ids = append(ids, x)
	}
	greatest := id.ExecutionIDFromRow(partition, id.ExecutionUUID(slices.Repeat([]byte{255}, 16)))
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.ID = greatest })
	ids = append(ids, greatest)
	slices.SortFunc(ids, id.ExecutionID.Compare)
	within := slices.DeleteFunc(slices.Clone(ids), func(x id.ExecutionID) bool { return x.Partition() != partition })

	for _, c := range []struct {
		filter engine.ExecutionFilter
		want   []id.ExecutionID
	}{
		{engine.ExecutionFilter{}, ids},
		{engine.ExecutionFilter{Partition: new(int(partition))}, within},
		{engine.ExecutionFilter{Partition: new(0)}, ids[:1]},
		{engine.ExecutionFilter{Partition: new(255)}, ids[len(ids)-1:]},
		{engine.ExecutionFilter{Partition: new(int(partition) + 2)}, nil},
	} {
		for _, limit := range []int{1, 2, len(c.want), len(c.want) + 1, 0, 1 << 40} {
			var got []id.ExecutionID
			for after, pages := "", 1; ; pages++ {
				page, err := f.ListExecutions(t.Context(), c.filter, after, limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range page.Items {
					got = append(got, x.ID)
				}
				if after = page.Next; after == "" {
					if most := max(1, (len(c.want)+limit-1)/max(limit, 1)); limit > 0 && pages > most {
						t.Errorf("limit %d: %d pages for %d", limit, pages, len(c.want))
					}
					break
				}
				if len(page.Items) != limit {
					t.Errorf("limit %d: a page of %d, and another", limit, len(page.Items))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("limit %d: listed %v, want %v", limit, got, c.want)
			}
		}
		var walked []id.ExecutionID
		for x, err := range f.Executions(t.Context(), c.filter) {
			if err != nil {
				t.Fatal(err)
			}
			walked = append(walked, x.ID)
		}
		if !slices.Equal(walked, c.want) {
			t.Errorf("walked through %v, want %v", walked, c.want)
		}
	}
	for range f.Executions(t.Context(), engine.ExecutionFilter{}) {
		break // nothing is held open
	}
}

func TestListExecutionsDescribesEach(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>b")
	f.Succeed(t, flow, "a")
	f.SetExecution(t, f.NodeID(flow, "b"), "lease_reclaim_count = 2")
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Kind, spec.DelayUntil = "other", fixture.Start.Add(time.Hour) })
	want := map[id.ExecutionID]engine.ExecutionSummary{
		f.NodeID(flow, "a"): {Flow: &flow, Node: "a", Kind: "test", State: state.PublicCompleted, Outcome: state.OutcomeSuccess, EndedAt: f.Time()},
		f.NodeID(flow, "b"): {Flow: &flow, Node: "b", Kind: "test", State: state.PublicWaiting, Outcome: state.OutcomeNone, LeasesLost: 2},
		x:                   {Kind: "other", State: state.PublicDelayed, Outcome: state.OutcomeNone},
	}
	page, err := f.ListExecutions(t.Context(), engine.ExecutionFilter{}, "", 0)
	if err != nil || len(page.Items) != len(want) {
		t.Fatal(page, err)
	}
	for _, got := range page.Items {
		w := want[got.ID]
		w.ID, w.Namespace, w.Lane, w.CreatedAt = got.ID, "default", f.Lane, fixture.Start
		if !reflect.DeepEqual(got, w) {
			t.Errorf("listed %+v, want %+v", got, w)
		}
	}
	f.SetExecution(t, x, "public_state = 'bogus'")
	page, err = f.ListExecutions(t.Context(), engine.ExecutionFilter{}, "", 0)
	if err != nil || len(page.Items) != len(want) {
		t.Fatal(page, err)
	}
	for _, got := range page.Items {
		if got.ID == x {
			fixture.WantCorruption(t, got.Err, "ff_exec_core.public_state")
		} else if got.Err != nil {
			t.Errorf("a neighbour has the error %v", got.Err)
		}
	}
}

// The lists show the failure of an ended execution, cut between characters, and none of a retried or cancelled one.
func TestListExecutionsShowsFailures(t *testing.T) {
	f := fixture.NewCloned(t)
	want := make(map[id.ExecutionID]string)
	for _, c := range []struct {
		failure engine.Failure
		want    string
	}{
		{engine.Failure{Message: "no route", Class: policy.Permanent}, "no route"},
		{engine.Failure{Message: "x" + strings.Repeat("ü", 600), Class: policy.Permanent}, "x" + strings.Repeat("ü", 511)},
		{engine.Failure{Message: "busy", Class: policy.Transient}, ""},
	} {
		l := f.Start(t).Lease
		f.Fail(t, l, c.failure)
		want[l.Execution] = c.want
	}
	cancelled := f.Start(t).Lease.Execution
	f.Cancel(t, cancelled)
	want[cancelled] = ""
	for _, filter := range []engine.ExecutionFilter{{}, {Lane: f.Lane}} {
		page, err := f.ListExecutions(t.Context(), filter, "", 0)
		if err != nil || len(page.Items) != len(want) {
			t.Fatal(page, err)
		}
		for _, x := range page.Items {
			if x.Failure != want[x.ID] || x.Err != nil {
				t.Errorf("%+v: listed %s with the failure %q, want %q", filter, x.State, x.Failure, want[x.ID])
			}
			why, err := explain.Execution(t.Context(), f.Engine, x.ID)
			if err != nil || why.Execution.Failure != x.Failure || why.Execution.Namespace != x.Namespace {
				t.Errorf("explained as %+v, %v, but listed as %+v", why.Execution, err, x)
			}
		}
	}
}

func TestListExecutionsPageIsBounded(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, `INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state,
		public_state, attempt_state, created_at_ms)
		SELECT i % 256, gen_random_uuid(), 'bulk', 'terminal', 'unowned', 'not_applicable', 'completed', 'attempt_terminal', 0
		FROM generate_series(1, $1::integer) AS i`, engine.MaxPage+1)
	page, err := f.ListExecutions(t.Context(), engine.ExecutionFilter{}, "", engine.MaxPage+1)
	if err != nil || len(page.Items) != engine.MaxPage || page.Next == "" {
		t.Errorf("%d items, next %q, %v; want %d and more", len(page.Items), page.Next, err, engine.MaxPage)
	}
	count := 0
	for range f.Executions(t.Context(), engine.ExecutionFilter{}) {
		count++
	}
	if count != engine.MaxPage+1 {
		t.Errorf("walked through %d, want %d", count, engine.MaxPage+1)
	}
}

func TestListLanes(t *testing.T) {
	f := fixture.NewCloned(t)
	// Byte order, in any collation of the database.
	var want []engine.LaneSummary
	for _, lane := range []id.LaneID{"B", "Z", "_", "a", "b"} {
		want = append(want, engine.LaneSummary{ID: lane, Waiting: engine.Count{N: 1}, WaitingSince: fixture.Start})
	}
	for _, lane := range []id.LaneID{"b", "_", "Z", "a", "B"} {
		f.Create(t, func(spec *engine.ExecutionSpec) { spec.Lane = lane })
	}
	var cursors []string
	for _, limit := range []int{1, 2, 5, 6, 0} {
		var got []engine.LaneSummary
		for after := ""; ; {
			page, err := f.ListLanes(t.Context(), engine.LaneFilter{}, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, page.Items...)
			if after = page.Next; after == "" {
				break
			}
			cursors = append(cursors, after)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
	var walked []engine.LaneSummary
	for lane, err := range f.Lanes(t.Context(), engine.LaneFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		walked = append(walked, lane)
	}
	if !slices.Equal(walked, want) {
		t.Errorf("walked through %v, want %v", walked, want)
	}
	rows := fixture.All[struct {
		LaneID         string
		RegisteredAtMs int64
		RegisteredBy   string
	}](t, f.Pool, "SELECT * FROM ff_lane_registry WHERE lane_id = 'a'")
	if len(rows) != 1 || rows[0].RegisteredAtMs != fixture.Start.UnixMilli() || rows[0].RegisteredBy != "create_execution" {
		t.Errorf("stored %+v", rows)
	}
	f.Exec(t, "INSERT INTO ff_lane_registry VALUES ($1, 0, 'reference')", strings.Repeat("x", 65))
	_, err := f.ListLanes(t.Context(), engine.LaneFilter{}, cursors[3], 10)
	fixture.WantCorruption(t, err, "ff_lane_registry.lane_id")
}
