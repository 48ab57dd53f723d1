package plans

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/seed"
	"github.com/flowfabric/flowfabric-go/review/report"
)

const shop = `
	CREATE TABLE customers (id bigint PRIMARY KEY, email text NOT NULL UNIQUE);
	CREATE TABLE orders (
		id bigint PRIMARY KEY, customer_id bigint NOT NULL REFERENCES customers, state text NOT NULL CHECK (state IN ('new', 'paid', 'gone')),
		total int NOT NULL, note text, seen_at timestamptz
	) WITH (fillfactor = 80);
	CREATE INDEX orders_customer_idx ON orders (customer_id);
	CREATE INDEX orders_total_idx ON orders (total);`

var shopQueries = map[string]string{
	"GetOrder":      `SELECT id, total FROM orders WHERE id = $1`,
	"ListOrders":    `SELECT id FROM orders WHERE customer_id = $1 ORDER BY id LIMIT $2`,
	"FindCheap":     `SELECT id FROM orders WHERE total < $1 ORDER BY total LIMIT 10`,
	"SetState":      `UPDATE orders SET state = $2, seen_at = now() WHERE id = $1`,
	"FindByEmail":   `SELECT id FROM customers WHERE email = $1`,
	"PeekAtOrders":  `SELECT id FROM orders LIMIT 3`,
	"SearchByNotes": `SELECT id FROM orders WHERE note LIKE $1`,
}

// queries returns the queries of the map by name, changed by others; an empty one is removed.
func queries(changes map[string]string) (all []project.Query) {
	texts := map[string]string{}
	for _, from := range []map[string]string{shopQueries, changes} {
		for name, sql := range from {
			texts[name] = sql
		}
	}
	for name, sql := range texts {
		if sql != "" {
			all = append(all, project.Query{Name: name, SQL: sql, Place: report.Place{File: "queries.sql", Line: 1}})
		}
	}
	slices.SortFunc(all, func(a, b project.Query) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// reviewed checks a change of the shop: a migration and other queries.
func reviewed(t *testing.T, migration string, changes, settings map[string]string, sized bool) *Result {
	t.Helper()
	return compared(t, shop, migration, Input{
		Base: &project.Side{Queries: queries(nil)}, Head: &project.Side{Queries: queries(changes)},
		Settings: settings, Sized: func(string) bool { return sized },
	})
}

// compared checks a migration of a schema with the queries of in.
func compared(t *testing.T, schema, migration string, in Input) *Result {
	t.Helper()
	in.Large = 1000
	in.Head.Migrations = []project.Migration{{File: "2.sql", Up: project.Half{SQL: migration, Statements: []project.Statement{
		{SQL: migration, Place: report.Place{File: "2.sql", Line: 3}},
	}}}}
	for i, url := range []*string{&in.Before, &in.After} {
		*url = pgtest.EmptyDatabase(t)
		conn, err := pgx.Connect(t.Context(), *url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), schema); err != nil {
			t.Fatal(err)
		}
		if _, err := seed.Fill(t.Context(), conn, nil, seed.Options{Rows: 6000}); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if _, err := conn.Exec(t.Context(), migration+"; ANALYZE"); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close(context.WithoutCancel(t.Context()))
	}
	result, err := Check(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// said returns the findings, a line each.
func said(findings []report.Finding) (lines []string) {
	for _, f := range findings {
		lines = append(lines, fmt.Sprintf("%s %s %s %s:%d", f.Severity, f.Rule, f.Object, f.Place.File, f.Place.Line))
	}
	slices.Sort(lines)
	return lines
}

func TestCheck(t *testing.T) {
	const was = "note sequential-scan queries :0"
	for _, test := range []struct {
		name      string
		sized     bool // the seed file gives the number of orders
		migration string
		queries   map[string]string
		settings  map[string]string
		want      []string
		changes   []string
	}{
		{name: "nothing changes", want: []string{was}},
		{
			name: "an index goes that a query needs", migration: `DROP INDEX orders_customer_idx`,
			want:    []string{was, "blocking sequential-scan ListOrders queries.sql:1"},
			changes: []string{"ListOrders (generic)", "ListOrders (custom)"},
		},
		{
			name: "a new query reads all", queries: map[string]string{"Late": `SELECT id FROM orders WHERE seen_at < $1`},
			want: []string{was, "risk sequential-scan Late queries.sql:1"},
		},
		{
			name: "a new query sorts all", sized: true, queries: map[string]string{"Sorted": `SELECT id FROM orders ORDER BY note, id LIMIT $1`},
			want: []string{was, "blocking large-sort Sorted queries.sql:1", "blocking sequential-scan Sorted queries.sql:1"},
		},
		{
			name: "a frequent value is not looked up", queries: map[string]string{"ByState": `SELECT id FROM orders WHERE state = $1`},
			migration: `CREATE INDEX orders_state_idx ON orders (state)`,
			want:      []string{was, "risk update-not-heap-only orders 2.sql:3"},
		},
		{
			name: "a new query may go through all", queries: map[string]string{"Dear": `SELECT id FROM orders WHERE note > $1 ORDER BY id LIMIT 5`},
			want: []string{was, "risk sequential-scan Dear queries.sql:1"},
		},
		{
			name: "the sessions decide on the plan", queries: map[string]string{"Late": `SELECT id FROM orders WHERE total > 0 AND total < $1`},
			settings: map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"},
			want:     []string{was},
		},
		{
			name: "an index that nobody uses", migration: `CREATE INDEX customers_small_idx ON customers (lower(email))`,
			want: []string{was, "advice index-unused customers_small_idx 2.sql:3"},
		},
		{
			name: "a query goes, its index stays", queries: map[string]string{"FindCheap": ""},
			want: []string{was, "advice index-unused orders_total_idx :0"},
		},
		{
			name: "an index beside one that leads with it", migration: `CREATE INDEX orders_customer_total_idx ON orders (customer_id, total)`,
			queries: map[string]string{"Both": `SELECT id FROM orders WHERE customer_id = $1 AND total = $2`},
			want:    []string{was, "advice index-redundant orders_customer_idx 2.sql:3"},
		},
		{
			name: "an index on what is updated, in its condition", migration: `CREATE INDEX orders_new_idx ON orders (total, id) WHERE state = 'new'`,
			queries: map[string]string{"NewOnes": `SELECT id FROM orders WHERE state = 'new' AND total = $1`},
			want:    []string{was, "risk update-not-heap-only orders 2.sql:3"},
		},
		{
			name: "a column is dropped that a query reads", migration: `ALTER TABLE orders DROP COLUMN note`,
			want: []string{"blocking query-not-planned SearchByNotes queries.sql:1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result := reviewed(t, test.migration, test.queries, test.settings, test.sized)
			slices.Sort(test.want)
			if got := said(result.Findings); !slices.Equal(got, test.want) {
				for _, f := range result.Findings {
					t.Logf("%s\n%s", f.Title, f.Detail)
				}
				t.Errorf("found\n%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			var changes []string
			for _, change := range result.Changes {
				changes = append(changes, change.Object)
				t.Logf("%s: %s -> %s\n%s", change.Object, change.Before, change.After, change.Details)
			}
			if test.changes != nil && !slices.Equal(changes, test.changes) {
				t.Errorf("changed plans: %q", changes)
			}
			if len(result.Skipped) > 0 {
				t.Error(result.Skipped)
			}
		})
	}
}

// An index of a partition that stays is judged like others. Indexes of a detached one are not.
func TestCheckJudgesIndexesOfPartitions(t *testing.T) {
	const schema = `
		CREATE TABLE events (id bigint PRIMARY KEY, place int NOT NULL) PARTITION BY RANGE (id);
		CREATE INDEX events_place_idx ON events (place);
		CREATE TABLE events_old PARTITION OF events FOR VALUES FROM (MINVALUE) TO (1000);
		CREATE TABLE events_new PARTITION OF events FOR VALUES FROM (1000) TO (MAXVALUE);`
	queries := []project.Query{{Name: "EventsAt", SQL: `SELECT id FROM events WHERE place = $1`, Place: report.Place{File: "queries.sql", Line: 1}}}
	for _, test := range []struct {
		name, migration string
		want            []string
	}{
		{"a new index", `CREATE INDEX events_old_idx ON events_old ((place + 1))`, []string{"advice index-unused events_old_idx 2.sql:3"}},
		{"detached", `ALTER TABLE events DETACH PARTITION events_old`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result := compared(t, schema, test.migration, Input{Base: &project.Side{Queries: queries}, Head: &project.Side{Queries: queries}})
			if got := said(result.Findings); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q, skipped %q", got, test.want, result.Skipped)
			}
		})
	}
}

// A query that the change rewrites and that fails as before is reported, unless it needs a temporary table.
func TestCheckReportsRewrittenQueriesThatStillFail(t *testing.T) {
	query := func(name, sql string) project.Query {
		return project.Query{Name: name, SQL: sql, Place: report.Place{File: "queries.sql", Line: 1}}
	}
	result := compared(t, shop, "SELECT 1", Input{
		Base: &project.Side{Queries: []project.Query{query("Typo", "SELECT id FROM WHERE id = 1"), query("Temporary", "SELECT id FROM staged")}},
		Head: &project.Side{Queries: []project.Query{query("Typo", "SELECT total FROM WHERE id = 1"), query("Temporary", "SELECT total FROM staged")}},
	})
	if got := said(result.Findings); !slices.Contains(got, "blocking query-not-planned Typo queries.sql:1") || slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, "Temporary") }) {
		t.Errorf("found %q, skipped %q", got, result.Skipped)
	}
	if len(result.Skipped) != 1 || !strings.Contains(result.Skipped[0], "Temporary") {
		t.Errorf("skipped %q", result.Skipped)
	}
}
