package transactions

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A refused program learns how to fix it, and no text contains the password.
func TestDeniedAccessNamesTheGrant(t *testing.T) {
	f := fixture.NewCloned(t)
	stranger := f.Stranger(t)
	const secret = "hunter2-but-longer"
	for name, c := range map[string]struct {
		change func(*pgxpool.Config)
		text   string // the server's own
	}{
		"wrong password": {func(config *pgxpool.Config) { config.ConnConfig.Password = secret }, "password authentication failed"},
		"unknown user": {func(config *pgxpool.Config) {
			config.ConnConfig.User, config.ConnConfig.Password = "nobody knows", secret
		}, `"nobody knows"`},
		"no rights": {func(config *pgxpool.Config) {
			config.ConnConfig.RuntimeParams["role"] = stranger
		}, "permission denied for"},
	} {
		t.Run(name, func(t *testing.T) {
			e := f.EngineOn(t, fixture.OpenPool(t, f.Url, c.change), engine.Config{})
			x := id.NewExecutionID(f.Lane, id.Partitions{})
			for call, err := range map[string]error{
				"prepare":  e.Prepare(t.Context()),
				"create":   func() error { _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test"}); return err }(),
				"claim":    func() error { _, err := e.Claim(t.Context(), f.Worker(), 1); return err }(),
				"describe": func() error { _, err := e.DescribeExecution(t.Context(), x); return err }(),
				"flow":     func() error { _, err := e.CreateFlow(t.Context(), engine.FlowSpec{}); return err }(),
				"job":      func() error { _, err := upkeep.Of(e).ExpireLeases(t.Context(), 1); return err }(),
				"complete": e.CompleteExecution(t.Context(), engine.Lease{Fence: id.Fence{Execution: x}}, nil),
			} {
				if !errors.Is(err, fferr.ErrDenied) || errors.Is(err, fferr.ErrTransport) || errors.Is(err, fferr.ErrUnavailable) {
					t.Errorf("%s: got %v, want %v", call, err, fferr.ErrDenied)
					continue
				}
				want := c.text
				if name == "no rights" && call == "prepare" {
					want = "GRANT SELECT" // which names all that is missing
				}
				if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, secret) {
					t.Errorf("%s: %q, want %q in it, and no password", call, text, want)
				}
			}
			err := schema.Check(t.Context(), fixture.OpenPool(t, f.Url, c.change), schema.Options{})
			stateErr, ok := errors.AsType[*schema.StateError](err)
			if !ok || !errors.Is(err, fferr.ErrDenied) || !strings.Contains(stateErr.Error(), c.text) || strings.Contains(err.Error(), secret) {
				t.Errorf("check: got %v, want %v", err, fferr.ErrDenied)
			}
		})
	}
}
