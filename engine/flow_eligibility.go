package engine

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Eligibility is the state of an execution's dependencies alone: a delayed, paused or budget-limited execution can be
// eligible.
type Eligibility struct {
	Status state.EligibilityStatus
	Reason string // in words, such as "waits for 2 of 3: fetch, parse"

	When                       *policy.Group // nil without dependencies
	Edges                      int           // number of upstreams, each counted in one of the following
	Succeeded, Failed, Skipped int
	Open                       []UpstreamRef // not ended, or with an edge only staged; by key, then by id
	Lost                       []UpstreamRef // ended without success; by key, then by id
}

// UpstreamRef is an upstream of an execution.
type UpstreamRef struct {
	Execution id.ExecutionID
	Node      string                // key in the flow; "" if not created as a node
	Outcome   state.TerminalOutcome // none until the end
}

// name returns the node's key, or the uuid without a key.
func (r UpstreamRef) name() string { return cmp.Or(r.Node, r.Execution.UUID().String()) }

// Eligibility reports whether the dependencies of an execution let it run, and which upstreams it waits for.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrCorruption] naming the unreadable value of the execution, its group or an
// upstream.
func (e *Engine) Eligibility(ctx context.Context, x id.ExecutionID) (Eligibility, error) {
	const op = "evaluate eligibility"
	eligibility, err := e.eligibility(ctx, x)
	return eligibility, core.Wrap(op, err)
}

// eligibility reads the upstreams themselves, because counters may be late.
func (e *Engine) eligibility(ctx context.Context, x id.ExecutionID) (Eligibility, error) {
	if err := e.c.CheckExecution(x); err != nil {
		return Eligibility{}, err
	}
	rows, err := e.c.Q.ListInbound(ctx, e.c.Reader(), db.ListInboundParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()})
	switch {
	case err != nil:
		return Eligibility{}, err
	case len(rows) == 0:
		return Eligibility{}, &fferr.NotFoundError{Entity: "execution", ID: x.String()}
	}
	group, eligibility, err := inboundOf(x.Partition(), rows)
	if err != nil {
		return Eligibility{}, err
	}
	if done, err := eligibility.standsStill(&rows[0]); done || err != nil {
		return eligibility, err
	}
	eligibility.decide(group)
	return eligibility, nil
}

// standsStill sets the status and returns true if something other than the dependencies decides it.
func (s *Eligibility) standsStill(row *db.ListInboundRow) (bool, error) {
	public, outcome, err := core.PublicState(row.LifecyclePhase, row.EligibilityState, row.PublicState, normalise.TerminalFacts{})
	if err != nil {
		return false, err
	}
	phase, err := normalise.LifecyclePhase(row.LifecyclePhase)
	if err != nil {
		return false, core.Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	owner, err := normalise.OwnershipState(row.OwnershipState)
	if err != nil {
		return false, core.Corrupt("ff_exec_core.ownership_state", err)
	}
	switch {
	case phase.Terminal():
		s.Status, s.Reason = state.StatusNotRunnable, "has ended"
		if outcome != state.OutcomeNone {
			s.Reason += ": " + string(public)
		}
	case phase != state.Runnable && phase != state.Submitted:
		s.Status, s.Reason = state.StatusNotRunnable, "is "+string(phase)
	case owner != state.Unowned:
		s.Status, s.Reason = state.StatusOwned, "it has an owner"
	case row.NotedOutcome != "" && !row.Replayed:
		s.Status, s.Reason = state.StatusTerminal, "another program recorded its end: "+row.NotedOutcome
	default:
		return false, nil
	}
	return true, nil
}

// decide sets the status by the group's policy.
func (s *Eligibility) decide(group document.Group) {
	lost := s.Failed + s.Skipped
	if s.Edges == 0 {
		s.Status, s.Reason = state.StatusEligible, "has no dependencies"
		return
	}
	switch group.Evaluate(int64(s.Edges), int64(s.Succeeded), int64(s.Failed), int64(s.Skipped)) {
	case document.Satisfied:
		s.Status, s.Reason = state.StatusEligible, fmt.Sprintf("%d of %d succeeded", s.Succeeded, s.Edges)
	case document.Impossible:
		s.Status = state.StatusImpossible
		s.Reason = fmt.Sprintf("%d of %d did not succeed: %s", lost, s.Edges, some(s.Lost))
		if lost == 0 {
			s.Reason = fmt.Sprintf("%d of %d succeeded", s.Succeeded, s.Edges)
		}
	default:
		s.Status = state.StatusBlocked
		if needs := s.When.Needs(s.Edges); needs > 0 {
			s.Reason = fmt.Sprintf("waits for %d of %d: %s", needs-s.Succeeded, s.Edges, some(s.Open))
		} else {
			s.Reason = fmt.Sprintf("waits for the end of %d of %d: %s", len(s.Open), s.Edges, some(s.Open))
		}
	}
}

// maxNamed is the largest number of upstreams named in a reason.
const maxNamed = 5

// some lists the names of upstreams, at most maxNamed.
func some(refs []UpstreamRef) string {
	var names []string
	for i, ref := range refs {
		if i == maxNamed {
			return strings.Join(names, ", ") + fmt.Sprintf(" and %d more", len(refs)-maxNamed)
		}
		name := ref.name()
		if ref.Outcome != state.OutcomeNone {
			name += " (" + string(ref.Outcome) + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// inboundOf counts the outcomes of an execution's upstreams.
func inboundOf(partition int16, rows []db.ListInboundRow) (group document.Group, s Eligibility, err error) {
	if rows[0].Policy != "" {
		if group, err = document.GroupFromStored([]byte(rows[0].Policy)); err != nil {
			return group, s, core.Corrupt("ff_edge_group.policy", err)
		}
	}
	var gone []UpstreamRef
	for i := range rows {
		row := &rows[i]
		if !row.HasEdge {
			continue
		}
		s.Edges++
		ref := UpstreamRef{Execution: id.ExecutionIDFromRow(partition, id.ExecutionUUID(row.UpstreamEID.Bytes)), Node: row.NodeKey}
		if ref.Outcome, err = endOfUpstream(row); err != nil {
			return group, s, err
		}
		if ref.Outcome == state.OutcomeNone && !row.Found && !row.Staged {
			gone = append(gone, ref)
			continue
		}
		s.count(ref)
	}
	if s.Edges > 0 {
		s.When = new(group.Policy())
	}
	// Deleted upstreams without a mark were counted by another program. They get the rest of the counters,
	// successes first. The remaining ones failed.
	succeeded := max(int(rows[0].SuccessCount)-s.Succeeded, 0)
	skipped := max(int(rows[0].SkipCount)-s.Skipped, 0)
	for i, ref := range gone {
		switch {
		case i < succeeded:
			ref.Outcome = state.OutcomeSuccess
		case i < succeeded+skipped:
			ref.Outcome = state.OutcomeSkipped
		default:
			ref.Outcome = state.OutcomeFailed
		}
		s.count(ref)
	}
	return group, s, nil
}

func (s *Eligibility) count(ref UpstreamRef) {
	if ref.Outcome == state.OutcomeNone {
		s.Open = append(s.Open, ref)
		return
	}
	switch ref.Outcome.Bucket() {
	case state.BucketSuccess:
		s.Succeeded++
		return
	case state.BucketSkip:
		s.Skipped++
	default:
		s.Failed++
	}
	s.Lost = append(s.Lost, ref)
}

// endOfUpstream returns the outcome of an upstream for an edge. The outcome is none if the upstream has not ended, or
// if the edge waits for another end after a replay.
func endOfUpstream(row *db.ListInboundRow) (state.TerminalOutcome, error) {
	if row.Staged {
		return state.OutcomeNone, nil
	}
	if !row.Found {
		outcome := state.TerminalOutcome(row.ResolvedOutcome)
		if outcome == "" {
			outcome = state.OutcomeNone
		}
		return outcome, nil
	}
	public, outcome, err := core.PublicState(row.UpstreamPhase, row.UpstreamEligibilityState, row.UpstreamPublicState, normalise.TerminalFacts{
		PointerOutcome:     row.UpstreamPointerOutcome,
		CurrentOutcome:     row.UpstreamCurrentOutcome,
		RawTerminalOutcome: row.RawTerminalOutcome,
		CancellationReason: row.UpstreamCancellationReason,
		LastFailureMessage: row.LastFailureMessage,
		FailureReason:      row.FailureReason,
	})
	if err != nil || !public.Terminal() {
		return state.OutcomeNone, err
	}
	if reopened := core.Number([]byte(row.ReopenedAtMs)); reopened >= 0 && row.UpstreamTerminalAtMs <= reopened {
		return state.OutcomeNone, nil
	}
	if outcome == state.OutcomeNone {
		outcome = state.OutcomeFailed // a missing outcome counts as failed
	}
	return outcome, nil
}
