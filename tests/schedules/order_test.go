package schedules

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func unique(s *schedule.Spec) {
	s.Execution.Unique = &engine.Unique{IfTaken: engine.CancelExisting}
}

// otherwise returns an execution with the same key that no schedule creates, on another lane.
func otherwise(f *fixture.Fixture) engine.ExecutionSpec {
	spec := every(f, "s", time.Minute, unique).Execution
	spec.Lane += "-other"
	return spec
}

// A tick of unique work is skipped while an execution has its key, even one that no schedule created, and never cancels it.
func TestUniqueTickIsSkipped(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, unique))
	if s := describe(t, f, "s"); len(s.Tags) != 0 {
		t.Errorf("tags %v", s.Tags)
	}
	tick := func(outcome schedule.Outcome, created string) {
		t.Helper()
		f.Advance(time.Minute)
		run(t, f, 1)
		wantCreated(t, f, created)
		if got := describe(t, f, "s").Last; got.Outcome != outcome {
			t.Errorf("%+v, want %s", got, outcome)
		}
	}
	tick(schedule.TickCreated, "1m0s")
	first := describe(t, f, "s").Last.Execution
	tick(schedule.TickSkipped, "1m0s")
	if last := describe(t, f, "s").Last.Execution; last != first {
		t.Errorf("the last execution is %s, want %s", last, first)
	}
	if x, err := schedule.Trigger(t.Context(), f.Engine, s); err != nil || x != first {
		t.Errorf("triggered %s, %v; want %s, which is in the way", x, err, first)
	}
	cancel(t, f, first)
	tick(schedule.TickCreated, "1m0s 3m0s")
	second := describe(t, f, "s").Last.Execution
	cancel(t, f, second)
	created, err := f.CreateExecution(t.Context(), otherwise(f))
	if err != nil || created.Duplicate {
		t.Fatal(created, err)
	}
	tick(schedule.TickSkipped, "1m0s 3m0s")
}

// A schedule whose key another transaction is taking waits for it alone: other schedules go on, and no tick is lost.
func TestUniqueTickWaitsForItsKeyAlone(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(map[bool]string{true: "commits", false: "rolls back"}[commits], func(t *testing.T) {
			f := fixture.NewCloned(t)
			set(t, f, every(f, "s", time.Minute, unique))
			set(t, f, every(f, "other", time.Minute))
			tx := f.BeginTx(t)
			created, err := f.WithTx(tx).CreateExecution(t.Context(), otherwise(f))
			if err != nil || created.Duplicate {
				t.Fatal(created, err)
			}
			f.Advance(time.Minute)
			run(t, f, 2)
			wantCreated(t, f, "1m0s")
			if got := describe(t, f, "s"); got.Last.Outcome != "" {
				t.Errorf("acted: %+v", got.Last)
			}
			f.End(t, tx, commits)
			f.Advance(time.Second)
			run(t, f, 1)
			want, ticks := schedule.TickCreated, "1m0s 1m0s"
			if commits {
				want, ticks = schedule.TickSkipped, "1m0s"
			}
			wantCreated(t, f, ticks)
			if got := describe(t, f, "s"); got.Last.Outcome != want {
				t.Errorf("%+v, want %s", got.Last, want)
			}
		})
	}
}

// The executions of a schedule's ticks wait for each other in a sequence, and for others that are in it.
func TestTicksOfASequence(t *testing.T) {
	f := fixture.NewCloned(t)
	inSequence := func(s *schedule.Spec) {
		s.Execution.Sequence = engine.Sequence{Key: "k", OnFailure: engine.SequenceSkips}
	}
	set(t, f, every(f, "s", time.Minute, inSequence))
	for _, want := range []state.PublicState{state.PublicWaiting, state.PublicWaitingChildren} {
		f.Advance(time.Minute)
		run(t, f, 1)
		x, err := f.DescribeExecution(t.Context(), describe(t, f, "s").Last.Execution)
		if err != nil {
			t.Fatal(err)
		}
		if x.State.Public != want || x.Sequence == nil || x.Sequence.Key != "k" || x.Sequence.OnFailure != engine.SequenceSkips {
			t.Errorf("%s in %+v, want %s", x.State.Public, x.Sequence, want)
		}
	}
}

// A schedule whose sequence another transaction has locked waits for it alone.
func TestTickWaitsForItsSequenceAlone(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) { s.Execution.Sequence.Key = "k" }))
	set(t, f, every(f, "other", time.Minute))
	spec := otherwise(f)
	spec.Unique, spec.Sequence = nil, engine.Sequence{Key: "k"}
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).CreateExecution(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Minute)
	run(t, f, 2)
	wantCreated(t, f, "1m0s")
	f.End(t, tx, true)
	f.Advance(time.Second)
	run(t, f, 1)
	wantCreated(t, f, "1m0s 1m0s")
}

// The execution in the way of a unique tick, or of a trigger, does not become the schedule's last one: the next tick doesn't
// cancel it.
func TestExecutionInTheWayIsNotTheLastOne(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, unique, func(s *schedule.Spec) { s.Overlap = schedule.OverlapCancel }))
	foreign, err := f.CreateExecution(t.Context(), otherwise(f))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f.Advance(time.Minute)
		run(t, f, 1)
		if x, err := schedule.Trigger(t.Context(), f.Engine, schedule.Name{Name: "s"}); err != nil || x != foreign.ID {
			t.Errorf("triggered %s, %v; want %s", x, err, foreign.ID)
		}
	}
	x, err := f.DescribeExecution(t.Context(), foreign.ID)
	if err != nil || x.State.Public != state.PublicWaiting {
		t.Errorf("%s, error %v", x.State.Public, err)
	}
}
