package executions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// orders makes the keys of one test: other tests use the same database.
func orders(f *fixture.Fixture) func(number string) id.BusinessKey {
	return func(number string) id.BusinessKey {
		return id.BusinessKey{Name: "order", Value: f.Name + number}
	}
}

// storedKeys lists the rows of keys that begin with the test's name, as "number letter-of-holder".
func (b *lettered) storedKeys(t *testing.T) []string {
	t.Helper()
	type row struct {
		Value  string
		Holder string
	}
	var keys []string
	for _, k := range fixture.All[row](t, b.Pool, `
		SELECT value, '{fp:' || holder_partition_key || '}:' || execution_id AS holder
		FROM ffx_business_key WHERE starts_with(value, $1) ORDER BY value`, b.Name) {
		x, err := id.ParseExecutionID(k.Holder)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, strings.TrimPrefix(k.Value, b.Name)+" "+b.name(x))
	}
	return keys
}

// wantConflict wants an error that names the holder of a key.
func wantConflict(t *testing.T, err error, key id.BusinessKey, holder id.ExecutionID) {
	t.Helper()
	conflict, ok := errors.AsType[*fferr.KeyConflictError](err)
	if !errors.Is(err, fferr.ErrKeyConflict) || !ok || conflict.Existing != holder || conflict.BusinessKey != key || conflict.ExistingFlow != nil || conflict.Key != "" {
		t.Errorf("got %v (%+v), want a conflict with %s", err, conflict, holder)
	}
}

// A business key finds its execution, and no second one gets it, whatever its lane and kind. A repetition by id or
// idempotency key is the first creation, as without a business key. An ended execution keeps its key.
func TestBusinessKey(t *testing.T) {
	f := fixture.New(t)
	key := orders(f)("1")
	kind := engine.Kind[struct{}, struct{}]{Name: "invoice", Lane: f.Lane}
	if _, err := f.FindExecutionByKey(t.Context(), key.Name, key.Value); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("found before the creation: %v", err)
	}
	created, err := kind.Create(t.Context(), f.Engine, struct{}{}, engine.Key(key.Name, key.Value), engine.WithKey(f.Key("1")))
	if err != nil || created.Duplicate {
		t.Fatal(created, err)
	}
	x := created.ID
	wantFound := func() {
		t.Helper()
		if found, err := f.FindExecutionByKey(t.Context(), key.Name, key.Value); found != x || err != nil {
			t.Errorf("found %s, %v; want %s", found, err, x)
		}
	}
	wantFound()
	if _, err := f.FindFlowByKey(t.Context(), key.Name, key.Value); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("a flow was found: %v", err)
	}
	if s, err := f.DescribeExecution(t.Context(), x); err != nil || s.BusinessKey != key {
		t.Errorf("described %v, %v", s.BusinessKey, err)
	}
	for name, spec := range map[string]engine.ExecutionSpec{
		"id":                        {ID: x, BusinessKey: key},
		"id without a business key": {ID: x},
		"idempotency key":           {IdempotencyKey: f.Key("1"), BusinessKey: key},
		"other business key":        {IdempotencyKey: f.Key("1"), BusinessKey: orders(f)("2")},
		"id, other business key":    {ID: x, BusinessKey: orders(f)("2")},
	} {
		spec.Kind, spec.Lane = "invoice", f.Lane
		if again, err := f.CreateExecution(t.Context(), spec); err != nil || again.ID != x || !again.Duplicate {
			t.Errorf("%s: created %+v, %v", name, again, err)
		}
	}
	if _, err := f.FindExecutionByKey(t.Context(), key.Name, orders(f)("2").Value); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("a repetition took a key: %v", err)
	}
	other := engine.ExecutionSpec{Kind: "other", Lane: f.Lane + "-other", Namespace: "other", IdempotencyKey: f.Key("2"), BusinessKey: key}
	_, err = f.CreateExecution(t.Context(), other)
	wantConflict(t, err, key, x)
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
		t.Fatal(err)
	}
	wantFound()
	_, err = f.CreateExecution(t.Context(), other)
	wantConflict(t, err, key, x)
	other.BusinessKey = orders(f)("3")
	if _, err := f.CreateExecution(t.Context(), other); err != nil { // its idempotency key was not taken by the refusals
		t.Error(err)
	}
}

// Each part of a key is checked, with the field in the error.
func TestBusinessKeyIsChecked(t *testing.T) {
	f := fixture.New(t)
	for _, c := range []struct {
		key   id.BusinessKey
		field string
	}{
		{id.BusinessKey{Value: "1"}, "business key name"},
		{id.BusinessKey{Name: "order"}, "business key value"},
		{id.BusinessKey{Name: strings.Repeat("n", id.MaxBusinessKeyName+1), Value: "1"}, "business key name"},
		{id.BusinessKey{Name: "order", Value: strings.Repeat("v", id.MaxBusinessKeyValue+1)}, "business key value"},
		{id.BusinessKey{Name: "or\x00der", Value: "1"}, "business key name"},
		{id.BusinessKey{Name: "order", Value: "\xff"}, "business key value"},
	} {
		_, byCreation := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, BusinessKey: c.key})
		_, byFlow := f.CreateFlow(t.Context(), engine.FlowSpec{BusinessKey: c.key})
		_, bySearch := f.FindExecutionByKey(t.Context(), c.key.Name, c.key.Value)
		_, bySearchOfFlow := f.FindFlowByKey(t.Context(), c.key.Name, c.key.Value)
		_, bySignal := f.Engine.Signal(t.Context(), engine.SignalSpec{BusinessKey: c.key, Name: "ready"})
		for i, err := range []error{byCreation, byFlow, bySearch, bySearchOfFlow, bySignal} {
			input, ok := errors.AsType[*fferr.InputError](err)
			if !ok || input.Field != c.field {
				t.Errorf("%q, call %d: %v, want an error of %s", c.key, i, err, c.field)
			}
		}
	}
	_, err := engine.Kind[struct{}, struct{}]{Name: "test", Lane: f.Lane}.Create(t.Context(), f.Engine, struct{}{}, engine.Key("", ""))
	if !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("an empty key: %v", err)
	}
	full := id.BusinessKey{Name: strings.Repeat("n", id.MaxBusinessKeyName), Value: f.Name + strings.Repeat("\u00e4", (id.MaxBusinessKeyValue-len(f.Name))/2)}
	x := f.Create(t, func(s *engine.ExecutionSpec) { s.BusinessKey = full })
	if found, err := f.FindExecutionByKey(t.Context(), full.Name, full.Value); found != x || err != nil {
		t.Errorf("found %s, %v", found, err)
	}
}

// Go and SQL compute the same partition for a key.
func TestBusinessKeyPartition(t *testing.T) {
	f := fixture.New(t)
	for _, value := range []string{"", "1", " ", "\u00e4\u2028", `"\`} {
		f.Create(t, func(s *engine.ExecutionSpec) { s.BusinessKey = orders(f)(value) })
	}
	wrong := fixture.Texts(t, f.Pool, `
		SELECT value FROM ffx_business_key
		WHERE starts_with(value, $1) AND partition_key <> ffx_key_partition(name, value)`, f.Name)
	if len(wrong) > 0 {
		t.Errorf("in other partitions: %q", wrong)
	}
}

// A batch has the outcomes of single creations in input order: a key goes to the first execution that is created with
// it.
func TestBatchJudgesBusinessKeysInOrder(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  []string
		batch   []string // "X K 1": the execution X with the idempotency key K, or "-", and the business key 1
		want    []string
		holders []string
	}{
		{"the first wins", nil, []string{"A - 1", "B - 1", "C - 2"}, []string{"new", "taken by A", "new"}, []string{"1 A", "2 C"}},
		{"an id that exists leaves its key to the next", []string{"A - -"}, []string{"A - 1", "B - 1"}, []string{"A", "new"}, []string{"1 B"}},
		{"an id that exists leaves its key", []string{"A - -"}, []string{"A - 1"}, []string{"A"}, nil},
		{"an id that exists is a duplicate if its key is taken", []string{"A - -", "B - 1"}, []string{"A - 1"}, []string{"A"}, []string{"1 B"}},
		{"an idempotency key leaves the business key", []string{"A K -"}, []string{"B K 1", "C - 1"}, []string{"A", "new"}, []string{"1 C"}},
		{"twice by idempotency key", nil, []string{"A K 1", "B K 1", "C K 2", "D - 2"}, []string{"new", "A", "A", "new"}, []string{"1 A", "2 D"}},
		{"a refused one leaves its idempotency key", []string{"A - 1"}, []string{"B K 1", "C K 2"}, []string{"taken by A", "new"}, []string{"1 A", "2 C"}},
		{"the same again", []string{"A - 1"}, []string{"A - 1", "A - 2", "B - 2"}, []string{"A", "A", "new"}, []string{"1 A", "2 B"}},
		{"a refused one leaves its id", []string{"A - 1"}, []string{"B - 1", "B - 2"}, []string{"taken by A", "new"}, []string{"1 A", "2 B"}},
	} {
		for _, bound := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, bound %t", c.name, bound), func(t *testing.T) {
				b := newLettered(t, fixture.New(t))
				specs := func(texts []string) (specs []engine.ExecutionSpec) {
					for _, text := range texts {
						parts := strings.Fields(text)
						spec := b.spec(strings.TrimSuffix(parts[0]+" "+parts[1], " -"))
						if parts[2] != "-" {
							spec.BusinessKey = orders(b.Fixture)(parts[2])
						}
						specs = append(specs, spec)
					}
					return specs
				}
				for _, spec := range specs(c.before) {
					if created, err := b.CreateExecution(t.Context(), spec); err != nil || created.Duplicate {
						t.Fatal(created, err)
					}
				}
				created, err := b.createAll(t, bound, specs(c.batch))
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, x := range created {
					if conflict, ok := errors.AsType[*fferr.KeyConflictError](x.Err); ok {
						got = append(got, "taken by "+b.name(conflict.Existing))
						continue
					}
					got = append(got, b.outcome(x))
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if got := b.storedKeys(t); !slices.Equal(got, c.holders) {
					t.Errorf("keys %q, want %q", got, c.holders)
				}
			})
		}
	}
}
