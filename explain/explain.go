package explain

import (
	"context"
	"errors"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Explanation is why an execution does not run, at one moment.
type Explanation struct {
	Execution engine.ExecutionSummary
	Causes    []Cause   // the nearest first; empty: nothing holds the execution back
	At        time.Time // the database's time
}

// Cause is one obstacle of an execution.
type Cause struct {
	Code    Code
	Text    string    // one English sentence with names and numbers; programs should use Code
	Since   time.Time // zero: unknown
	Until   time.Time // zero: unknown, or without an end
	Holders []id.ExecutionID
	Facts   map[string]string // the values in Text, by name
	Do      []string          // commands to try, ready to paste

	// Certain is false for a guess from a worker's heartbeat, from a young lock, or from the queue of a busy lane.
	Certain bool
}

// maxDepth is the longest chain of calls to follow.
const maxDepth = 3

// Execution explains why an execution does not run, or names its worker or outcome. An unknown execution has the cause
// [NotFound], and no error is returned.
//
// If the execution waits for a called one, the causes of the callee follow, up to three calls deep.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrCorruption]. Six plain reads in one round trip for each execution, repeated at most twice if the execution
// changes meanwhile; takes no locks.
func Execution(ctx context.Context, eng *engine.Engine, x id.ExecutionID) (Explanation, error) {
	const op = "explain execution"
	c := core.Of(eng)
	if err := c.CheckExecution(x); err != nil {
		return Explanation{}, core.Wrap(op, err)
	}
	f, err := read(ctx, c, x)
	if errors.Is(err, fferr.ErrNotFound) {
		return Explanation{Execution: engine.ExecutionSummary{ID: x}, Causes: []Cause{notFound(x)}, At: f.at()}, nil
	}
	if err != nil {
		return Explanation{}, core.Wrap(op, err)
	}
	why := Explanation{Execution: f.summary(), Causes: f.causes(), At: f.at()}
	for depth := 0; depth < maxDepth && len(f.called) > 0; depth++ {
		f, err = read(ctx, c, f.called[0].id)
		if errors.Is(err, fferr.ErrNotFound) {
			break
		}
		if err != nil {
			return Explanation{}, core.Wrap(op, err)
		}
		for _, cause := range f.causes() {
			cause.Text = "Called " + f.execution.Kind + " " + f.execution.ID.String() + ": " + cause.Text
			why.Causes = append(why.Causes, cause)
		}
	}
	return why, nil
}
