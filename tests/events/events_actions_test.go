package events

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Recorded actions wake readers, in their order with the other calls. Filters take an action by its execution: without one it
// has partition 0 and no namespace.
func TestActionsAreDelivered(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Namespace = "team" })
	all := subscribe(t, f.Engine, events.OperatorCalls(events.Filter{}), events.Options{})
	team := subscribe(t, f.Engine, events.OperatorCalls(events.Filter{Namespace: "team"}), events.Options{})
	zero := subscribe(t, f.Engine, events.OperatorCalls(events.Filter{Partitions: []int16{0}}), events.Options{})
	if x.Partition() == 0 {
		t.Fatal("the execution is in partition 0")
	}
	want := []events.OperatorCall{
		{Type: state.OperatorEventAction, Action: &events.Action{By: "ada", Name: "limit.set", Object: "sync/tenant", Detail: "--units 2"}},
		{Type: state.OperatorEventAction, Action: &events.Action{By: "ada", Name: "execution.priority"}},
		{Type: state.OperatorEventPriorityChanged, PriorityChanged: &events.PriorityChanged{Old: 0, New: 5}},
	}
	want[1].Execution, want[2].Execution = x, x
	for i := range want {
		var err error
		if a := want[i].Action; a == nil {
			err = operator.Prioritize(t.Context(), f.Engine, x, 5)
		} else {
			err = operator.RecordAction(t.Context(), f.Engine, operator.Action{
				By: a.By, Name: a.Name, Object: a.Object, Detail: a.Detail, Execution: want[i].Execution,
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	wantNext := func(sub *events.Subscription[events.OperatorCall], calls ...events.OperatorCall) {
		t.Helper()
		for _, want := range calls {
			got, err := nextEvent(t, sub)
			if err != nil {
				t.Fatal(err)
			}
			ofTeam := got.Namespace != nil && *got.Namespace == "team"
			if ofTeam != (got.Execution == x) || (got.Kind != "") != (got.Execution == x) || !got.At.Equal(f.Time()) {
				t.Errorf("delivered %+v", got.Event)
			}
			got.Event, got.Details = events.Event{Execution: got.Execution}, nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("delivered %+v, want %+v", got, want)
			}
		}
	}
	wantNext(all, want...)
	wantNext(team, want[1:]...)
	wantNext(zero, want[0])

	// A consumer has them too.
	f.Exec(t, "CREATE TABLE noted (event_id bigint, call text)")
	start1(t, func(ctx context.Context) error {
		return events.HandleWith(ctx, byDatabaseClock(t, f, f.Pool), eager(), events.OperatorCalls(events.Filter{}),
			func(ctx context.Context, tx pgx.Tx, call events.OperatorCall) error {
				_, err := tx.Exec(ctx, "INSERT INTO noted VALUES ($1, $2)", call.ID, fmt.Sprint(call.Type, " ", call.Execution, " ", call.Lane))
				return err
			})
	})
	fixture.Await(t, "three calls to be noted", func() bool { return len(fixture.Texts(t, f.Pool, "SELECT call FROM noted")) == 3 })
	calls := []string{
		fmt.Sprint("action ", id.ExecutionID{}, " "), fmt.Sprint("action ", x, " ", f.Lane), fmt.Sprint("priority_changed ", x, " ", f.Lane),
	}
	if got := fixture.Texts(t, f.Pool, "SELECT call FROM noted ORDER BY event_id"); !slices.Equal(got, calls) {
		t.Errorf("noted %q, want %q", got, calls)
	}
}
