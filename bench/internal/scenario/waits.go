package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

const (
	signalsPerSecond = 100
	senders          = 8
	signalsAtOnce    = 100
	settleDown       = time.Second // after all jobs wait
)

var errNoSignals = errors.New("has no signals")

// withWaits starts n jobs that wait, and calls do with them.
func withWaits(ctx context.Context, c contender.Contender, n int, received func(num int), do func(contender.Waits) error) error {
	s, ok := c.(contender.Signaller)
	if !ok {
		return errNoSignals
	}
	waits, err := s.Wait(ctx, n, received)
	if err != nil {
		return err
	}
	err = pause(ctx, settleDown)
	if err == nil {
		err = do(waits)
	}
	return errors.Join(err, waits.Stop())
}

// arrivals notes when the signals of n jobs arrived.
type arrivals struct {
	at  []time.Time
	all sync.WaitGroup
}

func newArrivals(n int) *arrivals {
	a := &arrivals{at: make([]time.Time, n)}
	a.all.Add(n)
	return a
}

func (a *arrivals) received(num int) {
	if a.at[num].IsZero() {
		a.at[num] = time.Now()
		a.all.Done()
	}
}

// wait waits until all signals have arrived.
func (a *arrivals) wait() error {
	all := make(chan struct{})
	go func() {
		a.all.Wait()
		close(all)
	}()
	select {
	case <-all:
		return nil
	case <-time.After(stall):
		return fmt.Errorf("not all signals arrived in %s", stall)
	}
}

// signalLag measures signals at a fixed rate.
func signalLag(ctx context.Context, b *Bench) error {
	// The signals of the first second open the connections and make the plans.
	n := signalsPerSecond + max(10, int(b.Span.Seconds()*signalsPerSecond))
	measured := fmt.Sprintf("%d suspended jobs, %d signals a second; from before each signal is sent until its handler has it, after the first second", n, signalsPerSecond)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker, peer: b.Field.DBOS}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		a := newArrivals(n)
		sent := make([]time.Time, n)
		err := withWaits(ctx, c, n, a.received, func(waits contender.Waits) error {
			var sending errgroup.Group
			tick := time.NewTicker(time.Second / signalsPerSecond)
			defer tick.Stop()
			for num := range n {
				<-tick.C
				sending.Go(func() error {
					sent[num] = time.Now()
					return waits.Signal(ctx, num)
				})
			}
			return errors.Join(sending.Wait(), a.wait())
		})
		if err != nil {
			return nil, err
		}
		lags := make([]time.Duration, n)
		for num := range lags {
			lags[num] = a.at[num].Sub(sent[num])
		}
		return latencies("signal to handler, 100/s", lags[signalsPerSecond:]), nil
	})
}

// signalRate measures how fast signals are sent and handled.
func signalRate(ctx context.Context, b *Bench) error {
	n := max(signalsAtOnce, b.N/20)
	for _, way := range []struct {
		name string
		most int
	}{{"signals into one lane", 1}, {"signals into one lane, 100 in a transaction", signalsAtOnce}} {
		measured := fmt.Sprintf("%d signals to as many suspended jobs of one lane, by %d senders, %d in a transaction, while a worker handles them", n, senders, way.most)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker, peer: b.Field.DBOS}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			a := newArrivals(n)
			var sent, handled time.Duration
			err := withWaits(ctx, c, n, a.received, func(waits contender.Waits) error {
				began := time.Now()
				if err := sendAll(ctx, waits, n, way.most); err != nil {
					return err
				}
				sent = time.Since(began)
				err := a.wait()
				handled = time.Since(began)
				return err
			})
			return []reading{
				{name: way.name + ", sent", unit: "signals/s", value: float64(n) / sent.Seconds()},
				{name: way.name + ", handled", unit: "signals/s", value: float64(n) / handled.Seconds()},
			}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sendAll sends a signal to each of n jobs.
func sendAll(ctx context.Context, waits contender.Waits, n, most int) error {
	var sending errgroup.Group
	sending.SetLimit(senders)
	for from := 0; from < n; from += most {
		sending.Go(func() error {
			if most == 1 {
				return waits.Signal(ctx, from)
			}
			nums := make([]int, min(most, n-from))
			for i := range nums {
				nums[i] = from + i
			}
			return waits.SignalAll(ctx, nums)
		})
	}
	return sending.Wait()
}

// waitMemory measures the heap and the goroutines of waiting jobs.
func waitMemory(ctx context.Context, b *Bench) error {
	measured := fmt.Sprintf("%d suspended jobs, begun by one worker: heap and goroutines of the process while they wait, less those before, with the sender's list of their ids", b.N)
	return b.compare(ctx, measured, 1, lineup{ours: b.Field.Worker, peer: b.Field.DBOS}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		var readings []reading
		heap, goroutines := heapNow(), runtime.NumGoroutine()
		err := withWaits(ctx, c, b.N, func(int) {}, func(contender.Waits) error {
			readings = []reading{
				{name: "heap of a wait", unit: "bytes", value: max(0, float64(heapNow())-float64(heap)) / float64(b.N), less: true},
				{name: "goroutines of all waits", unit: "goroutines", value: max(0, float64(runtime.NumGoroutine()-goroutines)), less: true},
			}
			return nil
		})
		return readings, err
	})
}

func heapNow() uint64 {
	runtime.GC()
	runtime.GC() // also the objects with finalizers
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// signalBeside measures a signal beside few and beside many other waits.
func signalBeside(ctx context.Context, b *Bench) error {
	n := max(10, min(1000, b.N/20))
	for _, others := range []int{1000, max(1000, 10*b.N)} {
		measured := fmt.Sprintf("%d signals, one at a time, beside %d other waits; the duration of the call; the peer is not measured", n, others)
		err := b.compare(ctx, measured, 1, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			if err := b.Field.Worker.SeedWaits(ctx, others); err != nil {
				return nil, err
			}
			took := make([]time.Duration, n)
			a := newArrivals(n)
			err := withWaits(ctx, c, n, a.received, func(waits contender.Waits) error {
				for num := range n {
					began := time.Now()
					if err := waits.Signal(ctx, num); err != nil {
						return err
					}
					took[num] = time.Since(began)
				}
				return a.wait()
			})
			return latencies(fmt.Sprintf("signal beside %d other waits", others), took), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
