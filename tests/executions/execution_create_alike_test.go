package executions

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Few have much in common.
func unlike(i int, spec *engine.ExecutionSpec) {
	fixture.WithTags(i, spec)
	spec.Kind = strings.Repeat("k", 1+i%4)
	spec.CreatedAt = fixture.Start.Add(-time.Duration(i) * time.Minute)
	if i%7 == 0 {
		spec.Policy = &policy.Execution{
			Capabilities: id.NewCapabilities("gpu", "arm"),
			Retry:        &policy.Retry{Backoff: policy.Fixed(time.Second)},
		}
	}
	if i%11 == 0 {
		spec.Namespace = "tenant"
	}
}

// shapes are batches of creations, and the statements that they take.
var shapes = map[string]struct {
	change func(i int, spec *engine.ExecutionSpec)
	sent   []string
}{
	"alike":     {func(int, *engine.ExecutionSpec) {}, []string{"select", "InsertAlike"}},
	"with tags": {fixture.WithTags, []string{"select", "InsertAlike"}},
	"in groups": {func(i int, spec *engine.ExecutionSpec) {
		spec.Kind = strings.Repeat("k", 1+i%3)
		if i%3 == 1 {
			fixture.WithTags(i, spec)
			spec.Policy = &policy.Execution{Capabilities: id.NewCapabilities("gpu", "arm")}
		}
		if i%3 == 2 {
			spec.CreatedAt, spec.Namespace = fixture.Start.Add(-time.Hour), "tenant"
		}
	}, []string{"select", "InsertAlike", "InsertAlike", "InsertAlike"}},
	"large": {func(i int, spec *engine.ExecutionSpec) {
		spec.Payload = bytes.Repeat([]byte{byte(i)}, 20<<10)
	}, []string{"select", "InsertAlike", "InsertAlike"}},
	"unlike": {unlike, []string{"select", "InsertExecutions"}},
}

// written returns all that creations write, and how many bytes of it.
func written(t *testing.T, f *fixture.Fixture) []string {
	t.Helper()
	return fixture.Texts(t, f.Pool, `
		SELECT e.execution_id::text || to_jsonb(e)::text || pg_column_size(e.raw_fields) || ' ' || pg_column_size(e.required_capabilities)
			|| ' ' || coalesce(pg_column_size(e.policy), 0) || ' ' || coalesce(pg_column_size(e.payload), -1)
		FROM ff_exec_core AS e
		UNION ALL
		SELECT r.execution_id::text || r::text || pg_column_size(r) FROM ffx_ready AS r
		ORDER BY 1`)
}

// However executions are created, they become the same rows: each by itself, together, or beside others that take them
// along to the other statement.
func TestCreateExecutionsWritesTheSameRowsEitherWay(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			log := new(fixture.StatementLog)
			e := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
			specs := fixture.ManyLike(f, 150, shape.change)
			f.Create(t)
			if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "lane"}); err != nil {
				t.Fatal(err)
			}
			var all [][]string
			for way, c := range map[string]struct {
				create func() ([]fferr.Outcome[engine.Created], error)
				sent   []string
			}{
				"together": {func() ([]fferr.Outcome[engine.Created], error) { return e.CreateExecutions(t.Context(), specs) }, shape.sent},
				"one by one": {func() (created []fferr.Outcome[engine.Created], err error) {
					for i := range specs {
						one, err := e.CreateExecution(t.Context(), specs[i])
						created = append(created, fferr.Outcome[engine.Created]{Value: one, Err: err})
					}
					return created, nil
				}, slices.Repeat([]string{"select", "InsertAlike"}, len(specs))},
				"beside others": {func() ([]fferr.Outcome[engine.Created], error) {
					delayed := engine.ExecutionSpec{Lane: f.Lane, Kind: "test", DelayUntil: fixture.Start.Add(time.Hour)}
					created, err := e.CreateExecutions(t.Context(), slices.Concat(specs, []engine.ExecutionSpec{delayed}))
					f.Exec(t, "DELETE FROM ff_exec_core WHERE ffx_delay_until_ms IS NOT NULL")
					return created[:len(specs)], err
				}, []string{"select", "InsertExecutions"}},
			} {
				f.Clear(t)
				var created []fferr.Outcome[engine.Created]
				sent := fixture.Names(log.During(func() {
					var err error
					if created, err = c.create(); err != nil {
						t.Fatal(err)
					}
				}))
				if !slices.Equal(sent, c.sent) {
					t.Errorf("%s takes %q, want %q", way, sent, c.sent)
				}
				for i, x := range created {
					if x.Err != nil || x.Value != (engine.Created{ID: specs[i].ID, State: "waiting"}) {
						t.Errorf("%s: created %+v", way, x)
					}
				}
				f.WantQueue(t, t, way)
				if all = append(all, written(t, f)); len(all[0]) != 2*len(specs) {
					t.Fatalf("%s: %d rows, want an execution and a queue entry each", way, len(all[0]))
				}
			}
			for _, other := range all[1:] {
				for i := range all[0] {
					if other[i] != all[0][i] {
						t.Errorf("stored\n%s\nor\n%s", all[0][i], other[i])
					}
				}
			}
		})
	}
}

// A spec reuses the values computed for an equal one before it. All differences are its own.
func TestCreateExecutionsMixesUpNoSpecs(t *testing.T) {
	f := fixture.NewCloned(t)
	flow, err := f.CreateFlow(t.Context(), engine.FlowSpec{})
	if err != nil {
		t.Fatal(err)
	}
	base := engine.ExecutionSpec{
		Lane: f.Lane, Kind: "test", Namespace: "tenant", Payload: []byte("in"), PayloadEncoding: "json", Priority: 3, Creator: "somebody",
		Tags: map[string]string{"app.a": "1"}, Policy: &policy.Execution{AttemptTimeout: time.Minute}, CreatedAt: fixture.Start.Add(-time.Hour),
	}
	name := "limit of " + f.Name
	if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: name, Namespace: "tenant", Units: 3}); err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(spec *engine.ExecutionSpec){
		"ID": func(*engine.ExecutionSpec) {},
		"Flow": func(spec *engine.ExecutionSpec) {
			spec.Flow, spec.ID = &flow.ID, id.NewMemberExecutionID(flow.ID, id.Partitions{})
		},
		"Namespace":       func(spec *engine.ExecutionSpec) { spec.Namespace = "other" },
		"Lane":            func(spec *engine.ExecutionSpec) { spec.Lane = "other" },
		"Kind":            func(spec *engine.ExecutionSpec) { spec.Kind = "other" },
		"Payload":         func(spec *engine.ExecutionSpec) { spec.Payload = nil },
		"PayloadEncoding": func(spec *engine.ExecutionSpec) { spec.PayloadEncoding = "other" },
		"Priority":        func(spec *engine.ExecutionSpec) { spec.Priority = 4 },
		"Creator":         func(spec *engine.ExecutionSpec) { spec.Creator = "other" },
		"IdempotencyKey":  func(spec *engine.ExecutionSpec) { spec.IdempotencyKey = f.Key("key") },
		"BusinessKey":     func(spec *engine.ExecutionSpec) { spec.BusinessKey = orders(f)("1") },
		"Unique":          func(spec *engine.ExecutionSpec) { spec.Unique = &engine.Unique{ByLane: true} },
		// Refused, since the second one of a sequence would differ from the first.
		"Sequence":    func(spec *engine.ExecutionSpec) { spec.Sequence = engine.Sequence{OnFailure: engine.SequenceSkips} },
		"Tags":        func(spec *engine.ExecutionSpec) { spec.Tags = map[string]string{"app.a": "2"} },
		"Policy":      func(spec *engine.ExecutionSpec) { spec.Policy = &policy.Execution{AttemptTimeout: time.Hour} },
		"DelayUntil":  func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Hour) },
		"Deadline":    func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Hour) },
		"CreatedAt":   func(spec *engine.ExecutionSpec) { spec.CreatedAt = fixture.Start.Add(-time.Minute) },
		"Budgets":     func(spec *engine.ExecutionSpec) { spec.Budgets = []id.BudgetID{id.NewBudgetID()} },
		"Limits":      func(spec *engine.ExecutionSpec) { spec.Limits = []engine.LimitKey{{Name: name, Key: "a"}} },
		"Fair":        func(spec *engine.ExecutionSpec) { spec.Fair = engine.FairShare{Tenant: "a"} },
		"QuotaPolicy": func(spec *engine.ExecutionSpec) { spec.QuotaPolicy = new(id.NewQuotaPolicyID()) },

		"several tags":          func(spec *engine.ExecutionSpec) { spec.Tags = map[string]string{"a": "", "b": "\u00e9\t", "\"": `\`} },
		"no tags":               func(spec *engine.ExecutionSpec) { spec.Tags = nil },
		"a tag that is refused": func(spec *engine.ExecutionSpec) { spec.Tags = map[string]string{"app.a": "\x00"} },
		"a key that is refused": func(spec *engine.ExecutionSpec) { spec.Tags = map[string]string{"": "1"} },
		"a long tag that is refused": func(spec *engine.ExecutionSpec) {
			spec.Tags = map[string]string{"cairn.instance_id": strings.Repeat("i", 1025)}
		},
		"a payload that is refused": func(spec *engine.ExecutionSpec) { spec.Payload = make([]byte, 1<<20+1) },
		"an id that is refused": func(spec *engine.ExecutionSpec) {
			spec.Flow, spec.ID = &flow.ID, id.NewExecutionID("elsewhere", id.Partitions{})
		},
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[engine.ExecutionSpec]()) {
		if field.IsExported() && changes[field.Name] == nil {
			t.Errorf("no change of %s", field.Name)
		}
	}
	for name, change := range changes {
		specs := make([]engine.ExecutionSpec, 5)
		for i := range specs {
			specs[i] = base
			specs[i].ID = id.NewExecutionID(f.Lane, id.Partitions{})
			if i%2 == 1 {
				change(&specs[i])
			}
		}
		f.Exec(t, "TRUNCATE ff_exec_core, ffx_ready, ffx_waiting, ffx_fair_place, ffx_create_dedup, ffx_business_key")
		created, err := f.CreateExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		together := written(t, f)
		f.Exec(t, "TRUNCATE ff_exec_core, ffx_ready, ffx_waiting, ffx_fair_place, ffx_create_dedup, ffx_business_key")
		for i := range specs {
			one, err := f.CreateExecution(t.Context(), specs[i])
			if refused := strings.Contains(name, "refused"); refused && i%2 == 1 && err == nil {
				t.Errorf("%s: created", name)
			}
			if one != created[i].Value || fmt.Sprint(err) != fmt.Sprint(created[i].Err) {
				t.Errorf("%s: created %+v, %v; together %+v", name, one, err, created[i])
			}
		}
		if alone := written(t, f); !slices.Equal(alone, together) {
			t.Errorf("%s:\n%s\ntogether\n%s", name, strings.Join(alone, "\n"), strings.Join(together, "\n"))
		}
	}
}

// After such a creation, or after one that found an existing row, the triggers queue the later writes of a caller's
// transaction as ever.
func TestCreateExecutionsRestoresTheQueueTrigger(t *testing.T) {
	f := fixture.NewCloned(t)
	existing := f.Create(t)
	for name, create := range map[string]func(e *engine.Engine) error{
		"one": func(e *engine.Engine) error {
			_, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test"})
			return err
		},
		"a duplicate": func(e *engine.Engine) error {
			created, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{ID: existing, Lane: f.Lane, Kind: "test"})
			if !created.Duplicate {
				t.Errorf("created %+v, want a duplicate", created)
			}
			return err
		},
		"many": func(e *engine.Engine) error {
			_, err := e.CreateExecutions(t.Context(), fixture.ManyLike(f, 100, fixture.WithTags))
			return err
		},
	} {
		tx := f.BeginTx(t)
		if err := create(f.WithTx(tx)); err != nil {
			t.Fatal(err)
		}
		if got := ownEntries(t, tx); got != "" {
			t.Errorf("after %s the setting is %q", name, got)
		}
		fixture.ExecIn(t, tx, insertForeign)
		fixture.Commit(t, tx)
		f.WantQueue(t, t, name)
	}
}

// Specs that are not plain, or exist, move those beside them to the other statement; nothing else changes.
func TestCreateExecutionsBesideUnusualSpecs(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(f *fixture.Fixture, t *testing.T, specs []engine.ExecutionSpec)
		claimable  int
		duplicates []int
	}{
		"nothing": {func(*fixture.Fixture, *testing.T, []engine.ExecutionSpec) {}, 150, nil},
		"one that exists": {func(f *fixture.Fixture, t *testing.T, specs []engine.ExecutionSpec) {
			f.Create(t, func(spec *engine.ExecutionSpec) { spec.ID = specs[70].ID })
		}, 150, []int{70}},
		"one twice": {func(_ *fixture.Fixture, _ *testing.T, specs []engine.ExecutionSpec) { specs[90].ID = specs[20].ID }, 149, []int{90}},
		"one with a delay": {func(_ *fixture.Fixture, _ *testing.T, specs []engine.ExecutionSpec) {
			specs[5].DelayUntil = fixture.Start.Add(time.Hour)
		}, 149, nil},
		"one with a deadline": {func(_ *fixture.Fixture, _ *testing.T, specs []engine.ExecutionSpec) {
			specs[5].Deadline = fixture.Start.Add(time.Hour)
		}, 150, nil},
		"entries that no trigger saw": {func(f *fixture.Fixture, t *testing.T, specs []engine.ExecutionSpec) {
			if _, err := f.CreateExecutions(t.Context(), specs[:3]); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				f.Unseen(t, specs[i].ID, "DELETE FROM ff_exec_core")
			}
		}, 150, nil},
	} {
		for _, shape := range []string{"alike", "in groups"} {
			t.Run(name+", "+shape, func(t *testing.T) {
				f := fixture.NewCloned(t)
				specs := fixture.ManyLike(f, 150, shapes[shape].change)
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
				f.WantQueue(t, t, name)
				if got := len(f.ClaimN(t, 200)); got != c.claimable {
					t.Errorf("claimed %d, want %d", got, c.claimable)
				}
			})
		}
	}
}

// In the caller's transaction many are as much a part of it as one, and a duplicate among them leaves it usable.
func TestCreateHundredsInATransaction(t *testing.T) {
	for _, shape := range []string{"alike", "in groups"} {
		t.Run(shape, func(t *testing.T) { createManyInATransaction(t, shapes[shape].change) })
	}
}

func createManyInATransaction(t *testing.T, change func(i int, spec *engine.ExecutionSpec)) {
	f := fixture.NewCloned(t)
	specs := fixture.ManyLike(f, 150, change)
	f.Create(t)
	for _, commits := range []bool{false, true} {
		tx := f.BeginTx(t)
		for round := range 2 {
			created, err := f.WithTx(tx).CreateExecutions(t.Context(), specs)
			if err != nil || created[0].Value.Duplicate != (round == 1) {
				t.Fatalf("created %+v, %v", created[0], err)
			}
		}
		f.End(t, tx, commits)
		want := 1
		if commits {
			want += len(specs)
		}
		if got := len(fixture.Texts(t, f.Pool, "SELECT 'row' FROM ff_exec_core")); got != want {
			t.Errorf("%d executions, want %d", got, want)
		}
		f.WantQueue(t, t, "ended")
	}
}

// As behind a pooler that knows no prepared statements.
func TestCreateHundredsWithoutPreparedStatements(t *testing.T) {
	f := fixture.NewCloned(t)
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	e := fixture.On(t, pool, f.Url)
	e.Create(t)
	if _, err := e.CreateExecutions(t.Context(), fixture.ManyLike(e, 150, fixture.WithTags)); err != nil {
		t.Fatal(err)
	}
	if got := fixture.Texts(t, f.Pool, "SELECT count(*)::text FROM ff_exec_core"); got[0] != "151" {
		t.Errorf("%s executions, want 151", got[0])
	}
	f.WantQueue(t, t, "created")
}

// ownEntries is how a statement says that it writes its queue entries itself, as seen after it.
func ownEntries(t *testing.T, on fixture.Querier) string {
	t.Helper()
	return fixture.Texts(t, on, "SELECT coalesce(current_setting('ffx.own_entries', true), '')")[0]
}

// insertForeign inserts an execution as another program does.
const insertForeign = `
	INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state, created_at_ms)
	VALUES (1, gen_random_uuid(), 'default', 'runnable', 'unowned', 'eligible_now', 'waiting', 'pending_first_attempt', 1)`

// A rollback to a savepoint also undoes that a creation wrote its entries itself, and later executions are queued.
func TestCreateExecutionsThenRollBackToASavepoint(t *testing.T) {
	f := fixture.NewCloned(t)
	existing := f.Create(t)
	for name, create := range map[string]func(e *engine.Engine) error{
		"one": func(e *engine.Engine) error {
			_, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test"})
			return err
		},
		"many": func(e *engine.Engine) error {
			_, err := e.CreateExecutions(t.Context(), fixture.ManyLike(f, 100, fixture.WithTags))
			return err
		},
		"a duplicate": func(e *engine.Engine) error {
			_, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{ID: existing, Lane: f.Lane, Kind: "test"})
			return err
		},
	} {
		for _, commits := range []bool{false, true} {
			tx := f.BeginTx(t)
			inner, err := tx.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := create(f.WithTx(inner)); err != nil {
				t.Fatal(err)
			}
			if err := inner.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := ownEntries(t, tx); got != "" {
				t.Errorf("%s: the setting is %q", name, got)
			}
			fixture.ExecIn(t, tx, insertForeign)
			delayed := fixture.ManyLike(f, 2, func(i int, spec *engine.ExecutionSpec) {
				if i == 1 {
					spec.DelayUntil = fixture.Start.Add(time.Hour) // takes the other statement
				}
			})
			if _, err := f.WithTx(tx).CreateExecutions(t.Context(), delayed); err != nil {
				t.Fatal(err)
			}
			f.End(t, tx, commits)
			f.WantQueue(t, t, name)
		}
	}
}

// A caller that has set the setting for written entries gets them nevertheless: it counts only in the transaction
// that it names.
func TestCreateExecutionsIgnoresAForeignSetting(t *testing.T) {
	for _, value := range []string{"on", "", "1"} {
		t.Run(value, func(t *testing.T) {
			f := fixture.NewCloned(t)
			pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["ffx.own_entries"] = value })
			e := f.EngineOn(t, pool, engine.Config{})
			for range 2 { // the lane is new, then known
				if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Deadline: fixture.Start.Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
			tx := fixture.BeginWith(t, pool, pgx.TxOptions{})
			fixture.ExecIn(t, tx, insertForeign)
			if _, err := e.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}); err != nil {
				t.Fatal(err)
			}
			fixture.ExecIn(t, tx, insertForeign)
			fixture.Commit(t, tx)
			if got := ownEntries(t, pool); got != value {
				t.Errorf("the session's setting is %q, want %q", got, value)
			}
			if n := len(fixture.Texts(t, f.Pool, "SELECT 'entry' FROM ffx_ready")); n != 6 {
				t.Errorf("%q: %d entries, want 6", value, n)
			}
			f.WantQueue(t, t, value)
		})
	}
}

// The trigger of the queue is called only for executions inserted in another way.
func TestCreateExecutionsBypassesTheQueueTrigger(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Create(t)
	f.Exec(t, `CREATE OR REPLACE FUNCTION ffx_fill_ready() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''called''; END'`)
	for _, n := range []int{1, 100} {
		if _, err := f.CreateExecutions(t.Context(), fixture.ManyLike(f, n, fixture.WithTags)); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
	if _, err := f.CreateExecutions(t.Context(), fixture.ManyLike(f, 30, unlike)); err == nil {
		t.Error("the trigger is not called for another way")
	}
}
