package tests

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// queries returns the text of every query of package db by name.
func queries(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../db/*.sql.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	texts := make(map[string]string)
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for node := range ast.Preorder(file) {
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			if header, ok := strings.CutPrefix(text, "-- name: "); ok {
				name, _, _ := strings.Cut(header, " ")
				texts[name] = text
			}
		}
	}
	return texts
}

// planNode is a node of a plan as EXPLAIN shows it.
type planNode struct {
	Type      string     `json:"Node Type"`
	Relation  string     `json:"Relation Name"`
	Index     string     `json:"Index Name"`
	Condition string     `json:"Index Cond"`
	Role      string     `json:"Parent Relationship"`
	Plans     []planNode `json:"Plans"`
}

// walk calls visit for every node.
func (n *planNode) walk(visit func(*planNode)) {
	visit(n)
	for i := range n.Plans {
		n.Plans[i].walk(visit)
	}
}

// planner has a database whose plans are looked at, planned as in the engine's transactions: with their settings, generically.
type planner struct {
	*flowFixture
	settings string // what the engine begins a transaction with
	texts    map[string]string
}

func newPlanner(t *testing.T) *planner {
	p := &planner{flowFixture: flowsOn(cloneFixture(t)), texts: queries(t)}
	log := new(statementLog)
	eng := p.engineOn(t, log.open(t, p.url), engine.Config{})
	p.settings = log.during(func() {
		if _, err := eng.CreateFlow(t.Context(), engine.FlowSpec{}); err != nil {
			t.Fatal(err)
		}
	})[0]
	if !strings.HasPrefix(p.settings, "begin") {
		t.Fatalf("a transaction begins with %q", p.settings)
	}
	// The statistics are what the test makes them.
	for _, table := range p.tables(t) {
		p.exec(t, fmt.Sprintf("ALTER TABLE %s SET (autovacuum_enabled = false)", table))
	}
	return p
}

// explainer explains queries in one transaction, begun as the engine begins its own. Each plan is made when it is asked for:
// a prepared statement has none before its first use, and is deallocated after it.
type explainer struct {
	tx    *pgx.Conn
	texts map[string]string
}

// explainer returns an explainer for the database as it is now. One login serves all queries of a situation.
func (p *planner) explainer(t *testing.T) *explainer {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), p.settings, pgx.QueryExecModeSimpleProtocol); err != nil {
		conn.Close(t.Context())
		t.Fatal(err)
	}
	return &explainer{conn, p.texts}
}

// end ends the transaction. The locks of the plans would hold up what changes the tables next.
func (e *explainer) end(t *testing.T) {
	t.Helper()
	if err := e.tx.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// explain returns the plan of a query.
func (e *explainer) explain(t *testing.T, name string) *planNode {
	t.Helper()
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal(e.explainAs(t, name, "FORMAT JSON"), &plans); err != nil {
		t.Fatal(err)
	}
	return &plans[0].Plan
}

func (e *explainer) explainAs(t *testing.T, name, options string) []byte {
	t.Helper()
	text, ok := e.texts[name]
	if !ok {
		t.Fatalf("there is no query %s", name)
	}
	prepared, err := e.tx.Prepare(t.Context(), "explained", text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	call := "EXPLAIN (" + options + ") EXECUTE explained"
	if n := len(prepared.ParamOIDs); n > 0 {
		call += "(" + strings.Join(slices.Repeat([]string{"NULL"}, n), ", ") + ")"
	}
	var document []byte
	if err := e.tx.QueryRow(t.Context(), call, pgx.QueryExecModeSimpleProtocol).Scan(&document); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := e.tx.Deallocate(t.Context(), "explained"); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return document
}

// fill gives the database n executions in every state: members of a flow and others, waiting, delayed,
// running, with leases that have run out, and ended.
func (p *planner) fill(t *testing.T, n int) {
	t.Helper()
	spec := layered(n/4, 3*n/4)
	for i := range spec.Nodes {
		spec.Nodes[i].When = rules(i % 2).group()
	}
	p.createFlow(t, spec)
	p.exec(t, `INSERT INTO ff_flow_core (partition_key, flow_id, public_flow_state, created_at_ms)
		SELECT i % 256, gen_random_uuid(), 'open', i FROM generate_series(1, $1::integer) AS i`, n)
	p.exec(t, `INSERT INTO ff_claim_grant (partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, grant_ttl_ms, issued_at_ms, expires_at_ms)
		SELECT i % 256, uuid_send(gen_random_uuid()), gen_random_uuid(), 'claim', 'w', 'w', 1, i, i FROM generate_series(1, $1::integer) AS i`, n)
	specs := make([]engine.ExecutionSpec, n-n/4)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Kind: "test", Lane: p.lane, IdempotencyKey: id.IdempotencyKey(fmt.Sprintf("%d of %d", i, n))}
		switch i % 10 {
		case 0:
			specs[i].DelayUntil = p.now().Add(time.Minute)
		case 1:
			specs[i].Deadline = p.now().Add(time.Minute)
		}
	}
	if _, err := p.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		claimed, err := p.Claim(t.Context(), p.worker(), max(n/20, 1))
		if err != nil {
			t.Fatal(err)
		}
		var completions []engine.Completion
		for i, c := range claimed {
			if i%10 > 0 {
				completions = append(completions, engine.Completion{Lease: c.Lease})
			}
		}
		if _, err := p.CompleteExecutions(t.Context(), completions); err != nil {
			t.Fatal(err)
		}
	}
	p.advance(time.Hour)
}

// A rule that stands in a function of the schema costs what it would cost in the statement: the planner puts it there.
func TestPlans_functions_of_the_schema_are_inlined(t *testing.T) {
	p := newPlanner(t)
	functions := texts(t, p.pool, `SELECT proname FROM pg_proc AS f JOIN pg_language AS l ON l.oid = f.prolang
		WHERE f.proname ~ '^ffx_' AND f.prokind = 'f' AND l.lanname = 'sql' AND f.pronamespace = current_schema()::regnamespace`)
	called := 0
	e := p.explainer(t)
	defer e.end(t)
	for name, text := range p.texts {
		for _, function := range functions {
			calls := regexp.MustCompile(`[^']\b` + function + `\(`) // and does not merely name it
			if !calls.MatchString(text) {
				continue
			}
			called++
			if plan := string(e.explainAs(t, name, "VERBOSE, FORMAT JSON")); calls.MatchString(plan) {
				t.Errorf("%s calls %s:\n%s", name, function, plan)
			}
		}
	}
	if called == 0 {
		t.Error("no statement calls a function of the schema")
	}
}

// keyed are the statements that name their rows: whatever they touch, they find by a key.
var keyed = []string{
	"TakeAttemptsOf", "LeaseTakenExecutions",
	"TakeConsumer", "LockConsumer", "AdvanceConsumer", "NoteFailedTry", "SetAsideEvent", "ReturnConsumer", "MoveConsumer", "RemoveConsumer",
	"ForgetSetAside", "DropSetAside",
	"RenewLeases", "ReadLeases", "LockExecutions", "LockAttempts", "TakeExecutions", "TakeAttempts", "UpdateProgress", "ReturnLeases", "LockGroupsOf", "ReadGroupsOf",
	"CompleteExecutions", "CompleteOne", "EndSucceeded", "ReleaseQuotaSlots", "InsertCompletionEvents",
	"ReadExecutionForecasts", "LockCurrentAttempts", "LockMemberAttempts", "ReadHeldExecutions", "EndCancelled",
	"ListPendingAmong", "LockFlowToCancel", "MarkFlowCancelled",
	"InsertCancelBacklog", "LockCancelBacklog", "TakeCancelBacklogs", "DropBacklogMembers", "DropEmptyBacklogs",
	"ReadRetryFacts", "ScheduleRetries", "EndUnsuccessful", "DiscardWaiting",
	"LockDownstreamGroups", "ResolveEdges", "PassResults", "ReleaseDownstream", "SkipDownstream", "EndSkippedAttempts",
	"EnqueueSiblingCancels", "ListUncountedEdges", "LeaveEdges", "ListPassedOver", "TakeUpstreams", "ClaimCompletions", "LeaveCompletions",
	"TakeExpiredLeases", "TakeCurrentAttempts", "ReleaseExpiredLeases", "FenceStrayLeases", "TakeOverdue", "SettleDeadlines", "TakeTimedOut", "ForgetTimeouts",
	"TakeLeaseless", "ListLeased",
	"TakeForeignMembers", "ReadInboundGroups", "AdoptExecutions", "TakeHalfDone", "HealEnded", "RetellEnded", "RepointExecutions",
	"LockFlowRows", "ShareFlowRows", "TryFlowsExclusive", "CountNewMembers",
	"GetExecutionFlow", "SetFlowTags", "GetFlowTag", "ListNamedFlows", "ListEdgesInto", "ListEdgesFrom", "ListInbound",
	"GetExecutionResult", "GetExecutionExists", "GetExecutionProgress", "GetFlowExists",
	"InsertAlike", "InsertExecutions", "TakeCreationKeys", "ReuseCreationKeys", "DropCreationKeys", "ReadExistingExecutions",
	"ListEnded", "ListNamedExecutions", "FindExecution",
	"EnsurePause", "DropPause", "BlockExecution", "UnblockExecution", "DropGrants",
	"TakeEnded", "DropAttemptsOf", "DropStreamFramesOf", "DropStreamMetasOf", "DropStreamSummariesOf", "DropClaimGrantsOf",
	"DropSuspensionsOf", "DropWaitpointsOf", "DropBudgetUsageOf", "DropExecutions", "ListNeeded",
	"DropCancelDispatchesOf", "DropBacklogMembersOf", "DropFlowSummariesOf", "DropFlows",
	"ChangePriority", "PostponeExecution", "PromoteExecution", "RevokeLease", "ReplayExecution", "TouchFlow",
	"TakeEligible", "ReadGrantFacts", "ListGrants", "GetGrant", "DeleteGrants", "HoldForGrant", "EndReclaimedAttempt", "ExpireGrants",
	"ListUnsoundGroups", "TakeUnsoundGroups", "ReadGroupEdges", "RecountGroups", "ListLostEnds",
	"LockUnstartedDownstream", "ListDownstreamGroups", "ReopenEdges", "MarkCountedEdges", "BlockDownstream", "LockInboundGroup", "ReopenInboundEdges",
	"TakeSiblingCancels", "TakeGroups", "ListSiblings", "ClearSiblingCancels",
	"LockGrowingFlow", "CountGrowth", "JoinFlow", "ListInboundEdges", "ListEdgesBelow", "PassResultsAlong",
	"ListInstances", "ListFlowInstances",
}

// scanning are the statements that look for rows, in indexes made for it.
var scanning = map[string][]string{
	"ClaimFromHead":         {"ffx_ready_pkey", "ff_exec_core_pkey", "ffx_pause_pkey"},
	"ClaimAfterPositions":   {"ffx_ready_pkey", "ff_exec_core_pkey", "ffx_pause_pkey"},
	"ClaimOneAfterPosition": {"ffx_ready_pkey", "ff_exec_core_pkey", "ffx_pause_pkey"},
	"TakeClaimable":         {"ffx_ready_pkey", "ff_exec_core_pkey", "ffx_pause_pkey"},
	"ListLaneEnds":          {"ffx_ready_pkey"},
	"RepairQueue":           {"ff_exec_core_pkey", "ffx_ready_pkey", "ffx_blocked_pkey"},
	"ListPauses":            {"ffx_pause_pkey"},
	"ListBlocked":           {"ffx_blocked_lane_idx", "ff_exec_core_pkey"},
	"UnblockRoutes":         {"ffx_blocked_route_idx", "ff_exec_core_pkey"},
	"ListQueuedLanes":       {"ffx_ready_pkey"},
	"ListExecutions":        {"ff_exec_core_pkey"},
	"ListFlowMembers":       {"ff_exec_core_flow_idx"},
	"ForgetSiblingCancels":  {"ff_edge_group_pkey"},
	"LockMembers":           {"ff_exec_core_flow_idx", "ff_exec_core_pkey"},
	"ListFlowToCancel":      {"ff_exec_core_flow_idx"},
	"ListWaitingKinds":      {"ffx_ready_pkey", "ff_exec_core_pkey"},
	"LookAtLeases":          {"ffx_lease_timer_pkey"},
	"ForgetLeaseTimers":     {"ffx_lease_timer_pkey"},
	"ScanTimedOut":          {"ffx_ff_attempt_timeout_idx"},
	"ScanOverdue":           {"ffx_ff_exec_core_execution_deadline_idx", "ffx_ff_exec_core_deadline_idx"},
	"PromoteDelayed":        {"ffx_ff_exec_core_promotion_idx"},
	"ScanCancelBacklog":     {"ffx_cancel_backlog_due_idx"},
	"ScanEligible":          {"ffx_ready_pkey", "ff_exec_core_pkey"},
	"ScanExpiredGrants":     {"ff_claim_grant_expiry_idx"},
	"PruneCreationKeys":     {"ffx_create_dedup_expiry_idx"},
	"TakeJobs": {
		"ffx_lease_timer_pkey", "ffx_ff_exec_core_promotion_idx", "ffx_ff_attempt_timeout_idx", "ffx_ff_exec_core_execution_deadline_idx",
		"ffx_ff_exec_core_deadline_idx", "ffx_create_dedup_expiry_idx", "ffx_ff_completion_event_undispatched_idx", "ffx_ready_pkey", "ff_claim_grant_expiry_idx", "ffx_blocked_route_idx", "ffx_ff_exec_core_foreign_idx",
		"ffx_cancel_backlog_due_idx",
		"ff_completion_event_pkey", "ffx_retention_timer_pkey", "ffx_retention_pkey", "ffx_lane_retention_shortest_idx", "ffx_retention_period_pkey",
		"ffx_ff_pending_cancel_groups_age_idx",
	},
	"ListQueuedAmong":      {"ffx_ready_pkey"},
	"ScanSiblingCancels":   {"ffx_ff_pending_cancel_groups_age_idx"},
	"ScanUndispatched":     {"ffx_ff_completion_event_undispatched_idx"},
	"ListOpenMembers":      {"ff_exec_core_flow_idx"},
	"GetRetentionWork":     {"ff_completion_event_pkey", "ffx_retention_timer_pkey", "ffx_retention_period_pkey", "ffx_retention_pkey", "ffx_lane_retention_shortest_idx"},
	"ListEnds":             {"ff_completion_event_pkey"},
	"TakeRetentionTimers":  {"ffx_retention_timer_pkey"},
	"ListUndispatched":     {"ffx_ff_completion_event_undispatched_idx"},
	"ReadPurgeable":        {"ff_exec_core_flow_idx"},
	"TrimCompletionEvents": {"ff_completion_event_pkey", "ffx_outbox_consumer_pkey", "ffx_retention_pkey"},
	"TrimLeaseEvents":      {"ff_lease_event_pkey", "ffx_outbox_consumer_pkey"},
	"TrimOperatorEvents":   {"ff_operator_event_pkey", "ffx_outbox_consumer_pkey"},
	"TrimSignalEvents":     {"ff_signal_event_pkey", "ffx_outbox_consumer_pkey"},
	"ListStaleConsumers":   {"ffx_outbox_consumer_pkey"},
	"ListSetAside":         {"ffx_outbox_set_aside_pkey"},
	"GetOutboxEnds":        {"ff_completion_event_pkey", "ff_lease_event_pkey", "ff_signal_event_pkey", "ff_operator_event_pkey", "ffx_outbox_floor_pkey"},
	"ListConsumers": {
		"ff_completion_event_pkey", "ff_lease_event_pkey", "ff_signal_event_pkey", "ff_operator_event_pkey", "ffx_outbox_floor_pkey",
		"ffx_outbox_consumer_pkey", "ffx_outbox_set_aside_pkey",
	},
	"GetFlowTimersDue":   {"ffx_retention_timer_pkey", "ffx_retention_pkey"},
	"DropEdgesOf":        {"ff_edge_pkey"},
	"DropEdgeGroupsOf":   {"ff_edge_group_pkey"},
	"ScanGroups":         {"ff_edge_group_pkey"},
	"ScanFlowSummaries":  {"ff_flow_core_pkey", "ff_flow_summary_pkey"},
	"SummariseFlows":     {"ff_exec_core_flow_idx", "ff_flow_core_pkey", "ff_flow_summary_pkey"},
	"ScanEmptyFlows":     {"ff_flow_core_pkey", "ff_exec_core_flow_idx"},
	"ListExpiredLeases":  {"ffx_lease_timer_pkey"},
	"DismissCompletions": {"ffx_ff_completion_event_undispatched_idx"},
	"LockUndispatchedOf": {"ffx_ff_completion_event_undispatched_idx"},
	"ListEdgesNamed":     {"ff_edge_pkey"},
	"ApplyEdges":         {"ff_edge_pkey"}, // and the row's address
	"ListAttempts":       {"ff_exec_core_pkey", "ff_attempt_pkey"},
	"ListExecutionKeys":  {"ff_exec_core_pkey"},
	"ListNewestKeys":     {"ff_exec_core_pkey"},
	"ListOldestKeys":     {"ff_exec_core_pkey"},
	"ListLeasedKeys":     {"ffx_lease_timer_pkey"},
	"ListQueuedKeys":     {"ffx_ready_pkey"},
	"ListLanes": {
		"ffx_ready_pkey", "ffx_lease_timer_pkey", "ffx_ff_exec_core_promotion_idx", "ff_completion_event_pkey", "ff_lane_registry_pkey",
	},
	"GetFlow":            {"ff_exec_core_flow_idx", "ff_edge_group_pkey"},
	"GetFlowProgress":    {"ff_exec_core_flow_idx"},
	"ListFlowGraph":      {"ff_exec_core_flow_idx", "ff_edge_pkey"},
	"ListFlowEdges":      {"ff_edge_pkey"},
	"GetEdge":            {"ff_edge_pkey"},
	"ListFlowKeys":       {"ff_flow_core_pkey"},
	"ListNewestFlowKeys": {"ff_flow_core_pkey"},
	"ListOldestFlowKeys": {"ff_flow_core_pkey"},

	"ReadCompletionEvents": {"ff_completion_event_pkey"},
	"ReadLeaseEvents":      {"ff_lease_event_pkey"},
	"ReadSignalEvents":     {"ff_signal_event_pkey"},
	"ReadOperatorEvents":   {"ff_operator_event_pkey"},
	"GetLastEvent":         {"ff_completion_event_pkey", "ff_lease_event_pkey", "ff_signal_event_pkey", "ff_operator_event_pkey"},
}

// The plans of the statements do not depend on when, or whether, the tables were analysed, nor on how much
// was in them: a plan is kept while they grow.
func TestPlans(t *testing.T) {
	p := newPlanner(t)
	p.fill(t, 40)
	p.check(t, "never analysed, 40 executions")
	p.exec(t, "ANALYZE")
	p.fill(t, 1000)
	p.check(t, "analysed with 40 of 1,000 executions")
	p.fill(t, 19_000)
	p.exec(t, "ANALYZE")
	p.check(t, "analysed with work under way")
	p.exec(t, `UPDATE ff_exec_core SET lifecycle_phase = 'terminal', ownership_state = 'unowned', eligibility_state = 'not_applicable',
		public_state = 'completed', attempt_state = 'attempt_terminal', terminal_at_ms = 1`)
	p.exec(t, "UPDATE ff_attempt SET outcome = 'success', terminal_at_ms = 1, lease_expires_at_ms = NULL")
	p.exec(t, "ANALYZE")
	p.check(t, "analysed when all had ended")
	p.exec(t, `UPDATE ff_exec_core SET lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_first_attempt', terminal_at_ms = NULL`)
	p.exec(t, "ANALYZE")
	p.check(t, "analysed when all was waiting")
}

// A worker begins on an empty database that somebody has analysed. What it asks for while it waits is planned then,
// and the plans are kept while the tables fill: none may read a table from end to end.
func TestPlans_of_polls_before_the_first_execution(t *testing.T) {
	p := newPlanner(t)
	p.exec(t, "ANALYZE")
	polls := slices.DeleteFunc(slices.Sorted(maps.Keys(scanning)), func(name string) bool {
		return name == "ListLanes" || // no poll: each of its walks ends after 10,000 rows
			name == "TakeJobs" || // takes the first of each index, and is planned anew each time
			name == "ListConsumers" || name == "GetOutboxEnds" || // take the last of each
			name == "ListStaleConsumers" // a row for a consumer
	})
	p.wantNoWalk(t, "without an execution", slices.DeleteFunc(slices.Clone(polls), func(name string) bool {
		return name == "ClaimAfterPositions" || name == "ClaimOneAfterPosition" // go on behind one
	}))
	p.start(t)
	p.wantNoWalk(t, "with the first execution", polls)
	for range 5 {
		p.create(t)
	}
	p.wantNoWalk(t, "with the first executions", polls)
}

// wantNoWalk fails the test where a statement reads a table from end to end.
func (p *planner) wantNoWalk(t *testing.T, situation string, statements []string) {
	t.Helper()
	e := p.explainer(t)
	defer e.end(t)
	for _, name := range statements {
		e.explain(t, name).walk(func(n *planNode) {
			if n.Relation != "" && n.Type != "ModifyTable" && n.Type != "Tid Scan" && n.Condition == "" && !slices.Contains(walks, n.Index) &&
				n.Relation != "ff_worker_registry" { // a row for a process
				t.Errorf("%s: %s reads all of %s by %s %s", situation, name, n.Relation, n.Type, n.Index)
			}
		})
	}
}

// A plan that was made when a table held a dozen rows is kept while a burst fills it, until the table is analysed
// again: whoever names its rows looks them up even so.
func TestPlans_of_named_rows_in_small_tables(t *testing.T) {
	p := newPlanner(t)
	add := func() {
		p.createFlow(t, layered(5, 7))
		specs := make([]engine.ExecutionSpec, 5)
		for i := range specs {
			specs[i] = engine.ExecutionSpec{Kind: "test", Lane: p.lane, IdempotencyKey: id.IdempotencyKey(rand.Text())}
		}
		if _, err := p.CreateExecutions(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Claim(t.Context(), p.worker(), 3); err != nil {
			t.Fatal(err)
		}
	}
	p.exec(t, "ANALYZE")
	add()
	// Of the indexes of ff_edge all look alike then.
	p.wantNamed(t, "analysed when empty", "LockDownstreamGroups", "ResolveEdges", "PassResults", "EnqueueSiblingCancels", "ListUncountedEdges", "ListUnsoundGroups", "RecountGroups", "ListNeeded",
		"LockUnstartedDownstream", "ListDownstreamGroups", "ReopenEdges", "MarkCountedEdges", "ListEdgesInto", "ListEdgesFrom", "ListInbound",
		"ListSiblings", "ListEdgesBelow")
	for n := 20; n <= 60; n += 10 {
		add()
		p.exec(t, "ANALYZE")
		p.wantNamed(t, fmt.Sprintf("analysed with %d executions", n))
	}
}

// The first flow of a database may be a fan of a few edges, analysed before one of thousands is created. That all of these
// had one upstream says nothing about the next.
func TestPlans_of_edges_that_were_all_alike(t *testing.T) {
	p := newPlanner(t)
	spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
	for i := range 40 {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
		spec.Edges = append(spec.Edges, engine.Edge{From: "root", To: fmt.Sprint(i)})
	}
	p.createFlow(t, spec)
	p.exec(t, "ANALYZE")
	const one = "LeaseTakenExecutions" // the queue has one entry
	p.wantNamed(t, "analysed with one fan", one)
	spec.ID = id.NewFlowID()
	p.createFlow(t, spec)
	p.wantNamed(t, "analysed with one fan of two", one)
}

// A flow of thousands may be under creation when a table is vacuumed or analysed: rows in progress count as none, and the
// planner takes the table for nearly empty, or for one of many pages with a handful of rows, until it is analysed again.
// No index is better than another then; and what a statement joins may as well be read whole, for each row of its input.
func TestPlans_made_while_a_flow_was_being_created(t *testing.T) {
	const size = 2000
	for _, before := range []string{"", "ANALYZE", "none"} {
		for _, during := range []string{"ANALYZE", "VACUUM", "VACUUM ANALYZE"} {
			for shape, flow := range map[string]func(n int) engine.FlowSpec{
				"chain":        func(n int) engine.FlowSpec { return layered(n, n-1) },
				"fan":          fanOut,
				"side by side": func(n int) engine.FlowSpec { return wide(n/2, false) },
			} {
				situation := fmt.Sprintf("%s, %s before, %s during", shape, before, during)
				t.Run(situation, func(t *testing.T) {
					p := newPlanner(t)
					if before != "none" {
						p.createFlow(t, flow(10))
						p.claimAll(t)
						p.exec(t, cmp.Or(before, "SELECT"))
					}
					tx, err := p.pool.Begin(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					defer pgtx.Rollback(tx)
					spec := flow(size)
					for i := range spec.Nodes {
						spec.Nodes[i].Spec.Lane = p.lane
					}
					if _, err := p.WithTx(tx).CreateFlow(t.Context(), spec); err != nil {
						t.Fatal(err)
					}
					p.exec(t, during)
					if err := tx.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
					if claimed, err := p.Claim(t.Context(), p.worker(), 1); err != nil || len(claimed) != 1 {
						t.Fatalf("claimed %d, %v", len(claimed), err)
					}
					p.wantNamed(t, situation)
				})
			}
		}
	}
}

// fanOut is a flow of n nodes of which one leads to all others.
func fanOut(n int) engine.FlowSpec {
	spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
	for i := range n - 1 {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
		spec.Edges = append(spec.Edges, engine.Edge{From: "root", To: fmt.Sprint(i)})
	}
	return spec
}

// wantNamed fails the test where a statement finds rows of a table by less than what names them.
func (p *planner) wantNamed(t *testing.T, situation string, exceptions ...string) {
	t.Helper()
	populated := p.populated(t)
	e := p.explainer(t)
	defer e.end(t)
	for _, name := range keyed {
		e.explain(t, name).walk(func(n *planNode) {
			if populated[n.Relation] && n.Type != "ModifyTable" && n.Type != "Tid Scan" && !strings.Contains(n.Condition, key(n.Relation)) && !slices.Contains(exceptions, name) {
				t.Errorf("%s: %s finds rows of %s by %s only: %q", situation, name, n.Relation, n.Index, n.Condition)
			}
		})
	}
}

// walks are the indexes that hold nothing but what is looked for.
var walks = []string{
	"ffx_ready_pkey", "ffx_lease_timer_pkey", "ffx_blocked_route_idx", "ffx_ff_completion_event_undispatched_idx",
	"ffx_retention_pkey", "ffx_retention_period_pkey", "ffx_lane_retention_shortest_idx",
}

func TestPlans_never_analysed(t *testing.T) {
	p := newPlanner(t)
	p.fill(t, 20_000)
	p.check(t, "never analysed, 20,000 executions")
}

// populated are the tables that have rows.
func (p *planner) populated(t *testing.T) map[string]bool {
	t.Helper()
	populated := make(map[string]bool)
	for _, table := range p.tables(t) {
		populated[table] = len(texts(t, p.pool, fmt.Sprintf("SELECT 'row' FROM %s LIMIT 1", table))) > 0
	}
	return populated
}

func (f *fixture) tables(t *testing.T) []string {
	t.Helper()
	return texts(t, f.pool, "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relname ~ '^ffx?_'")
}

// check explains every statement.
func (p *planner) check(t *testing.T, situation string) {
	t.Helper()
	populated := p.populated(t)
	e := p.explainer(t)
	defer e.end(t)
	for _, name := range slices.Concat(keyed, slices.Sorted(maps.Keys(scanning))) {
		unused := slices.Clone(scanning[name])
		e.explain(t, name).walk(func(n *planNode) {
			unused = slices.DeleteFunc(unused, func(index string) bool { return n.Index == index })
			switch {
			case !populated[n.Relation], n.Type == "ModifyTable", n.Type == "Tid Scan":
			case n.Type != "Index Scan" && n.Type != "Index Only Scan":
				t.Errorf("%s: %s reads %s by a %s", situation, name, n.Relation, n.Type)
			case !slices.Contains(scanning[name], n.Index) && !strings.Contains(n.Condition, key(n.Relation)):
				t.Errorf("%s: %s finds rows of %s by %s only: %s", situation, name, n.Relation, n.Index, n.Condition)
			}
			if slices.Contains(unsorted, name) && strings.HasSuffix(n.Type, "Sort") {
				t.Errorf("%s: %s sorts", situation, name)
			}
		})
		if len(unused) > 0 {
			t.Errorf("%s: %s does not look in %s", situation, name, unused)
		}
	}
	// The array drives the updates, so that its order is the order of the locks.
	for _, name := range []string{"CompleteExecutions", "RenewLeases"} {
		e.explain(t, name).walk(func(n *planNode) {
			byArray := n.Role == "Inner" || strings.Contains(n.Condition, "i.execution_id")
			if n.Relation == "ff_exec_core" && n.Type == "Index Scan" && (!byArray || n.Index != "ff_exec_core_pkey") {
				t.Errorf("%s: %s does not find executions by the array, but by %s, %s", situation, name, n.Index, n.Role)
			}
		})
	}
}

// key is a column by which the rows of a table are found: a partition has too many, and so has a flow.
func key(table string) string {
	switch table {
	case "ff_edge":
		return "stream_eid" // of the upstream or the downstream
	case "ff_edge_group":
		return "downstream_eid"
	case "ff_flow_core":
		return "flow_id"
	case "ffx_create_dedup":
		return "idempotency_key"
	case "ff_completion_event":
		return "event_id"
	}
	return "execution_id"
}

// unsorted are the statements that take their rows as an index or an array has them.
var unsorted = []string{
	"ClaimFromHead", "ClaimAfterPositions", "ClaimOneAfterPosition", "TakeClaimable", "RenewLeases", "CompleteExecutions", "CompleteOne",
}
