package signals

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Everything that lets an interrupted attempt continue announces that to workers of all processes: their scan positions
// hide it, and only a full scan finds it.
func TestResumptionsAreAnnounced(t *testing.T) {
	for _, c := range []struct {
		name   string
		resume func(t *testing.T, f *fixture.Fixture, l engine.Lease)
	}{
		{"a signal", func(t *testing.T, f *fixture.Fixture, l engine.Lease) { f.Signal(t, l, "ready") }},
		{"a signal by SQL", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.Exec(t, "SELECT ffx_signal($1, 'ready')", l.Execution.String())
		}},
		{"an operator", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.Resume(t.Context(), l.Execution, 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"a returned lease", func(t *testing.T, f *fixture.Fixture, _ engine.Lease) {
			if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{f.Start(t).Lease}); err != nil || outcomes[0] != nil {
				t.Fatal(outcomes, err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			l := f.Suspend(t, ready)
			listener, err := pgx.Connect(t.Context(), f.Url)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close(t.Context())
			if _, err := listener.Exec(t.Context(), "LISTEN ffx_resumed"); err != nil {
				t.Fatal(err)
			}
			c.resume(t, f, l)
			for {
				n, err := listener.WaitForNotification(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if n.Payload == string(f.Lane) {
					return
				}
			}
		})
	}
}
