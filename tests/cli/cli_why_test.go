package cli

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCLIWhy(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	x := f.Create(t)
	ff.run(t, f.Url, "why", x.String()).succeeds(t, "no_worker: No registered worker claims from lane")
	ff.run(t, f.Url, "why", x.Short()).succeeds(t, "    ff worker list --lane")
	ff.run(t, f.Url, "why", x.String(), "--json").succeeds(t, `"code": "no_worker"`)
	ff.run(t, f.Url, "execution", "show", x.String()).succeeds(t, "why        No registered worker claims from lane")

	missing := id.NewExecutionID(f.Lane, id.Partitions{})
	ff.run(t, f.Url, "why", missing.String()).succeeds(t, "not_found: No execution has this id here")
	ff.run(t, f.Url, "why").fails(t, cliUsage, "one id")
}
