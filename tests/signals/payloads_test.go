package signals

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// nested is JSON with arrays in arrays.
func nested(depth int) []byte {
	return []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

// A payload that is nested too deep is refused where it comes in, whether or not the execution waits, by each way to send
// it. What only looks so is bytes like others. W2
func TestDeepPayloadsAreRefused(t *testing.T) {
	f := fixture.New(t)
	running, waiting := f.Start(t).Lease, f.Suspend(t, engine.Received("ready").Where("$ == 1"))
	for _, l := range []engine.Lease{running, waiting} {
		deep := engine.SignalSpec{Execution: l.Execution, Name: "ready", Payload: nested(engine.MaxSignalDepth + 1)}
		_, err := f.Engine.Signal(t.Context(), deep)
		fixture.WantInputError(t, err, "payload")
		fine := engine.SignalSpec{Execution: l.Execution, Name: "ready", Payload: nested(engine.MaxSignalDepth)}
		outcomes, err := f.SignalEach(t.Context(), []engine.SignalSpec{deep, fine})
		if err != nil || outcomes[1].Err != nil {
			t.Fatal(err, outcomes)
		}
		fixture.WantInputError(t, outcomes[0].Err, "payload")
		fine.Payload = []byte(strings.Repeat("[", 20_000))[:20_000]
		fine.Payload[engine.MaxSignalDepth-1] = 'x' // no JSON
		if _, err := f.Engine.Signal(t.Context(), fine); err != nil {
			t.Error(err)
		}
		for depth, code := range map[int]string{engine.MaxSignalDepth: "", engine.MaxSignalDepth + 1: "22023"} {
			_, err := f.Pool.Exec(t.Context(), "SELECT ffx_signal($1, 'ready', $2::text::jsonb)", l.Execution.String(), string(nested(depth)))
			refusal, _ := errors.AsType[*pgconn.PgError](err)
			if refusal == nil && code != "" || refusal != nil && refusal.Code != code {
				t.Errorf("%d deep, from SQL: %v", depth, err)
			}
		}
	}
	f.WantState(t, waiting.Execution, fixture.StateSuspended)
}

// A predicate does not hold for a payload that the server can't read, or that makes the path fail: nothing raises. W2
func TestPredicatesDoNotRaise(t *testing.T) {
	f := fixture.New(t)
	for _, c := range []struct{ path, payload string }{
		{"$ == 1", "'[' || repeat('[', 100000)"},
		{"$ == 1", "repeat('[', 100000) || repeat(']', 100000)"},
		{`$.at.datetime() < "2026-01-01".datetime()`, `'{"at": "x"}'`},
		{`$.at.datetime()`, `'{"at": "x"}'`},
		{"strict $.a.b", "'{}'"},
		{"$.a / 0", `'{"a": 1}'`},
		{"$.a > $limit", `'{"a": 1}'`},
	} {
		held := fixture.Texts(t, f.Pool, fmt.Sprintf(
			"SELECT ffx_predicates_held(jsonb_build_object('predicate', $1::text), convert_to(%s, 'UTF8'))::text", c.payload,
		), c.path)
		if len(held) != 1 || held[0] != "[]" {
			t.Errorf("%s for %.20s: %q", c.path, c.payload, held)
		}
	}
}
