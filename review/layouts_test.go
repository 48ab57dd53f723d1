package review_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/report"
)

const (
	orders      = "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL, status text NOT NULL DEFAULT 'new');\n"
	ordersQuery = "-- name: OrdersOf :many\nSELECT id, status FROM orders WHERE customer = @customer LIMIT 10;\n\n" +
		"-- name: SetStatus :exec\nUPDATE orders SET status = @status WHERE id = @id;\n"
	moods     = "CREATE TYPE mood AS ENUM ('sad', 'ok');\nCREATE TABLE person (id bigint PRIMARY KEY, mood mood NOT NULL);\n"
	twoBuilds = "CREATE INDEX CONCURRENTLY orders_customer ON orders (customer);\n" +
		"CREATE INDEX CONCURRENTLY orders_status ON orders (status) WHERE status <> 'done';\n"
	addAndUse = "ALTER TYPE mood ADD VALUE 'happy';\nUPDATE person SET mood = 'happy' WHERE id = 1;\n"
)

// ownCommand runs this test program as the migration tool of a project that has its own: see
// [TestIsAMigrationCommand].
var ownCommand = "APPLY_SCHEMA='schema/*.sql' '" + os.Args[0] + "' -test.run '^TestIsAMigrationCommand$'"

// TestIsAMigrationCommand applies the files of the environment's pattern that the database of DATABASE_URL does not have,
// if there is a pattern.
func TestIsAMigrationCommand(t *testing.T) {
	if os.Getenv("APPLY_SCHEMA") == "" {
		return
	}
	conn, err := pgx.Connect(t.Context(), os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS applied (name text PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(os.Getenv("APPLY_SCHEMA"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		made, err := conn.Exec(t.Context(), "INSERT INTO applied VALUES ($1) ON CONFLICT DO NOTHING", file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if made.RowsAffected() == 0 {
			continue
		}
		if _, err := conn.Exec(t.Context(), string(text)); err != nil {
			t.Fatal(err)
		}
	}
}

func sqlcOf(schema string) string {
	return "version: \"2\"\nsql:\n  - {engine: postgresql, schema: " + schema + ", queries: queries, gen: {go: {package: shop, out: shop}}}\n"
}

// layout is a project that uses a migration tool.
type layout struct {
	name       string
	base, head map[string]string
	config     review.Config
	blocked    string // the finding of head that blocks, as far as it is given; "": none may
	says       string // a part of its advice
	objects    string // the changes of the catalog, joined by spaces
	unread     string // a part of what was not read; "": everything was
}

// layouts are small copies of projects. Each has its tool's names, annotations and ways to leave out a transaction.
func layouts() []layout {
	files := func(more ...string) map[string]string {
		all := map[string]string{"queries/orders.sql": ordersQuery}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	goose := func(text, down string) string { return "-- +goose Up\n" + text + "-- +goose Down\n" + down }
	return slices.Concat(gooseLayouts(files, goose), pairLayouts(files), otherLayouts(files))
}

func gooseLayouts(files func(...string) map[string]string, goose func(up, down string) string) []layout {
	base := files("sqlc.yaml", sqlcOf("db/migrations"), "db/migrations/embed.go", "package migrations\n",
		"db/migrations/00001_orders.sql", "-- +goose up\n-- +goose statementbegin\n"+orders+"-- +goose statementend\n\n-- +goose down\nDROP TABLE orders;\n",
		"db/migrations/00002_touch.sql", goose("-- +goose StatementBegin\nCREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$\nBEGIN\n    RETURN NEW;\nEND\n$$;\n-- +goose StatementEnd\n"+moods,
			"DROP TABLE person;\nDROP TYPE mood;\nDROP FUNCTION touch();\n"))
	const bare = "-- +goose NO TRANSACTION\n"
	return []layout{
		{
			name: "goose, a migration in Go", base: base,
			head:   files("db/migrations/00003_fill.go", "package migrations\n\nfunc init() { goose.AddMigrationContext(up, down) }\n"),
			unread: "`db/migrations/00003_fill.go`: a migration in Go",
		},
		{
			name: "goose, two builds without a transaction", base: base,
			head:    files("db/migrations/00003_index.sql", bare+goose(twoBuilds, "DROP INDEX CONCURRENTLY orders_customer;\nDROP INDEX CONCURRENTLY orders_status;\n")),
			objects: "orders_customer orders_status",
		},
		{
			name: "goose, a build in a transaction", base: base,
			head:    files("db/migrations/00003_index.sql", goose(twoBuilds, "DROP INDEX orders_customer;\nDROP INDEX orders_status;\n")),
			blocked: "outside-transaction db/migrations/00003_index.sql:2", says: "`-- +goose NO TRANSACTION`",
		},
		{
			name: "goose, two builds as one text", base: base,
			head:    files("db/migrations/00003_index.sql", bare+goose("-- +goose StatementBegin\n"+twoBuilds+"-- +goose StatementEnd\n", "SELECT 1;\n")),
			blocked: "concurrently-not-alone db/migrations/00003_index.sql:4", says: "StatementBegin",
		},
		{
			name: "goose, a new value that is used, without a transaction", base: base,
			head:    files("db/migrations/00003_mood.sql", bare+goose(addAndUse, "-- irreversible: a value stays\n")),
			objects: "mood",
		},
		{
			name: "goose, a new value that is used, in a transaction", base: base,
			head:    files("db/migrations/00003_mood.sql", goose(addAndUse, "SELECT 1;\n")),
			blocked: "enum-value-used-at-once db/migrations/00003_mood.sql:3",
		},
		{
			name: "goose, a new value that is used in a transaction of the file's own", base: base,
			head:    files("db/migrations/00003_mood.sql", bare+goose("BEGIN;\n"+addAndUse+"COMMIT;\n", "SELECT 1;\n")),
			blocked: "enum-value-used-at-once db/migrations/00003_mood.sql:5",
		},
		{
			name: "goose, a way down", base: base,
			head:    files("db/migrations/00003_column.sql", goose("ALTER TABLE orders ADD COLUMN note text;\n", "ALTER TABLE orders DROP COLUMN nota;\n")),
			blocked: "down-fails db/migrations/00003_column.sql:4", says: "below `-- +goose Down`", objects: "orders.note",
		},
	}
}

func pairLayouts(files func(...string) map[string]string) []layout {
	base := files("sqlc.yaml", sqlcOf("migrations"),
		"migrations/000001_orders.up.sql", "BEGIN;\n"+orders+"COMMIT;\n", "migrations/000001_orders.down.sql", "DROP TABLE orders;\n",
		"migrations/000002_person.up.sql", moods, "migrations/000002_person.down.sql", "DROP TABLE person;\nDROP TYPE mood;\n")
	return []layout{
		{
			name: "golang-migrate, one build", base: base,
			head: files("migrations/000003_index.up.sql", "CREATE INDEX CONCURRENTLY orders_customer ON orders (customer);\n",
				"migrations/000003_index.down.sql", "DROP INDEX CONCURRENTLY orders_customer;\n"),
			objects: "orders_customer",
		},
		{
			name: "golang-migrate, two builds", base: base,
			head:    files("migrations/000003_index.up.sql", twoBuilds, "migrations/000003_index.down.sql", "SELECT 1;\n"),
			blocked: "concurrently-not-alone migrations/000003_index.up.sql:1",
		},
		{
			name: "golang-migrate, a new value that is used", base: base,
			head:    files("migrations/000003_mood.up.sql", addAndUse, "migrations/000003_mood.down.sql", "SELECT 1;\n"),
			blocked: "enum-value-used-at-once migrations/000003_mood.up.sql:2",
		},
		{
			name: "golang-migrate, a new value that is used after COMMIT", base: base,
			head: files("migrations/000003_mood.up.sql", "BEGIN;\nALTER TYPE mood ADD VALUE 'happy';\nCOMMIT;\nBEGIN;\nUPDATE person SET mood = 'happy' WHERE id = 1;\nCOMMIT;\n",
				"migrations/000003_mood.down.sql", "-- irreversible: a value stays\n"),
			objects: "mood",
		},
		{
			name: "golang-migrate, a way down in its own file", base: base,
			head: files("migrations/000003_note.up.sql", "ALTER TABLE orders ADD COLUMN note text;\n",
				"migrations/000003_note.down.sql", "BEGIN;\nALTER TABLE orders DROP COLUMN nota;\nCOMMIT;\n"),
			blocked: "down-fails migrations/000003_note.down.sql:2", says: "in the .down.sql file", objects: "orders.note",
		},
	}
}

func otherLayouts(files func(...string) map[string]string) []layout {
	const below = "---- create above / drop below ----\n"
	tern := files("sqlc.yaml", sqlcOf("schema"), "schema/tern.conf", "[database]\n", "schema/001_orders.sql", orders+below+"DROP TABLE orders;\n",
		"schema/002_person.sql", moods+below+"DROP TABLE person;\nDROP TYPE mood;\n")
	flyway := files("sqlc.yaml", sqlcOf("sql"), "sql/V1__orders.sql", orders, "sql/V1.1__person.sql", moods,
		"sql/R__view.sql", "CREATE OR REPLACE VIEW open_orders AS SELECT id FROM orders WHERE status = 'new';\n")
	atlas := files("sqlc.yaml", sqlcOf("migrations"), "migrations/atlas.sum", "h1:x=\n", "migrations/20260101000001_orders.sql", "-- Create \"orders\" table\n"+orders,
		"migrations/20260101000002.sql", moods)
	plain := files("sqlc.yaml", sqlcOf("schema"), "schema/01_orders.sql", orders, "schema/02_person.sql", moods)
	return []layout{
		{
			name: "tern, two builds without a transaction", base: tern,
			head:    files("schema/003_index.sql", "---- tern: disable-tx ----\n"+twoBuilds+below+"DROP INDEX orders_customer;\nDROP INDEX orders_status;\n"),
			objects: "orders_customer orders_status",
		},
		{
			name: "tern, a build in a transaction", base: tern,
			head:    files("schema/003_index.sql", twoBuilds+below+"DROP INDEX orders_customer;\n"),
			blocked: "outside-transaction schema/003_index.sql:1", says: "`---- tern: disable-tx ----`",
		},
		{
			name: "tern, a way down", base: tern,
			head:    files("schema/003_note.sql", "ALTER TABLE orders ADD COLUMN note text;\n"+below+"ALTER TABLE orders DROP COLUMN nota;\n"),
			blocked: "down-fails schema/003_note.sql:3", says: "below `---- create above / drop below ----`", objects: "orders.note",
		},
		{
			name: "Flyway, two builds", base: flyway,
			head: files("sql/V2__index.sql", twoBuilds), objects: "orders_customer orders_status",
		},
		{
			name: "Flyway, a build beside another statement", base: flyway,
			head:    files("sql/V1_2__index.sql", twoBuilds+"ALTER TABLE orders ADD COLUMN note text;\n"),
			blocked: "migration-unreadable sql/V1_2__index.sql:0", says: "`executeInTransaction=false`", objects: "orders.note orders_customer orders_status",
		},
		{
			name: "Flyway, the same with a setting", base: flyway,
			head: files("sql/V1_2__index.sql", twoBuilds+"ALTER TABLE orders ADD COLUMN note text;\n",
				"sql/V1_2__index.sql.conf", "executeInTransaction=false\n"),
			objects: "orders.note orders_customer orders_status",
		},
		{
			name: "Flyway, a changed repeatable migration and an undo", base: flyway,
			head: files("sql/R__view.sql", "CREATE OR REPLACE VIEW open_orders AS SELECT id, customer FROM orders WHERE status = 'new';\n",
				"sql/V10__note.sql", "ALTER TABLE orders ADD COLUMN note text;\n", "sql/U10__note.sql", "ALTER TABLE orders DROP COLUMN note;\n"),
			objects: "open_orders open_orders orders.note",
		},
		{
			name: "Atlas, two builds without a transaction", base: atlas,
			head:    files("migrations/20260101000003_index.sql", "-- atlas:txmode none\n\n"+twoBuilds),
			objects: "orders_customer orders_status",
		},
		{
			name: "Atlas, a build in a transaction", base: atlas,
			head:    files("migrations/20260101000003_index.sql", twoBuilds),
			blocked: "outside-transaction migrations/20260101000003_index.sql:1", says: "`-- atlas:txmode none`",
		},
		{
			name: "SQL files, two builds", base: plain,
			head: files("schema/03_index.sql", twoBuilds), objects: "orders_customer orders_status",
		},
		{
			name: "SQL files, a failing one", base: plain,
			head:    files("schema/03_wrong.sql", "SELECT 1;\nALTER TABLE orders ADD COLUMN status text;\n"),
			blocked: "migration-fails schema/03_wrong.sql:2",
		},
		{
			name: "a command", base: files("sqlc.yaml", sqlcOf("schema"), "schema/01_orders.sql", orders),
			head:    files("schema/02_note.sql", "ALTER TABLE orders ADD COLUMN note text;\n", "queries/orders.sql", strings.Replace(ordersQuery, "status FROM", "note FROM", 1)),
			config:  review.Config{MigrateCommand: ownCommand},
			objects: "orders.note", unread: "`schema/02_note.sql`: a command",
		},
	}
}

func TestLayouts(t *testing.T) {
	for _, l := range layouts() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			r := l.review(t)
			t.Logf("found %q, skipped %q", linesOf(r), r.Skipped)
			var blocking, objects []string
			for _, f := range r.Findings {
				if f.Severity == report.Blocking {
					blocking = append(blocking, f.Rule+" "+line(f.Place))
				}
			}
			for _, c := range r.Catalog {
				objects = append(objects, c.Object)
			}
			slices.Sort(objects)
			if got := strings.Join(r.NotRead, "\n"); l.unread == "" && got != "" || !strings.Contains(got, l.unread) {
				t.Errorf("not read are %q, want %q", got, l.unread)
			}
			switch {
			case l.blocked == "" && len(blocking) > 0:
				t.Errorf("it is blocked by %q", blocking)
			case l.says != "" && !slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return strings.Contains(f.Do, l.says) }):
				t.Errorf("no advice has the words %q", l.says)
			case l.blocked != "" && !slices.Contains(blocking, l.blocked):
				t.Errorf("it is blocked by %q, not by %q", blocking, l.blocked)
			}
			if got := strings.Join(objects, " "); got != l.objects && l.objects != "" {
				t.Errorf("the schema changes in %q, want %q", got, l.objects)
			}
		})
	}
}

// A query of the second package, in a configuration of its own, is reviewed like those of the first.
func TestRunReviewsAllPackages(t *testing.T) {
	config := func(name string) string {
		return "version: \"2\"\nsql:\n  - {engine: postgresql, schema: ../m, queries: q.sql, gen: {go: {package: " + name + ", out: gen, sql_package: pgx/v5}}}\n"
	}
	l := layout{
		base: map[string]string{
			"m/1_orders.sql": "-- migrate:up\n" + orders + "-- migrate:down\nDROP TABLE orders;\n",
			"a/sqlc.yaml":    config("shop"), "a/q.sql": ordersQuery, "b/sqlc.yaml": config("stock"),
			"b/q.sql": "-- name: Status :one\nSELECT status FROM orders WHERE id = @id;\n\n-- name: Old :one\nSELECT id FROM orders LIMIT 1;\n",
		},
		head: map[string]string{
			"m/2_state.sql": "-- migrate:up\nALTER TABLE orders ALTER COLUMN customer DROP NOT NULL;\nALTER TABLE orders RENAME status TO state;\n" +
				"-- migrate:down\nALTER TABLE orders RENAME state TO status;\nALTER TABLE orders ALTER COLUMN customer SET NOT NULL;\n",
			"a/q.sql": strings.ReplaceAll(ordersQuery, "status", "state"),
			"b/q.sql": "-- name: Status :one\nSELECT state FROM orders WHERE id = @id;\n",
		},
	}
	r := l.review(t)
	t.Logf("found %q, skipped %q", linesOf(r), r.Skipped)
	for _, want := range []string{"note api-removed b/q.sql:4 stock.Old", "risk api-nullability m/2_state.sql:2 stock.Order.Customer", "risk api-nullability m/2_state.sql:2 shop.Order.Customer"} {
		if !has(linesOf(r), want) {
			t.Errorf("%q is not among %q", want, linesOf(r))
		}
	}
	if r.Order != report.NoOrder || !slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Rule == "rolling-no-order" && strings.Contains(f.Detail, "stock.Status") && strings.Contains(f.Detail, "shop.OrdersOf")
	}) {
		t.Errorf("the order is %q", r.Order)
	}
	if len(r.NotRead) > 0 {
		t.Errorf("not read are %q", r.NotRead)
	}
}

// Packages of one name have queries of one name, and their folders distinguish them.
func TestRunReviewsPackagesOfOneName(t *testing.T) {
	const config = "version: \"2\"\nsql:\n" +
		"  - {engine: postgresql, schema: m, queries: a.sql, gen: {go: {package: db, out: a/db, sql_package: pgx/v5}}}\n" +
		"  - {engine: postgresql, schema: m, queries: b.sql, gen: {go: {package: db, out: b/db, sql_package: pgx/v5}}}\n"
	l := layout{
		base: map[string]string{
			"m/1_orders.sql": "-- migrate:up\n" + orders + "-- migrate:down\nDROP TABLE orders;\n", "sqlc.yaml": config,
			"a.sql": "-- name: GetOrder :one\nSELECT status FROM orders WHERE id = @id;\n",
			"b.sql": "-- name: GetOrder :one\nSELECT id FROM orders WHERE id = @id;\n",
		},
		head: map[string]string{
			"m/2_state.sql": "-- migrate:up\nALTER TABLE orders RENAME status TO state;\n-- migrate:down\nALTER TABLE orders RENAME state TO status;\n",
			"a.sql":         "-- name: GetOrder :one\nSELECT state FROM orders WHERE id = @id;\n",
		},
	}
	r := l.review(t)
	if r.Order != report.NoOrder || !slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Rule == "rolling-no-order" && strings.Contains(f.Detail, "`a/db.GetOrder`") && !strings.Contains(f.Detail, "b/db")
	}) {
		t.Errorf("the order is %q, found %q, skipped %q", r.Order, linesOf(r), r.Skipped)
	}
	if !has(linesOf(r), "risk api-removed m/2_state.sql:2 a/db.Order.Status") && !slices.ContainsFunc(r.API, func(c report.Change) bool { return strings.HasPrefix(c.Object, "a/db.") }) {
		t.Errorf("the API's changes are %+v", r.API)
	}
}

// If only a file changes that sqlc does not read, the stars of both sides are expanded: a new column breaks no query.
func TestRunExpandsStarsOfBothSides(t *testing.T) {
	l := layout{
		base: map[string]string{
			"schema/1_orders.sql": orders, "sqlc.yaml": sqlcOf("schema/1_orders.sql"),
			"queries/orders.sql": "-- name: GetOrder :one\nSELECT * FROM orders WHERE id = @id;\n",
		},
		head:   map[string]string{"schema/2_note.ddl": "ALTER TABLE orders ADD note text;\n"},
		config: review.Config{MigrateCommand: strings.Replace(ownCommand, "*.sql", "*", 1)},
	}
	r := l.review(t)
	if len(r.Catalog) == 0 || r.Order != report.AnyOrder || has(linesOf(r), "risk rolling-code-first") {
		t.Errorf("the order is %q, found %q, skipped %q, changes %+v", r.Order, linesOf(r), r.Skipped, r.Catalog)
	}
}

// A view with the old name of a table does not hide that a column of the table loses NOT NULL.
func TestRunFollowsARenamedTable(t *testing.T) {
	l := layout{
		base: map[string]string{
			"db/migrations/1_orders.sql": "-- migrate:up\n" + orders + "-- migrate:down\nDROP TABLE orders;\n", "sqlc.yaml": sqlcOf("db/migrations"),
			"queries/orders.sql": "-- name: StatusOf :one\nSELECT status FROM orders WHERE id = @id;\n",
		},
		head: map[string]string{"db/migrations/2_sales.sql": "-- migrate:up\nALTER TABLE orders RENAME TO sales;\nALTER TABLE sales ALTER status DROP NOT NULL;\n" +
			"CREATE VIEW orders AS SELECT * FROM sales;\n-- migrate:down\nDROP VIEW orders;\nALTER TABLE sales ALTER status SET NOT NULL;\nALTER TABLE sales RENAME TO orders;\n"},
	}
	if r := l.review(t); !has(linesOf(r), "risk rolling-null db/migrations/2_sales.sql:0 orders.status") {
		t.Errorf("found %q, skipped %q", linesOf(r), r.Skipped)
	}
}

// review reviews the layout's change, with folders as revisions.
func (l layout) review(t *testing.T) *report.Report {
	t.Helper()
	base, head := t.TempDir(), t.TempDir()
	layFiles(t, base, l.base)
	layFiles(t, head, l.base)
	layFiles(t, head, l.head)
	config := l.config
	config.Container, config.Dir, config.BaseDir, config.Rows = container.Run, head, base, 500
	r, err := review.Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func layFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func line(p report.Place) string { return fmt.Sprintf("%s:%d", p.File, p.Line) }
