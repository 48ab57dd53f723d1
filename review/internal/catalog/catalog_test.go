package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// catalogOf makes a database by statements and reads its catalog.
func catalogOf(t *testing.T, server *database.Server, statements string) *Catalog {
	t.Helper()
	d, err := server.Create(t.Context(), "catalog")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
	c, err := Read(t.Context(), conn, "schema_migrations")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T) *database.Server {
	t.Helper()
	server, err := database.Start(t.Context(), container.Run, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return server
}

const before = `
CREATE TABLE schema_migrations (version varchar PRIMARY KEY);
CREATE TYPE mood AS ENUM ('sad');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE item (id bigint PRIMARY KEY, name text, price int NOT NULL DEFAULT 0, old text, state mood);
CREATE INDEX item_name ON item (name);
CREATE TABLE gone (id int);
CREATE FUNCTION f(a int) RETURNS int LANGUAGE sql AS 'SELECT 1';
COMMENT ON COLUMN item.name IS 'A name.';
CREATE VIEW cheap AS SELECT id FROM item WHERE price < 10;
CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER g BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION t();
CREATE SEQUENCE s;
`

const change = `
CREATE SCHEMA extra;
CREATE TABLE extra.fresh (id int GENERATED ALWAYS AS IDENTITY, twice int GENERATED ALWAYS AS (1) STORED, CHECK (twice > 0));
ALTER TYPE mood ADD VALUE 'glad';
ALTER DOMAIN positive SET DEFAULT 3;
ALTER TABLE item ALTER COLUMN name SET NOT NULL, ALTER COLUMN price TYPE bigint, ALTER COLUMN price DROP DEFAULT, DROP COLUMN old, ADD COLUMN colour text COLLATE "C" DEFAULT 'red';
ALTER TABLE item SET (fillfactor = 50), ADD CONSTRAINT cheap CHECK (price < 100) NOT VALID, ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON item USING (price > 1);
DROP INDEX item_name;
CREATE UNIQUE INDEX item_name ON item (name) WHERE price > 0;
DROP TABLE gone;
CREATE OR REPLACE FUNCTION f(a int) RETURNS int LANGUAGE sql AS 'SELECT 2';
COMMENT ON COLUMN item.name IS 'The name.';
COMMENT ON TABLE item IS 'Items.';
CREATE OR REPLACE VIEW cheap AS SELECT id FROM item WHERE price < 20;
ALTER TABLE item DISABLE TRIGGER g;
ALTER SEQUENCE s CACHE 5;
CREATE STATISTICS x ON id, name FROM item;
`

func TestDiff(t *testing.T) {
	server := start(t)
	// A view keeps a column's type from changing, so it is created again.
	drop, again := "DROP VIEW cheap;", "CREATE VIEW cheap AS SELECT id FROM item WHERE price < 20;"
	a := catalogOf(t, server, before)
	b := catalogOf(t, server, before+drop+strings.Replace(change, "CREATE OR REPLACE VIEW cheap AS SELECT id FROM item WHERE price < 20;", again, 1))
	if same := Diff(a, catalogOf(t, server, before)); len(same) != 0 {
		t.Errorf("two databases of one making differ: %+v", same)
	}
	var got []string
	for _, c := range Diff(a, b) {
		got = append(got, c.Kind+" "+c.Object+": "+c.Before+" > "+c.After)
	}
	want := []string{
		"schema extra:  > schema",
		"type mood: enum ('sad') > enum ('sad', 'glad')",
		"type positive: domain over integer CHECK ((VALUE > 0)) > domain over integer DEFAULT 3 CHECK ((VALUE > 0))",
		"sequence s: bigint START 1 INCREMENT 1 MINVALUE 1 MAXVALUE 9223372036854775807 CACHE 1 > bigint START 1 INCREMENT 1 MINVALUE 1 MAXVALUE 9223372036854775807 CACHE 5",
		"table extra.fresh:  > table",
		"table gone: table > ",
		"table row security item: none > enabled",
		"table storage parameters item: none > fillfactor=50",
		"column item.colour:  > text NULL DEFAULT 'red'::text",
		"column nullability item.name: NULL > NOT NULL",
		"column item.old: text NULL > ",
		"column default item.price: 0 > none",
		"column type item.price: integer > bigint",
		"constraint cheap on item:  > CHECK (price < 100) NOT VALID",
		"index item_name: CREATE INDEX item_name ON item USING btree (name) > CREATE UNIQUE INDEX item_name ON item USING btree (name) WHERE (price > 0)",
		"view cheap: differs > differs",
		"function f(a integer): differs > differs",
		"trigger state g on item: none > disabled",
		"policy p on item:  > permissive for * to everybody using ((price > 1))",
		"statistics x:  > CREATE STATISTICS x ON id, name FROM item",
		"comment table column item.name: A name. > The name.",
		"comment table item:  > Items.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("differences:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, c := range Diff(a, b) {
		if c.Object == "extra.fresh" && !strings.Contains(c.Details, "column extra.fresh.id: integer NOT NULL GENERATED ALWAYS AS IDENTITY\n") {
			t.Errorf("the new table's details: %s", c.Details)
		}
		if c.Object == "f(a integer)" && !strings.Contains(c.Details, "\n+AS $function$SELECT 2$function$\n") {
			t.Errorf("the function's details: %s", c.Details)
		}
	}
}

func TestCheckDump(t *testing.T) {
	server := start(t)
	made := catalogOf(t, server, "CREATE TABLE item (id bigint, name text)")
	for _, c := range []struct{ name, dump, rule string }{
		{"right", "\\restrict x\nSELECT pg_catalog.set_config('search_path', '', false);\nCREATE TABLE public.item (id bigint, name text);\n\\unrestrict x\n", ""},
		{"stale", "CREATE TABLE item (id bigint);\n", "dump-stale"},
		{"broken", "CREATE TABEL item (id bigint);\n", "dump-unloadable"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "schema.sql"), []byte(c.dump), 0o644); err != nil {
			t.Fatal(err)
		}
		d, err := server.Create(t.Context(), "dump")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := d.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		findings, err := CheckDump(t.Context(), &project.Side{Dir: dir, Dump: "schema.sql"}, conn, made)
		conn.Close(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var rule string
		for _, f := range findings {
			rule = f.Rule
		}
		if rule != c.rule {
			t.Errorf("%s: found %+v, want rule %q", c.name, findings, c.rule)
		}
	}
}
