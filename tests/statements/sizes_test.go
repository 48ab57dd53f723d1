package statements

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// sizeLog notes how many bytes of texts and byte strings a pool's largest statement was sent.
type sizeLog struct {
	mu      sync.Mutex
	largest int
}

func (l *sizeLog) sent(args []any) {
	bytes := 0
	for _, arg := range args {
		switch values := arg.(type) {
		case []byte:
			bytes += len(values)
		case [][]byte:
			for _, value := range values {
				bytes += len(value)
			}
		case []string:
			for _, value := range values {
				bytes += len(value)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.largest = max(l.largest, bytes)
}

func (l *sizeLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	l.sent(data.Args)
	return ctx
}

func (l *sizeLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (l *sizeLog) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (l *sizeLog) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	l.sent(data.Args)
}

func (l *sizeLog) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// sized is a fixture whose engine's statements are measured.
func sized(t *testing.T) (*fixture.Fixture, *sizeLog) {
	f := fixture.New(t)
	log := new(sizeLog)
	f.Engine = f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), engine.Config{})
	return f, log
}

// Many payloads are sent in several statements. In a soak they are more than a gigabyte, which is more than a message
// to a server can hold. The stored rows are compressed well.
func TestCreateMoreThanOneStatementHolds(t *testing.T) {
	f := fixture.New(t)
	payload := make([]byte, engine.DefaultMaxPayload)
	specs := make([]engine.ExecutionSpec, soak.Size(t, 60, 1100))
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Payload: payload, IdempotencyKey: f.Key(fmt.Sprint(i))}
	}
	for _, again := range []bool{false, true} {
		created, err := f.CreateExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range created {
			if c.Err != nil || c.Value.Duplicate != again {
				t.Fatalf("created %d: %+v", i, c)
			}
		}
	}
	if got := f.CountOnLane(t); got != len(specs) {
		t.Errorf("%d executions, want %d", got, len(specs))
	}
}

func TestStatementsStayBelowTheirShare(t *testing.T) {
	const many = 40
	large := make([]byte, engine.DefaultMaxPayload)
	specs := func(f *fixture.Fixture, change func(i int, spec *engine.ExecutionSpec)) []engine.ExecutionSpec {
		specs := make([]engine.ExecutionSpec, many)
		for i := range specs {
			specs[i] = engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Payload: large}
			change(i, &specs[i])
		}
		return specs
	}
	create := func(t *testing.T, f *fixture.Fixture, specs []engine.ExecutionSpec) {
		t.Helper()
		created, err := f.CreateExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range created {
			if c.Err != nil || c.Value.Duplicate {
				t.Fatalf("created %+v", c)
			}
		}
	}
	completions := func(claimed []engine.Claimed) []engine.Completion {
		completions := make([]engine.Completion, len(claimed))
		for i, c := range claimed {
			completions[i] = engine.Completion{Lease: c.Lease, Result: large}
		}
		return completions
	}
	wantNone := func(t *testing.T, outcomes []error, err error) {
		t.Helper()
		for _, outcome := range append(outcomes, err) {
			if outcome != nil {
				t.Fatal(outcome)
			}
		}
	}
	members := func(t *testing.T, f *fixture.Fixture, change func(*engine.FlowSpec)) id.FlowID {
		t.Helper()
		var spec engine.FlowSpec
		change(&spec)
		created, err := f.CreateFlow(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return created.ID
	}
	for name, work := range map[string]func(*testing.T, *fixture.Fixture){
		"creations": func(t *testing.T, f *fixture.Fixture) {
			create(t, f, specs(f, func(int, *engine.ExecutionSpec) {}))
		},
		"creations with keys": func(t *testing.T, f *fixture.Fixture) {
			create(t, f, specs(f, func(i int, spec *engine.ExecutionSpec) { spec.IdempotencyKey = f.Key(fmt.Sprint(i)) }))
		},
		"creations with large tags": func(t *testing.T, f *fixture.Fixture) {
			create(t, f, specs(f, func(_ int, spec *engine.ExecutionSpec) {
				spec.Payload, spec.Tags = nil, make(map[string]string)
				for i := range 16 {
					spec.Tags[fmt.Sprint(i)] = strings.Repeat("x", 64<<10)
				}
			}))
		},
		"creations of members": func(t *testing.T, f *fixture.Fixture) {
			flow := members(t, f, func(*engine.FlowSpec) {})
			create(t, f, specs(f, func(_ int, spec *engine.ExecutionSpec) { spec.Flow = &flow }))
		},
		"a flow": func(t *testing.T, f *fixture.Fixture) {
			members(t, f, func(spec *engine.FlowSpec) {
				for i, node := range specs(f, func(int, *engine.ExecutionSpec) {}) {
					spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: node})
					if i > 0 {
						spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(i - 1), To: fmt.Sprint(i)})
					}
				}
			})
			if got := len(f.ClaimN(t, many)); got != 1 {
				t.Errorf("claimed %d, want the one that waits for nothing", got)
			}
		},
		"completions": func(t *testing.T, f *fixture.Fixture) {
			outcomes, err := f.CompleteExecutions(t.Context(), completions(f.StartMany(t, many)))
			wantNone(t, outcomes, err)
		},
		"completions of members": func(t *testing.T, f *fixture.Fixture) {
			flow := members(t, f, func(*engine.FlowSpec) {})
			create(t, f, specs(f, func(_ int, spec *engine.ExecutionSpec) { spec.Flow, spec.Payload = &flow, nil }))
			outcomes, err := f.CompleteExecutions(t.Context(), completions(f.ClaimN(t, many)))
			wantNone(t, outcomes, err)
		},
		"complete and claim": func(t *testing.T, f *fixture.Fixture) {
			claimer, err := f.NewClaimer(f.Worker())
			if err != nil {
				t.Fatal(err)
			}
			claimed := f.StartMany(t, many)
			next := f.Create(t)
			outcomes, got, err := claimer.CompleteAndClaim(t.Context(), completions(claimed), 1)
			wantNone(t, outcomes, err)
			if len(got) != 1 || got[0].ID != next {
				t.Errorf("claimed %+v, want %s", got, next)
			}
		},
		"failures": func(t *testing.T, f *fixture.Fixture) {
			var failures []engine.AttemptFailure
			for _, c := range f.StartMany(t, 10*many) {
				failures = append(failures, engine.AttemptFailure{Lease: c.Lease, Failure: engine.Failure{
					Message: strings.Repeat("x", engine.MaxFailureMessage), Category: strings.Repeat("x", engine.MaxFailureMessage),
				}})
			}
			failed, err := f.FailExecutions(t.Context(), failures)
			for _, outcome := range failed {
				wantNone(t, nil, outcome.Err)
			}
			wantNone(t, nil, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, log := sized(t)
			work(t, f)
			log.mu.Lock() // the notifier sends beside the test
			defer log.mu.Unlock()
			if most := 17 << 20; log.largest > most {
				t.Errorf("a statement was sent %d bytes, want at most %d", log.largest, most)
			}
			if least := 1 << 20; log.largest < least {
				t.Errorf("the largest statement was sent %d bytes, want at least %d", log.largest, least)
			}
		})
	}
}

// An item larger than a statement's share is a statement of its own.
func TestItemAboveTheShareHasItsOwnStatement(t *testing.T) {
	f := fixture.New(t)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{MaxPayload: 32 << 20})
	specs := make([]engine.ExecutionSpec, 3)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Payload: []byte("small")}
	}
	specs[1].Payload = make([]byte, 20<<20)
	created, err := f.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range created {
		input, err := f.ExecutionInput(t.Context(), c.Value.ID)
		if c.Err != nil || err != nil || len(input.Payload) != len(specs[i].Payload) {
			t.Errorf("created %+v with a payload of %d bytes, %v", c, len(input.Payload), err)
		}
	}
	if len(f.ClaimN(t, 3)) != 3 {
		t.Error("not all are claimable")
	}
}
