package flowload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/state"
)

const lane id.LaneID = "flows"

// bench is one run.
type bench struct {
	options
	eng   *engine.Engine
	log   *slog.Logger
	times *times
}

// run keeps the flows going until the span is over, with the background work of one process.
func (b *bench) run(ctx context.Context) error {
	jobs, err := reconcile.New(b.eng, reconcile.Config{Log: b.log})
	if err != nil {
		return err
	}
	within, stop := context.WithTimeout(ctx, b.span)
	defer stop()
	group, running := errgroup.WithContext(within)
	group.Go(func() error { jobs.Run(running); return nil })
	for range b.flows {
		group.Go(func() error { return over(running, b.flow(running)) })
	}
	for range b.workers {
		group.Go(func() error { return over(running, b.work(running)) })
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// over drops the errors of calls that the end of the run interrupted.
func over(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// time records the duration of a call. Interrupted calls don't count.
func (b *bench) time(ctx context.Context, what string, call func() error) error {
	began := time.Now()
	err := call()
	if ctx.Err() == nil {
		b.times.add(what, time.Since(began))
	}
	return err
}

// flow creates one flow after the other, grows each three times, and cancels it. It makes one call per tick, so the
// figures measure the wait for locks rather than a growing queue of calls.
func (b *bench) flow(ctx context.Context) error {
	tick := time.NewTicker(b.pace)
	defer tick.Stop()
	// Spread the starts over one tick.
	wait := time.After(rand.N(b.pace))
	for {
		flow := id.NewFlowID()
		for step := range 5 {
			select {
			case <-ctx.Done():
				return nil
			case <-wait:
				wait = tick.C
			}
			var err error
			switch step {
			case 0:
				err = b.time(ctx, "create", func() error { return b.create(ctx, flow) })
			case 4:
				err = b.end(ctx, flow)
			default:
				err = b.time(ctx, "grow", func() error { return b.grow(ctx, flow, step) })
			}
			if err != nil {
				return err
			}
		}
	}
}

func nodes(prefix string, n int) []engine.Node {
	nodes := make([]engine.Node, n)
	for i := range nodes {
		nodes[i] = engine.Node{Key: fmt.Sprint(prefix, i), Spec: engine.ExecutionSpec{Kind: "flows", Lane: lane}}
	}
	return nodes
}

// create makes a flow in which half of the nodes lead to the other half, and all of these to one.
func (b *bench) create(ctx context.Context, flow id.FlowID) error {
	spec := engine.FlowSpec{ID: flow, Nodes: append(nodes("first", b.members), nodes("end", 1)...)}
	rules := []policy.Group{policy.AllOf(), policy.AnyOf(policy.LetRun), policy.AnyOf(policy.CancelRemaining), policy.Always()}
	spec.Nodes[b.members].When = rules[rand.IntN(len(rules))]
	for i := b.members / 2; i < b.members; i++ {
		spec.Edges = append(spec.Edges,
			engine.Edge{From: fmt.Sprint("first", i-b.members/2), To: fmt.Sprint("first", i)},
			engine.Edge{From: fmt.Sprint("first", i), To: "end0"})
	}
	_, err := b.eng.CreateFlow(ctx, spec)
	return err
}

// grow adds nodes downstream of nodes that may be running or have ended.
func (b *bench) grow(ctx context.Context, flow id.FlowID, step int) error {
	prefix := fmt.Sprintf("grown%d.", step)
	g := engine.Growth{Flow: flow, Nodes: nodes(prefix, b.members/2)}
	for i := range g.Nodes {
		g.Nodes[i].When = policy.Always()
		g.Edges = append(g.Edges, engine.Edge{From: fmt.Sprint("first", i), To: fmt.Sprint(prefix, i)})
	}
	_, err := b.eng.GrowFlow(ctx, g)
	return err
}

// end cancels a flow in one of the ways.
func (b *bench) end(ctx context.Context, flow id.FlowID) error {
	ways := []state.FlowCancelPolicy{state.CancelAll, state.CancelPending, state.CancelFlowOnly}
	way := rand.IntN(len(ways) + 1)
	if way == len(ways) {
		return b.time(ctx, "request a cancel", func() error {
			_, err := b.eng.RequestFlowCancel(ctx, engine.FlowCancelRequest{ID: flow, Grace: time.Second})
			return err
		})
	}
	return b.time(ctx, "cancel, "+string(ways[way]), func() error {
		_, err := b.eng.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow, Policy: ways[way]})
		return err
	})
}

// work claims members and completes or fails each with its own call. If it finds none, it waits a moment.
func (b *bench) work(ctx context.Context) error {
	spec := engine.ClaimSpec{Lane: lane, Worker: "flows", Instance: "flows", LeaseTTL: time.Minute}
	for ctx.Err() == nil {
		var claimed []engine.Claimed
		err := b.time(ctx, "claim", func() (err error) {
			claimed, err = b.eng.Claim(ctx, spec, 10)
			return err
		})
		if err != nil {
			return err
		}
		if len(claimed) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
		for _, c := range claimed {
			if rand.IntN(10) == 0 {
				err = b.time(ctx, "fail", func() error {
					_, err := b.eng.FailExecution(ctx, c.Lease, engine.Failure{Class: policy.Permanent})
					return err
				})
			} else {
				err = b.time(ctx, "complete", func() error { return b.eng.CompleteExecution(ctx, c.Lease, nil) })
			}
			if err != nil && !errors.Is(err, fferr.ErrStaleLease) { // cancelled in between
				return err
			}
		}
	}
	return nil
}
