package api

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

const config = `version: "2"
sql:
  - engine: postgresql
    schema: migrations
    queries: queries
    gen: {go: {package: shop, out: shop, sql_package: pgx/v5, emit_interface: true}}
`

const first = "-- migrate:up\nCREATE TABLE items (id bigint PRIMARY KEY, name text NOT NULL, price int NOT NULL, span int4range);\n-- migrate:down\nDROP TABLE items;\n"

const queries = "-- name: GetItem :one\nSELECT id, name FROM items WHERE id = @id;\n\n-- name: ListSpans :many\nSELECT span FROM items;\n"

func side(t *testing.T, files map[string]string) *project.Side {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"sqlc.yaml": config, "migrations/1_items.sql": first, "queries/items.sql": queries}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := project.Read(dir, project.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // rule object place
	}{
		{"nothing", nil, nil},
		{
			"a column may be NULL",
			map[string]string{"migrations/2_null.sql": "-- migrate:up\nALTER TABLE items\n  ALTER COLUMN name DROP NOT NULL;\n-- migrate:down\n"},
			[]string{"api-nullability GetItemRow.Name migrations/2_null.sql:2", "api-nullability Item.Name migrations/2_null.sql:2"},
		},
		{
			"a query is gone",
			map[string]string{"queries/items.sql": strings.SplitAfter(queries, "@id;")[0]},
			[]string{"api-removed ListSpans queries/items.sql:4"},
		},
		{
			"a query is added",
			map[string]string{"queries/more.sql": "-- name: CountItems :one\nSELECT count(*) FROM items;\n"},
			nil,
		},
		{
			"a column that a query reads is dropped",
			map[string]string{"migrations/2_drop.sql": "-- migrate:up\nALTER TABLE items DROP COLUMN name;\n-- migrate:down\n"},
			[]string{"generate-fails shop queries/items.sql:2"},
		},
		{
			"another type",
			map[string]string{"migrations/2_type.sql": "-- migrate:up\nALTER TABLE items ALTER COLUMN price TYPE bigint;\n-- migrate:down\n"},
			[]string{"api-changed Item.Price migrations/2_type.sql:2"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Check(t.Context(), side(t, nil), side(t, c.files), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range r.Findings {
				got = append(got, strings.Join([]string{f.Rule, f.Object, place(f.Place)}, " "))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, skipped %q, changes %+v", got, r.Skipped, r.Changes)
			}
		})
	}
}

// A name that is gone is a risk if a query that is still there uses its type.
func TestCheckNotesRemovalsThatNoQueryUses(t *testing.T) {
	const moods = "-- migrate:up\nCREATE TYPE mood AS ENUM ('sad', 'ok');\nCREATE TABLE person (id bigint PRIMARY KEY, mood mood);\nCREATE TABLE attic (id bigint PRIMARY KEY);\n-- migrate:down\n"
	const moody = "-- name: MoodOf :one\nSELECT mood FROM person WHERE id = @id;\n\n-- name: Moods :many\nSELECT * FROM person;\n"
	base := map[string]string{"migrations/2_moods.sql": moods, "queries/moods.sql": moody}
	for name, c := range map[string]struct {
		head map[string]string
		want []string
	}{
		"a value of an enum that a query returns": {
			map[string]string{"migrations/2_moods.sql": strings.Replace(moods, ", 'ok'", "", 1), "queries/moods.sql": moody},
			[]string{"risk MoodOk"},
		},
		"a table that no query reads": {
			map[string]string{"migrations/2_moods.sql": strings.Replace(moods, "CREATE TABLE attic (id bigint PRIMARY KEY);\n", "", 1), "queries/moods.sql": moody},
			[]string{"note Attic"},
		},
		"a query": {
			map[string]string{"migrations/2_moods.sql": moods, "queries/moods.sql": strings.Split(moody, "\n\n")[0] + "\n"},
			[]string{"note Moods"},
		},
		"the interface, which no query makes": {
			map[string]string{"migrations/2_moods.sql": moods, "queries/moods.sql": moody, "sqlc.yaml": strings.Replace(config, "emit_interface: true", "emit_interface: false", 1)},
			[]string{"risk Querier"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Check(t.Context(), side(t, base), side(t, c.head), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range r.Findings {
				got = append(got, f.Severity.String()+" "+f.Object)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q; skipped %q", got, c.want, r.Skipped)
			}
		})
	}
}

// The functions that sqlc makes itself are used even if no query has a type of the package.
func TestCheckCountsFunctionsOfTheGeneratorAsUsed(t *testing.T) {
	prepared := func(value string) map[string]string {
		return map[string]string{
			"queries/items.sql": "-- name: CountItems :one\nSELECT count(*) FROM items;\n",
			"sqlc.yaml":         strings.Replace(config, "sql_package: pgx/v5, emit_interface: true", "emit_prepared_queries: "+value, 1),
		}
	}
	r, err := Check(t.Context(), side(t, prepared("true")), side(t, prepared("false")), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Severity.String()+" "+f.Object)
	}
	if !slices.Equal(got, []string{"risk Close", "risk Prepare"}) {
		t.Errorf("found %q, skipped %q", got, r.Skipped)
	}
}

func TestCheckNotesRefusalsOfBase(t *testing.T) {
	broken := map[string]string{"queries/broken.sql": "-- name: Broken :one\nSELECT nothing FROM items;\n"}
	for _, c := range []struct {
		base map[string]string
		want report.Severity
	}{{nil, report.Blocking}, {broken, report.Note}} {
		r, err := Check(t.Context(), side(t, c.base), side(t, broken), t.TempDir())
		if err != nil || len(r.Findings) != 1 || r.Findings[0].Rule != rule.GenerateFails.Name || r.Findings[0].Severity != c.want {
			t.Errorf("found %+v, %v, want the severity %v", r, err, c.want)
		}
	}
}

func place(p report.Place) string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}
