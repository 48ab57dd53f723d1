package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The printed grants are enough for ff itself, and an operator without the operator's grants learns which to run.
func testCLIGrants(t *testing.T, ff cli) {
	ff.run(t, "", "migrate", "grants", "--worker").fails(t, cliUsage, "--role")
	ff.run(t, "", "migrate", "grants", "--role", "app").fails(t, cliUsage, "--creator")
	ff.run(t, "", "migrate", "grants", "--role", "app", "--worker", "--database-url", "postgres://127.0.0.1:1/x").fails(t, cliUsage, "without a database")
	ff.run(t, "", "migrate", "grants", "--role", "app", "--worker", "--schema", "a.b").fails(t, cliUsage, "dot")
	out := ff.run(t, "", "migrate", "grants", "--role", `an "app"`, "--creator", "--schema", "billing")
	out.succeeds(t, `GRANT USAGE ON SCHEMA "billing" TO "an ""app""";`)
	out.succeeds(t, `"billing".ff_exec_core`)
	out.lacks(t, "ffx_execution") // a worker's alone

	f := fixture.Clone(t)
	x := f.Create(t, func(s *engine.ExecutionSpec) { s.Lane = "mail" })
	role := f.Stranger(t)
	t.Cleanup(func() {
		if _, err := f.Pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %q", role)); err != nil {
			t.Error(err)
		}
	})
	databaseURL := withURL(t, f.Url, func(u *url.URL) {
		query := u.Query()
		query.Set("role", role)
		u.RawQuery = query.Encode()
	})
	grant := func(part string) {
		t.Helper()
		out := ff.run(t, "", "migrate", "grants", "--role", role, part)
		out.succeeds(t, "GRANT ")
		execSQL(t, f.Url, out.stdout)
	}
	show := []string{"execution", "show", x.UUID().String()}
	if out := ff.run(t, databaseURL, show...); out.code != cliDatabase || !strings.Contains(out.stderr, "grant") {
		t.Errorf("without rights: %d, %s", out.code, out.stderr)
	}
	grant("--reader")
	ff.run(t, databaseURL, show...).succeeds(t, x.String())
	pause := []string{"lane", "pause", "mail"}
	ff.run(t, databaseURL, pause...).fails(t, cliDatabase, "permission denied")
	grant("--operator")
	ff.run(t, databaseURL, pause...).succeeds(t, "Lane mail is paused.")
}
