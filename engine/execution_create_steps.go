package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// A creationStep is a capability's part in creation. Each function is optional. An engine runs all functions of one field
// in the order of [creationSteps], then all functions of the next field:
//
//	check   before any transaction: reads, and refuses creations
//	before  before a chunk's transaction: commits rows for the chunk to rely on
//	atOnce  creates a whole chunk in fewer statements, or returns nil outcomes
//	split   divides a chunk into runs, so no creation changes an execution of the same run, and locks for all runs
//	lock    locks a run's keys, and reads the executions with these keys
//	taken   decides whether one creation of a run is a duplicate or refused
//	take    gives an undecided creation its keys, which later creations find taken
//	insert  returns the statements to send after the insert
//	after   completes a run whose rows exist
type creationStep struct {
	check  func(*Engine, context.Context, *creationBatch) error
	before func(*Engine, context.Context, string, []creation, *registration) error
	atOnce func(*Engine, context.Context, string, []creation) ([]fferr.Outcome[Created], error)
	split  func(*Engine, context.Context, *core.Txn, []creation) ([][]creation, error)
	lock   func(*Engine, context.Context, *core.Txn, *creationRun) error
	taken  func(*creationRun, int) (fferr.Outcome[Created], bool)
	take   func(*creationRun, int)
	insert func(*Engine, context.Context, []creation) []core.Step
	after  func(*Engine, context.Context, *core.Txn, *creationRun) error
}

// creationSteps lists the capabilities with a part in creation. The order within a field is the order of locks:
// idempotency keys, business keys, unique keys, sequences, then the places of fair work. Budgets only name gates, which
// the insert writes.
func creationSteps() []creationStep {
	return []creationStep{
		{ // idempotency keys
			lock: (*Engine).holdKeys, after: (*Engine).settleKeys,
			taken: (*creationRun).keyTaken, take: (*creationRun).takeKey,
		},
		{ // ids
			taken: (*creationRun).idTaken, take: (*creationRun).takeID,
		},
		{ // business keys
			lock: (*Engine).holdBusinessKeys, after: (*Engine).settleBusinessKeys,
			taken: (*creationRun).businessTaken, take: (*creationRun).takeBusiness,
		},
		{ // unique work
			check: (*Engine).setUniqueKeys, atOnce: (*Engine).createUnique,
			split: (*Engine).splitUnique, lock: (*Engine).holdUnique, after: (*Engine).settleUnique,
			taken: (*creationRun).uniqueTaken, take: (*creationRun).takeUnique,
		},
		{ // sequences
			after: (*Engine).seatCreated,
		},
		{ // limits
			check: func(e *Engine, ctx context.Context, b *creationBatch) error {
				return e.findLimits(ctx, b.creations, b.refuse)
			},
			before: (*Engine).registerBefore, atOnce: (*Engine).createAdmitted,
		},
		{ // fairness
			check: func(e *Engine, ctx context.Context, b *creationBatch) error {
				return e.placeFair(ctx, e.c.Reader(), b.creations)
			},
			insert: (*Engine).recordPlaces,
		},
	}
}

// A creationBatch is one call's executions. The slices are parallel.
type creationBatch struct {
	specs     []ExecutionSpec
	creations []creation
	results   []fferr.Outcome[Created]
}

// refuse sets the error of a creation. Later steps skip refused creations.
func (b *creationBatch) refuse(i int, err error) {
	b.results[i].Err, b.creations[i].refused = err, true
}
