package engine

// Operator is what a person at a console does: take a lease away, run again what has ended, postpone or prefer what
// waits. A worker needs none of it. Each operation is one transaction, and says what becomes of work that is running.
// It queues for the rows it acts on and is refused with [ErrContention] rather than wait long.
//
// It comes from [Engine.Operator] and works where that engine does: in a caller's transaction, or on a pool.
type Operator struct {
	e *Engine
}

// Operator returns the calls of an operator upon e.
func (e *Engine) Operator() Operator { return Operator{e} }
