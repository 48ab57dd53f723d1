package schema_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// The physical layouts of a database that FlowFabric made.
const (
	partitioned = "partitioned"
	ordinary    = "ordinary"
)

func referenceSQL(t *testing.T, layout string) string {
	t.Helper()
	sql, err := os.ReadFile("testdata/reference_v22.sql")
	if err != nil {
		t.Fatal(err)
	}
	if layout == ordinary {
		return strings.ReplaceAll(string(sql), " PARTITION BY HASH (partition_key)", "")
	}
	return string(sql)
}

func referenceDatabase(t *testing.T, layout string) string {
	t.Helper()
	databaseURL := pgtest.EmptyDatabase(t)
	exec(t, connect(t, databaseURL), referenceSQL(t, layout))
	return databaseURL
}

// adopt converts a database.
func adopt(t *testing.T, databaseURL string) schema.AdoptResult {
	t.Helper()
	result, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// adoptAs is [schema.Adopt] in the form of the other operations.
func adoptAs[D schema.Database](ctx context.Context, database D, opts schema.Options) (schema.Result, error) {
	result, err := schema.Adopt(ctx, database, schema.AdoptOptions{Options: opts})
	return result.Result, err
}

// A converted database equals one of this library's, to the last object, and FlowFabric's objects stay beside it
// until they are dropped.
func TestAdopt(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{partitioned, ordinary} {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			databaseURL, own := referenceDatabase(t, layout), connect(t, pgtest.CloneURL(t))
			conn := connect(t, databaseURL)
			exec(t, conn, `
				INSERT INTO ff_exec_core (
					partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state,
					attempt_state, created_at_ms, raw_fields
				)
				VALUES (
					7, gen_random_uuid(), 'default', 'submitted', 'unowned', 'eligible_now', 'waiting',
					'pending', 1, '{"namespace": "acme", "tags": {"cairn.instance_id": "i-1"}}'
				)`)
			ledger := scalar[string](t, conn, "SELECT string_agg(m::text, ' ' ORDER BY version) FROM _sqlx_migrations AS m")
			old := len(linesOf(catalog(t, conn), func(line string) bool { return strings.HasPrefix(line, "index ") }))

			result := adopt(t, databaseURL)
			if result.To != schema.Version || len(result.Unread) != 0 {
				t.Errorf("%+v, want version %s", result, schema.Version)
			}
			if want := (schema.Converted{Table: "ff_exec_core", Copied: 1, Rewritten: 1}); !slices.Contains(result.Tables, want) {
				t.Errorf("%+v, want %+v", result.Tables, want)
			}
			if err := schema.Check(t.Context(), conn, schema.Options{}); err != nil {
				t.Error(err)
			}
			if state := status(t, databaseURL); state.Origin != schema.OriginAdopted || len(state.Warnings) != 0 {
				t.Errorf("%+v", state)
			}
			if n := len(linesOf(catalog(t, conn), func(line string) bool {
				return strings.Contains(line, " INDEX old_") && strings.Contains(line, " ON old_")
			})); n != old-1 {
				t.Errorf("%d indexes are set aside, want all %d but that of the ledger", n, old)
			}
			if got := scalar[string](t, conn, "SELECT ffx_namespace || ' ' || ffx_instance_tag || ' ' || lifecycle_phase FROM ff_exec_core"); got != "acme i-1 runnable" {
				t.Errorf("a row that was there: %q", got)
			}
			if got := scalar[string](t, conn, "SELECT lifecycle_phase FROM old_ff_exec_core"); got != "submitted" {
				t.Errorf("the old row was changed to %q", got)
			}

			if again := adopt(t, databaseURL); len(again.Applied) != 0 || len(again.Tables) != 0 {
				t.Errorf("second call: %+v, want nothing done", again)
			}
			if result := migrate(t, databaseURL, schema.Options{}); len(result.Applied) != 0 {
				t.Errorf("Migrate afterwards applied %q", result.Applied)
			}
			dropped, err := schema.DropAdopted(t.Context(), databaseURL, schema.Options{})
			if err != nil || len(dropped.Applied) != 34 {
				t.Errorf("dropped %q, %v, want 34 tables", dropped.Applied, err)
			}
			if dropped, err = schema.DropAdopted(t.Context(), databaseURL, schema.Options{}); err != nil || len(dropped.Applied) != 0 {
				t.Errorf("dropped %q again, %v", dropped.Applied, err)
			}
			requireSameLines(t, catalog(t, conn), catalog(t, own))
			requireSameLines(t, described(t, conn), described(t, own))
			requireSameLines(t, physical(t, conn), physical(t, own))
			if got := scalar[string](t, conn, "SELECT string_agg(m::text, ' ' ORDER BY version) FROM _sqlx_migrations AS m"); got != ledger {
				t.Errorf("FlowFabric's ledger was changed to %s", got)
			}
			if _, err := schema.Rollback(t.Context(), databaseURL, "", schema.Options{}); err != nil {
				t.Errorf("Rollback: %v", err)
			}
		})
	}
}

func linesOf(lines []string, keep func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !keep(line) })
}

// All rows of 256 partitions come together, as FlowFabric spreads them.
func TestAdoptOf256Partitions(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	exec(t, conn, referenceSQL(t, ordinary))
	makePartitions(t, conn, "ff_exec_core", 256)
	exec(t, conn, `
		INSERT INTO ff_exec_core (
			partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state, created_at_ms
		)
		SELECT i, gen_random_uuid(), 'default', 'submitted', 'unowned', 'eligible_now', 'waiting', 'pending', 1
		FROM generate_series(0, 255) AS i`)
	adopt(t, databaseURL)
	for _, table := range []string{"ff_exec_core", "ffx_ready"} {
		if n := scalar[int](t, conn, "SELECT count(*) FROM "+table); n != 256 {
			t.Errorf("%d rows of %s, want 256", n, table)
		}
	}
}

// makePartitions gives a plain empty table so many partitions.
func makePartitions(t *testing.T, conn *pgx.Conn, table string, n int) {
	t.Helper()
	exec(t, conn, fmt.Sprintf(`
		ALTER TABLE %[1]s RENAME TO plain;
		CREATE TABLE %[1]s (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (partition_key, execution_id)) PARTITION BY HASH (partition_key);
		DROP TABLE plain;
		DO $$
		BEGIN
			FOR i IN 0..%[2]d - 1 LOOP
				EXECUTE format('CREATE TABLE %[1]s_p%%s PARTITION OF %[1]s FOR VALUES WITH (MODULUS %[2]d, REMAINDER %%s)', i, i);
			END LOOP;
		END;
		$$`, table, n))
}

// An obstacle in the middle ends the call, and the next one continues where it stopped.
func TestAdoptContinuesWhereItStopped(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, partitioned)
	conn := connect(t, databaseURL)
	// In the way of a migration in the middle.
	exec(t, conn, "CREATE TABLE ffx_outbox_consumer (stranger int)")
	if _, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{}); err == nil || !strings.Contains(err.Error(), "ffx_outbox_consumer") {
		t.Fatalf("%v, want an error that names the object", err)
	}
	wantUnconverted(t, databaseURL)
	recorded := scalar[[]string](t, conn, "SELECT array_agg(version) FROM ffx_schema_migrations")
	exec(t, conn, "DROP TABLE ffx_outbox_consumer")
	result := adopt(t, databaseURL)
	if len(recorded) < 3 || len(result.Applied) == 0 {
		t.Errorf("%d steps before the stop, %d migrations after it", len(recorded), len(result.Applied))
	}
	for _, name := range result.Applied {
		if version, _, _ := strings.Cut(name, "_"); slices.Contains(recorded, version) {
			t.Errorf("%s was applied twice", name)
		}
	}
	if err := schema.Check(t.Context(), conn, schema.Options{}); err != nil {
		t.Error(err)
	}
}

// wantUnconverted fails the test unless everything but Adopt refuses a database whose conversion is not done.
func wantUnconverted(t *testing.T, databaseURL string) {
	t.Helper()
	ctx := t.Context()
	call := func(_ schema.Result, err error) error { return err }
	for name, err := range map[string]error{
		"Check":       schema.Check(ctx, connect(t, databaseURL), schema.Options{}),
		"Status":      status(t, databaseURL).Err,
		"Migrate":     call(schema.Migrate(ctx, databaseURL, schema.Options{})),
		"Plan":        call(schema.Plan(ctx, databaseURL, schema.Options{})),
		"Rollback":    call(schema.Rollback(ctx, databaseURL, "", schema.Options{})),
		"Repair":      call(schema.Repair(ctx, databaseURL, schema.Options{})),
		"DropAdopted": call(schema.DropAdopted(ctx, databaseURL, schema.Options{})),
	} {
		if !errors.Is(err, schema.ErrNotAdopted) {
			t.Errorf("%s of a database that is not converted to the end: %v, want ErrNotAdopted", name, err)
		}
	}
	eng, err := engine.New(lazyPool(t, databaseURL), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := eng.Prepare(ctx); !errors.Is(err, fferr.ErrNotMigrated) || !strings.Contains(err.Error(), "schema.Adopt") {
		t.Errorf("Prepare: %v, want ErrNotMigrated that names schema.Adopt", err)
	}
}

func TestAdoptNeverBlocksWritersBehindALockedTable(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, ordinary)
	conn := connect(t, databaseURL)
	exec(t, conn, "BEGIN; LOCK TABLE ff_waitpoint_hmac IN ACCESS SHARE MODE")
	waits := make(logged, 1)
	done := make(chan error, 1)
	go func() {
		_, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{Options: schema.Options{Log: slog.New(waits)}})
		done <- err
	}()
	select {
	case <-waits:
	case err := <-done:
		t.Fatalf("Adopt returned while the table was locked: %v", err)
	}
	exec(t, conn, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A copy that differs from its original ends the conversion, whether rows are missing or other ones are there.
func TestAdoptRefusesACopyThatDiffers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"a row more":    "INSERT INTO ff_lane_registry VALUES ('added', 1, 'x')",
		"a row less":    "DELETE FROM ff_lane_registry WHERE lane_id = 'a'",
		"another value": "UPDATE ff_lane_registry SET registered_at_ms = 2 WHERE lane_id = 'a'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			databaseURL := referenceDatabase(t, ordinary)
			conn := connect(t, databaseURL)
			exec(t, conn, "INSERT INTO ff_lane_registry VALUES ('a', 1, 'x'), ('b', 1, 'x')")
			// Another program writes once the table is copied.
			log := &onRecord{at: func(message string) {
				if message == "copied ff_lane_registry" {
					exec(t, conn, change)
				}
			}}
			opts := schema.AdoptOptions{Options: schema.Options{Log: slog.New(log)}}
			if _, err := schema.Adopt(t.Context(), databaseURL, opts); !errors.Is(err, schema.ErrDifferent) || !strings.Contains(err.Error(), "ff_lane_registry") {
				t.Errorf("%v, want ErrDifferent that names the table", err)
			}
			wantUnconverted(t, databaseURL)
		})
	}
}

// FlowFabric's numbers of partitions must fit its stored rows: with others nothing would be found.
func TestAdoptChecksThePartitions(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, ordinary)
	conn := connect(t, databaseURL)
	for range 20 {
		budget := id.NewBudgetID()
		exec(t, conn, "INSERT INTO ff_budget_policy (partition_key, budget_id, policy_json, created_at_ms, updated_at_ms) VALUES ($1, $2, '{}', 1, 1)",
			id.Partitions{Budget: 57}.BudgetPartition(budget), budget.String())
	}
	before := catalog(t, conn)
	_, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{})
	if !errors.Is(err, schema.ErrPartitions) || !strings.Contains(err.Error(), "57 would fit") {
		t.Errorf("%v, want ErrPartitions that names 57", err)
	}
	requireSameLines(t, catalog(t, conn), before)
	if _, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{Partitions: id.Partitions{Budget: 57}}); err != nil {
		t.Error(err)
	}
}

// A single row in a wrong partition is named, and so can be corrected.
func TestAdoptNamesARowInAWrongPartition(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, ordinary)
	conn := connect(t, databaseURL)
	var misplaced id.FlowID
	for range 20 {
		misplaced = id.NewFlowID()
		exec(t, conn, "INSERT INTO ff_flow_core (partition_key, flow_id, public_flow_state, created_at_ms) VALUES ($1, $2, 'open', 1)",
			id.Partitions{}.FlowPartition(misplaced), misplaced)
	}
	right := id.Partitions{}.FlowPartition(misplaced)
	exec(t, conn, "UPDATE ff_flow_core SET partition_key = (partition_key + 1) % 256 WHERE flow_id = $1", misplaced)
	_, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{})
	if want := fmt.Sprintf("%s in %d instead of %d", misplaced, (right+1)%256, right); !errors.Is(err, schema.ErrPartitions) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want ErrPartitions with %q", err, want)
	}
	exec(t, conn, "UPDATE ff_flow_core SET partition_key = $2 WHERE flow_id = $1", misplaced, right)
	if _, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{}); err != nil {
		t.Error(err)
	}
}

// A missing table is reported before anything is changed.
func TestAdoptNamesAMissingTable(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, ordinary)
	conn := connect(t, databaseURL)
	exec(t, conn, "DROP TABLE ff_quota_window")
	before := catalog(t, conn)
	if _, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{}); !errors.Is(err, schema.ErrForeign) || !strings.Contains(err.Error(), "ff_quota_window") {
		t.Errorf("%v, want ErrForeign that names the table", err)
	}
	requireSameLines(t, catalog(t, conn), before)
}

// FlowFabric's partitioned tables with additions of an unreleased version are no database of this library.
func TestPartitionedTablesAreRefused(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, partitioned)
	conn := connect(t, databaseURL)
	exec(t, conn, "CREATE TABLE ffx_schema_migrations (version varchar PRIMARY KEY)")
	exec(t, conn, "INSERT INTO ffx_schema_migrations VALUES ('adopted'), ('20261101000008'), ($1)", schema.Version)
	wantUnconverted(t, databaseURL)
	if _, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{}); !errors.Is(err, schema.ErrNotAdopted) || !strings.Contains(err.Error(), "backup") {
		t.Errorf("%v, want ErrNotAdopted that says what to do", err)
	}
}

// onRecord is a slog handler that calls a function for each record, with its message and the table it is about.
type onRecord struct{ at func(message string) }

func (o *onRecord) Enabled(context.Context, slog.Level) bool { return true }

func (o *onRecord) Handle(_ context.Context, record slog.Record) error {
	message := record.Message
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "table" || a.Key == "part" || a.Key == "migration" {
			message += " " + a.Value.String()
		}
		return true
	})
	o.at(message)
	return nil
}

func (o *onRecord) WithAttrs([]slog.Attr) slog.Handler { return o }
func (o *onRecord) WithGroup(string) slog.Handler      { return o }

func TestAdoptRefusesAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	if _, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{}); !errors.Is(err, fferr.ErrNotMigrated) {
		t.Errorf("%v, want ErrNotMigrated", err)
	}
	if left := catalog(t, connect(t, databaseURL)); len(left) != 0 {
		t.Errorf("the refused call made %d objects", len(left))
	}
}

func TestAdoptMigratesAnOwnDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	if _, err := schema.Rollback(t.Context(), databaseURL, "20261125000007", schema.Options{}); err != nil {
		t.Fatal(err)
	}
	result, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{})
	if err != nil || result.To != schema.Version {
		t.Errorf("%+v, %v", result, err)
	}
}

// The tables of FlowFabric are the same in a database of ours as in one it made: columns with type,
// default and order, constraints and sequences. Other keys on the outboxes, fewer indexes, and operators' events of one more
// type, the only one that may be without an execution.
func TestMigratedTablesEqualFlowFabrics(t *testing.T) {
	t.Parallel()
	ownURL := pgtest.CloneURL(t)
	shared := func(line string) bool {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "column", "sequence", "function":
			return !strings.Contains(line, "ffx_")
		case "constraint":
			isOutboxKey := slices.ContainsFunc(outboxes, func(o outbox) bool { return strings.HasPrefix(rest, o.table+" "+o.table+"_pkey ") })
			return !strings.Contains(line, "ffx_") && !isOutboxKey
		}
		return false
	}
	want := linesOf(catalog(t, connect(t, referenceDatabase(t, partitioned))), shared)
	for i, line := range want {
		want[i] = withActions(line)
	}
	want = slices.DeleteFunc(want, func(line string) bool { // only PostgreSQL 18 lists it
		return strings.HasPrefix(line, "constraint ff_operator_event ff_operator_event_execution_id_not_null ")
	})
	requireSameLines(t, linesOf(catalog(t, connect(t, ownURL)), shared), append(want, actionConstraint))
}

// logged is a slog handler that passes warnings on.
type logged chan slog.Record

func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l logged) Handle(_ context.Context, record slog.Record) error {
	select {
	case l <- record:
	default:
	}
	return nil
}

func (l logged) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l logged) WithGroup(string) slog.Handler      { return l }

// actionConstraint is a constraint on operators' events that FlowFabric does not have.
const actionConstraint = "constraint ff_operator_event ff_operator_event_execution_id_check CHECK (((execution_id IS NOT NULL) OR (event_type = 'action'::text)))"

// withActions returns a line about a table of FlowFabric as it is with the operators' events of recorded actions.
func withActions(line string) string {
	switch {
	case strings.HasPrefix(line, "column ff_operator_event 2 execution_id "):
		return strings.Replace(line, "not null t", "not null f", 1)
	case strings.HasPrefix(line, "constraint ff_operator_event ff_operator_event_event_type_check "):
		return strings.Replace(line, "'flow_cancel_requested'::text]", "'flow_cancel_requested'::text, 'action'::text]", 1)
	}
	return line
}
