package fftest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// RunOption is an option of [Run].
type RunOption func(*runOptions)

type runOptions struct{ upstreams []upstream }

type upstream struct {
	spec   engine.ExecutionSpec
	node   string
	result []byte
	err    error
}

// Upstream gives the job a completed upstream: a node of its flow with this key, kind and result.
func Upstream[In, Out any](node string, kind engine.Kind[In, Out], result Out) RunOption {
	return func(o *runOptions) {
		u := upstream{node: node, spec: engine.ExecutionSpec{Kind: kind.Name, Lane: runLane}}
		u.result, u.err = kind.EncodeResult(result)
		o.upstreams = append(o.upstreams, u)
	}
}

// The flow of a run.
const (
	runLane id.LaneID = "fftest_run"
	runNode string    = "fftest_run"
)

// Run runs a handler once, with a real job, and returns its result and error. Everything happens in a transaction,
// rolled back afterwards: the execution, its steps, and the writes by worker.StepTx and worker.Turn. If the handler
// waits, Run returns the error of the wait. Its writes by a pool of its own remain.
func Run[In, Out any](
	t testing.TB, k *Kit, kind engine.Kind[In, Out], handler func(ctx context.Context, job worker.Job[In]) (Out, error), args In,
	options ...RunOption,
) (Out, error) {
	t.Helper()
	var o runOptions
	for _, option := range options {
		option(&o)
	}
	tx, err := k.Pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("fftest: %v", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	spec := kind.Spec(args)
	spec.Lane = runLane
	claimed, eng, err := k.claimForRun(t.Context(), tx, spec, o.upstreams)
	if err != nil {
		t.Fatalf("fftest: prepare the run of %q: %v", kind.Name, err)
	}
	return worker.RunForTest(t.Context(), eng, kind, claimed, handler)
}

// claimForRun creates an execution with its upstreams, completes the upstreams and claims the execution.
func (k *Kit) claimForRun(
	ctx context.Context, tx pgx.Tx, spec engine.ExecutionSpec, upstreams []upstream,
) (engine.Claimed, *engine.Engine, error) {
	eng := k.Engine.WithTx(tx)
	flow := engine.FlowSpec{Nodes: []engine.Node{{Key: runNode, Spec: spec}}}
	for _, u := range upstreams {
		if u.err != nil {
			return engine.Claimed{}, nil, u.err
		}
		flow.Nodes = append(flow.Nodes, engine.Node{Key: u.node, Spec: u.spec})
		flow.Edges = append(flow.Edges, engine.Edge{From: u.node, To: runNode})
	}
	if len(upstreams) == 0 {
		if _, err := eng.CreateExecution(ctx, spec); err != nil {
			return engine.Claimed{}, nil, err
		}
	} else if err := completeUpstreams(ctx, eng, flow, upstreams); err != nil {
		return engine.Claimed{}, nil, err
	}
	claimed, err := claimRun(ctx, eng, 1)
	if err != nil {
		return engine.Claimed{}, nil, err
	}
	return claimed[0], eng, nil
}

func completeUpstreams(ctx context.Context, eng *engine.Engine, flow engine.FlowSpec, upstreams []upstream) error {
	created, err := eng.CreateFlow(ctx, flow)
	if err != nil {
		return err
	}
	results := make(map[id.ExecutionID][]byte, len(upstreams))
	for _, u := range upstreams {
		results[eng.NodeID(created.ID, u.node)] = u.result
	}
	claimed, err := claimRun(ctx, eng, len(upstreams))
	if err != nil {
		return err
	}
	for _, c := range claimed {
		if err := eng.CompleteExecution(ctx, c.Lease, results[c.ID]); err != nil {
			return err
		}
	}
	return nil
}

// claimRun claims n executions of a run.
func claimRun(ctx context.Context, eng *engine.Engine, n int) ([]engine.Claimed, error) {
	claimed, err := eng.Claim(ctx, engine.ClaimSpec{
		Lane: runLane, Worker: "fftest", Instance: "fftest_run", LeaseTTL: time.Minute,
	}, n)
	if err == nil && len(claimed) != n {
		err = fmt.Errorf("%d of %d executions are claimable", len(claimed), n)
	}
	return claimed, err
}
