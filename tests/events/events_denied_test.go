package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A role with every right but that on the sequences is refused, and the error names the missing grant. PostgreSQL 18
// returned NULL, which was taken for an empty outbox, with the advice to set the sequence to an id that was given out before.
func TestRoleWithoutTheSequencesIsRefused(t *testing.T) {
	f := fixture.NewCloned(t)
	role := f.Stranger(t)
	t.Cleanup(func() {
		if _, err := f.Pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %q", role)); err != nil {
			t.Error(err)
		}
	})
	f.Exec(t, fmt.Sprintf("GRANT USAGE ON SCHEMA public TO %q", role))
	f.Exec(t, fmt.Sprintf("GRANT ALL ON ALL TABLES IN SCHEMA public TO %q", role))
	f.Create(t)
	if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil); err != nil {
		t.Fatal(err)
	}
	eng := f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["role"] = role }), engine.Config{})
	for _, right := range []string{"", "USAGE", "SELECT"} {
		if right != "" {
			f.Exec(t, fmt.Sprintf("GRANT %s ON ALL SEQUENCES IN SCHEMA public TO %q", right, role))
		}
		sub, err := events.Subscribe(t.Context(), eng, events.Completions(events.Filter{}), events.Options{After: events.Beginning})
		if err == nil {
			sub.Close()
		}
		_, trimErr := upkeep.Of(eng).TrimOutboxes(t.Context(), 10)
		for call, err := range map[string]error{"subscribe": err, "trim": trimErr} {
			switch {
			case right != "":
				if err != nil {
					t.Errorf("%s with %s: %v", call, right, err)
				}
			case !errors.Is(err, fferr.ErrDenied) || errors.Is(err, fferr.ErrCorruption):
				t.Errorf("%s: error %v, want %v", call, err, fferr.ErrDenied)
			case !strings.Contains(err.Error(), "GRANT USAGE ON SEQUENCE ff_completion_event_event_id_seq TO \""+role+"\"") || strings.Contains(err.Error(), "setval"):
				t.Errorf("%s: %v does not name the grant", call, err)
			}
		}
		if right != "" {
			f.Exec(t, fmt.Sprintf("REVOKE %s ON ALL SEQUENCES IN SCHEMA public FROM %q", right, role))
		}
	}
}
