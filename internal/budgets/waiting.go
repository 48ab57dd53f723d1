package budgets

import "sync/atomic"

// Waiting counts the reports of a process that wait for the transaction on their budget to end.
type Waiting struct{ atomic.Int64 }

func NewWaiting() *Waiting { return new(Waiting) }
