package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A worker that lacks one right does not start, and says which. It used to start, claim nothing and say nothing.
func TestWorkerWithoutARightDoesNotStart(t *testing.T) {
	f := fixture.NewCloned(t)
	role := f.Stranger(t)
	t.Cleanup(func() {
		if _, err := f.Pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %q", role)); err != nil {
			t.Error(err)
		}
	})
	grants, err := schema.Grants(role, schema.GrantOptions{Worker: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Pool.Exec(t.Context(), grants, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, fmt.Sprintf("REVOKE INSERT ON ff_attempt FROM %q", role))
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["role"] = role })
	w, err := worker.New(f.EngineOn(t, pool, engine.Config{}), worker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(w, engine.Kind[struct{}, struct{}]{Name: "test", Lane: f.Lane}, func(context.Context, worker.Job[struct{}]) (struct{}, error) {
		return struct{}{}, nil
	})
	err = w.Run(t.Context())
	if !errors.Is(err, fferr.ErrDenied) || !strings.Contains(err.Error(), fmt.Sprintf(`GRANT INSERT ON TABLE ff_attempt TO "%s"`, role)) {
		t.Errorf("run: %v, want the missing grant", err)
	}
}
