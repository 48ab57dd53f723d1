package seed

import "testing"

// A change that refreshes a view must find it as it is in production: with the rows that follow from the tables.
func TestFillRefreshesMaterializedViews(t *testing.T) {
	conn := with(t, `
		CREATE TABLE items (id bigint PRIMARY KEY, owner int NOT NULL);
		CREATE SCHEMA "Odd One";
		CREATE MATERIALIZED VIEW "Odd One"."First" AS SELECT id, owner FROM items;
		CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM "Odd One"."First";
		CREATE MATERIALIZED VIEW fails AS SELECT 1 / (count(*) - count(*)) AS n FROM items HAVING count(*) > 0;
		CREATE MATERIALIZED VIEW later AS SELECT id FROM items WITH NO DATA;`)
	fill(t, conn, nil, Options{Rows: 500})
	items := number(t, conn, `SELECT count(*) FROM items`)
	if n := number(t, conn, `SELECT count(*) FROM "Odd One"."First"`); n != items || n == 0 {
		t.Errorf("the view has %d rows of %d", n, items)
	}
	if n := number(t, conn, `SELECT n FROM counted`); n != items {
		t.Errorf("the view of the view counts %d rows of %d", n, items)
	}
	if n := number(t, conn, `SELECT reltuples FROM pg_class WHERE relname = 'First'`); n != items {
		t.Errorf("the statistics of the view say %d rows of %d", n, items)
	}
	if n := number(t, conn, `SELECT count(*) FROM fails`); n != 0 {
		t.Errorf("the view that the server cannot refresh has %d rows", n)
	}
	if number(t, conn, `SELECT relispopulated::int FROM pg_class WHERE relname = 'later'`) != 0 {
		t.Error("the view without data has some")
	}
}

func TestFillRefreshesViewsWithoutTables(t *testing.T) {
	conn := with(t, `CREATE MATERIALIZED VIEW alone AS SELECT generate_series(1, 7) AS n`)
	fill(t, conn, nil, Options{Rows: 500})
	if n := number(t, conn, `SELECT reltuples FROM pg_class WHERE relname = 'alone'`); n != 7 {
		t.Errorf("the statistics of the view say %d rows", n)
	}
}
