package transactions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func searchPath(name string) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["search_path"] = name }
}

func TestPrepare(t *testing.T) {
	if engine.SchemaVersion != schema.Version {
		t.Errorf("the engine wants %s, the schema's newest migration is %s", engine.SchemaVersion, schema.Version)
	}
	for _, c := range []struct {
		name    string
		arrange []string // on a migrated database
		change  func(*pgxpool.Config)
		want    error
		advice  string
	}{
		{"migrated", nil, nil, nil, ""},
		{"older", []string{"DELETE FROM ffx_schema_migrations WHERE version = '" + schema.Version + "'"}, nil, fferr.ErrNotMigrated, "ff migrate up"},
		{"begun", []string{"DELETE FROM ffx_schema_migrations"}, nil, fferr.ErrNotMigrated, "ff migrate up"},
		{"newer, for this version too", []string{fixture.LaterMigration}, nil, nil, ""},
		{"newer, for newer versions only", []string{fixture.LaterMigration, fixture.ForLaterOnly}, nil, fferr.ErrTooNew, "upgrade the library"},
		{"newer, for nobody knows whom", []string{fixture.LaterMigration, "DROP FUNCTION ffx_usable_from()"}, nil, fferr.ErrTooNew, "upgrade the library"},
		{"half adopted by a newer version", []string{fixture.ForLaterOnly}, nil, fferr.ErrTooNew, "upgrade the library"},
		{"read only", nil, func(config *pgxpool.Config) {
			config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		}, fferr.ErrReadOnly, "primary"},
		{"empty schema", []string{"CREATE SCHEMA empty"}, searchPath("empty"), fferr.ErrNotMigrated, "ff migrate up"},
		{"schema that is not there", nil, searchPath("nowhere"), fferr.ErrNotMigrated, "ff migrate up"},
		{
			"made by the reference",
			[]string{"CREATE SCHEMA other", "CREATE TABLE other._sqlx_migrations ()"},
			searchPath("other"),
			fferr.ErrNotMigrated, "schema.Adopt",
		},
		// A function of an earlier schema took over the clock.
		{
			"a function of that name in an earlier schema",
			[]string{"CREATE SCHEMA earlier", "CREATE FUNCTION earlier.ffx_now_ms(now_ms bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'"},
			searchPath("earlier, public"),
			fferr.ErrUnsupported, `function ffx_now_ms(bigint) of schema "earlier"`,
		},
		{
			"a better fitting function in an earlier schema",
			[]string{"CREATE SCHEMA earlier", "CREATE FUNCTION earlier.ffx_now_ms(now_ms text) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'"},
			searchPath("earlier, public"),
			fferr.ErrUnsupported, `search_path begin with "public"`,
		},
		{"a table in an earlier schema", []string{"CREATE SCHEMA earlier", "CREATE TABLE earlier.ffx_ready ()"}, searchPath("earlier, public"), fferr.ErrUnsupported, "table ffx_ready"},
		{"a view in an earlier schema", []string{"CREATE SCHEMA earlier", "CREATE VIEW earlier.ff_exec_core AS SELECT 1"}, searchPath("earlier, public"), fferr.ErrUnsupported, "view ff_exec_core"},
		{"a function in a later schema", []string{"CREATE SCHEMA later", "CREATE FUNCTION later.ffx_now_ms(now_ms bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'"}, searchPath("public, later"), nil, ""},
		{"another schema before it", []string{"CREATE SCHEMA earlier", "CREATE TABLE earlier.invoice ()"}, searchPath("earlier, public"), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			for _, sql := range c.arrange {
				f.Exec(t, sql)
			}
			e := f.EngineOn(t, fixture.OpenPool(t, f.Url, c.change), engine.Config{})
			err := e.Prepare(t.Context())
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.advice) {
				t.Errorf("got %v, want %v and the advice %q", err, c.want, c.advice)
			}
		})
	}
	t.Run("no tables", func(t *testing.T) {
		t.Parallel()
		e, err := engine.New(fixture.OpenPool(t, pgtest.EmptyDatabase(t), nil), engine.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Prepare(t.Context()); !errors.Is(err, fferr.ErrNotMigrated) {
			t.Errorf("got %v, want not migrated", err)
		}
		if held, err := e.Roles(t.Context()); !errors.Is(err, fferr.ErrNotMigrated) {
			t.Errorf("roles %v, %v, want not migrated", held, err)
		}
	})
}

// The number of partitions of flows is that of the stored ones. With any other number no flow would be found.
func TestPrepareComparesThePartitionsOfFlows_M26(t *testing.T) {
	f := fixture.NewCloned(t)
	engines := make(map[uint16]*engine.Engine)
	counts := []uint16{64, 128, 256}
	for _, count := range counts {
		engines[count] = f.EngineOn(t, f.Pool, engine.Config{Partitions: id.Partitions{Flow: count}})
		if err := engines[count].Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, stored := range counts {
		for range 40 {
			if _, err := engines[stored].CreateFlow(t.Context(), engine.FlowSpec{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, count := range counts {
			err := engines[count].Prepare(t.Context())
			want := fmt.Sprintf("rows are spread over %d partitions, not %d", stored, count)
			if stored == count && err != nil ||
				stored != count && (!errors.Is(err, fferr.ErrCorruption) || !strings.Contains(err.Error(), want)) {
				t.Errorf("flows in %d partitions, %d configured: %v", stored, count, err)
			}
		}
		f.Exec(t, "TRUNCATE ff_flow_core CASCADE")
	}
}

// A program that does not prepare gets the same error from the first operation.
func TestOperationsOnAnUnfitDatabase(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*pgxpool.Config)
		want   error
	}{
		{"no tables", searchPath("empty"), fferr.ErrNotMigrated},
		{"read only", func(config *pgxpool.Config) {
			config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		}, fferr.ErrReadOnly},
	} {
		for _, o := range fixture.Operations() {
			if o.Whole {
				continue // a job that finds nothing has nothing to refuse
			}
			t.Run(c.name+"/"+o.Name, func(t *testing.T) {
				f := fixture.New(t)
				if o.Alone {
					f = fixture.Clone(t)
				}
				l := o.Arrange(t, f)
				before := f.Dump(t, l.Execution)
				e := f.EngineOn(t, fixture.OpenPool(t, f.Url, c.change), engine.Config{})
				if err := o.Do(t.Context(), f, e, l); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				f.WantUnchanged(t, l.Execution, before)
			})
		}
	}
}

// A standby or a read-only server is still good for reading.
func TestReadsOnAReadOnlyServer(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" })
	if got, err := f.EngineOn(t, pool, engine.Config{}).DescribeExecution(t.Context(), x); err != nil || got == nil || got.ID != x {
		t.Errorf("got %+v, %v", got, err)
	}
	if held, err := f.EngineOn(t, pool, engine.Config{}).Roles(t.Context()); err != nil || !slices.Equal(held, []engine.Role{engine.RoleReader}) {
		t.Errorf("roles: %v, %v", held, err)
	}
}

// Two engines in two schemas of one database keep apart, the same ids, keys and lanes notwithstanding.
func TestEnginesInTwoSchemas(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	fixtures := map[string]*fixture.Fixture{}
	lane := id.LaneID("lane-of-both")
	for _, name := range []string{"first", "second"} {
		if _, err := schema.Migrate(t.Context(), url, schema.Options{Schema: name}); err != nil {
			t.Fatal(err)
		}
		f := fixture.On(t, fixture.OpenPool(t, url, searchPath(name)), url)
		f.Lane = lane
		if err := f.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		fixtures[name] = f
	}
	x := id.NewExecutionID(lane, id.Partitions{})
	leases := map[string]engine.Claimed{}
	for name, f := range fixtures {
		created, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{
			Kind: "test",
			ID:   x, Lane: f.Lane, Payload: []byte(name), IdempotencyKey: "key", Deadline: fixture.Start.Add(time.Hour),
		})
		if err != nil || created.Duplicate {
			t.Fatalf("%s: created %+v, %v", name, created, err)
		}
		if got, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Payload: []byte(name), IdempotencyKey: "key"}); err != nil || !got.Duplicate || got.ID != x {
			t.Errorf("%s: created %+v, %v; want a duplicate", name, got, err)
		}
		if leases[name] = f.ClaimOne(t); string(leases[name].Payload) != name {
			t.Errorf("%s: claimed the payload %q", name, leases[name].Payload)
		}
		f.WantNothingClaimable(t)
	}
	first, second := fixtures["first"], fixtures["second"]
	if err := first.CompleteExecution(t.Context(), leases["first"].Lease, []byte("done")); err != nil {
		t.Fatal(err)
	}
	first.WantState(t, x, fixture.StateCompleted)
	second.WantState(t, x, fixture.StateRunning)
	second.WantEvents(t, x, "lease acquired")
	first.Advance(2 * time.Hour)
	fixture.Run(t, upkeep.Of(first.Engine).ExpireDeadlines, 0)
	fixture.Run(t, upkeep.Of(first.Engine).ExpireLeases, 0)
	second.WantState(t, x, fixture.StateRunning)
	second.Advance(2 * time.Hour)
	fixture.Run(t, upkeep.Of(second.Engine).ExpireDeadlines, 1)
	second.WantState(t, x, fixture.StateExpired)
	first.WantState(t, x, fixture.StateCompleted)
}

// The schemas keep apart also in a caller's transaction, whose search_path is the caller's.
func TestWithTxWorksInTheCallersSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	for _, name := range []string{"first", "second"} {
		if _, err := schema.Migrate(t.Context(), url, schema.Options{Schema: name}); err != nil {
			t.Fatal(err)
		}
	}
	f := fixture.On(t, fixture.OpenPool(t, url, searchPath("first")), url)
	tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{})
	fixture.ExecIn(t, tx, "SET LOCAL search_path = second")
	created, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	for name, want := range map[string]int{"first": 0, "second": 1} {
		sql := fmt.Sprintf("SELECT lane_id FROM %s.ff_exec_core WHERE execution_id = $1", name)
		if got := len(fixture.Texts(t, f.Pool, sql, created.ID.UUID())); got != want {
			t.Errorf("%d executions in schema %s, want %d", got, name, want)
		}
	}
}
