package tests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// housekeepingOperations are what deletes, what adopts, and an operator's calls on lanes and workers.
func housekeepingOperations() []operation {
	var flows sync.Map // by their only member
	until := func(call func(engine.Maintenance) job, gone func(context.Context, *engine.Engine, id.ExecutionID) error) func(context.Context, *fixture, *engine.Engine, engine.Lease) error {
		return func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
			for {
				n, err := call(e.Maintenance())(ctx, 100)
				if err != nil {
					return err
				}
				if n < 100 {
					break
				}
			}
			err := gone(ctx, e, l.Execution)
			if errors.Is(err, engine.ErrNotFound) {
				return nil
			}
			return errors.Join(errIdle, err)
		}
	}
	retain := wholeJob("retain", "", func(t *testing.T, f *fixture) engine.Lease {
		return engine.Lease{Fence: engine.Fence{Execution: f.ended(t, keepFor(time.Minute))}}
	}, engine.Maintenance.Retain)
	retain.lazy = true
	retain.do = until(func(m engine.Maintenance) job { return m.Retain }, func(ctx context.Context, e *engine.Engine, x id.ExecutionID) error {
		_, err := e.DescribeExecution(ctx, x)
		return err
	})
	purge := wholeJob("purge flows", "", func(t *testing.T, f *fixture) engine.Lease {
		g := flowsOn(f)
		flow := g.draw(t, nil, "a")
		g.succeed(t, flow, "a")
		f.advance(2 * week)
		f.retain(t)
		f.also = fmt.Sprintf("SELECT to_jsonb(f)::text FROM ff_flow_core AS f WHERE flow_id = '%s'", flow)
		x := f.NodeID(flow, "a")
		flows.Store(x, flow)
		return engine.Lease{Fence: engine.Fence{Execution: x}}
	}, engine.Maintenance.PurgeFlows)
	purge.lazy = true
	purge.do = until(func(m engine.Maintenance) job { return m.PurgeFlows }, func(ctx context.Context, e *engine.Engine, x id.ExecutionID) error {
		flow, _ := flows.Load(x)
		_, err := e.DescribeFlow(ctx, flow.(id.FlowID))
		return err
	})
	trim := wholeJob("trim outboxes", stateCompleted, func(t *testing.T, f *fixture) engine.Lease {
		x := f.ended(t)
		f.advance(decades)
		return engine.Lease{Fence: engine.Fence{Execution: x}}
	}, engine.Maintenance.TrimOutboxes)
	trim.alone, trim.lazy, trim.beside = true, true, true
	trim.do = func(ctx context.Context, _ *fixture, e *engine.Engine, _ engine.Lease) error {
		n, err := e.Maintenance().TrimOutboxes(ctx, 10)
		if n > 0 {
			n = 1 // the events of one lease
		}
		return acted(n, err)
	}
	adopt := wholeJob("adopt", stateReady, func(t *testing.T, f *fixture) engine.Lease {
		return engine.Lease{Fence: engine.Fence{Execution: f.seed(t, nil)}}
	}, engine.Maintenance.Adopt)

	siblings := wholeJob("cancel siblings", stateCancelled, func(t *testing.T, f *fixture) engine.Lease {
		g := flowsOn(f)
		flow := g.draw(t, cancelRemaining("d", 1), "a>d", "b>d")
		l := g.lease(t, flow, "b")
		g.succeed(t, flow, "a")
		return l
	}, engine.Maintenance.CancelSiblings)
	repair := wholeJob("repair groups", stateReady, func(t *testing.T, f *fixture) engine.Lease {
		g := flowsOn(f)
		flow := g.draw(t, nil, "a>b")
		g.endElsewhere(t, flow, "a", "success", time.Minute)
		return engine.Lease{Fence: engine.Fence{Execution: f.NodeID(flow, "b")}}
	}, engine.Maintenance.RepairGroups)
	summarise := wholeJob("summarise flows", stateReady, func(t *testing.T, f *fixture) engine.Lease {
		g := flowsOn(f)
		flow := g.draw(t, nil, "a")
		f.also = fmt.Sprintf("SELECT to_jsonb(s)::text FROM ff_flow_summary AS s WHERE flow_id = '%s'", flow)
		return engine.Lease{Fence: engine.Fence{Execution: f.NodeID(flow, "a")}}
	}, engine.Maintenance.SummariseFlows)
	summarise.alone, summarise.beside = true, true

	lane := func(name, rows string, before, do, refused func(context.Context, *fixture, engine.Operator) error) operation {
		call := func(call func(context.Context, *fixture, engine.Operator) error) func(context.Context, *fixture, *engine.Engine, engine.Lease) error {
			return func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				return call(ctx, f, e.Operator())
			}
		}
		return operation{
			name: name, stored: stateReady, reason: engine.ErrInvalidInput, beside: true, do: call(do), refused: call(refused),
			arrange: func(t *testing.T, f *fixture) engine.Lease {
				if before != nil {
					if err := before(t.Context(), f, f.Operator()); err != nil {
						t.Fatal(err)
					}
				}
				f.also = fmt.Sprintf(rows, f.lane, f.name)
				return engine.Lease{Fence: engine.Fence{Execution: f.create(t)}}
			},
		}
	}
	const pauses = "SELECT to_jsonb(p)::text FROM ffx_pause AS p WHERE (subject, name) IN (('lane', '%s'), ('worker', '%s'))"
	pause := func(ctx context.Context, f *fixture, o engine.Operator) error {
		return o.PauseLane(ctx, f.lane, "stop")
	}
	drain := func(ctx context.Context, f *fixture, o engine.Operator) error {
		return o.DrainWorker(ctx, id.WorkerInstanceID(f.name))
	}
	keep := lane("keep what ends on a lane", "SELECT to_jsonb(r)::text FROM ffx_lane_retention AS r WHERE lane_id IN ('%s', '%s')", nil,
		func(ctx context.Context, f *fixture, o engine.Operator) error {
			return o.SetLaneRetention(ctx, f.lane, time.Hour)
		},
		func(ctx context.Context, f *fixture, o engine.Operator) error {
			return o.SetLaneRetention(ctx, f.lane, 1)
		})
	keep.whole, keep.patient = true, true // the position that retention has come to is one for the database
	return []operation{
		retain, purge, trim, adopt, siblings, repair, summarise, keep,
		lane("pause a lane", pauses, nil, pause, func(ctx context.Context, _ *fixture, o engine.Operator) error {
			return o.PauseLane(ctx, "", "stop")
		}),
		lane("resume a lane", pauses, pause, func(ctx context.Context, f *fixture, o engine.Operator) error {
			return o.ResumeLane(ctx, f.lane)
		}, func(ctx context.Context, _ *fixture, o engine.Operator) error { return o.ResumeLane(ctx, "") }),
		lane("drain a worker", pauses, nil, drain, func(ctx context.Context, _ *fixture, o engine.Operator) error {
			return o.DrainWorker(ctx, "")
		}),
		lane("resume a worker", pauses, drain, func(ctx context.Context, f *fixture, o engine.Operator) error {
			return o.ResumeWorker(ctx, id.WorkerInstanceID(f.name))
		}, func(ctx context.Context, _ *fixture, o engine.Operator) error { return o.ResumeWorker(ctx, "") }),
	}
}
