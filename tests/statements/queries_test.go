package statements

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A statement is one of queries/*.sql, in parts: its CTEs by name, in order, and "" for the rest.
type statement struct {
	name  string
	file  string
	parts []part
}

// A part of a statement.
type part struct {
	name   string
	remark string   // the comment that it begins with
	lines  []string // without indentation, comments, trailing commas and a leading AND
}

var cteBegins = regexp.MustCompile(`^(?:WITH (?:RECURSIVE )?)?(\w+) AS (?:MATERIALIZED )?\($`)

var cteEnds = regexp.MustCompile(`^\),?$`)

// statements reads the statements as sqlc does, with the passages that they include.
func statements(t *testing.T) map[string]statement {
	t.Helper()
	files, err := filepath.Glob("../../db/sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	all := make(map[string]statement)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range strings.Split("\n"+string(text), "\n-- name: ")[1:] {
			name, _, _ := strings.Cut(query, " ")
			all[name] = statement{name: name, file: filepath.Base(path), parts: partsOf(query)}
		}
	}
	return all
}

// partsOf cuts a statement where a line in column 0 begins or ends a CTE.
func partsOf(query string) []part {
	parts := []part{{}}
	main, inCTE := &parts[0], false
	for _, line := range strings.Split(query, "\n")[1:] {
		now := &parts[len(parts)-1]
		if !inCTE {
			now = main
		}
		text := strings.TrimSpace(line)
		switch begins := cteBegins.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "--"):
		case strings.HasPrefix(text, "--"):
			if len(now.lines) == 0 {
				now.remark = strings.TrimSpace(now.remark + " " + strings.TrimPrefix(text, "-- "))
			}
		case begins != nil && !inCTE:
			parts, inCTE = append(parts, part{name: begins[1]}), true
			main = &parts[0]
		case inCTE && cteEnds.MatchString(line):
			inCTE = false
		case text != "":
			text = strings.TrimSuffix(strings.TrimSuffix(text, ";"), ",")
			now.lines = append(now.lines, strings.TrimPrefix(text, "AND "))
		}
	}
	return append(parts[1:], parts[0])
}

func (s statement) part(name string) (part, bool) {
	at := slices.IndexFunc(s.parts, func(p part) bool { return p.name == name })
	if at < 0 {
		return part{}, false
	}
	return s.parts[at], true
}

// Each of many CTEs begins with a description.
func TestQueriesDescribeTheirCTEs(t *testing.T) {
	t.Parallel()
	for _, s := range statements(t) {
		if len(s.parts) <= 4 {
			continue
		}
		for _, p := range s.parts[:len(s.parts)-1] {
			if p.remark == "" {
				t.Errorf("%s: %s: %s does not begin with a line that says what it holds", s.file, s.name, p.name)
			}
		}
	}
}

// Twins are equal parts of statements, except for the differences named here.
type twins struct {
	a, b   string   // statement.part
	rename []string // in a, before the comparison: old, new, old, new
	onlyA  []string // lines that only a has, in order
	onlyB  []string
}

// Single values are passed as they are, not in an array, and so is their time.
var oneCompletion = []string{
	"k.now_ms", "(SELECT now_ms FROM clock)", "sqlc.narg(result)::bytea", "i.result", "@partition_key::smallint", "i.partition_key",
	"@execution_id::uuid", "i.execution_id", "@attempt_index::integer", "i.attempt_index", "@lease_epoch::bigint", "i.lease_epoch",
	"sqlc.narg(flow_id)::uuid", "i.flow_id", "sqlc.narg(trace)::text", "i.trace",
}

var oneEnd = []string{
	"c.now_ms", "(SELECT now_ms FROM clock)", "@partition_key::smallint", "c.partition_key", "@execution_id::uuid", "c.execution_id",
	"@attempt_index::integer", "c.attempt_index", "@lease_epoch::bigint", "c.lease_epoch",
}

var twinStatements = []twins{
	// The completion of one has no arrays, and carries the time along.
	{
		a: "CompleteOne.completed", b: "CompleteExecutions.completed", rename: oneCompletion,
		onlyA: []string{
			"FROM (", "SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms", "OFFSET 0", ") AS k",
			"e.partition_key = i.partition_key", "(SELECT now_ms FROM clock)",
		},
		onlyB: []string{
			"FROM input AS i", "e.partition_key = ANY (ARRAY[i.partition_key])",
			"i.ord", "i.flow_id", "e.partition_key", "e.execution_id", "i.attempt_index", "i.lease_epoch",
		},
	},
	{
		a: "CompleteOne.ended_attempt", b: "CompleteExecutions.ended_attempts", rename: oneEnd,
		onlyA: []string{"a.partition_key = c.partition_key", "(SELECT now_ms FROM clock)", "sqlc.narg(flow_id)::uuid AS flow_id"},
		onlyB: []string{"a.partition_key = ANY (ARRAY[c.partition_key])", "c.ord", "c.flow_id"},
	},

	// The last of the deletions has a guard, and one needs the order of an index.
	{
		a: "DropAttemptsOf.", b: "DropExecutions.", rename: []string{"ff_attempt", "ff_exec_core"},
		onlyB: []string{"t.lifecycle_phase IN ('terminal', 'cancelled')"},
	},
	{
		a: "DropEdgeGroupsOf.", b: "DropEdgesOf.", rename: []string{"ff_edge_group", "ff_edge"},
		onlyA: []string{"OFFSET 0"}, onlyB: []string{"ORDER BY t.edge_id"}, // either keeps the planner from joining
	},

	// Of completion events others than their readers may need one.
	{
		a: "TrimCompletionEvents.page", b: "TrimLeaseEvents.page",
		rename: []string{"ff_completion_event", "ff_lease_event", "c.committed_at_ms", "c.occurred_at_ms", "'completion'", "'lease'"},
		onlyA: []string{
			"(c.dispatched_at_ms IS NULL AND c.flow_id IS NOT NULL) AS needed",
			"coalesce((SELECT r.event_id FROM ffx_retention AS r WHERE r.source = 'ends'), 0)",
		},
		onlyB: []string{"false AS needed"},
	},
}

func TestQueryTwinsAreEqual(t *testing.T) {
	t.Parallel()
	all := statements(t)
	for _, pair := range twinStatements {
		a, b := linesOf(t, all, pair.a), linesOf(t, all, pair.b)
		renamed := strings.Split(strings.NewReplacer(pair.rename...).Replace(strings.Join(a, "\n")), "\n")
		if err := sameBut(renamed, b, pair.onlyA, pair.onlyB); err != nil {
			t.Errorf("%s and %s: %v", pair.a, pair.b, err)
		}
	}
}

// linesOf returns the lines of a part, named statement.part.
func linesOf(t *testing.T, all map[string]statement, name string) []string {
	t.Helper()
	query, cte, _ := strings.Cut(name, ".")
	p, ok := all[query].part(cte)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	return p.lines
}

// A rule is a passage that stands in several statements, the same in each, and in no other.
type rule struct {
	name string
	text string // X and Y stand for table aliases
	mark string // text that no other part may have; empty: no such test
	in   map[string]string
}

var sqlRules = []rule{
	{
		name: "an entry holds: its execution is claimable, where the entry says, by this worker",
		text: `
			X.lane_id IS NOT DISTINCT FROM r.lane_id
			- X.priority::bigint = r.rank
			X.created_at_ms = r.created_at_ms
			X.lifecycle_phase IS NOT DISTINCT FROM 'runnable'
			X.eligibility_state = 'eligible_now'
			X.required_capabilities <@ @capabilities::text[]`,
		in: map[string]string{
			"ClaimAfterPositions.candidates": "c", "ClaimOneAfterPosition.candidates": "c", "ClaimFromHead.candidates": "t", "TakeClaimable.": "t",
		},
	},
	{
		name: "an entry holds: its execution is claimable, where the entry says, by a worker of whom something may be known",
		text: `
			t.lane_id IS NOT DISTINCT FROM r.lane_id
			- t.priority::bigint = r.rank
			t.created_at_ms = r.created_at_ms
			t.lifecycle_phase IS NOT DISTINCT FROM 'runnable'
			t.eligibility_state = 'eligible_now'
			(t.required_capabilities <@ sqlc.narg(capabilities)::text[]) IS NOT FALSE`,
		mark: "sqlc.narg(capabilities)",
		in:   map[string]string{"ScanEligible.": ""},
	},
	{
		name: "an entry is for this worker",
		text: `
			X.required_capabilities <@ @capabilities::text[]
			(X.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE`,
		mark: "@capabilities",
		in: map[string]string{
			"ClaimAfterPositions.candidates": "r", "ClaimOneAfterPosition.candidates": "r", "ClaimFromHead.candidates": "q", "TakeClaimable.": "q",
		},
	},
	{
		name: "the deadline that a delay covered",
		text: `
			WHEN e.ffx_execution_deadline_ms >= 0 THEN nullif(e.ffx_execution_deadline_ms, 0)
			ELSE e.deadline_at_ms
			END`,
		mark: "nullif(e.ffx_execution_deadline_ms, 0)",
		in:   map[string]string{"ReleaseDownstream.": "", "BlockDownstream.blocked": ""},
	},
	{
		name: "the deadline of an execution that has not ended",
		text: "nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0)",
		mark: "nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0)",
		in: map[string]string{
			"ClaimAfterPositions.claimed": "", "ClaimOneAfterPosition.claimed": "", "ClaimFromHead.claimed": "", "LeaseTakenExecutions.claimed": "",
			"ScheduleRetries.rescheduled": "", "ReturnLeases.returned": "",
		},
	},
	{name: "the timeout of an attempt is ffx_attempt_timeout_at", mark: "attempt_timeout_ms}"},
	{name: "what losing a lease too often is says ffx_lost_too_often", mark: "max_reclaim_count"},
	{
		name: "deadline_at_ms is a deadline, not another program's delay",
		text: `
			X.eligibility_state <> 'not_eligible_until_time'
			OR X.blocking_reason = 'waiting_for_retry_backoff' AND X.raw_fields ->> 'delay_until' ~ '^[0-9]+$'`,
		mark: "'waiting_for_retry_backoff' AND",
		in: map[string]string{
			"ScanOverdue.": "e", "TakeOverdue.": "t", "PostponeExecution.effective": "t", "PromoteExecution.effective": "t",
		},
	},
	{
		name: "an attempt that a timeout ends",
		text: `
			e.lifecycle_phase = 'active'
			e.attempt_index = a.attempt_index
			a.lease_epoch = e.ffx_lease_epoch
			a.lease_expires_at_ms IS NOT NULL`,
		mark: "e.attempt_index = a.attempt_index",
		in:   map[string]string{"ScanTimedOut.": "", "TakeTimedOut.": ""},
	},
	{
		name: "the id of a lease, whoever gave it",
		text: `
			WHEN X.lease_epoch = Y.ffx_lease_epoch THEN X.ffx_lease_id::text
			ELSE X.raw_fields ->> 'lease_id'
			END`,
		mark: "->> 'lease_id'",
		in: map[string]string{
			"RenewLeases.renewed": "a e", "ReadLeases.": "a e", "ReturnLeases.returned_attempts": "a r", "EndSucceeded.ended_attempts": "a c",
			"TakeExpiredLeases.": "t t", "TakeCurrentAttempts.": "a e", "ReadHeldExecutions.": "c e", "EndCancelled.ended": "c e",
		},
	},
	{
		name: "the columns of a listing",
		text: `
			e.partition_key
			e.execution_id
			e.flow_id
			e.lane_id
			coalesce(e.ffx_namespace, '')::text AS namespace
			coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind
			coalesce(e.raw_fields ->> 'ffx_node_key', '')::text AS node_key
			coalesce(e.ffx_created_at_ms, e.created_at_ms)::bigint AS created_at_ms
			e.terminal_at_ms
			e.lifecycle_phase
			e.eligibility_state
			e.public_state
			coalesce(e.cancellation_reason, '')::text AS cancellation_reason
			coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome
			coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message
			coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason
			e.lease_reclaim_count
			coalesce(cur.outcome, '')::text AS current_outcome
			coalesce(p.outcome, '')::text AS pointer_outcome`,
		in: map[string]string{"ListExecutions.": "", "ListNamedExecutions.": "", "ListFlowMembers.": ""},
	},
	{
		name: "what an outcome is derived from where neither states nor attempts tell it",
		text: `
			coalesce(X.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome
			coalesce(X.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message
			coalesce(X.raw_fields ->> 'failure_reason', '')::text AS failure_reason`,
		mark: "'terminal_outcome', '')::text",
		in: map[string]string{
			"ListExecutions.": "e", "ListNamedExecutions.": "e", "ListFlowMembers.": "e", "GetExecutionResult.": "e", "ListUpstreamResults.": "u",
			"ListEnded.": "e", "ReadHeldExecutions.": "e", "ReadLeases.": "e", "ListFlowGraph.": "e", "ListInbound.": "u", "ReadGroupEdges.": "u",
		},
	},
	{
		name: "the current attempt is the newest up to the pointer",
		text: `
			c.attempt_index <= X.attempt_index
			ORDER BY c.attempt_index DESC
			LIMIT 1
			) AS cur ON true`,
		mark: "AS cur ON",
		in: map[string]string{
			"ListExecutions.": "e", "ListNamedExecutions.": "e", "ListFlowMembers.": "e", "GetExecution.": "e", "GetExecutionResult.": "e",
			"ListUpstreamResults.": "u", "ListEnded.": "e", "ListAttempts.": "e", "ReadHeldExecutions.": "e", "ReadLeases.": "e",
			"ListFlowGraph.": "e", "ListInbound.": "u",
			"ReadGroupEdges.": "u", "EndCancelled.ended": "e",
		},
	},
	{
		name: "how an edge is marked as resolved",
		text: `
			policy = d.policy || (
			SELECT
			jsonb_build_object(
			'edge_state', CASE WHEN @outcome::text = 'success' THEN 'satisfied' ELSE 'impossible' END
			'resolved_at_ms', @now_ms::bigint
			'resolved_outcome', @outcome::text
			)
			)`,
		mark: "'resolved_outcome', @outcome",
		in:   map[string]string{"ResolveEdges.resolved": "", "MarkCountedEdges.": ""},
	},
	{
		name: "how a mark is taken back",
		text: `(d.policy - 'resolved_at_ms' - 'resolved_outcome') || jsonb_build_object(`,
		mark: "- 'resolved_at_ms'",
		in:   map[string]string{"LeaveEdges.opened": "", "ReopenEdges.opened": "", "ReopenInboundEdges.opened": ""},
	},
	{
		name: "the gate of an execution that was not admitted, its state",
		text: `
			WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
			ELSE 'blocked_by_quota'
			END`,
		mark: "e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'",
		in:   beforeGates,
	},
	{
		name: "the gate of an execution that was not admitted, its reason",
		text: `
			WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
			ELSE 'waiting_for_quota'
			END`,
		mark: "e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'",
		in:   beforeGates,
	},
}

var beforeGates = map[string]string{
	"PromoteDelayed.promoted": "", "UnblockRoutes.unblocked": "", "ReturnLeases.returned": "", "ReleaseDownstream.": "",
	"PromoteExecution.": "", "ReplaceLimits.": "", "ReplayExecution.replayed": "", "SeatMembers.": "",
}

var isTrue = regexp.MustCompile(`^\((.*)\) IS TRUE$`)

func TestQueryRulesAreEqualEverywhere(t *testing.T) {
	t.Parallel()
	all := statements(t)
	for _, r := range sqlRules {
		for name, aliases := range r.in {
			var lines []string
			for _, line := range linesOf(t, all, name) {
				lines = append(lines, isTrue.ReplaceAllString(line, "$1"))
			}
			text := r.text
			for i, alias := range strings.Fields(aliases) {
				text = regexp.MustCompile(`\b`+[]string{"X", "Y"}[i]+`\b`).ReplaceAllLiteralString(text, alias)
			}
			var want []string
			for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
				want = append(want, strings.TrimSpace(line))
			}
			if !strings.Contains("\n"+strings.Join(lines, "\n"), strings.Join(want, "\n")) {
				t.Errorf("%s: %s is not as the rule says:\n%s", r.name, name, strings.Join(want, "\n"))
			}
		}
		for _, s := range all {
			for _, p := range s.parts {
				_, declared := r.in[s.name+"."+p.name]
				if r.mark != "" && !declared && strings.Contains(strings.Join(p.lines, "\n"), r.mark) {
					t.Errorf("%s: it stands in %s.%s too", r.name, s.name, p.name)
				}
			}
		}
	}
}

// sameBut compares lines without those that only one side is to have.
func sameBut(a, b, onlyA, onlyB []string) error {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(onlyA) > 0 && len(a) > 0 && a[0] == onlyA[0]:
			a, onlyA = a[1:], onlyA[1:]
		case len(onlyB) > 0 && len(b) > 0 && b[0] == onlyB[0]:
			b, onlyB = b[1:], onlyB[1:]
		case len(a) == 0:
			return fmt.Errorf("only the second has %q", b[0])
		case len(b) == 0:
			return fmt.Errorf("only the first has %q", a[0])
		case a[0] != b[0]:
			return fmt.Errorf("the first has %q where the second has %q", a[0], b[0])
		default:
			a, b = a[1:], b[1:]
		}
	}
	if len(onlyA)+len(onlyB) > 0 {
		return fmt.Errorf("no longer differ in %q, %q", onlyA, onlyB)
	}
	return nil
}
