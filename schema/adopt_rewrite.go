package schema

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/adopt"
	"github.com/flowfabric/flowfabric-go/internal/document"
)

// rewritePage is the number of executions for one transaction.
const rewritePage = 2000

// found is an execution to rewrite, in FlowFabric's last state.
type found struct {
	Partition  int16
	Execution  pgtype.UUID
	Flow       pgtype.UUID
	Settled    bool   // only the public state changes
	Quota      string // the id of the quota policy, as text
	Dependent  bool   // dependencies may hold the execution
	Mispointed bool   // the pointer is not at the current attempt
	HalfEnded  bool   // ended with a lease, or cancelled without an event
	WrongState bool   // ended, with a wrong public state
}

// foundExecutions returns the next executions, by key, not yet in the library's form. Each rewrite sets
// ffx_retry_count. If the column is set already, only the public state may be in an old form.
const foundExecutions = `
SELECT
    e.partition_key AS partition,
    e.execution_id AS execution,
    e.flow_id AS flow,
    e.ffx_retry_count IS NOT NULL AS settled,
    coalesce(e.raw_fields ->> 'quota_policy_id', '') AS quota,
    w.waits AND e.flow_id IS NOT NULL AND e.started_at_ms IS NULL AS dependent,
    w.waits AND CASE e.attempt_state
        WHEN 'attempt_interrupted' THEN NOT EXISTS (
            SELECT
            FROM ff_attempt AS t
            WHERE
                t.partition_key = e.partition_key
                AND t.execution_id = e.execution_id
                AND t.attempt_index = e.attempt_index
        )
        WHEN 'pending_retry_attempt' THEN EXISTS (
            SELECT
            FROM ff_attempt AS t
            WHERE
                t.partition_key = e.partition_key
                AND t.execution_id = e.execution_id
                AND t.attempt_index = e.attempt_index
                AND t.terminal_at_ms IS NOT NULL
        )
        ELSE false
    END AS mispointed,
    (
        w.ended
        AND e.terminal_at_ms > ffx_now_ms(NULL) - 86400000
        AND (e.ownership_state = 'leased' OR e.lifecycle_phase = 'cancelled' OR e.public_state = 'cancelled')
    ) IS TRUE AS half_ended,
    w.ended AND e.public_state NOT IN ('completed', 'failed', 'cancelled', 'expired', 'skipped') AS wrong_state
FROM ff_exec_core AS e
CROSS JOIN LATERAL (
    SELECT
        e.lifecycle_phase IN ('terminal', 'cancelled') AS ended,
        e.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'eligible', 'blocked')
        AND e.ownership_state IN ('unowned', 'released')
        AND e.eligibility_state <> 'pending_claim' AS waits
) AS w
WHERE
    (
        e.ffx_retry_count IS NULL
        OR e.lifecycle_phase IN ('terminal', 'cancelled')
        AND e.public_state NOT IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
    )
    AND (e.partition_key, e.execution_id) > ($1::smallint, $2::uuid)
ORDER BY
    e.partition_key,
    e.execution_id
LIMIT $3`

// rewriteExecutions converts all executions at once, with statements of the background work.
func (c *conversion) rewriteExecutions(ctx context.Context) error {
	after := found{Partition: math.MinInt16, Execution: pgtype.UUID{Valid: true}}
	for {
		var page []found
		rewritten := 0
		err := c.retryLocked(ctx, func() error {
			if err := c.lockStands(ctx); err != nil {
				return err
			}
			return c.inTx(ctx, func(tx pgx.Tx) (err error) {
				if _, err = tx.Exec(ctx, "SET LOCAL synchronous_commit = off; SET LOCAL ffx.defer_notify = 'on'"); err != nil {
					return err
				}
				rows, err := tx.Query(ctx, foundExecutions, after.Partition, after.Execution, rewritePage)
				if err != nil {
					return err
				}
				if page, err = pgx.CollectRows(rows, pgx.RowToStructByName[found]); err != nil || len(page) == 0 {
					return err
				}
				rewritten, err = rewriter{c, tx, db.New()}.rewrite(ctx, page)
				return err
			})
		})
		if err != nil {
			return classify("rewrite ff_exec_core", err)
		}
		if len(page) == 0 {
			return nil
		}
		c.count("ff_exec_core").Rewritten += int64(rewritten)
		after = page[len(page)-1]
	}
}

// rewriter rewrites executions in a transaction.
type rewriter struct {
	c  *conversion
	tx pgx.Tx
	q  *db.Queries
}

// keys are the keys of executions, as parameters.
type keys struct {
	partitions []int16
	executions []pgtype.UUID
}

func keysOf(page []found, of func(found) bool) keys {
	var k keys
	for _, x := range page {
		if of(x) {
			k.partitions, k.executions = append(k.partitions, x.Partition), append(k.executions, x.Execution)
		}
	}
	return k
}

// rewrite rewrites a page and returns the number of executions written.
func (r rewriter) rewrite(ctx context.Context, page []found) (int, error) {
	nowMs, err := r.q.GetNow(ctx, r.tx, nil)
	if err != nil {
		return 0, err
	}
	held, err := r.mustWait(ctx, page)
	if err != nil {
		return 0, err
	}
	var params db.TakeForeignParams
	settled := 0
	for _, x := range page {
		if x.Settled {
			settled++
			continue
		}
		var quota int16
		if policy, err := id.ParseQuotaPolicyID(x.Quota); err == nil {
			quota = r.c.partitions.QuotaPartition(policy)
		}
		params.PartitionKeys = append(params.PartitionKeys, x.Partition)
		params.ExecutionIDs = append(params.ExecutionIDs, x.Execution)
		params.FlowIDs = append(params.FlowIDs, x.Flow)
		params.Held = append(params.Held, held[x.Execution.Bytes])
		params.QuotaPartitions = append(params.QuotaPartitions, quota)
	}
	var rewritten []db.AdoptExecutionsRow
	if settled < len(page) {
		taken, err := r.q.TakeForeign(ctx, r.tx, params)
		if err != nil {
			return 0, err
		}
		if rewritten, err = r.q.AdoptExecutions(ctx, r.tx, adopt.Changes(taken, nowMs)); err != nil {
			return 0, err
		}
	}
	if k := keysOf(page, func(x found) bool { return x.Mispointed }); len(k.executions) > 0 {
		if _, err := r.q.RepointExecutions(ctx, r.tx, db.RepointExecutionsParams{
			PartitionKeys: k.partitions, ExecutionIDs: k.executions, NowMs: nowMs,
		}); err != nil {
			return 0, err
		}
	}
	if k := keysOf(page, func(x found) bool { return x.HalfEnded }); len(k.executions) > 0 {
		if err := r.heal(ctx, k, nowMs); err != nil {
			return 0, err
		}
	}
	if k := keysOf(page, func(x found) bool { return x.WrongState }); len(k.executions) > 0 {
		if _, err := r.q.RecordEndedStates(ctx, r.tx, db.RecordEndedStatesParams{
			PartitionKeys: k.partitions, ExecutionIDs: k.executions, NowMs: nowMs,
		}); err != nil {
			return 0, err
		}
	}
	return settled + len(rewritten), nil
}

// mustWait returns the flow members that have to wait for dependencies, and inserts missing group rows. A member with
// impossible dependencies waits too: the background work skips the member, and counts uncounted upstreams.
func (r rewriter) mustWait(ctx context.Context, page []found) (map[id.ExecutionUUID]bool, error) {
	members := keysOf(page, func(x found) bool { return x.Dependent })
	if len(members.executions) == 0 {
		return nil, nil
	}
	taken, err := r.q.TakeForeignMembers(ctx, r.tx, db.TakeForeignMembersParams{
		PartitionKeys: members.partitions, ExecutionIDs: members.executions,
	})
	if err != nil || len(taken) == 0 {
		return nil, err
	}
	var asked db.ReadInboundGroupsParams
	for _, row := range taken {
		asked.PartitionKeys = append(asked.PartitionKeys, row.PartitionKey)
		asked.FlowIDs = append(asked.FlowIDs, pgtype.UUID{Bytes: *row.FlowID, Valid: true})
		asked.ExecutionIDs = append(asked.ExecutionIDs, pgtype.UUID{Bytes: row.ExecutionID, Valid: true})
	}
	groups, err := r.q.ReadInboundGroups(ctx, r.tx, asked)
	if err != nil {
		return nil, err
	}
	held := make(map[id.ExecutionUUID]bool, len(groups))
	var rowless db.EnsureGroupsParams
	for _, g := range groups {
		if !g.HasGroup {
			rowless.PartitionKeys = append(rowless.PartitionKeys, g.PartitionKey)
			rowless.FlowIDs = append(rowless.FlowIDs, g.FlowID)
			rowless.DownstreamEIDs = append(rowless.DownstreamEIDs, g.ExecutionID)
			held[g.ExecutionID.Bytes] = true
			continue
		}
		// An undecodable group holds the execution.
		rules, err := document.GroupFromStored(g.Policy)
		held[g.ExecutionID.Bytes] = err != nil ||
			rules.Decide(g.SuccessCount, g.FailCount, g.SkipCount, g.RunningCount, g.Staged) != document.Satisfied
	}
	if len(rowless.PartitionKeys) == 0 {
		return held, nil
	}
	r.c.count("ff_edge_group").Rewritten += int64(len(rowless.PartitionKeys))
	return held, r.q.EnsureGroups(ctx, r.tx, rowless)
}

// heal ends the leases of ended executions, and inserts the missing events of cancelled ones. The background work then
// resolves their dependents.
func (r rewriter) heal(ctx context.Context, k keys, nowMs int64) error {
	rows, err := r.q.TakeHalfDone(ctx, r.tx, db.TakeHalfDoneParams{PartitionKeys: k.partitions, ExecutionIDs: k.executions})
	if err != nil {
		return err
	}
	attempts, err := r.q.TakeCurrentAttempts(ctx, r.tx, db.TakeCurrentAttemptsParams{PartitionKeys: k.partitions, ExecutionIDs: k.executions})
	if err != nil {
		return err
	}
	current := make(map[id.ExecutionUUID]db.TakeCurrentAttemptsRow, len(attempts))
	for _, attempt := range attempts {
		current[attempt.ExecutionID] = attempt
	}
	reported, err := r.reported(ctx, rows)
	if err != nil {
		return err
	}
	healed := db.HealEndedParams{NowMs: nowMs}
	events := db.InsertCompletionEventsParams{NowMs: &nowMs}
	for i := range rows {
		row := &rows[i]
		key := pgtype.UUID{Bytes: row.ExecutionID, Valid: true}
		attempt, started := current[row.ExecutionID]
		index, epoch, leased := int32(-1), int64(0), started && attempt.LeaseExpiresAtMs != nil
		if leased || started && attempt.TerminalAtMs == nil {
			index, epoch = attempt.AttemptIndex, max(row.HighestEpoch, attempt.LeaseEpoch)+1
		}
		healed.PartitionKeys = append(healed.PartitionKeys, row.PartitionKey)
		healed.ExecutionIDs = append(healed.ExecutionIDs, key)
		healed.AttemptIndexes = append(healed.AttemptIndexes, index)
		healed.RaisedEpochs = append(healed.RaisedEpochs, epoch)
		healed.LeaseIDs = append(healed.LeaseIDs, attempt.LeaseID)
		healed.WorkerInstanceIDs = append(healed.WorkerInstanceIDs, attempt.WorkerInstanceID)
		healed.Leased = append(healed.Leased, leased)
		healed.Cancelled = append(healed.Cancelled, row.Unreported)
		if !row.Unreported || reported[row.ExecutionID] {
			continue
		}
		events.PartitionKeys = append(events.PartitionKeys, row.PartitionKey)
		events.ExecutionIDs = append(events.ExecutionIDs, key)
		events.Outcomes = append(events.Outcomes, "cancelled")
		events.Dispatched = append(events.Dispatched, row.FlowID == nil)
	}
	if err := r.q.HealEnded(ctx, r.tx, healed); err != nil {
		return err
	}
	if err := r.q.DiscardWaiting(ctx, r.tx, db.DiscardWaitingParams{
		PartitionKeys: healed.PartitionKeys, ExecutionIDs: healed.ExecutionIDs,
	}); err != nil {
		return err
	}
	if len(events.ExecutionIDs) == 0 {
		return nil
	}
	return r.q.InsertCompletionEvents(ctx, r.tx, events)
}

// reported returns which of the given executions already have a completion event for their end. The source is the old
// table, which has an index for the query.
func (r rewriter) reported(ctx context.Context, rows []db.TakeHalfDoneRow) (map[id.ExecutionUUID]bool, error) {
	var k keys
	var endedAtMs []int64
	for i := range rows {
		if rows[i].Unreported {
			k.partitions = append(k.partitions, rows[i].PartitionKey)
			k.executions = append(k.executions, pgtype.UUID{Bytes: rows[i].ExecutionID, Valid: true})
			endedAtMs = append(endedAtMs, rows[i].TerminalAtMs)
		}
	}
	reported := make(map[id.ExecutionUUID]bool, len(k.executions))
	if len(k.executions) == 0 {
		return reported, nil
	}
	found, err := r.tx.Query(ctx, `
		SELECT i.execution_id
		FROM (
			SELECT
				unnest($1::smallint[]) AS partition_key,
				unnest($2::uuid[]) AS execution_id,
				unnest($3::bigint[]) AS ended_at_ms
		) AS i
		WHERE (
			SELECT true
			FROM old_ff_completion_event AS c
			WHERE
				c.partition_key = i.partition_key
				AND c.execution_id = i.execution_id
				AND c.occurred_at_ms >= i.ended_at_ms
				AND c.outcome <> 'resumable'
			LIMIT 1
		)`,
		k.partitions, k.executions, endedAtMs)
	if err != nil {
		return nil, err
	}
	var x pgtype.UUID
	_, err = pgx.ForEachRow(found, []any{&x}, func() error {
		reported[x.Bytes] = true
		return nil
	})
	return reported, err
}
