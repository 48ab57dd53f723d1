package engine

import (
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// Support for package events.

// Outboxes returns the hub that package events reads with. Its type is internal.
func (e *Engine) Outboxes() *outbox.Hub { return e.shared.outboxes }

// Tx returns the transaction that e is bound to, or nil on a pool.
func (e *Engine) Tx() pgx.Tx { return e.tx }

// Log returns the engine's log: [Config.Log] or its default.
func (e *Engine) Log() *slog.Logger { return e.cfg.Log }

// Classify adds the name of another package's operation to a driver's error, and classifies it with this package's
// sentinels. It returns nil for nil.
func Classify(op string, err error) error {
	if err == nil {
		return nil
	}
	return outcomeOf(op, err)
}
