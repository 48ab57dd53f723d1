package tests

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func TestReads_of_a_missing_execution(t *testing.T) {
	f := newFixture(t)
	x := id.NewExecutionID(f.lane, id.Partitions{})
	ctx := t.Context()
	t.Run("describe_execution_missing_returns_none", func(t *testing.T) {
		if got, err := f.DescribeExecution(ctx, x); got != nil || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("read_execution_state_missing_returns_none", func(t *testing.T) {
		if got, err := f.ExecutionState(ctx, x); got != "" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("get_execution_result_missing_returns_none", func(t *testing.T) {
		if got, err := f.ExecutionResult(ctx, x); got != nil || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("flow, namespace and tag", func(t *testing.T) {
		if got, err := f.ExecutionFlow(ctx, x); got != nil || err != nil {
			t.Errorf("flow %v, %v", got, err)
		}
		if got, err := f.ExecutionNamespace(ctx, x); got != "" || err != nil {
			t.Errorf("namespace %q, %v", got, err)
		}
		if got, set, err := f.ExecutionTag(ctx, x, "app.tenant"); got != "" || set || err != nil {
			t.Errorf("tag %q, %t, %v", got, set, err)
		}
	})
	t.Run("what a caller needs is not found", func(t *testing.T) {
		_, input := f.ExecutionInput(ctx, x)
		_, index := f.AttemptIndex(ctx, x)
		for _, err := range []error{input, index, f.SetExecutionTag(ctx, x, "app.tenant", "v")} {
			missing, ok := errors.AsType[*engine.NotFoundError](err)
			if !errors.Is(err, engine.ErrNotFound) || !ok || missing.Entity != "execution" || missing.ID != x.String() {
				t.Errorf("got %v, want execution %s not found", err, x)
			}
		}
	})
}

func TestExecutionInput_without_payload(t *testing.T) {
	f := newFixture(t)
	input, err := f.ExecutionInput(t.Context(), f.seed(t, columns{"raw_fields": `{}`}))
	if err != nil || input.Payload == nil || len(input.Payload) != 0 || input.Kind != "" || len(input.Tags) != 0 {
		t.Errorf("input %#v, %v; want an empty payload, no kind, no tags", input, err)
	}
}

func TestExecutionResult(t *testing.T) {
	f := newFixture(t)
	result := func(x id.ExecutionID) []byte {
		got, err := f.ExecutionResult(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, given := range [][]byte{nil, {}, []byte("out")} {
		c := f.start(t)
		if got := result(c.Execution); got != nil {
			t.Errorf("get_execution_result_active_returns_none: got %q", got)
		}
		if err := f.CompleteExecution(t.Context(), c.Lease, given); err != nil {
			t.Fatal(err)
		}
		if got := result(c.Execution); !reflect.DeepEqual(got, given) {
			t.Errorf("get_execution_result_terminal_returns_payload: got %#v, want %#v", got, given)
		}
	}
}

func TestSetExecutionTag(t *testing.T) {
	f := newFixture(t)
	x := f.create(t, func(spec *engine.ExecutionSpec) { spec.Tags = map[string]string{"app.kept": "1"} })
	f.advance(time.Second)
	if err := f.SetExecutionTag(t.Context(), x, "app.set", "2"); err != nil {
		t.Fatal(err)
	}
	if err := f.SetExecutionTag(t.Context(), x, "app.set", "3"); err != nil {
		t.Fatal(err)
	}
	got := f.describe(t, x)
	if want := map[string]string{"app.kept": "1", "app.set": "3"}; !maps.Equal(got.Tags, want) || !got.LastMutationAt.Equal(f.now()) {
		t.Errorf("tags %v at %v, want %v", got.Tags, got.LastMutationAt, want)
	}
	if value, set, err := f.ExecutionTag(t.Context(), x, "app.set"); value != "3" || !set || err != nil {
		t.Errorf("tag %q, %t, %v", value, set, err)
	}
	if value, set, err := f.ExecutionTag(t.Context(), x, "app.other"); value != "" || set || err != nil {
		t.Errorf("tag that is not set: %q, %t, %v", value, set, err)
	}
	f.wantState(t, x, stateReady)
}

// The reference reports a tag as set that it could not write.
func TestE35_tag_is_set_where_there_are_no_tags(t *testing.T) {
	f := newFixture(t)
	for _, fields := range []string{`{}`, `{"tags":null}`, `{"tags":["a"]}`, `{"tags":"a"}`, `[]`} {
		x := f.seed(t, columns{"raw_fields": fields})
		if err := f.SetExecutionTag(t.Context(), x, "app.set", "v"); err != nil {
			t.Errorf("%s: %v", fields, err)
		}
		if value, set, err := f.ExecutionTag(t.Context(), x, "app.set"); value != "v" || !set || err != nil {
			t.Errorf("%s: tag %q, %t, %v", fields, value, set, err)
		}
	}
}

func TestListExecutions(t *testing.T) {
	f := cloneFixture(t)
	var ids []id.ExecutionID
	for range 5 {
		ids = append(ids, f.create(t))
	}
	slices.SortFunc(ids, id.ExecutionID.Compare)
	partition := ids[0].Partition()
	other := id.ExecutionIDFromRow(partition+1, ids[0].UUID())
	f.create(t, func(spec *engine.ExecutionSpec) { spec.ID = other })

	list := func(after id.ExecutionID, limit int) engine.Page[id.ExecutionID] {
		page, err := f.ListExecutions(t.Context(), partition, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	for _, c := range []struct {
		name  string
		after id.ExecutionID
		limit int
		want  engine.Page[id.ExecutionID]
	}{
		{"from the start", id.ExecutionID{}, 2, engine.Page[id.ExecutionID]{Items: ids[:2], More: true}},
		{"strictly after the cursor", ids[1], 2, engine.Page[id.ExecutionID]{Items: ids[2:4], More: true}},
		{"the last page", ids[2], 2, engine.Page[id.ExecutionID]{Items: ids[3:]}},
		{"beyond the end", ids[4], 2, engine.Page[id.ExecutionID]{Items: []id.ExecutionID{}}},
		{"more than there are", id.ExecutionID{}, 1 << 40, engine.Page[id.ExecutionID]{Items: ids}},
		{"none", id.ExecutionID{}, 0, engine.Page[id.ExecutionID]{}},
		{"after the greatest id", id.ExecutionIDFromRow(partition, id.ExecutionUUID(slices.Repeat([]byte{255}, 16))), 2,
			engine.Page[id.ExecutionID]{}},
	} {
		if got := list(c.after, c.limit); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	var walked []id.ExecutionID
	for x, err := range f.Executions(t.Context(), partition) {
		if err != nil {
			t.Fatal(err)
		}
		walked = append(walked, x)
	}
	if !slices.Equal(walked, ids) {
		t.Errorf("walked through %v, want %v", walked, ids)
	}
	for range f.Executions(t.Context(), partition) {
		break // nothing is held open
	}
}

func TestListExecutions_page_is_bounded(t *testing.T) {
	f := cloneFixture(t)
	f.exec(t, `INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state,
		public_state, attempt_state, created_at_ms)
		SELECT 7, gen_random_uuid(), 'bulk', 'terminal', 'unowned', 'not_applicable', 'completed', 'attempt_terminal', 0
		FROM generate_series(1, $1::integer)`, engine.MaxPage+1)
	page, err := f.ListExecutions(t.Context(), 7, id.ExecutionID{}, engine.MaxPage+1)
	if err != nil || len(page.Items) != engine.MaxPage || !page.More {
		t.Errorf("%d items, more %t, %v; want %d and more", len(page.Items), page.More, err, engine.MaxPage)
	}
	count := 0
	for range f.Executions(t.Context(), 7) {
		count++
	}
	if count != engine.MaxPage+1 {
		t.Errorf("walked through %d, want %d", count, engine.MaxPage+1)
	}
}

func TestListLanes(t *testing.T) {
	f := cloneFixture(t)
	// Byte order, whatever the database's collation.
	lanes := []id.LaneID{"B", "Z", "_", "a", "b"}
	for _, lane := range []id.LaneID{"b", "_", "Z", "a", "B"} {
		f.create(t, func(spec *engine.ExecutionSpec) { spec.Lane = lane })
	}
	for _, c := range []struct {
		after id.LaneID
		limit int
		want  engine.Page[id.LaneID]
	}{
		{"", 2, engine.Page[id.LaneID]{Items: lanes[:2], More: true}},
		{"Z", 2, engine.Page[id.LaneID]{Items: lanes[2:4], More: true}},
		{"a", 2, engine.Page[id.LaneID]{Items: lanes[4:]}},
		{"", 5, engine.Page[id.LaneID]{Items: lanes}},
		{"", 0, engine.Page[id.LaneID]{}},
	} {
		got, err := f.ListLanes(t.Context(), c.after, c.limit)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("after %q, limit %d: %+v, %v; want %+v", c.after, c.limit, got, err, c.want)
		}
	}
	rows := all[struct {
		LaneID         string
		RegisteredAtMs int64
		RegisteredBy   string
	}](t, f.pool, "SELECT * FROM ff_lane_registry WHERE lane_id = 'a'")
	if len(rows) != 1 || rows[0].RegisteredAtMs != start.UnixMilli() || rows[0].RegisteredBy != "create_execution" {
		t.Errorf("stored %+v", rows)
	}
	f.exec(t, "INSERT INTO ff_lane_registry VALUES ($1, 0, 'reference')", strings.Repeat("x", 65))
	if _, err := f.ListLanes(t.Context(), "b", 10); !errors.Is(err, engine.ErrCorruption) || !strings.Contains(err.Error(), "ff_lane_registry.lane_id") {
		t.Errorf("got %v, want corruption of ff_lane_registry.lane_id", err)
	}
}
