package id

import (
	"cmp"
)

// Fence identifies a lease in the database. Each claim of an execution raises the epoch, and calls with an older one
// are refused. Comparable; no two leases share a Fence.
type Fence struct {
	Execution ExecutionID
	Attempt   int // index, from 0
	Epoch     int64
}

// Compare orders leases as their rows are locked: by execution, attempt and epoch.
func (a Fence) Compare(b Fence) int {
	return cmp.Or(
		a.Execution.Compare(b.Execution),
		cmp.Compare(a.Attempt, b.Attempt),
		cmp.Compare(a.Epoch, b.Epoch),
	)
}
