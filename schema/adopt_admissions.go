package schema

// startsInWindows turns FlowFabric's entries of windows into admissions at the gate made by calls. The policies and the
// executions are rewritten already.
var startsInWindows = []string{
	`INSERT INTO ffx_gate_use (
		partition_key, gate_id, execution_id, admitted_at_ms, execution_partition_key, units, held, started_at_ms, by_caller
	)
	SELECT
		i.gate_partition, i.policy, i.execution, i.admitted_at_ms, min(i.execution_partition)::smallint, count(*), false, i.admitted_at_ms,
		true
	FROM ff_quota_window AS a
	` + readAdmission + `
	JOIN ff_quota_policy AS q ON q.partition_key = a.partition_key AND q.quota_policy_id = a.quota_policy_id
	WHERE
		` + readable + `
		AND q.max_requests_per_window > 0
		AND i.admitted_at_ms > i.now_ms - q.requests_per_window_seconds::numeric * 1000
	GROUP BY i.gate_partition, i.policy, i.execution, i.admitted_at_ms`,
	`DELETE FROM ff_quota_window`,
}

// placesTaken turns the places taken by FlowFabric's admissions into such admissions, and makes the rows of their
// policies.
var placesTaken = []string{
	// FlowFabric gives no place back, so only an execution allowed to run has one. Of several admissions the last
	// counts.
	`INSERT INTO ffx_gate_use (
		partition_key, gate_id, execution_id, admitted_at_ms, execution_partition_key, units, held, started_at_ms, by_caller
	)
	SELECT i.gate_partition, i.policy, e.execution_id, l.at_ms, e.partition_key, 1, true, l.at_ms, true
	FROM ff_quota_admitted AS a
	` + readAdmission + `
	JOIN ff_quota_policy AS q ON q.partition_key = a.partition_key AND q.quota_policy_id = a.quota_policy_id
	JOIN ff_exec_core AS e ON e.partition_key = i.execution_partition AND e.execution_id = i.execution
	CROSS JOIN LATERAL (
		SELECT greatest(i.admitted_at_ms, max(u.admitted_at_ms)) AS at_ms
		FROM ffx_gate_use AS u
		WHERE u.partition_key = i.gate_partition AND u.gate_id = i.policy AND u.execution_id = i.execution
	) AS l
	WHERE
		` + readable + `
		AND (
			e.lifecycle_phase = 'active'
			OR e.eligibility_state IN ('eligible_now', 'pending_claim')
			OR i.admitted_at_ms > i.now_ms - 60000
		)
		AND e.lifecycle_phase NOT IN ('terminal', 'cancelled')
	ON CONFLICT ON CONSTRAINT ffx_gate_use_pkey DO UPDATE
	SET held = true`,
	`INSERT INTO ffx_gate (partition_key, gate_id, namespace, key, held, started, used_at_ms)
	SELECT u.partition_key, u.gate_id, '', '', coalesce(sum(u.units) FILTER (WHERE u.held), 0), sum(u.units), ffx_now_ms(NULL)
	FROM ffx_gate_use AS u
	GROUP BY u.partition_key, u.gate_id`,
	`DELETE FROM ff_quota_admitted`,
	`UPDATE ff_quota_policy SET active_concurrency = 0 WHERE active_concurrency <> 0`,
}

const (
	// readAdmission reads the ids of an admission a, as i. A time ahead of the database's clock is now.
	readAdmission = `CROSS JOIN LATERAL (
			SELECT
				get_byte(uuid_send(t.policy), 0)::smallint AS gate_partition,
				t.policy,
				t.execution,
				t.execution_partition,
				t.now_ms,
				least(a.admitted_at_ms, t.now_ms) AS admitted_at_ms
			FROM (
				SELECT
					ffx_read_uuid(a.quota_policy_id) AS policy,
					ffx_read_uuid(substring(a.execution_id FROM '^\{fp:[0-9]{1,5}\}:(.{36})$')) AS execution,
					substring(a.execution_id FROM '^\{fp:([0-9]{1,5})\}')::integer AS execution_partition,
					ffx_now_ms(NULL) AS now_ms
				OFFSET 0
			) AS t
		) AS i`

	// readable is the condition for two ids.
	readable = `i.policy IS NOT NULL AND i.execution IS NOT NULL AND i.execution_partition < 32768`
)
