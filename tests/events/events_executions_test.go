package events

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// wantOf compares the columns of its execution that an event carries.
func wantOf(t *testing.T, what string, e events.Event, kind string, lane id.LaneID, node string, tags map[string]string) {
	t.Helper()
	if e.Kind != kind || e.Lane != lane || e.NodeKey != node || !maps.Equal(e.Tags, tags) {
		t.Errorf("%s: kind %q, lane %q, node %q, tags %v; want %q, %q, %q, %v", what, e.Kind, e.Lane, e.NodeKey, e.Tags, kind, lane, node, tags)
	}
}

// Events of every outbox carry the kind, lane, node key and tags of their execution, whether they are handed on at once or
// read later. Once it is deleted they carry none.
func TestEventsCarryExecutionColumns(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	tags := map[string]string{"app.tenant": "7", "app.note": "a \"b\""}
	live := subscribe(t, f.Engine, events.Completions(events.Filter{}), events.Options{})
	leases := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{})
	calls := subscribe(t, f.Engine, events.OperatorCalls(events.Filter{}), events.Options{})
	flow := f.NewFlowOf(t, engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{
		{Key: "first step", Spec: engine.ExecutionSpec{Kind: "charge", Lane: f.Lane, Tags: tags}},
	}})
	if err := operator.Prioritize(t.Context(), f.Fixture.Engine, f.NodeID(flow, "first step"), 5); err != nil {
		t.Fatal(err)
	}
	c := f.ClaimOne(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	plain := f.Start(t)
	if err := f.CompleteExecution(t.Context(), plain.Lease, nil); err != nil {
		t.Fatal(err)
	}

	call, err := nextEvent(t, calls)
	if err != nil {
		t.Fatal(err)
	}
	wantOf(t, "operator call", call.Event, "charge", f.Lane, "first step", tags)
	for range 2 {
		lease, err := nextEvent(t, leases)
		if err != nil {
			t.Fatal(err)
		}
		wantOf(t, "lease "+string(lease.Type), lease.Event, "charge", f.Lane, "first step", tags)
	}
	later := subscribe(t, f.Rival(t).Engine, events.Completions(events.Filter{Namespace: engine.DefaultNamespace}), events.Options{After: events.Beginning})
	for name, sub := range map[string]*events.Subscription[events.Completion]{"live": live, "later": later} {
		end, err := nextEvent(t, sub)
		if err != nil {
			t.Fatal(err)
		}
		wantOf(t, name, end.Event, "charge", f.Lane, "first step", tags)
		if end, err = nextEvent(t, sub); err != nil {
			t.Fatal(err)
		}
		wantOf(t, name+", without tags", end.Event, "test", f.Lane, "", nil)
	}

	f.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", plain.ID.UUID())
	purged := subscribe(t, f.Engine, events.Completions(events.Filter{}), events.Options{After: events.Beginning})
	if _, err := nextEvent(t, purged); err != nil {
		t.Fatal(err)
	}
	end, err := nextEvent(t, purged)
	if err != nil || end.Execution != plain.ID {
		t.Fatalf("got %+v, %v", end, err)
	}
	wantOf(t, "of a deleted execution", end.Event, "", "", "", nil)
}

// An event that is set aside keeps the columns of its execution, so that it is handled later as it would have been.
func TestEventsSetAsideKeepExecutionColumns(t *testing.T) {
	c := newConsumed(t)
	x := c.Ended(t, func(spec *engine.ExecutionSpec) { spec.Tags = map[string]string{"app.tenant": "7"} })
	spec := events.Consumer{Name: "billing", From: events.Beginning, MaxTries: 1, Backoff: policy.Fixed(0)}
	var handled atomic.Int64
	r := handle(t, c.Engine, spec, func(_ context.Context, _ pgx.Tx, end events.Completion) error {
		handled.Add(1)
		wantOf(t, "handled", end.Event, "test", c.Lane, "", map[string]string{"app.tenant": "7"})
		return errors.New("refused")
	})
	fixture.Await(t, "the event to be set aside", func() bool { return c.status(t).SetAside == 1 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", x.UUID())
	aside, err := events.SetAside(t.Context(), c.Engine, events.CompletionOutbox, "billing", events.Beginning, 0)
	if err != nil || len(aside) != 1 {
		t.Fatalf("%+v, %v", aside, err)
	}
	err = events.RetrySetAside(t.Context(), c.Engine, "billing", events.Completions(events.Filter{}), aside[0].Cursor,
		func(_ context.Context, _ pgx.Tx, end events.Completion) error {
			wantOf(t, "retried", end.Event, "test", c.Lane, "", map[string]string{"app.tenant": "7"})
			return nil
		})
	if err != nil || handled.Load() == 0 {
		t.Error(err)
	}
}

// A new consumer may begin behind any cursor, and is refused one that the outbox does not have.
func TestConsumerBeginsBehindACursor(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 3)
	ids := c.ids(t)
	r := handle(t, c.Engine, events.Consumer{Name: "billing", From: cursorBehind(ids[1])}, note)
	c.awaitNoted(t, 1)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c.wantNoted(t, ids[2:])
	err := events.HandleWith(t.Context(), c.Engine, events.Consumer{Name: "ahead", From: cursorBehind(ids[2] + 1)}, events.Completions(events.Filter{}), note)
	if !errors.Is(err, events.ErrCursorAhead) {
		t.Errorf("got %v, want ErrCursorAhead", err)
	}
	all, err := events.Consumers(t.Context(), c.Engine)
	if err != nil || len(all) != 1 {
		t.Errorf("%+v, %v; want that the other one was not made", all, err)
	}
}
