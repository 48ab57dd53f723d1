package operators

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

const stateReplayedGated = "runnable unowned blocked_by_budget rate_limited pending_replay_attempt waiting_for_budget"

// operatorEvents returns the operator events of an execution in order.
func operatorEvents(t *testing.T, f *fixture.Fixture, x id.ExecutionID) []string {
	t.Helper()
	return fixture.Texts(t, f.Pool, `
		SELECT event_type || ' ' || details::text FROM ff_operator_event
		WHERE partition_key = $1::smallint AND execution_id = ($2::uuid)::text AND occurred_at_ms IS NOT NULL
			AND namespace = 'default' ORDER BY event_id`, x.Partition(), x.UUID())
}

// A refusal in a caller's transaction leaves no lock behind, and a success locks for as long as that is open.
func TestOperatorRefusalLeavesNoLock(t *testing.T) {
	f := fixture.New(t)
	running, delayed := f.Start(t).ID, f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.Time().Add(time.Hour) })
	tx := f.BeginTx(t)
	o := f.WithTx(tx)
	for name, err := range map[string]error{
		"priority": operator.Prioritize(t.Context(), o, running, 3),
		"delay":    operator.Delay(t.Context(), o, running, f.Time().Add(time.Hour)),
		"move":     operator.Move(t.Context(), o, running, f.Lane+".other"),
		"replay":   func() error { _, err := operator.Replay(t.Context(), o, running, operator.ReplayCompleted); return err }(),
		"again":    operator.Prioritize(t.Context(), o, delayed, 3),
	} {
		state, ok := errors.AsType[*fferr.StateError](err)
		if !ok || !errors.Is(err, state.Err) {
			t.Errorf("%s: got %v, want the state it is in", name, err)
		}
	}
	if revoked, err := operator.Revoke(t.Context(), o, operator.RevokeSpec{ID: running, Instance: "another"}); err != nil || revoked.NotRevoked != operator.AnotherInstance {
		t.Errorf("revoked %+v, %v", revoked, err)
	}
	for _, x := range []id.ExecutionID{running, delayed} {
		if !f.Free(t, "ff_exec_core", x) || x == running && !f.Free(t, "ff_attempt", x) {
			t.Errorf("%s is locked", x)
		}
	}
	if err := operator.Delay(t.Context(), o, delayed, f.Time()); err != nil {
		t.Fatal(err)
	}
	if f.Free(t, "ff_exec_core", delayed) {
		t.Error("nothing is locked")
	}
	fixture.Commit(t, tx)
}

// An id that this database cannot have, or does not.
func TestOperatorReportsMissingExecutions(t *testing.T) {
	f := fixture.New(t)
	absent := id.NewExecutionID(f.Lane, id.Partitions{})
	for _, c := range []struct {
		x    id.ExecutionID
		want error
	}{{absent, fferr.ErrNotFound}, {id.ExecutionID{}, fferr.ErrInvalidInput}} {
		_, replay := operator.Replay(t.Context(), f.Engine, c.x, operator.ReplayCompleted)
		_, revoke := operator.Revoke(t.Context(), f.Engine, operator.RevokeSpec{ID: c.x})
		for name, err := range map[string]error{
			"priority": operator.Prioritize(t.Context(), f.Engine, c.x, 3),
			"delay":    operator.Delay(t.Context(), f.Engine, c.x, f.Time()),
			"move":     operator.Move(t.Context(), f.Engine, c.x, f.Lane),
			"replay":   replay,
			"revoke":   revoke,
		} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		}
	}
}

// storedRows returns the whole rows of an execution and of its attempts, as JSON values by column.
func storedRows(t *testing.T, f *fixture.Fixture, x id.ExecutionID) (execution map[string]any, attempts []map[string]any) {
	t.Helper()
	where := "partition_key = $1::smallint AND execution_id = $2::uuid"
	execution = fixture.StoredRow(t, f.Pool, "ff_exec_core", where, x.Partition(), x.UUID())
	for _, document := range fixture.Texts(t, f.Pool, "SELECT to_jsonb(r)::text FROM ff_attempt AS r WHERE "+where+" ORDER BY attempt_index", x.Partition(), x.UUID()) {
		attempts = append(attempts, fixture.DecodeRow(t, document))
	}
	return execution, attempts
}

// wantChanged fails the test where other columns than these were changed, or to other values.
func wantChanged(t *testing.T, what string, before, after map[string]any, want map[string]any) {
	t.Helper()
	expected := make(map[string]any)
	for column, value := range before {
		expected[column] = value
	}
	for column, value := range want {
		if n, ok := value.(int64); ok {
			value = float64(n)
		}
		if n, ok := value.(int); ok {
			value = float64(n)
		}
		if _, known := before[column]; !known {
			t.Fatalf("%s: there is no column %s", what, column)
		}
		expected[column] = value
	}
	fixture.WantEqual(t, what, after, expected)
}

// queued returns the lane, rank and age of an execution's queue entries.
func queued(t *testing.T, f *fixture.Fixture, x id.ExecutionID) []string {
	t.Helper()
	return fixture.Texts(t, f.Pool, "SELECT concat_ws(' ', rank, created_at_ms) FROM ffx_ready WHERE partition_key = $1::smallint AND execution_id = $2::uuid", x.Partition(), x.UUID())
}

// holdRow is another program that has the row of an execution.
func holdRow(t *testing.T, f *fixture.Fixture, x id.ExecutionID) pgx.Tx {
	t.Helper()
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, x)
	return tx
}

func nowMs(f *fixture.Fixture) int64 { return f.Time().UnixMilli() }

func entry(rank int, createdAtMs int64) string { return fmt.Sprint(rank, " ", createdAtMs) }
