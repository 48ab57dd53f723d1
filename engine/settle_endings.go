package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ending is a set of executions that end without success, with the same outcome.
type ending struct {
	outcome state.TerminalOutcome
	params  db.EndUnsuccessfulParams
}

// endingAttempt is an execution of an ending, with the attempt it ends with.
type endingAttempt struct {
	execution  id.ExecutionID
	index      int32 // or neverAttempted, lastAttemptFinished
	epoch      int64 // the raised epoch; 0 keeps the old one, if a holder ends its own attempt
	leaseID    string
	instance   string
	leaseEvent string // "" if no lease is lost
	reason     string
	category   string
	class      policy.Class
	detail     string
}

// Values of an attempt's index if there is no attempt to end.
const (
	neverAttempted      = -1
	lastAttemptFinished = -2
)

func newEnding(nowMs int64, outcome state.TerminalOutcome) *ending {
	return &ending{outcome: outcome, params: db.EndUnsuccessfulParams{
		NowMs:          nowMs,
		PublicState:    string(state.Derive(state.Terminal, state.NotApplicable, outcome)),
		AttemptOutcome: string(outcome),
	}}
}

func (s *ending) add(a endingAttempt) {
	p := &s.params
	p.PartitionKeys = append(p.PartitionKeys, a.execution.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, pgUUID(a.execution.UUID()))
	p.AttemptIndexes = append(p.AttemptIndexes, a.index)
	p.RaisedEpochs = append(p.RaisedEpochs, a.epoch)
	p.LeaseIDs = append(p.LeaseIDs, a.leaseID)
	p.WorkerInstanceIDs = append(p.WorkerInstanceIDs, a.instance)
	p.LeaseEvents = append(p.LeaseEvents, a.leaseEvent)
	p.FailureReasons = append(p.FailureReasons, a.reason)
	p.FailureCategories = append(p.FailureCategories, a.category)
	p.FailureClasses = append(p.FailureClasses, string(a.class))
	p.FailureDetails = append(p.FailureDetails, a.detail)
}

func (s *ending) len() int { return len(s.params.ExecutionIDs) }

// endUnsuccessful writes an ending and returns the ended executions for [Engine.resolveAndRecord].
func (e *Engine) endUnsuccessful(ctx context.Context, tx *txn, s *ending) ([]endedExecution, error) {
	if s.len() == 0 {
		return nil, nil
	}
	rows, err := e.q.EndUnsuccessful(ctx, tx, s.params)
	if err != nil {
		return nil, err
	}
	tx.due.leases()
	ended := make([]endedExecution, len(rows))
	for i, row := range rows {
		ended[i] = endedExecution{
			id:      id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			flow:    flowOf(row.FlowID),
			outcome: s.outcome.Completion(),
		}
		if row.HasLimits {
			tx.due.gated()
		}
		if row.SequenceLane != "" {
			tx.due.sequenceEnded(row.SequenceLane)
		}
	}
	return ended, nil
}

// endByJob ends executions for a background job.
func (e *Engine) endByJob(ctx context.Context, tx *txn, s *ending) error {
	ended, err := e.endUnsuccessful(ctx, tx, s)
	if err != nil {
		return err
	}
	return e.discardAndResolve(ctx, tx, ended, s.params.NowMs)
}

// discardAndResolve applies the consequences of ends that are not their holders' calls: it removes everything that
// could still act on the executions, and resolves their dependents.
func (e *Engine) discardAndResolve(ctx context.Context, tx *txn, ended []endedExecution, nowMs int64) error {
	if len(ended) == 0 {
		return nil
	}
	var discarded executionArrays
	for _, x := range ended {
		discarded.add(x.id.Partition(), x.id.UUID())
	}
	if err := e.q.DiscardWaiting(ctx, tx, db.DiscardWaitingParams{
		PartitionKeys: discarded.partitions, ExecutionIDs: discarded.executions,
	}); err != nil {
		return err
	}
	return e.resolveAndRecord(ctx, tx, ended, nowMs)
}

const reasonLostTooOften = "lease_reclaim_cap_exceeded"
