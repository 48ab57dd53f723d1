//go:build unix

package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/worker"
)

// waitTables has the signals that handlers have used, beside the effects of shapes, and in the same transaction.
const waitTables = shapeTables + `;
	CREATE TABLE wait_used (execution uuid, signal uuid)`

var (
	kindWaits = kindOf("waits") // waits for two signals, one after the other
	kindTimed = kindOf("timed") // waits for one signal, but not for long
)

var goOn = engine.Signal[int]{Name: "go on"}

// await waits for two signals and completes with them.
func (s *shapeWorker) await(ctx context.Context, job worker.Job[struct{}]) (result, error) {
	var used []engine.ReceivedSignal
	for range 2 {
		signal, err := engine.AwaitAny(ctx, job, engine.Wait{}, engine.Received(goOn.Name))
		if err != nil {
			return result{}, err
		}
		used = append(used, signal)
	}
	return s.exactly(job.Lease, resultOf(job.Lease), nil, use(job.Lease, used...), job.Delay(0))
}

// awaitBriefly waits for a signal, or for a timeout.
func (s *shapeWorker) awaitBriefly(ctx context.Context, job worker.Job[struct{}]) (result, error) {
	signal, err := engine.AwaitAny(ctx, job, engine.Wait{Timeout: 300 * time.Millisecond}, engine.Received(goOn.Name))
	switch {
	case errors.Is(err, fferr.ErrWaitTimeout):
		return s.exactly(job.Lease, resultOf(job.Lease), nil, nil, job.Delay(0))
	case err != nil:
		return result{}, err
	}
	return s.exactly(job.Lease, resultOf(job.Lease), nil, use(job.Lease, signal), job.Delay(0))
}

// use writes down the signals that a handler has used.
func use(l engine.Lease, signals ...engine.ReceivedSignal) func(pgx.Tx, *engine.Engine) error {
	return func(tx pgx.Tx, _ *engine.Engine) error {
		for _, signal := range signals {
			_, err := tx.Exec(context.Background(), "INSERT INTO wait_used VALUES ($1, $2)", l.Execution.UUID(), signal.ID)
			if err != nil {
				return err
			}
		}
		return nil
	}
}
