package steps

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

func record(t *testing.T, e *engine.Engine, l engine.Lease, name string, seq int) engine.Recorded {
	t.Helper()
	recorded, err := e.RecordStep(t.Context(), engine.StepRecord{Lease: l, Name: name, Seq: seq, Result: []byte(name + "!")})
	if err != nil {
		t.Fatal(err)
	}
	return recorded
}

// wantSteps fails the test unless an execution has these steps.
func wantSteps(t *testing.T, e *engine.Engine, x id.ExecutionID, want ...string) {
	t.Helper()
	steps, err := e.StepResults(t.Context(), x)
	var got []string
	for _, s := range steps {
		got = append(got, s.Name+"="+string(s.Result))
	}
	if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("steps %q, want %q, error %v", got, want, err)
	}
}

// A step keeps its first result, also for the next holder.
func TestRecordStepRepeated(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	if got := record(t, f.Engine, c.Lease, "a", 0); got.Repeated || string(got.Result) != "a!" {
		t.Errorf("%+v", got)
	}
	again := engine.StepRecord{Lease: c.Lease, Name: "a", Seq: 3, Result: []byte("other")}
	got, err := f.RecordStep(t.Context(), again)
	if err != nil || !got.Repeated || string(got.Result) != "a!" {
		t.Errorf("%+v, error %v", got, err)
	}
	outcomes, err := f.RecordSteps(t.Context(), []engine.StepRecord{again, {Lease: c.Lease, Name: "b"}, {Lease: c.Lease, Name: "b", Result: []byte("twice")}})
	if err != nil || !outcomes[0].Value.Repeated || outcomes[1].Err != nil || outcomes[2].Err != nil || outcomes[1].Value.Repeated == outcomes[2].Value.Repeated {
		t.Errorf("%+v, error %v", outcomes, err)
	}
}

// A reclaim that is under way when a former holder stores a step wins: the step is refused once it is committed.
func TestFormerHolderStoresNothing(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "UPDATE ff_exec_core SET ffx_lease_epoch = ffx_lease_epoch + 1 WHERE execution_id = $1", c.ID.UUID())
	fixture.ExecIn(t, tx, "UPDATE ff_attempt SET lease_epoch = lease_epoch + 1 WHERE execution_id = $1", c.ID.UUID())
	rival := f.Rival(t)
	wait := fixture.Async(t, func(ctx context.Context) error {
		_, err := rival.RecordStep(ctx, engine.StepRecord{Lease: c.Lease, Name: "late"})
		return err
	})
	rival.AwaitBlocked(t, f)
	batch, err := f.RecordSteps(t.Context(), []engine.StepRecord{{Lease: c.Lease, Name: "late"}})
	if err != nil || !errors.Is(batch[0].Err, fferr.ErrBusy) {
		t.Errorf("the batch: %+v, error %v", batch, err)
	}
	fixture.Commit(t, tx)
	fixture.WantLeaseError(t, wait(), fferr.ErrStaleLease)
	wantSteps(t, f.Engine, c.ID)
}

// A step that is being stored when its lease is taken away is seen by the next holder.
func TestNextHolderSeesStepsUnderWay(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	tx := f.BeginTx(t)
	record(t, f.WithTx(tx), c.Lease, "a", 0)
	rival := f.Rival(t)
	wait := fixture.Async(t, func(ctx context.Context) error {
		_, err := rival.FailExecution(ctx, c.Lease, engine.Failure{Message: "gone"})
		return err
	})
	rival.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	wantSteps(t, f.Engine, c.ID, "a=a!")
	_, err := f.RecordStep(t.Context(), engine.StepRecord{Lease: c.Lease, Name: "b", Seq: 1})
	if err == nil {
		t.Error("the former holder stored a step")
	}
}

func TestStepInCallersTransaction(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	tx := f.BeginTx(t)
	record(t, f.WithTx(tx), c.Lease, "a", 0)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSteps(t, f.Engine, c.ID)
	tx = f.BeginTx(t)
	stale := c.Lease
	stale.Epoch--
	_, err := f.WithTx(tx).RecordStep(t.Context(), engine.StepRecord{Lease: stale, Name: "stale"})
	fixture.WantLeaseError(t, err, fferr.ErrStaleLease)
	record(t, f.WithTx(tx), c.Lease, "b", 0)
	fixture.Commit(t, tx)
	wantSteps(t, f.Engine, c.ID, "b=b!")
}

func TestStepIsChecked(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	for field, s := range map[string]engine.StepRecord{
		"step":    {},
		"seq":     {Name: "a", Seq: engine.MaxSteps},
		"result":  {Name: "a", Result: make([]byte, engine.DefaultMaxPayload+1)},
		"tries":   {Name: "a", Tries: -1},
		"took":    {Name: "a", Took: -time.Second},
		"outcome": {Name: "a", Outcome: "failed"},
		"error":   {Name: "a", Error: strings.Repeat("e", 17<<10)},
		"ends":    {Name: "a", Ends: true}, // without a transaction of the caller
	} {
		s.Lease = c.Lease
		_, err := f.RecordStep(t.Context(), s)
		fixture.WantInputError(t, err, field)
	}
	for _, name := range []string{strings.Repeat("n", engine.MaxStepName+1), "a\x00", "\xff"} {
		_, err := f.RecordStep(t.Context(), engine.StepRecord{Lease: c.Lease, Name: name})
		fixture.WantInputError(t, err, "step")
	}
	wantSteps(t, f.Engine, c.ID)
}

// A replay keeps the steps, or those before a named one, or none.
func TestReplayAndSteps(t *testing.T) {
	for name, c := range map[string]struct {
		options []operator.ReplayOption
		want    []string
	}{
		"all":            {nil, []string{"a=a!", "b=b!", "c=c!"}},
		"before a step":  {[]operator.ReplayOption{operator.ReplayFromStep("b")}, []string{"a=a!"}},
		"none":           {[]operator.ReplayOption{operator.ReplayWithoutSteps}, nil},
		"the last given": {[]operator.ReplayOption{operator.ReplayWithoutSteps, operator.ReplayFromStep("c")}, []string{"a=a!", "b=b!"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			claimed := f.Start(t)
			for seq, step := range []string{"a", "b", "c"} {
				record(t, f.Engine, claimed.Lease, step, seq)
			}
			f.Fail(t, claimed.Lease, fixture.ForGood)
			if _, err := operator.Replay(t.Context(), f.Engine, claimed.ID, c.options...); err != nil {
				t.Fatal(err)
			}
			wantSteps(t, f.Engine, claimed.ID, c.want...)
		})
	}
}

// A replay from a step that doesn't exist changes nothing.
func TestReplayFromUnknownStep(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	record(t, f.Engine, c.Lease, "a", 0)
	f.Fail(t, c.Lease, fixture.ForGood)
	before := f.Dump(t, c.ID)
	_, err := operator.Replay(t.Context(), f.Engine, c.ID, operator.ReplayFromStep("b"))
	fixture.WantNotFound(t, err, "step", "b")
	f.WantUnchanged(t, c.ID, before)
	wantSteps(t, f.Engine, c.ID, "a=a!")
}

// A claim after a replay reads the steps that were kept.
func TestReplayedHandlerSkipsItsSteps(t *testing.T) {
	calls := counted{}
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		all, err := stepsOf(ctx, job, calls, "a", "b")
		return all, errors.Join(err, untilReplayed(job))
	})
	x := o.run(t, worker.Failed)
	o.replay(t, x, []operator.ReplayOption{operator.ReplayFromStep("b")}, worker.Completed)
	calls.want(t, "a:1 b:2")
}

// Retention deletes the steps with their execution.
func TestRetentionDeletesSteps(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	record(t, f.Engine, c.Lease, "a", 0)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.Advance(engine.DefaultRetention + time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).Retain, 1)
	if left := fixture.Texts(t, f.Pool, "SELECT name FROM ffx_step"); len(left) > 0 {
		t.Errorf("steps are left: %q", left)
	}
}
