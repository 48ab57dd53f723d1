package tests

import "github.com/flowfabric/flowfabric-go/state"

// blockReasons are the reasons that an operator may block for.
var blockReasons = []state.BlockingReason{
	state.WaitingForBudget, state.WaitingForQuota, state.WaitingForCapableWorker, state.PausedByPolicy, state.PausedByOperator,
}
