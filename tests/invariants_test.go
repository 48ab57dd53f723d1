package tests

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// storedStates are the states that operations of this library store, and no others.
var storedStates = func() []string {
	states := []string{
		stateRunning, stateBackoff, stateCompleted, stateFailed, stateExpired, stateUnstarted, stateSkipped, stateCancelled,
	}
	for _, waits := range []struct{ eligibility, public, reason string }{
		{"eligible_now", "waiting", "waiting_for_worker"},
		{"pending_claim", "waiting", "waiting_for_worker"},
		{"not_eligible_until_time", "delayed", "waiting_for_delay"},
		{"blocked_by_dependencies", "waiting_children", "waiting_for_children"},
		{"blocked_by_budget", "rate_limited", "waiting_for_budget"},
		{"blocked_by_quota", "rate_limited", "waiting_for_quota"},
		{"blocked_by_route", "waiting", "waiting_for_capable_worker"},
		{"blocked_by_lane_state", "waiting", "paused_by_policy"},
		{"blocked_by_operator", "waiting", "paused_by_operator"},
	} {
		for _, attempt := range []string{"pending_first_attempt", "pending_retry_attempt", "attempt_interrupted", "pending_replay_attempt"} {
			states = append(states, strings.Join([]string{"runnable unowned", waits.eligibility, waits.public, attempt, waits.reason}, " "))
		}
	}
	return states
}()

// granted is a claimable state, of an execution that is granted to a worker.
func granted(state string) string { return strings.Replace(state, "eligible_now", "pending_claim", 1) }

// invariant is a condition on an execution that every commit keeps.
type invariant struct {
	name, condition string
	breach          string // a statement that breaks it
}

// invariants are what holds for every execution at every commit, whatever has happened to it: conditions on e, its
// row; a, what its attempts have in common; q, its queue entries; l and c, its events of leases and ends.
var invariants = []invariant{
	{"its state is one of the state table", "e.state = ANY ($2)", `UPDATE ff_exec_core SET attempt_state = 'running' WHERE lifecycle_phase = 'active'`},
	{
		"it is queued, as it is, if it is claimable, and only then",
		"q.entries = CASE WHEN e.lifecycle_phase = 'runnable' AND e.eligibility_state = 'eligible_now' THEN 1 ELSE 0 END AND q.entries = q.right",
		`DELETE FROM ffx_ready`,
	},
	{
		"it is listed as blocked if its route, its lane or an operator blocks it, and only then",
		`(e.lifecycle_phase = 'runnable' AND e.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')) = EXISTS (
			SELECT FROM ffx_blocked AS b WHERE b.partition_key = e.partition_key AND b.execution_id = e.execution_id
			AND b.lane_id = e.lane_id AND b.eligibility_state = e.eligibility_state)`,
		`DELETE FROM ffx_blocked`,
	},
	{"attempts are numbered from 0 without holes, and counted", "e.ffx_attempt_count = a.attempts AND a.last = a.attempts - 1", `UPDATE ff_attempt SET attempt_index = attempt_index + 1 WHERE attempt_index = 1`},
	{
		"it points to its newest attempt, or to the one that is pending",
		`CASE WHEN e.attempt_state = 'pending_retry_attempt' THEN e.attempt_index = a.attempts AND a.attempts > 0
			ELSE e.attempt_index = greatest(a.last, 0)
				OR e.attempt_index = a.attempts AND (e.terminal_at_ms IS NOT NULL OR e.attempt_state = 'pending_replay_attempt')
		END`,
		`UPDATE ff_exec_core SET attempt_index = 5 WHERE lifecycle_phase = 'active'`,
	},
	{"it has started if it has attempts", "(e.started_at_ms IS NOT NULL) = (a.attempts > 0)", `UPDATE ff_exec_core SET started_at_ms = NULL WHERE lifecycle_phase = 'active'`},
	{
		"an active one has one lease, on its newest attempt, and any other none",
		"CASE WHEN e.lifecycle_phase = 'active' THEN a.leases = 1 AND a.leased = a.last ELSE a.leases = 0 END",
		`UPDATE ff_attempt SET lease_expires_at_ms = 1 WHERE outcome = 'success'`,
	},
	{"its lease has a timer that is due in time", "a.untimed = 0", `UPDATE ffx_lease_timer SET due_at_ms = due_at_ms + 1`},
	{"attempts without a lease do not time out", "a.stale_timeouts = 0", `UPDATE ff_attempt SET ffx_timeout_at_ms = 1 WHERE outcome = 'success'`},
	{"the highest epoch is the execution's", "e.ffx_lease_epoch = a.epoch OR e.replays > 0 AND e.ffx_lease_epoch > a.epoch", `UPDATE ff_attempt SET lease_epoch = lease_epoch + 1`},
	{"epochs rise with attempts", "a.in_order", `UPDATE ff_attempt SET lease_epoch = 7 WHERE outcome = 'retry'`},
	{"as many leases were lost as were given, save one that is held", "l.given - l.ended = a.leases", `DELETE FROM ff_lease_event WHERE event_type = 'revoked'`},
	{"it has ended if an end is recorded", "(e.lifecycle_phase IN ('terminal', 'cancelled')) = (e.terminal_at_ms IS NOT NULL)", `UPDATE ff_exec_core SET terminal_at_ms = 1 WHERE lifecycle_phase = 'active'`},
	{
		"every end has one event, and the last one tells how",
		`c.ends = e.replays + CASE WHEN e.lifecycle_phase IN ('terminal', 'cancelled') THEN 1 ELSE 0 END
		AND (e.terminal_at_ms IS NULL OR c.last = CASE e.public_state WHEN 'completed' THEN 'success' ELSE e.public_state END)`,
		`INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms) SELECT partition_key, execution_id, 'failed', 1 FROM ff_exec_core WHERE lifecycle_phase = 'terminal'`,
	},
	{"the deadline of what has ended is put away", "e.terminal_at_ms IS NULL OR e.ffx_execution_deadline_ms <= 0", `UPDATE ff_exec_core SET ffx_execution_deadline_ms = 1 WHERE lifecycle_phase = 'terminal'`},
	{"the deadline of what has not ended is not", "e.terminal_at_ms IS NOT NULL OR e.ffx_execution_deadline_ms >= 0", `UPDATE ff_exec_core SET ffx_execution_deadline_ms = -1 WHERE lifecycle_phase = 'active'`},
	{
		"what is delayed wakes up, and nothing else",
		`CASE
			WHEN e.terminal_at_ms IS NOT NULL THEN e.ffx_delay_until_ms IS NULL
			WHEN e.eligibility_state = 'not_eligible_until_time'
			THEN e.ffx_delay_until_ms IS NOT NULL AND e.deadline_at_ms = least(e.ffx_delay_until_ms, nullif(e.ffx_execution_deadline_ms, 0))
			WHEN e.eligibility_state = 'blocked_by_dependencies' -- its delay counts once it is released
			THEN e.deadline_at_ms IS NOT DISTINCT FROM nullif(e.ffx_execution_deadline_ms, 0)
			ELSE e.ffx_delay_until_ms IS NULL AND e.deadline_at_ms IS NOT DISTINCT FROM nullif(e.ffx_execution_deadline_ms, 0)
		END`,
		`UPDATE ff_exec_core SET ffx_delay_until_ms = NULL WHERE public_state = 'delayed'`,
	},
	{
		"what is finished has an outcome, and what runs has none",
		`CASE
			WHEN e.lifecycle_phase = 'active' THEN a.unfinished = 1
			WHEN e.lifecycle_phase = 'cancelled' OR e.attempt_state = 'pending_replay_attempt' THEN a.unfinished <= 1
			ELSE a.unfinished = 0
		END`,
		`UPDATE ff_attempt SET outcome = NULL WHERE outcome = 'success'`,
	},
}

// brokenInvariants returns a text for each invariant that an execution of a database breaks. Executions that a test
// wrote to by hand, and those that this library never wrote to, are not judged; nor are others than those of the lanes
// given, or of lanes named after these, if any are given.
func brokenInvariants(ctx context.Context, url string, lanes []string) ([]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if handmade.whole(conn.Config().Database) {
		return nil, nil
	}
	// Statistics that were made beside a transaction which has committed since would have every row looked for by a whole walk.
	if _, err := conn.Exec(ctx, `ANALYZE ff_exec_core, ff_attempt, ff_edge, ff_edge_group, ff_completion_event, ff_lease_event,
		ffx_ready, ffx_lease_timer`); err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	return judge(ctx, tx, lanes)
}

// judge is [brokenInvariants] as a transaction sees the database.
func judge(ctx context.Context, tx pgx.Tx, lanes []string) ([]string, error) {
	// Hash joins: the tables may never have been analysed, and a database's executions are in few partitions.
	if _, err := tx.Exec(ctx, "SET LOCAL jit = off; SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off"); err != nil {
		return nil, err
	}
	var rules string
	for i, invariant := range invariants {
		if i > 0 {
			rules += ", "
		}
		rules += fmt.Sprintf("(%d, coalesce(%s, false))", i, invariant.condition)
	}
	rows, _ := tx.Query(ctx, `
		WITH judged AS (
			-- The conditions are on these.
			SELECT partition_key, execution_id, lane_id, priority, created_at_ms, started_at_ms, terminal_at_ms, deadline_at_ms,
				lifecycle_phase, eligibility_state, public_state, attempt_state, attempt_index, cancellation_reason, required_capabilities, policy,
				raw_fields, ffx_attempt_count, ffx_delay_until_ms, ffx_execution_deadline_ms, ffx_lease_epoch, ffx_retry_count,
				concat_ws(' ', lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
				coalesce(blocking_reason, '-')) AS state,
				coalesce((raw_fields ->> 'replay_count')::integer, 0) AS replays
			FROM ff_exec_core WHERE ffx_retry_count IS NOT NULL AND execution_id <> ALL ($1::uuid[])
				AND ($3::text[] IS NULL OR left(lane_id, 41) = ANY ($3::text[]))
		),
		timed AS (
			SELECT p.execution_id, p.attempt_index, min(w.due_at_ms) AS due_at_ms
			FROM ffx_lease_timer AS w, unnest(w.execution_ids, w.attempt_indexes) AS p (execution_id, attempt_index)
			GROUP BY p.execution_id, p.attempt_index
		),
		attempts AS (
			SELECT
				a.partition_key, a.execution_id, count(*) AS attempts, max(a.attempt_index) AS last, max(a.lease_epoch) AS epoch,
				count(*) FILTER (WHERE a.outcome IS NULL) AS unfinished,
				count(a.lease_expires_at_ms) AS leases, max(a.attempt_index) FILTER (WHERE a.lease_expires_at_ms IS NOT NULL) AS leased,
				count(*) FILTER (WHERE a.lease_expires_at_ms IS NOT NULL AND (w.due_at_ms <= a.lease_expires_at_ms) IS NOT TRUE) AS untimed,
				count(*) FILTER (WHERE a.ffx_timeout_at_ms IS NOT NULL AND a.lease_expires_at_ms IS NULL) AS stale_timeouts,
				array_agg(a.lease_epoch ORDER BY a.attempt_index) = array_agg(a.lease_epoch ORDER BY a.lease_epoch) AS in_order
			FROM ff_attempt AS a
			LEFT JOIN timed AS w ON w.execution_id = a.execution_id AND w.attempt_index = a.attempt_index
			GROUP BY a.partition_key, a.execution_id
		),
		entries AS (
			SELECT r.partition_key, r.execution_id, count(*) AS entries, count(*) FILTER (
				WHERE r.lane_id = e.lane_id AND r.rank = - e.priority::bigint AND r.created_at_ms = e.created_at_ms
				AND r.required_capabilities = e.required_capabilities AND r.kind = coalesce(e.raw_fields ->> 'execution_kind', '')) AS right
			FROM ffx_ready AS r JOIN judged AS e ON e.partition_key = r.partition_key AND e.execution_id = r.execution_id
			GROUP BY r.partition_key, r.execution_id
		),
		leases AS (
			SELECT partition_key, execution_id, count(*) FILTER (WHERE event_type IN ('acquired', 'reclaimed')) AS given,
				-- One that is reclaimed without having been swept is lost by that.
				count(*) FILTER (WHERE event_type IN ('revoked', 'expired')
					OR event_type = 'reclaimed' AND before IN ('acquired', 'reclaimed')) AS ended
			FROM (
				SELECT partition_key, execution_id, event_type, lag(event_type) OVER (PARTITION BY partition_key, execution_id ORDER BY event_id) AS before
				FROM ff_lease_event WHERE event_type <> 'renewed'
			) AS e
			GROUP BY partition_key, execution_id
		),
		ends AS (
			SELECT partition_key, execution_id, count(*) AS ends, (array_agg(outcome ORDER BY event_id DESC))[1] AS last
			FROM ff_completion_event WHERE outcome <> 'resumable' GROUP BY partition_key, execution_id
		)
		SELECT r.rule, '{fp:' || e.partition_key || '}:' || e.execution_id AS id, e.state || ' ' || to_jsonb(a)::text || to_jsonb(q)::text
			|| to_jsonb(l)::text || to_jsonb(c)::text AS what
		FROM judged AS e
		LEFT JOIN attempts AS fa ON fa.partition_key = e.partition_key AND fa.execution_id = e.execution_id
		LEFT JOIN entries AS fq ON fq.partition_key = e.partition_key AND fq.execution_id = e.execution_id
		LEFT JOIN leases AS fl ON fl.partition_key = e.partition_key AND fl.execution_id = e.execution_id::text
		LEFT JOIN ends AS fc ON fc.partition_key = e.partition_key AND fc.execution_id = e.execution_id
		CROSS JOIN LATERAL (SELECT coalesce(fa.attempts, 0) AS attempts, coalesce(fa.last, -1) AS last, coalesce(fa.epoch, 0) AS epoch,
			coalesce(fa.unfinished, 0) AS unfinished, coalesce(fa.leases, 0) AS leases, coalesce(fa.leased, -1) AS leased,
			coalesce(fa.untimed, 0) AS untimed, coalesce(fa.stale_timeouts, 0) AS stale_timeouts, coalesce(fa.in_order, true) AS in_order) AS a
		CROSS JOIN LATERAL (SELECT coalesce(fq.entries, 0) AS entries, coalesce(fq.right, 0) AS right) AS q
		CROSS JOIN LATERAL (SELECT coalesce(fl.given, 0) AS given, coalesce(fl.ended, 0) AS ended) AS l
		CROSS JOIN LATERAL (SELECT coalesce(fc.ends, 0) AS ends, coalesce(fc.last, '') AS last) AS c
		CROSS JOIN LATERAL (VALUES `+rules+`) AS r (rule, holds)
		WHERE NOT r.holds LIMIT 10`, handmade.executions(), storedStates, lanes)
	type broken struct {
		Rule     int
		ID, What string
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[broken])
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, b := range found {
		texts = append(texts, fmt.Sprintf("%s: it does not hold that %s: %s", b.ID, invariants[b.Rule].name, b.What))
	}
	inconsistent, err := inconsistentStates(ctx, tx, lanes)
	if err != nil {
		return nil, err
	}
	miscounted, err := miscountedGroups(ctx, tx, lanes)
	return slices.Concat(texts, inconsistent, miscounted), err
}

// inconsistentStates judges every state of the database as readers do.
func inconsistentStates(ctx context.Context, tx pgx.Tx, lanes []string) ([]string, error) {
	type stored struct {
		Phase, Eligibility, PublicState, AtPointer, Current, RawOutcome, Cancellation, LastFailure, Reason string
	}
	rows, _ := tx.Query(ctx, `
		SELECT DISTINCT
			e.lifecycle_phase AS phase, e.eligibility_state AS eligibility, e.public_state, coalesce(p.outcome, '') AS at_pointer,
			coalesce((
				SELECT a.outcome FROM ff_attempt AS a
				WHERE a.partition_key = e.partition_key AND a.execution_id = e.execution_id AND a.attempt_index <= e.attempt_index
				ORDER BY a.attempt_index DESC LIMIT 1), '') AS current,
			coalesce(e.raw_fields ->> 'terminal_outcome', '') AS raw_outcome, coalesce(e.cancellation_reason, '') AS cancellation,
			coalesce(left(e.raw_fields ->> 'last_failure_message', 40), '') AS last_failure,
			coalesce(left(e.raw_fields ->> 'failure_reason', 40), '') AS reason
		FROM ff_exec_core AS e
		LEFT JOIN ff_attempt AS p ON p.partition_key = e.partition_key AND p.execution_id = e.execution_id AND p.attempt_index = e.attempt_index
		WHERE e.ffx_retry_count IS NOT NULL AND e.execution_id <> ALL ($1::uuid[])
			AND ($2::text[] IS NULL OR left(e.lane_id, 41) = ANY ($2::text[]))`, handmade.executions(), lanes)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[stored])
	if err != nil {
		return nil, err
	}
	var inconsistent []string
	for _, s := range found {
		phase, phaseErr := normalise.LifecyclePhase(s.Phase)
		eligibility, eligibilityErr := normalise.EligibilityState(s.Eligibility)
		public, publicErr := normalise.PublicState(s.PublicState)
		v := state.Vector{Phase: phase, Eligibility: eligibility, Public: public, Outcome: normalise.TerminalOutcome(normalise.TerminalFacts{
			Phase: phase, StoredPhase: s.Phase, PointerOutcome: s.AtPointer, StoredPublicState: s.PublicState, CurrentOutcome: s.Current,
			RawTerminalOutcome: s.RawOutcome, CancellationReason: s.Cancellation, LastFailureMessage: s.LastFailure, FailureReason: s.Reason,
		})}
		if phaseErr != nil || eligibilityErr != nil || publicErr != nil || !v.Consistent() {
			inconsistent = append(inconsistent, fmt.Sprintf("a state is not consistent: %+v", s))
		}
	}
	return inconsistent, nil
}

// miscountedGroups compares the counters of groups with the edges that they count, and the edges with their upstreams.
func miscountedGroups(ctx context.Context, tx pgx.Tx, lanes []string) ([]string, error) {
	// Each group by itself: it looks its edges up, and would hash all executions for that.
	if _, err := tx.Exec(ctx, "SET LOCAL enable_nestloop = on; SET LOCAL enable_hashjoin = off"); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, `
		SELECT 'the group of ' || g.downstream_eid || ' is miscounted: ' || to_jsonb(g)::text || ', its edges ' || to_jsonb(n)::text
		FROM ff_edge_group AS g
		JOIN ff_exec_core AS d ON d.partition_key = g.partition_key AND d.execution_id = g.downstream_eid
		CROSS JOIN LATERAL (
			SELECT
				count(*) FILTER (WHERE e.policy ->> 'resolved_outcome' = 'success') AS success,
				count(*) FILTER (WHERE e.policy ->> 'resolved_outcome' IN ('failed', 'cancelled', 'expired')) AS fail,
				count(*) FILTER (WHERE e.policy ->> 'resolved_outcome' = 'skipped') AS skip,
				count(*) FILTER (WHERE e.policy ->> 'resolved_at_ms' IS NULL AND e.policy -> 'applied_at_ms' <> 'null') AS running,
				count(*) FILTER (
					WHERE e.policy ->> 'resolved_at_ms' IS NULL AND e.policy -> 'applied_at_ms' <> 'null'
					AND NOT e.policy ? 'reopened_at_ms' AND u.terminal_at_ms IS NOT NULL
						AND u.execution_id <> ALL ($3::uuid[]) AND NOT EXISTS (
						SELECT FROM ff_completion_event AS c
						WHERE c.partition_key = u.partition_key AND c.execution_id = u.execution_id AND c.dispatched_at_ms IS NULL)
				) AS forgotten
			FROM ff_edge AS e
			LEFT JOIN ff_exec_core AS u ON u.partition_key = e.partition_key AND u.execution_id = e.upstream_eid
			WHERE e.partition_key = g.partition_key AND e.flow_id = g.flow_id AND e.downstream_eid = g.downstream_eid
		) AS n
		WHERE
			(g.success_count, g.fail_count, g.skip_count, g.running_count - CASE WHEN g.policy ? 'ffx_when' THEN 1000000000 ELSE 0 END, 0) <> (n.success, n.fail, n.skip, n.running, n.forgotten)
			AND g.flow_id <> ALL ($1::uuid[])
			AND g.downstream_eid <> ALL ($3::uuid[])
			AND ($2::text[] IS NULL OR left(d.lane_id, 41) = ANY ($2::text[]))
		LIMIT 10`, handmade.flowIDs(), lanes, handmade.executions())
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// handmade is what tests wrote to the tables themselves, as another program or a defect of one would: the invariants
// are about what this library writes.
var handmade = &handwriting{
	written: make(map[id.ExecutionUUID]bool), flows: make(map[id.FlowID]bool), databases: make(map[string]bool),
}

type handwriting struct {
	mu        sync.Mutex
	written   map[id.ExecutionUUID]bool
	flows     map[id.FlowID]bool
	databases map[string]bool // in which a statement wrote to executions that it did not name
}

var writesTables = regexp.MustCompile(`(?is)\b(UPDATE|INTO|DELETE\s+FROM|TRUNCATE|COPY)\s+(ff_exec_core|ff_attempt|ffx_ready|ffx_blocked|ffx_lease_timer|ff_lease_event|ff_completion_event|ff_edge|ff_edge_group|ff_flow_core)\b|(DISABLE|ENABLE|DROP)\s+TRIGGER`)

// note notes what a statement of a test writes.
func (h *handwriting) note(database, sql string, args []any) {
	if !writesTables.MatchString(sql) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	named := false
	for _, arg := range args {
		switch x := arg.(type) {
		case id.ExecutionUUID:
			h.written[x], named = true, true
		case id.FlowID:
			h.flows[x], named = true, true
		case []id.ExecutionUUID:
			for _, x := range x {
				h.written[x], named = true, true
			}
		}
	}
	if !named {
		h.databases[database] = true
	}
}

func (h *handwriting) whole(database string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.databases[database]
}

func (h *handwriting) executions() []id.ExecutionUUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(make([]id.ExecutionUUID, 0, len(h.written)), maps.Keys(h.written))
}

func (h *handwriting) flowIDs() []id.FlowID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(make([]id.FlowID, 0, len(h.flows)), maps.Keys(h.flows))
}

// holdInvariants fails the test when its database breaks an invariant at its end.
func holdInvariants(t *testing.T, url string) {
	t.Helper()
	t.Cleanup(func() {
		broken, err := brokenInvariants(context.WithoutCancel(t.Context()), url, nil)
		if err != nil {
			t.Errorf("cannot judge what the test leaves behind: %v", err)
		}
		for _, text := range broken {
			t.Error(text)
		}
	})
}

// shared is the database that tests share, if one of them used it, and the lanes on which they did: other test
// binaries work there too.
var shared struct {
	sync.Mutex
	url   string
	lanes []string
}

func (f *fixture) sharesDatabase() *fixture {
	shared.Lock()
	defer shared.Unlock()
	shared.url = f.url
	shared.lanes = append(shared.lanes, string(f.lane))
	return f
}

// sharedInvariants judges it once all tests have ended, and returns the exit code of the tests.
func sharedInvariants(code int) int {
	shared.Lock()
	defer shared.Unlock()
	if shared.url == "" {
		return code
	}
	broken, err := brokenInvariants(context.Background(), shared.url, shared.lanes)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot judge what the tests leave behind:", err)
		return max(code, 1)
	}
	for _, text := range broken {
		fmt.Fprintln(os.Stderr, text)
	}
	return max(code, min(len(broken), 1))
}

// runTests runs the tests of a package, several more at once than there are processors unless the command line says how
// many: a test waits for the server while it works, and many wait for a lock or a row. Then it checks what they left.
func runTests(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	}
	os.Exit(sharedInvariants(m.Run()))
}

// Every invariant can be broken, and is found broken.
func TestInvariants_are_judged(t *testing.T) {
	f := cloneFixture(t)
	succeeded := f.start(t)
	if err := f.CompleteExecution(t.Context(), succeeded.Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.fail(t, f.start(t).Lease, engine.Failure{})
	f.claim(t)
	f.create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.now().Add(time.Hour) })
	f.create(t)
	if _, err := f.Operator().BlockExecution(t.Context(), f.create(t), state.PausedByOperator, ""); err != nil {
		t.Fatal(err)
	}
	flowsOn(f).draw(t, nil, "a>b")
	for _, c := range append(invariants, invariant{
		name: "is miscounted", breach: "UPDATE ff_edge_group SET running_count = 0",
	}, invariant{
		name: "is not consistent", breach: "UPDATE ff_exec_core SET public_state = 'running' WHERE public_state = 'completed'",
	}) {
		tx := f.begin(t)
		if broken, err := judge(t.Context(), tx, nil); err != nil || len(broken) > 0 {
			t.Fatal(broken, err)
		}
		if _, err := tx.Exec(t.Context(), c.breach); err != nil {
			t.Fatal(err)
		}
		broken, err := judge(t.Context(), tx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(broken, func(text string) bool { return strings.Contains(text, c.name) }) {
			t.Errorf("%s is not found broken after %s, but %q", c.name, c.breach, broken)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
