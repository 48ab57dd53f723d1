package core

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strconv"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Retries is a set of failed attempts to retry.
type Retries struct {
	Params db.ScheduleRetriesParams
}

func NewRetries(nowMs int64, attemptOutcome, leaseEvent string) *Retries {
	return &Retries{Params: db.ScheduleRetriesParams{NowMs: nowMs, AttemptOutcome: attemptOutcome, LeaseEvent: leaseEvent}}
}

func (s *Retries) Add(a EndingAttempt, retryAtMs int64) {
	p := &s.Params
	p.PartitionKeys = append(p.PartitionKeys, a.Execution.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, PgUUID(a.Execution.UUID()))
	p.AttemptIndexes = append(p.AttemptIndexes, a.Index)
	p.RaisedEpochs = append(p.RaisedEpochs, a.Epoch)
	p.LeaseIDs = append(p.LeaseIDs, a.LeaseID)
	p.WorkerInstanceIDs = append(p.WorkerInstanceIDs, a.Instance)
	p.DelaysUntilMs = append(p.DelaysUntilMs, retryAtMs)
	p.FailureReasons = append(p.FailureReasons, a.Reason)
	p.FailureCategories = append(p.FailureCategories, a.Category)
	p.FailureClasses = append(p.FailureClasses, string(a.Class))
	p.FailureDetails = append(p.FailureDetails, a.Detail)
	p.Traces = AddTrace(p.Traces, len(p.FailureDetails)-1, a.Trace)
}

func (s *Retries) Len() int { return len(s.Params.ExecutionIDs) }

// ScheduleRetries writes retries.
func (c *Core) ScheduleRetries(ctx context.Context, tx *Txn, s *Retries) error {
	if s.Len() == 0 {
		return nil
	}
	rows, err := c.Q.ScheduleRetries(ctx, tx, s.Params)
	if err != nil {
		return err
	}
	tx.Due.Leases()
	var fair []*FairWork
	for _, row := range rows {
		switch {
		case row.Fair != "":
			x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID.Bytes)
			fair = append(fair, ReturningFair(x, row.LaneID, row.Priority, row.Namespace, row.Fair))
			continue
		case row.Claimable:
			tx.Due.Lane(row.LaneID)
			continue
		case row.HasLimits:
			tx.Due.Gated()
		}
		tx.Due.Delayed = true
	}
	return c.PlaceReturning(ctx, tx, fair)
}

// RetryDecision returns whether a failure is retried, and after how many milliseconds, by the stored policy of its
// execution. Without a retry policy it uses [document.RetryWhenAbsent], whichever program created the execution.
func RetryDecision(policyDocument []byte, retryCount int32, rawRetryCount string, class policy.Class, category string) (retry bool, pause int64) {
	rules, ok := storedRetryPolicy(policyDocument)
	if !ok {
		rules = document.RetryWhenAbsent()
	}
	retries := usedRetries(retryCount, rawRetryCount)
	return rules.Retries(class, category, retries), rules.PauseMs(retries, rand.Float64())
}

// usedRetries returns how many retries were scheduled: the larger of this library's column and the other program's key.
func usedRetries(column int32, raw string) int {
	n, err := strconv.ParseUint(raw, 10, 31)
	if err != nil {
		return int(column)
	}
	return max(int(column), int(n))
}

// storedRetryPolicy reads the retry policy of an execution's stored policy. It is lenient, because other programs store
// policies too. It returns false if there is none.
func storedRetryPolicy(policyDocument []byte) (document.Retry, bool) {
	var stored struct {
		Retry json.RawMessage `json:"retry_policy"`
	}
	if len(policyDocument) == 0 || json.Unmarshal(policyDocument, &stored) != nil || len(stored.Retry) == 0 || string(stored.Retry) == "null" {
		return document.Retry{}, false
	}
	retry, err := document.RetryFromJSON(stored.Retry)
	return retry, err == nil
}
