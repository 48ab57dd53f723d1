package operators

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// record records an action.
func record(t *testing.T, eng *engine.Engine, a operator.Action) {
	t.Helper()
	if err := operator.RecordAction(t.Context(), eng, a); err != nil {
		t.Fatal(err)
	}
}

// logged returns the log without the ids, which a test can't know.
func logged(t *testing.T, eng *engine.Engine, filter operator.LogFilter) []operator.LogEntry {
	t.Helper()
	entries := fixture.Listed(t, operator.Log(t.Context(), eng, filter))
	if !slices.IsSortedFunc(entries, func(a, b operator.LogEntry) int { return cmp.Compare(b.ID, a.ID) }) {
		t.Errorf("the newest is not the first: %v", entries)
	}
	for i := range entries {
		entries[i].ID = 0
	}
	return entries
}

func wantLog(t *testing.T, got []operator.LogEntry, want ...operator.LogEntry) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("logged\n%+v\nwant\n%+v", got, want)
	}
}

// An action is an event with the texts, at the database's time. With an execution it has its partition, namespace and instance
// tag, without one it is in partition 0. Empty texts are not stored.
func TestRecordActionWritesAnEvent(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) {
		spec.Namespace, spec.Tags = "team", map[string]string{"cairn.instance_id": "i-1"}
	})
	about := operator.Action{By: "Grace <g@example>", Name: "execution.move", Object: "images", Detail: "--to \"thumbnails\"", Execution: x}
	record(t, f.Engine, about)
	f.Advance(time.Second)
	record(t, f.Engine, operator.Action{By: "ada", Name: "limit.set"})
	for i, want := range []map[string]any{
		{
			"execution_id": x.UUID().String(), "event_type": "action", "occurred_at_ms": float64(fixture.Start.UnixMilli()),
			"partition_key": float64(x.Partition()), "namespace": "team", "instance_tag": "i-1",
			"details": map[string]any{"by": about.By, "action": about.Name, "object": about.Object, "detail": about.Detail},
		},
		{
			"execution_id": nil, "event_type": "action", "occurred_at_ms": float64(fixture.Start.UnixMilli() + 1000),
			"partition_key": 0.0, "namespace": nil, "instance_tag": nil,
			"details": map[string]any{"by": "ada", "action": "limit.set"},
		},
	} {
		got := fixture.StoredRow(t, f.Pool, "ff_operator_event", "details ->> 'by' = $1", []string{about.By, "ada"}[i])
		delete(got, "event_id")
		fixture.WantEqual(t, fmt.Sprint("event ", i), got, want)
	}
	wantLog(t, logged(t, f.Engine, operator.LogFilter{}),
		operator.LogEntry{At: fixture.Start.Add(time.Second).Local(), Type: state.OperatorEventAction, By: "ada", Action: "limit.set"},
		operator.LogEntry{At: fixture.Start.Local(), Type: state.OperatorEventAction, By: about.By, Action: about.Name, Object: about.Object, Detail: about.Detail, Execution: x},
	)
}

// In a caller's transaction the record commits or rolls back with the operation. A refusal leaves the transaction usable.
func TestRecordActionIsPartOfTheCallersTransaction(t *testing.T) {
	f := fixture.NewCloned(t)
	act := func(by string, commit bool) {
		tx := f.BeginTx(t)
		eng := f.WithTx(tx)
		absent := operator.Action{By: by, Name: "execution.cancel", Execution: id.NewExecutionID(f.Lane, id.Partitions{})}
		if err := operator.RecordAction(t.Context(), eng, absent); !errors.Is(err, fferr.ErrNotFound) {
			t.Errorf("an unknown execution: %v", err)
		}
		fixture.WantInputError(t, operator.RecordAction(t.Context(), eng, operator.Action{By: by}), "Name")
		if err := operator.PauseLane(t.Context(), eng, f.Lane, operator.LanePause{Reason: by}); err != nil {
			t.Fatal(err)
		}
		record(t, eng, operator.Action{By: by, Name: "lane.pause", Object: string(f.Lane)})
		if got := logged(t, eng, operator.LogFilter{By: by}); len(got) != 1 {
			t.Errorf("the transaction sees %v of its own", got)
		}
		if got := logged(t, f.Engine, operator.LogFilter{By: by}); len(got) != 0 {
			t.Errorf("another sees %v before the commit", got)
		}
		if commit {
			fixture.Commit(t, tx)
		} else if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	act("ada", false)
	if lanes, entries := fixture.Listed(t, operator.PausedLanes(t.Context(), f.Engine)), logged(t, f.Engine, operator.LogFilter{}); len(lanes)+len(entries) != 0 {
		t.Errorf("rolled back, yet paused are %v, and %v is logged", lanes, entries)
	}
	act("grace", true)
	if lanes, entries := fixture.Listed(t, operator.PausedLanes(t.Context(), f.Engine)), logged(t, f.Engine, operator.LogFilter{}); len(lanes) != 1 || len(entries) != 1 || entries[0].By != "grace" {
		t.Errorf("paused are %v, and %v is logged", lanes, entries)
	}
}

// Refusals name the field, and write nothing.
func TestRecordActionRefusesImpossibleActions(t *testing.T) {
	f := fixture.NewCloned(t)
	whole := operator.Action{
		By: strings.Repeat("ü", 128), Name: strings.Repeat("n", 64), Object: strings.Repeat("o", 1024), Detail: strings.Repeat("d", 4096),
	}
	for field, texts := range map[string][]string{
		"By":     {"", whole.By + "b", "a\x00b", "a\xffb"},
		"Name":   {"", whole.Name + "n", "a\x00b", "a\xffb"},
		"Object": {whole.Object + "o", "a\x00b", "a\xffb"},
		"Detail": {whole.Detail + "d", "a\x00b", "a\xffb"},
	} {
		for _, text := range texts {
			a := whole
			*map[string]*string{"By": &a.By, "Name": &a.Name, "Object": &a.Object, "Detail": &a.Detail}[field] = text
			err := operator.RecordAction(t.Context(), f.Engine, a)
			fixture.WantInputError(t, err, field)
			if len(text) > 4096 && !strings.Contains(err.Error(), "4097 bytes, limit 4096") {
				t.Errorf("the limit is not in %q", err)
			}
		}
	}
	a := whole
	a.Execution = id.ExecutionIDFromRow(-1, id.NewExecutionUUID())
	fixture.WantInputError(t, operator.RecordAction(t.Context(), f.Engine, a), "execution id")
	a.Execution = id.NewExecutionID(f.Lane, id.Partitions{})
	if missing, ok := errors.AsType[*fferr.NotFoundError](operator.RecordAction(t.Context(), f.Engine, a)); !ok || missing.ID != a.Execution.String() {
		t.Errorf("an unknown execution: %v", missing)
	}
	if got := logged(t, f.Engine, operator.LogFilter{}); len(got) != 0 {
		t.Errorf("logged %v", got)
	}
	record(t, f.Engine, whole)
	if got := logged(t, f.Engine, operator.LogFilter{By: whole.By}); len(got) != 1 || got[0].Detail != whole.Detail {
		t.Errorf("logged %v", got)
	}
}

// The log also has the calls whose events have no name of a person, in words.
func TestLogHasTheOlderTypes(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	if err := operator.Prioritize(t.Context(), f.Engine, f.Create(t), 5); err != nil {
		t.Fatal(err)
	}
	l := f.ClaimOne(t).Lease
	f.Fixture.Fail(t, l, fixture.ForGood)
	f.Replay(t, l.Execution)
	flow := f.Draw(t, nil, "a", "b")
	for _, reason := range []string{"a whim", ""} {
		if _, err := f.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: flow, Policy: state.CancelAll, Reason: reason}); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(kind state.OperatorEventType, detail string, x id.ExecutionID, flow *id.FlowID) operator.LogEntry {
		return operator.LogEntry{At: f.Time().Local(), Type: kind, Detail: detail, Execution: x, Flow: flow}
	}
	wantLog(t, logged(t, f.Engine, operator.LogFilter{}),
		entry("flow_cancel_requested", "cancel_all, 2 members: a whim", id.ExecutionID{}, &flow),
		entry("replayed", "replayed", l.Execution, nil),
		entry("priority_changed", "priority 0 -> 5", l.Execution, nil),
	)
}

// An unreadable entry has an error. The others are listed, and entries of an unknown type with their details.
func TestLogListsUnreadableEntries(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, "ALTER TABLE ff_operator_event DROP CONSTRAINT ff_operator_event_event_type_check")
	const someID = "00000000-0000-4000-8000-000000000001"
	execution, err := id.ParseExecutionUUID(someID)
	if err != nil {
		t.Fatal(err)
	}
	x := id.ExecutionIDFromRow(7, execution)
	for _, c := range []struct {
		execution, kind, details string
		partition                int
		want                     operator.LogEntry
		column                   string
	}{
		{someID, "action", `{"by": 7}`, 7, operator.LogEntry{Execution: x}, "details"},
		{someID, "priority_changed", `{"old_priority": "high"}`, 7, operator.LogEntry{Execution: x}, "details"},
		{"x", "action", `{"by": "ada", "action": "a"}`, 7, operator.LogEntry{By: "ada", Action: "a"}, "execution_id"},
		{"x", "flow_cancel_requested", `{"cancellation_policy": "cancel_all", "member_count": 1}`, 7, operator.LogEntry{Detail: "cancel_all, 1 members"}, "execution_id"},
		{someID, "replayed", `{}`, math.MaxInt16 + 1, operator.LogEntry{Detail: "replayed"}, "partition_key"},
		{someID, "replayed", `{"branch": "skipped_flow_member", "groups_reset": 2}`, 7, operator.LogEntry{Execution: x, Detail: "replayed a skipped member, 2 groups reset"}, ""},
		{someID, "promoted", `{"to": "king"}`, 7, operator.LogEntry{Execution: x, Detail: `{"to": "king"}`}, ""},
		{someID, "action", `null`, 7, operator.LogEntry{Execution: x}, ""},
	} {
		f.Exec(t, "DELETE FROM ff_operator_event")
		f.Exec(t, "INSERT INTO ff_operator_event (execution_id, event_type, details, occurred_at_ms, partition_key) VALUES ($1, $2, $3::text::jsonb, 0, $4)",
			c.execution, c.kind, c.details, c.partition)
		record(t, f.Engine, operator.Action{By: "grace", Name: "a"})
		got := logged(t, f.Engine, operator.LogFilter{})
		if len(got) != 2 || got[0].By != "grace" {
			t.Fatalf("%s %s: got %v", c.kind, c.details, got)
		}
		if corruption, ok := errors.AsType[*fferr.CorruptionError](got[1].Err); ok != (c.column != "") || ok && corruption.Column != "ff_operator_event."+c.column {
			t.Errorf("%s %s: got %v", c.kind, c.details, got[1].Err)
		}
		c.want.At, c.want.Type, got[1].Err = time.UnixMilli(0), state.OperatorEventType(c.kind), nil
		wantLog(t, got[1:], c.want)
	}
}

// Pages continue where the last one ended, whatever was recorded in the meantime.
func TestLogCursorSurvivesInserts(t *testing.T) {
	f := fixture.NewCloned(t)
	next := 0
	write := func() {
		record(t, f.Engine, operator.Action{By: "ada", Name: fmt.Sprint(next)})
		next++
	}
	for range 10 {
		write()
	}
	var got []string
	for after := ""; ; {
		page, err := operator.ListLog(t.Context(), f.Engine, operator.LogFilter{}, after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Items {
			got = append(got, entry.Action)
		}
		if after = page.Next; after == "" {
			break
		}
		write()
	}
	if want := strings.Fields("9 8 7 6 5 4 3 2 1 0"); !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	page, err := operator.ListLog(t.Context(), f.Engine, operator.LogFilter{By: "ada"}, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []string{page.Next, "x"} {
		_, err := operator.ListLog(t.Context(), f.Engine, operator.LogFilter{}, after, 1)
		fixture.WantInputError(t, err, "after")
	}
}

// A filter examines a bounded number of entries for a page, which may be empty, and finds all entries.
func TestLogFiltersExamineABoundedNumber(t *testing.T) {
	f := fixture.NewCloned(t)
	x, other := f.Create(t), f.Create(t)
	record(t, f.Engine, operator.Action{By: "ada", Name: "first", Execution: x})
	record(t, f.Engine, operator.Action{By: "adam", Name: "another", Execution: other})
	f.Exec(t, `INSERT INTO ff_operator_event (event_type, details, occurred_at_ms, partition_key)
		SELECT 'action', '{"by": "a robot", "action": "a"}', 0, 0 FROM generate_series(1, $1::integer)`, 2*engine.MaxExamined)
	record(t, f.Engine, operator.Action{By: "ada", Name: "last", Execution: x})
	for _, filter := range []operator.LogFilter{{Execution: x}, {By: "ada"}, {Execution: x, By: "ada"}} {
		var got []string
		pages := 0
		for after := ""; ; {
			page, err := operator.ListLog(t.Context(), f.Engine, filter, after, 10)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			for _, entry := range page.Items {
				got = append(got, entry.Action)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if want := []string{"last", "first"}; !slices.Equal(got, want) || pages != 3 {
			t.Errorf("%+v: listed %q on %d pages, want %q on 3", filter, got, pages, want)
		}
	}
	if got := logged(t, f.Engine, operator.LogFilter{Execution: other, By: "ada"}); len(got) != 0 {
		t.Errorf("an entry that matches only one field is listed: %v", got)
	}
	for field, filter := range map[string]operator.LogFilter{
		"By": {By: strings.Repeat("b", 257)}, "execution id": {Execution: id.ExecutionIDFromRow(-1, id.NewExecutionUUID())},
	} {
		_, err := operator.ListLog(t.Context(), f.Engine, filter, "", 0)
		fixture.WantInputError(t, err, field)
	}
	_, err := operator.ListLog(t.Context(), f.Engine, operator.LogFilter{}, "", -1)
	fixture.WantInputError(t, err, "limit")
}

// A page reads few pages of the database, whatever the planner knows: the newest hundred of 20,000 entries, and a filter
// that matches none of the examined ones.
func TestLogReadsFewBuffers(t *testing.T) {
	p := fixture.NewPlanner(t)
	check := func(situation string) {
		t.Helper()
		const newest = int64(math.MaxInt64)
		x := id.NewExecutionUUID().String()
		for _, c := range []struct {
			what string
			most int
			args []any
		}{
			{"the newest", 20, []any{newest, 101, "", 0, "", 101}},
			{"of an execution", 600, []any{newest, engine.MaxExamined, x, 7, "", 101}},
			{"of a person", 600, []any{newest, engine.MaxExamined, "", 0, "nobody", 101}},
		} {
			n := p.Buffers(t, "ListOperatorEvents", c.args...)
			t.Logf("%s: %s: %d buffers", situation, c.what, n)
			if n > c.most {
				t.Errorf("%s: %s: %d buffers, at most %d are allowed", situation, c.what, n, c.most)
			}
		}
	}
	record(t, p.Engine, operator.Action{By: "ada", Name: "a"})
	p.Analyze(t)
	p.Exec(t, `INSERT INTO ff_operator_event (event_type, details, occurred_at_ms, partition_key)
		SELECT 'action', '{"by": "a robot", "action": "lane.pause", "object": "images"}', 0, i % 256 FROM generate_series(1, 20000) AS i`)
	check("analysed with one entry")
	p.Forget(t)
	check("never analysed")
	p.Analyze(t)
	check("analysed")
	p.Maintain(t, "VACUUM")
	check("vacuumed")
}
