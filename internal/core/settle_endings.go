package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Ending is a set of executions ending without success, with the same outcome.
type Ending struct {
	outcome state.TerminalOutcome
	Params  db.EndUnsuccessfulParams
}

// EndingAttempt is an execution of an ending, with its last attempt.
type EndingAttempt struct {
	Execution  id.ExecutionID
	Index      int32 // or NeverAttempted, LastAttemptFinished
	Epoch      int64 // the raised epoch; 0 keeps the old one, if a holder ends its own attempt
	LeaseID    string
	Instance   string
	LeaseEvent string // "" if no lease is lost
	Reason     string
	Category   string
	Class      policy.Class
	Detail     string
	Trace      string // of the run; "" keeps the last one
}

// Values of an attempt's index if there is no attempt to end.
const (
	NeverAttempted      = -1
	LastAttemptFinished = -2
)

// NewEnding returns an ending without executions.
func NewEnding(nowMs int64, outcome state.TerminalOutcome) *Ending {
	return &Ending{outcome: outcome, Params: db.EndUnsuccessfulParams{
		NowMs:          nowMs,
		PublicState:    string(state.Derive(state.Terminal, state.NotApplicable, outcome)),
		AttemptOutcome: string(outcome),
	}}
}

// Add adds an execution.
func (s *Ending) Add(a EndingAttempt) {
	p := &s.Params
	p.PartitionKeys = append(p.PartitionKeys, a.Execution.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, PgUUID(a.Execution.UUID()))
	p.AttemptIndexes = append(p.AttemptIndexes, a.Index)
	p.RaisedEpochs = append(p.RaisedEpochs, a.Epoch)
	p.LeaseIDs = append(p.LeaseIDs, a.LeaseID)
	p.WorkerInstanceIDs = append(p.WorkerInstanceIDs, a.Instance)
	p.LeaseEvents = append(p.LeaseEvents, a.LeaseEvent)
	p.FailureReasons = append(p.FailureReasons, a.Reason)
	p.FailureCategories = append(p.FailureCategories, a.Category)
	p.FailureClasses = append(p.FailureClasses, string(a.Class))
	p.FailureDetails = append(p.FailureDetails, a.Detail)
	p.Traces = AddTrace(p.Traces, len(p.FailureDetails)-1, a.Trace)
}

// Len returns the number of executions.
func (s *Ending) Len() int { return len(s.Params.ExecutionIDs) }

// EndUnsuccessful writes an ending and returns the ended executions for [Core.ResolveAndRecord].
func (c *Core) EndUnsuccessful(ctx context.Context, tx *Txn, s *Ending) ([]EndedExecution, error) {
	if s.Len() == 0 {
		return nil, nil
	}
	rows, err := c.Q.EndUnsuccessful(ctx, tx, s.Params)
	if err != nil {
		return nil, err
	}
	tx.Due.Leases()
	ended := make([]EndedExecution, len(rows))
	for i, row := range rows {
		ended[i] = EndedExecution{
			ID:      id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			Flow:    FlowOf(row.FlowID),
			Outcome: s.outcome.Completion(),
		}
		if row.HasLimits {
			tx.Due.Gated()
		}
		if row.SequenceLane != "" {
			tx.Due.SequenceEnded(row.SequenceLane)
		}
	}
	return ended, nil
}

// EndByJob ends executions for a background job.
func (c *Core) EndByJob(ctx context.Context, tx *Txn, s *Ending) error {
	ended, err := c.EndUnsuccessful(ctx, tx, s)
	if err != nil {
		return err
	}
	return c.DiscardAndResolve(ctx, tx, ended, s.Params.NowMs)
}

// DiscardAndResolve applies the consequences of ends by others than the holders: it removes everything that could still
// act on the executions, and resolves their dependents.
func (c *Core) DiscardAndResolve(ctx context.Context, tx *Txn, ended []EndedExecution, nowMs int64) error {
	if len(ended) == 0 {
		return nil
	}
	var discarded ExecutionArrays
	for _, x := range ended {
		discarded.Add(x.ID.Partition(), x.ID.UUID())
	}
	if err := c.Q.DiscardWaiting(ctx, tx, db.DiscardWaitingParams{
		PartitionKeys: discarded.Partitions, ExecutionIDs: discarded.Executions,
	}); err != nil {
		return err
	}
	return c.ResolveAndRecord(ctx, tx, ended, nowMs)
}

// ReasonLostTooOften is the failure reason of an execution that lost more leases than its policy allows.
const ReasonLostTooOften = "lease_reclaim_cap_exceeded"
