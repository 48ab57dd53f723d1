package signals

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// storedIDs are ids in stored rows, and numbers that differ with them.
var storedIDs = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|"(?:partition_key|event_id|committed_at_ms)": \d+`)

// storedOf returns the rows of an execution that a signal may change, without ids.
func storedOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID) string {
	t.Helper()
	var rows []string
	for _, table := range []string{
		"ff_exec_core", "ff_suspension_current", "ff_waitpoint_pending", "ffx_step", "ffx_signal_key", "ff_signal_event", "ff_completion_event", "ffx_ready",
	} {
		rows = append(rows, fixture.Texts(t, f.Pool, fmt.Sprintf(`
			SELECT '%[1]s ' || (to_jsonb(t) || CASE WHEN to_jsonb(t) ? 'name' AND '%[1]s' = 'ffx_step'
				THEN jsonb_build_object('result', convert_from(decode(substr(to_jsonb(t) ->> 'result', 3), 'hex'), 'UTF8')::jsonb)
				ELSE '{}' END)::text
			FROM %[1]s AS t
			WHERE t.execution_id::text = $1
			ORDER BY 1`, table), x.UUID().String())...)
	}
	return storedIDs.ReplaceAllString(strings.Join(rows, "\n"), "")
}

// A signal of many that ends a wait for one stores what the signal alone does, and each signal that does not is left to
// the function for one.
func TestSignalEachStoresWhatASignalDoes(t *testing.T) {
	keyed := func(s *engine.SignalSpec) { s.IdempotencyKey = "once" }
	exec := func(sql string) func(*testing.T, *fixture.Fixture, engine.Lease) {
		return func(t *testing.T, f *fixture.Fixture, l engine.Lease) { f.Exec(t, sql, l.Execution.UUID()) }
	}
	for _, c := range []struct {
		name     string
		alone    bool // left to ffx_deliver
		wait     engine.Condition
		suspend  func(*engine.SuspendSpec)
		before   func(t *testing.T, f *fixture.Fixture, l engine.Lease)
		signal   func(*engine.SignalSpec)
		signals  int    // default 1
		sentName string // default "ready"
	}{
		{name: "a wait", wait: ready},
		{name: "a step", wait: ready, suspend: func(s *engine.SuspendSpec) { s.Step, s.StepSeq = "signal ready", 3 }},
		{name: "a key", wait: ready, signal: keyed},
		{name: "a given key of the waitpoint", wait: ready.At("decision")},
		{name: "no payload", wait: ready, signal: func(s *engine.SignalSpec) { s.Payload = nil }},
		{name: "a wait without a timeout", wait: ready, suspend: func(s *engine.SuspendSpec) { s.Timeout = 0 }},
		{name: "another name", alone: true, wait: ready, sentName: "other"},
		{name: "two signals", alone: true, wait: ready, signals: 2},
		{name: "a repetition", alone: true, wait: ready, signal: keyed, before: func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.Signal(t, l, "ready", keyed)
		}},
		{name: "an early signal", alone: true, wait: ready, before: func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.Signal(t, l, "other")
		}},
		{name: "a condition on the payload", alone: true, wait: ready.Where("$ == 1")},
		{name: "two of them", alone: true, wait: engine.AtLeast(2, engine.DistinctSignals, "ready")},
		{name: "one of two", alone: true, wait: engine.AnyOf(ready, engine.Received("other"))},
		{name: "a delay", alone: true, wait: ready, suspend: func(s *engine.SuspendSpec) { s.ResumeDelay = time.Minute }},
		{name: "a budget", alone: true, wait: ready, before: exec("UPDATE ff_exec_core SET ffx_budget_ids = ARRAY[gen_random_uuid()] WHERE execution_id = $1")},
		{name: "a limit", alone: true, wait: ready, before: exec("UPDATE ff_exec_core SET ffx_limit_ids = ARRAY[gen_random_uuid()], ffx_limit_units = '{1}' WHERE execution_id = $1")},
		{name: "a timeout that is over", alone: true, wait: ready, before: func(_ *testing.T, f *fixture.Fixture, _ engine.Lease) {
			f.Advance(time.Hour)
		}},
		{name: "a token", wait: ready, before: exec("UPDATE ff_waitpoint_pending SET token = 'token', token_kid = 'kid' WHERE execution_id = $1"), signal: keyed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			var leases []engine.Lease
			for range 2 {
				leases = append(leases, f.Suspend(t, c.wait, func(s *engine.SuspendSpec) {
					if c.suspend != nil {
						c.suspend(s)
					}
				}))
			}
			now := f.Clock.Load()
			var specs [2][]engine.SignalSpec
			for i, l := range leases {
				f.Clock.Store(now)
				if c.before != nil {
					c.before(t, f, l)
				}
				spec := engine.SignalSpec{Execution: l.Execution, Name: "ready", Payload: []byte("1"), Source: "ada"}
				if c.sentName != "" {
					spec.Name = c.sentName
				}
				if c.signal != nil {
					c.signal(&spec)
				}
				specs[i] = slices.Repeat([]engine.SignalSpec{spec}, max(1, c.signals))
			}
			var alone []string
			for _, spec := range specs[0] {
				signalled, err := f.Engine.Signal(t.Context(), spec)
				alone = append(alone, fmt.Sprint(signalled.Duplicate, signalled.Effect, err))
			}
			outcomes, _, calls := signalEachCounted(t, f, specs[1])
			if got := calls > 0; got != c.alone {
				t.Errorf("ffx_deliver was called: %t, want %t", got, c.alone)
			}
			for i, o := range outcomes {
				if got := fmt.Sprint(o.Value.Duplicate, o.Value.Effect, o.Err); got != alone[i] {
					t.Errorf("outcome %d: %s, alone %s", i, got, alone[i])
				}
			}
			if one, each := storedOf(t, f, leases[0].Execution), storedOf(t, f, leases[1].Execution); one != each {
				t.Errorf("alone:\n%s\namong many:\n%s", one, each)
			}
		})
	}
}

// However many waits are ended at once, it is one call.
func TestSignalEachEndsAllWaitsByOneCall(t *testing.T) {
	f := fixture.New(t)
	var specs []engine.SignalSpec
	for range 20 {
		specs = append(specs, engine.SignalSpec{Execution: f.Suspend(t, ready).Execution, Name: "ready"})
	}
	outcomes, together, alone := signalEachCounted(t, f, specs)
	for i, o := range outcomes {
		if o.Err != nil || o.Value.Effect != engine.SignalSatisfied || o.Value.Execution != specs[i].Execution {
			t.Errorf("outcome %d: %+v", i, o)
		}
	}
	if together != 1 || alone != 0 {
		t.Errorf("ffx_end_waits was called %d times, ffx_deliver %d times", together, alone)
	}
}

// signalEachCounted calls SignalEach, and counts the calls of the functions for many signals and for one.
func signalEachCounted(t *testing.T, f *fixture.Fixture, specs []engine.SignalSpec) (outcomes []fferr.Outcome[engine.Signalled], together, alone int) {
	t.Helper()
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SET LOCAL track_functions = 'pl'")
	type calls struct{ Together, Alone int }
	read := func() calls { // since the connection reported its counts last
		return fixture.One[calls](t, tx, `SELECT
			coalesce(sum(calls) FILTER (WHERE funcname = 'ffx_end_waits'), 0)::integer AS together,
			coalesce(sum(calls) FILTER (WHERE funcname = 'ffx_deliver'), 0)::integer AS alone
			FROM pg_stat_xact_user_functions`)
	}
	before := read()
	outcomes, err := f.WithTx(tx).SignalEach(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	after := read()
	fixture.Commit(t, tx)
	return outcomes, after.Together - before.Together, after.Alone - before.Alone
}
