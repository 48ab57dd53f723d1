package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/stream"
)

const (
	streamCount     = 100
	streamBatch     = 100 // frames in an append
	streamWriters   = 4   // at once
	streamTxWriters = 16  // with a transaction of their own each
	streamTick      = 10 * time.Millisecond
	streamsPerTick  = 10 // 1,000 frames a second
	streamWarmup    = 2 * time.Second
)

var errNoStreams = errors.New("has no streams")

// streams measures appends in batches, in the transactions of handlers, and the time from an append to a reader in another
// process, with notifications and without.
func streams(ctx context.Context, b *Bench) error {
	f := b.Field
	n := 10 * b.N
	measured := fmt.Sprintf("%d durable frames of %d bytes to %d streams, %d in an append, %d appends at once", n, len(contender.FrameText), streamCount, streamBatch, streamWriters)
	err := b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker}, func(ctx context.Context, _ contender.Contender) ([]reading, error) {
		rate, err := appendAll(ctx, f.Worker, n)
		return []reading{{name: "frames in batches", unit: "frames/s", value: rate}}, err
	})
	if err != nil {
		return err
	}
	for _, frames := range []int{1, 10} {
		n := b.N / 2
		measured := fmt.Sprintf("%d transactions of %d handlers at once, each with a write of its own and %d frames to its stream", n/frames, streamTxWriters, frames)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker}, func(ctx context.Context, _ contender.Contender) ([]reading, error) {
			rate, err := appendInTx(ctx, f.Worker, n/frames, frames)
			return []reading{{name: fmt.Sprintf("frames in handlers' transactions, %d in each", frames), unit: "frames/s", value: rate}}, err
		})
		if err != nil {
			return err
		}
	}
	for _, deaf := range []bool{false, true} {
		name := map[bool]string{false: "append to tail", true: "append to tail, without LISTEN"}[deaf]
		measured := fmt.Sprintf("1,000 frames a second for %s, after as many for %s, one in an append, ten appends at once, to %d streams; a process with a pool and a listener of its own follows all of them; from the call of the append", b.Span, streamWarmup, streamCount)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker}, func(ctx context.Context, _ contender.Contender) ([]reading, error) {
			took, err := followAll(ctx, f.Worker, int((streamWarmup+b.Span)/streamTick), deaf)
			if err != nil {
				return nil, err
			}
			return latencies(name, took[streamWarmup/streamTick*streamsPerTick:]), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// appendAll appends n frames to streams, and returns how many a second.
func appendAll(ctx context.Context, w *contender.Worker, n int) (float64, error) {
	leases, err := w.Writers(ctx, streamCount)
	if err != nil {
		return 0, err
	}
	eng := w.Events()
	frames := make([]stream.FrameSpec, streamBatch)
	for i := range frames {
		frames[i] = stream.FrameSpec{Payload: []byte(contender.FrameText)}
	}
	began := time.Now()
	appending, ctx := errgroup.WithContext(ctx)
	for writer := range streamWriters {
		appending.Go(func() error {
			for i := writer; i < n/streamBatch; i += streamWriters {
				if _, err := stream.Append(ctx, eng, leases[i%streamCount], frames); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := appending.Wait(); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// appendInTx appends frames in n transactions with a write each, and returns how many frames a second.
func appendInTx(ctx context.Context, w *contender.Worker, n, frames int) (float64, error) {
	leases, err := w.Writers(ctx, streamTxWriters)
	if err != nil {
		return 0, err
	}
	eng := w.Events()
	if _, err := w.Pool().Exec(ctx, "create table if not exists bench_streamed (num integer not null)"); err != nil {
		return 0, err
	}
	specs := make([]stream.FrameSpec, frames)
	for i := range specs {
		specs[i] = stream.FrameSpec{Payload: []byte(contender.FrameText)}
	}
	began := time.Now()
	appending, ctx := errgroup.WithContext(ctx)
	for writer, lease := range leases {
		appending.Go(func() error {
			for i := writer; i < n; i += len(leases) {
				err := eng.InTx(ctx, func(tx pgx.Tx, eng *engine.Engine) error {
					if _, err := tx.Exec(ctx, "insert into bench_streamed values ($1)", i); err != nil {
						return err
					}
					_, err := stream.Append(ctx, eng, lease, specs)
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := appending.Wait(); err != nil {
		return 0, err
	}
	return float64(n*frames) / time.Since(began).Seconds(), nil
}

// anotherProcess returns an engine with a pool of its own on the database of a contender, and the counter of its statements.
func anotherProcess(ctx context.Context, c contender.Contender, cfg engine.Config) (*engine.Engine, *statements, func(), error) {
	var count statements
	config := c.Pool().Config()
	config.ConnConfig.Tracer = &count
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, nil, err
	}
	eng, err := engine.New(pool, cfg)
	if err != nil {
		pool.Close()
		return nil, nil, nil, err
	}
	return eng, &count, pool.Close, nil
}

// followAll appends frames one by one at a fixed rate to streams another process follows, and returns how long each
// took from the call of its append until the reader had it.
func followAll(ctx context.Context, w *contender.Worker, ticks int, deaf bool) ([]time.Duration, error) {
	leases, err := w.Writers(ctx, streamCount)
	if err != nil {
		return nil, err
	}
	reader, _, stop, err := anotherProcess(ctx, w, engine.Config{NoListener: deaf})
	if err != nil {
		return nil, err
	}
	defer stop()
	eng := w.Events()
	n := ticks * streamsPerTick
	origin := time.Now()
	sent, had := make([]atomic.Int64, n), make([]time.Duration, n)
	following, followed := errgroup.WithContext(ctx)
	var reading atomic.Int64
	all := make(chan struct{})
	for at, lease := range leases {
		following.Go(func() error {
			num := at
			for frame, err := range stream.Tail(followed, reader, lease.Execution, stream.TailOptions{}) {
				if err != nil {
					return err
				}
				if frame.Number == 1 { // the first one shows the tail runs
					if reading.Add(1) == streamCount {
						close(all)
					}
					continue
				}
				had[num] = time.Since(origin) - time.Duration(sent[num].Load())
				if num += streamCount; num >= n {
					return nil
				}
			}
			return nil
		})
	}
	specs := []stream.FrameSpec{{Payload: []byte(contender.FrameText)}}
	for _, lease := range leases {
		if _, err := stream.Append(ctx, eng, lease, specs); err != nil {
			return nil, err
		}
	}
	select {
	case <-all:
	case <-followed.Done():
		return nil, following.Wait()
	}
	tick := time.NewTicker(streamTick)
	defer tick.Stop()
	var appending errgroup.Group
	for i := range ticks {
		<-tick.C
		for num := i * streamsPerTick; num < (i+1)*streamsPerTick; num++ {
			appending.Go(func() error {
				sent[num].Store(int64(time.Since(origin)))
				_, err := stream.Append(ctx, eng, leases[num%streamCount], specs)
				return err
			})
		}
	}
	if err := appending.Wait(); err != nil {
		return nil, err
	}
	return had, following.Wait()
}

// streamsBesideDBOS measures frames of jobs.
func streamsBesideDBOS(ctx context.Context, b *Bench) error {
	for _, jobs := range []int{1, 16, 100} {
		frames := max(10, b.N/(5*jobs))
		measured := fmt.Sprintf("%d jobs at once, each writes %d frames of %d bytes, which are stored when it ends", jobs, frames, len(contender.FrameText))
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker, peer: b.Field.DBOS}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			s, ok := c.(contender.Streamer)
			if !ok {
				return nil, errNoStreams
			}
			took, err := s.Stream(ctx, jobs, frames)
			return []reading{{
				name: fmt.Sprintf("frames of %d jobs", jobs), unit: "frames/s", value: float64(jobs*frames) / took.Seconds(),
			}}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
