package limits

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A late process of an old version declares its limit, and a minute later the next creation of the new version declares the new
// one again. Both log that they replace a declaration. L7.
func TestNewVersionDeclaresItsLimitsAgain_L7(t *testing.T) {
	f := fixture.NewCloned(t)
	var log bytes.Buffer
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	created(t, f.Engine, kindOf(f, atOnce(5)), sync{})
	created(t, f.Rival(t).Engine, kindOf(f, atOnce(2)), sync{})
	want := func(units int) {
		t.Helper()
		l, err := limit.Describe(t.Context(), f.Engine, perTenant)
		if err != nil || l.DeclaredUnits != units {
			t.Errorf("%d units are declared, %v, want %d", l.DeclaredUnits, err, units)
		}
	}
	want(2)
	f.Advance(time.Minute)
	created(t, f.Engine, kindOf(f, atOnce(5)), sync{})
	want(5)
	if !strings.Contains(log.String(), "replaces the declaration of a limit") {
		t.Errorf("logged %q", log.String())
	}
}

// A process that has read an old declaration, and declares none itself, reads the new one within a minute. L7.
func TestProcessReadsDeclarationsAgain_L7(t *testing.T) {
	f := fixture.NewCloned(t)
	declare := func(units int) {
		t.Helper()
		if err := limit.Declare(t.Context(), f.Rival(t).Engine, limit.Spec{Name: "api", Units: units}); err != nil {
			t.Fatal(err)
		}
	}
	of := func(units int) func(*engine.ExecutionSpec) {
		return func(s *engine.ExecutionSpec) { s.Limits = []engine.LimitKey{{Name: "api", Units: units}} }
	}
	declare(2)
	create(t, f, 1, of(2))
	declare(9)
	f.Advance(time.Minute)
	create(t, f, 1, of(9))
}
