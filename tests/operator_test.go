package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// The states that replays store.
const (
	stateReplayed      = "runnable unowned eligible_now waiting pending_replay_attempt waiting_for_worker"
	stateReplayedHeld  = "runnable unowned blocked_by_dependencies waiting_children pending_replay_attempt waiting_for_children"
	stateReplayedGated = "runnable unowned blocked_by_budget rate_limited pending_replay_attempt waiting_for_budget"
)

// operatorOperations are the calls of an operator on one execution.
func operatorOperations() []operation {
	ready := func(t *testing.T, f *fixture) engine.Lease {
		return engine.Lease{Fence: engine.Fence{Execution: f.create(t)}}
	}
	elsewhere := func(ctx context.Context, f *fixture, change func(*engine.ExecutionSpec)) (id.ExecutionID, error) {
		spec := engine.ExecutionSpec{Kind: "test", Lane: f.lane + ".else"}
		change(&spec)
		created, err := f.CreateExecution(ctx, spec)
		return created.ID, err
	}
	return []operation{
		{
			name: "change priority", arrange: ready, stored: stateReady, reason: engine.ErrNotEligible,
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				return e.Operator().ChangePriority(ctx, l.Execution, 7)
			},
			refused: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				x, err := elsewhere(ctx, f, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.now().Add(time.Hour) })
				return errors.Join(err, e.Operator().ChangePriority(ctx, x, 7))
			},
		},
		{
			name: "delay what waits", arrange: ready, stored: stateDelayed, reason: engine.ErrNotFound,
			do: func(ctx context.Context, f *fixture, e *engine.Engine, l engine.Lease) error {
				return e.Operator().DelayExecution(ctx, l.Execution, f.now().Add(time.Hour))
			},
			refused: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				return e.Operator().DelayExecution(ctx, id.NewExecutionID(f.lane, id.Partitions{}), f.now())
			},
		},
		{
			name: "revoke a lease", arrange: func(t *testing.T, f *fixture) engine.Lease { return f.start(t).Lease },
			stored: stateReturned, reason: errIdle,
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				revoked, err := e.Operator().RevokeLease(ctx, engine.RevokeSpec{ID: l.Execution})
				if err == nil && revoked.NotRevoked != "" {
					err = errIdle
				}
				return err
			},
			refused: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				revoked, err := e.Operator().RevokeLease(ctx, engine.RevokeSpec{ID: l.Execution, Instance: "another"})
				if err == nil && revoked.NotRevoked == engine.AnotherInstance {
					err = errIdle
				}
				return err
			},
		},
		{
			name: "replay", stored: stateReplayed, reason: engine.ErrNotEnded,
			arrange: func(t *testing.T, f *fixture) engine.Lease {
				l := f.start(t).Lease
				f.fail(t, l, forGood)
				return l
			},
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				_, err := e.Operator().ReplayExecution(ctx, l.Execution)
				return err
			},
			refused: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				x, err := elsewhere(ctx, f, func(*engine.ExecutionSpec) {})
				_, refused := e.Operator().ReplayExecution(ctx, x)
				return errors.Join(err, refused)
			},
		},
	}
}

// operatorEvents returns the operator events of an execution in order.
func (f *fixture) operatorEvents(t *testing.T, x id.ExecutionID) []string {
	t.Helper()
	return texts(t, f.pool, `
		SELECT event_type || ' ' || details::text FROM ff_operator_event
		WHERE partition_key = $1::smallint AND execution_id = ($2::uuid)::text AND occurred_at_ms IS NOT NULL
			AND namespace = 'default' ORDER BY event_id`, x.Partition(), x.UUID())
}

// What is refused in a caller's transaction leaves no lock behind, and what is not locks for as long as that is open.
func TestOperator_a_refusal_leaves_no_lock(t *testing.T) {
	f := newFixture(t)
	running, delayed := f.start(t).ID, f.create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.now().Add(time.Hour) })
	tx := f.begin(t)
	o := f.WithTx(tx).Operator()
	for name, err := range map[string]error{
		"priority": o.ChangePriority(t.Context(), running, 3),
		"delay":    o.DelayExecution(t.Context(), running, f.now().Add(time.Hour)),
		"replay":   func() error { _, err := o.ReplayExecution(t.Context(), running); return err }(),
		"again":    o.ChangePriority(t.Context(), delayed, 3),
	} {
		state, ok := errors.AsType[*engine.StateError](err)
		if !ok || !errors.Is(err, state.Err) {
			t.Errorf("%s: got %v, want the state it is in", name, err)
		}
	}
	if revoked, err := o.RevokeLease(t.Context(), engine.RevokeSpec{ID: running, Instance: "another"}); err != nil || revoked.NotRevoked != engine.AnotherInstance {
		t.Errorf("revoked %+v, %v", revoked, err)
	}
	for _, x := range []id.ExecutionID{running, delayed} {
		if !f.free(t, "ff_exec_core", x) || x == running && !f.free(t, "ff_attempt", x) {
			t.Errorf("%s is locked", x)
		}
	}
	if err := o.DelayExecution(t.Context(), delayed, f.now()); err != nil {
		t.Fatal(err)
	}
	if f.free(t, "ff_exec_core", delayed) {
		t.Error("nothing is locked")
	}
	commit(t, tx)
}

// An id that this database cannot have, or does not.
func TestOperator_of_nothing(t *testing.T) {
	f := newFixture(t)
	absent := id.NewExecutionID(f.lane, id.Partitions{})
	for _, c := range []struct {
		x    id.ExecutionID
		want error
	}{{absent, engine.ErrNotFound}, {id.ExecutionID{}, engine.ErrInvalidInput}} {
		_, replay := f.Operator().ReplayExecution(t.Context(), c.x)
		_, revoke := f.Operator().RevokeLease(t.Context(), engine.RevokeSpec{ID: c.x})
		for name, err := range map[string]error{
			"priority": f.Operator().ChangePriority(t.Context(), c.x, 3),
			"delay":    f.Operator().DelayExecution(t.Context(), c.x, f.now()),
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
func (f *fixture) storedRows(t *testing.T, x id.ExecutionID) (execution map[string]any, attempts []map[string]any) {
	t.Helper()
	where := "partition_key = $1::smallint AND execution_id = $2::uuid"
	execution = storedRow(t, f.pool, "ff_exec_core", where, x.Partition(), x.UUID())
	for _, document := range texts(t, f.pool, "SELECT to_jsonb(r)::text FROM ff_attempt AS r WHERE "+where+" ORDER BY attempt_index", x.Partition(), x.UUID()) {
		attempts = append(attempts, decodeRow(t, document))
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
	wantEqual(t, what, after, expected)
}

// queued returns the lane, rank and age of an execution's queue entries.
func (f *fixture) queued(t *testing.T, x id.ExecutionID) []string {
	t.Helper()
	return texts(t, f.pool, "SELECT concat_ws(' ', rank, created_at_ms) FROM ffx_ready WHERE partition_key = $1::smallint AND execution_id = $2::uuid", x.Partition(), x.UUID())
}

// holdRow is another program that has the row of an execution.
func (f *fixture) holdRow(t *testing.T, x id.ExecutionID) pgx.Tx {
	t.Helper()
	tx := f.begin(t)
	lockExecution(t, tx, x)
	return tx
}

func nowMs(f *fixture) int64 { return f.now().UnixMilli() }

func entry(rank int, createdAtMs int64) string { return fmt.Sprint(rank, " ", createdAtMs) }
