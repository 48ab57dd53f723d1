package retention

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// probe creates, claims and completes one execution after the other on a separate lane, and records the durations of the
// claims.
type probe struct {
	mu     sync.Mutex
	claims []time.Duration
}

func (b *bench) newProbe(ctx context.Context) (p *probe, stop func() error) {
	p = new(probe)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.run(ctx, b) }()
	return p, func() error {
		cancel()
		return <-done
	}
}

func (p *probe) run(ctx context.Context, b *bench) error {
	const lane id.LaneID = "probe"
	tick := time.NewTicker(b.options.probe)
	defer tick.Stop()
	spec := engine.ClaimSpec{Lane: lane, Worker: "probe", Instance: "probe", LeaseTTL: time.Minute}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := b.eng.CreateExecution(ctx, engine.ExecutionSpec{Kind: "probe", Lane: lane})
		if err == nil {
			var claimed []engine.Claimed
			began := time.Now()
			claimed, err = b.eng.Claim(ctx, spec, 1)
			took := time.Since(began)
			if err == nil && len(claimed) != 1 {
				err = errors.New("the probe found nothing to claim")
			}
			if err == nil {
				p.mu.Lock()
				p.claims = append(p.claims, took)
				p.mu.Unlock()
				err = b.eng.CompleteExecution(ctx, claimed[0].Lease, nil)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// read returns the percentiles in milliseconds since the last call.
func (p *probe) read() (count int, p50, p99 float64) {
	p.mu.Lock()
	taken := p.claims
	p.claims = nil
	p.mu.Unlock()
	if len(taken) == 0 {
		return 0, 0, 0
	}
	slices.Sort(taken)
	at := func(f float64) float64 {
		return float64(taken[min(int(f*float64(len(taken))), len(taken)-1)].Microseconds()) / 1000
	}
	return len(taken), at(0.50), at(0.99)
}
