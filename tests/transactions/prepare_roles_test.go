package transactions

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/needs"
)

var roles = []engine.Role{engine.RoleReader, engine.RoleCreator, engine.RoleWorker, engine.RoleOperator}

// grantsFor are the options that print the grants of a role.
func grantsFor(role engine.Role) schema.GrantOptions {
	return schema.GrantOptions{
		Reader: role == engine.RoleReader, Creator: role == engine.RoleCreator, Worker: role == engine.RoleWorker, Operator: role == engine.RoleOperator,
	}
}

// granted makes a role of the database that has the printed grants and nothing else, and returns its name.
func granted(t *testing.T, f *fixture.Fixture, role engine.Role) string {
	t.Helper()
	name := f.Stranger(t)
	t.Cleanup(func() {
		if _, err := f.Pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %q", name)); err != nil {
			t.Error(err)
		}
	})
	sql, err := schema.Grants(name, grantsFor(role))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	return name
}

// engineAs returns an engine that works as a role of the database.
func engineAs(t *testing.T, f *fixture.Fixture, name string) *engine.Engine {
	t.Helper()
	return f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["role"] = name
	}), engine.Config{})
}

// performers says which roles perform an operation of the fixture. All others are a worker's.
func performers(operation string) []engine.Role {
	byRole := map[string][]engine.Role{
		"create": {engine.RoleCreator}, "create with a key": {engine.RoleCreator}, "create with a business key": {engine.RoleCreator},
		"create with a policy": {engine.RoleCreator}, "create a flow": {engine.RoleCreator},
		"grow a flow": {engine.RoleCreator}, "add a member": {engine.RoleCreator}, "stage an edge": {engine.RoleCreator},
		"stage and apply an edge": {engine.RoleCreator}, "apply an edge": {engine.RoleCreator}, "set the policy of a group": {engine.RoleCreator},
		"change priority": {engine.RoleOperator}, "delay what waits": {engine.RoleOperator}, "revoke a lease": {engine.RoleOperator},
		"fork": {engine.RoleOperator}, "continue a sequence": {engine.RoleOperator}, "replay in a sequence": {engine.RoleOperator}, "replay": {engine.RoleOperator}, "replay a member": {engine.RoleOperator}, "block": {engine.RoleOperator}, "unblock": {engine.RoleOperator},
		"keep what ends on a lane": {engine.RoleOperator}, "record an action": {engine.RoleOperator}, "pause a lane": {engine.RoleOperator}, "resume a lane": {engine.RoleOperator},
		"drain a worker": {engine.RoleOperator}, "resume a worker": {engine.RoleOperator},
		"drain workers": {engine.RoleOperator}, "resume workers": {engine.RoleOperator}, "mark a worker dead": {engine.RoleWorker, engine.RoleOperator},
		"create a budget": {engine.RoleCreator, engine.RoleOperator}, "release a budget": {engine.RoleCreator, engine.RoleOperator},
		"release an admission": {engine.RoleWorker, engine.RoleOperator}, "hold a key of a limit": {engine.RoleWorker, engine.RoleOperator},
		"reset a budget": {engine.RoleOperator}, "report usage": {engine.RoleWorker, engine.RoleOperator},
		"set a budget": {engine.RoleOperator}, "delete a budget": {engine.RoleOperator},
		"set a quota policy": {engine.RoleOperator}, "delete a quota policy": {engine.RoleOperator},
		"record a spend": {engine.RoleCreator, engine.RoleWorker},
		"seed a key":     {engine.RoleOperator}, "rotate a key": {engine.RoleOperator},
		"signal": {engine.RoleCreator, engine.RoleOperator}, "signal before the wait": {engine.RoleCreator, engine.RoleOperator},
		"resume":    {engine.RoleCreator, engine.RoleOperator},
		"set a tag": {engine.RoleCreator, engine.RoleWorker, engine.RoleOperator},
	}
	both := []string{
		"cancel", "cancel in a batch", "cancel a flow", "cancel what waits in a flow", "close a flow", "request that a flow is cancelled",
		"request it with grace", "tag a flow", "tag a flow twice",
		"set a schedule", "declare schedules", "pause a schedule", "resume a schedule", "trigger a schedule", "backfill a schedule",
		"delete a schedule",
	}
	switch performed, ok := byRole[operation]; {
	case ok:
		return performed
	case slices.Contains(both, operation):
		return []engine.Role{engine.RoleCreator, engine.RoleOperator}
	}
	return []engine.Role{engine.RoleWorker}
}

// A role with the grants that `ff migrate grants` prints can do everything that belongs to it. A reader can do none
// of it, and the error names the missing right.
func TestEachRoleDoesItsOperationsByThePrintedGrants(t *testing.T) {
	t.Parallel()
	type database struct {
		*fixture.Fixture
		as map[engine.Role]*engine.Engine
	}
	prepared := func(t *testing.T) database {
		d := database{fixture.Clone(t), make(map[engine.Role]*engine.Engine)}
		for _, role := range roles {
			d.as[role] = engineAs(t, d.Fixture, granted(t, d.Fixture, role))
			if err := d.as[role].Prepare(t.Context(), role); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	shared, jobs := prepared(t), prepared(t)
	for _, o := range fixture.Operations() {
		for _, role := range performers(o.Name) {
			t.Run(o.Name+" as "+string(role), func(t *testing.T) {
				on := shared
				switch {
				case o.Alone:
					on = prepared(t)
				case o.Whole:
					on = jobs
				}
				f := fixture.On(t, on.Pool, on.Url)
				as := func(role engine.Role) *engine.Engine { return f.EngineOn(t, on.as[role].Pool(), engine.Config{}) }
				l := o.Arrange(t, f)
				before := f.Dump(t, l.Execution)
				if err := o.Do(t.Context(), f, as(engine.RoleReader), l); !errors.Is(err, fferr.ErrDenied) {
					t.Errorf("a reader: got %v, want %v", err, fferr.ErrDenied)
				}
				f.WantUnchanged(t, l.Execution, before)
				if err := o.Do(t.Context(), f, as(role), l); err != nil {
					t.Fatal(err)
				}
				o.WantDone(t, f, l, before)
			})
		}
	}
}

// readArguments returns a function that gives the arguments of a read by their types.
func readArguments(t *testing.T, x id.ExecutionID, flow id.FlowID, edge id.EdgeID, lane id.LaneID, budget id.BudgetID, quota id.QuotaPolicyID) func(call string, of reflect.Type) reflect.Value {
	return func(call string, of reflect.Type) reflect.Value {
		switch of {
		case reflect.TypeFor[context.Context]():
			return reflect.ValueOf(t.Context())
		case reflect.TypeFor[id.ExecutionID]():
			return reflect.ValueOf(x)
		case reflect.TypeFor[id.ExecutionUUID]():
			return reflect.ValueOf(x.UUID())
		case reflect.TypeFor[id.FlowID]():
			return reflect.ValueOf(flow)
		case reflect.TypeFor[id.EdgeID]():
			return reflect.ValueOf(edge)
		case reflect.TypeFor[[]engine.Role]():
			return reflect.ValueOf([]engine.Role{engine.RoleReader})
		case reflect.TypeFor[[]id.LaneID]():
			return reflect.ValueOf([]id.LaneID{lane})
		case reflect.TypeFor[id.BudgetID]():
			return reflect.ValueOf(budget)
		case reflect.TypeFor[id.QuotaPolicyID]():
			return reflect.ValueOf(quota)
		case reflect.TypeFor[limit.Name]():
			return reflect.ValueOf(limit.Name{Name: "calls"})
		case reflect.TypeFor[schedule.Name]():
			return reflect.ValueOf(schedule.Name{Name: "nightly"})
		case reflect.TypeFor[engine.SequenceName]():
			return reflect.ValueOf(engine.SequenceName{Key: "line"})
		case reflect.TypeFor[stream.Range]():
			return reflect.ValueOf(stream.Range{Limit: 1})
		case reflect.TypeFor[[]engine.Lease]():
			return reflect.ValueOf([]engine.Lease{{Fence: id.Fence{Execution: x}}})
		case reflect.TypeFor[interop.EligibleFilter]():
			return reflect.ValueOf(interop.EligibleFilter{Lane: lane})
		case reflect.TypeFor[string]():
			if strings.HasSuffix(call, "Tag") {
				return reflect.ValueOf("app.tag")
			}
			if strings.HasSuffix(call, "ByKey") {
				return reflect.ValueOf(call) // the name and the value of the key
			}
		}
		return reflect.Zero(of)
	}
}

// Every call that belongs to a reader works by a reader's grants.
func TestReaderReadsEverything(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	spec := fixture.Chart(nil, "a>b")
	spec.BusinessKey = id.BusinessKey{Name: "Engine.FindFlowByKey", Value: "Engine.FindFlowByKey"}
	spec.Nodes[0].Spec.BusinessKey = id.BusinessKey{Name: "Engine.FindExecutionByKey", Value: "Engine.FindExecutionByKey"}
	flow := f.NewFlowOf(t, spec)
	f.Succeed(t, flow, "a")
	f.Succeed(t, flow, "b")
	edges := fixture.Listed(t, f.FlowEdges(t.Context(), flow))
	if len(edges) != 1 {
		t.Fatal(edges)
	}
	x := f.NodeID(flow, "a")
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.Sequence = engine.Sequence{Key: "line"} })
	if err := schedule.Put(t.Context(), f.Engine, schedule.Spec{Name: "nightly", Every: time.Hour, Execution: engine.ExecutionSpec{Kind: "test"}}); err != nil {
		t.Fatal(err)
	}
	limited, err := budget.Create(t.Context(), f.Fixture.Engine, budget.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	quota, err := interop.CreateQuotaPolicy(t.Context(), f.Fixture.Engine, interop.QuotaPolicySpec{MaxRunning: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "calls", Units: 1}); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, `
		INSERT INTO ff_stream_summary (partition_key, execution_id, attempt_index, document_json, version, last_updated_ms, first_applied_ms)
		VALUES ($1, $2, 0, '{}', 1, 1, 1)`, x.Partition(), x.UUID())
	eng := engineAs(t, f.Fixture, granted(t, f.Fixture, engine.RoleReader))
	argument := readArguments(t, x, flow, edges[0].ID, f.Lane, limited.ID, quota.ID)
	handles := map[string]any{"Engine": eng, "Operator": eng, "Grants": eng}
	called := 0
	for _, call := range needs.Calls["reader"] {
		handle, name, _ := strings.Cut(call, ".")
		var method reflect.Value
		switch function := fixture.Functions[call]; {
		case function != nil:
			method = fixture.Bind(function, eng)
		case handles[handle] != nil:
			method = reflect.ValueOf(handles[handle]).MethodByName(name)
		default:
			continue
		}
		if !method.IsValid() {
			t.Errorf("there is no %s", call)
			continue
		}
		var arguments []reflect.Value
		for i := range method.Type().NumIn() {
			arguments = append(arguments, argument(call, method.Type().In(i)))
		}
		invoke := method.Call
		if method.Type().IsVariadic() {
			invoke = method.CallSlice
		}
		results := invoke(arguments)
		last := results[len(results)-1]
		if last.Kind() == reflect.Func { // an iterator
			for _, item := range last.Seq2() {
				if last = item; !last.IsNil() {
					break
				}
			}
		}
		if err, _ := last.Interface().(error); last.Kind() == reflect.Interface && err != nil {
			t.Errorf("%s: %v", call, err)
		}
		called++
	}
	if called < 40 {
		t.Errorf("called %d only", called)
	}
	sub, err := events.Subscribe(t.Context(), eng, events.Completions(events.Filter{}), events.Options{After: events.Beginning})
	if err != nil {
		t.Fatal(err)
	}
	sub.Close()
	if _, err := budget.Get(t.Context(), eng, limited.ID); err != nil {
		t.Error(err)
	}
	for _, err := range budget.All(t.Context(), eng) {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := events.Consumers(t.Context(), eng); err != nil {
		t.Error(err)
	}
	if _, err := events.SetAside(t.Context(), eng, events.CompletionOutbox, "nobody", events.Cursor{}, 10); err != nil && !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
}

// Prepare names each right that a role lacks, by the statement that grants it. A worker without one claimed nothing and
// said nothing.
func TestPrepareNamesEachMissingRight(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, role := range roles {
		name := granted(t, f, role)
		sql, err := schema.Grants(name, grantsFor(role))
		if err != nil {
			t.Fatal(err)
		}
		for statement := range strings.SplitSeq(strings.TrimSpace(sql), ";\n") {
			statement = strings.Join(strings.Fields(strings.TrimSuffix(statement, ";")), " ")
			_, statement, _ = strings.Cut(statement, "GRANT ") // without the line on top
			privileges, rest, _ := strings.Cut(statement, " ON ")
			kind, rest, _ := strings.Cut(rest, " ")
			objects, _, _ := strings.Cut(rest, " TO ")
			for privilege := range strings.SplitSeq(privileges, ", ") {
				for object := range strings.SplitSeq(objects, ", "+`"public".`) {
					object = strings.TrimPrefix(object, `"public".`)
					tx := f.BeginTx(t)
					if kind == "FUNCTION" {
						fixture.ExecIn(t, tx, fmt.Sprintf("REVOKE EXECUTE ON FUNCTION %s FROM public", object))
					}
					if kind == "SCHEMA" {
						fixture.ExecIn(t, tx, "REVOKE USAGE ON SCHEMA public FROM public")
					}
					fixture.ExecIn(t, tx, fmt.Sprintf("REVOKE %s ON %s %s FROM %q", privilege, kind, object, name))
					fixture.ExecIn(t, tx, fmt.Sprintf("SET LOCAL ROLE %q", name))
					err := f.WithTx(tx).Prepare(t.Context(), role)
					denied, ok := errors.AsType[*fferr.DeniedError](err)
					want := fmt.Sprintf(`GRANT %s ON %s %s TO "%s"`, privilege, kind, strings.ReplaceAll(object, `"`, ""), name)
					if !ok || !errors.Is(err, fferr.ErrDenied) || len(denied.Grants) != 1 || denied.Grants[0] != want {
						t.Errorf("%s without %s on %s: %v, want %s", role, privilege, object, err, want)
					}
					if err := tx.Rollback(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// A program reads which roles it may act in, and those are the roles that Prepare accepts and whose operations work.
func TestRolesAreThoseWhoseRightsTheProgramHas_B35(t *testing.T) {
	f := fixture.NewCloned(t)
	want := func(what string, eng *engine.Engine, want ...engine.Role) {
		t.Helper()
		held, err := eng.Roles(t.Context())
		if err != nil || !slices.Equal(held, want) {
			t.Errorf("%s: %v, %v, want %v", what, held, err, want)
		}
		for _, role := range roles {
			if err := eng.Prepare(t.Context(), role); (err == nil) != slices.Contains(held, role) {
				t.Errorf("%s, roles %v, prepares as %s: %v", what, held, role, err)
			}
		}
	}
	want("the owner", f.Engine, roles...)
	want("a stranger", engineAs(t, f, f.Stranger(t)))
	for _, role := range roles {
		name := granted(t, f, role)
		expected := []engine.Role{engine.RoleReader, role}
		want(string(role), engineAs(t, f, name), slices.Compact(expected)...)
		f.Exec(t, fmt.Sprintf("REVOKE SELECT ON ff_flow_core FROM %q", name))
		want(string(role)+" without a right of readers", engineAs(t, f, name))
	}
	name := granted(t, f, engine.RoleOperator)
	f.Exec(t, fmt.Sprintf("REVOKE INSERT ON ffx_pause FROM %q", name))
	want("an operator without a right", engineAs(t, f, name), engine.RoleReader)
	f.Exec(t, "REVOKE USAGE ON SCHEMA public FROM public")
	want("without the schema", engineAs(t, f, f.Stranger(t)))
}

// A program that names no role needs the rights of creators and workers, in statements that several tables share.
func TestPrepareAsksForCreatorsAndWorkersRights(t *testing.T) {
	f := fixture.NewCloned(t)
	eng := engineAs(t, f, granted(t, f, engine.RoleCreator))
	err := eng.Prepare(t.Context())
	denied, ok := errors.AsType[*fferr.DeniedError](err)
	if !ok || !strings.Contains(err.Error(), "ffx_lease_timer") {
		t.Fatalf("a creator prepares: %v", err)
	}
	for _, grant := range denied.Grants {
		f.Exec(t, grant)
	}
	if err := eng.Prepare(t.Context()); err != nil {
		t.Errorf("after what it asked for was granted: %v", err)
	}
	if err := eng.Prepare(t.Context(), "king"); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("an unknown role: %v", err)
	}
}
