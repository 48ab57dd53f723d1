package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowEdge is a dependency of a flow: To waits for From.
type FlowEdge struct {
	ID       id.EdgeID
	From, To id.ExecutionID
	Kind     string // [Edge.Kind]

	// PassResult is [Edge.PassResult]; "" if From's result does not become To's payload.
	PassResult string

	State     state.EdgeState
	Outcome   state.CompletionOutcome // how From ended; "" until resolved, or if another program resolved the edge
	Condition string                  // "all_required"
	CreatedBy string
	CreatedAt time.Time
	AppliedAt time.Time // zero while the edge is only staged
	EndedAt   time.Time // when the edge was resolved; zero before
}

// FlowEdges iterates over a flow's edges, by id.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrCorruption] naming the unreadable value.
func (e *Engine) FlowEdges(ctx context.Context, flow id.FlowID) iter.Seq2[FlowEdge, error] {
	partition := e.cfg.Partitions.FlowPartition(flow)
	return core.All("list edges of a flow", func(after *db.ListFlowEdgesRow) ([]db.ListFlowEdgesRow, error) {
		params := db.ListFlowEdgesParams{PartitionKey: partition, FlowID: flow, AfterEdgeID: core.PgUUID(id.EdgeID{}), PageSize: MaxPage}
		if after != nil {
			params.AfterEdgeID = core.PgUUID(after.EdgeID)
		}
		rows, err := e.c.Q.ListFlowEdges(ctx, e.c.Reader(), params)
		if err == nil && after == nil && len(rows) == 0 {
			err = e.checkFlowExists(ctx, flow)
		}
		return rows, err
	}, func(row *db.ListFlowEdgesRow) (FlowEdge, bool, error) {
		edge, err := edgeOf(partition, (*db.GetEdgeRow)(row))
		return edge, true, err
	})
}

// checkFlowExists returns an error if a flow does not exist.
func (e *Engine) checkFlowExists(ctx context.Context, flow id.FlowID) error {
	exists, err := e.c.Q.GetFlowExists(ctx, e.c.Reader(), db.GetFlowExistsParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow,
	})
	if err == nil && !exists {
		err = &fferr.NotFoundError{Entity: "flow", ID: flow.String()}
	}
	return err
}

// EdgesInto returns the inbound edges of an execution in a flow, at most [MaxInbound], by id. The result is empty for
// an execution without edges, or a missing one.
//
// Errors: [fferr.ErrInvalidInput] for an execution in another partition than the flow; [fferr.ErrNotFound] for the
// flow; [fferr.ErrCorruption] naming the unreadable value.
func (e *Engine) EdgesInto(ctx context.Context, flow id.FlowID, x id.ExecutionID) ([]FlowEdge, error) {
	const op = "list edges into an execution"
	if err := e.checkMember(flow, x); err != nil {
		return nil, core.Wrap(op, err)
	}
	rows, err := e.c.Q.ListEdgesInto(ctx, e.c.Reader(), db.ListEdgesIntoParams{
		PartitionKey: x.Partition(), FlowID: flow, ExecutionID: x.UUID(),
	})
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	if len(rows) == 0 {
		return nil, core.Wrap(op, e.checkFlowExists(ctx, flow))
	}
	edges, err := edgesOf(x.Partition(), rows, func(row db.ListEdgesIntoRow) db.GetEdgeRow { return db.GetEdgeRow(row) })
	return edges, core.Wrap(op, err)
}

// EdgesFrom returns the outbound edges of an execution in a flow, at most [MaxMembers], as [Engine.EdgesInto] does.
func (e *Engine) EdgesFrom(ctx context.Context, flow id.FlowID, x id.ExecutionID) ([]FlowEdge, error) {
	const op = "list edges from an execution"
	if err := e.checkMember(flow, x); err != nil {
		return nil, core.Wrap(op, err)
	}
	rows, err := e.c.Q.ListEdgesFrom(ctx, e.c.Reader(), db.ListEdgesFromParams{
		PartitionKey: x.Partition(), FlowID: flow, ExecutionID: x.UUID(),
	})
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	if len(rows) == 0 {
		return nil, core.Wrap(op, e.checkFlowExists(ctx, flow))
	}
	edges, err := edgesOf(x.Partition(), rows, func(row db.ListEdgesFromRow) db.GetEdgeRow { return db.GetEdgeRow(row) })
	return edges, core.Wrap(op, err)
}

// checkMember refuses an execution whose id can't belong to a member of the flow.
func (e *Engine) checkMember(flow id.FlowID, x id.ExecutionID) error {
	if err := e.c.CheckExecution(x); err != nil {
		return err
	}
	if x.Partition() != e.cfg.Partitions.FlowPartition(flow) {
		return core.Invalid("execution id", "is in another partition than the flow, so it can't be a member")
	}
	return nil
}

// DescribeEdge returns an edge of a flow.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrCorruption] naming the unreadable value.
func (e *Engine) DescribeEdge(ctx context.Context, flow id.FlowID, edge id.EdgeID) (*FlowEdge, error) {
	const op = "describe edge"
	partition := e.cfg.Partitions.FlowPartition(flow)
	row, err := e.c.Q.GetEdge(ctx, e.c.Reader(), db.GetEdgeParams{PartitionKey: partition, FlowID: flow, EdgeID: edge})
	if core.IsNoRow(err) {
		err = &fferr.NotFoundError{Entity: "edge", ID: edge.String()}
	}
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	described, err := edgeOf(partition, &row)
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	return &described, nil
}

// ExecutionFlow returns the flow of an execution, or nil outside flows.
//
// Errors: [fferr.ErrNotFound].
func (e *Engine) ExecutionFlow(ctx context.Context, x id.ExecutionID) (*id.FlowID, error) {
	const op = "read flow of an execution"
	if err := e.c.CheckExecution(x); err != nil {
		return nil, core.Wrap(op, err)
	}
	flow, err := e.c.Q.GetExecutionFlow(ctx, e.c.Reader(), db.GetExecutionFlowParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()})
	return flow, core.Wrap(op, core.OrNotFound(err, x))
}

// storedEdge has the fields of ff_edge.policy used by reads.
type storedEdge struct {
	Kind       string          `json:"dependency_kind"`
	Condition  string          `json:"satisfaction_condition"`
	PassResult string          `json:"data_passing_ref"`
	State      string          `json:"edge_state"`
	CreatedBy  string          `json:"created_by"`
	Outcome    string          `json:"resolved_outcome"`
	CreatedAt  json.RawMessage `json:"created_at_ms"`
	AppliedAt  json.RawMessage `json:"applied_at_ms"`
	ResolvedAt json.RawMessage `json:"resolved_at_ms"`
}

func edgesOf[R any](partition int16, rows []R, common func(R) db.GetEdgeRow) ([]FlowEdge, error) {
	edges := make([]FlowEdge, len(rows))
	for i := range rows {
		row := common(rows[i])
		var err error
		if edges[i], err = edgeOf(partition, &row); err != nil {
			return nil, err
		}
	}
	return edges, nil
}

func edgeOf(partition int16, row *db.GetEdgeRow) (FlowEdge, error) {
	var stored storedEdge
	if err := json.Unmarshal(row.Policy, &stored); err != nil {
		return FlowEdge{}, core.Corrupt("ff_edge.policy", errNoEdge)
	}
	edgeState, err := normalise.EdgeState(stored.State)
	if err != nil {
		return FlowEdge{}, core.Corrupt("ff_edge.policy.edge_state", err)
	}
	edge := FlowEdge{
		ID:         row.EdgeID,
		From:       id.ExecutionIDFromRow(partition, row.UpstreamEID),
		To:         id.ExecutionIDFromRow(partition, row.DownstreamEID),
		Kind:       cmp.Or(stored.Kind, defaultEdgeKind),
		PassResult: stored.PassResult,
		State:      edgeState,
		Outcome:    state.CompletionOutcome(stored.Outcome),
		Condition:  cmp.Or(stored.Condition, "all_required"),
		CreatedBy:  cmp.Or(stored.CreatedBy, "engine"),
	}
	for _, instant := range []struct {
		key    string
		stored json.RawMessage
		at     *time.Time
	}{
		{"created_at_ms", stored.CreatedAt, &edge.CreatedAt},
		{"applied_at_ms", stored.AppliedAt, &edge.AppliedAt},
		{"resolved_at_ms", stored.ResolvedAt, &edge.EndedAt},
	} {
		if instant.stored == nil || string(instant.stored) == "null" {
			continue
		}
		ms := core.Number(instant.stored)
		if ms < 0 {
			return FlowEdge{}, core.Corrupt("ff_edge.policy."+instant.key, errNoCount)
		}
		*instant.at = time.UnixMilli(ms)
	}
	if edge.CreatedAt.IsZero() {
		edge.CreatedAt = time.UnixMilli(0)
	}
	if stored.AppliedAt == nil {
		edge.AppliedAt = edge.CreatedAt // applied at once, without staging
	}
	return edge, nil
}
