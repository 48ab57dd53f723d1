package views

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The view has the steps of an execution as Engine.Steps returns them, with a word for each outcome.
func TestViewOfSteps(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	record := func(step engine.StepRecord) {
		t.Helper()
		step.Lease = l
		if _, err := f.RecordStep(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	record(engine.StepRecord{Name: "charge", Result: []byte("secret"), Tries: 3, Error: "declined", Took: time.Second})
	record(engine.StepRecord{Name: "cool-off", Seq: 1, Outcome: engine.StepSlept, Result: []byte("7")})
	wait := func(seq int, name string) {
		t.Helper()
		f.SuspendAgain(t, l, engine.Received(name), func(s *engine.SuspendSpec) {
			s.Step, s.StepSeq, s.Timeout = "signal "+name, seq, time.Minute
		})
	}
	wait(2, "approved")
	f.Signal(t, l, "approved")
	l = f.ClaimOne(t).Lease
	wait(3, "rejected")
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
	l = f.ClaimOne(t).Lease
	if _, err := f.Call(t.Context(), engine.CallSpec{Lease: l, Name: "shout", Seq: 4, Executions: []engine.ExecutionSpec{{Kind: "shout"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.RecordStep(t.Context(), engine.StepRecord{
		Lease: l, Name: "sing", Seq: 5, Form: engine.FormCall, Outcome: engine.StepFailed, Result: []byte("[]"),
	}); err != nil {
		t.Fatal(err)
	}
	want, err := f.Steps(t.Context(), l.Execution)
	if err != nil {
		t.Fatal(err)
	}
	rows := fixture.All[db.FfxSteps](t, f.Pool, "SELECT * FROM ffx_steps ORDER BY seq")
	words := []string{"succeeded", "paused", "signalled", "timed out", "calling", "failed"}
	if len(rows) != len(words) || len(want) != len(words) {
		t.Fatalf("%d rows, %d steps, want %d", len(rows), len(want), len(words))
	}
	for i, row := range rows {
		s := want[i]
		if row.ID != l.Execution.String() || row.PartitionKey != l.Execution.Partition() || row.ExecutionID != l.Execution.UUID() ||
			int(row.Seq) != s.Seq || row.Name != s.Name || or(row.Outcome) != words[i] || int(row.Attempt) != s.Attempt ||
			int(row.Tries) != s.Tries || or(row.Error) != s.Error || !row.StartedAt.Equal(s.StartedAt) || !row.EndedAt.Equal(s.EndedAt) {
			t.Errorf("the view has %+v, the engine %+v", row, s)
		}
	}
	if columns := fixture.Texts(t, f.Pool, "SELECT attname FROM pg_attribute WHERE attrelid = 'ffx_steps'::regclass"); slices.Contains(columns, "result") {
		t.Error("the view has results")
	}
}
