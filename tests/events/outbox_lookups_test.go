package events

import (
	"context"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// lookedUp is an execution whose events don't hold all that filters go by, so that readers look it up.
type lookedUp struct {
	*fixture.Fixture
	id id.ExecutionID
}

func newLookedUp(t *testing.T) *lookedUp {
	t.Helper()
	f := fixture.NewCloned(t)
	return &lookedUp{f, f.Create(t, func(s *engine.ExecutionSpec) {
		s.Namespace, s.Tags = "ours", map[string]string{outbox.InstanceTagKey: "i1"}
	})}
}

// emit inserts two lease events in one statement: one holds neither a namespace nor a tag, the other only its namespace.
func (l *lookedUp) emit(t *testing.T) (events []int64) {
	t.Helper()
	return idsOf(t, l.Pool, `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key, namespace)
		VALUES ($1, 'renewed', 1, $2, NULL), ($1, 'renewed', 1, $2, 'ours') RETURNING event_id `, l.id.UUID().String(), l.id.Partition())
}

// subscribe follows the lease events in a process until the test ends.
func (l *lookedUp) subscribe(t *testing.T, process *engine.Engine, o outbox.Options) *outbox.Subscription {
	t.Helper()
	o.Buffer = 1024
	s, err := fixture.Outboxes(process).Subscribe(t.Context(), outbox.Lease, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func wantNext(t *testing.T, s *outbox.Subscription, want []int64) {
	t.Helper()
	if got := next(t, s, len(want)); !slices.Equal(got, want) {
		t.Errorf("handed %d, want %d", got, want)
	}
}

// The session ends while the instances of a page are looked up. The page is read again: by the tailer, which has moved
// past it, and by a subscription that reads for itself.
func TestOutboxReadsAPageAgainWhenItsLookupFails(t *testing.T) {
	l := newLookedUp(t)
	filter := outbox.Filter{Namespace: new("ours")}
	cut := func(name string) {
		l.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name)
	}

	process := l.StoppedBefore(t, "ListEventExecutions")
	ours := l.subscribe(t, process.Engine, outbox.Options{Filter: filter})
	events := l.emit(t)
	process.AwaitStop(t)
	cut(process.Name)
	process.Resume()
	wantNext(t, ours, events)

	process = l.StoppedBefore(t, "ListEventExecutions")
	l.subscribe(t, process.Engine, outbox.Options{}) // so that the tailer is past them
	ours = l.subscribe(t, process.Engine, outbox.Options{Filter: filter, After: new(events[0] - 1)})
	read := fixture.Async(t, func(context.Context) []int64 { return next(t, ours, len(events)) })
	process.AwaitStop(t)
	cut(process.Name)
	process.Resume()
	if got := read(); !slices.Equal(got, events) {
		t.Errorf("handed %d, want %d", got, events)
	}
}

// A subscription attaches while the tailer looks up values for the filters of others. Its own filter needs more.
func TestOutboxLooksUpAgainForASubscriptionThatAttached(t *testing.T) {
	l := newLookedUp(t)
	process := l.StoppedBefore(t, "ListEventExecutions")
	first := l.subscribe(t, process.Engine, outbox.Options{Filter: outbox.Filter{Namespace: new("ours")}})
	events := l.emit(t)
	process.AwaitStop(t)
	second := l.subscribe(t, process.Engine, outbox.Options{
		Filter: outbox.Filter{InstanceTag: new("i1")}, After: new(events[0] - 1),
	})
	process.Resume()
	wantNext(t, first, events)
	wantNext(t, second, events)
}
