//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
)

var asStreamWriter = flag.Bool("chaos.streams", false, "be a writer of output streams, told by its standard input")

const (
	streamLane  id.LaneID = "streams"
	streamTTL             = 2 * time.Second
	writersName           = "stream writers" // of their connections
)

// runStreamWriter claims executions, appends frames to all their streams, and completes each at its last frame. It writes a
// line for each durable frame that was acknowledged: the execution and the payload, which is its own.
func runStreamWriter(input io.Reader, output io.Writer) error {
	decoder := json.NewDecoder(input)
	var given consumerOrders
	if err := decoder.Decode(&given); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(given.DatabaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["application_name"] = writersName
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{NoListener: true})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	w := &streamWriter{eng: eng, name: given.Name, frames: given.Frames, out: &reporter{out: output}}
	for ctx.Err() == nil {
		w.round(ctx)
		pause(ctx, rand.N(5*time.Millisecond))
	}
	return nil
}

// streamWriter is a process. Its connections are cut, so every failed call is given up, and its frames may be there or not.
type streamWriter struct {
	eng     *engine.Engine
	name    string
	frames  int // of a stream
	out     *reporter
	leases  []engine.Lease
	written int
}

func (w *streamWriter) round(ctx context.Context) {
	claimed, err := w.eng.Claim(ctx, engine.ClaimSpec{
		Lane: streamLane, Worker: "chaos", Instance: id.WorkerInstanceID(w.name), LeaseTTL: streamTTL,
	}, max(8-len(w.leases), 1))
	if err == nil {
		for _, c := range claimed {
			w.leases = append(w.leases, c.Lease)
		}
	}
	renewals := make([]engine.Renewal, len(w.leases))
	batches := make([]stream.Batch, len(w.leases))
	for i, l := range w.leases {
		renewals[i].Lease, batches[i].Lease = l, l
		for range 1 + rand.IntN(4) {
			w.written++
			batches[i].Frames = append(batches[i].Frames, stream.FrameSpec{Payload: fmt.Appendf(nil, "%s/%d", w.name, w.written)})
		}
	}
	_, _ = w.eng.RenewLeases(ctx, renewals)
	outcomes, err := stream.AppendEach(ctx, w.eng, batches)
	if err != nil {
		return
	}
	for i, o := range outcomes {
		l := batches[i].Lease
		if isLost(o.Err) {
			w.drop(l)
		}
		if o.Err != nil {
			continue
		}
		for _, f := range batches[i].Frames {
			w.out.line(fmt.Sprintf("%s %s", l.Execution, f.Payload))
		}
		if o.Value.Frames >= int64(w.frames) {
			if err := w.eng.CompleteExecution(ctx, l, nil); err == nil || isLost(err) {
				w.drop(l)
			}
		}
	}
}

func (w *streamWriter) drop(l engine.Lease) {
	w.leases = slices.DeleteFunc(w.leases, func(other engine.Lease) bool { return other.Fence == l.Fence })
}
