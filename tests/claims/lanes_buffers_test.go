package claims

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// maxPageBuffers limits what each statement of a page of a console reads.
const maxPageBuffers = 1000

// A page of 25 lanes with counts up to 200 reads little, however many executions there are in each state, with good and with
// wrong statistics.
func TestBuffersOfAPageOfLanes(t *testing.T) {
	p := fixture.NewPlanner(t)
	n := soak.Size(t, 20_000, 1_000_000)
	now := p.Time().UnixMilli()
	p.Exec(t, "INSERT INTO ff_lane_registry SELECT 'lane ' || i, 0, 'test' FROM generate_series(10, 59) AS i")
	check := func(situation string) {
		t.Helper()
		for _, statement := range []struct {
			name string
			args []any
		}{
			{"ListLanes", []any{now, 1000, 200, "", 26, 1}},
			{"ListLaneStates", []any{50, 100}},
			{"ListEndedLanes", []any{now, engine.MaxCounted, 150}},
		} {
			read := p.Buffers(t, statement.name, statement.args...)
			t.Logf("%s: %s reads %d buffers", situation, statement.name, read)
			if read > maxPageBuffers {
				t.Errorf("%s: %s reads %d buffers, at most %d are allowed", situation, statement.name, read, maxPageBuffers)
			}
		}
	}
	p.Analyze(t)
	check("empty")
	// A half ended, a quarter waiting, and a share in each other state.
	p.Exec(t, `INSERT INTO ff_exec_core (partition_key, execution_id, flow_id, lane_id, lifecycle_phase, ownership_state, eligibility_state,
			public_state, attempt_state, created_at_ms, ffx_delay_until_ms, terminal_at_ms)
		SELECT i % 256, gen_random_uuid(), CASE WHEN i % 20 = 7 THEN ('00000000-0000-0000-0000-' || to_char(i / 60, 'FM000000000000'))::uuid END,
			'lane ' || (10 + (i / 20) % 50), s[1], s[2], s[3], s[4], s[5], $1::bigint + i, CASE s[4] WHEN 'delayed' THEN $1::bigint + i END,
			CASE s[1] WHEN 'terminal' THEN $1::bigint END
		FROM generate_series(1, $2::integer) AS i, LATERAL (SELECT CASE i % 20
			WHEN 0 THEN '{runnable,unowned,not_eligible_until_time,delayed,pending_first_attempt}'
			WHEN 1 THEN '{active,leased,not_applicable,active,running_attempt}'
			WHEN 2 THEN '{runnable,unowned,blocked_by_quota,rate_limited,pending_first_attempt}'
			WHEN 3 THEN '{suspended,unowned,not_applicable,suspended,attempt_interrupted}'
			WHEN 4 THEN '{runnable,unowned,blocked_by_dependencies,waiting_children,pending_first_attempt}'
			WHEN 5 THEN '{runnable,unowned,blocked_by_operator,waiting,pending_first_attempt}'
			WHEN 7 THEN '{runnable,unowned,blocked_by_dependencies,waiting_children,pending_first_attempt}'
			WHEN 8 THEN '{runnable,unowned,eligible_now,waiting,pending_first_attempt}'
			WHEN 9 THEN '{runnable,unowned,eligible_now,waiting,pending_first_attempt}'
			WHEN 10 THEN '{runnable,unowned,eligible_now,waiting,pending_first_attempt}'
			WHEN 11 THEN '{runnable,unowned,eligible_now,waiting,pending_first_attempt}'
			ELSE '{terminal,unowned,not_applicable,completed,attempt_terminal}' END::text[]) AS x (s)`, now-int64(n), n)
	p.Exec(t, `INSERT INTO ffx_lease_timer SELECT $1, gen_random_uuid(), array_agg(partition_key), array_agg(execution_id), array_agg(0)
		FROM (SELECT *, row_number() OVER () AS i FROM ff_exec_core WHERE lifecycle_phase = 'active') AS e GROUP BY i / 10`, now)
	p.Exec(t, `INSERT INTO ffx_waiting (gate_id, rank, created_at_ms, execution_id, partition_key, is_budget)
		SELECT md5((created_at_ms / 200 % 1000)::text)::uuid, 0, 0, execution_id, partition_key, false FROM ff_exec_core WHERE eligibility_state = 'blocked_by_quota'`)
	p.Exec(t, `INSERT INTO ff_suspension_current (partition_key, execution_id, suspension_id, suspended_at_ms, condition, ffx_open_since_ms)
		SELECT partition_key, execution_id, gen_random_uuid(), 1, '{}', hashtext(execution_id::text) FROM ff_exec_core WHERE lifecycle_phase = 'suspended'`)
	p.Exec(t, `INSERT INTO ffx_sequence_member (partition_key, sequence_id, place, execution_partition_key, execution_id, skips)
		SELECT partition_key, md5((created_at_ms / 100)::text)::uuid, row_number() OVER (), partition_key, execution_id, false
		FROM ff_exec_core WHERE eligibility_state = 'blocked_by_dependencies' AND flow_id IS NULL`)
	p.Exec(t, `INSERT INTO ff_flow_summary (partition_key, flow_id, members_waiting_children, public_flow_state, last_summary_update_at)
		SELECT DISTINCT partition_key, flow_id, 1, 'open', 1 FROM ff_exec_core WHERE flow_id IS NOT NULL`)
	p.Exec(t, `INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms, dispatched_at_ms)
		SELECT partition_key, execution_id, 'success', $1::bigint - 30000, 1 FROM ff_exec_core WHERE lifecycle_phase = 'terminal' ORDER BY execution_id`, now)
	p.Maintain(t, "VACUUM") // for the queue is counted by its index
	check("analysed when empty")
	p.Forget(t)
	check("never analysed")
	p.Analyze(t)
	check("analysed")
}
