package schema

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Servers that are no PostgreSQL are refused by what they say and by what they do. The search path of each case begins with
// a schema that makes a real server say or do it (F9).
func TestServersThatAreNoPostgresAreRefused(t *testing.T) {
	says := func(version string) string {
		return "CREATE FUNCTION fake.version() RETURNS text LANGUAGE sql AS $$ SELECT '" + version + "' $$"
	}
	for _, c := range []struct {
		name, made  string
		want        string // a part of the error
		onlyMigrate bool
	}{
		{"CockroachDB", says("CockroachDB CCL v24.1.2 (x86_64-pc-linux-gnu, built 2024/07/01)"), "CockroachDB CCL v24.1.2: its advisory locks", false},
		{"YugabyteDB", says("PostgreSQL 11.2-YB-2.21.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang"), "PostgreSQL 11.2-YB-2.21.1.0-b0: it is YugabyteDB", false},
		{"another one", says("Elephantom 3"), "Elephantom 3: it isn't PostgreSQL", false},
		{"no ctid", "CREATE VIEW fake.pg_class AS SELECT oid, relname FROM pg_catalog.pg_class", "ctid", false},
		{
			"an advisory lock that is none",
			"CREATE FUNCTION fake.pg_try_advisory_xact_lock_shared(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT true'", "advisory lock", false,
		},
		{
			"no locks of statements", "CREATE VIEW fake.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE locktype <> 'relation'",
			"the lock of the session's own statement", false,
		},
		{
			"no refusal in a second session",
			"CREATE FUNCTION fake.pg_try_advisory_xact_lock(int) RETURNS boolean LANGUAGE sql AS 'SELECT true';" +
				"CREATE FUNCTION fake.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
			"two sessions hold one advisory lock", true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.EmptyDatabase(t)
			made := fixture.OpenPool(t, url, nil)
			if _, err := made.Exec(t.Context(), "CREATE SCHEMA fake; "+c.made); err != nil {
				t.Fatal(err)
			}
			pool := fixture.OpenPool(t, url, func(config *pgxpool.Config) {
				config.ConnConfig.RuntimeParams["search_path"] = "fake, pg_catalog, public"
			})
			eng, err := engine.New(pool, engine.Config{})
			if err != nil {
				t.Fatal(err)
			}
			_, migrate := schema.Migrate(t.Context(), pool, schema.Options{Schema: "public"})
			refusals := map[string]error{"Migrate": migrate}
			if !c.onlyMigrate {
				refusals["Check"] = schema.Check(t.Context(), pool, schema.Options{Schema: "public"})
				_, refusals["Status"] = schema.Status(t.Context(), pool, schema.Options{Schema: "public"})
				refusals["Prepare"] = eng.Prepare(t.Context())
			}
			for call, err := range refusals {
				want := fferr.ErrUnsupportedServer
				if call == "Prepare" {
					want = fferr.ErrUnsupportedServer
				}
				if !errors.Is(err, want) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got %v, want %v with %q", call, err, want, c.want)
				}
			}
			if got := fixture.Texts(t, made, "SELECT relname FROM pg_class WHERE relname ~ '^ff'"); len(got) > 0 {
				t.Errorf("it has %q", got)
			}
		})
	}
}
