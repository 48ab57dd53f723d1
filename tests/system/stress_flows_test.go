package system

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// flowKinds is how many things there are to do to flows.
const flowKinds = 14

// someFlow returns one of the so many flows that were created last.
func (s *stress) someFlow(last int) (id.FlowID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.flows)
	if n == 0 {
		return id.FlowID{}, false
	}
	return s.flows[n-1-rand.IntN(min(n, last))], true
}

// nodes are the keys of two of the nodes that a flow was created with; mostly the second does not lead to the first.
func (*stress) nodes() (string, string) {
	first, second := rand.IntN(8), rand.IntN(8)
	if rand.IntN(8) > 0 {
		first, second = min(first, second), max(first, second)
	}
	return fmt.Sprint(first), fmt.Sprint(second)
}

// grown is the key of a node that a flow may have grown by.
func (*stress) grown() string { return fmt.Sprint("grown", rand.IntN(30)) }

// tend builds and cancels flows on an engine, which may be bound to a transaction.
func (s *stress) tend(ctx context.Context, e *engine.Engine, what int) error {
	last := 6
	if what >= 9 {
		last = 30 // so that some are left to be built
	}
	flow, ok := s.someFlow(last)
	if !ok {
		return nil
	}
	above, below := s.nodes()
	switch what {
	case 0, 1, 2:
		g := engine.Growth{Flow: flow}
		for range 1 + rand.IntN(3) {
			// Some are there already: they are the same, or refused.
			key := s.grown()
			g.Nodes = append(g.Nodes, engine.Node{Key: key, When: anyRule(), Spec: engine.ExecutionSpec{Lane: s.Lane, Kind: "test"}})
			g.Edges = append(g.Edges, engine.Edge{From: above, To: key})
			if rand.IntN(2) == 0 {
				g.Edges = append(g.Edges, engine.Edge{From: key, To: below, AllowStarted: rand.IntN(4) > 0})
			}
		}
		_, err := e.GrowFlow(ctx, g)
		return err
	case 3, 4:
		staging := engine.EdgeStaging{Flow: flow, Apply: rand.IntN(2) == 0}
		for range 1 + rand.IntN(3) {
			staging.Edges = append(staging.Edges, engine.StagedEdge{
				Upstream: e.NodeID(flow, above), Downstream: e.NodeID(flow, below), AllowStarted: rand.IntN(4) > 0,
			})
			above, below = s.nodes()
		}
		_, err := e.StageEdges(ctx, staging)
		return err
	case 5:
		var edges []id.EdgeID
		for edge, err := range e.FlowEdges(ctx, flow) {
			if err != nil {
				return err
			}
			if rand.IntN(2) == 0 {
				edges = append(edges, edge.ID)
			}
		}
		if len(edges) == 0 {
			return nil
		}
		_, err := e.ApplyEdges(ctx, flow, edges)
		return err
	case 6:
		x := id.NewMemberExecutionID(flow, id.Partitions{})
		if _, err := e.CreateExecution(ctx, engine.ExecutionSpec{ID: x, Lane: s.Lane, Kind: "test"}); err != nil {
			return err
		}
		_, err := e.AddMembers(ctx, flow, []id.ExecutionID{x})
		return err
	case 7:
		_, err := e.SetGroupPolicy(ctx, flow, e.NodeID(flow, fmt.Sprint(rand.IntN(2))), anyRule())
		return err
	case 8:
		return e.SetFlowTag(ctx, flow, "app.set", "value")
	case 9, 10:
		ways := []state.FlowCancelPolicy{state.CancelFlowOnly, state.CancelPending, state.CancelAll, state.CancelEverything}
		_, err := e.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow, Policy: ways[rand.IntN(4)]})
		return err
	case 11:
		ways := []state.FlowCancelPolicy{state.CancelFlowOnly, state.CancelPending, state.CancelAll, state.CancelEverything}
		_, err := e.RequestFlowCancel(ctx, engine.FlowCancelRequest{
			ID: flow, Policy: ways[rand.IntN(4)], Grace: time.Duration(rand.IntN(2)) * time.Second,
		})
		return err
	case 12:
		return e.AckFlowCancel(ctx, flow, e.NodeID(flow, above))
	case 13:
		_, err := operator.Replay(ctx, e, e.NodeID(flow, above), operator.ReplayCompleted)
		return err
	}
	return nil
}

func anyRule() policy.Group {
	rules := []policy.Group{
		{},
		policy.AllOf(), policy.AnyOf(policy.LetRun), policy.AnyOf(policy.CancelRemaining), policy.Quorum(1, policy.CancelRemaining),
		policy.OnFailure(), policy.Always(),
	}
	return rules[rand.IntN(len(rules))]
}

// several does several things to two flows in one transaction, which has locked both before.
func (s *stress) several(ctx context.Context) error {
	first, ok := s.someFlow(20)
	second, _ := s.someFlow(20)
	if !ok {
		return nil
	}
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		bound := s.WithTx(tx)
		if err := bound.LockFlows(ctx, first, second); err != nil {
			return err
		}
		for _, flow := range []id.FlowID{second, first, second} {
			above, _ := s.nodes()
			x := bound.NodeID(flow, above)
			switch rand.IntN(4) {
			case 0:
				_, _ = bound.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow, Policy: state.CancelPending})
			case 1:
				key := s.grown()
				_, _ = bound.GrowFlow(ctx, engine.Growth{
					Flow:  flow,
					Nodes: []engine.Node{{Key: key, Spec: engine.ExecutionSpec{Lane: s.Lane, Kind: "test"}}},
					Edges: []engine.Edge{{From: above, To: key}},
				})
			case 2:
				_ = bound.CancelExecution(ctx, engine.CancelSpec{ID: x})
			case 3:
				_, _ = operator.Replay(ctx, bound, x, operator.ReplayCompleted)
			}
		}
		return nil
	})
}
