package steps

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// newShared is a kit on a database shared with FlowFabric.
func newShared(t *testing.T) *turning {
	t.Helper()
	c := newTurning(t)
	c.Share(t)
	return c
}

func unshare(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	if _, err := schema.Unshare(t.Context(), f.Url, schema.Options{}); err != nil {
		t.Fatal(err)
	}
}

// Steps, pauses and turns work in a database shared with FlowFabric.
func TestStepsBesideFlowFabric(t *testing.T) {
	c := newShared(t)
	calls := counted{}
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		if _, err := step(ctx, job, calls, "plain"); err != nil {
			return "", err
		}
		if _, err := worker.StepTx(ctx, job, "tx", func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "INSERT INTO booked (item) VALUES ('by a step')")
			return "", err
		}); err != nil {
			return "", err
		}
		if err := worker.Sleep(ctx, job, "pause", time.Millisecond); err != nil {
			return "", err
		}
		if err := worker.Turn(ctx, job, "turn", func(_ context.Context, _ pgx.Tx, x *worker.TurnTx) error {
			return x.Sleep(time.Millisecond)
		}); err != nil {
			return "", err
		}
		return "", worker.Turn(ctx, job, "end", func(_ context.Context, _ pgx.Tx, x *worker.TurnTx) error { return x.Complete("done") })
	})
	x := c.run(t, worker.Delayed)
	c.Advance(time.Millisecond)
	c.WantSettled(t, worker.Delayed)
	c.Advance(time.Millisecond)
	c.wantResult(t, x, "done")
	calls.want(t, "plain:1")
	if booked := fixture.Texts(t, c.Pool, "SELECT item FROM booked"); len(booked) != 1 {
		t.Errorf("booked %q", booked)
	}
	if names := strings.Join(stepNames(t, c.Engine, x), " "); names != "plain tx pause turn end" {
		t.Errorf("steps %s", names)
	}
}

// Calls and waits are refused there, and the execution fails with the reason.
func TestCallsAndWaitsBesideFlowFabric(t *testing.T) {
	for name, call := range map[string]func(context.Context, orderJob) error{
		"Call": jobCalls["Call"], "Await": jobCalls["Await"], "TurnTx.Await": func(ctx context.Context, job orderJob) error {
			return worker.Turn(ctx, job, "turn", func(_ context.Context, _ pgx.Tx, x *worker.TurnTx) error {
				return x.Await(approved.Received(), engine.Wait{})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newShared(t)
			c.handle(func(ctx context.Context, job orderJob) (string, error) { return "", call(ctx, job) })
			x := c.run(t, worker.Failed)
			fftest.RequireFailure(t, c.Kit.Kit, x, "ff migrate share")
			wantSteps(t, c.Engine, x)
			wantOnLane(t, c.Fixture, 1) // the caller alone
		})
	}
}

// A replay by FlowFabric resets the attempt in its place. The next run has the steps of the former one all the same, and
// runs the step that failed.
func TestReplayByFlowFabricKeepsSteps(t *testing.T) {
	c := newShared(t)
	calls := counted{}
	broken := true
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		if _, err := step(ctx, job, calls, "first"); err != nil {
			return "", err
		}
		if broken {
			return "", worker.Permanent(errors.New("broken"))
		}
		return step(ctx, job, calls, "second")
	})
	x := c.run(t, worker.Failed)
	broken = false
	c.Exec(t, `UPDATE ff_attempt SET outcome = NULL, terminal_at_ms = NULL, lease_epoch = lease_epoch + 1,
		raw_fields = raw_fields || '{"attempt_type":"replay"}' WHERE execution_id = $1`, x.UUID())
	c.SetExecution(t, x, `lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_replay_attempt', terminal_at_ms = NULL`)
	if _, err := c.Maintenance().RepairQueue(t.Context(), 100); err != nil { // FlowFabric knows no queue
		t.Fatal(err)
	}
	c.WantSettled(t, worker.Completed)
	calls.want(t, "first:1 second:1")
}

// Sharing may be switched on and off while an execution has steps and a call under way. The call goes on afterwards.
func TestSharingWithStepsUnderWay(t *testing.T) {
	c := calling(t, 2)
	if _, err := c.RecordStep(t.Context(), engine.StepRecord{Lease: c.Lease, Name: "before", Seq: 1}); err != nil {
		t.Fatal(err)
	}
	c.finish(t)
	c.Share(t)
	if _, err := c.RecordStep(t.Context(), engine.StepRecord{Lease: c.Lease, Name: "shared", Seq: 2}); err != nil {
		t.Fatal(err)
	}
	c.finish(t)
	unshare(t, c.Fixture)
	c.wait(t)
	c.WantState(t, c.ID, fixture.StateResumable)
	again := c.ClaimOne(t)
	results, err := c.CalledResults(t.Context(), c.called)
	if err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Errorf("%+v, error %v", results, err)
	}
	if _, err := c.RecordStep(t.Context(), engine.StepRecord{Lease: again.Lease, Name: "parts"}); err != nil {
		t.Error(err)
	}
	wantSteps(t, c.Engine, c.ID, `parts=`, `before=`, `shared=`)
}

// A caller that waits when sharing is switched on continues there.
func TestWaitsContinueWhileShared(t *testing.T) {
	c := calling(t, 1)
	c.wait(t)
	c.Share(t)
	c.finish(t)
	c.resume(t, 1)
	c.WantState(t, c.ID, fixture.StateResumable)
}

// An execution that FlowFabric made before the conversion has steps and calls like any other.
func TestStepsOfAConvertedExecution(t *testing.T) {
	f := fixture.ReferenceFixture(t)
	x := f.Seed(t, nil)
	f.Adopt(t)
	c := &caller{Fixture: f, Claimed: f.ClaimOne(t)}
	if c.ID != x {
		t.Fatalf("claimed %s, want %s", c.ID, x)
	}
	record(t, f.Engine, c.Lease, "a", 1)
	c.called = c.call(t, 1)
	c.wait(t)
	c.finish(t)
	c.resume(t, 1)
	c.WantState(t, x, fixture.StateResumable)
	again := c.ClaimOne(t)
	if _, err := c.RecordStep(t.Context(), engine.StepRecord{Lease: again.Lease, Name: "parts", Result: []byte("out")}); err != nil {
		t.Error(err)
	}
	wantSteps(t, c.Engine, x, "parts=out", "a=a!")
}
