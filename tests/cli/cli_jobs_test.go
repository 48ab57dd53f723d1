package cli

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCLIJobs(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	ff.run(t, f.Url, "job", "list").succeeds(t, "No process has done background work")
	f.Exec(t, `INSERT INTO ffx_job (name, holder, held_until_ms, succeeded_at_ms, failed_at_ms, error)
		VALUES ('retain', 'host-7/4711', 4102444800000, 1000, 2000, 'no rights')`)
	ff.run(t, f.Url, "job", "list").succeeds(t, "host-7/4711  1970-01-01T00:00:01.000Z  1970-01-01T00:00:02.000Z")
	ff.run(t, f.Url, "job", "list", "--json").succeeds(t, `"held": true`)
}

func TestCLIBlockedAndExpired(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	ff.run(t, f.Url, "execution", "list", "--blocked").succeeds(t, "No execution is blocked.")
	x := f.Create(t, func(s *engine.ExecutionSpec) { s.Policy = &policy.Execution{Capabilities: id.NewCapabilities("gpu")} })
	ff.run(t, f.Url, "execution", "show", x.String()).succeeds(t, "capabilities  gpu")
	f.Block(t, x, state.PausedByOperator, "legal hold 17")
	ff.run(t, f.Url, "execution", "list", "--blocked").succeeds(t, "legal hold 17")
	ff.run(t, f.Url, "execution", "list", "--blocked", "--json", "--lane", string(f.Lane)).succeeds(t, `"blocking_detail": "legal hold 17"`)
	ff.run(t, f.Url, "execution", "list", "--blocked", "--kind", "other").succeeds(t, "No execution is blocked.")

	ff.run(t, f.Url, "lease", "list").fails(t, cliUsage, "--expired")
	ff.run(t, f.Url, "lease", "list", "--expired").succeeds(t, "No lease has expired.")
	c := f.Start(t)
	f.Exec(t, "UPDATE ff_attempt SET lease_expires_at_ms = 1000")
	f.Exec(t, "UPDATE ffx_lease_timer SET due_at_ms = 1000")
	ff.run(t, f.Url, "lease", "list", "--expired").succeeds(t, c.ID.Short())
}
