package cli

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCLILimits(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	ff.run(t, f.Url, "limit", "list").succeeds(t, "There are no limits.")
	kind := engine.Kind[string, struct{}]{Name: "sync", Lane: f.Lane, Limits: []engine.Limit[string]{
		engine.Concurrency[string](5).Per("tenant", func(tenant string) string { return tenant }),
	}}
	tx := f.BeginTx(t) // in which nothing is admitted
	created, err := kind.Create(t.Context(), f.WithTx(tx), "acme")
	if err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	ff.run(t, f.Url, "limit", "list").succeeds(t, "5 at once")
	ff.run(t, f.Url, "execution", "show", created.ID.String()).succeeds(t, `sync/tenant "acme", behind 0`)
	ff.run(t, f.Url, "limit", "set", "sync/tenant", "--units", "2", "--by", "on call").succeeds(t, "has 2 units")
	ff.run(t, f.Url, "limit", "show", "sync/tenant").succeeds(t, "on call")
	ff.run(t, f.Url, "limit", "show", "sync/tenant", "--json").succeeds(t, `"declared_units": 5`)
	ff.run(t, f.Url, "limit", "reset", "sync/tenant").succeeds(t, "is as declared")
	ff.run(t, f.Url, "limit", "set", "sync/tenant").fails(t, cliUsage, "--units")
	ff.run(t, f.Url, "limit", "show", "tea").fails(t, cliNotFound, "ff limit list")
	ff.run(t, f.Url, "limit", "delete", "sync/tenant").succeeds(t, "is deleted")
	ff.run(t, f.Url, "limit", "delete", "sync/tenant").fails(t, cliNotFound, "ff limit list")
}
