package schema_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schema"
)

// waiting inserts an execution that waits in FlowFabric's way, with a waitpoint for "a", and returns the holder's part of
// the link.
func waiting(t *testing.T, conn *pgx.Conn, phase, condition, memberMap string, timeoutAt *int64, state string) engine.WaitpointSignal {
	t.Helper()
	x, w := id.NewExecutionID("waits", id.Partitions{}), id.NewWaitpointID()
	token := wire.SignWaitpoint(bytes.Repeat([]byte{1}, 32), "old", x, w)
	exec(t, conn, `
		INSERT INTO ff_exec_core (
			partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
			created_at_ms, attempt_index
		)
		VALUES ($1, $2, 'waits', $3, 'released', 'not_applicable', 'suspended', 'attempt_interrupted', 1, 0)`,
		x.Partition(), x.UUID(), phase)
	exec(t, conn, `
		INSERT INTO ff_attempt (partition_key, execution_id, attempt_index, lease_epoch, started_at_ms, outcome)
		VALUES ($1, $2, 0, 2, 1, 'attempt_interrupted')`, x.Partition(), x.UUID())
	exec(t, conn, `
		INSERT INTO ff_suspension_current (
			partition_key, execution_id, suspension_id, suspended_at_ms, timeout_at_ms, reason_code, condition, member_map, timeout_behavior
		)
		VALUES ($1, $2, $3, 1000, $4, 'waiting_for_signal', $5::text::jsonb, $6::text::jsonb, 'auto_resume')`,
		x.Partition(), x.UUID(), id.NewSuspensionID(), timeoutAt, condition, memberMap)
	exec(t, conn, `
		INSERT INTO ff_waitpoint_pending (
			partition_key, waitpoint_id, execution_id, token_kid, token, created_at_ms, expires_at_ms, waitpoint_key, state
		)
		VALUES ($1, $2, $3, 'old', $4, 1, 2, 'a', $5)`, x.Partition(), w, x.UUID(), token.Reveal(), state)
	return engine.WaitpointSignal{SignalSpec: engine.SignalSpec{Execution: x, Name: "approved"}, Waitpoint: w, Token: token}
}

// Executions that waited in FlowFabric wait on: old tokens verify, by a key that was replaced too, signals count, timeouts
// happen, and operators see them. A second conversion changes nothing.
func TestAdoptedWaitsGoOn(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, partitioned)
	conn := connect(t, databaseURL)
	now := scalar[int64](t, conn, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
	// Two active keys, by a race of FlowFabric's rotations. The older one has signed all tokens.
	exec(t, conn, `
		INSERT INTO ff_waitpoint_hmac (kid, secret, rotated_at_ms, active)
		VALUES ('old', decode(repeat('01', 32), 'hex'), $1::bigint - 2, true), ('new', decode(repeat('02', 32), 'hex'), $1, true)`, now)
	const (
		single = `{"Single": {"waitpoint_key": "a", "matcher": {"ByName": "approved"}}}`
		both   = `{"Composite": {"kind": "AllOf", "members": [` + single + `, {"Single": {"waitpoint_key": "b", "matcher": "Wildcard"}}]}}`
		came   = `{"b": [{"signal_id": "0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10", "signal_name": "paid", "accepted_at": 5}], "a": {"status": "never_committed"}}`
	)
	one := waiting(t, conn, "suspended", single, "{}", nil, "pending")
	two := waiting(t, conn, "suspended", both, came, nil, "active")
	due := waiting(t, conn, "suspended", single, `{"__timeout__": [{"signal_name": "timeout", "delivered_at_ms": 7}]}`, new(int64(2000)), "active")
	over := waiting(t, conn, "active", single, "{}", new(int64(2000)), "active")
	exec(t, conn, `INSERT INTO ff_suspend_dedup VALUES (0, 'key', '{"variant": "Suspended", "details": {"token": "old:1"}}', 1)`)
	result := adopt(t, databaseURL)
	if len(result.Unread) != 0 {
		t.Errorf("%q", result.Unread)
	}
	tables := func() (all []string) {
		for _, table := range []string{"ff_exec_core", "ff_suspension_current", "ff_waitpoint_pending", "ff_waitpoint_hmac", "ff_suspend_dedup"} {
			all = append(all, lines(t, conn, "SELECT to_jsonb(t)::text FROM "+table+" AS t ORDER BY 1")...)
		}
		return all
	}
	before := tables()
	if adopt(t, databaseURL); !slices.Equal(tables(), before) {
		t.Error("a second conversion changed something")
	}

	eng, err := engine.New(lazyPool(t, databaseURL), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := eng.ListWaits(t.Context(), engine.WaitFilter{}, "", 0)
	if err != nil || len(page.Items) != 3 || !page.Items[0].Since.Equal(time.UnixMilli(1000)) || !slices.Contains(page.Items[0].Names, "approved") {
		t.Errorf("%+v, %v", page, err)
	}
	received, err := eng.ReceivedSignals(t.Context(), due.Execution)
	if err != nil || len(received) != 1 || received[0].Name != "timeout" || received[0].SourceType != "timer" || !received[0].At.Equal(time.UnixMilli(7)) {
		t.Errorf("%+v, %v", received, err)
	}
	for name, signal := range map[string]engine.WaitpointSignal{"one": one, "two": two} {
		if got, err := eng.SignalWaitpoint(t.Context(), signal); err != nil || got.Effect != engine.SignalSatisfied {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := eng.SignalWaitpoint(t.Context(), over); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("a wait that was over: %v", err)
	}
	if n, err := upkeep.Of(eng).ExpireWaits(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("%d waits have timed out, %v", n, err)
	}
	// A handler that runs again finds the outcome of such a wait in its step, also after later waits.
	for x, want := range map[id.ExecutionID]engine.StepOutcome{
		one.Execution: engine.StepSignalled, two.Execution: engine.StepSignalled, due.Execution: engine.StepTimedOut,
	} {
		steps, err := eng.StepResults(t.Context(), x)
		if err != nil || len(steps) != 1 || steps[0].Outcome != want || !strings.HasPrefix(steps[0].Name, "signal a") {
			t.Errorf("steps %+v, %v", steps, err)
		}
	}
	claimed, err := eng.Claim(t.Context(), engine.ClaimSpec{Lane: "waits", Worker: "w", Instance: "w", LeaseTTL: time.Minute}, 10)
	if err != nil || len(claimed) != 3 {
		t.Fatalf("%+v, %v", claimed, err)
	}
	for _, c := range claimed {
		if !c.Resumed || c.Lease.Attempt != 0 || c.Lease.Epoch < 3 {
			t.Errorf("%+v", c)
		}
	}
}

// What can't be read is listed and left alone.
func TestAdoptListsUnreadableWaits(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, ordinary)
	conn := connect(t, databaseURL)
	waiting(t, conn, "suspended", `{"Regex": "x"}`, "{}", nil, "active")
	waiting(t, conn, "suspended", `"OperatorOnly"`, "[]", nil, "active")
	waiting(t, conn, "suspended", `"OperatorOnly"`, "{}", nil, "active")
	exec(t, conn, "UPDATE ff_suspension_current SET satisfied_set = '{}' WHERE condition = '\"OperatorOnly\"' AND member_map = '{}'")
	exec(t, conn, "INSERT INTO ff_waitpoint_hmac VALUES ('k', '\\x01', 1, true)")
	result, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"its condition has an unknown form", "member_map is a JSON array", "satisfied_set is a JSON object", "'k': its id or its secret"} {
		if !slices.ContainsFunc(result.Unread, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("%q is not in %q", want, result.Unread)
		}
	}
	if len(result.Unread) != 4 {
		t.Error(fmt.Sprint(result.Unread))
	}
}
