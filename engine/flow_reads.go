package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowSnapshot is a flow at one moment, without its members; [Engine.FlowMembers] lists them.
type FlowSnapshot struct {
	ID        id.FlowID
	Kind      string
	Namespace id.Namespace
	Tags      map[string]string

	BusinessKey id.BusinessKey // the zero value for none

	// State is "cancelled" for a cancelled flow, and "open" without members. Otherwise it summarizes the members, as
	// [FlowSummary.State]; the flow still takes members.
	State state.FlowState

	// Ended reports whether every member has ended, or there is none. Counts has the readable members by public state;
	// unreadable ones count as not ended.
	Ended      bool
	Counts     map[state.PublicState]int
	Unreadable int

	Revision       int64 // one for each added member and edge
	Nodes          int
	Edges          int
	CreatedAt      time.Time
	LastMutationAt time.Time // of nodes and edges
	CancelledAt    time.Time
	CancelReason   string
	CancelPolicy   state.FlowCancelPolicy
	Groups         []EdgeGroup // by id of the waiting execution

	// Retention and PruneMembersAfter are the flow's own settings; 0 for the defaults.
	Retention         time.Duration
	PruneMembersAfter time.Duration
}

// EdgeGroup is the dependencies of one member: its inbound edges, and the number of upstreams by outcome.
type EdgeGroup struct {
	Downstream                         id.ExecutionID
	When                               policy.Group
	Edges                              int
	Succeeded, Failed, Skipped, Active int
	State                              state.EdgeGroupState
}

// DescribeFlow returns the current state of a flow, from one snapshot of the database. It takes about 30 milliseconds
// for 10,000 members.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrCorruption] naming the unreadable column of the flow or a group.
func (e *Engine) DescribeFlow(ctx context.Context, flow id.FlowID) (*FlowSnapshot, error) {
	snapshot, _, err := e.describeFlow(ctx, flow)
	return snapshot, core.Wrap("describe flow", err)
}

// describeFlow also returns the error of an unreadable member, nil if all are readable.
func (e *Engine) describeFlow(ctx context.Context, flow id.FlowID) (snapshot *FlowSnapshot, unreadable, err error) {
	row, err := e.c.Q.GetFlow(ctx, e.c.Reader(), db.GetFlowParams{PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow})
	if core.IsNoRow(err) {
		err = &fferr.NotFoundError{Entity: "flow", ID: flow.String()}
	}
	if err != nil {
		return nil, nil, err
	}
	snapshot, err = flowSnapshotOf(flow, &row)
	if err != nil {
		return nil, nil, err
	}
	if err := e.setGroups(snapshot, row.EdgeGroups); err != nil {
		return nil, nil, err
	}
	unreadable, err = snapshot.setCounts(row.Members)
	if err != nil {
		return nil, nil, err
	}
	snapshot.State = summedUp(snapshot.State, snapshot.Counts, snapshot.Unreadable)
	return snapshot, unreadable, nil
}

func flowSnapshotOf(flow id.FlowID, row *db.GetFlowRow) (*FlowSnapshot, error) {
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(row.RawFields, &raw); err != nil {
		return nil, core.Corrupt("ff_flow_core.raw_fields", err)
	}
	s := &FlowSnapshot{
		ID:             flow,
		Namespace:      "default",
		State:          state.FlowState(row.PublicFlowState),
		Revision:       row.GraphRevision,
		CreatedAt:      time.UnixMilli(row.CreatedAtMs),
		LastMutationAt: time.UnixMilli(row.CreatedAtMs),
		CancelledAt:    core.OptionalTime(row.TerminalAtMs),
	}
	for key, into := range map[string]any{
		"flow_kind":           &s.Kind,
		"namespace":           &s.Namespace,
		"cancel_reason":       &s.CancelReason,
		"cancellation_policy": &s.CancelPolicy,
	} {
		if value, ok := raw[key]; ok && string(value) != "null" {
			if err := json.Unmarshal(value, into); err != nil {
				return nil, core.Corrupt("ff_flow_core.raw_fields."+key, errNoText)
			}
		}
	}
	if s.Revision < 0 {
		return nil, core.Corrupt("ff_flow_core.graph_revision", errNegative)
	}
	for _, count := range []struct {
		key string
		set func(int64)
	}{
		{"node_count", func(n int64) { s.Nodes = int(n) }},
		{"edge_count", func(n int64) { s.Edges = int(n) }},
		{"last_mutation_at_ms", func(n int64) { s.LastMutationAt = time.UnixMilli(n) }},
	} {
		value, ok := raw[count.key]
		if !ok {
			continue
		}
		n := core.Number(value)
		if n < 0 {
			return nil, core.Corrupt("ff_flow_core.raw_fields."+count.key, errNoCount)
		}
		count.set(n)
	}
	if json.Unmarshal(raw["ffx_business_key"], &s.BusinessKey) != nil {
		s.BusinessKey = id.BusinessKey{}
	}
	s.Retention = storedRetention(raw["ffx_retention_ms"])
	if ms := core.Number(raw["ffx_prune_members_after_ms"]); ms > 0 {
		s.PruneMembersAfter = max(0, core.RetentionOf(ms))
	}
	for key, value := range raw {
		var tag string
		if id.IsFlowTag(key) && json.Unmarshal(value, &tag) == nil {
			if s.Tags == nil {
				s.Tags = make(map[string]string)
			}
			s.Tags[key] = tag
		}
	}
	return s, nil
}

// storedRetention reads a retention like the SQL function ffx_retention_of: only a number counts, and a negative number
// means forever.
func storedRetention(raw json.RawMessage) time.Duration {
	var ms float64
	switch err := json.Unmarshal(raw, &ms); {
	case err != nil:
		return 0
	case ms < 0:
		return policy.KeepForever
	}
	return core.RetentionOf(int64(min(ms, core.Forever/2)))
}

var errNoText = errors.New("is not a string")

// storedGroup is an edge group in GetFlow's result.
type storedGroup struct {
	Downstream id.ExecutionUUID `json:"downstream_eid"`
	Policy     json.RawMessage  `json:"policy"`
	Success    int64            `json:"success_count"`
	Fail       int64            `json:"fail_count"`
	Skip       int64            `json:"skip_count"`
	Running    int64            `json:"running_count"`
	Staged     int64            `json:"staged"`
}

func (e *Engine) setGroups(s *FlowSnapshot, stored []byte) error {
	var groups []storedGroup
	if err := json.Unmarshal(stored, &groups); err != nil {
		return core.Corrupt("ff_edge_group", err)
	}
	partition := e.cfg.Partitions.FlowPartition(s.ID)
	for _, g := range groups {
		when, err := document.GroupFromStored(g.Policy)
		if err != nil {
			return core.Corrupt("ff_edge_group.policy", err)
		}
		success, fail, skip, running := max(g.Success, 0), max(g.Fail, 0), max(g.Skip, 0), when.Running(g.Running)
		n := success + fail + skip + running + g.Staged
		group := EdgeGroup{
			Downstream: id.ExecutionIDFromRow(partition, g.Downstream),
			When:       when.Policy(),
			Edges:      int(n),
			Succeeded:  int(success),
			Failed:     int(fail),
			Skipped:    int(skip),
			Active:     int(running),
			State:      state.EdgeGroupPending,
		}
		switch when.Evaluate(n, success, fail, skip) {
		case document.Satisfied:
			group.State = state.EdgeGroupSatisfied
		case document.Impossible:
			group.State = state.EdgeGroupImpossible
		}
		s.Groups = append(s.Groups, group)
	}
	return nil
}

// countedMembers are members as counted by GetFlow.
type countedMembers struct {
	Phase              string `json:"lifecycle_phase"`
	Eligibility        string `json:"eligibility_state"`
	Public             string `json:"public_state"`
	PointerOutcome     string `json:"pointer_outcome"`
	CurrentOutcome     string `json:"current_outcome"`
	RawTerminalOutcome string `json:"raw_terminal_outcome"`
	CancellationReason string `json:"cancellation_reason"`
	LastFailureMessage string `json:"last_failure_message"`
	FailureReason      string `json:"failure_reason"`
	Members            int    `json:"members"`
}

func (s *FlowSnapshot) setCounts(document []byte) (unreadable, err error) {
	var counted []countedMembers
	if err := json.Unmarshal(document, &counted); err != nil {
		return nil, core.Corrupt("ff_exec_core", err)
	}
	s.Ended = true
	for _, c := range counted {
		public, _, err := core.PublicState(c.Phase, c.Eligibility, c.Public, normalise.TerminalFacts{
			PointerOutcome:     c.PointerOutcome,
			CurrentOutcome:     c.CurrentOutcome,
			RawTerminalOutcome: c.RawTerminalOutcome,
			CancellationReason: c.CancellationReason,
			LastFailureMessage: c.LastFailureMessage,
			FailureReason:      c.FailureReason,
		})
		if err != nil {
			unreadable = err
			s.Unreadable += c.Members
			s.Ended = false
			continue
		}
		if s.Counts == nil {
			s.Counts = make(map[state.PublicState]int)
		}
		s.Counts[public] += c.Members
		s.Ended = s.Ended && public.Terminal()
	}
	return unreadable, nil
}

// summedUp returns the state of a flow from its own state and the number of members by state, by the rule of
// SummariseFlows.
func summedUp(own state.FlowState, counts map[state.PublicState]int, unreadable int) state.FlowState {
	if own != state.FlowOpen {
		return own
	}
	any := func(states ...state.PublicState) bool {
		return slices.ContainsFunc(states, func(s state.PublicState) bool { return counts[s] > 0 })
	}
	ended := unreadable == 0 && len(counts) > 0
	for public := range counts {
		ended = ended && public.Terminal()
	}
	switch {
	case ended && any(state.PublicFailed, state.PublicCancelled, state.PublicExpired):
		return state.FlowFailed
	case ended:
		return state.FlowCompleted
	case any(state.PublicActive):
		return state.FlowRunning
	case any(state.PublicSuspended, state.PublicResumable, state.PublicDelayed, state.PublicRateLimited, state.PublicWaitingChildren):
		return state.FlowBlocked
	}
	return own
}

// FlowMembers iterates over a flow's members, by id.
//
// Errors: [fferr.ErrNotFound].
func (e *Engine) FlowMembers(ctx context.Context, flow id.FlowID) iter.Seq2[ExecutionSummary, error] {
	return core.All("list flow members", func(after *db.ListFlowMembersRow) (rows []db.ListFlowMembersRow, err error) {
		var last id.ExecutionUUID
		if after != nil {
			last = after.ExecutionID
		}
		if from, more := successor(last, after == nil); more {
			rows, err = e.c.Q.ListFlowMembers(ctx, e.c.Reader(), db.ListFlowMembersParams{
				PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: &flow, FromExecutionID: core.PgUUID(from), PageSize: MaxPage,
			})
		}
		if err == nil && after == nil && len(rows) == 0 {
			err = e.checkFlowExists(ctx, flow)
		}
		return rows, err
	}, func(row *db.ListFlowMembersRow) (ExecutionSummary, bool, error) {
		return summaryOf((*db.ListExecutionsRow)(row)), true, nil
	})
}

// successor returns the least id after u, or the least id at the start. It returns false after the last id.
func successor(u id.ExecutionUUID, start bool) (id.ExecutionUUID, bool) {
	if start {
		return id.ExecutionUUID{}, true
	}
	for i := len(u) - 1; i >= 0; i-- {
		u[i]++
		if u[i] != 0 {
			return u, true
		}
	}
	return u, false
}

// UpstreamResult is an upstream of an execution, with its result.
type UpstreamResult struct {
	Execution id.ExecutionID
	Node      string // key in the flow; "" if not created as a node
	Kind      string
	State     state.PublicState
	Outcome   state.TerminalOutcome // none until the end
	Failure   string                // the reason for an end without success; "" if not recorded
	Result    []byte                // nil for none; [Kind.ResultOf] decodes it
	Trace     string                // trace context of its last observed run, a W3C traceparent

	// Gone reports that the upstream was deleted before its flow ([FlowSpec.PruneMembersAfter]). Only Execution, Node,
	// State and Outcome are known then.
	Gone bool
}

// UpstreamResults returns the upstreams of an execution by id, one per inbound edge.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrCorruption] naming the unreadable column.
func (e *Engine) UpstreamResults(ctx context.Context, x id.ExecutionID) ([]UpstreamResult, error) {
	const op = "read upstream results"
	if err := e.c.CheckExecution(x); err != nil {
		return nil, core.Wrap(op, err)
	}
	rows, err := e.c.Q.ListUpstreamResults(ctx, e.c.Reader(), db.ListUpstreamResultsParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	if len(rows) == 0 {
		exists, err := e.c.Q.GetExecutionExists(ctx, e.c.Reader(), db.GetExecutionExistsParams{
			PartitionKey: x.Partition(), ExecutionID: x.UUID(),
		})
		if err == nil && !exists {
			err = &fferr.NotFoundError{Entity: "execution", ID: x.String()}
		}
		return nil, core.Wrap(op, err)
	}
	results := make([]UpstreamResult, len(rows))
	for i := range rows {
		row := &rows[i]
		if row.Gone {
			results[i] = goneUpstream(x.Partition(), row)
			continue
		}
		public, outcome, err := core.PublicState(row.LifecyclePhase, row.EligibilityState, row.PublicState, normalise.TerminalFacts{
			PointerOutcome:     row.PointerOutcome,
			CurrentOutcome:     row.CurrentOutcome,
			RawTerminalOutcome: row.RawTerminalOutcome,
			CancellationReason: row.CancellationReason,
			LastFailureMessage: row.LastFailureMessage,
			FailureReason:      row.FailureReason,
		})
		if err != nil {
			return nil, core.Wrap(op, err)
		}
		results[i] = UpstreamResult{
			Execution: id.ExecutionIDFromRow(x.Partition(), row.ExecutionID),
			Node:      row.NodeKey,
			Kind:      row.ExecutionKind,
			State:     public,
			Outcome:   outcome,
			Result:    row.Result,
			Trace:     core.Deref(row.FfxTrace),
		}
		if public.Terminal() && outcome != state.OutcomeSuccess {
			results[i].Failure = cmp.Or(row.FailureReason, row.LastFailureMessage, row.CancellationReason)
		}
	}
	return results, nil
}

// goneUpstream returns the remains of a pruned upstream: its counted outcome, or a failure if none was counted.
func goneUpstream(partition int16, row *db.ListUpstreamResultsRow) UpstreamResult {
	outcome := state.TerminalOutcome(cmp.Or(row.ResolvedOutcome, string(state.OutcomeFailed)))
	public := state.PublicState(outcome)
	if outcome == state.OutcomeSuccess {
		public = state.PublicCompleted
	}
	return UpstreamResult{
		Execution: id.ExecutionIDFromRow(partition, row.ExecutionID), Node: row.NodeKey, State: public, Outcome: outcome, Gone: true,
	}
}
