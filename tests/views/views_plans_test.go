package views

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// planOf is the plan of a statement without parameters.
func planOf(t *testing.T, f *fixture.Fixture, sql string) *fixture.PlanNode {
	t.Helper()
	var document []byte
	if err := f.Pool.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) "+sql, pgx.QueryExecModeSimpleProtocol).Scan(&document); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	var plans []struct{ Plan fixture.PlanNode }
	if err := json.Unmarshal(document, &plans); err != nil {
		t.Fatal(err)
	}
	return &plans[0].Plan
}

// One row is found by the key of its table, a page is read along it, and the members of a flow by their index:
// filters reach the tables, and nothing reads one from end to end.
func TestViewsPlans(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.Fill(t, 2000)
	p.Exec(t, `INSERT INTO ff_suspension_current (partition_key, execution_id, suspension_id, suspended_at_ms, condition)
		SELECT partition_key, execution_id, gen_random_uuid(), 1, '{}' FROM ff_exec_core`)
	p.Analyze(t)
	const uuid = "'01890000-0000-7000-8000-000000000000'"
	for _, c := range []struct {
		sql      string
		outer    string   // the index by which the rows are found
		touching []string // the tables that are looked into
	}{
		{
			"SELECT * FROM ffx_execution WHERE partition_key = 7 AND execution_id = " + uuid, "ff_exec_core_pkey",
			[]string{"ff_attempt", "ff_exec_core", "ff_suspension_current"},
		},
		{
			"SELECT * FROM ffx_execution WHERE (partition_key, execution_id) > (7, " + uuid + ") ORDER BY partition_key, execution_id LIMIT 100", "ff_exec_core_pkey",
			[]string{"ff_attempt", "ff_exec_core", "ff_suspension_current"},
		},
		{
			"SELECT state, count(*) FROM ffx_execution WHERE partition_key = 7 AND flow_id = " + uuid + " GROUP BY state", "ff_exec_core_flow_idx",
			[]string{"ff_attempt", "ff_exec_core"},
		},
		{
			"SELECT * FROM ffx_execution WHERE (partition_key, execution_id) = (" + splitID("{fp:7}:01890000-0000-7000-8000-000000000000") + ")", "ff_exec_core_pkey",
			[]string{"ff_attempt", "ff_exec_core", "ff_suspension_current"},
		},
		{
			"SELECT * FROM ffx_attempt WHERE partition_key = 7 AND execution_id = " + uuid + " ORDER BY attempt", "ff_attempt_pkey",
			[]string{"ff_attempt", "ff_exec_core"},
		},
		{
			"SELECT * FROM ffx_attempt WHERE (partition_key, execution_id) > (7, " + uuid + ") ORDER BY partition_key, execution_id, attempt LIMIT 100", "ff_attempt_pkey",
			[]string{"ff_attempt", "ff_exec_core"},
		},
		{
			"SELECT * FROM ffx_wait WHERE partition_key = 7 AND execution_id = " + uuid, "ff_exec_core_pkey",
			[]string{"ff_exec_core", "ff_suspension_current"},
		},
		{
			"SELECT * FROM ffx_steps WHERE partition_key = 7 AND execution_id = " + uuid + " ORDER BY seq", "ffx_step_pkey",
			[]string{"ffx_step"},
		},
		{
			"SELECT * FROM ffx_stream_frames WHERE partition_key = 7 AND execution_id = " + uuid + " ORDER BY attempt, ts_ms, seq", "ff_stream_frame_pkey",
			[]string{"ff_stream_frame"},
		},
		{"SELECT * FROM ffx_flow WHERE partition_key = 7 AND flow_id = " + uuid, "ff_flow_core_pkey", []string{"ff_flow_core"}},
		{
			"SELECT * FROM ffx_flow WHERE (partition_key, flow_id) > (7, " + uuid + ") ORDER BY partition_key, flow_id LIMIT 100", "ff_flow_core_pkey",
			[]string{"ff_flow_core"},
		},
	} {
		var touched, outer []string
		planOf(t, p.Flows.Fixture, c.sql).Walk(func(n *fixture.PlanNode) {
			if n.Relation == "" && n.Index == "" {
				return
			}
			touched = append(touched, n.Relation)
			if n.Index == c.outer {
				outer = append(outer, n.Condition)
			}
			if n.Condition == "" && n.Type != "Bitmap Heap Scan" {
				t.Errorf("%s\n\treads all of %s by %s", c.sql, n.Relation, n.Type)
			}
		})
		touched = slices.DeleteFunc(touched, func(table string) bool { return table == "" })
		slices.Sort(touched)
		if touched = slices.Compact(touched); !slices.Equal(touched, c.touching) {
			t.Errorf("%s\n\tlooks into %q, want %q", c.sql, touched, c.touching)
		}
		if !slices.ContainsFunc(outer, func(condition string) bool { return strings.Contains(condition, "7") }) {
			t.Errorf("%s\n\tuses %s for %q, want what is filtered by there", c.sql, c.outer, outer)
		}
	}
}

// splitID is how docs/database.md takes an id apart in SQL.
func splitID(text string) string {
	return fmt.Sprintf("split_part(split_part('%[1]s', '}', 1), ':', 2)::smallint, split_part('%[1]s', '}:', 2)::uuid", text)
}

func TestViewsFindAnExecutionByTheTextOfItsID(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	row := fixture.One[db.FfxExecution](t, f.Pool, "SELECT * FROM ffx_execution WHERE (partition_key, execution_id) = ("+splitID(x.String())+")")
	if row.ID != x.String() || row.Kind != "test" {
		t.Errorf("found %+v, want %s", row, x)
	}
}

// The example of package db: a page in the order of the key, some columns into the model.
func TestViewsPagesIntoModels(t *testing.T) {
	f := fixture.NewCloned(t)
	want := map[string]bool{}
	for range 7 {
		want[f.Create(t).String()] = true
	}
	var x id.ExecutionID
	for len(want) > 0 {
		rows, err := f.Pool.Query(t.Context(), `
			SELECT id, kind, state, outcome, failure_reason, ended_at
			FROM ffx_execution
			WHERE (partition_key, execution_id) > ($1, $2)
			ORDER BY partition_key, execution_id
			LIMIT 3`, x.Partition(), x.UUID())
		if err != nil {
			t.Fatal(err)
		}
		page, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[db.FfxExecution])
		if err != nil || len(page) == 0 {
			t.Fatalf("%d rows, %v; %d are missing", len(page), err, len(want))
		}
		for _, row := range page {
			if !want[row.ID] || or(row.State) != "waiting" {
				t.Errorf("%s is %s", row.ID, or(row.State))
			}
			delete(want, row.ID)
		}
		if x, err = id.ParseExecutionID(page[len(page)-1].ID); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader of the views sees no payload, result or token, and needs no right on the tables.
func TestViewsNeedNoTableGrants(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Start(t)
	conn, err := pgx.Connect(t.Context(), f.Url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	role := pgx.Identifier{f.Name}.Sanitize()
	exec := func(sql string) error {
		_, err := conn.Exec(t.Context(), sql)
		return err
	}
	for _, sql := range []string{"BEGIN", "CREATE ROLE " + role, "GRANT SELECT ON ffx_execution, ffx_attempt, ffx_flow, ffx_wait, ffx_steps, ffx_lane TO " + role, "SET LOCAL ROLE " + role} {
		if err := exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, view := range []string{"ffx_execution", "ffx_attempt", "ffx_flow", "ffx_wait", "ffx_steps", "ffx_lane"} {
		if err := exec("SELECT * FROM " + view); err != nil {
			t.Error(err)
		}
	}
	if err := exec("SELECT payload FROM ff_exec_core"); err == nil {
		t.Error("the role reads payloads")
	}
	if err := exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
}

// In a converted database the views read FlowFabric's rows.
func TestViewsOfAnAdoptedDatabase(t *testing.T) {
	f := fixture.ReferenceFixture(t)
	for _, row := range fixture.ReferenceRows() {
		x := f.Seed(t, row.Execution)
		for i, attempt := range row.Attempts {
			f.SeedAttempt(t, x, int32(i), attempt)
		}
	}
	f.Adopt(t)
	x := f.Create(t)
	f.SetExecution(t, x, "priority = 9000")
	if c := f.ClaimOne(t); c.Lease.Execution != x {
		t.Fatalf("claimed %+v, want %s", c, x)
	}
	if v := compareViews(t, f, math.MaxInt32); v.executions != len(fixture.ReferenceRows())+1 {
		t.Errorf("compared %d executions", v.executions)
	}
}
