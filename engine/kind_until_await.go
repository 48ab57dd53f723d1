package engine

import (
	"context"
	"errors"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// AwaitExecution stands in for the operation of that name.
func (e *Engine) AwaitExecution(ctx context.Context, x id.ExecutionID) ([]byte, error) {
	for {
		result, err := e.ExecutionResult(ctx, x)
		if !errors.Is(err, ErrNotEnded) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
