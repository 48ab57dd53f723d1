package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// migrator applies files by the rules of a format, and takes them back. The real programs do as much: see the format's
// documentation; they are not required here, as they would be by every user of this module.
type migrator struct {
	format schema.Format
	up     func(t *testing.T, conn *pgx.Conn, files []schema.File)
	down   func(t *testing.T, conn *pgx.Conn, files []schema.File)
}

var migrators = []migrator{
	{
		// psql: statement by statement, the transaction by the file's own words.
		schema.Plain,
		func(t *testing.T, conn *pgx.Conn, files []schema.File) { oneByOne(t, conn, files[0].Text) },
		func(t *testing.T, conn *pgx.Conn, files []schema.File) { oneByOne(t, conn, files[1].Text) },
	},
	{
		// goose: the text between the annotations in one message, and its own record, in one transaction.
		schema.Goose,
		func(t *testing.T, conn *pgx.Conn, files []schema.File) {
			up, _ := gooseStatements(t, files[0].Text)
			inTransaction(t, conn, up, func(tx pgx.Tx) { exec(t, tx, "INSERT INTO goose_db_version VALUES (1)") })
		},
		func(t *testing.T, conn *pgx.Conn, files []schema.File) {
			_, down := gooseStatements(t, files[0].Text)
			inTransaction(t, conn, down, func(tx pgx.Tx) { exec(t, tx, "DELETE FROM goose_db_version") })
		},
	},
	{
		// golang-migrate: a file is one message, which the server takes for a transaction.
		schema.GolangMigrate,
		func(t *testing.T, conn *pgx.Conn, files []schema.File) { exec(t, conn, files[0].Text) },
		func(t *testing.T, conn *pgx.Conn, files []schema.File) { exec(t, conn, files[1].Text) },
	},
	{
		// atlas: statement by statement in one transaction. It has no way back in a file.
		schema.Atlas,
		func(t *testing.T, conn *pgx.Conn, files []schema.File) {
			inTransaction(t, conn, statements(t, files[0].Text), func(pgx.Tx) {})
		},
		nil,
	},
}

func oneByOne(t *testing.T, conn *pgx.Conn, text string) {
	t.Helper()
	for _, statement := range statements(t, text) {
		exec(t, conn, statement)
	}
}

// inTransaction also lets the migrator write its record after the statements, by the search_path that it has.
func inTransaction(t *testing.T, conn *pgx.Conn, statements []string, record func(pgx.Tx)) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		for _, statement := range statements {
			exec(t, tx, statement)
		}
		record(tx)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// statements splits SQL as psql and atlas do: at semicolons outside of quotes and remarks.
func statements(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	begin := 0
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		skip := func(from int, to string) {
			end := strings.Index(rest[from:], to)
			if end < 0 {
				t.Fatalf("%s is missing after: %.80s", to, rest)
			}
			i += from + end + len(to) - 1
		}
		switch {
		case strings.HasPrefix(rest, "--"):
			skip(2, "\n")
		case rest[0] == '\'' || rest[0] == '"':
			skip(1, rest[:1])
		case rest[0] == '$' && strings.Contains(rest[1:], "$"):
			tag := rest[:strings.Index(rest[1:], "$")+2]
			skip(len(tag), tag)
		case rest[0] == ';':
			found = append(found, text[begin:i+1])
			begin = i + 1
		}
	}
	if rest := strings.TrimSpace(text[begin:]); rest != "" {
		t.Fatalf("a statement without an end: %s", rest)
	}
	return found
}

// gooseStatements reads the annotations of a file.
func gooseStatements(t *testing.T, text string) (up, down []string) {
	t.Helper()
	var into *[]string
	var statement *strings.Builder
	for line := range strings.Lines(text) {
		switch strings.TrimSuffix(line, "\n") {
		case "-- +goose Up":
			into = &up
		case "-- +goose Down":
			into = &down
		case "-- +goose StatementBegin":
			statement = &strings.Builder{}
		case "-- +goose StatementEnd":
			*into = append(*into, statement.String())
			statement = nil
		default:
			if statement != nil {
				statement.WriteString(line)
			} else if strings.TrimSpace(line) != "" {
				t.Fatalf("%q stands outside of a statement", line)
			}
		}
	}
	if len(up) != 1 || len(down) != 1 {
		t.Fatalf("%d statements up and %d down, want one each", len(up), len(down))
	}
	return up, down
}

func sqlSteps(t *testing.T, opts schema.SQLOptions) []schema.Step {
	t.Helper()
	steps, err := schema.SQL(opts)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func filesOf(t *testing.T, step schema.Step, format schema.Format) []schema.File {
	t.Helper()
	files, err := step.Files(format)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// functionSettings are the search_paths that functions were created with.
const functionSettings = `
	SELECT coalesce(string_agg(proname || ' ' || proconfig::text, ', ' ORDER BY proname), '')
	FROM pg_proc
	WHERE pronamespace = quote_ident(current_schema())::regnamespace AND proconfig IS NOT NULL`

// Each format makes the same objects as Migrate, file by file or joined, in the schema of the search_path or a named
// one, and rolls them back; the engine works on it, and Migrate finds nothing to do.
func TestSQLEqualsMigrate(t *testing.T) {
	t.Parallel()
	for _, m := range migrators {
		for _, name := range []string{"", `Second "one"`} {
			for _, joined := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, schema %s, joined %t", m.format, name, joined), func(t *testing.T) {
					t.Parallel()
					migratedURL, databaseURL := pgtest.EmptyDatabase(t), pgtest.EmptyDatabase(t)
					migrate(t, migratedURL, schema.Options{Schema: name})
					var settings []string
					if name != "" {
						settings = []string{"search_path", pgx.Identifier{name}.Sanitize()}
					}
					want := connect(t, migratedURL, settings...)

					runner := connect(t, databaseURL)
					exec(t, runner, "CREATE TABLE goose_db_version (id int)")
					path := scalar[string](t, runner, "SHOW search_path")
					steps := sqlSteps(t, schema.SQLOptions{Schema: name})
					if joined {
						steps = []schema.Step{schema.Join(steps)}
					}
					for _, step := range steps {
						m.up(t, runner, filesOf(t, step, m.format))
					}
					if now := scalar[string](t, runner, "SHOW search_path"); now != path {
						t.Errorf("the search_path is left at %s", now)
					}
					exec(t, runner, "DROP TABLE goose_db_version")

					conn := connect(t, databaseURL, settings...)
					requireSameLines(t, catalog(t, conn), catalog(t, want))
					if got, want := scalar[string](t, conn, functionSettings), scalar[string](t, want, functionSettings); got != want || want == "" {
						t.Errorf("settings of functions: %s, want %s", got, want)
					}
					ledger := "SELECT array_agg(version ORDER BY version) FROM ffx_schema_migrations"
					if got, want := scalar[[]string](t, conn, ledger), scalar[[]string](t, want, ledger); !slices.Equal(got, want) {
						t.Errorf("ledger %q, want %q", got, want)
					}
					eng, err := engine.New(openPool(t, databaseURL, name), engine.Config{NoListener: true})
					if err != nil {
						t.Fatal(err)
					}
					if err := eng.Prepare(t.Context()); err != nil {
						t.Errorf("the engine: %v", err)
					}
					if result := migrate(t, databaseURL, schema.Options{Schema: name}); len(result.Applied) != 0 || result.From != schema.Version {
						t.Errorf("Migrate afterwards: %+v", result)
					}
					if m.down == nil {
						return
					}
					exec(t, runner, "CREATE TABLE goose_db_version (id int)")
					for _, step := range slices.Backward(steps) {
						m.down(t, runner, filesOf(t, step, m.format))
					}
					exec(t, runner, "DROP TABLE goose_db_version")
					if left := catalog(t, conn); len(left) != 0 {
						t.Errorf("left behind: %q", left)
					}
				})
			}
		}
	}
}

// openPool opens a pool on a schema; empty is that of the search_path.
func openPool(t *testing.T, databaseURL, name string) *pgxpool.Pool {
	t.Helper()
	config, err := schema.PoolConfig(databaseURL, name)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// The SQL goes on where Migrate stopped, and Migrate where the SQL did.
func TestSQLAlternatesWithMigrate(t *testing.T) {
	t.Parallel()
	const half = "20261125000005"
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	exec(t, conn, schema.Join(sqlSteps(t, schema.SQLOptions{To: half})).Up)
	if err := schema.Check(t.Context(), conn, schema.Options{}); err == nil || !strings.Contains(err.Error(), "20261125000006") {
		t.Errorf("half way: %v, want it to be too old", err)
	}
	if result := migrate(t, databaseURL, schema.Options{}); result.From != half || result.To != schema.Version {
		t.Errorf("Migrate after the SQL: %+v", result)
	}
	want := catalog(t, conn)
	if _, err := schema.Rollback(t.Context(), databaseURL, half, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	rest := schema.Join(sqlSteps(t, schema.SQLOptions{From: half}))
	exec(t, conn, rest.Up)
	requireSameLines(t, catalog(t, conn), want)
	if err := schema.Check(t.Context(), conn, schema.Options{}); err != nil {
		t.Error(err)
	}
	// Once more: the ledger's key refuses it, and nothing of it stays.
	if _, err := conn.Exec(t.Context(), rest.Up); err == nil || !strings.Contains(err.Error(), "ffx_schema_migrations_pkey") {
		t.Errorf("a second time: %v, want the ledger's key", err)
	}
	requireSameLines(t, catalog(t, conn), want)
	exec(t, conn, rest.Down)
	if state, err := schema.Status(t.Context(), databaseURL, schema.Options{}); err != nil || state.Version != half {
		t.Errorf("taken back to %s, %v", state.Version, err)
	}
}

// A22: a migration makes nothing on other nodes of Citus, for every role.
func TestSQLStaysLocalOnCitus(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.EmptyDatabase(t))
	watchCommands(t, conn)
	all := schema.Join(sqlSteps(t, schema.SQLOptions{}))
	exec(t, conn, all.Up)
	exec(t, conn, all.Down)
	wantLocalCommands(t, conn)
}

func TestSQLRefusesBadInput(t *testing.T) {
	for what, opts := range map[string]schema.SQLOptions{
		"an unknown version to begin after": {From: "1"},
		"an unknown version to end with":    {To: "29990101000000"},
		"versions in the wrong order":       {From: schema.Version, To: "20261101000001"},
		"a schema with a dot":               {Schema: "a.b"},
		"a schema with a dollar sign":       {Schema: "a$settings$"},
	} {
		if steps, err := schema.SQL(opts); err == nil {
			t.Errorf("%s: %d steps, want an error", what, len(steps))
		}
	}
	if steps := sqlSteps(t, schema.SQLOptions{From: schema.Version}); len(steps) != 0 {
		t.Errorf("%d steps after the newest version", len(steps))
	}
	if _, err := (schema.Step{}).Files("flyway"); err == nil || !strings.Contains(err.Error(), "golang-migrate") {
		t.Errorf("%v, want an error that names the formats", err)
	}
}
