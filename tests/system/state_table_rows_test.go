package system

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// created are the columns of every creation.
var created = wholeRow{
	"lane_id": "own", "priority": "7", "created_at_ms": "now", "last_mutation_at_ms": "now", "attempt_index": "0",
	"attempt_count": "0", "retry_count": "0", "lease_epoch": "0", "lease_reclaim_count": "0",
	"execution_deadline_ms": "none", "namespace": "default", "instance_tag": "i-1", "payload": `\x01`,
	"raw.namespace": "default", "raw.execution_kind": "test", "raw.creator_identity": "tester",
	"raw.tags": `{"cairn.instance_id":"i-1"}`, "raw.last_mutation_at": "now", "raw.total_attempt_count": "0",
}

// limited is a policy that allows one retry and one lost lease.
func limited(spec *engine.ExecutionSpec, now time.Time) {
	spec.Deadline = now.Add(time.Hour)
	spec.Policy = &policy.Execution{
		Retry: &policy.Retry{MaxRetries: 1, Backoff: policy.Fixed(5 * time.Second)}, AttemptTimeout: time.Minute, MaxReclaims: 1,
	}
}

var queued = wholeRow{
	"queue.lane_id": "own", "queue.rank": "-7", "queue.created_at_ms": "1s", "queue.kind": "test",
}

var unqueued = wholeRow{
	"queue.lane_id": "-", "queue.rank": "-", "queue.created_at_ms": "-", "queue.kind": "-",
}

var isLimited = wholeRow{
	"deadline_at_ms": "now+1h", "execution_deadline_ms": "now+1h",
	"policy": `{"budget_ids":[],"max_reclaim_count":1,"max_replay_count":10,"max_signals_per_execution":10000,"priority":0,` +
		`"retry_policy":{"backoff":{"delay_ms":5000,"type":"fixed"},"max_retries":1,"retryable_categories":[]},` +
		`"timeout_policy":{"attempt_timeout_ms":60000,"max_reclaim_count":100}}`,
}

var member = wholeRow{"state": fixture.StateHeld, "flow_id": "F1", "group": "0 succeeded, 0 failed, 0 skipped, 1 running"}

var isMutation = wholeRow{"last_mutation_at_ms": "now"}

// firstLease and so on are the columns that a claim writes.
var leased = wholeRow{"state": fixture.StateRunning}.merged(unqueued).merged(isMutation)

var firstLease = leased.merged(wholeRow{
	"started_at_ms": "now", "attempt_count": "1", "lease_epoch": "1",
	"0.attempt_id": "A1", "0.attempt_type": "initial", "0.lease_epoch": "1", "0.lease_id": "L1", "0.lease_expires_at_ms": "now+10s",
	"0.started_at_ms": "now", "0.worker_id": "own", "0.worker_instance_id": "own",
})

// fromFirst and so on end a lease.
var success = wholeRow{
	"state": fixture.StateCompleted, "terminal_at_ms": "now", "result": `\x02`,
	"0.outcome": "success", "0.terminal_at_ms": "now", "0.lease_expires_at_ms": "-",
}.merged(isMutation)

var lost = wholeRow{"0.lease_expires_at_ms": "-", "0.timeout_at_ms": "-", "0.lease_epoch": "2", "lease_epoch": "2"}.merged(isMutation)

var left = wholeRow{"0.worker_id": "-", "0.worker_instance_id": "-"}

var cancelled = wholeRow{
	"state": fixture.StateCancelled, "terminal_at_ms": "now", "cancellation_reason": "not wanted", "cancelled_by": "operator_override",
	"execution_deadline_ms": "ended 1h0m1s",
}.merged(isMutation)

var replayed = wholeRow{
	"state": fixture.StateReplayed, "terminal_at_ms": "-",
	"retry_count": "0", "lease_reclaim_count": "0", "raw.replay_count": "1", "raw.ffx_replay_count": "1", "raw.last_mutation_at": "now",
	"0.outcome": "-", "0.terminal_at_ms": "-", "0.started_at_ms": "-", "0.worker_id": "-", "0.worker_instance_id": "-",
}.merged(isMutation).merged(queued)

var resumedLost = leased.merged(wholeRow{
	"grants": "-", "lease_epoch": "3", "0.outcome": "-", "0.timeout_at_ms": "now+1m", "0.lease_epoch": "3", "0.lease_id": "L2",
	"0.lease_expires_at_ms": "now+10s", "0.worker_id": "own", "0.worker_instance_id": "own", "0.resumed_at_ms": "now",
})

// reclaimed has the columns that a reclaim writes: the attempt ends, and the next one begins.
var reclaimed = left.merged(isMutation).merged(wholeRow{
	"attempt_index": "1", "attempt_count": "2", "0.outcome": "interrupted_reclaimed", "0.terminal_at_ms": "now",
	"0.lease_expires_at_ms": "-", "0.timeout_at_ms": "-",
	"1.attempt_id": "A2", "1.attempt_type": "reclaim", "1.lease_id": "L2", "1.lease_expires_at_ms": "now+10s", "1.started_at_ms": "now",
	"1.worker_id": "own", "1.worker_instance_id": "own", "1.timeout_at_ms": "now+1m",
})

var expired = wholeRow{
	"terminal_at_ms": "now", "raw.last_failure_message": "execution_deadline", "raw.failure_reason": "execution_deadline",
	"raw.failure_category": "timeout", "raw.failure_class": "timeout", "execution_deadline_ms": "ended 1h0m1s", "raw.last_mutation_at": "now",
}.merged(isMutation).merged(unqueued)

var stateTable = []transition{
	// Creation.
	{
		name: "create, ready", calls: creations(nil), again: errDuplicate,
		change: created.merged(queued).merged(wholeRow{"state": fixture.StateReady}),
	},
	{
		name: "create, delayed", again: errDuplicate,
		calls: creations(func(spec *engine.ExecutionSpec, now time.Time) {
			limited(spec, now)
			spec.DelayUntil = now.Add(time.Minute)
		}),
		change: created.merged(isLimited).merged(wholeRow{"state": fixture.StateDelayed, "deadline_at_ms": "now+1m", "delay_until_ms": "now+1m"}),
	},
	{
		name: "create, limited", calls: creations(limited), again: errDuplicate,
		change: created.merged(queued).merged(isLimited).merged(wholeRow{"state": fixture.StateReady}),
	},
	{
		name: "create, to be retried at once", again: errDuplicate,
		calls: creations(func(spec *engine.ExecutionSpec, _ time.Time) {
			spec.Policy = &policy.Execution{Retry: policy.ImmediateRetries(1)}
		}),
		change: created.merged(queued).merged(wholeRow{
			"state": fixture.StateReady,
			"policy": `{"budget_ids":[],"max_reclaim_count":100,"max_replay_count":10,"max_signals_per_execution":10000,"priority":0,` +
				`"retry_policy":{"backoff":{"delay_ms":0,"type":"fixed"},"max_retries":1,"retryable_categories":[]}}`,
		}),
	},
	{
		name: "create, held for dependencies", calls: members(nil), again: errDuplicate,
		change: created.merged(member),
	},
	{
		name: "create, held and limited", calls: members(limited), again: errDuplicate,
		change: created.merged(isLimited).merged(member),
	},

	// Claims.
	{
		name: "claim", from: "create, ready", calls: claiming, again: fixture.ErrIdle,
		change: firstLease, events: []string{"acquired L1 of own at now"},
	},
	{
		name: "claim, limited", from: "create, limited", calls: claiming, again: fixture.ErrIdle,
		change: firstLease.merged(wholeRow{"0.timeout_at_ms": "now+1m"}), events: []string{"acquired L1 of own at now"},
	},
	{
		name: "claim, to be retried at once", from: "create, to be retried at once", calls: claiming, again: fixture.ErrIdle,
		change: firstLease, events: []string{"acquired L1 of own at now"},
	},
	{
		name: "claim, resumed", from: "release", calls: claiming, again: fixture.ErrIdle,
		change: leased.merged(wholeRow{
			"lease_epoch":   "2",
			"0.lease_epoch": "2", "0.lease_id": "L2", "0.lease_expires_at_ms": "now+10s", "0.outcome": "-", "0.delay_until_ms": "-",
			"0.resumed_at_ms": "now",
		}),
		events: []string{"acquired L2 of own at now"},
	},
	{
		name: "claim, of a retry", from: "promote, a retry", calls: claiming, again: fixture.ErrIdle,
		change: leased.merged(wholeRow{
			"attempt_count": "2", "lease_epoch": "2",
			"1.attempt_id": "A2", "1.attempt_type": "retry", "1.lease_epoch": "2", "1.lease_id": "L2", "1.lease_expires_at_ms": "now+10s",
			"1.started_at_ms": "now", "1.worker_id": "own", "1.worker_instance_id": "own", "1.timeout_at_ms": "now+1m",
		}),
		events: []string{"acquired L2 of own at now"},
	},

	{
		name: "claim, of a member", from: "dependencies satisfied", calls: claiming, again: fixture.ErrIdle,
		change: firstLease, events: []string{"acquired L1 of own at now"},
	},
	{
		name: "an epoch raised by another program", from: "release", seeded: true,
		calls: []call{single("", func(ctx context.Context, s *stage, x *subject) error {
			return s.byHand(ctx, x, "UPDATE ff_attempt SET lease_epoch = 5 WHERE partition_key = $1 AND execution_id = $2")
		})},
		change: wholeRow{"0.lease_epoch": "5"},
	},
	{
		name: "claim, slow", from: "an epoch raised by another program", calls: claiming, again: fixture.ErrIdle,
		change: leased.merged(wholeRow{
			"lease_epoch": "6", "0.lease_epoch": "6", "0.lease_id": "L2", "0.lease_expires_at_ms": "now+10s", "0.outcome": "-",
			"0.delay_until_ms": "-", "0.resumed_at_ms": "now",
		}),
		events: []string{"acquired L2 of own at now"},
	},

	// The holder of a lease.
	{
		name: "renew", from: "claim", calls: renewing, again: errActs,
		change: wholeRow{"0.lease_expires_at_ms": "now+10s"}, events: []string{"renewed L1 of own at now"},
	},
	{
		name: "progress", from: "claim", calls: reporting, again: errActs,
		change: wholeRow{
			"raw.progress_pct": "50", "raw.progress_message": "half", "raw.progress_updated_at": "now", "raw.last_mutation_at": "now",
		}.merged(isMutation),
	},
	{
		name: "complete", from: "claim", calls: completing,
		change: success, events: []string{"revoked L1 of own by backend at now", "ended: success at now"},
	},
	{
		name: "complete, limited", from: "claim, limited", calls: completing,
		change: success.merged(wholeRow{"0.timeout_at_ms": "-", "execution_deadline_ms": "ended 1h0m1s"}),
		events: []string{"revoked L1 of own by backend at now", "ended: success at now"},
	},
	{
		name: "complete, a member", from: "claim, of a member", calls: completing,
		change: success, events: []string{"revoked L1 of own by backend at now", "ended: success at now"},
	},
	{
		name: "fail, retried after a pause", from: "claim, limited", calls: failing(engine.Failure{Message: "broken", Category: "net"}),
		change: wholeRow{
			"state": fixture.StateBackoff, "attempt_index": "1", "retry_count": "1", "deadline_at_ms": "now+5s", "delay_until_ms": "now+5s",
			"0.outcome": "retry", "0.terminal_at_ms": "now", "0.lease_expires_at_ms": "-", "0.timeout_at_ms": "-", "0.delay_until_ms": "now+5s",
			"0.raw.failure_reason": "broken", "0.raw.failure_category": "net", "0.raw.failure_class": "transient",
		}.merged(isMutation),
		events: []string{"revoked L1 of own by backend at now"},
	},
	{
		name: "fail, without a policy", from: "claim", calls: failing(engine.Failure{Message: "broken"}),
		change: wholeRow{
			"state": fixture.StateBackoff, "attempt_index": "1", "retry_count": "1", "deadline_at_ms": "now+1s", "delay_until_ms": "now+1s",
			"0.outcome": "retry", "0.terminal_at_ms": "now", "0.lease_expires_at_ms": "-", "0.delay_until_ms": "now+1s",
			"0.raw.failure_reason": "broken", "0.raw.failure_category": "transient", "0.raw.failure_class": "transient",
		}.merged(isMutation),
		events: []string{"revoked L1 of own by backend at now"},
	},
	{
		name: "fail, retried at once", from: "claim, to be retried at once", calls: failing(engine.Failure{Message: "broken"}),
		change: wholeRow{
			"state": fixture.StateRetry, "attempt_index": "1", "retry_count": "1",
			"0.outcome": "retry", "0.terminal_at_ms": "now", "0.lease_expires_at_ms": "-", "0.delay_until_ms": "now",
			"0.raw.failure_reason": "broken", "0.raw.failure_category": "transient", "0.raw.failure_class": "transient",
		}.merged(isMutation).merged(queued),
		events: []string{"revoked L1 of own by backend at now"},
	},
	{
		name: "fail, terminal", from: "claim, limited", calls: failing(fixture.ForGood),
		change: wholeRow{
			"state": fixture.StateFailed, "terminal_at_ms": "now", "execution_deadline_ms": "ended 1h0m1s", "raw.last_mutation_at": "now",
			"raw.failure_reason": "broken", "raw.failure_category": "permanent", "raw.failure_class": "permanent",
			"raw.last_failure_message": "broken",
			"0.outcome":                "failed", "0.terminal_at_ms": "now", "0.lease_expires_at_ms": "-", "0.timeout_at_ms": "-",
		}.merged(isMutation),
		events: []string{"revoked L1 of own by backend at now", "ended: failed at now"},
	},
	{
		name: "release", from: "claim", calls: releasing,
		change: wholeRow{
			"state": fixture.StateReturned, "0.outcome": "interrupted", "0.lease_expires_at_ms": "-", "0.delay_until_ms": "now",
		}.merged(isMutation).merged(queued),
		events: []string{"revoked L1 of own by backend at now"},
	},

	{
		name: "delay", from: "claim, limited", calls: delaying,
		change: wholeRow{
			"state": fixture.StateLater, "deadline_at_ms": "1m0s", "delay_until_ms": "1m0s",
			"0.outcome": "interrupted", "0.lease_expires_at_ms": "-", "0.timeout_at_ms": "-", "0.delay_until_ms": "1m0s",
		}.merged(isMutation),
		events: []string{"revoked L1 of own by backend at now"},
	},
	{
		name: "promote, a delayed attempt", from: "delay", after: time.Minute, again: fixture.ErrIdle,
		calls:  background("PromoteDelayed", (*upkeep.Upkeep).PromoteDelayed),
		change: wholeRow{"state": fixture.StateReturned, "deadline_at_ms": "1h0m1s", "delay_until_ms": "-"}.merged(isMutation).merged(queued),
	},
	{
		name: "wait for children, of none", from: "claim, limited", calls: parking,
		change: wholeRow{
			"state": fixture.StateParked, "0.outcome": "waiting_children", "0.lease_expires_at_ms": "-", "0.timeout_at_ms": "-",
		}.merged(isMutation),
		events: []string{"revoked L1 of own by backend at now"},
	},
	{
		name: "wait for children, satisfied", from: "claim, of a member", calls: parking,
		change: wholeRow{
			"state": fixture.StateReturned, "0.outcome": "waiting_children", "0.lease_expires_at_ms": "-",
		}.merged(isMutation).merged(queued),
		events: []string{"revoked L1 of own by backend at now"},
	},
	{
		name: "an upstream that failed after all", from: "claim, of a member", seeded: true,
		calls: []call{single("", func(ctx context.Context, s *stage, x *subject) error {
			return s.byHand(ctx, x, `UPDATE ff_edge_group SET success_count = 0, fail_count = 1
				WHERE partition_key = $1 AND downstream_eid = $2`)
		})},
		change: wholeRow{"group": "0 succeeded, 1 failed, 0 skipped, 0 running"},
	},
	{
		name: "wait for children, impossible", from: "an upstream that failed after all", calls: parking, again: fferr.ErrStaleLease,
		change: lost.merged(wholeRow{
			"state": fixture.StateSkipped, "terminal_at_ms": "now", "0.outcome": "skipped", "0.terminal_at_ms": "now", "0.worker_instance_id": "-",
		}),
		events: []string{"revoked L1 of own by backend at now", "ended: skipped at now"},
	},

	// Background work.
	{
		name: "lease expiry", from: "claim, limited", after: fixture.LeaseTTL, calls: background("ExpireLeases", (*upkeep.Upkeep).ExpireLeases), again: fixture.ErrIdle,
		change: lost.merged(left).merged(queued).merged(wholeRow{
			"state": fixture.StateReturned, "lease_reclaim_count": "1", "0.outcome": "lease_expired_reclaimable",
			"0.raw.ffx_lost_leases": "expired 1 of own",
		}),
		events: []string{"expired L1 of own at now"},
	},
	{
		name: "claim, of a lost lease", from: "lease expiry", calls: claiming, again: fixture.ErrIdle,
		change: leased.merged(wholeRow{
			"lease_epoch": "3", "0.outcome": "-", "0.timeout_at_ms": "now+1m",
			"0.lease_epoch": "3", "0.lease_id": "L2", "0.lease_expires_at_ms": "now+10s", "0.worker_id": "own", "0.worker_instance_id": "own",
			"0.resumed_at_ms": "now",
		}),
		events: []string{"acquired L2 of own at now"},
	},
	{
		name: "lease expiry, cap exceeded", from: "claim, of a lost lease", after: fixture.LeaseTTL, again: fixture.ErrIdle,
		calls: background("ExpireLeases", (*upkeep.Upkeep).ExpireLeases),
		change: lost.merged(wholeRow{
			"state": fixture.StateFailed, "terminal_at_ms": "now", "lease_reclaim_count": "2", "lease_epoch": "4",
			"cancellation_reason": "reclaim_cap_exceeded", "raw.last_failure_message": "lease_reclaim_cap_exceeded",
			"raw.failure_reason": "lease_reclaim_cap_exceeded", "raw.failure_category": "infra_crash", "raw.failure_class": "infra_crash",
			"raw.last_mutation_at": "now", "execution_deadline_ms": "ended 1h0m1s",
			"0.outcome": "failed", "0.terminal_at_ms": "now", "0.lease_epoch": "4",
		}),
		events: []string{"expired L2 of own at now", "ended: failed at now"},
	},
	{
		name: "attempt timeout, retried", from: "claim, limited", after: time.Minute, again: fixture.ErrIdle,
		calls: background("ExpireAttempts", (*upkeep.Upkeep).ExpireAttempts),
		change: lost.merged(wholeRow{
			"state": fixture.StateBackoff, "attempt_index": "1", "retry_count": "1", "deadline_at_ms": "now+5s", "delay_until_ms": "now+5s",
			"0.outcome": "interrupted", "0.terminal_at_ms": "now", "0.delay_until_ms": "now+5s",
			"0.raw.failure_reason": "attempt_timeout", "0.raw.failure_category": "timeout", "0.raw.failure_class": "timeout",
		}),
		events: []string{"expired L1 of own at now"},
	},
	{
		name: "attempt timeout, exhausted", from: "claim, of a retry", after: time.Minute, again: fixture.ErrIdle,
		calls: background("ExpireAttempts", (*upkeep.Upkeep).ExpireAttempts),
		change: wholeRow{
			"state": fixture.StateExpired, "terminal_at_ms": "now", "lease_epoch": "3", "execution_deadline_ms": "ended 1h0m1s",
			"raw.last_failure_message": "attempt_timeout", "raw.failure_reason": "attempt_timeout", "raw.failure_category": "timeout", "raw.failure_class": "timeout",
			"raw.last_mutation_at": "now",
			"1.outcome":            "expired", "1.terminal_at_ms": "now", "1.lease_epoch": "3", "1.lease_expires_at_ms": "-", "1.timeout_at_ms": "-",
		}.merged(isMutation),
		events: []string{"expired L2 of own at now", "ended: expired at now"},
	},
	{
		name: "deadline, never started", from: "create, limited", after: time.Hour, again: fixture.ErrIdle, calls: deadlines,
		change: expired.merged(wholeRow{"state": fixture.StateUnstarted}), events: []string{"ended: expired at now"},
	},
	{
		name: "deadline, delayed", from: "create, delayed", after: time.Hour, again: fixture.ErrIdle, calls: deadlines,
		change: expired.merged(wholeRow{"state": fixture.StateUnstarted, "delay_until_ms": "-"}), events: []string{"ended: expired at now"},
	},
	{
		name: "deadline, running", from: "claim, limited", after: time.Hour, again: fixture.ErrIdle, calls: deadlines,
		change: expired.merged(lost).merged(wholeRow{"state": fixture.StateExpired, "0.outcome": "expired", "0.terminal_at_ms": "now"}),
		events: []string{"expired L1 of own at now", "ended: expired at now"},
	},
	{
		name: "deadline, lease lost", from: "lease expiry", after: time.Hour, again: fixture.ErrIdle, calls: deadlines,
		change: expired.merged(wholeRow{
			"state": fixture.StateExpired, "lease_epoch": "3", "0.lease_epoch": "3", "0.outcome": "expired", "0.terminal_at_ms": "now",
		}),
		events: []string{"ended: expired at now"},
	},
	{
		name: "deadline, retry pending", from: "fail, retried after a pause", after: time.Hour, again: fixture.ErrIdle, calls: deadlines,
		change: expired.merged(wholeRow{"state": fixture.StateExpired, "delay_until_ms": "-"}), events: []string{"ended: expired at now"},
	},
	{
		name: "deadline, held for dependencies", from: "create, held and limited", after: time.Hour, again: fixture.ErrIdle, calls: deadlines,
		change: expired.merged(wholeRow{"state": fixture.StateUnstarted}), events: []string{"ended: expired at now"},
	},
	{
		name: "suspended", from: "claim, limited", seeded: true,
		calls: []call{single("", func(ctx context.Context, s *stage, x *subject) error {
			return s.byHand(ctx, x, `WITH executions AS (
					UPDATE ff_exec_core SET lifecycle_phase = 'suspended', ownership_state = 'released', public_state = 'suspended',
						attempt_state = 'attempt_interrupted', blocking_reason = 'waiting_for_signal', ffx_lease_epoch = 2
					WHERE partition_key = $1 AND execution_id = $2
				)
				UPDATE ff_attempt SET outcome = 'attempt_interrupted', lease_expires_at_ms = NULL, ffx_timeout_at_ms = NULL, lease_epoch = 2
				WHERE partition_key = $1 AND execution_id = $2`)
		})},
		change: wholeRow{
			"state":       "suspended released not_applicable suspended attempt_interrupted waiting_for_signal",
			"0.outcome":   "attempt_interrupted",
			"lease_epoch": "2", "0.lease_epoch": "2", "0.lease_expires_at_ms": "-", "0.timeout_at_ms": "-",
		},
	},
	{
		name: "deadline, suspended", from: "suspended", after: time.Hour, again: fixture.ErrIdle, calls: deadlines,
		change: expired.merged(wholeRow{
			"state": fixture.StateExpired, "lease_epoch": "3", "0.lease_epoch": "3", "0.outcome": "expired", "0.terminal_at_ms": "now",
		}),
		events: []string{"ended: expired at now"},
	},
	{
		name: "promote, first start", from: "create, delayed", after: time.Minute, again: fixture.ErrIdle,
		calls:  background("PromoteDelayed", (*upkeep.Upkeep).PromoteDelayed),
		change: wholeRow{"state": fixture.StateReady, "deadline_at_ms": "1h0m1s", "delay_until_ms": "-"}.merged(isMutation).merged(queued),
	},
	{
		name: "promote, a retry", from: "fail, retried after a pause", after: 5 * time.Second, again: fixture.ErrIdle,
		calls:  background("PromoteDelayed", (*upkeep.Upkeep).PromoteDelayed),
		change: wholeRow{"state": fixture.StateRetry, "deadline_at_ms": "1h0m1s", "delay_until_ms": "-"}.merged(isMutation).merged(queued),
	},

	// Dependencies.
	{
		name: "dependencies satisfied", from: "create, held for dependencies", calls: upstream(false), again: fixture.ErrIdle,
		change: wholeRow{"state": fixture.StateReady, "group": "1 succeeded, 0 failed, 0 skipped, 0 running"}.merged(isMutation).merged(queued),
	},
	{
		name: "dependencies impossible", from: "create, held for dependencies", calls: upstream(true), again: fixture.ErrIdle,
		change: wholeRow{
			"state": fixture.StateSkipped, "terminal_at_ms": "now", "group": "0 succeeded, 1 failed, 0 skipped, 0 running",
		}.merged(isMutation),
		events: []string{"ended: skipped at now"},
	},

	// Cancelling, with or without a holder.
	{
		name: "cancel, ready", from: "create, limited", calls: cancelling,
		change: cancelled.merged(unqueued), events: []string{"ended: cancelled at now"},
	},
	{
		name: "cancel, delayed", from: "create, delayed", calls: cancelling,
		change: cancelled.merged(wholeRow{"delay_until_ms": "-"}), events: []string{"ended: cancelled at now"},
	},
	{
		name: "cancel, held for dependencies", from: "create, held and limited", calls: cancelling,
		change: cancelled, events: []string{"ended: cancelled at now"},
	},
	{
		name: "cancel, running", from: "claim, limited", calls: cancelling,
		change: cancelled.merged(lost).merged(wholeRow{
			"0.outcome": "cancelled", "0.terminal_at_ms": "now", "0.worker_instance_id": "-",
		}),
		events: []string{"revoked L1 of own by operator at now", "ended: cancelled at now"},
	},
	{
		name: "cancel, by its holder", from: "claim, limited", calls: cancellingByHolder,
		change: cancelled.merged(lost).merged(wholeRow{
			"cancelled_by": "worker", "0.outcome": "cancelled", "0.terminal_at_ms": "now", "0.worker_instance_id": "-",
		}),
		events: []string{"revoked L1 of own by backend at now", "ended: cancelled at now"},
	},
	{
		name: "cancel, a retry pending", from: "fail, retried after a pause", calls: cancelling,
		change: cancelled.merged(wholeRow{"delay_until_ms": "-"}), events: []string{"ended: cancelled at now"},
	},
	{
		name: "cancel, released", from: "release", calls: cancelling,
		change: cancelled.merged(unqueued).merged(wholeRow{
			"execution_deadline_ms": "none", "lease_epoch": "2", "0.lease_epoch": "2", "0.outcome": "-", "0.worker_instance_id": "-",
		}),
		events: []string{"ended: cancelled at now"},
	},
	{
		name: "cancel, lease lost", from: "lease expiry", calls: cancelling,
		change: cancelled.merged(unqueued).merged(wholeRow{"lease_epoch": "3", "0.lease_epoch": "3", "0.outcome": "-"}),
		events: []string{"ended: cancelled at now"},
	},
	{
		name: "cancel, suspended", from: "suspended", calls: cancelling,
		change: cancelled.merged(wholeRow{
			"lease_epoch": "3", "0.lease_epoch": "3", "0.outcome": "cancelled", "0.terminal_at_ms": "now", "0.worker_instance_id": "-",
		}),
		events: []string{"ended: cancelled at now"},
	},

	// Operators.
	{
		name: "revoke", from: "claim, limited", again: fixture.ErrIdle, calls: revoking,
		change: lost.merged(left).merged(queued).merged(wholeRow{
			"state": fixture.StateReturned, "0.outcome": "interrupted", "raw.lease_revoke_reason": "wrong", "raw.last_mutation_at": "now",
			"0.raw.ffx_lost_leases": "revoked 1 of own",
		}),
		events: []string{"revoked L1 of own by operator at now"},
	},
	{
		name: "change priority", from: "create, ready", again: errActs, calls: preferring,
		change: wholeRow{"priority": "9", "queue.rank": "-9"}.merged(isMutation),
		events: []string{`priority_changed {"new_priority":9,"old_priority":7} at now`},
	},
	{
		name: "move to another lane", from: "create, ready", calls: moving,
		change: wholeRow{"lane_id": "own.moved", "queue.lane_id": "own.moved"}.merged(isMutation),
	},
	{
		name: "move to another lane, released", from: "release", calls: moving,
		change: wholeRow{"lane_id": "own.moved", "queue.lane_id": "own.moved"}.merged(isMutation),
	},
	{
		name: "delay by an operator", from: "create, limited", calls: postponing(time.Minute),
		change: wholeRow{"state": fixture.StateDelayed, "deadline_at_ms": "now+1m", "delay_until_ms": "now+1m"}.merged(isMutation).merged(unqueued),
	},
	{
		name: "delay by an operator, of a retry", from: "fail, retried at once", calls: postponing(time.Minute),
		change: wholeRow{
			"state":          "runnable unowned not_eligible_until_time delayed pending_retry_attempt waiting_for_delay",
			"deadline_at_ms": "now+1m", "delay_until_ms": "now+1m",
		}.merged(isMutation).merged(unqueued),
	},
	{
		name: "wake by an operator", from: "create, delayed", calls: postponing(-time.Second),
		change: wholeRow{"state": fixture.StateReady, "deadline_at_ms": "1h0m1s", "delay_until_ms": "-"}.merged(isMutation).merged(queued),
	},
	{
		name: "replay, completed", from: "complete", again: fferr.ErrNotEnded, calls: replaying,
		change: replayed.merged(wholeRow{"result": "-", "lease_epoch": "2", "0.lease_epoch": "2"}),
		events: []string{`replayed {"branch":"normal"} at now`},
	},
	{
		name: "replay, failed", from: "fail, terminal", again: fferr.ErrNotEnded, calls: replaying,
		change: replayed.merged(wholeRow{
			"execution_deadline_ms": "1h0m1s", "lease_epoch": "2", "0.lease_epoch": "2",
			"raw.failure_reason": "-", "raw.failure_category": "-", "raw.failure_class": "-", "raw.last_failure_message": "-",
		}),
		events: []string{`replayed {"branch":"normal"} at now`},
	},
	{
		name: "replay, expired", from: "attempt timeout, exhausted", after: time.Hour, again: fferr.ErrNotEnded, calls: replaying,
		change: wholeRow{
			"state": fixture.StateReplayed, "terminal_at_ms": "-", "deadline_at_ms": "-", "execution_deadline_ms": "none", "lease_epoch": "4",
			"retry_count": "0", "raw.replay_count": "1", "raw.ffx_replay_count": "1", "raw.last_mutation_at": "now",
			"raw.failure_reason": "-", "raw.failure_category": "-", "raw.failure_class": "-", "raw.last_failure_message": "-",
			"1.lease_epoch": "4", "1.outcome": "-", "1.terminal_at_ms": "-", "1.started_at_ms": "-", "1.worker_id": "-", "1.worker_instance_id": "-",
		}.merged(isMutation).merged(queued),
		events: []string{`replayed {"branch":"normal"} at now`},
	},
	{
		name: "claim, of a replay", from: "replay, completed", calls: claiming, again: fixture.ErrIdle,
		change: leased.merged(wholeRow{
			"lease_epoch": "3", "0.lease_epoch": "3", "0.lease_id": "L2", "0.attempt_type": "replay", "0.started_at_ms": "now",
			"0.lease_expires_at_ms": "now+10s", "0.worker_id": "own", "0.worker_instance_id": "own",
		}),
		events: []string{"acquired L2 of own at now"},
	},
	{
		name: "replay, a skipped member", from: "dependencies impossible", again: fferr.ErrNotEnded, calls: replaying,
		change: wholeRow{
			"state": fixture.StateReplayedHeld, "terminal_at_ms": "-", "lease_epoch": "1", "raw.replay_count": "1", "raw.ffx_replay_count": "1", "raw.last_mutation_at": "now",
			"group": "0 succeeded, 0 failed, 0 skipped, 1 running",
		}.merged(isMutation),
		events: []string{`replayed {"branch":"skipped_flow_member","groups_reset":1} at now`},
	},

	// Grants.
	{
		name: "grant", from: "create, ready", calls: granting, again: fferr.ErrGrantExists,
		change: unqueued.merged(isMutation).merged(wholeRow{"state": fixture.StateGranted, "grants": "claim of own until now+1m"}),
	},
	{
		name: "grant, what is next", from: "create, ready", calls: grantingNext, again: fixture.ErrIdle,
		change: unqueued.merged(isMutation).merged(wholeRow{"state": fixture.StateGranted, "grants": "claim of own until now+1m"}),
	},
	{
		name: "grant, of a lost lease", from: "lease expiry", calls: granting, again: fferr.ErrGrantExists,
		change: unqueued.merged(isMutation).merged(wholeRow{"state": fixture.Granted(fixture.StateReturned), "grants": "claim of own until now+1m"}),
	},
	{
		name: "grant expired", from: "grant", after: fixture.GrantTTL, again: fixture.ErrIdle,
		calls:  background("ExpireGrants", (*upkeep.Upkeep).ExpireGrants),
		change: queued.merged(isMutation).merged(wholeRow{"state": fixture.StateReady, "grants": "-"}),
	},
	{
		name: "grant of a lost lease expired", from: "grant, of a lost lease", after: fixture.GrantTTL, again: fixture.ErrIdle,
		calls:  background("ExpireGrants", (*upkeep.Upkeep).ExpireGrants),
		change: queued.merged(isMutation).merged(wholeRow{"state": fixture.StateReturned, "grants": "-"}),
	},
	{
		name: "claim by a grant", from: "grant", calls: claimingByGrant, again: fferr.ErrNotLeaseable,
		change: firstLease.merged(wholeRow{"grants": "-"}), events: []string{"acquired L1 of own at now"},
	},
	{
		name: "claim by a grant, of a lost lease", from: "grant, of a lost lease", calls: claimingByGrant, again: fferr.ErrNotLeaseable,
		change: resumedLost, events: []string{"acquired L2 of own at now"},
	},
	{
		name: "resume by a grant", from: "grant, of a lost lease", calls: resumingByGrant, again: fferr.ErrInvalidGrant,
		change: resumedLost, events: []string{"reclaimed L2 of own at now"},
	},
	{
		name: "claim by an operator", from: "create, ready", calls: claimingByOperator, again: fferr.ErrNotLeaseable,
		change: firstLease.merged(wholeRow{"0.worker_id": "operator", "0.worker_instance_id": "operator"}),
		events: []string{"acquired L1 of operator at now"},
	},
	{
		name: "reclaim", from: "claim, limited", after: fixture.LeaseTTL, calls: reclaimingUpTo(nil), again: fferr.ErrReclaimCapExceeded,
		change: reclaimed.merged(wholeRow{
			"lease_epoch": "2", "0.lease_epoch": "2", "1.lease_epoch": "2", "lease_reclaim_count": "1", "0.raw.ffx_lost_leases": "reclaimed 1 of own",
		}),
		events: []string{"reclaimed L2 of own at now"},
	},
	{
		name: "reclaim, cap exceeded", from: "claim, limited", after: fixture.LeaseTTL, calls: reclaimingUpTo(new(0)), again: fferr.ErrReclaimCapExceeded,
		change: lost.merged(wholeRow{
			"state": fixture.StateFailed, "terminal_at_ms": "now", "lease_reclaim_count": "1", "cancellation_reason": "reclaim_cap_exceeded",
			"execution_deadline_ms": "ended 1h0m1s", "raw.last_failure_message": "lease_reclaim_cap_exceeded",
			"raw.failure_reason": "lease_reclaim_cap_exceeded", "raw.failure_category": "infra_crash", "raw.failure_class": "infra_crash", "raw.last_mutation_at": "now",
			"0.outcome": "failed", "0.terminal_at_ms": "now",
		}),
		events: []string{"revoked L1 of own by reconciler at now", "ended: failed at now"},
	},
}
