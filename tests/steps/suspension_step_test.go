package steps

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// suspend suspends an execution that is claimed, until the signal "approved".
func suspend(t *testing.T, f *fixture.Fixture, l engine.Lease, change ...func(*engine.SuspendSpec)) engine.Suspended {
	t.Helper()
	spec := engine.SuspendSpec{Lease: l, Condition: engine.Received("approved"), Step: "signal approved", StepSeq: 2}
	for _, c := range change {
		c(&spec)
	}
	suspended, err := f.Engine.Suspend(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return suspended
}

// storedSteps returns place, name, attempt, outcome and time of each step of an execution.
func storedSteps(t *testing.T, f *fixture.Fixture, x id.ExecutionID) string {
	t.Helper()
	return strings.Join(fixture.Texts(t, f.Pool, `
		SELECT concat_ws(' ', s.seq, s.name, s.attempt_index, s.outcome, s.ended_at_ms - s.started_at_ms)
		FROM ffx_step AS s
		WHERE s.execution_id = $1
		ORDER BY s.seq`, x.UUID()), ", ")
}

// The step of a wait begins with the wait and ends with it, also before a delayed resumption. It stays when the signals
// are deleted, and retention deletes it with its execution.
func TestStepOfASuspension(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	suspend(t, f, c.Lease, func(s *engine.SuspendSpec) { s.ResumeDelay = time.Second })
	f.Advance(5 * time.Second)
	if got := storedSteps(t, f, c.ID); got != "" {
		t.Errorf("%s during the wait", got)
	}
	if err := approved.Send(t.Context(), f.Engine, c.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	const want = "2 signal approved 0 signal 5000"
	if got := storedSteps(t, f, c.ID); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.Advance(25 * time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).SweepWaits, 1)
	if got := storedSteps(t, f, c.ID); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.Advance(engine.DefaultRetention)
	fixture.Run(t, upkeep.Of(f.Engine).Retain, 1)
	if got := storedSteps(t, f, c.ID); got != "" {
		t.Errorf("%s is left", got)
	}
}

// A wait without a step stores none, nor does one whose timeout ends the execution. A step that exists is kept.
func TestSuspensionsThatStoreNoStep(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*engine.SuspendSpec)
		before func(t *testing.T, f *fixture.Fixture, l engine.Lease)
		end    func(t *testing.T, f *fixture.Fixture, x id.ExecutionID)
		want   string
	}{
		"without a step": {change: func(s *engine.SuspendSpec) { s.Step, s.StepSeq = "", 0 }},
		"a timeout that ends it": {
			change: func(s *engine.SuspendSpec) { s.Timeout, s.OnTimeout = time.Second, engine.ExpireOnTimeout },
			end: func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) {
				f.Advance(time.Second)
				fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
			},
		},
		"a cancel": {
			end: func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
				if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a repeated step": {
			before: func(t *testing.T, f *fixture.Fixture, l engine.Lease) { record(t, f.Engine, l, "signal approved", 1) },
			want:   "1 signal approved 0 success 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			c := f.Start(t)
			if test.before != nil {
				test.before(t, f, c.Lease)
			}
			suspend(t, f, c.Lease, func(s *engine.SuspendSpec) {
				if test.change != nil {
					test.change(s)
				}
			})
			if test.end != nil {
				test.end(t, f, c.ID)
			} else if err := approved.Send(t.Context(), f.Engine, c.ID, "ada"); err != nil {
				t.Fatal(err)
			}
			if got := storedSteps(t, f, c.ID); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// Early signals end the wait in the transaction that suspends, and a repetition of the call changes nothing.
func TestStepOfAnEarlySignal(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	if err := approved.Send(t.Context(), f.Engine, c.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	wait := id.NewSuspensionID()
	for range 2 {
		if got := suspend(t, f, c.Lease, func(s *engine.SuspendSpec) { s.ID = wait }); !got.Satisfied {
			t.Errorf("%+v", got)
		}
		if got := storedSteps(t, f, c.ID); got != "2 signal approved 0 signal 0" {
			t.Error(got)
		}
	}
}

func TestStepOfASuspensionIsChecked(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	for field, specs := range map[string][]engine.SuspendSpec{
		"step": {{StepSeq: 1}, {Step: "a\x00"}, {Step: strings.Repeat("n", engine.MaxStepName+1)}},
		"seq":  {{Step: "a", StepSeq: -1}, {Step: "a", StepSeq: engine.MaxSteps}},
	} {
		for _, spec := range specs {
			spec.Lease, spec.Condition = c.Lease, engine.Received("approved")
			_, err := f.Engine.Suspend(t.Context(), spec)
			fixture.WantInputError(t, err, field)
		}
	}
}

// A stored result that is no JSON is corruption.
func TestSignalsOfADamagedStep(t *testing.T) {
	if _, err := (engine.Step{Outcome: engine.StepSignalled, Result: []byte("{")}).Signals(); !errors.Is(err, fferr.ErrCorruption) {
		t.Error(err)
	}
	if signals, err := (engine.Step{Outcome: engine.StepSucceeded, Result: []byte("{")}).Signals(); err != nil || signals != nil {
		t.Error(signals, err)
	}
}
