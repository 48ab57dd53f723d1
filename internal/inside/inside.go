// Package inside gives the packages of this library the parts of an engine that its users don't need. Package engine fills
// its variables, since an import the other way round would be a cycle.
package inside

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// Parts are parts of an engine.
type Parts struct {
	Outboxes *outbox.Hub
	Tx       pgx.Tx // nil unless the engine is bound to a transaction
	Log      *slog.Logger
	Now      func() time.Time // the engine's Config.Now

	// CallEnded lets a reconciler of this engine look at once for callers that wait for ended executions.
	CallEnded func()

	// SequenceEnded lets a reconciler of this engine look at once for executions that may get their turn in a sequence. It
	// also lets the engine's claimers find them behind their scan positions.
	SequenceEnded func(lanes []string)

	// Silence ends the engine's notifications to other processes.
	Silence func()
}

var (
	// Of returns the parts of an *engine.Engine.
	Of func(engine any) Parts

	// Classify adds the name of an operation to a driver's error, and classifies it with the sentinels of package engine.
	// It returns nil for nil.
	Classify func(op string, err error) error
)
