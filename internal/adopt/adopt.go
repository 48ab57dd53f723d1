// Package adopt decides which state of the library an execution of another program gets. The background work of package
// engine uses adopt beside a running FlowFabric, and package schema for the conversion of a database.
package adopt

import (
	"cmp"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
)

// none is a missing time, in the statements too.
const none = math.MinInt64

// Changes are the new columns of executions, in their order, decided at nowMs.
func Changes(rows []db.TakeForeignRow, nowMs int64) db.AdoptExecutionsParams {
	p := db.AdoptExecutionsParams{NowMs: nowMs}
	for i := range rows {
		r := &rows[i]
		c := decide(r, nowMs)
		p.PartitionKeys = append(p.PartitionKeys, r.PartitionKey)
		p.ExecutionIDs = append(p.ExecutionIDs, pgtype.UUID{Bytes: r.ExecutionID, Valid: true})
		p.Moves = append(p.Moves, c.moves)
		p.Gated = append(p.Gated, c.gated)
		p.EligibilityStates = append(p.EligibilityStates, c.eligibility)
		p.PublicStates = append(p.PublicStates, c.publicState)
		p.AttemptStates = append(p.AttemptStates, c.attemptState)
		p.Reasons = append(p.Reasons, c.reason)
		p.DeadlinesAtMs = append(p.DeadlinesAtMs, c.deadlineAt)
		p.ExecutionDeadlinesMs = append(p.ExecutionDeadlinesMs, c.deadline)
		p.DelaysUntilMs = append(p.DelaysUntilMs, c.delayUntil)
		p.RequiredCapabilities = append(p.RequiredCapabilities, r.Capabilities)
		p.Budgets = append(p.Budgets, r.Budgets)
		p.QuotaPolicyIDs = append(p.QuotaPolicyIDs, r.QuotaPolicyID)
		p.QuotaPartitions = append(p.QuotaPartitions, r.QuotaPartition)
		p.BadAttachments = append(p.BadAttachments, cmp.Or(r.BadBudget, r.BadQuota))
	}
	return p
}

// change is the decision about an execution. The states and the reason count only for a moved execution.
type change struct {
	moves bool // its state changes
	gated bool // it waits for its budgets or quota

	eligibility, publicState, attemptState, reason string

	deadline   int64 // of the execution; 0 or less if none, or ended
	delayUntil int64 // none unless delayed
	deadlineAt int64 // the earlier of the two, as read by FlowFabric; or none
}

// facts are an execution with conclusions from the states.
type facts struct {
	*db.TakeForeignRow

	nowMs   int64
	ended   bool
	waits   bool // without a lease or a grant
	created bool // and in the form of a creation by FlowFabric
	delayed bool
}

func decide(r *db.TakeForeignRow, nowMs int64) change {
	f := facts{TakeForeignRow: r, nowMs: nowMs}
	f.ended = r.LifecyclePhase == "terminal" || r.LifecyclePhase == "cancelled"
	f.delayed = r.EligibilityState == "not_eligible_until_time"
	createdPhase := slices.Contains([]string{"submitted", "pending", "eligible", "blocked"}, r.LifecyclePhase)
	f.waits = (r.LifecyclePhase == "runnable" || createdPhase) &&
		(r.OwnershipState == "unowned" || r.OwnershipState == "released") && r.EligibilityState != "pending_claim"
	f.created = createdPhase || slices.Contains([]string{"pending", "pending_claim", "initial"}, r.AttemptState)

	c := change{eligibility: f.newEligibility(), deadline: f.newDeadline(), delayUntil: f.newDelay()}
	c.publicState = publicStateOf(c.eligibility, r.PublicState)
	c.reason = f.newReason(c.eligibility)
	c.attemptState = r.AttemptState
	if slices.Contains([]string{"none", "", "pending", "pending_claim", "initial"}, r.AttemptState) {
		c.attemptState = "pending_first_attempt"
	}
	c.deadlineAt = noneIfZero(c.deadline)
	switch {
	case f.ended:
		c.deadlineAt = r.DeadlineAtMs
	case f.waits && c.eligibility == "not_eligible_until_time":
		c.deadlineAt = earliest(c.delayUntil, c.deadlineAt)
	}
	c.gated = f.waits && (c.eligibility == "blocked_by_budget" || c.eligibility == "blocked_by_quota")
	c.moves = f.waits && (f.created || c.eligibility != r.EligibilityState || c.publicState != r.PublicState)
	return c
}

// newEligibility returns the condition the execution waits for.
func (f *facts) newEligibility() string {
	switch f.EligibilityState {
	case "blocked_by_budget", "blocked_by_quota", "blocked_by_route", "blocked_by_lane_state", "blocked_by_operator":
		return f.EligibilityState
	}
	switch {
	case !f.waits || f.delayed:
		return f.EligibilityState
	case f.Held && (f.created || f.EligibilityState == "eligible_now"):
		return "blocked_by_dependencies"
	case !f.created && f.EligibilityState != "eligible_now":
		return f.EligibilityState
	case f.created && f.PolicyDelayMs > f.nowMs:
		return "not_eligible_until_time"
	case f.Admitted:
		return "eligible_now"
	case f.Budgets != "" || f.BadBudget != "":
		return "blocked_by_budget"
	case f.QuotaPolicyID.Valid || f.BadQuota != "":
		return "blocked_by_quota"
	}
	return "eligible_now"
}

// newDelay returns until when the execution is delayed.
func (f *facts) newDelay() int64 {
	// The delay is the library's if deadline_at_ms still follows from the delay. Otherwise FlowFabric has delayed the
	// execution since.
	deadline := int64(none)
	if f.ExecutionDeadlineMs > 0 {
		deadline = f.ExecutionDeadlineMs
	}
	ownDelay := f.DelayUntilMs != none && f.DeadlineAtMs == earliest(f.DelayUntilMs, deadline)
	switch {
	case !f.waits, f.EligibilityState == "blocked_by_dependencies" && !f.created, f.delayed && ownDelay:
		return f.DelayUntilMs
	case f.delayed:
		return first(f.RetryAtMs, f.DeadlineAtMs, f.nowMs)
	case f.created && f.PolicyDelayMs > f.nowMs:
		return f.PolicyDelayMs
	}
	return none
}

// newDeadline returns the deadline of the execution, which an end negates.
func (f *facts) newDeadline() int64 {
	known := f.ExecutionDeadlineMs != none && (f.ExecutionDeadlineMs >= 0 || f.ended)
	switch {
	case known:
		return f.ExecutionDeadlineMs
	case f.ended:
		return -max(first(f.DeadlineAtMs, 0), -first(f.DeadlineAtMs, 0))
	case f.delayed && f.RetryAtMs == none:
		return first(f.PolicyDeadlineMs, 0) // deadline_at_ms is the end of the delay
	}
	return first(noneIfZero(f.DeadlineAtMs), f.PolicyDeadlineMs, 0)
}

// newReason keeps the reason, if any, of a remaining condition.
func (f *facts) newReason(eligibility string) string {
	kept := eligibility == f.EligibilityState && eligibility != "eligible_now"
	if kept && f.BlockingReason != "" && f.BlockingReason != "none" {
		return f.BlockingReason
	}
	return reasons[eligibility]
}

var reasons = map[string]string{
	"eligible_now":            "waiting_for_worker",
	"not_eligible_until_time": "waiting_for_delay",
	"blocked_by_dependencies": "waiting_for_children",
	"blocked_by_budget":       "waiting_for_budget",
	"blocked_by_quota":        "waiting_for_quota",
	"blocked_by_route":        "waiting_for_capable_worker",
	"blocked_by_lane_state":   "paused_by_policy",
	"blocked_by_operator":     "paused_by_operator",
}

func publicStateOf(eligibility, current string) string {
	switch eligibility {
	case "eligible_now":
		if current == "resumable" {
			return current
		}
	case "not_eligible_until_time":
		return "delayed"
	case "blocked_by_dependencies":
		return "waiting_children"
	case "blocked_by_budget", "blocked_by_quota":
		return "rate_limited"
	}
	return "waiting"
}

// first returns the first existing time.
func first(times ...int64) int64 {
	for _, t := range times {
		if t != none {
			return t
		}
	}
	return none
}

// earliest returns the earlier of two times, or the only one.
func earliest(a, b int64) int64 {
	if a == none || b == none {
		return first(a, b)
	}
	return min(a, b)
}

func noneIfZero(t int64) int64 {
	if t == 0 {
		return none
	}
	return t
}
