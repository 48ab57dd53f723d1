package contender

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Streamer is a contender whose running jobs write output for readers.
type Streamer interface {
	Contender
	// Stream runs n jobs at once. Each writes frames and ends once all are stored. Stream returns the time from before the
	// creation of the first job until the end of the last one.
	Stream(ctx context.Context, n, frames int) (time.Duration, error)
}

// FrameText is the payload of a frame.
var FrameText = strings.Repeat("token ", 16)

var token = stream.Frame[string]{Type: "token"}

// Stream implements [Streamer].
func (w *Worker) Stream(ctx context.Context, n, frames int) (time.Duration, error) {
	return w.runStepping(ctx, n, n, func(ctx context.Context, job worker.Job[args]) (struct{}, error) {
		out := job.Stream()
		for range frames {
			if err := token.Write(ctx, out, FrameText); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, out.Flush(ctx)
	})
}

const dbosStream = "output"

// Stream implements [Streamer].
func (d *DBOS) Stream(ctx context.Context, n, frames int) (took time.Duration, err error) {
	err = d.withWorkflow(ctx, func(ctx dbos.Context, _ int) (int, error) {
		for range frames {
			if err := dbos.WriteStream(ctx, dbosStream, FrameText); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}, timed(n, n, &took))
	return took, err
}

// Writers returns the leases of n new executions, for frames no worker writes.
func (w *Worker) Writers(ctx context.Context, n int) ([]engine.Lease, error) {
	if err := w.Insert(ctx, make([]Job, n)); err != nil {
		return nil, err
	}
	claimer, err := w.claimer()
	if err != nil {
		return nil, err
	}
	leases := make([]engine.Lease, 0, n)
	for len(leases) < n {
		claimed, err := claimer.Claim(ctx, min(n-len(leases), engine.MaxBatch))
		if err == nil && len(claimed) == 0 {
			err = errors.New("no execution to claim")
		}
		if err != nil {
			return nil, err
		}
		for _, c := range claimed {
			leases = append(leases, c.Lease)
		}
	}
	return leases, nil
}
