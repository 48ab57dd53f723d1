package executions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// lettered is a fixture with a flow, on whose partition executions are called by letters.
type lettered struct {
	*fixture.Fixture
	flow id.FlowID
	ids  map[string]id.ExecutionID
	made int // specs so far: their creators distinguish them
}

func newLettered(t *testing.T, f *fixture.Fixture) *lettered {
	t.Helper()
	flow, err := f.CreateFlow(t.Context(), engine.FlowSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return &lettered{Fixture: f, flow: flow.ID, ids: make(map[string]id.ExecutionID)}
}

func (b *lettered) id(letter string) id.ExecutionID {
	if _, known := b.ids[letter]; !known {
		b.ids[letter] = id.NewMemberExecutionID(b.flow, id.Partitions{})
	}
	return b.ids[letter]
}

// name is the letter of an id.
func (b *lettered) name(x id.ExecutionID) string {
	for letter, known := range b.ids {
		if known == x {
			return letter
		}
	}
	return x.String()
}

// spec reads "X K": the execution X with the key K; "X" has none, and the key of "X K!" has no window. In "m:X K"
// the execution is a member of the flow.
func (b *lettered) spec(text string) engine.ExecutionSpec {
	text, member := strings.CutPrefix(text, "m:")
	letter, key, _ := strings.Cut(text, " ")
	key, unlimited := strings.CutSuffix(key, "!")
	b.made++
	spec := engine.ExecutionSpec{ID: b.id(letter), Lane: b.Lane, Kind: "test", Creator: fmt.Sprint("spec ", b.made)}
	if key != "" {
		spec.IdempotencyKey = b.Key(b.flow.String() + key)
	}
	if unlimited {
		spec.Policy = &policy.Execution{DedupWindow: policy.NoDedup}
	}
	if member {
		spec.Flow = &b.flow
	}
	return spec
}

func (b *lettered) specs(texts []string) []engine.ExecutionSpec {
	specs := make([]engine.ExecutionSpec, len(texts))
	for i, text := range texts {
		specs[i] = b.spec(text)
	}
	return specs
}

// outcome reads "new" or the letter of the execution that a creation is a duplicate of.
func (b *lettered) outcome(created fferr.Outcome[engine.Created]) string {
	c := created.Value
	switch {
	case created.Err != nil:
		return created.Err.Error()
	case c.Duplicate:
		return b.name(c.ID)
	case c.State != state.PublicWaiting:
		return string(c.State)
	}
	return "new"
}

// Of a batch each spec has the outcome that it would have alone, after those before it.
func TestBatchJudgesKeysAndIDsInOrder(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, batch []string
		want          []string
		after         map[string]string // whose the keys are
	}{
		{"the key of an id that exists goes to the next", []string{"X"}, []string{"X K", "Y K"}, []string{"X", "new"}, map[string]string{"K": "Y"}},
		{"the key of an id that exists is nobody's", []string{"X"}, []string{"X K"}, []string{"X"}, nil},
		{"three", []string{"X"}, []string{"X K", "Y K", "Z K"}, []string{"X", "new", "Y"}, map[string]string{"K": "Y"}},
		{"three, two of them exist", []string{"X", "Y"}, []string{"X K", "Y K", "Z K"}, []string{"X", "Y", "new"}, map[string]string{"K": "Z"}},
		{"all exist", []string{"X", "Y"}, []string{"X K", "Y K"}, []string{"X", "Y"}, nil},
		{"one id, two keys", nil, []string{"X K", "X L", "Y L"}, []string{"new", "X", "new"}, map[string]string{"K": "X", "L": "Y"}},
		{"a taken key leaves the id to the next", []string{"E K"}, []string{"X K", "X"}, []string{"E", "new"}, map[string]string{"K": "E"}},
		{
			"a taken key leaves the id to the next key",
			[]string{"E K"},
			[]string{"X K", "X L", "Y L"},
			[]string{"E", "new", "X"},
			map[string]string{"K": "E", "L": "X"},
		},
		{
			"one after the other",
			[]string{"X"},
			[]string{"X K", "Y K", "Y L", "Z L"},
			[]string{"X", "new", "Y", "new"},
			map[string]string{"K": "Y", "L": "Z"},
		},
		{"repeated", []string{"X K"}, []string{"X K", "Y K", "X K"}, []string{"X", "X", "X"}, map[string]string{"K": "X"}},
		{"a taken key of an id that exists", []string{"X K", "Y"}, []string{"Y K", "Y"}, []string{"X", "Y"}, map[string]string{"K": "X"}},
		{"a key without a window", nil, []string{"X K!", "Y K", "Z K!"}, []string{"new", "new", "new"}, map[string]string{"K": "Y"}},
		{"one id twice", nil, []string{"X", "X", "Y"}, []string{"new", "X", "new"}, nil},
	} {
		for form, change := range map[string]func(string) string{
			"outside flows": func(text string) string { return text },
			"members":       func(text string) string { return "m:" + text },
		} {
			for _, bound := range []bool{false, true} {
				t.Run(fmt.Sprint(c.name, ", ", form, ", in a transaction ", bound), func(t *testing.T) {
					b := newLettered(t, fixture.New(t))
					for _, text := range c.before {
						if created, err := b.CreateExecution(t.Context(), b.spec(change(text))); err != nil || created.Duplicate {
							t.Fatal(created, err)
						}
					}
					before := len(b.ids)
					texts := make([]string, len(c.batch))
					for i, text := range c.batch {
						texts[i] = change(text)
					}
					specs := b.specs(texts)
					outcomes, err := b.createAll(t, bound, specs)
					if err != nil {
						t.Fatal(err)
					}
					created := 0
					for i, outcome := range outcomes {
						if got := b.outcome(outcome); got != c.want[i] {
							t.Errorf("outcome of %s is %s, want %s", c.batch[i], got, c.want[i])
						}
						if c.want[i] != "new" {
							continue
						}
						created++
						if got := b.Stored(t, specs[i].ID).Raw(t, "creator_identity"); got != specs[i].Creator {
							t.Errorf("%s is that of %q, want %q", c.batch[i], got, specs[i].Creator)
						}
					}
					if got := b.CountOnLane(t); got != before+created {
						t.Errorf("%d executions, want %d", got, before+created)
					}
					if got := b.keys(t); !maps.Equal(got, c.after) {
						t.Errorf("keys %v, want %v", got, c.after)
					}
				})
			}
		}
	}
}

// createAll creates in a transaction of the caller's, which commits, or on the pool.
func (b *lettered) createAll(t *testing.T, bound bool, specs []engine.ExecutionSpec) ([]fferr.Outcome[engine.Created], error) {
	t.Helper()
	if !bound {
		return b.CreateExecutions(t.Context(), specs)
	}
	tx := b.BeginTx(t)
	outcomes, err := b.WithTx(tx).CreateExecutions(t.Context(), specs)
	fixture.Commit(t, tx)
	return outcomes, err
}

// keys returns the letters of keys with those of the executions that they name.
func (b *lettered) keys(t *testing.T) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	for _, row := range fixture.All[struct {
		IdempotencyKey string
		ExecutionID    id.ExecutionUUID
	}](t, b.Pool, "SELECT idempotency_key, execution_id FROM ffx_create_dedup WHERE idempotency_key LIKE '%' || $1 || '%'", b.Key(b.flow.String())) {
		_, name, _ := strings.Cut(row.IdempotencyKey, string(b.Key(b.flow.String())))
		keys[name] = b.name(id.MemberExecutionIDFor(b.flow, id.Partitions{}, row.ExecutionID))
	}
	return keys
}

// An id of the batch appears after the lookup, and before its insertion: the dependent decisions are made again.
func TestBatchBesideACreationOfTheSameID(t *testing.T) {
	b := newLettered(t, fixture.New(t))
	tx := b.BeginTx(t)
	if _, err := b.WithTx(tx).CreateExecution(t.Context(), b.spec("X")); err != nil {
		t.Fatal(err)
	}
	rival := b.Rival(t)
	specs := b.specs([]string{"X K", "Y K", "Y", "Z L"})
	type result struct {
		outcomes []fferr.Outcome[engine.Created]
		err      error
	}
	done := fixture.Async(t, func(ctx context.Context) result {
		outcomes, err := rival.CreateExecutions(ctx, specs)
		return result{outcomes, err}
	})
	rival.AwaitBlocked(t, b.Fixture)
	fixture.Commit(t, tx)
	got := done()
	if got.err != nil {
		t.Fatal(got.err)
	}
	for i, want := range []string{"X", "new", "Y", "new"} {
		if outcome := b.outcome(got.outcomes[i]); outcome != want {
			t.Errorf("outcome %d is %s, want %s", i, outcome, want)
		}
	}
	if stored := b.Stored(t, b.id("Y")).Raw(t, "creator_identity"); stored != specs[1].Creator {
		t.Errorf("Y is that of %q, want %q", stored, specs[1].Creator)
	}
	if got, want := b.keys(t), map[string]string{"K": "Y", "L": "Z"}; !maps.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
}

// oneByOne is the result of creations one after the other.
type oneByOne struct {
	specs map[id.ExecutionID]engine.ExecutionSpec
	keys  map[string]id.ExecutionID
}

// create returns the result of a creation, and the execution that it conflicts with, if any.
func (m *oneByOne) create(spec engine.ExecutionSpec) (created engine.Created, conflict id.ExecutionID) {
	scope := ""
	if spec.IdempotencyKey != "" && spec.Policy == nil {
		scope = fmt.Sprintf("%s, %v, %s, %s", spec.Namespace, spec.Flow, spec.Kind, spec.IdempotencyKey)
		if earlier, taken := m.keys[scope]; taken {
			if !bytes.Equal(m.specs[earlier].Payload, spec.Payload) {
				return engine.Created{ID: spec.ID}, earlier
			}
			return engine.Created{ID: earlier, Duplicate: true}, conflict
		}
	}
	if _, exists := m.specs[spec.ID]; exists {
		return engine.Created{ID: spec.ID, Duplicate: true}, conflict
	}
	m.specs[spec.ID] = spec
	if scope != "" {
		m.keys[scope] = spec.ID
	}
	return engine.Created{ID: spec.ID, State: state.PublicWaiting}, conflict
}

// The outcomes of any batch, after any history, are those of creations one by one.
func TestBatchEqualsSingleCreations(t *testing.T) {
	f := fixture.New(t)
	fixture.Check(t, func(r *rapid.T) {
		b := newLettered(t, f)
		m := oneByOne{specs: make(map[id.ExecutionID]engine.ExecutionSpec), keys: make(map[string]id.ExecutionID)}
		for batch := range 3 {
			specs := make([]engine.ExecutionSpec, rapid.IntRange(1, 7).Draw(r, "specs"))
			for i := range specs {
				specs[i] = b.spec(rapid.SampledFrom([]string{"", "", "m:"}).Draw(r, "member") +
					rapid.SampledFrom([]string{"A", "B", "C", "D", "E", "F"}).Draw(r, "id") +
					rapid.SampledFrom([]string{"", " K", " L", " M", " K!"}).Draw(r, "key"))
				specs[i].Namespace = rapid.SampledFrom([]id.Namespace{"", "", "tenant"}).Draw(r, "namespace")
				specs[i].Kind = rapid.SampledFrom([]string{"test", "test", "other"}).Draw(r, "kind")
				specs[i].Payload = rapid.SampledFrom([][]byte{nil, nil, []byte("payload")}).Draw(r, "payload")
			}
			outcomes, err := b.createAll(t, rapid.Bool().Draw(r, "bound"), specs)
			if err != nil {
				r.Fatal(err)
			}
			for i, spec := range specs {
				want, conflict := m.create(spec)
				if outcomes[i].Value != want {
					r.Fatalf("batch %d: outcome %d is %s (%+v), want %s (%+v)", batch, i, b.outcome(outcomes[i]), outcomes[i], b.outcome(fferr.Outcome[engine.Created]{Value: want}), want)
				}
				refusal, refused := errors.AsType[*fferr.KeyConflictError](outcomes[i].Err)
				if refused != !conflict.IsZero() || refused && refusal.Existing != conflict || !refused && outcomes[i].Err != nil {
					r.Fatalf("batch %d: outcome %d is %v, want a conflict with %v", batch, i, outcomes[i].Err, conflict)
				}
			}
		}
		for x, spec := range m.specs {
			if stored := b.Stored(t, x).Raw(t, "creator_identity"); stored != spec.Creator {
				r.Fatalf("%s is that of %q, want %q", b.name(x), stored, spec.Creator)
			}
		}
		var named []string
		for _, x := range m.keys {
			named = append(named, x.UUID().String())
		}
		slices.Sort(named)
		stored := fixture.Texts(t, f.Pool, "SELECT execution_id::text FROM ffx_create_dedup WHERE idempotency_key LIKE '%' || $1 || '%' ORDER BY 1",
			f.Key(b.flow.String()))
		if !slices.Equal(stored, named) {
			r.Fatalf("keys name %v, want %v", stored, named)
		}
	})
}

// Two nodes of one flow with one key, and a node with the key of an earlier execution: nothing is written.
func TestCreateFlowRefusesRepeatedKeys(t *testing.T) {
	f := fixture.New(t)
	b := newLettered(t, f)
	node := func(key string, idempotency id.IdempotencyKey) engine.Node {
		return engine.Node{Key: key, Spec: engine.ExecutionSpec{Lane: f.Lane, Kind: "test", IdempotencyKey: idempotency}}
	}
	flow := id.NewFlowID()
	_, err := f.CreateFlow(t.Context(), engine.FlowSpec{ID: flow, Nodes: []engine.Node{node("a", f.Key("k")), node("b", f.Key("k"))}})
	if !errors.Is(err, fferr.ErrIdempotencyKeyTaken) {
		t.Errorf("error %v, want %v", err, fferr.ErrIdempotencyKeyTaken)
	}
	if got := b.CountOnLane(t); got != 0 {
		t.Errorf("%d executions, want none", got)
	}
	if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{ID: flow, Nodes: []engine.Node{node("a", f.Key("k")), node("b", f.Key("l"))}}); err != nil {
		t.Fatal(err)
	}
	spec := node("c", f.Key("k")).Spec
	spec.Flow = &flow
	created, err := f.CreateExecution(t.Context(), spec)
	if want := (engine.Created{ID: f.NodeID(flow, "a"), Duplicate: true}); err != nil || created != want {
		t.Errorf("created %+v, %v; want %+v", created, err, want)
	}
}
