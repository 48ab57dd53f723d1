package tests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// flowOfOperation is the flow that a flow operation acts on, by the execution that it is seen by.
var flowOfOperation sync.Map

func operationFlow(l engine.Lease) id.FlowID {
	flow, _ := flowOfOperation.Load(l.Execution)
	return flow.(id.FlowID)
}

// inFlow makes a lease stand for an operation on a flow, whose rows are looked at, too.
func inFlow(f *fixture, flow id.FlowID, l engine.Lease) engine.Lease {
	flowOfOperation.Store(l.Execution, flow)
	for i, table := range []string{"ff_flow_core", "ff_edge", "ff_edge_group", "ff_pending_cancel_groups", "ff_cancel_backlog", "ff_cancel_backlog_member"} {
		if i == 0 {
			f.also = ""
		} else {
			f.also += " UNION ALL "
		}
		f.also += fmt.Sprintf("SELECT to_jsonb(r)::text FROM %s AS r WHERE flow_id = '%s'", table, flow)
	}
	f.also += " ORDER BY 1"
	return l
}

// flowOperations are those that build and cancel flows.
func flowOperations() []operation {
	type call = func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, l engine.Lease) error
	on := func(do call) func(context.Context, *fixture, *engine.Engine, engine.Lease) error {
		return func(ctx context.Context, f *fixture, e *engine.Engine, l engine.Lease) error {
			return do(ctx, flowsOn(f), e, operationFlow(l), l)
		}
	}
	// seen is a flow as a chart draws it, seen by one of its nodes.
	seen := func(key string, parts ...string) func(*testing.T, *fixture) engine.Lease {
		return func(t *testing.T, f *fixture) engine.Lease {
			g := flowsOn(f)
			flow := g.draw(t, nil, parts...)
			return inFlow(f, flow, engine.Lease{Fence: engine.Fence{Execution: f.NodeID(flow, key)}})
		}
	}
	// held is a flow with a member that somebody works on, by which it is seen.
	held := func(t *testing.T, f *fixture) engine.Lease {
		g := flowsOn(f)
		flow := g.draw(t, nil, "a>b")
		return inFlow(f, flow, g.lease(t, flow, "a"))
	}
	apart := func(t *testing.T, f *fixture) engine.Lease {
		g := flowsOn(f)
		flow := g.draw(t, nil, "a")
		return inFlow(f, flow, engine.Lease{Fence: engine.Fence{Execution: g.standalone(t, flow, "x")}})
	}
	grow := func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, edge string) error {
		_, err := e.GrowFlow(ctx, f.growth(flow, nil, "new", edge))
		return err
	}
	stage := func(apply bool) call {
		return func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
			_, err := e.StageEdges(ctx, f.staged(flow, apply, "a>b"))
			return err
		}
	}
	backwards := func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
		_, err := e.StageEdges(ctx, f.staged(flow, true, "a>b", "b>a"))
		return err
	}
	cancel := func(how state.FlowCancelPolicy) call {
		return func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
			cancelled, err := e.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow, Policy: how})
			if err == nil && (cancelled.Missing || cancelled.Already) {
				return errIdle
			}
			return err
		}
	}
	request := func(grace time.Duration) call {
		return func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
			cancelled, err := e.RequestFlowCancel(ctx, engine.FlowCancelRequest{ID: flow, Grace: grace})
			if err == nil && cancelled.Already {
				return errIdle
			}
			return err
		}
	}
	requested := func(t *testing.T, f *fixture) engine.Lease {
		g := flowsOn(f)
		flow := g.draw(t, nil, "a")
		l := inFlow(f, flow, g.lease(t, flow, "a"))
		g.request(t, engine.FlowCancelRequest{ID: flow, Grace: time.Second})
		return l
	}
	unknown := func(ctx context.Context, _ *flowFixture, e *engine.Engine, _ id.FlowID, _ engine.Lease) error {
		_, err := e.RequestFlowCancel(ctx, engine.FlowCancelRequest{ID: id.NewFlowID()})
		return err
	}
	noWay := cancel("gently")
	tags := func(call func(context.Context, *engine.Engine, id.FlowID) error) (do, refused call) {
		return func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
				return call(ctx, e, flow)
			}, func(ctx context.Context, _ *flowFixture, e *engine.Engine, _ id.FlowID, _ engine.Lease) error {
				return call(ctx, e, id.NewFlowID())
			}
	}
	setTag, setNoTag := tags(func(ctx context.Context, e *engine.Engine, flow id.FlowID) error {
		return e.SetFlowTag(ctx, flow, "app.set", "v")
	})
	setTags, setNoTags := tags(func(ctx context.Context, e *engine.Engine, flow id.FlowID) error {
		return e.SetFlowTags(ctx, flow, map[string]string{"app.set": "v", "app.other": "w"})
	})
	create := func(nodes ...string) call {
		return func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
			spec := chart(nil, nodes...)
			spec.ID = flow
			for i := range spec.Nodes {
				spec.Nodes[i].Spec.Lane = f.lane
			}
			created, err := e.CreateFlow(ctx, spec)
			if err == nil && created.Existed {
				return errIdle
			}
			return err
		}
	}
	apply := func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, edge id.EdgeID) error {
		if edge == (id.EdgeID{}) {
			page, err := e.ListFlowEdges(ctx, flow, "", 1)
			if err != nil || len(page.Items) != 1 {
				return errors.Join(err, fmt.Errorf("%d edges", len(page.Items)))
			}
			edge = page.Items[0].ID
		}
		applied, err := e.ApplyEdges(ctx, flow, []id.EdgeID{edge})
		return acted(len(applied.Applied), err)
	}
	one := func(name, stored string, arrange func(*testing.T, *fixture) engine.Lease, do call, reason error, refused call) operation {
		return operation{name: name, stored: stored, arrange: arrange, do: on(do), reason: reason, refused: on(refused)}
	}
	beside := func(o operation) operation {
		o.beside = true
		return o
	}
	return []operation{
		one("create a flow", stateReady, func(_ *testing.T, f *fixture) engine.Lease {
			flow := id.NewFlowID()
			return inFlow(f, flow, engine.Lease{Fence: engine.Fence{Execution: f.NodeID(flow, "a")}})
		}, create("a>b"), engine.ErrCycle, create("a>b", "b>a")),
		one("grow a flow", stateHeld, seen("a", "a"),
			func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
				return grow(ctx, f, e, flow, "new>a")
			}, engine.ErrNotFound,
			func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
				return grow(ctx, f, e, flow, "none>a")
			}),
		one("add a member", stateReady, apart,
			func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, l engine.Lease) error {
				added, err := e.AddMembers(ctx, flow, []id.ExecutionID{l.Execution})
				return acted(len(added.Joined), err)
			}, engine.ErrNotFound,
			func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, l engine.Lease) error {
				_, err := e.AddMembers(ctx, flow, []id.ExecutionID{l.Execution, id.NewMemberExecutionID(flow, id.Partitions{})})
				return err
			}),
		one("stage an edge", stateReady, seen("b", "a", "b"), stage(false), engine.ErrCycle, backwards),
		one("stage and apply an edge", stateHeld, seen("b", "a", "b"), stage(true), engine.ErrCycle, backwards),
		one("apply an edge", stateHeld, func(t *testing.T, f *fixture) engine.Lease {
			l := seen("b", "a", "b")(t, f)
			g, flow := flowsOn(f), operationFlow(l)
			if _, err := f.SetGroupPolicy(t.Context(), flow, l.Execution, policy.AnyOf(policy.LetRun)); err != nil {
				t.Fatal(err)
			}
			g.stageEdges(t, g.staged(flow, false, "a>b"))
			return l
		}, func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
			return apply(ctx, f, e, flow, id.EdgeID{})
		}, engine.ErrNotFound, func(ctx context.Context, f *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
			return apply(ctx, f, e, flow, id.NewEdgeID())
		}),
		one("set the policy of a group", stateReady, seen("a", "a", "b"),
			func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, l engine.Lease) error {
				changed, err := e.SetGroupPolicy(ctx, flow, l.Execution, policy.AnyOf(policy.LetRun))
				if err == nil && !changed {
					err = errIdle
				}
				return err
			}, engine.ErrNotFound,
			func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, l engine.Lease) error {
				other := id.NewFlowID()
				for partitionOf(other) != partitionOf(flow) {
					other = id.NewFlowID()
				}
				_, err := e.SetGroupPolicy(ctx, other, l.Execution, policy.AnyOf(policy.LetRun))
				return err
			}),
		one("cancel a flow", stateCancelled, held, cancel(state.CancelAll), engine.ErrInvalidInput, noWay),
		one("cancel what waits in a flow", stateCancelled, seen("b", "a>b"), cancel(state.CancelPending), engine.ErrInvalidInput, noWay),
		beside(one("close a flow", stateRunning, held, cancel(state.CancelFlowOnly), engine.ErrInvalidInput, noWay)),
		one("request that a flow is cancelled", stateCancelled, held, request(0), engine.ErrNotFound, unknown),
		one("request it with grace", stateRunning, held, request(time.Second), engine.ErrNotFound, unknown),
		beside(one("acknowledge a cancel", stateRunning, requested,
			func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, l engine.Lease) error {
				return e.AckFlowCancel(ctx, flow, l.Execution)
			}, engine.ErrInvalidInput,
			func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, l engine.Lease) error {
				other := id.NewFlowID()
				for partitionOf(other) == l.Execution.Partition() {
					other = id.NewFlowID()
				}
				return e.AckFlowCancel(ctx, other, l.Execution)
			})),
		wholeJob("cancel flows", stateCancelled, requested, engine.Maintenance.CancelFlows),
		beside(one("tag a flow", stateReady, seen("a", "a"), setTag, engine.ErrNotFound, setNoTag)),
		beside(one("tag a flow twice", stateReady, seen("a", "a"), setTags, engine.ErrNotFound, setNoTags)),
		one("replay a member", stateReplayed, func(t *testing.T, f *fixture) engine.Lease {
			g := flowsOn(f)
			flow := g.draw(t, nil, "a>b")
			g.fail(t, flow, "a")
			return inFlow(f, flow, g.lease(t, flow, "a"))
		}, func(ctx context.Context, _ *flowFixture, e *engine.Engine, _ id.FlowID, l engine.Lease) error {
			_, err := e.Operator().ReplayExecution(ctx, l.Execution)
			return err
		}, engine.ErrNotFound, func(ctx context.Context, _ *flowFixture, e *engine.Engine, flow id.FlowID, _ engine.Lease) error {
			_, err := e.Operator().ReplayExecution(ctx, id.NewMemberExecutionID(flow, id.Partitions{}))
			return err
		}),
		wholeJob("dispatch completions", stateReady, func(t *testing.T, f *fixture) engine.Lease {
			l := seen("b", "a>b")(t, f)
			flow := operationFlow(l)
			a := f.NodeID(flow, "a")
			f.setExecution(t, a, endedElsewhere)
			flowsOn(f).foreignEvent(t, a, &flow, "success")
			return l
		}, engine.Maintenance.DispatchCompletions),
	}
}

// flowHolds are what an operation on a flow waits for while somebody else holds it, by what that is.
var flowHolds = map[string]func(*testing.T, *fixture, pgx.Tx, engine.Lease){
	"its flow": func(t *testing.T, _ *fixture, tx pgx.Tx, l engine.Lease) {
		execIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", operationFlow(l))
	},
	"the row of its flow": func(t *testing.T, _ *fixture, tx pgx.Tx, l engine.Lease) {
		flow := operationFlow(l)
		execIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
	},
	"its execution": func(t *testing.T, _ *fixture, tx pgx.Tx, l engine.Lease) { lockExecution(t, tx, l.Execution) },
	"its attempt":   func(t *testing.T, _ *fixture, tx pgx.Tx, l engine.Lease) { lockAttempt(t, tx, l.Execution, 0) },
	"its group": func(t *testing.T, _ *fixture, tx pgx.Tx, l engine.Lease) {
		flow := operationFlow(l)
		execIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
	},
	"the request": func(t *testing.T, _ *fixture, tx pgx.Tx, l engine.Lease) {
		flow := operationFlow(l)
		execIn(t, tx, "SELECT FROM ff_cancel_backlog WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
	},
}

// flowWaits are the holds that each of them waits for.
var flowWaits = map[string][]string{
	"grow a flow":                      {"its flow", "the row of its flow", "its execution"},
	"add a member":                     {"its flow", "the row of its flow", "its execution"},
	"stage an edge":                    {"its flow", "the row of its flow", "its execution"},
	"stage and apply an edge":          {"its flow", "the row of its flow", "its execution"},
	"apply an edge":                    {"its flow", "the row of its flow", "its execution", "its group"},
	"set the policy of a group":        {"its flow", "the row of its flow", "its execution"},
	"cancel a flow":                    {"its flow", "the row of its flow", "its execution", "its attempt", "its group"},
	"cancel what waits in a flow":      {"its flow", "the row of its flow", "its execution"},
	"close a flow":                     {"its flow", "the row of its flow"},
	"request that a flow is cancelled": {"its flow", "the row of its flow", "its execution", "its attempt", "its group"},
	"request it with grace":            {"its flow", "the row of its flow", "its execution", "its attempt"},
	"acknowledge a cancel":             {"the request"},
	"tag a flow":                       {"the row of its flow"},
	"tag a flow twice":                 {"the row of its flow"},
	"replay a member":                  {"its flow", "the row of its flow", "its execution", "its attempt", "its group"},
}
