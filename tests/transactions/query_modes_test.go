package transactions

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Payloads and results come back as they were, with each way to send statements and each text form of bytea, on a pool and
// in a caller's transaction. pgx reads one of the two forms alone.
func TestPayloadsAndResultsInEachQueryMode(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, mode := range fixture.QueryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f := fixture.Another(t)
			pool := fixture.OpenInMode(t, pgtest.URL(t), mode)
			onPool := f.EngineOn(t, pool, engine.Config{})
			tx := fixture.BeginWith(t, pool, pgx.TxOptions{})
			want := func(what string, got []byte, err error) {
				t.Helper()
				if err != nil || !bytes.Equal(got, all) {
					t.Errorf("%s: got %q, %v", what, got, err)
				}
			}
			for i, on := range []struct {
				name string
				eng  *engine.Engine
			}{{"on the pool", onPool}, {"in a transaction", onPool.WithTx(tx)}} {
				ctx, spec := t.Context(), engine.ExecutionSpec{
					Lane: f.Lane, Kind: "test", Payload: all, IdempotencyKey: f.Key(fmt.Sprint(i)),
					Policy: &policy.Execution{Retry: &policy.Retry{Categories: []string{"net"}}, AttemptTimeout: time.Hour},
					Tags:   map[string]string{"app.text": `"'\`},
				}
				created, err := on.eng.CreateExecution(ctx, spec)
				if err != nil {
					t.Fatal(err)
				}
				if again, err := on.eng.CreateExecution(ctx, spec); err != nil || !again.Duplicate {
					t.Errorf("%s: repeated: %+v, %v", on.name, again, err)
				}
				input, err := on.eng.ExecutionInput(ctx, created.ID)
				if err != nil {
					t.Fatal(err)
				}
				want(on.name+", read", input.Payload, err)
				claimed, err := on.eng.Claim(ctx, f.Worker(), 1)
				if err != nil || len(claimed) != 1 || claimed[0].Tags["app.text"] != `"'\` {
					t.Fatalf("%s: claimed %+v, %v", on.name, claimed, err)
				}
				want(on.name+", claimed", claimed[0].Payload, nil)
				if err := on.eng.CompleteExecution(ctx, claimed[0].Lease, all); err != nil {
					t.Fatal(err)
				}
				result, err := on.eng.ExecutionResult(ctx, created.ID)
				want(on.name+", result", result, err)
				if i == 0 {
					result, err = onPool.AwaitExecution(ctx, created.ID)
					want(on.name+", awaited", result, err)
				}
				passed(t, ctx, fixture.FlowsOn(f), on.eng, all)
			}
			fixture.Commit(t, tx)
		})
	}
}

// passed has a result handed on to the member that depends on it.
func passed(t *testing.T, ctx context.Context, f *fixture.Flows, eng *engine.Engine, result []byte) {
	t.Helper()
	spec := engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}
	flow, err := eng.CreateFlow(ctx, engine.FlowSpec{
		Nodes: []engine.Node{{Key: "a", Spec: spec}, {Key: "b", Spec: spec}},
		Edges: []engine.Edge{{From: "a", To: "b", PassResult: "result"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		claimed, err := eng.Claim(ctx, f.Worker(), 1)
		if err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %+v, %v", claimed, err)
		}
		if n == 1 && !bytes.Equal(claimed[0].Payload, result) {
			t.Errorf("passed on: %q", claimed[0].Payload)
		}
		if err := eng.CompleteExecution(ctx, claimed[0].Lease, result); err != nil {
			t.Fatal(err)
		}
	}
	upstreams, err := eng.UpstreamResults(ctx, eng.NodeID(flow.ID, "b"))
	if err != nil || len(upstreams) != 1 || !bytes.Equal(upstreams[0].Result, result) {
		t.Errorf("upstreams %+v, %v", upstreams, err)
	}
	if edges, err := eng.FlowGraph(ctx, flow.ID); err != nil || len(edges.Edges) != 1 {
		t.Errorf("graph %+v, %v", edges, err)
	}
	if described, err := eng.DescribeFlow(ctx, flow.ID); err != nil || described == nil {
		t.Errorf("flow %+v, %v", described, err)
	}
}
