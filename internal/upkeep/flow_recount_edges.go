package upkeep

import (
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// recount counts the edges of a group. A marked edge counts by its mark, whatever happened to the upstream since. An
// unmarked edge counts as the upstream ended, unless another program will still count that end.
//
// The outcome of a deleted upstream shows only in the counters: counts in excess of the other edges are attributed to
// deleted upstreams, successes first. Without an excess, the outcome is a failure.
func (g *recounting) recount(ending endings, undispatched map[id.ExecutionUUID]bool, nowMs int64) {
	var recent edgeCounts // may or may not be in the counters yet
	var gone []groupEdge
	for _, edge := range g.edges {
		outcome, counted := ending[edge.UpstreamEID]
		switch {
		case !edge.Applied:
			g.now.staged++
		case edge.CountedAs != "":
			*g.now.of(state.TerminalOutcome(edge.CountedAs).Bucket())++
		case counted && !(edge.ReplayedElsewhere && edge.ended()):
			g.mark(edge, outcome)
		case !edge.Stored:
			gone = append(gone, edge)
		case !edge.ended(), edge.TerminalAtMs <= edge.ReopenedAtMs:
			g.now.running++
		case counted:
			g.mark(edge, edge.outcome()) // the last of two reported ends
		case undispatched[edge.UpstreamEID], edge.TerminalAtMs > nowMs-settleTime.Milliseconds():
			g.now.running++
			*recent.of(edge.outcome().Bucket())++
		default:
			g.mark(edge, edge.outcome())
		}
	}
	stored := g.stored()
	for _, outcome := range []state.CompletionOutcome{state.CompletionSuccess, state.CompletionFailure, state.CompletionSkipped} {
		bucket := outcome.Bucket()
		for beyond := *stored.of(bucket) - *g.now.of(bucket) - *recent.of(bucket); beyond > 0 && len(gone) > 0; beyond-- {
			g.mark(gone[0], outcome)
			gone = gone[1:]
		}
	}
	for _, edge := range gone {
		g.mark(edge, state.CompletionFailure)
	}
}

func (g *recounting) mark(edge groupEdge, outcome state.CompletionOutcome) {
	g.marks = append(g.marks, edgeMark{edge, outcome})
	*g.now.of(outcome.Bucket())++
}

// stored returns the counts in the group's row.
func (g *recounting) stored() edgeCounts {
	return edgeCounts{
		success: int64(g.SuccessCount), fail: int64(g.FailCount), skip: int64(g.SkipCount),
		running: g.rules.Running(int64(g.RunningCount)), staged: g.now.staged,
	}
}

func (g *recounting) changed() bool {
	return len(g.marks) > 0 || g.now != g.stored() || g.KTarget != g.kTarget()
}

// kTarget is computed from the applied edges, as at every other write.
func (g *recounting) kTarget() int32 { return g.rules.KTarget(g.now.all() - g.now.staged) }

// decide returns the decision of the edges, and whether to act on it: either the group was undecided before, or the
// downstream still waits. A downstream replayed after a skip keeps waiting if everything that led to the skip was
// counted, because it waits for an upstream that is replayed too.
func (g *recounting) decide() (decision document.Decision, acts bool) {
	before, now := g.stored(), g.now
	decision = g.rules.Evaluate(now.all(), now.success, now.fail, now.skip)
	undecided := g.rules.Evaluate(before.all(), before.success, before.fail, before.skip) == document.Undecided
	waitsAnew := g.Replayed && decision == document.Impossible && len(g.marks) == 0
	return decision, decision != document.Undecided && (undecided || g.Held && !waitsAnew)
}

func (e groupEdge) ended() bool {
	switch e.LifecyclePhase {
	case "terminal", "cancelled", "completed", "failed", "expired", "skipped":
		return true
	}
	return false
}

// outcome returns the outcome of the ended upstream.
func (e groupEdge) outcome() state.CompletionOutcome {
	return normalise.TerminalOutcome(normalise.TerminalFacts{
		Phase:              state.Terminal,
		StoredPhase:        e.LifecyclePhase,
		PointerOutcome:     e.PointerOutcome,
		StoredPublicState:  e.PublicState,
		CurrentOutcome:     e.CurrentOutcome,
		RawTerminalOutcome: e.RawTerminalOutcome,
		CancellationReason: e.CancellationReason,
		LastFailureMessage: e.LastFailureMessage,
		FailureReason:      e.FailureReason,
	}).Completion()
}
