package engine

// Maintenance has the background operations of a database, which package reconcile calls in a loop. Nothing else
// releases expired leases, promotes delayed executions, enforces deadlines or repairs the queue. Each operation acts on
// at most batch items, 1 to [MaxBatch], and returns how many; call it again while that is at least batch. Operations
// skip locked rows instead of waiting, and may be repeated and run in any number of processes.
//
// It comes from [Engine.Maintenance] and is bound to the same pool or transaction.
type Maintenance struct {
	e *Engine
}

// Maintenance returns the background operations on e.
func (e *Engine) Maintenance() Maintenance { return Maintenance{e} }
