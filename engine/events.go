package engine

import (
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// What package events needs of an engine.

// Outboxes is what package events reads by. Its type is internal.
func (e *Engine) Outboxes() *outbox.Hub { return e.shared.outboxes }

// Tx returns the transaction that e is bound to, nil on a pool.
func (e *Engine) Tx() pgx.Tx { return e.tx }

// Log returns the log of the engine: [Config.Log], or its default.
func (e *Engine) Log() *slog.Logger { return e.cfg.Log }

// Classify names the operation of another package that ended with a driver's error, and says by the sentinels of this one
// what has become of it. It is nil for nil.
func Classify(op string, err error) error {
	if err == nil {
		return nil
	}
	return outcomeOf(op, err)
}
