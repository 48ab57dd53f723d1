package engine

// Maintenance is the background work of a database, which package reconcile calls in a loop: executions are given back,
// promoted and ended, and the queue is kept in order, by nothing else. Each operation acts on a batch at most, 1 to
// [MaxBatch], and returns on how many it acted; the caller repeats it while that is batch or more. Each waits for
// nobody, and may be repeated and run in any number of processes.
//
// It comes from [Engine.Maintenance] and works where that engine does: in a caller's transaction, or on a pool.
type Maintenance struct {
	e *Engine
}

// Maintenance returns the background work of e.
func (e *Engine) Maintenance() Maintenance { return Maintenance{e} }
