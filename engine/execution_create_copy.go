package engine

import (
	"context"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// minCopy is from how many executions on COPY is worth its round trips.
const minCopy = 100

// copyable says whether creations are many, and plain: claimable at once, without a deadline.
func copyable(creations []creation) bool {
	if len(creations) < minCopy {
		return false
	}
	for i := range creations {
		c := &creations[i]
		if c.delayUntilMs != 0 || c.deadlineMs != 0 || c.deadlineIn != 0 || c.quota != "" {
			return false
		}
	}
	return true
}

// copy creates plain executions. [errFellThrough]: one of them exists already, and none was created.
func (e *Engine) copy(ctx context.Context, op string, creations []creation) (map[id.ExecutionID]Created, error) {
	nowMs, err := e.q.GetNow(ctx, e.reader(), e.nowMs())
	if err != nil {
		return nil, wrap(op, err)
	}
	always := db.CopyExecutionsParams{
		LifecyclePhase:         string(state.Runnable),
		OwnershipState:         string(state.Unowned),
		EligibilityState:       string(state.EligibleNow),
		PublicState:            string(state.PublicWaiting),
		AttemptState:           string(state.PendingFirstAttempt),
		BlockingReason:         new(string(state.WaitingForWorker)),
		FfxAttemptCount:        new(int32),
		FfxRetryCount:          new(int32),
		FfxLeaseEpoch:          new(int64),
		FfxExecutionDeadlineMs: new(int64),
	}
	rows := make([]db.CopyExecutionsParams, len(creations))
	created := make(map[id.ExecutionID]Created, len(creations))
	for i := range creations {
		rows[i] = always
		fillCopied(&rows[i], &creations[i], nowMs)
		created[creations[i].id] = Created{ID: creations[i].id, State: state.PublicWaiting}
	}
	return inStatement(ctx, e, op, func(conn db.DBTX, due *notifications) (map[id.ExecutionID]Created, error) {
		if _, err := e.q.CopyExecutions(ctx, conn, rows); err != nil {
			return nil, err
		}
		for i := range creations {
			due.lane(creations[i].lane)
		}
		return created, nil
	})
}

func fillCopied(row *db.CopyExecutionsParams, c *creation, nowMs int64) {
	createdAtMs := nowMs
	if c.createdAtMs != 0 {
		createdAtMs = c.createdAtMs
	}
	row.PartitionKey = c.id.Partition()
	row.ExecutionID = c.id.UUID()
	row.LaneID = c.lane
	row.RequiredCapabilities = []string{}
	if c.capabilities != "" {
		row.RequiredCapabilities = strings.Split(c.capabilities, ",")
	}
	row.Priority = c.priority
	row.CreatedAtMs = createdAtMs
	row.FfxLastMutationAtMs = &createdAtMs
	row.Payload = c.payload
	if c.policy != "" {
		row.Policy = []byte(c.policy)
	}
	row.RawFields = []byte(c.raw[:len(c.raw)-1] + `,"last_mutation_at":"` + strconv.FormatInt(createdAtMs, 10) + `"}`)
}
