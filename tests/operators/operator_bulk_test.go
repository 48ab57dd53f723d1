package operators

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// bulked is a lane with one execution in each of several states, by name.
type bulked struct {
	*fixture.Fixture
	byName map[string]id.ExecutionID
	all    engine.ExecutionFilter
}

func newBulked(t *testing.T) *bulked {
	t.Helper()
	f := fixture.NewCloned(t)
	b := &bulked{f, make(map[string]id.ExecutionID), engine.ExecutionFilter{Lane: f.Lane}}
	failed := f.Start(t)
	f.Fail(t, failed.Lease, fixture.ForGood)
	completed := f.Start(t)
	if err := f.CompleteExecution(t.Context(), completed.Lease, nil); err != nil {
		t.Fatal(err)
	}
	active := f.Start(t)
	flow, err := f.CreateFlow(t.Context(), engine.FlowSpec{Nodes: []engine.Node{{Key: "n", Spec: engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}}}})
	if err != nil {
		t.Fatal(err)
	}
	member := f.ClaimOne(t)
	f.Fail(t, member.Lease, fixture.ForGood)
	b.byName["failed"], b.byName["completed"], b.byName["active"], b.byName["failed member"] = failed.ID, completed.ID, active.ID, f.NodeID(flow.ID, "n")
	b.byName["delayed"] = f.Create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = f.Time().Add(time.Hour) })
	b.byName["waiting"], b.byName["another"] = f.Create(t), f.Create(t)
	f.Create(t, func(s *engine.ExecutionSpec) { s.Lane += ".else" })
	return b
}

func (b *bulked) states(t *testing.T) map[string]state.PublicState {
	t.Helper()
	states := make(map[string]state.PublicState)
	for name, x := range b.byName {
		got, err := b.DescribeExecution(t.Context(), x)
		if errors.Is(err, fferr.ErrNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		states[name] = got.State.Public
	}
	return states
}

type bulkCall func(ctx context.Context, o *engine.Engine, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error)

var bulkCalls = []struct {
	name             string
	call             bulkCall
	changed, refused int
	want             map[string]state.PublicState // the states that it changes; "" for deleted
}{
	{"cancel", func(ctx context.Context, o *engine.Engine, f engine.ExecutionFilter, b operator.Bulk) (operator.BulkProgress, error) {
		return operator.CancelWhere(ctx, o, f, "a mistake", b)
	}, 4, 3, map[string]state.PublicState{
		"active": state.PublicCancelled, "delayed": state.PublicCancelled, "waiting": state.PublicCancelled, "another": state.PublicCancelled,
	}},
	{"replay", func(ctx context.Context, o *engine.Engine, f engine.ExecutionFilter, b operator.Bulk) (operator.BulkProgress, error) {
		return operator.ReplayWhere(ctx, o, f, b)
	}, 2, 5, map[string]state.PublicState{"failed": state.PublicWaiting, "failed member": state.PublicWaiting}},
	{"delete", func(ctx context.Context, o *engine.Engine, f engine.ExecutionFilter, b operator.Bulk) (operator.BulkProgress, error) {
		return operator.DeleteWhere(ctx, o, f, b)
	}, 2, 5, map[string]state.PublicState{"failed": "", "completed": ""}},
	{"prioritize", func(ctx context.Context, o *engine.Engine, f engine.ExecutionFilter, b operator.Bulk) (operator.BulkProgress, error) {
		return operator.PrioritizeWhere(ctx, o, f, 7, b)
	}, 2, 5, nil},
	{"move", func(ctx context.Context, o *engine.Engine, f engine.ExecutionFilter, b operator.Bulk) (operator.BulkProgress, error) {
		return operator.MoveWhere(ctx, o, f, f.Lane+".new", b)
	}, 2, 5, nil},
}

// Each operation changes the executions whose state allows it, in batches of any size, and none in a dry run.
func TestBulkOperations(t *testing.T) {
	for _, c := range bulkCalls {
		t.Run(c.name, func(t *testing.T) {
			b := newBulked(t)
			want := b.states(t)
			got, err := c.call(t.Context(), b.Fixture.Engine, b.all, operator.Bulk{DryRun: true})
			if wanted := (operator.BulkProgress{Matched: 7}); err != nil || got != wanted {
				t.Fatalf("dry run: %+v, %v, want %+v", got, err, wanted)
			}
			fixture.WantEqual(t, "states after the dry run", b.states(t), want)
			batches := 0
			got, err = c.call(t.Context(), b.Fixture.Engine, b.all, operator.Bulk{Batch: 3, Progress: func(p operator.BulkProgress) error {
				if batches++; (p.Next == "") != (p.Matched == 7) {
					t.Errorf("batch %d: %+v", batches, p)
				}
				return nil
			}})
			if wanted := (operator.BulkProgress{Matched: 7, Changed: c.changed, Refused: c.refused}); err != nil || got != wanted || batches != 3 {
				t.Errorf("%+v, %v, want %+v; %d batches, want 3", got, err, wanted, batches)
			}
			for name, s := range c.want {
				if want[name] = s; s == "" {
					delete(want, name)
				}
			}
			fixture.WantEqual(t, "states", b.states(t), want)
		})
	}
}

// What the two operations on the queue write: the priority or lane, and the place in the queue.
func TestBulkOperationsMoveQueueEntries(t *testing.T) {
	b := newBulked(t)
	if _, err := operator.PrioritizeWhere(t.Context(), b.Fixture.Engine, b.all, 7, operator.Bulk{}); err != nil {
		t.Fatal(err)
	}
	if got := len(operatorEvents(t, b.Fixture, b.byName["waiting"])); got != 1 {
		t.Errorf("%d operator events, want 1", got)
	}
	if _, err := operator.MoveWhere(t.Context(), b.Fixture.Engine, b.all, b.Lane+".new", operator.Bulk{}); err != nil {
		t.Fatal(err)
	}
	b.WantNothingClaimable(t)
	claimed, err := b.Engine.Claim(t.Context(), b.WorkerOn(".new"), 10)
	if err != nil || len(claimed) != 2 || claimed[0].Priority != 7 || claimed[0].Lease.Lane != b.Lane+".new" {
		t.Errorf("claimed %+v, %v, want two of the priority 7", claimed, err)
	}
}

// A run that was stopped goes on after its position, and a busy execution is left for another run.
func TestBulkOperationsCanBeContinued(t *testing.T) {
	b := newBulked(t)
	stop := errors.New("enough")
	first, err := operator.CancelWhere(t.Context(), b.Fixture.Engine, b.all, "", operator.Bulk{Batch: 2, Progress: func(operator.BulkProgress) error { return stop }})
	if !errors.Is(err, stop) || first.Matched != 2 || first.Next == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	tx := b.BeginTx(t)
	if _, err := tx.Exec(t.Context(), "SELECT FROM ff_exec_core WHERE lane_id = $1 AND public_state = 'delayed' FOR UPDATE", b.Lane); err != nil {
		t.Fatal(err)
	}
	again, err := operator.CancelWhere(t.Context(), b.Fixture.Engine, b.all, "", operator.Bulk{})
	if err != nil || again.Matched != 7 || again.Changed != 3 || again.Busy != 1 {
		t.Errorf("beside a lock: %+v, %v", again, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	rest, err := operator.CancelWhere(t.Context(), b.Fixture.Engine, b.all, "", operator.Bulk{After: first.Next})
	if err != nil || rest.Matched != 5 || rest.Busy != 0 {
		t.Errorf("the rest: %+v, %v", rest, err)
	}
}

func TestBulkOperationsRefuseBadOptions(t *testing.T) {
	f := fixture.NewCloned(t)
	filter := engine.ExecutionFilter{Lane: f.Lane}
	claimOrder := filter
	claimOrder.Order = engine.ClaimOrder
	for _, c := range bulkCalls {
		for name, args := range map[string]struct {
			filter engine.ExecutionFilter
			bulk   operator.Bulk
		}{
			"an empty filter": {engine.ExecutionFilter{Order: engine.NewestFirst}, operator.Bulk{}},
			"only a bound":    {engine.ExecutionFilter{Examined: 5}, operator.Bulk{}},
			"claim order":     {claimOrder, operator.Bulk{}},
			"a large batch":   {filter, operator.Bulk{Batch: engine.MaxBatch + 1}},
			"a bad position":  {filter, operator.Bulk{After: "nowhere"}},
		} {
			if args.filter.Lane == "" && c.name == "move" {
				continue // without a lane to move to, this call is refused for that
			}
			if _, err := c.call(t.Context(), f.Engine, args.filter, args.bulk); !errors.Is(err, fferr.ErrInvalidInput) {
				t.Errorf("%s with %s: %v", c.name, name, err)
			}
		}
		err := pgx.BeginFunc(t.Context(), f.Pool, func(tx pgx.Tx) error {
			if _, err := c.call(t.Context(), f.WithTx(tx), filter, operator.Bulk{}); !errors.Is(err, fferr.ErrInvalidInput) {
				t.Errorf("%s in a transaction: %v", c.name, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
