// Package explain answers why an execution does not run.
//
//	why, err := explain.Execution(ctx, eng, created.ID)
//	for _, cause := range why.Causes {
//		fmt.Println(cause.Text) // Limit sync/tenant for "ada" is full: 1 of 1 in use, 3 wait ahead.
//	}
//
// [Execution] reads one execution and what surrounds it: its lease, delays, waits, upstreams, limits, budgets, operators' pauses,
// workers and the queue. It changes and locks nothing, so it also works for a reader's role and on a standby. Programs branch on
// the [Code] of a [Cause]; its text is for people and may change.
package explain
