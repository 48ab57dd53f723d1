package cli

import (
	"strings"
	"testing"
	"time"

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

	hold := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, f.Url, append([]string{"limit", "hold", "sync/tenant"}, args...)...)
	}
	soon := time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z")
	hold("acme", "--until", soon, "--by", "on call").succeeds(t, `Limit sync/tenant for "acme" is held until `+strings.TrimSuffix(soon, "Z")+".000Z.")
	shown := ff.run(t, f.Url, "limit", "show", "sync/tenant")
	shown.succeeds(t, `"acme" is held until `+strings.TrimSuffix(soon, "Z")+".000Z by on call\n")
	object := ff.run(t, f.Url, "limit", "show", "sync/tenant", "--json").object(t)
	wantKeys(t, object["keys"].([]any)[0].(map[string]any), "key", "in_use", "holders", "waiting", "waiting_since", "hold_until", "hold_by")
	ff.run(t, f.Url, "why", created.ID.String()).succeeds(t, "by on call.\n    ff limit hold sync/tenant acme --end\n")
	object = hold("acme", "--for", "1m", "--json").object(t) // the later end stays
	wantKeys(t, object, "name", "key", "until")
	if object["until"] != strings.TrimSuffix(soon, "Z")+".000Z" {
		t.Errorf("held: %v", object)
	}
	hold("acme", "--end").succeeds(t, `Limit sync/tenant for "acme" is not held.`)
	hold("--for", "10m").succeeds(t, "Limit sync/tenant is held until ")
	hold("--end").succeeds(t, "Limit sync/tenant is not held.")
	hold("acme").fails(t, cliUsage, "one of --for, --until and --end")
	hold("acme", "--for", "1h", "--end").fails(t, cliUsage, "one of --for, --until and --end")
	hold("acme", "other", "--end").fails(t, cliUsage, "at most one key")
	hold("acme", "--for", "10000h").fails(t, cliUsage, "more than 30 days ahead")
	ff.run(t, f.Url, "limit", "hold", "tea", "--for", "1h").fails(t, cliNotFound, "ff limit list")
	ff.run(t, f.Url, "limit", "show", "tea").fails(t, cliNotFound, "ff limit list")
	ff.run(t, f.Url, "limit", "delete", "sync/tenant").succeeds(t, "is deleted")
	ff.run(t, f.Url, "limit", "delete", "sync/tenant").fails(t, cliNotFound, "ff limit list")
}
