// Package budget limits amounts that add up: tokens, calls, money, seconds. A budget has any number of dimensions, each with a
// hard limit, a soft limit, both or neither. It is a row in the database, so its limits hold over all processes, however many
// use it at once. An execution that names budgets, in [engine.ExecutionSpec.Budgets], is not claimed while one is used up.
//
// Set up a budget:
//   - [Create] creates a budget, and [Set] changes its limits.
//   - [Reset] sets its usage to 0; [Spec.ResetEvery] does so in an interval.
//   - [Delete] deletes it; [Spec.Retention] does so once it is unused.
//   - [Get] returns a budget with its usage, and [All] iterates over all budgets.
//
// Use a budget, before or after the work:
//   - [Reserve] holds an estimate for the holder of a lease before the work, and [Settle] counts the amounts used. So
//     a budget is never overspent by calls that run at once.
//   - [Report] counts amounts after the work.
//   - [RecordSpend] counts amounts of an execution that [Release] can give back.
//
// A breach of a limit is a result, not an error: see [Outcome]. A key makes a call safe to repeat: see [Usage].
//
// In a handler use Job.Reserve and Job.ReportUsage of package worker. They repeat calls while the database is out of reach,
// and return the reservations that a handler leaves open.
//
// All functions take an engine. With [engine.Engine.WithTx] they are part of the caller's transaction.
package budget
