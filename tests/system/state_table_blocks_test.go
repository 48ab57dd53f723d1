package system

import (
	"context"
	"strings"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// blockTable are blocks for each reason, and the calls that end them.
var blockTable = func() []transition {
	var table []transition
	for _, b := range []struct {
		reason      state.BlockingReason
		eligibility string
		public      string
		listed      bool // in the table of blocked executions: budgets and quotas have their gate
	}{
		{state.PausedByOperator, "blocked_by_operator", "waiting", true},
		{state.PausedByPolicy, "blocked_by_lane_state", "waiting", true},
		{state.WaitingForCapableWorker, "blocked_by_route", "waiting", true},
		{state.WaitingForBudget, "blocked_by_budget", "rate_limited", false},
		{state.WaitingForQuota, "blocked_by_quota", "rate_limited", false},
	} {
		block := wholeRow{
			"state":               strings.Join([]string{"runnable unowned", b.eligibility, b.public, "pending_first_attempt", string(b.reason)}, " "),
			"raw.blocking_detail": "wait", "raw.last_mutation_at": "now",
		}
		free := wholeRow{"state": fixture.StateReady, "raw.blocking_detail": "-", "raw.last_mutation_at": "now", "blocked": "-"}
		if b.listed {
			block["blocked"] = b.eligibility
		}
		table = append(table, transition{
			name: "block, " + string(b.reason), from: "create, ready", calls: blocking(b.reason),
			change: block.merged(isMutation).merged(unqueued),
		}, transition{
			name: "unblock, " + string(b.reason), from: "block, " + string(b.reason), calls: unblocking(b.reason), again: fferr.ErrNotEligible,
			change: free.merged(isMutation).merged(queued),
		}, transition{
			name: "cancel, " + string(b.reason), from: "block, " + string(b.reason), calls: cancelling,
			change: cancelled.merged(wholeRow{"execution_deadline_ms": "none", "blocked": "-"}), events: []string{"ended: cancelled at now"},
		})
	}
	return table
}()

func blocking(reason state.BlockingReason) []call {
	return []call{single("BlockExecution", func(ctx context.Context, s *stage, x *subject) error {
		_, err := operator.Block(ctx, s.e, x.x, reason, "wait")
		return err
	})}
}

func unblocking(reason state.BlockingReason) []call {
	return []call{single("UnblockExecution", func(ctx context.Context, s *stage, x *subject) error {
		return operator.Unblock(ctx, s.e, x.x, reason)
	})}
}
