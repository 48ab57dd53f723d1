package schema_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

func status(t *testing.T, databaseURL string) schema.State {
	t.Helper()
	state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// shared is how many objects make a database a shared one: three indexes, and the triggers.
const shared = 3 + 4

func share(t *testing.T, databaseURL string, undo bool, want int) {
	t.Helper()
	change := schema.Share[string]
	if undo {
		change = schema.Unshare[string]
	}
	result, err := change(t.Context(), databaseURL, schema.Options{})
	if err != nil || len(result.Applied) != want {
		t.Fatalf("undo %v: %+v, %v; want %d objects", undo, result, err, want)
	}
	if state := status(t, databaseURL); state.Shared == undo || state.Err != nil || len(state.Warnings) != 0 {
		t.Errorf("undo %v: shared %v, %v, %q", undo, state.Shared, state.Err, state.Warnings)
	}
	if switched := scalar[bool](t, connect(t, databaseURL), "SELECT ffx_shared()"); switched == undo {
		t.Errorf("undo %v: ffx_shared() is %v", undo, switched)
	}
}

// The indexes are those of the reference, in a database with rows, and all are gone again.
func TestShare(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	migrate(t, databaseURL, schema.Options{})
	before := catalog(t, conn)
	exec(t, conn, `INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state,
			public_state, attempt_state, created_at_ms)
		SELECT i % 256, gen_random_uuid(), 'lane', 'runnable', 'unowned', 'eligible_now', 'waiting', 'pending_first_attempt', i
		FROM generate_series(1, 1000) AS i`)
	share(t, databaseURL, false, shared)
	share(t, databaseURL, false, 0)

	reference := connect(t, referenceDatabase(t, ordinary))
	for _, name := range []string{"ff_exec_core_lane_phase_idx", "ff_attempt_lease_expiry_idx", "ff_completion_event_lookup_idx"} {
		const definition = "SELECT pg_get_indexdef($1::regclass)"
		// Of a condition that holds for every row only the planner takes notice.
		got := strings.TrimSuffix(scalar[string](t, conn, definition, name), " WHERE (lane_id IS NOT NULL)")
		if want := scalar[string](t, reference, definition, name); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	share(t, databaseURL, true, shared)
	share(t, databaseURL, true, 0)
	if after := catalog(t, conn); !slices.Equal(after, before) {
		t.Error("shared and back, the database is another one")
	}
}

// The remains of an interrupted call are made again.
func TestShareContinuesAfterAnInterruption(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	migrate(t, databaseURL, schema.Options{})
	// An index is not finished while a transaction from before it is open that has written to the table.
	writer := connect(t, databaseURL)
	exec(t, writer, "BEGIN")
	exec(t, writer, "LOCK TABLE ff_attempt IN ROW EXCLUSIVE MODE")
	ended := make(chan error, 1)
	go func() {
		_, err := schema.Share(t.Context(), databaseURL, schema.Options{})
		ended <- err
	}()
	for scalar[int](t, conn, "SELECT count(*)::integer FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE c.relname = 'ff_attempt_lease_expiry_idx'") == 0 {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	// Writers are not held up by it.
	exec(t, conn, "INSERT INTO ff_attempt (partition_key, execution_id, attempt_index) VALUES (1, gen_random_uuid(), 0)")
	exec(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY ff_attempt%'`)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "make ff_attempt_lease_expiry_idx") {
		t.Errorf("interrupted: %v", err)
	}
	exec(t, writer, "ROLLBACK")
	state := status(t, databaseURL)
	if state.Shared || state.Err != nil || len(state.Warnings) != 1 || !strings.Contains(state.Warnings[0], "ff migrate share") {
		t.Errorf("after an interruption: %v, %v, %q", state.Shared, state.Err, state.Warnings)
	}
	share(t, databaseURL, false, 2) // indexes
}

// A missing trigger is reported, and made again. Meanwhile the switch is off.
func TestShareCompletesTheTriggers(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	migrate(t, databaseURL, schema.Options{})
	share(t, databaseURL, false, shared)
	exec(t, conn, "DROP TRIGGER ffx_ff_exec_core_foreign_trg ON ff_exec_core")
	state := status(t, databaseURL)
	if state.Shared || state.Err != nil || len(state.Warnings) != 1 || !strings.Contains(state.Warnings[0], "ff migrate share") {
		t.Errorf("without a trigger: %v, %v, %q", state.Shared, state.Err, state.Warnings)
	}
	if scalar[bool](t, conn, "SELECT ffx_shared()") {
		t.Error("ffx_shared() is true without a trigger")
	}
	share(t, databaseURL, false, 1)
}

// The triggers, which are the switch, exist before the indexes are complete.
func TestShareMakesTriggersFirst(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	migrate(t, databaseURL, schema.Options{})
	reader := connect(t, databaseURL)
	exec(t, reader, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, reader, "SELECT FROM ff_attempt")
	ended := make(chan error, 1)
	go func() {
		_, err := schema.Share(t.Context(), databaseURL, schema.Options{})
		ended <- err
	}()
	for !scalar[bool](t, conn, "SELECT ffx_shared()") {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	// The reader's snapshot holds up the first index.
	if state := status(t, databaseURL); state.Shared {
		t.Error("is wholly shared while its indexes are being made")
	}
	exec(t, reader, "ROLLBACK")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A rollback takes the triggers along, and a database of the version before has the one that it had.
func TestRollbackOfASharedDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	migrate(t, databaseURL, schema.Options{})
	share(t, databaseURL, false, shared)
	if _, err := schema.Rollback(t.Context(), databaseURL, "20261125000019", schema.Options{}); err != nil {
		t.Fatal(err)
	}
	if state := status(t, databaseURL); len(state.Warnings) != 0 {
		t.Errorf("of the version before: %q", state.Warnings)
	}
	migrate(t, databaseURL, schema.Options{})
	if state := status(t, databaseURL); state.Shared || len(state.Warnings) != 1 {
		t.Errorf("migrated again: %v, %q", state.Shared, state.Warnings)
	}
	share(t, databaseURL, false, shared-3)
	share(t, databaseURL, true, shared)
}

func TestShareRefusesAnUnmigratedDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	if _, err := schema.Share(t.Context(), databaseURL, schema.Options{}); !errors.Is(err, schema.ErrNotMigrated) {
		t.Errorf("%v, want not migrated", err)
	}
}

// A converted database is like any other: it has the indexes once they are made.
func TestShareOfAnAdoptedDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, partitioned)
	adopt(t, databaseURL)
	if status(t, databaseURL).Shared {
		t.Error("is shared before anything was made")
	}
	share(t, databaseURL, false, shared)
	share(t, databaseURL, true, shared)
}
