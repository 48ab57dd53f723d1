package executions

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

var square = engine.Kind[fixture.SideArgs, fixture.AreaResult]{
	Name: "square", Lane: "shapes", Policy: &policy.Execution{AttemptTimeout: time.Minute},
}

// One declaration serves the creator, the worker, which finds the lane by it, and the reader.
func TestKindFromCreationToResult(t *testing.T) {
	k := fixture.NewKit(t)
	created, err := square.Create(t.Context(), k.Engine, fixture.SideArgs{Side: 7})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := square.Result(t.Context(), k.Engine, created.ID); !errors.Is(err, fferr.ErrNotEnded) {
		t.Errorf("before it has ended: %v, %v", out, err)
	}
	if got := k.Stored(t, created.ID); got.Raw(t, "execution_kind") != "square" {
		t.Errorf("stored as %+v", got)
	}
	var timeout bool
	worker.Handle(k.Worker, square, func(ctx context.Context, job worker.Job[fixture.SideArgs]) (fixture.AreaResult, error) {
		_, timeout = ctx.Deadline()
		return fixture.Area(ctx, job)
	})
	k.WantSettled(t, worker.Completed)
	if !timeout {
		t.Error("the kind's timeout does not hold")
	}
	want := fixture.AreaResult{Area: 49}
	if out, err := square.Await(t.Context(), k.Engine, created.ID); err != nil || out != want {
		t.Errorf("awaited %v, %v", out, err)
	}
	fftest.RequireResult(t, k.Kit, square, created.ID, want)
	err = pgx.BeginFunc(t.Context(), k.Pool, func(tx pgx.Tx) error {
		out, err := square.Result(t.Context(), k.WithTx(tx), created.ID)
		if out != want {
			t.Errorf("in a transaction: %v", out)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}

	// The same kind, declared elsewhere with other types.
	loose := engine.Kind[struct{}, struct{ Perimeter int }]{Name: square.Name}
	if out, err := loose.Result(t.Context(), k.Engine, created.ID); err != nil || out.Perimeter != 0 {
		t.Errorf("read with another field: %v, %v", out, err)
	}
	_, err = engine.Kind[struct{}, []string]{Name: square.Name}.Result(t.Context(), k.Engine, created.ID)
	if wrong, ok := errors.AsType[*fferr.DecodeError](err); !ok || wrong.Kind != square.Name || wrong.Type != "[]string" {
		t.Errorf("read with another shape: %v", err)
	}
}

func TestKindReportsAMissingResult(t *testing.T) {
	c := fixture.New(t)
	x := c.Start(t)
	if _, err := c.FailExecution(t.Context(), x.Lease, engine.Failure{Message: "too round", Class: policy.Permanent}); err != nil {
		t.Fatal(err)
	}
	_, err := square.Result(t.Context(), c.Engine, x.ID)
	if ended, ok := errors.AsType[*fferr.EndedError](err); !ok || ended.Outcome != state.OutcomeFailed || ended.Execution != x.ID || ended.Failure != "too round" {
		t.Errorf("of a failure: %v", err)
	}
	if _, again := square.Await(t.Context(), c.Engine, x.ID); again == nil || !errors.As(again, new(*fferr.EndedError)) {
		t.Errorf("of a failure, awaited: %v", again)
	}
	unknown := id.NewExecutionID(c.Lane, id.Partitions{})
	if _, err := square.Result(t.Context(), c.Engine, unknown); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if _, err := (engine.Kind[struct{}, string]{}).Result(t.Context(), c.Engine, x.ID); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("of a kind without a name: %v", err)
	}
}

func TestKindRefusesBadCreations(t *testing.T) {
	f := fixture.New(t)
	for name, spec := range map[string]engine.ExecutionSpec{
		"arguments": engine.Kind[float64, struct{}]{Name: "k", Lane: f.Lane}.Spec(math.NaN()),
		"name":      engine.Kind[int, struct{}]{Lane: f.Lane}.Spec(1),
	} {
		if _, err := f.CreateExecution(t.Context(), spec); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v", name, err)
		}
		flow := engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: spec}}}
		if _, err := f.CreateFlow(t.Context(), flow); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s, in a flow: %v", name, err)
		}
	}
	if n := f.CountOnLane(t); n != 0 {
		t.Errorf("%d executions on the lane", n)
	}
}
