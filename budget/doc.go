// Package budget limits amounts that add up: tokens, calls, money, seconds. A budget is a row in the database, so its limits
// hold over all processes together. It has any number of dimensions, each with a hard limit, a soft limit, both or neither.
// An execution that names budgets, in [engine.ExecutionSpec.Budgets], is not claimed while one is used up.
//
// In the order of use:
//   - [Create] a budget. Its limits count usage until [Reset] or [Spec.ResetEvery] sets the usage to 0.
//   - [Report] amounts after the work.
//   - Or [Reserve] an estimate before the work, and [Settle] the amounts used, so that concurrent calls never overspend a
//     budget.
//   - Or [RecordSpend] amounts of an execution, so that [Release] can give them back.
//   - [Get] a budget with its usage, or iterate over [All]; [Set] other limits; [Delete] a budget, or let [Spec.Retention] do
//     so.
//
// A breach of a limit is a [Result], not an error. A key makes a call safe to repeat: see [Usage].
//
// Handlers use Job.ReportUsage and Job.Reserve of package worker, which retry while the database is out of reach and return
// open reservations. On [engine.Engine.WithTx] every function is part of the caller's transaction.
package budget
