package upkeep

import (
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// An end negates the deadline. A replay by FlowFabric makes it unknown, so that the column that FlowFabric knows counts
// again. A replay by this library keeps the deadline, even within the millisecond of the end.
func TestUndoneEndHasNoNegativeDeadline(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	deadline := f.Time().Add(time.Hour)
	due := func(spec *engine.ExecutionSpec) { spec.Deadline = deadline }
	end := func() engine.Claimed {
		t.Helper()
		c := f.Start(t, due)
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
		if got := f.Stored(t, c.ID); *got.LastDeadline != -deadline.UnixMilli() {
			t.Fatalf("an end stores the deadline %d", *got.LastDeadline)
		}
		return c
	}

	foreign := end()
	f.SetExecution(t, foreign.ID, "result = NULL") // changes no deadline
	if got := f.Stored(t, foreign.ID); *got.LastDeadline != -deadline.UnixMilli() {
		t.Errorf("another write of an ended execution leaves the deadline %d", *got.LastDeadline)
	}
	f.SetExecution(t, foreign.ID, `lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_replay_attempt', attempt_index = attempt_index + 1, terminal_at_ms = NULL`)
	if got := f.Stored(t, foreign.ID); got.LastDeadline != nil {
		t.Errorf("an undone end leaves the deadline %d", *got.LastDeadline)
	}
	if got := f.Describe(t, foreign.ID).Deadline; !got.Equal(deadline) {
		t.Errorf("its deadline is read as %v, want %v", got, deadline)
	}
	c := f.ClaimOne(t)
	if got := f.Stored(t, c.ID); c.ID != foreign.ID || *got.DeadlineAtMs != deadline.UnixMilli() || got.LastDeadline != nil && *got.LastDeadline < 0 {
		t.Errorf("claimed %s with the deadline %v, %v", c.ID, got.DeadlineAtMs, got.LastDeadline)
	}

	own := end()
	if _, err := f.Operator().ReplayExecution(t.Context(), own.ID, engine.ReplayCompleted); err != nil {
		t.Fatal(err)
	}
	if got := f.Stored(t, own.ID); *got.LastDeadline != deadline.UnixMilli() {
		t.Errorf("a replay by this library stores the deadline %v", got.LastDeadline)
	}
}

// repeated returns the two columns that repeat the document.
func repeated(t *testing.T, f *fixture.Fixture, x id.ExecutionID) string {
	t.Helper()
	return fixture.Texts(t, f.Pool, `SELECT concat_ws(' ', coalesce(ffx_namespace, 'NULL'), coalesce(ffx_instance_tag, 'NULL'))
		FROM ff_exec_core WHERE execution_id = $1`, x.UUID())[0]
}

// The columns that repeat the document follow each write of this library, in either kind of database.
func TestNamespaceAndTagColumnsFollowThisLibrary(t *testing.T) {
	f := fixture.NewCloned(t)
	check := func(name string) {
		t.Helper()
		spec := engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Namespace: "tenant", Tags: map[string]string{"cairn.instance_id": "i-1"}}
		other := engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Tags: map[string]string{"app.other": "x"}}
		alone, err := f.CreateExecution(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		delayed := spec
		delayed.DelayUntil = f.Time().Add(time.Hour)
		specs := []engine.ExecutionSpec{delayed, other}
		several, err := f.CreateExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		specs = nil
		for range 20 { // alike, with documents of their own
			specs = append(specs, spec, other)
		}
		alike, err := f.CreateExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		same, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{
			spec, spec, spec, spec, spec, spec, spec, spec, spec, spec, spec, spec,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			x    engine.Created
			want string
		}{
			{alone, "tenant i-1"},
			{several[0].Value, "tenant i-1"},
			{several[1].Value, "default NULL"},
			{alike[0].Value, "tenant i-1"},
			{alike[39].Value, "default NULL"},
			{same[11].Value, "tenant i-1"},
		} {
			if got := repeated(t, f, c.x.ID); got != c.want {
				t.Errorf("%s: created with %q, want %q", name, got, c.want)
			}
		}
		for _, tag := range []struct{ key, value, want string }{
			{"app.other", "y", "tenant i-1"}, {"cairn.instance_id", "i-2", "tenant i-2"},
		} {
			if err := f.SetExecutionTag(t.Context(), alone.ID, tag.key, tag.value); err != nil {
				t.Fatal(err)
			}
			if got := repeated(t, f, alone.ID); got != tag.want {
				t.Errorf("%s: after %s: %q, want %q", name, tag.key, got, tag.want)
			}
		}
	}
	check("alone")
	f.Share(t)
	check("shared")
}

// The triggers fill the columns in for FlowFabric, at most a kilobyte of each; Share does for the rows from before it.
func TestNamespaceAndTagColumnsFollowFlowFabric(t *testing.T) {
	f := fixture.NewCloned(t)
	seed := func() id.ExecutionID {
		return f.Seed(t, fixture.Columns{"raw_fields": `{"namespace":"tenant","tags":{"cairn.instance_id":"i-1"}}`})
	}
	before := seed()
	f.Share(t)
	if got := repeated(t, f, before); got != "tenant i-1" {
		t.Errorf("from before: %q", got)
	}
	x := seed()
	if got := repeated(t, f, x); got != "tenant i-1" {
		t.Errorf("inserted: %q", got)
	}
	f.SetExecution(t, x, `raw_fields = jsonb_set(raw_fields, '{tags,cairn.instance_id}', '"i-2"')`)
	if got := repeated(t, f, x); got != "tenant i-2" {
		t.Errorf("tagged: %q", got)
	}
	f.SetExecution(t, x, `raw_fields = jsonb_build_object('namespace', repeat('ä', 600), 'tags', jsonb_build_object('cairn.instance_id', repeat('x', 1025)))`)
	if got, want := repeated(t, f, x), strings.Repeat("ä", 512)+" "+strings.Repeat("x", 1024); got != want {
		t.Errorf("long ones: %d bytes, want %d", len(got), len(want))
	}
}

// A database that only this library uses looks for no other writer: what looks like FlowFabric's is left alone, and no
// statement beside the usual ones looks for it. Once the database is shared, the same engine adopts and repairs.
func TestSharingIsNoticedWhileRunning(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Seed(t, nil)
	half := f.Create(t)
	f.SetExecution(t, half, "lifecycle_phase = 'eligible'")
	due := func() (engine.JobsTaken, bool) {
		t.Helper()
		taken, err := f.Maintenance().TakeJobs(t.Context(), engine.JobSpec{
			Holder: "holder", Hold: time.Minute, Jobs: []engine.Job{engine.JobAdopt},
		})
		if err != nil {
			t.Fatal(err)
		}
		return taken, !taken.Jobs[engine.JobAdopt].Due.IsZero()
	}

	for _, shared := range []bool{false, true, false} {
		want := 0
		if shared {
			f.Share(t)
			want = 1
		}
		if taken, adopts := due(); taken.Shared != shared || adopts != shared {
			t.Errorf("shared %v: reported as %v, adopts %v", shared, taken.Shared, adopts)
		}
		if n := f.AdoptAll(t); n != want {
			t.Errorf("shared %v: adopted %d", shared, n)
		}
		if n := f.Repair(t, 100); n != want {
			t.Errorf("shared %v: repaired %d", shared, n)
		}
		if shared {
			f.WantState(t, x, fixture.StateReady)
			f.WantState(t, half, fixture.StateReady)
			if _, err := schema.Unshare(t.Context(), f.Url, schema.Options{}); err != nil {
				t.Fatal(err)
			}
			f.Seed(t, nil)
		}
	}
}
