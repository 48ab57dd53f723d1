package rolling

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/seed"
	"github.com/flowfabric/flowfabric-go/review/report"
)

const shop = `
	CREATE TYPE size AS ENUM ('s', 'm');
	CREATE TABLE orders (id bigint PRIMARY KEY, name varchar(40) NOT NULL, total int NOT NULL, size size NOT NULL, note text, old text, code text UNIQUE, placed timestamp);
	CREATE FUNCTION broken() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN nowhere FROM orders; END $$;`

var shopQueries = map[string]string{
	"GetOrder":  `SELECT id, name, total, size, note FROM orders WHERE id = $1`,
	"AddOrder":  `INSERT INTO orders (id, name, total, size, code) VALUES ($1, $2, $3, $4, $5)`,
	"GetPlaced": `SELECT placed FROM orders WHERE id = $1`,
	"Broken":    `SELECT broken()`,
	"SetTotal":  `UPDATE orders SET total = $2 WHERE id = $1`,
	"KeepCode":  `INSERT INTO orders (id, name, total, size, code) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (code) DO NOTHING`,
}

func queries(changes map[string]string) (all []project.Query) {
	texts := map[string]string{}
	for _, from := range []map[string]string{shopQueries, changes} {
		for name, sql := range from {
			texts[name] = sql
		}
	}
	for name, sql := range texts {
		if sql != "" {
			all = append(all, project.Query{Name: name, SQL: sql, Operations: []string{"shop." + name}})
		}
	}
	slices.SortFunc(all, func(a, b project.Query) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// The databases may have been made apart: a column is found by its name.
func TestCheckComparesColumnsByName(t *testing.T) {
	server, err := database.Start(t.Context(), container.Run, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	var urls []string
	for _, sql := range []string{shop, "CREATE TABLE first (id int); " + strings.Replace(shop, "total int NOT NULL", "extra int, total int", 1)} {
		d, err := server.Create(t.Context(), "apart")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := d.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		conn.Close(context.WithoutCancel(t.Context()))
		urls = append(urls, d.URL)
	}
	one := project.Migration{Version: "1", File: "1.sql"}
	result, err := Check(t.Context(), Input{
		Base:   &project.Side{Queries: queries(nil), Migrations: []project.Migration{one}},
		Head:   &project.Side{Queries: queries(nil), Migrations: []project.Migration{one, {Version: "2", File: "2.sql"}}},
		Before: urls[0], After: urls[1],
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range result.Findings {
		found = append(found, f.Rule+" "+f.Object)
	}
	if !slices.Equal(found, []string{"rolling-null orders.total"}) {
		t.Errorf("found %q", found)
	}
}

func TestCheck(t *testing.T) {
	server, err := database.Start(t.Context(), container.Run, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	before, err := server.Create(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := before.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	if _, err := seed.Fill(t.Context(), conn, nil, seed.Options{Rows: 500}); err != nil {
		t.Fatal(err)
	}
	conn.Close(context.WithoutCancel(t.Context()))

	for _, test := range []struct {
		name      string
		migration string
		usable    string // its declaration; the version before is 1, its own 2
		queries   map[string]string
		order     report.Order
		want      []string
		about     string // in the findings' details
	}{
		{name: "nothing changes", order: report.AnyOrder, usable: "1"},
		{name: "a column that nobody reads goes", migration: `ALTER TABLE orders DROP COLUMN old`, usable: "1", order: report.AnyOrder},
		{
			name: "a new column that new queries read", migration: `ALTER TABLE orders ADD extra int`, usable: "1",
			queries: map[string]string{"GetExtra": `SELECT extra FROM orders WHERE id = $1`},
			order:   report.SchemaFirst, want: []string{"note rolling-schema-first"}, about: "`GetExtra` (shop.GetExtra): column \"extra\" does not exist",
		},
		{
			name: "a column goes that old queries read", migration: `ALTER TABLE orders DROP COLUMN note`, usable: "2",
			queries: map[string]string{"GetOrder": `SELECT id, name, total, size FROM orders WHERE id = $1`},
			order:   report.CodeFirst, want: []string{"risk rolling-code-first"}, about: "`GetOrder`",
		},
		{
			name: "a column goes, declared harmless", migration: `ALTER TABLE orders DROP COLUMN note`, usable: "1",
			queries: map[string]string{"GetOrder": `SELECT id, name, total, size FROM orders WHERE id = $1`},
			order:   report.CodeFirst, want: []string{"blocking rolling-declaration", "risk rolling-code-first"},
		},
		{
			name: "a rename", migration: `ALTER TABLE orders RENAME total TO amount`, usable: "2",
			queries: map[string]string{
				"GetOrder": `SELECT id, name, amount, size, note FROM orders WHERE id = $1`, "SetTotal": `UPDATE orders SET amount = $2 WHERE id = $1`,
				"AddOrder": `INSERT INTO orders (id, name, amount, size, code) VALUES ($1, $2, $3, $4, $5)`, "KeepCode": "",
			},
			order: report.NoOrder, want: []string{"blocking rolling-no-order"}, about: "`SetTotal`",
		},
		{
			name: "a column that every insertion has to fill", migration: `ALTER TABLE orders ADD extra int NOT NULL DEFAULT 1; ALTER TABLE orders ALTER extra DROP DEFAULT`, usable: "2",
			queries: map[string]string{
				"AddOrder": `INSERT INTO orders (id, name, total, size, code, extra) VALUES ($1, $2, $3, $4, $5, $6)`,
				"KeepCode": `INSERT INTO orders (id, name, total, size, code, extra) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (code) DO NOTHING`,
			},
			order: report.NoOrder, want: []string{"blocking rolling-no-order"}, about: "null value in column \"extra\"",
		},
		{
			name: "a check that old insertions break", migration: `ALTER TABLE orders ADD CHECK (total < 0) NOT VALID`, usable: "2",
			order: report.CodeFirst, want: []string{"risk rolling-code-first"}, about: "`AddOrder`",
		},
		{
			name: "a key goes that a query conflicts on", migration: `ALTER TABLE orders DROP CONSTRAINT orders_code_key`, usable: "2",
			queries: map[string]string{"KeepCode": ""},
			order:   report.CodeFirst, want: []string{"risk rolling-code-first"}, about: "`KeepCode`",
		},
		{
			name: "another type", migration: `ALTER TABLE orders ALTER total TYPE text USING total::text`, usable: "2",
			order: report.NoOrder, want: []string{"advice rolling-cached-plan", "blocking rolling-no-order"}, about: "its column total is of type text instead of integer",
		},
		{
			name: "a wider type", migration: `ALTER TABLE orders ALTER total TYPE bigint`, usable: "1",
			order: report.AnyOrder, want: []string{"advice rolling-cached-plan"}, about: "`GetOrder`",
		},
		{
			name: "a column loses NOT NULL", migration: `ALTER TABLE orders ALTER total DROP NOT NULL`, usable: "1",
			order: report.AnyOrder, want: []string{"risk rolling-null"}, about: "`GetOrder`",
		},
		{
			name:      "a column of a renamed table loses NOT NULL, and a view has the old name",
			migration: `ALTER TABLE orders RENAME TO purchases; ALTER TABLE purchases ALTER total DROP NOT NULL; CREATE VIEW orders AS SELECT * FROM purchases`, usable: "1",
			order: report.AnyOrder, want: []string{"risk rolling-null"}, about: "read orders.total",
		},
		{
			name: "a column gets NOT NULL that programs send NULL for", migration: `UPDATE orders SET code = id WHERE code IS NULL; ALTER TABLE orders ALTER code SET NOT NULL`, usable: "1",
			order: report.AnyOrder, want: []string{"risk rolling-null-sent"}, about: "With NULL, `AddOrder`, `KeepCode`",
		},
		{
			name: "a query does not fill a new column", migration: `ALTER TABLE orders ADD extra int NOT NULL DEFAULT 1; ALTER TABLE orders ALTER extra DROP DEFAULT`, usable: "2",
			queries: map[string]string{"KeepCode": ""},
			order:   report.CodeFirst, want: []string{"blocking query-fails", "risk rolling-code-first"}, about: "The query AddOrder fails",
		},
		{
			name: "a query that fails on both sides in two ways", migration: `DROP FUNCTION broken; CREATE FUNCTION broken() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT 1 FROM other_nowhere LIMIT nothing); END $$`, usable: "1",
			order: report.AnyOrder,
		},
		{
			name: "a time gets a zone", migration: `ALTER TABLE orders ALTER placed TYPE timestamptz`, usable: "1",
			order: report.AnyOrder, want: []string{"advice rolling-cached-plan"}, about: "`GetPlaced`",
		},
		{name: "it excludes programs that would work", migration: `ALTER TABLE orders ADD extra int`, usable: "2", order: report.AnyOrder, want: []string{"advice rolling-declaration"}},
		{name: "it declares nothing", migration: `ALTER TABLE orders ADD extra int`, order: report.AnyOrder, want: []string{"advice rolling-declaration"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			after, err := server.Copy(t.Context(), before, "after")
			if err != nil {
				t.Fatal(err)
			}
			defer after.Drop(context.WithoutCancel(t.Context())) //nolint:errcheck // Close drops it too
			conn, err := after.Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), test.migration); err != nil {
				t.Fatal(err)
			}
			conn.Close(t.Context())
			one, two := project.Migration{Version: "1", File: "1.sql", Usable: "1"}, project.Migration{Version: "2", File: "2.sql", Usable: test.usable}
			result, err := Check(t.Context(), Input{
				Base:   &project.Side{Queries: queries(nil), Migrations: []project.Migration{one}},
				Head:   &project.Side{Queries: queries(test.queries), Migrations: []project.Migration{one, two}},
				Before: before.URL, After: after.URL, Copied: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			details := ""
			for _, f := range result.Findings {
				got = append(got, fmt.Sprintf("%s %s", f.Severity, f.Rule))
				details += f.Title + "\n" + f.Detail + "\n"
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) || result.Order != test.order || !strings.Contains(details, test.about) || len(result.Skipped) > 0 {
				t.Errorf("order %q, found %q instead of %q in %q, with %q; skipped %q\n%s", result.Order, got, test.want, test.order, test.about, result.Skipped, details)
			}
			// All tries are rolled back.
			for _, d := range []*database.Database{before, after} {
				conn, err := d.Connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var n int
				if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&n); err != nil || n != 500 {
					t.Errorf("%d orders, error %v", n, err)
				}
				conn.Close(t.Context())
			}
		})
	}
}
