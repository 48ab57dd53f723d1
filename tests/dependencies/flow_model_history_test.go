package dependencies

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// wait is the condition of a node of a model.
type wait struct {
	rule    fixture.Rules
	cancels bool // the remaining upstreams once that is decided
}

// seen are the edges to an execution as its group counts them: in all, by end, and staged only.
type seen struct {
	N, S, Lost, Staged int
	Ended              bool // the execution has, and needs nothing
}

// decided returns the decision about the execution; "" if no edge leads to it.
func (w wait) decided(e seen) string {
	if e.N == 0 {
		return fixture.StateHeld
	}
	return w.rule.Decided(e.N, e.S, e.Lost)
}

// keepHistory makes the database record every change of members of flows, with the edges to them and to their
// dependents at that moment.
func keepHistory(t *testing.T, f *fixture.Flows) {
	t.Helper()
	f.Exec(t, `
		CREATE TABLE history (
			n bigint GENERATED ALWAYS AS IDENTITY, flow_id uuid, execution_id uuid, was text, became text, had_ended boolean, has_ended boolean,
			replays integer, cancelled_by text, inbound jsonb, outbound jsonb, changed text, tx xid8 DEFAULT pg_current_xact_id()
		);
		CREATE FUNCTION seen_edges(partition smallint, flow uuid, downstream uuid) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
			SELECT jsonb_build_object('N', count(*), 'S', count(*) FILTER (WHERE policy ->> 'resolved_outcome' = 'success'),
				'Lost', count(*) FILTER (WHERE policy ->> 'resolved_outcome' <> 'success'), 'Staged', count(*) FILTER (WHERE policy -> 'applied_at_ms' = 'null'))
			FROM ff_edge WHERE partition_key = partition AND flow_id = flow AND downstream_eid = downstream
		$$;
		CREATE FUNCTION keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO history (flow_id, execution_id, was, became, had_ended, has_ended, replays, cancelled_by, inbound, outbound, changed) SELECT
				NEW.flow_id, NEW.execution_id,
				concat_ws(' ', OLD.lifecycle_phase, OLD.eligibility_state, OLD.public_state, OLD.attempt_state),
				concat_ws(' ', NEW.lifecycle_phase, NEW.eligibility_state, NEW.public_state, NEW.attempt_state),
				OLD.terminal_at_ms IS NOT NULL, NEW.terminal_at_ms IS NOT NULL,
				coalesce((NEW.raw_fields ->> 'replay_count')::integer, 0) - coalesce((OLD.raw_fields ->> 'replay_count')::integer, 0),
				coalesce(NEW.cancelled_by, ''), seen_edges(NEW.partition_key, NEW.flow_id, NEW.execution_id),
				CASE WHEN NEW.cancelled_by = 'engine' THEN (
					SELECT jsonb_object_agg(d.downstream_eid, seen_edges(d.partition_key, d.flow_id, d.downstream_eid)
						|| jsonb_build_object('Ended', x.terminal_at_ms IS NOT NULL))
					FROM ff_edge AS d JOIN ff_exec_core AS x ON x.partition_key = d.partition_key AND x.execution_id = d.downstream_eid
					WHERE d.partition_key = NEW.partition_key AND d.flow_id = NEW.flow_id AND d.upstream_eid = NEW.execution_id
				) END,
				CASE WHEN OLD.terminal_at_ms IS NOT NULL THEN (
					SELECT string_agg(concat_ws(' ', o.key, o.value, 'to', n.value), ', ')
					FROM jsonb_each(to_jsonb(OLD)) AS o JOIN jsonb_each(to_jsonb(NEW)) AS n USING (key) WHERE o.value <> n.value
				) END;
			RETURN NULL;
		END $$;
		CREATE TRIGGER keep_history AFTER UPDATE ON ff_exec_core FOR EACH ROW WHEN (
			OLD.flow_id IS NOT NULL AND OLD IS DISTINCT FROM NEW
			AND (OLD.terminal_at_ms IS NOT NULL OR (OLD.lifecycle_phase, OLD.eligibility_state) IS DISTINCT FROM (NEW.lifecycle_phase, NEW.eligibility_state))
		) EXECUTE FUNCTION keep_history()`)
}

// wantHistory fails the test where a member of a flow was released, started, skipped or cancelled for another's sake without
// the group that says so, where one that had ended was changed otherwise than by a replay, or where the events of ends are
// not those of the ends, each once and in their order.
func wantHistory(t *testing.T, f *fixture.Flows, r fixture.Reporter, flow id.FlowID, waits map[id.ExecutionUUID]wait) {
	t.Helper()
	type row struct {
		ExecutionID id.ExecutionUUID
		Was, Became string
		HadEnded    bool
		HasEnded    bool
		Replays     int
		CancelledBy string
		Changed, Tx string
		Inbound     seen
		Outbound    map[string]seen
	}
	ends, endedIn := make(map[string]string), make(map[id.ExecutionUUID]string)
	for _, h := range fixture.All[row](t, f.Pool, `
		SELECT execution_id, was, became, had_ended, has_ended, replays, cancelled_by, inbound, coalesce(outbound, '{}') AS outbound, coalesce(changed, '') AS changed, tx::text AS tx
		FROM history WHERE flow_id = $1 ORDER BY n`, flow) {
		w, complain := waits[h.ExecutionID], func(what string) {
			r.Errorf("%s (%+v) %s: %s became %s, its edges %+v, those behind it %+v", f.Name(h.ExecutionID), waits[h.ExecutionID], what, h.Was, h.Became, h.Inbound, h.Outbound)
		}
		was, became := strings.Fields(h.Was), strings.Fields(h.Became)
		applied := h.Inbound
		applied.N -= applied.Staged
		switch {
		case h.HadEnded:
			if (h.HasEnded || h.Replays != 1) && h.Tx != endedIn[h.ExecutionID] {
				complain("was changed after its end (" + h.Changed + ")")
			}
		case became[2] == "skipped":
			if w.decided(h.Inbound) != fixture.StateSkipped {
				complain("is skipped without reason")
			}
		case h.HasEnded:
		case was[1] == "blocked_by_dependencies" && became[1] != was[1]:
			if w.decided(h.Inbound) != fixture.StateReady {
				complain("is released too early")
			}
		case became[0] == "active" && was[3] == "pending_first_attempt":
			// An edge that is only staged does not make a claimable member wait again.
			if applied.N > 0 && w.decided(h.Inbound) != fixture.StateReady && w.decided(applied) != fixture.StateReady {
				complain("starts too early")
			}
		}
		if h.HadEnded || !h.HasEnded {
			continue
		}
		endedIn[h.ExecutionID] = h.Tx
		outcome := became[2]
		if outcome == string(state.PublicCompleted) {
			outcome = "success"
		}
		ends[f.Name(h.ExecutionID)] += " " + outcome
		if became[0] != "cancelled" || h.CancelledBy != "engine" {
			continue
		}
		unneeded := false
		for text, edges := range h.Outbound {
			x, err := id.ParseExecutionUUID(text)
			if err != nil {
				t.Fatal(err)
			}
			decided := waits[x].decided(edges) != fixture.StateHeld
			if !decided && !edges.Ended {
				complain("is needed by " + f.Name(x))
			}
			unneeded = unneeded || decided && waits[x].cancels
		}
		if !unneeded {
			complain("is cancelled for nobody")
		}
	}
	events := make(map[string]string)
	for _, event := range f.CompletionEvents(t, flow) {
		key, outcome, _ := strings.Cut(strings.TrimSuffix(event, " left"), " ")
		events[key] += " " + outcome
	}
	fixture.WantEqual(r, "completion events", events, ends)
}

// flowMoment is a flow as one snapshot of the database has it.
type flowMoment struct {
	members map[id.ExecutionUUID]*momentMember
	edges   []momentEdge
	groups  map[id.ExecutionUUID]momentGroup
	state   state.FlowState
	policy  state.FlowCancelPolicy
}

type momentMember struct {
	ExecutionID          id.ExecutionUUID
	Phase, Eligibility   string
	Public               string
	Started, Ended, Left bool // Left: an event of it is undispatched
	Replays              int
	EndedAt              int64
}

func (m *momentMember) blocked() bool { return m.Eligibility == "blocked_by_dependencies" }

type momentEdge struct {
	UpstreamEID, DownstreamEID id.ExecutionUUID
	Applied, Counted           bool
	Outcome                    string
	ReopenedAt                 int64
}

type momentGroup struct {
	DownstreamEID id.ExecutionUUID
	fixture.StoredGroup
}

// moment reads a flow, at once.
func moment(t *testing.T, f *fixture.Flows, flow id.FlowID) (m flowMoment, revision, nodes, edges int) {
	t.Helper()
	tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	defer func() { _ = tx.Rollback(t.Context()) }()
	type flowRow struct {
		State                  state.FlowState
		Policy                 state.FlowCancelPolicy
		Revision, Nodes, Edges int
	}
	row := fixture.One[flowRow](t, tx, `SELECT public_flow_state AS state, coalesce(raw_fields ->> 'cancellation_policy', '') AS policy, graph_revision AS revision, (raw_fields ->> 'node_count')::integer AS nodes,
		(raw_fields ->> 'edge_count')::integer AS edges FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2::uuid`, fixture.PartitionOf(flow), flow)
	m.state, m.policy, m.members, m.groups = row.State, row.Policy, make(map[id.ExecutionUUID]*momentMember), make(map[id.ExecutionUUID]momentGroup)
	for _, x := range fixture.All[momentMember](t, tx, `
		SELECT execution_id, lifecycle_phase AS phase, eligibility_state AS eligibility, public_state AS public, started_at_ms IS NOT NULL AS started,
			terminal_at_ms IS NOT NULL AS ended, coalesce((raw_fields ->> 'replay_count')::integer, 0) AS replays, coalesce(terminal_at_ms, 0) AS ended_at,
			EXISTS (SELECT FROM ff_completion_event AS c WHERE c.partition_key = e.partition_key AND c.execution_id = e.execution_id
				AND c.dispatched_at_ms IS NULL) AS left
		FROM ff_exec_core AS e WHERE partition_key = $1::smallint AND flow_id = $2::uuid`, fixture.PartitionOf(flow), flow) {
		m.members[x.ExecutionID] = &x
	}
	m.edges = fixture.All[momentEdge](t, tx, `
		SELECT upstream_eid, downstream_eid, policy -> 'applied_at_ms' <> 'null' AS applied, policy ? 'resolved_at_ms' AS counted,
			coalesce(policy ->> 'resolved_outcome', '') AS outcome, coalesce((policy ->> 'reopened_at_ms')::bigint, 0) AS reopened_at
		FROM ff_edge WHERE partition_key = $1::smallint AND flow_id = $2::uuid`, fixture.PartitionOf(flow), flow)
	for _, g := range fixture.All[momentGroup](t, tx, `
		SELECT downstream_eid, success_count AS success, fail_count AS fail, skip_count AS skip, running_count AS running, k_target,
			cancel_siblings_pending_flag AS flagged, '' AS siblings, EXISTS (SELECT FROM ff_pending_cancel_groups AS p
				WHERE p.partition_key = g.partition_key AND p.flow_id = g.flow_id AND p.downstream_eid = g.downstream_eid) AS enqueued
		FROM ff_edge_group AS g WHERE partition_key = $1::smallint AND flow_id = $2::uuid`, fixture.PartitionOf(flow), flow) {
		m.groups[g.DownstreamEID] = g
	}
	return m, row.Revision, row.Nodes, row.Edges
}

// seenBy counts the edges to each execution, and returns the group that they require.
func (m *flowMoment) seenBy() (map[id.ExecutionUUID]seen, map[id.ExecutionUUID]fixture.StoredGroup) {
	by, groups := make(map[id.ExecutionUUID]seen), make(map[id.ExecutionUUID]fixture.StoredGroup)
	for _, e := range m.edges {
		s, g := by[e.DownstreamEID], groups[e.DownstreamEID]
		s.N++
		switch {
		case !e.Applied:
			s.Staged++
		case !e.Counted:
			g.Running++
		case e.Outcome == "success":
			s.S++
			g.Success++
		case e.Outcome == "skipped":
			s.Lost++
			g.Skip++
		default:
			s.Lost++
			g.Fail++
		}
		by[e.DownstreamEID], groups[e.DownstreamEID] = s, g
	}
	return by, groups
}

// wantSound fails the test if a flow, at any moment, contradicts its edges: a counter, an edge, the waiting members,
// or the numbers of the flow. It returns the history that it read.
func wantSound(t *testing.T, f *fixture.Flows, r fixture.Reporter, flow id.FlowID, waits map[id.ExecutionUUID]wait) *flowMoment {
	t.Helper()
	r.Helper()
	m, revision, nodes, edges := moment(t, f, flow)
	if nodes != len(m.members) || edges != len(m.edges) || revision != nodes+edges {
		r.Errorf("revision %d, %d nodes and %d edges; there are %d and %d", revision, nodes, edges, len(m.members), len(m.edges))
	}
	by, groups := m.seenBy()
	for x, want := range groups {
		got, exists := m.groups[x]
		e := by[x]
		switch w := waits[x]; {
		case w.rule < 0:
			want = waitingFor(want)
		case w.rule == 0:
			want.KTarget = e.N - e.Staged
		default:
			want.KTarget = int(w.rule)
		}
		want.Flagged, want.Enqueued = got.Flagged, got.Flagged
		if e.N == e.Staged && !exists {
			continue
		}
		if got.StoredGroup != want {
			r.Errorf("group of %s (%+v): %+v, its edges %+v", f.Name(x), waits[x], got.StoredGroup, want)
		}
	}
	for _, e := range m.edges {
		wantEdge(f, r, e, m.members[e.UpstreamEID], m.members[e.DownstreamEID])
	}
	for x, member := range m.members {
		if member.Ended || member.Started || member.Replays > 0 {
			continue
		}
		applied, w := by[x], waits[x]
		applied.N -= applied.Staged
		switch got := w.decided(by[x]); {
		case member.blocked() && got != fixture.StateHeld:
			r.Errorf("%s waits, its edges (%+v) %+v", f.Name(x), w, by[x])
		case !member.blocked() && applied.N > 0 && got != fixture.StateReady && w.decided(applied) != fixture.StateReady:
			r.Errorf("%s does not wait, its edges (%+v) %+v", f.Name(x), w, by[x])
		}
	}
	return &m
}

// wantEdge holds an edge to its upstream.
func wantEdge(f *fixture.Flows, r fixture.Reporter, e momentEdge, up, down *momentMember) {
	r.Helper()
	outcome := up.Public
	if outcome == string(state.PublicCompleted) {
		outcome = "success"
	}
	switch {
	case !e.Applied:
	case !e.Counted && up.Ended && !up.Left && up.EndedAt > e.ReopenedAt:
		r.Errorf("edge %s>%s: the end of %+v is not counted: %+v", f.Name(e.UpstreamEID), f.Name(e.DownstreamEID), up, e)
	case e.Counted && (!up.Ended || outcome != e.Outcome) && (up.Replays == 0 || !down.Started && !down.Ended):
		r.Errorf("edge %s>%s: %s is counted of %+v", f.Name(e.UpstreamEID), f.Name(e.DownstreamEID), e.Outcome, up)
	}
}

// wantEnded fails the test unless all members have ended that anything can end: others wait for edges that are never
// applied, for more upstreams than they have, or for some that were to be replayed, or behind such.
func (m *flowMoment) wantEnded(r fixture.Reporter, f *fixture.Flows, waits map[id.ExecutionUUID]wait) {
	r.Helper()
	excused := make(map[id.ExecutionUUID]bool)
	by, _ := m.seenBy()
	for x, edges := range by {
		member := m.members[x]
		excused[x] = int(waits[x].rule) > edges.N && edges.Lost == 0 || member != nil && member.Replays > 0 && member.blocked()
	}
	for again := true; again; {
		again = false
		for _, e := range m.edges {
			up := m.members[e.UpstreamEID]
			if !excused[e.DownstreamEID] && (!e.Applied || !e.Counted && up.Ended || excused[e.UpstreamEID]) {
				excused[e.DownstreamEID], again = true, true
			}
		}
	}
	for x, member := range m.members {
		mayWait := member.blocked() && (m.state != state.FlowCancelled || m.policy == state.CancelFlowOnly)
		if !member.Ended && !(mayWait && excused[x]) {
			r.Errorf("%s (%+v) never ends: %+v, its edges %+v, flow %s %s", f.Name(x), waits[x], member, by[x], m.state, m.policy)
		}
		if g, ok := m.groups[x]; ok && g.Flagged {
			r.Errorf("the upstreams of %s are never cancelled: %+v", f.Name(x), g)
		}
	}
}
