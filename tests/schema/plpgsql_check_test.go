package schema

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The package postgresql-15-plpgsql-check of Debian or apt.postgresql.org: the script's name has its version.
const (
	checkerLibrary = "/usr/lib/postgresql/15/lib/plpgsql_check.so"
	checkerScript  = "/usr/share/postgresql/15/extension/plpgsql_check--*.sql"
)

// plpgsql_check plans every statement of every function: names, types and variables that PL/pgSQL itself only meets when a
// function comes there. It is loaded into an embedded PostgreSQL 15, whose interface Debian's build has (F10).
func TestPlpgsqlFunctionsPassTheChecker(t *testing.T) {
	scripts, err := filepath.Glob(checkerScript)
	if err != nil {
		t.Fatal(err)
	}
	scripts = slices.DeleteFunc(scripts, func(name string) bool { return strings.Count(name, "--") > 1 }) // from one version to another
	if len(scripts) == 0 {
		t.Skip("there is no package postgresql-15-plpgsql-check here")
	}
	script, err := os.ReadFile(scripts[0])
	if err != nil {
		t.Fatal(err)
	}
	server, err := pgserver.Start(t.Context(), pgserver.Options{Purpose: pgserver.Tests, Container: container.Run, Major: 15})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("ff_plpgsql_%d", os.Getpid())
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		_ = admin.Close(ctx)
	})
	address, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/" + name
	if _, err := schema.Migrate(t.Context(), address.String(), schema.Options{}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	text := regexp.MustCompile(`(?m)^\\.*$`).ReplaceAllString(string(script), "")
	text = strings.NewReplacer("MODULE_PATHNAME", checkerLibrary, "@extschema@", "checker").Replace(text)
	if _, err := conn.Exec(t.Context(), "LOAD '"+checkerLibrary+"'; CREATE SCHEMA checker; SET search_path = checker, public; "+text); err != nil {
		t.Fatal(err)
	}
	const broken = "CREATE FUNCTION public.broken() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT nothing FROM ffx_ready); END $$"
	if _, err := conn.Exec(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	type checked struct {
		Function string
		Problem  string
	}
	const functions = `
		SELECT DISTINCT f.oid, f.proname, coalesce(t.tgrelid, 0)::regclass AS of, t.tgoldtable::text AS old, t.tgnewtable::text AS new
		FROM pg_proc AS f
		JOIN pg_language AS l ON l.oid = f.prolang AND l.lanname = 'plpgsql'
		LEFT JOIN pg_trigger AS t ON t.tgfoid = f.oid
		WHERE f.pronamespace = 'public'::regnamespace AND (f.prorettype <> 'trigger'::regtype OR t.oid IS NOT NULL)`
	if names := fixture.Texts(t, conn, "SELECT DISTINCT proname::text FROM ("+functions+") AS f"); len(names) < 20 {
		t.Errorf("there are only %d functions: %q", len(names), names)
	}
	found := false // the broken one: the checker works
	for _, c := range fixture.Collect(t, pgx.RowToStructByPos[checked], conn, `
		SELECT f.proname || ' ' || f.of::text, concat_ws(' ', 'line', c.lineno, c.statement, c.level, c.message, c.detail, c.query)
		FROM (`+functions+`) AS f
		CROSS JOIN LATERAL plpgsql_check_function_tb(f.oid, f.of, oldtable => f.old, newtable => f.new, extra_warnings => true) AS c
		WHERE c.message NOT LIKE 'never read variable%' AND c.message <> 'target type is different type than source type' -- of literals such as '{}'`) {
		if strings.HasPrefix(c.Function, "broken ") {
			found = true
			continue
		}
		t.Errorf("%s: %s", c.Function, c.Problem)
	}
	if !found {
		t.Error("the checker finds nothing in a function that reads a column that does not exist")
	}
}
