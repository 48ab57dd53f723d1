package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The exit codes that `ff --help` promises.

const cliDone = 0

const cliUsage = 2

const cliNotFound = 3

const cliDatabase = 4

const cliInterrupted = 130

// cli is the ff program, built for a test.
type cli struct{ program string }

// cliOutput is the output of one run of ff.
type cliOutput struct {
	code           int
	stdout, stderr string
}

// command returns a run of ff on a database; an empty URL is none.
func (c cli) command(ctx context.Context, databaseURL string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "DATABASE_URL=") || strings.HasPrefix(v, "FF_POSTGRES") || strings.HasPrefix(v, "PG")
	}), "DATABASE_URL="+databaseURL)
	return cmd
}

// run runs ff to its end, and checks the rules of every run: an error is one sentence with a next step, and no output
// holds the password of the database.
func (c cli) run(t *testing.T, databaseURL string, args ...string) cliOutput {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := c.command(t.Context(), databaseURL, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	out := cliOutput{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}

	if u, err := url.Parse(databaseURL); err == nil {
		// A password that is also the user's name shows without leaking anything.
		if password, _ := u.User.Password(); password != "" && password != u.User.Username() {
			out.lacks(t, password)
		}
	}
	if out.code != cliDone {
		lines := strings.Split(strings.TrimSuffix(out.stderr, "\n"), "\n")
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "ff: ") || !strings.HasSuffix(last, ".") || !strings.Contains(last[4:], ": ") {
			t.Errorf("ff %s: the error is not a sentence with a next step: %q", strings.Join(args, " "), out.stderr)
		}
	}
	return out
}

func (o cliOutput) lacks(t *testing.T, secret string) {
	t.Helper()
	if strings.Contains(o.stdout, secret) || strings.Contains(o.stderr, secret) {
		t.Errorf("the output holds %q:\n%s%s", secret, o.stdout, o.stderr)
	}
}

// fails checks the exit code, and that nothing but the error with the given text was printed.
func (o cliOutput) fails(t *testing.T, code int, text string) {
	t.Helper()
	if o.code != code || !strings.Contains(o.stderr, text) || o.stdout != "" {
		t.Errorf("exit code %d, want %d with %q\nstdout: %s\nstderr: %s", o.code, code, text, o.stdout, o.stderr)
	}
}

func (o cliOutput) succeeds(t *testing.T, text string) {
	t.Helper()
	if o.code != cliDone || !strings.Contains(o.stdout, text) {
		t.Errorf("exit code %d, want 0 with %q\nstdout: %s\nstderr: %s", o.code, text, o.stdout, o.stderr)
	}
}

// object decodes JSON output.
func (o cliOutput) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(o.stdout), &object); err != nil || o.code != cliDone {
		t.Fatalf("exit code %d, %v\nstdout: %s\nstderr: %s", o.code, err, o.stdout, o.stderr)
	}
	return object
}

func TestCLI(t *testing.T) {
	t.Parallel()
	ff := cli{fixture.BuildFF(t)}
	for name, test := range map[string]func(*testing.T, cli){
		"usage":                  testCLIUsage,
		"unusable_database":      testCLIUnusableDatabase,
		"migrate":                testCLIMigrate,
		"show":                   testCLIShow,
		"kinds":                  testCLIKinds,
		"lists":                  testCLILists,
		"keys":                   testCLIKeys,
		"signals":                testCLISignals,
		"waitpoints":             testCLIWaitpoints,
		"steps":                  testCLISteps,
		"streams":                testCLIStreams,
		"events":                 testCLIEvents,
		"attempts":               testCLIAttempts,
		"operator":               testCLIOperator,
		"grants":                 testCLIGrants,
		"help":                   testCLIHelp,
		"retry_many":             testCLIRetryMany,
		"where":                  testCLIWhere,
		"where_asks":             testCLIWhereAsks,
		"flow_retry":             testCLIFlowRetry,
		"operator_calls":         testCLIOperatorCalls,
		"flows":                  testCLIFlows,
		"flow_formats":           testCLIFlowFormats,
		"flow_watch":             testCLIFlowWatch,
		"flow_cancel":            testCLIFlowCancel,
		"console":                testCLIConsole,
		"demo":                   testCLIDemo,
		"demo_ended":             testCLIDemoEnded,
		"demo_without_toolchain": testCLIDemoWithoutToolchain,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, ff)
		})
	}
}

func testCLIUsage(t *testing.T, ff cli) {
	someFlow := id.NewFlowID().String()
	for _, c := range []struct {
		name, databaseURL string
		args              []string
		says              string
	}{
		{"unknown_command", "", []string{"fly"}, `no command "fly"`},
		{"unknown_subcommand", "", []string{"flow", "fly"}, `no command "fly"`},
		{"no_subcommand", "", []string{"migrate"}, "needs a command"},
		{"unknown_flag", "", []string{"version", "--fast"}, "--fast"},
		{"surplus_argument", "", []string{"migrate", "up", "now"}, `"now"`},
		{"no_id", "", []string{"flow", "show"}, "one id"},
		{"malformed_flow_id", "", []string{"flow", "show", "1234"}, "flow id"},
		{"malformed_execution_id", "", []string{"execution", "show", "1234"}, "execution id, neither a uuid nor"},
		{"partition_beyond_all", "", []string{"execution", "show", "{fp:256}:" + someFlow}, "256"},
		{"negative_limit", "", []string{"flow", "show", someFlow, "--limit", "-1"}, "--limit"},
		{"an_unheard_of_format", "", []string{"flow", "show", someFlow, "--format", "png"}, `no format "png"`},
		{"two_formats", "", []string{"flow", "show", someFlow, "--format", "svg", "--json"}, "--json"},
		{"flows_in_claim_order", "", []string{"flow", "list", "--order", "claim"}, `no order "claim"`},
		{"a_flow_tag_without_a_value", "", []string{"flow", "list", "--tag", "app.x"}, "key=value"},
		{"less_than_no_flows", "", []string{"flow", "list", "--limit", "-1"}, "--limit"},
		{"a_flow_watched_all_the_time", "", []string{"flow", "watch", someFlow, "--interval", "1ms"}, "--interval"},
		{"an_unheard_of_policy", "", []string{"flow", "cancel", someFlow, "--policy", "some"}, `no policy "some"`},
		{"kinds_of_an_unheard_of_lane", "", []string{"kind", "list", "--lane", "gr\xf6\xdfe"}, "lane"},
		{"kinds_in_the_future", "", []string{"kind", "list", "--longer", "-1m"}, "--longer"},
		{"an_unheard_of_state", "", []string{"execution", "list", "--state", "asleep"}, `no state "asleep"`},
		{"an_unheard_of_order", "", []string{"execution", "list", "--order", "random"}, `no order "random"`},
		{"a_tag_without_a_value", "", []string{"execution", "list", "--tag", "order"}, "key=value"},
		{"since_whenever", "", []string{"execution", "list", "--since", "yesterday"}, "--since"},
		{"less_than_no_executions", "", []string{"execution", "list", "--limit", "-1"}, "--limit"},
		{"delay_without_an_end", "", []string{"execution", "delay", someFlow}, "--for"},
		{"delay_with_two_ends", "", []string{"execution", "delay", someFlow, "--for", "1m", "--until", "2026-11-22T15:04:05Z"}, "--for"},
		{"delay_until_whenever", "", []string{"execution", "delay", someFlow, "--until", "noon"}, "--until"},
		{"no_lane", "", []string{"lane", "pause"}, "one lane"},
		{"no_database", "", []string{"flow", "show", someFlow}, "set DATABASE_URL"},
		{"not_a_URL", "host=localhost password=hunter2", []string{"migrate", "up"}, "postgres://"},
		{"broken_URL", "postgres://me:hunter2@local host/%zz", []string{"migrate", "up"}, "postgres://"},
		{"unusable_URL", "postgres://me:hunter2@localhost/x?sslmode=maybe", []string{"migrate", "up"}, "sslmode"},
		{"password_in_query", "postgres://localhost/x?password=hunter2&sslmode=maybe", []string{"demo"}, "sslmode"},
		{"schema_with_dot", "postgres://localhost/x", []string{"migrate", "up", "--schema", "a.b"}, "dot"},
		{"down_without_extent", "postgres://localhost/x", []string{"migrate", "down"}, "--all"},
		{"down_with_two_extents", "postgres://localhost/x", []string{"migrate", "down", "--all", "--steps", "1"}, "--all"},
		{"down_by_less_than_nothing", "postgres://localhost/x", []string{"migrate", "down", "--steps", "-1"}, "--all"},
		{"one_worker", "postgres://localhost/x", []string{"demo", "--workers", "1"}, "--workers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := ff.run(t, c.databaseURL, c.args...)
			out.fails(t, cliUsage, c.says)
			out.lacks(t, "hunter2")
			// A mistake in a flag is answered by its name.
			flags := slices.DeleteFunc(slices.Clone(c.args), func(arg string) bool { return !strings.HasPrefix(arg, "--") })
			if len(flags) > 0 && !slices.ContainsFunc(flags, func(flag string) bool { return strings.Contains(out.stderr, flag) }) {
				t.Errorf("the error names none of %q: %s", flags, out.stderr)
			}
		})
	}

	ff.run(t, "", "version").succeeds(t, "schema 2")
	ff.run(t, "").succeeds(t, "Exit codes:")
	for _, command := range []string{
		"demo", "dev", "migrate up", "migrate down", "migrate status", "flow show", "flow list", "flow watch", "flow cancel", "execution show", "why", "job list", "lease list",
		"execution cancel", "execution retry", "execution fork", "execution delay", "execution list", "lane list", "lane pause", "lane resume", "kind list",
	} {
		ff.run(t, "", append(strings.Fields(command), "--help")...).succeeds(t, "Examples:")
	}
}

// withURL returns a database URL with another part.
func withURL(t *testing.T, raw string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

func execSQL(t *testing.T, databaseURL, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func testCLIUnusableDatabase(t *testing.T, ff cli) {
	absent := id.NewFlowID().String()
	show := []string{"flow", "show", absent}
	up := []string{"migrate", "up"}

	t.Run("no_server", func(t *testing.T) {
		t.Parallel()
		databaseURL := "postgres://me:hunter2@127.0.0.1:1/x?sslmode=disable"
		for _, args := range [][]string{show, up, {"migrate", "status"}, {"migrate", "down", "--all"}, {"demo", "--packages", "errors"}} {
			out := ff.run(t, databaseURL, args...)
			out.fails(t, cliDatabase, "127.0.0.1:1")
			out.lacks(t, "hunter2")
		}
	})
	t.Run("wrong_password", func(t *testing.T) {
		t.Parallel()
		databaseURL := withURL(t, pgtest.URL(t), func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "hunter2") })
		for _, args := range [][]string{show, up} {
			out := ff.run(t, databaseURL, args...)
			out.fails(t, cliDatabase, "correct the user or the password")
			out.lacks(t, "hunter2")
		}
	})
	t.Run("no_rights", func(t *testing.T) {
		t.Parallel()
		f := fixture.Clone(t)
		asStranger := withURL(t, f.Url, func(u *url.URL) {
			query := u.Query()
			query.Set("role", f.Stranger(t))
			u.RawQuery = query.Encode()
		})
		for _, args := range [][]string{show, up} {
			ff.run(t, asStranger, args...).fails(t, cliDatabase, "grant the user the right")
		}
	})
	t.Run("no_database", func(t *testing.T) {
		t.Parallel()
		databaseURL := withURL(t, pgtest.URL(t), func(u *url.URL) { u.Path = "/ff_no_such_database" })
		ff.run(t, databaseURL, show...).fails(t, cliDatabase, "create it")
		ff.run(t, databaseURL, up...).fails(t, cliDatabase, "create it")
		ff.run(t, databaseURL, "migrate", "status").fails(t, cliDatabase, "create it")
	})
	t.Run("not_migrated", func(t *testing.T) {
		t.Parallel()
		databaseURL := pgtest.EmptyDatabase(t)
		ff.run(t, databaseURL, show...).fails(t, cliDatabase, "ff migrate up")
		ff.run(t, databaseURL, append(show, "--schema", "nowhere")...).fails(t, cliDatabase, "ff migrate up")
	})
	t.Run("too_new", func(t *testing.T) {
		t.Parallel()
		databaseURL := pgtest.CloneURL(t)
		execSQL(t, databaseURL, fixture.LaterMigration+";"+fixture.ForLaterOnly)
		for _, args := range [][]string{show, up, {"migrate", "down", "--steps", "1"}} {
			ff.run(t, databaseURL, args...).fails(t, cliDatabase, "newer")
		}
		status := ff.run(t, databaseURL, "migrate", "status", "--json").object(t)
		if status["usable"] != false || !strings.Contains(status["problem"].(string), "too new") {
			t.Errorf("status = %v", status)
		}
	})
	t.Run("read_only", func(t *testing.T) {
		t.Parallel()
		databaseURL := withURL(t, pgtest.CloneURL(t), func(u *url.URL) {
			query := u.Query()
			query.Set("default_transaction_read_only", "on")
			u.RawQuery = query.Encode()
		})
		ff.run(t, databaseURL, up...).fails(t, cliDatabase, "primary")
		// Commands that only read work on a standby.
		ff.run(t, databaseURL, show...).fails(t, cliNotFound, absent)
	})
}

func testCLIMigrate(t *testing.T, ff cli) {
	databaseURL := pgtest.EmptyDatabase(t)
	status := func() (version string, applied int) {
		t.Helper()
		object := ff.run(t, databaseURL, "migrate", "status", "--json").object(t)
		for _, m := range object["migrations"].([]any) {
			if m.(map[string]any)["applied"] == true {
				applied++
			}
		}
		return object["version"].(string), applied
	}

	// A command prints its own output, and no log beside it.
	succeeds := func(text string, args ...string) {
		t.Helper()
		out := ff.run(t, databaseURL, append([]string{"migrate"}, args...)...)
		if out.succeeds(t, text); out.stderr != "" {
			t.Errorf("ff migrate %s prints to standard error\n%s", strings.Join(args, " "), out.stderr)
		}
	}

	succeeds("Not usable: the database is not migrated", "status")
	succeeds("applied 2", "up")
	version, all := status()
	if all < 2 || version == "" {
		t.Fatalf("version %q with %d migrations after up", version, all)
	}
	if out := ff.run(t, databaseURL, "migrate", "up"); strings.Contains(out.stdout, "applied") {
		t.Errorf("a second up does something: %s", out.stdout)
	}
	succeeds("version "+version, "status")

	succeeds("reverted "+version, "down", "--steps", "1")
	if before, applied := status(); applied != all-1 || before >= version {
		t.Errorf("version %q with %d migrations after one step down from %q with %d", before, applied, version, all)
	}
	succeeds("version none", "down", "--all")
	if _, applied := status(); applied != 0 {
		t.Errorf("%d migrations are left after down --all", applied)
	}

	// Another schema of the same database is another thing altogether.
	succeeds("version "+version, "up", "--schema", "Second one")
	if _, applied := status(); applied != 0 {
		t.Errorf("up in a schema applied %d migrations outside it", applied)
	}
	object := ff.run(t, databaseURL, "migrate", "status", "--json", "--schema", "Second one").object(t)
	if object["usable"] != true || object["schema"] != "Second one" {
		t.Errorf("status = %v", object)
	}
}

func testCLIShow(t *testing.T, ff cli) {
	eng, err := engine.New(pgtest.Pool(t), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	flow, err := eng.CreateFlow(t.Context(), engine.FlowSpec{
		Kind: "report",
		Tags: map[string]string{"app.tenant": "acme"},

		Retention: policy.KeepForever, PruneMembersAfter: 36 * time.Hour,
		Nodes: []engine.Node{
			{Key: "first", Spec: engine.ExecutionSpec{Kind: "collect", Payload: []byte(`{"day": 1}`)}},
			{Key: "second", Spec: engine.ExecutionSpec{Kind: "render\x1b[2J", Payload: []byte{0xff, 0x00}}},
		},
		Edges: []engine.Edge{{From: "first", To: "second"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	databaseURL := pgtest.URL(t)
	flowID, first, second := flow.ID.String(), eng.NodeID(flow.ID, "first").String(), eng.NodeID(flow.ID, "second").String()

	object := ff.run(t, databaseURL, "flow", "show", flowID, "--json").object(t)
	wantKeys(t, object, "id", "kind", "namespace", "state", "revision", "nodes", "edges", "created_at", "last_mutation_at",
		"tags", "keep", "prune_members_after", "members_by_state", "members", "edge_list", "groups")
	members := object["members"].([]any)
	if len(members) != 2 || object["id"] != flowID || object["edges"] != 1.0 ||
		object["keep"] != "forever" || object["prune_members_after"] != "36h0m0s" {
		t.Errorf("flow = %v", object)
	}
	wantKeys(t, members[0].(map[string]any), "id", "node", "lane", "kind", "state", "outcome", "leases_lost")
	wantKeys(t, object["groups"].([]any)[0].(map[string]any), "downstream", "when", "edges", "succeeded", "failed",
		"skipped", "active", "state")
	if got := object["members_by_state"].(map[string]any); got["waiting"] != 1.0 || got["waiting_children"] != 1.0 {
		t.Errorf("members by state = %v", got)
	}

	object = ff.run(t, databaseURL, "execution", "show", first, "--json").object(t)
	wantKeys(t, object, "id", "flow", "node", "lane", "namespace", "kind", "priority", "tags", "required_capabilities", "state",
		"state_vector", "created_at", "last_mutation_at", "attempts", "retries", "leases_lost", "attempt_index", "lease", "wait",
		"progress", "attempt_list", "payload", "result", "why")
	if payload := object["payload"].(map[string]any); payload["json"].(map[string]any)["day"] != 1.0 || payload["bytes"] != 10.0 {
		t.Errorf("payload = %v", payload)
	}
	object = ff.run(t, databaseURL, "execution", "show", second, "--json").object(t)
	if payload := object["payload"].(map[string]any); payload["base64"] != "/wA=" {
		t.Errorf("payload = %v", payload)
	}

	out := ff.run(t, databaseURL, "flow", "show", flowID)
	out.succeeds(t, "app.tenant=acme")
	out.succeeds(t, "members pruned after  36h0m0s")
	out.lacks(t, "\x1b")
	ff.run(t, databaseURL, "flow", "show", flowID, "--limit", "1").succeeds(t, "and 1 more")
	ff.run(t, databaseURL, "execution", "show", second).succeeds(t, "waiting_children")
	ff.run(t, databaseURL, "execution", "show", second).succeeds(t, "waits for 1 of 1: first")
	// An ended execution waits for nothing, whichever fields another program left.
	execSQL(t, databaseURL, fmt.Sprintf(`
		UPDATE ff_exec_core
		SET
			lifecycle_phase = 'terminal',
			public_state = 'skipped',
			raw_fields = raw_fields || '{"blocking_detail": "left behind"}'
		WHERE flow_id = '%s' AND blocking_reason = 'waiting_for_children'`, flowID))
	out = ff.run(t, databaseURL, "execution", "show", second)
	out.succeeds(t, "skipped")
	out.lacks(t, "waits for")
	out.lacks(t, "left behind")
	object = ff.run(t, databaseURL, "execution", "show", second, "--json").object(t)
	if reason := object["state_vector"].(map[string]any)["blocking_reason"]; reason != "none" || object["blocking_detail"] != nil {
		t.Errorf("an ended execution waits for %v, %v", reason, object["blocking_detail"])
	}
	ff.run(t, databaseURL, "execution", "show", first[:len(first)-12]+"000000000000").fails(t, cliNotFound, "not found")
	ff.run(t, databaseURL, "flow", "show", id.NewFlowID().String()).fails(t, cliNotFound, "not found")
}

func testCLIKinds(t *testing.T, ff cli) {
	f := fixture.Clone(t)
	ff.run(t, f.Url, "kind", "list").succeeds(t, "Nothing has waited for 1m0s or longer")
	var next id.ExecutionID
	for i, kind := range []string{"resize", "resize", "resize", "render\x1b[2J"} {
		x := f.Create(t, func(s *engine.ExecutionSpec) {
			s.Kind, s.CreatedAt = kind, fixture.Start.Add(-time.Duration(i)*time.Second)
		})
		if i == 2 { // the oldest
			next = x
		}
	}
	elsewhere := func(kind string) func(*engine.ExecutionSpec) {
		return func(s *engine.ExecutionSpec) { s.Lane, s.Kind = f.Lane+"-2", kind }
	}
	f.Create(t, elsewhere("mail"))
	f.Exec(t, "UPDATE ff_exec_core SET ffx_last_mutation_at_ms = (extract(epoch FROM now()) * 1000)::bigint - 120000")
	f.Create(t, elsewhere("new"))
	f.Exec(t, `UPDATE ff_exec_core SET ffx_last_mutation_at_ms = (extract(epoch FROM now()) * 1000)::bigint
		WHERE raw_fields ->> 'execution_kind' = 'new'`)

	object := ff.run(t, f.Url, "kind", "list", "--json", "--lane", string(f.Lane)).object(t)
	kinds := object["kinds"].([]any)
	if len(kinds) != 2 {
		t.Fatalf("kinds = %v", kinds)
	}
	resize := kinds[1].(map[string]any)
	wantKeys(t, resize, "lane", "kind", "waiting", "at_least", "next", "since")
	if resize["kind"] != "resize" || resize["waiting"] != 3.0 || resize["next"] != next.String() || resize["at_least"] != false {
		t.Errorf("of three that wait: %v", resize)
	}
	out := ff.run(t, f.Url, "kind", "list")
	out.succeeds(t, "mail")
	out.lacks(t, "\x1b")
	out.lacks(t, "new")
	ff.run(t, f.Url, "kind", "list", "--longer", "0s").succeeds(t, "new")
	ff.run(t, f.Url, "kind", "list", "--longer", "1h").succeeds(t, "Nothing has waited for 1h0m0s or longer")
}

func wantKeys(t *testing.T, object map[string]any, keys ...string) {
	t.Helper()
	slices.Sort(keys)
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, keys) {
		t.Errorf("keys are %q,\n    want %q", got, keys)
	}
}
