package schema_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// citusCatalog makes a table like the one by which a node of Citus is known, where the search_path finds it too.
// Citus itself is not to be had in these tests.
func citusCatalog(t *testing.T) string {
	t.Helper()
	sql, err := os.ReadFile("../../schema/citus.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(sql)
}

// A22: all objects that a migration makes on a node of Citus are local to it, for every role.
func TestMigrateStaysLocalOnCitus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		url    func(testing.TB) string
		change func(databaseURL string, opts schema.Options) error
	}{
		{"Migrate, Rollback", pgtest.EmptyDatabase, func(databaseURL string, opts schema.Options) error {
			if _, err := schema.Migrate(t.Context(), databaseURL, opts); err != nil {
				return err
			}
			_, err := schema.Rollback(t.Context(), databaseURL, "", opts)
			return err
		}},
		{"Adopt", func(testing.TB) string { return referenceDatabase(t, ordinary) }, func(databaseURL string, _ schema.Options) error {
			_, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := c.url(t)
			conn := connect(t, databaseURL)
			watchCommands(t, conn)
			if err := c.change(databaseURL, schema.Options{Schema: "own"}); err != nil {
				t.Fatal(err)
			}
			wantLocalCommands(t, conn)
		})
	}
}

// watchCommands notes each command that changes the catalog, with the setting that it runs under.
func watchCommands(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	exec(t, conn, `
		CREATE SCHEMA watch;
		CREATE TABLE watch.seen (command text, propagation text);
		CREATE FUNCTION watch.note() RETURNS event_trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO watch.seen VALUES (tg_tag, current_setting('citus.enable_ddl_propagation', true));
		END;
		$$;
		CREATE EVENT TRIGGER watch ON ddl_command_start EXECUTE FUNCTION watch.note()`)
}

func wantLocalCommands(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	propagated := scalar[[]string](t, conn, "SELECT coalesce(array_agg(command) FILTER (WHERE propagation IS DISTINCT FROM 'off'), '{}') FROM watch.seen")
	if commands := scalar[int](t, conn, "SELECT count(*) FROM watch.seen"); commands == 0 || len(propagated) > 0 {
		t.Errorf("of %d commands these would be sent to other nodes: %q", commands, propagated)
	}
}

// The setting is one that every role may make, where Citus is not as well.
func TestMigrateNeedsNoSpecialRole(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	database := scalar[string](t, conn, "SELECT current_database()")
	role := database + "_role"
	exec(t, conn, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'pw'; GRANT CREATE ON DATABASE %s TO %[1]s", role, database))
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), fmt.Sprintf("DROP OWNED BY %s; DROP ROLE %[1]s", role)); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "pw")
	migrate(t, u.String(), schema.Options{Schema: "own"})
	if _, err := schema.Rollback(t.Context(), u.String(), "", schema.Options{Schema: "own"}); err != nil {
		t.Fatal(err)
	}
}
