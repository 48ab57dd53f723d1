package state

// Halt is the kind of an operator's order against claiming by a worker.
type Halt string

// The kinds of halts.
const (
	NotHalted    Halt = ""
	HaltedLane   Halt = "lane"   // the lane is paused
	HaltedWorker Halt = "worker" // the worker instance is drained
)
