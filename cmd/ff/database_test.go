package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// A21: with --schema the URL's other parameters were encoded again, with a plus sign for a space, which Postgres's clients
// do not decode.
func TestSchemaFlagKeepsURLParameters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, parameters string }{
		{"a space", "options=-c%20x.y%3Doff"},
		{"two options", "options=-c%20x.y%3Doff%20-c%20x.z%3Da+b%26c%25d"},
		{"a plus sign", "options=-c%20x.y%3Da+b"},
		{"a hash sign", "application_name=a#b"},
		{"signs of URLs, encoded", "application_name=%23%26%2B%2F%3A%3B%3D%3F%40%25%27%22"},
		{"another schema", "search_path=nowhere&options=-c%20x.y%3Doff"},
		{"another schema, encoded", "search%5Fpath=nowhere"},
		{"of the pool", "pool_max_conns=2&options=-c%20x.y%3Doff"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := pgtest.EmptyDatabase(t)
			if strings.Contains(databaseURL, "?") {
				databaseURL += "&" + c.parameters
			} else {
				databaseURL += "?" + c.parameters
			}
			const of = "Second one"
			for _, step := range []struct {
				code int
				args []string
			}{
				{exitDone, []string{"migrate", "up"}},
				{exitNotFound, []string{"flow", "show", id.NewFlowID().String()}},
				{exitDone, []string{"migrate", "status"}},
				{exitDone, []string{"migrate", "down", "--all"}},
			} {
				code, _, stderr := start(t, t.Context(), append(step.args, "--schema", of, "--database-url", databaseURL)...)
				if code != step.code {
					t.Fatalf("ff %s: exit code %d, want %d: %s", strings.Join(step.args, " "), code, step.code, stderr)
				}
			}
		})
	}
}

// N2: any newer migration stopped the command line too.
func TestCommandRunsOnANewerDatabase(t *testing.T) {
	t.Parallel()
	const newer = "29991231000000"
	databaseURL := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	flow, err := eng.CreateFlow(t.Context(), engine.FlowSpec{
		Nodes: []engine.Node{{Key: "first", Spec: engine.ExecutionSpec{Kind: "work"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	migration := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(code int, says string, args ...string) {
		t.Helper()
		got, stdout, stderr := start(t, t.Context(), append(args, "--database-url", databaseURL)...)
		if got != code || !strings.Contains(stdout+stderr, says) {
			t.Errorf("ff %s: exit code %d, want %d with %q\nstdout: %s\nstderr: %s", strings.Join(args, " "), got, code, says, stdout, stderr)
		}
	}
	show := [][]string{{"flow", "show", flow.ID.String()}, {"execution", "show", eng.NodeID(flow.ID, "first").String()}}

	migration(`
		ALTER TABLE ff_exec_core ADD COLUMN ffx_later text DEFAULT 'later';
		ALTER TABLE ff_flow_core ADD COLUMN ffx_later text DEFAULT 'later';
		INSERT INTO ffx_schema_migrations (version) VALUES ('` + newer + `')`)
	for _, args := range show {
		runs(exitDone, flow.ID.String(), args...)
	}
	runs(exitDone, "may work on it: nothing to do", "migrate", "up")
	runs(exitDone, "Warning: a newer version", "migrate", "status")
	runs(exitDone, `"usable": true`, "migrate", "status", "--json")
	runs(exitDatabase, "too new", "migrate", "down", "--all")

	migration("CREATE OR REPLACE FUNCTION ffx_usable_from() RETURNS text LANGUAGE sql STABLE AS $$ SELECT '" + newer + "' $$")
	for _, args := range append(show, []string{"migrate", "up"}, []string{"migrate", "down", "--all"}) {
		runs(exitDatabase, "too new", args...)
	}
	runs(exitDone, "Not usable: the database is too new", "migrate", "status")
	runs(exitDone, `"usable": false`, "migrate", "status", "--json")
}
