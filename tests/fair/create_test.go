package fair

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

type args struct{ Tenant string }

// A kind with a tenant and a weight creates fair work, which reads show with its real creation time.
func TestKindIsFair(t *testing.T) {
	l := newLane(fixture.New(t), "")
	kind := engine.Kind[args, struct{}]{
		Name: "test", Lane: l.name,
		Fair: engine.RoundRobin(func(a args) string { return a.Tenant }).Weigh(func(args) int { return 3 }),
	}
	l.add(t, l.Engine, 4, engine.FairShare{Tenant: "a", Weight: 3}) // the last stands a millisecond behind the first
	created, err := kind.Create(t.Context(), l.Engine, args{"a"})
	if err != nil {
		t.Fatal(err)
	}
	s := l.Describe(t, created.ID)
	if s.Fair != (engine.FairShare{Tenant: "a", Weight: 3}) || !s.CreatedAt.Equal(l.Time()) || !s.LastMutationAt.Equal(l.Time()) {
		t.Errorf("%+v, created %v, changed %v, want %v", s.Fair, s.CreatedAt, s.LastMutationAt, l.Time())
	}
	if got, want := l.Stored(t, created.ID).CreatedAtMs, l.Time().UnixMilli()+1; got != want {
		t.Errorf("stands at %d, want %d", got, want)
	}
	page, err := l.ListExecutions(t.Context(), engine.ExecutionFilter{Lane: l.name}, "", 10)
	if err != nil || len(page.Items) != 5 {
		t.Fatal(len(page.Items), err)
	}
	for _, x := range page.Items {
		if !x.CreatedAt.Equal(l.Time()) {
			t.Errorf("listed as created at %v, want %v", x.CreatedAt, l.Time())
		}
	}
	at := fixture.Texts(t, l.Pool, "SELECT (extract(epoch FROM created_at) * 1000)::bigint::text FROM ffx_execution WHERE id = $1", created.ID.String())
	if want := []string{strconv.FormatInt(l.Time().UnixMilli(), 10)}; !slices.Equal(at, want) {
		t.Errorf("the view has %v, want %v", at, want)
	}
}

// Bad tenants and weights are refused by the name of the field, and change nothing for the rest of a batch.
func TestBadTenantsAreRefused(t *testing.T) {
	f := fixture.New(t)
	for _, tt := range []struct {
		name  string
		share engine.FairShare
		field string
	}{
		{"no name", engine.FairShare{Weight: 1}, "Fair.Tenant"},
		{"a long name", engine.FairShare{Tenant: strings.Repeat("x", engine.MaxTenant+1)}, "Fair.Tenant"},
		{"text that can't be stored", engine.FairShare{Tenant: "a\x00"}, "Fair.Tenant"},
		{"a negative weight", engine.FairShare{Tenant: "a", Weight: -1}, "Fair.Weight"},
		{"a great weight", engine.FairShare{Tenant: "a", Weight: engine.MaxFairWeight + 1}, "Fair.Weight"},
	} {
		outcomes, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{
			{Lane: f.Lane, Kind: "test", Fair: tt.share}, {Lane: f.Lane, Kind: "test", Fair: of("a")},
		})
		if err != nil || outcomes[1].Err != nil {
			t.Fatal(tt.name, err, outcomes[1].Err)
		}
		fixture.WantInputError(t, outcomes[0].Err, tt.field)
	}
	kind := engine.Kind[args, struct{}]{Name: "test", Lane: f.Lane, Fair: engine.RoundRobin(func(a args) string { return a.Tenant })}
	_, err := kind.Create(t.Context(), f.Engine, args{})
	fixture.WantInputError(t, err, "Fair.Tenant")
	kind.Fair = kind.Fair.Weigh(func(args) int { return 0 })
	_, err = kind.Create(t.Context(), f.Engine, args{"a"})
	fixture.WantInputError(t, err, "Fair.Weight")
	kind.Fair = engine.Fair[args]{}.Weigh(func(args) int { return 1 })
	_, err = kind.Create(t.Context(), f.Engine, args{"a"})
	fixture.WantInputError(t, err, "Fair")
	kind.Fair = engine.RoundRobin(func(a args) string { return a.Tenant })
	err = schedule.Put(t.Context(), f.Engine, schedule.Of(kind, f.Name, args{}, schedule.Spec{Every: time.Minute}))
	fixture.WantInputError(t, err, "Fair.Tenant")
}

// Creations for a tenant don't wait for one whose transaction stays open, and give out successive places themselves.
func TestCreationsWaitForNoTransaction(t *testing.T) {
	l := newLane(fixture.New(t), "")
	l.add(t, l.Engine, 1, of("a"))
	tx, err := l.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	open := l.add(t, l.WithTx(tx), 3, of("a"))
	// Were there a lock, these would never return.
	var after []int64
	for range 3 {
		after = append(after, l.Stored(t, l.add(t, l.Engine, 1, of("a"))[0]).CreatedAtMs)
	}
	start := l.Time().UnixMilli()
	if want := []int64{start + 1, start + 2, start + 3}; !slices.Equal(after, want) {
		t.Errorf("stand at %v, want %v", after, want)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at := l.Stored(t, open[2]).CreatedAtMs; at != start+3 {
		t.Errorf("the last of the open transaction stands at %d, want %d", at, start+3)
	}
	if next := l.Stored(t, l.add(t, l.Engine, 1, of("a"))[0]).CreatedAtMs; next != start+4 {
		t.Errorf("the next stands at %d, want %d", next, start+4)
	}
}

// A transaction sees its own executions.
func TestTransactionContinuesItsPlaces(t *testing.T) {
	l := newLane(fixture.New(t), "")
	tx, err := l.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	l.add(t, l.WithTx(tx), 2, of("a"))
	l.add(t, l.WithTx(tx), 2, of("b"))
	l.add(t, l.WithTx(tx), 2, of("a"))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(l.order(l.take(t, 6)), ""); got != "ababaa" {
		t.Errorf("claimed %s, want ababaa", got)
	}
}

// Every way to create work gives places: keys, sequences, unique work, delays and members of flows.
func TestOtherCreationsAreFair(t *testing.T) {
	ways := []struct {
		name   string
		change func(*engine.ExecutionSpec)
	}{
		{"idempotency key", func(s *engine.ExecutionSpec) { s.IdempotencyKey = "k" }},
		{"business key", func(s *engine.ExecutionSpec) { s.BusinessKey = id.BusinessKey{Name: "fair", Value: string(s.Lane)} }},
		{"sequence", func(s *engine.ExecutionSpec) { s.Sequence = engine.Sequence{Key: string(s.Lane)} }},
		{"unique", func(s *engine.ExecutionSpec) { s.Unique = &engine.Unique{ByLane: true} }},
		{"deadline", func(s *engine.ExecutionSpec) { s.Deadline = fixture.Start.Add(time.Hour) }},
		{"id", func(s *engine.ExecutionSpec) { s.ID = id.NewExecutionID(s.Lane, id.Partitions{}) }},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			l := newLane(fixture.New(t), "")
			l.add(t, l.Engine, 5, of("a"))
			x := l.add(t, l.Engine, 1, of("a"), way.change)[0]
			if at := l.Stored(t, x).CreatedAtMs; at != l.Time().UnixMilli()+5 {
				t.Errorf("stands at %d, want %d", at, l.Time().UnixMilli()+5)
			}
		})
	}
	t.Run("flow", func(t *testing.T) {
		l := newLane(fixture.New(t), "")
		l.add(t, l.Engine, 5, of("a"))
		node := func(key string) engine.Node {
			return engine.Node{Key: key, Spec: engine.ExecutionSpec{Lane: l.name, Kind: "test", Fair: of("a")}}
		}
		flow, err := l.CreateFlow(t.Context(), engine.FlowSpec{Nodes: []engine.Node{node("x"), node("y")}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.GrowFlow(t.Context(), engine.Growth{Flow: flow.ID, Nodes: []engine.Node{node("z")}}); err != nil {
			t.Fatal(err)
		}
		for n, key := range []string{"x", "y", "z"} {
			if at := l.Stored(t, l.NodeID(flow.ID, key)).CreatedAtMs; at != l.Time().UnixMilli()+int64(5+n) {
				t.Errorf("%s stands at %d, want %d", key, at, l.Time().UnixMilli()+int64(5+n))
			}
		}
	})
}

// A repeated creation takes no place.
func TestDuplicatesTakeNoPlace(t *testing.T) {
	l := newLane(fixture.New(t), "")
	spec := engine.ExecutionSpec{Lane: l.name, Kind: "test", Fair: of("a"), IdempotencyKey: "k"}
	first, err := l.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	again, err := l.CreateExecution(t.Context(), spec)
	if err != nil || again.ID != first.ID || !again.Duplicate {
		t.Fatal(again, err)
	}
	spec.Fair = of("")
	spec.Fair.Weight = 1
	if _, err := l.CreateExecution(t.Context(), spec); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Error(err)
	}
	x := l.add(t, l.Engine, 1, of("a"))[0]
	if at := l.Stored(t, x).CreatedAtMs; at != l.Time().UnixMilli()+1 {
		t.Errorf("stands at %d, want %d", at, l.Time().UnixMilli()+1)
	}
}
