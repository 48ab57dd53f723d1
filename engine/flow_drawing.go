package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowGraph is a complete flow at one moment, for drawing.
type FlowGraph struct {
	ID    id.FlowID
	Nodes []GraphNode // by key, then by id
	Edges []GraphEdge // by id, in the order of creation
}

// GraphNode is a member of a flow.
type GraphNode struct {
	ID      id.ExecutionID
	Key     string // "" if not created as a node
	Kind    string
	Lane    id.LaneID
	When    *policy.Group // nil without dependencies
	State   state.PublicState
	Outcome state.TerminalOutcome // none until the end

	// Err is a [*fferr.CorruptionError] if a stored value of the node or its group is unreadable.
	Err error
}

// GraphEdge is a dependency: the node To waits for the node From. Both are indexes into [FlowGraph.Nodes].
type GraphEdge struct {
	ID       id.EdgeID
	From, To int
	State    state.EdgeState
}

// MaxGraph is the largest total of nodes and edges that [Engine.FlowGraph] returns.
const MaxGraph = 500_000

// FlowGraph returns a complete flow for drawing. Edges from or to deleted executions are left out.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput] above [MaxGraph] nodes and edges: use [Engine.FlowMembers] and
// [Engine.FlowEdges]; [fferr.ErrCorruption] naming the unreadable part of an edge.
func (e *Engine) FlowGraph(ctx context.Context, flow id.FlowID) (*FlowGraph, error) {
	const op = "read flow graph"
	graph, err := e.flowGraph(ctx, flow)
	return graph, core.Wrap(op, err)
}

func (e *Engine) flowGraph(ctx context.Context, flow id.FlowID) (*FlowGraph, error) {
	partition := e.cfg.Partitions.FlowPartition(flow)
	rows, err := e.c.Q.ListFlowGraph(ctx, e.c.Reader(), db.ListFlowGraphParams{
		PartitionKey: partition, FlowID: core.PgUUID(flow), MaxRows: MaxGraph + 1,
	})
	switch {
	case err != nil:
		return nil, err
	case len(rows) > MaxGraph:
		return nil, core.Invalid("flow", fmt.Sprintf("has more than %d nodes and edges", MaxGraph))
	case len(rows) == 0:
		if err := e.checkFlowExists(ctx, flow); err != nil {
			return nil, err
		}
	}
	graph := &FlowGraph{ID: flow}
	for i := range rows {
		if !rows[i].IsEdge {
			graph.Nodes = append(graph.Nodes, nodeOf(partition, &rows[i]))
		}
	}
	slices.SortStableFunc(graph.Nodes, func(a, b GraphNode) int { return cmp.Compare(a.Key, b.Key) })
	place := make(map[id.ExecutionUUID]int, len(graph.Nodes))
	for i := range graph.Nodes {
		place[graph.Nodes[i].ID.UUID()] = i
	}
	for i := range rows {
		row := &rows[i]
		if !row.IsEdge {
			continue
		}
		from, upstream := place[id.ExecutionUUID(row.UpstreamEID.Bytes)]
		to, downstream := place[id.ExecutionUUID(row.DownstreamEID.Bytes)]
		if !upstream || !downstream {
			continue
		}
		edgeState, err := normalise.EdgeState(row.Phase)
		if err != nil {
			return nil, core.Corrupt("ff_edge.policy.edge_state", err)
		}
		graph.Edges = append(graph.Edges, GraphEdge{ID: id.EdgeID(row.RowID), From: from, To: to, State: edgeState})
	}
	return graph, nil
}

func nodeOf(partition int16, row *db.ListFlowGraphRow) GraphNode {
	node := GraphNode{
		ID:   id.ExecutionIDFromRow(partition, row.RowID),
		Key:  row.NodeKey,
		Kind: row.Kind,
		Lane: id.LaneID(row.LaneID),
	}
	if row.Policy != "" {
		group, err := document.GroupFromStored([]byte(row.Policy))
		if err != nil {
			node.Err = core.Corrupt("ff_edge_group.policy", err)
		} else {
			node.When = new(group.Policy())
		}
	}
	var err error
	node.State, node.Outcome, err = core.PublicState(row.Phase, row.EligibilityState, row.PublicState, normalise.TerminalFacts{
		PointerOutcome:     row.PointerOutcome,
		CurrentOutcome:     row.CurrentOutcome,
		RawTerminalOutcome: row.RawTerminalOutcome,
		CancellationReason: row.CancellationReason,
		LastFailureMessage: row.LastFailureMessage,
		FailureReason:      row.FailureReason,
	})
	if err != nil {
		node.Err = err
	}
	return node
}
