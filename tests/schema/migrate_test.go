package schema_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

func TestVersionIsTheNewestMigration(t *testing.T) {
	files, err := os.ReadDir("../../schema/migrations")
	if err != nil {
		t.Fatal(err)
	}
	newest, _, _ := strings.Cut(files[len(files)-1].Name(), "_")
	if schema.Version != newest {
		t.Errorf("Version is %s, the newest migration %s", schema.Version, newest)
	}
}

func TestMigrateEmptyDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	first := migrate(t, databaseURL, schema.Options{})
	if first.From != "" || first.To != schema.Version || len(first.Applied) == 0 {
		t.Errorf("first call: %+v, want everything up to %s applied", first, schema.Version)
	}
	if err := schema.Check(t.Context(), connect(t, databaseURL), schema.Options{}); err != nil {
		t.Error(err)
	}
	again := migrate(t, databaseURL, schema.Options{})
	if again.From != schema.Version || again.To != schema.Version || len(again.Applied) != 0 {
		t.Errorf("second call: %+v, want nothing applied", again)
	}
}

func TestMigrateContinuesFromAnyVersion(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	migrate(t, databaseURL, schema.Options{})
	want := catalog(t, conn)
	state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Each rollback runs the ways down and up of all later migrations. Outside a soak: from the newest two, and from some.
	newest, step := len(state.Migrations)-1, soak.Size(t, 6, 1)
	for i, m := range slices.Backward(state.Migrations) {
		if i < newest-1 && i%step != 0 {
			continue
		}
		result, err := schema.Rollback(t.Context(), databaseURL, m.Version, schema.Options{})
		if err != nil || result.To != m.Version {
			t.Fatalf("roll back to %s: %+v, %v", m.Version, result, err)
		}
		if err := schema.Check(t.Context(), conn, schema.Options{}); m.Version != schema.Version && !errors.Is(err, schema.ErrTooOld) {
			t.Errorf("at %s: %v, want ErrTooOld", m.Version, err)
		}
		if result := migrate(t, databaseURL, schema.Options{}); result.From != m.Version || result.To != schema.Version {
			t.Errorf("from %s: %+v", m.Version, result)
		}
		requireSameLines(t, catalog(t, conn), want)
	}
}

func TestRollbackRefusesBadInput(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	if result, err := schema.Rollback(t.Context(), databaseURL, "", schema.Options{}); err != nil || len(result.Applied) != 0 {
		t.Errorf("an empty database: %+v, %v, want nothing to do", result, err)
	}
	migrate(t, databaseURL, schema.Options{})
	if _, err := schema.Rollback(t.Context(), databaseURL, "20260000000000", schema.Options{}); err == nil {
		t.Error("an unknown version was accepted")
	}
	if err := schema.Check(t.Context(), connect(t, databaseURL), schema.Options{}); err != nil {
		t.Errorf("the refused rollback changed something: %v", err)
	}
}

func TestMigrateFailureNamesTheFileAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	exec(t, conn, "CREATE TABLE ff_worker_registry ()")
	_, err := schema.Migrate(t.Context(), databaseURL, schema.Options{})
	if err == nil || !strings.Contains(err.Error(), "20261101000007_workers.sql") || !strings.Contains(err.Error(), "42P07") {
		t.Fatalf("%v, want an error that names the file and the cause", err)
	}
	exec(t, conn, "DROP TABLE ff_worker_registry")
	if result := migrate(t, databaseURL, schema.Options{}); result.From != "20261101000006" || result.To != schema.Version {
		t.Errorf("%+v, want to go on from 20261101000006", result)
	}
}

// M27: the reference's servers race on DDL when several start at once.
func TestMigratorsWaitForEachOther_M27(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	const migrators = 4
	var wg sync.WaitGroup
	results := make([]schema.Result, migrators)
	errs := make([]error, migrators)
	start := make(chan struct{})
	for i := range migrators {
		wg.Go(func() {
			<-start
			results[i], errs[i] = schema.Migrate(t.Context(), databaseURL, schema.Options{})
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	applied := 0
	for _, result := range results {
		if len(result.Applied) > 0 {
			applied++
		}
	}
	if applied != 1 {
		t.Errorf("%d of %d applied migrations, want one", applied, migrators)
	}
}

// flowFabricsLock is the advisory lock of FlowFabric's migrator for the connection's database.
func flowFabricsLock(t *testing.T, conn *pgx.Conn) int64 {
	t.Helper()
	return 0x3d32ad9e * int64(crc32.ChecksumIEEE([]byte(scalar[string](t, conn, "SELECT current_database()"))))
}

// The lock is the one that FlowFabric's migrator holds at session level while it migrates.
func TestMigrateWaitsForFlowFabric_M27(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	key := flowFabricsLock(t, conn)
	exec(t, conn, "SELECT pg_advisory_lock($1)", key)

	done := make(chan error, 1)
	go func() {
		_, err := schema.Migrate(t.Context(), databaseURL, schema.Options{})
		done <- err
	}()
	waitFor(t, conn, migratorWaits)
	select {
	case err := <-done:
		t.Fatalf("Migrate returned while FlowFabric held the lock: %v", err)
	default:
	}
	exec(t, conn, "SELECT pg_advisory_unlock($1)", key)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestMigrateCanBeCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	exec(t, conn, "SELECT pg_advisory_lock($1)", flowFabricsLock(t, conn))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := schema.Migrate(ctx, databaseURL, schema.Options{})
		done <- err
	}()
	waitFor(t, conn, migratorWaits)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want context.Canceled", err)
	}
	if left := catalog(t, conn); len(left) != 0 {
		t.Errorf("a cancelled call made %d objects", len(left))
	}
}

func TestMigrateTwoSchemas(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	migrate(t, databaseURL, schema.Options{})
	// A name that only quoting keeps in one piece.
	for _, name := range []string{"second", `Third "Engine"`} {
		migrate(t, databaseURL, schema.Options{Schema: name})
		public := connect(t, databaseURL, "search_path", "public")
		other := connect(t, databaseURL, "search_path", pgx.Identifier{name}.Sanitize())
		if err := schema.Check(t.Context(), other, schema.Options{}); err != nil {
			t.Fatal(err)
		}
		requireSameLines(t, catalog(t, other), catalog(t, public))

		// A deletion from a session that looks at the one schema, in a table of the other.
		table := pgx.Identifier{name, "ff_operator_event"}.Sanitize()
		exec(t, public, "INSERT INTO "+table+" (execution_id, event_type, occurred_at_ms, partition_key) VALUES ('x', 'replayed', 1, 1)")
		exec(t, public, "DELETE FROM "+table)
		if n := scalar[int](t, other, "SELECT count(*) FROM ffx_outbox_floor WHERE outbox = 'operator' AND floor_event_id = 1"); n != 1 {
			t.Errorf("schema %s: its floor was not raised", name)
		}
		if n := scalar[int](t, public, "SELECT count(*) FROM ffx_outbox_floor"); n != 0 {
			t.Errorf("schema %s: its deletion raised the floor of another schema", name)
		}
		exec(t, public, "TRUNCATE "+table)
		if n := scalar[int](t, public, "SELECT count(*) FROM ffx_outbox_floor"); n != 0 {
			t.Errorf("schema %s: its truncation raised the floor of another schema", name)
		}
	}

	// The search_path of the URL chooses as well, and only its first schema is looked at.
	exec(t, connect(t, databaseURL), "CREATE SCHEMA fourth")
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = url.Values{"search_path": {"fourth,public"}}.Encode()
	if state, err := schema.Status(t.Context(), u.String(), schema.Options{}); err != nil || state.Schema != "fourth" || state.Origin != schema.OriginNone {
		t.Errorf("status %+v, %v, want an empty schema fourth", state, err)
	}
	migrate(t, u.String(), schema.Options{})
	if _, err := schema.Rollback(t.Context(), u.String(), "", schema.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(t.Context(), connect(t, databaseURL), schema.Options{}); err != nil {
		t.Errorf("the rollback of one schema reached another: %v", err)
	}
}

func TestMigrateRefusesAnUnaddressableSchema(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	if _, err := schema.Migrate(t.Context(), databaseURL, schema.Options{Schema: "a.b"}); err == nil {
		t.Error("a schema name with a dot was accepted")
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = url.Values{"search_path": {"nowhere"}}.Encode()
	if _, err := schema.Migrate(t.Context(), u.String(), schema.Options{}); err == nil {
		t.Error("a search_path that leads nowhere was accepted")
	}
}

func TestMigrateErrorsHoldNoPassword(t *testing.T) {
	t.Parallel()
	server, err := url.Parse(pgtest.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	const secret = "hunter2secret"
	for _, databaseURL := range []string{
		"mysql://joe:" + secret + "@localhost/x",
		"joe:" + secret + "@localhost/x",
		"host=localhost password=" + secret,
		"postgres://joe:" + secret + "/@localhost:1/x",
		"postgres://joe:" + secret + "%zz@localhost:1/x",
		"postgres://joe:" + secret + "@localhost:" + secret + "/x",
		"postgres://joe:" + secret + "@localhost:1/x?sslmode=" + secret,
		"postgres://joe:" + secret + "@127.0.0.1:1/x",
		fmt.Sprintf("postgres://joe:%s@%s/x", secret, server.Host),
		fmt.Sprintf("postgres://%s@%s/nothing_here?application_name=x", server.User, server.Host),
	} {
		password, _ := server.User.Password()
		var log bytes.Buffer
		opts := schema.Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		_, migrateErr := schema.Migrate(t.Context(), databaseURL, opts)
		_, rollbackErr := schema.Rollback(t.Context(), databaseURL, "", opts)
		_, adoptErr := adoptAs(t.Context(), databaseURL, opts)
		_, statusErr := schema.Status(t.Context(), databaseURL, opts)
		for _, err := range []error{migrateErr, rollbackErr, adoptErr, statusErr} {
			if err == nil {
				t.Fatal("a bad URL was accepted")
			}
			if text := err.Error() + log.String(); strings.Contains(text, secret) || strings.Contains(text, ":"+password+"@") {
				t.Errorf("the password is in: %s", text)
			}
		}
	}
}

// migratorWaits is true while a session in this database waits for an advisory lock.
const migratorWaits = `
	SELECT EXISTS (
		SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
		WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
	)`

// waitFor returns once query is true.
func waitFor(t *testing.T, conn *pgx.Conn, query string) {
	t.Helper()
	progress.Until(t, query, func() bool { return scalar[bool](t, conn, query) })
}

func status(t *testing.T, databaseURL string) schema.State {
	t.Helper()
	state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return state
}
