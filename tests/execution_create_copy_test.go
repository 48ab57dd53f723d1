package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// manyPlain is more than enough executions for COPY, none like the other.
func manyPlain(f *fixture) []engine.ExecutionSpec {
	specs := make([]engine.ExecutionSpec, 150)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{
			ID: id.NewExecutionID(f.lane, id.Partitions{}), Lane: f.lane, Kind: strings.Repeat("k", 1+i%4), Priority: i%5 - 1,
			Payload: [][]byte{nil, {}, []byte("in\x00\xff"), []byte(`{"a":1}`)}[i%4],
			Creator: []string{"", `"quoted", \and odd`}[i%2],
		}
		if i%3 == 0 {
			specs[i].Tags = map[string]string{"cairn.instance_id": fmt.Sprint(i), "any key": ""}
		}
		if i%3 == 1 {
			specs[i].CreatedAt = start.Add(-time.Duration(i) * time.Minute)
		}
		if i%7 == 0 {
			specs[i].Policy = &policy.Execution{
				Capabilities: id.NewCapabilities("gpu", "arm"),
				Retry:        &policy.Retry{Backoff: policy.Fixed(time.Second)},
			}
		}
		if i%11 == 0 {
			specs[i].Namespace = "tenant"
		}
	}
	return specs
}

// Many executions become the same rows as each by itself.
func TestCreateExecutions_writes_the_same_rows_by_the_hundred(t *testing.T) {
	f := cloneFixture(t)
	specs := manyPlain(f)
	var single []string
	for i := range specs {
		if _, err := f.CreateExecution(t.Context(), specs[i]); err != nil {
			t.Fatal(err)
		}
		single = append(single, f.dump(t, specs[i].ID))
	}
	queued := texts(t, f.pool, "SELECT r::text FROM ffx_ready AS r ORDER BY 1")
	f.clear(t)
	created, err := f.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range created {
		if x.Err != nil || x.Value.Duplicate || x.Value.ID != specs[i].ID || x.Value.State != "waiting" {
			t.Errorf("created %+v", x)
		}
		if many := f.dump(t, x.Value.ID); many != single[i] {
			t.Errorf("by the hundred\n%s\nby itself\n%s", many, single[i])
		}
	}
	if got := texts(t, f.pool, "SELECT r::text FROM ffx_ready AS r ORDER BY 1"); !slices.Equal(got, queued) {
		t.Errorf("queued %q, want %q", got, queued)
	}
}

// What is not plain, or exists, takes those beside it along to the other statement; nothing else changes.
func TestCreateExecutions_by_the_hundred_beside(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(f *fixture, t *testing.T, specs []engine.ExecutionSpec)
		claimable  int
		duplicates []int
	}{
		"nothing": {func(*fixture, *testing.T, []engine.ExecutionSpec) {}, 150, nil},
		"one that exists": {func(f *fixture, t *testing.T, specs []engine.ExecutionSpec) {
			f.create(t, func(spec *engine.ExecutionSpec) { spec.ID = specs[70].ID })
		}, 150, []int{70}},
		"one twice": {func(_ *fixture, _ *testing.T, specs []engine.ExecutionSpec) { specs[90].ID = specs[20].ID }, 149, []int{90}},
		"one with a delay": {func(_ *fixture, _ *testing.T, specs []engine.ExecutionSpec) {
			specs[5].DelayUntil = start.Add(time.Hour)
		}, 149, nil},
		"one with a deadline": {func(_ *fixture, _ *testing.T, specs []engine.ExecutionSpec) {
			specs[5].Deadline = start.Add(time.Hour)
		}, 150, nil},
		"entries that no trigger saw": {func(f *fixture, t *testing.T, specs []engine.ExecutionSpec) {
			if _, err := f.CreateExecutions(t.Context(), specs[:3]); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				f.unseen(t, specs[i].ID, "DELETE FROM ff_exec_core")
			}
		}, 150, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := cloneFixture(t)
			specs := manyPlain(f)
			for i := range specs {
				if specs[i].Policy != nil {
					specs[i].Policy.Capabilities = nil
				}
			}
			c.change(f, t, specs)
			created, err := f.CreateExecutions(t.Context(), specs)
			if err != nil {
				t.Fatal(err)
			}
			var duplicates []int
			for i, x := range created {
				if x.Err != nil || x.Value.ID != specs[i].ID {
					t.Errorf("created %+v", x)
				}
				if x.Value.Duplicate {
					duplicates = append(duplicates, i)
				}
			}
			if !slices.Equal(duplicates, c.duplicates) {
				t.Errorf("duplicates %v, want %v", duplicates, c.duplicates)
			}
			f.wantQueue(t, t, name)
			if got := len(f.claimN(t, 200)); got != c.claimable {
				t.Errorf("claimed %d, want %d", got, c.claimable)
			}
		})
	}
}

// In the caller's transaction many are as much a part of it as one, and a duplicate among them leaves it usable.
func TestCreateExecutions_by_the_hundred_in_a_transaction(t *testing.T) {
	f := cloneFixture(t)
	specs := manyPlain(f)
	f.create(t)
	for _, commits := range []bool{false, true} {
		tx := f.begin(t)
		for round := range 2 {
			created, err := f.WithTx(tx).CreateExecutions(t.Context(), specs)
			if err != nil || created[0].Value.Duplicate != (round == 1) {
				t.Fatalf("created %+v, %v", created[0], err)
			}
		}
		f.end(t, tx, commits)
		want := 1
		if commits {
			want += len(specs)
		}
		if got := len(texts(t, f.pool, "SELECT 'row' FROM ff_exec_core")); got != want {
			t.Errorf("%d executions, want %d", got, want)
		}
		f.wantQueue(t, t, "ended")
	}
}

// As behind a pooler that knows no prepared statements.
func TestCreateExecutions_by_the_hundred_without_prepared_statements(t *testing.T) {
	f := cloneFixture(t)
	pool := openPool(t, f.url, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	e := fixtureOn(t, pool, f.url)
	e.create(t)
	if _, err := e.CreateExecutions(t.Context(), manyPlain(e)); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, f.pool, "SELECT count(*)::text FROM ff_exec_core"); got[0] != "151" {
		t.Errorf("%s executions, want 151", got[0])
	}
	f.wantQueue(t, t, "created")
}
