package schema_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

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

func TestAdopt(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{partitioned, ordinary} {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			databaseURL, ownURL := referenceDatabase(t, layout), pgtest.CloneURL(t)
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
			before := catalog(t, conn)

			result, err := schema.Adopt(t.Context(), databaseURL, schema.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if result.To != schema.Version {
				t.Errorf("adopted to %q, want %s", result.To, schema.Version)
			}
			if err := schema.Check(t.Context(), conn, schema.Options{}); err != nil {
				t.Error(err)
			}
			state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
			if err != nil || state.Origin != schema.OriginAdopted || state.Partitioned != (layout == partitioned) {
				t.Errorf("%+v, %v", state, err)
			}

			// What is ours is as in a database of our own; what was there stays, save the five triggers.
			after := catalog(t, conn)
			requireSameLines(t, linesOf(after, isOurs), linesOf(catalog(t, connect(t, ownURL)), isOurs))
			requireSameLines(t, linesOf(after, isTheirs), linesOf(before, isTheirs))
			rowLevel := scalar[int](t, conn, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'ff\\_%\\_notify\\_trg' AND tgtype & 1 = 1")
			if rowLevel != 0 {
				t.Errorf("%d row-level notify triggers are left, on parents or children", rowLevel)
			}
			if got := scalar[string](t, conn, "SELECT ffx_namespace || ' ' || ffx_instance_tag FROM ff_exec_core"); got != "acme i-1" {
				t.Errorf("generated columns of a row that was there: %q", got)
			}
			if n := scalar[int](t, conn, "SELECT count(*) FROM _sqlx_migrations"); n != 21 {
				t.Errorf("FlowFabric's ledger has %d rows, want its own 21", n)
			}

			again, err := schema.Adopt(t.Context(), databaseURL, schema.Options{})
			if err != nil || len(again.Applied) != 0 {
				t.Errorf("second call: %+v, %v, want nothing applied", again, err)
			}
			if result := migrate(t, databaseURL, schema.Options{}); len(result.Applied) != 0 {
				t.Errorf("Migrate afterwards applied %q", result.Applied)
			}
			if _, err := schema.Rollback(t.Context(), databaseURL, "", schema.Options{}); !errors.Is(err, schema.ErrAdopted) {
				t.Errorf("Rollback: %v, want ErrAdopted", err)
			}
		})
	}
}

// isOurs and isTheirs leave out the five replaced triggers and, of the lines that are in a database
// of either kind, the keys and indexes that differ on purpose.
func isOurs(line string) bool {
	return strings.Contains(line, "ffx_") && !isReplaced(line)
}

func isTheirs(line string) bool {
	return !strings.Contains(line, "ffx_") && !isReplaced(line)
}

func isReplaced(line string) bool { return strings.Contains(line, "_notify_trg") }

func linesOf(lines []string, keep func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !keep(line) })
}

func TestAdoptContinuesWhereItStopped(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, partitioned)
	conn := connect(t, databaseURL)
	// In the way of an object in the middle.
	exec(t, conn, "CREATE TABLE ffx_outbox_consumer (stranger int)")
	if _, err := schema.Adopt(t.Context(), databaseURL, schema.Options{}); err == nil || !strings.Contains(err.Error(), "ffx_outbox_consumer") {
		t.Fatalf("%v, want an error that names the object", err)
	}
	if err := schema.Check(t.Context(), conn, schema.Options{}); !errors.Is(err, schema.ErrTooOld) {
		t.Errorf("half adopted: %v, want ErrTooOld", err)
	}
	recorded := scalar[[]string](t, conn, "SELECT array_agg(version) FROM ffx_schema_migrations WHERE version LIKE '%/%'")
	exec(t, conn, "DROP TABLE ffx_outbox_consumer")
	result, err := schema.Adopt(t.Context(), databaseURL, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(recorded) == 0 || len(result.Applied) == 0 {
		t.Errorf("%d objects before the stop, %d after it", len(recorded), len(result.Applied))
	}
	for _, object := range result.Applied {
		if slices.Contains(recorded, object) {
			t.Errorf("%s was applied twice", object)
		}
	}
	if err := schema.Check(t.Context(), conn, schema.Options{}); err != nil {
		t.Error(err)
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
		_, err := schema.Adopt(t.Context(), databaseURL, schema.Options{Log: slog.New(waits)})
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

func TestAdoptRefusesAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	if _, err := schema.Adopt(t.Context(), databaseURL, schema.Options{}); !errors.Is(err, schema.ErrNotMigrated) {
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
	result, err := schema.Adopt(t.Context(), databaseURL, schema.Options{})
	if err != nil || result.To != schema.Version {
		t.Errorf("%+v, %v", result, err)
	}
}

// The tables of FlowFabric are the same in a database of ours as in one it made: columns with type,
// default and order, constraints and sequences. Other keys on the outboxes, fewer indexes.
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
	requireSameLines(t,
		linesOf(catalog(t, connect(t, ownURL)), shared),
		linesOf(catalog(t, connect(t, referenceDatabase(t, partitioned))), shared))
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
