// Package explain answers why an execution does not run.
//
//	why, err := explain.Execution(ctx, eng, created.ID)
//	for _, cause := range why.Causes {
//		fmt.Println(cause.Text) // Limit sync/tenant for "ada" is full: 1 of 1 in use, 3 wait ahead.
//	}
//
// [Execution] reads one execution with its lease, delays, waits, upstreams, limits, budgets, pauses by operators, workers and the
// queue. Nothing is changed or locked, so a reader's role is enough, also on a standby. Programs branch on the [Code] of a
// [Cause]. The text is for people and may change.
package explain
