package adopt

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/db"
)

const now = 1_000

// created returns an execution as FlowFabric creates it, changed by changes.
func created(changes ...func(*db.TakeForeignRow)) *db.TakeForeignRow {
	r := &db.TakeForeignRow{
		LifecyclePhase: "submitted", OwnershipState: "unowned", EligibilityState: "eligible_now", PublicState: "waiting", AttemptState: "pending",
		DeadlineAtMs: none, ExecutionDeadlineMs: none, DelayUntilMs: none, RetryAtMs: none, PolicyDelayMs: none, PolicyDeadlineMs: none,
	}
	for _, c := range changes {
		c(r)
	}
	return r
}

func runnable(r *db.TakeForeignRow) {
	r.LifecyclePhase, r.AttemptState = "runnable", "pending_first_attempt"
}

func delayed(r *db.TakeForeignRow) {
	runnable(r)
	r.EligibilityState, r.PublicState, r.BlockingReason = "not_eligible_until_time", "delayed", "waiting_for_retry_backoff"
}

func ended(r *db.TakeForeignRow) {
	r.LifecyclePhase, r.EligibilityState, r.PublicState, r.AttemptState = "terminal", "not_applicable", "completed", "attempt_terminal"
}

func TestDecideStates(t *testing.T) {
	type row = db.TakeForeignRow
	const ready, held, later = "eligible_now", "blocked_by_dependencies", "not_eligible_until_time"
	for _, test := range []struct {
		name string
		row  *row
		want change
	}{
		{"created", created(), change{moves: true, eligibility: ready, publicState: "waiting", attemptState: "pending_first_attempt", reason: "waiting_for_worker"}},
		{"held", created(func(r *row) { r.Held = true }), change{moves: true, eligibility: held, publicState: "waiting_children", attemptState: "pending_first_attempt", reason: "waiting_for_children"}},
		{
			"held before its delay",
			created(func(r *row) { r.Held, r.PolicyDelayMs = true, now+1 }),
			change{moves: true, eligibility: held, publicState: "waiting_children", attemptState: "pending_first_attempt", reason: "waiting_for_children", delayUntil: now + 1},
		},
		{
			"delayed by its policy",
			created(func(r *row) { r.PolicyDelayMs = now + 1 }),
			change{moves: true, eligibility: later, publicState: "delayed", attemptState: "pending_first_attempt", reason: "waiting_for_delay", delayUntil: now + 1, deadlineAt: now + 1},
		},
		{"its policy's delay is over", created(func(r *row) { r.PolicyDelayMs = now }), change{moves: true, eligibility: ready, publicState: "waiting", attemptState: "pending_first_attempt", reason: "waiting_for_worker"}},
		{"budgets", created(func(r *row) { r.Budgets = "{}" }), change{moves: true, gated: true, eligibility: "blocked_by_budget", publicState: "rate_limited", attemptState: "pending_first_attempt", reason: "waiting_for_budget"}},
		{"no id of a budget", created(func(r *row) { r.BadBudget = "x" }), change{moves: true, gated: true, eligibility: "blocked_by_budget", publicState: "rate_limited", attemptState: "pending_first_attempt", reason: "waiting_for_budget"}},
		{"no id of a quota", created(func(r *row) { r.BadQuota = "x" }), change{moves: true, gated: true, eligibility: "blocked_by_quota", publicState: "rate_limited", attemptState: "pending_first_attempt", reason: "waiting_for_quota"}},
		{"admitted", created(func(r *row) { r.BadQuota, r.Admitted = "x", true }), change{moves: true, eligibility: ready, publicState: "waiting", attemptState: "pending_first_attempt", reason: "waiting_for_worker"}},
		{"granted", created(func(r *row) { r.EligibilityState = "pending_claim" }), change{eligibility: "pending_claim", publicState: "waiting", attemptState: "pending_first_attempt"}},
		{"canonical", created(runnable), change{eligibility: ready, publicState: "waiting", attemptState: "pending_first_attempt", reason: "waiting_for_worker"}},
		{"resumable", created(runnable, func(r *row) { r.PublicState = "resumable" }), change{eligibility: ready, publicState: "resumable", attemptState: "pending_first_attempt", reason: "waiting_for_worker"}},
		{"canonical, then held", created(runnable, func(r *row) { r.Held = true }), change{moves: true, eligibility: held, publicState: "waiting_children", attemptState: "pending_first_attempt", reason: "waiting_for_children"}},
		{
			"blocked for a reason of its own",
			created(runnable, func(r *row) { r.EligibilityState, r.BlockingReason = "blocked_by_operator", "maintenance" }),
			change{eligibility: "blocked_by_operator", publicState: "waiting", attemptState: "pending_first_attempt", reason: "maintenance"},
		},
		{"leased", created(runnable, func(r *row) { r.LifecyclePhase, r.OwnershipState = "active", "leased" }), change{eligibility: ready, publicState: "waiting", attemptState: "pending_first_attempt", reason: "waiting_for_worker"}},
		{"ended", created(ended), change{eligibility: "not_applicable", publicState: "waiting", attemptState: "attempt_terminal"}},
	} {
		want := test.want
		if want.delayUntil == 0 {
			want.delayUntil = none
		}
		if want.deadlineAt == 0 {
			want.deadlineAt = none
		}
		if got := decide(test.row, now); got != want {
			t.Errorf("%s:\n\t%+v, want\n\t%+v", test.name, got, want)
		}
	}
}

func TestDecideTimes(t *testing.T) {
	type row = db.TakeForeignRow
	for _, test := range []struct {
		name                             string
		row                              *row
		deadline, delayUntil, deadlineAt int64
	}{
		{"none", created(), 0, none, none},
		{"deadline of the policy", created(func(r *row) { r.PolicyDeadlineMs = 5_000 }), 5_000, none, 5_000},
		{"stored deadline", created(func(r *row) { r.PolicyDeadlineMs, r.DeadlineAtMs = 5_000, 4_000 }), 4_000, none, 4_000},
		{"known deadline", created(func(r *row) { r.ExecutionDeadlineMs, r.DeadlineAtMs = 3_000, 4_000 }), 3_000, none, 3_000},
		{"reopened elsewhere", created(func(r *row) { r.ExecutionDeadlineMs, r.DeadlineAtMs = -3_000, 4_000 }), 4_000, none, 4_000},
		{"delay before the deadline", created(func(r *row) { r.PolicyDelayMs, r.PolicyDeadlineMs = 2_000, 5_000 }), 5_000, 2_000, 2_000},
		{"deadline before the delay", created(func(r *row) { r.PolicyDelayMs, r.PolicyDeadlineMs = 6_000, 5_000 }), 5_000, 6_000, 5_000},
		{"delayed by a retry", created(delayed, func(r *row) { r.RetryAtMs, r.DeadlineAtMs = 2_000, 4_000 }), 4_000, 2_000, 2_000},
		{"delayed without a retry", created(delayed, func(r *row) { r.DeadlineAtMs, r.PolicyDeadlineMs = 2_000, 9_000 }), 9_000, 2_000, 2_000},
		{"delayed without a time", created(delayed), 0, now, now},
		{"delayed by this library", created(delayed, func(r *row) { r.DelayUntilMs, r.DeadlineAtMs, r.RetryAtMs, r.ExecutionDeadlineMs = 2_000, 2_000, 1, 0 }), 0, 2_000, 2_000},
		{"delayed again elsewhere", created(delayed, func(r *row) { r.DelayUntilMs, r.DeadlineAtMs, r.ExecutionDeadlineMs = 2_000, 3_000, 0 }), 0, 3_000, 3_000},
		{"a delay left over", created(runnable, func(r *row) { r.DelayUntilMs = 2_000 }), 0, none, none},
		{"ended", created(ended, func(r *row) { r.DeadlineAtMs = 4_000 }), -4_000, none, 4_000},
		{"ended and adopted", created(ended, func(r *row) { r.DeadlineAtMs, r.ExecutionDeadlineMs = 4_000, -5_000 }), -5_000, none, 4_000},
	} {
		got := decide(test.row, now)
		if got.deadline != test.deadline || got.delayUntil != test.delayUntil || got.deadlineAt != test.deadlineAt {
			t.Errorf("%s: deadline %d, delay %d, deadline_at %d; want %d, %d, %d", test.name, got.deadline, got.delayUntil, got.deadlineAt,
				test.deadline, test.delayUntil, test.deadlineAt)
		}
	}
}
