-- The views of attempts and flows, beside that of executions.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE VIEW ffx_attempt AS
SELECT
    a.partition_key,
    a.execution_id,
    a.attempt_index AS attempt,
    '{fp:' || a.partition_key || '}:' || a.execution_id AS execution,
    CASE
        WHEN ffx_read_text(a.raw_fields, 'attempt_id') <> '' AND NOT ours.is_ours
            THEN ffx_read_uuid(ffx_read_text(a.raw_fields, 'attempt_id'))
        ELSE a.ffx_attempt_id
    END AS attempt_id,
    n.attempt_type,
    n.outcome,
    a.worker_id,
    a.worker_instance_id,
    CASE
        WHEN NOT held.is_held THEN NULL
        WHEN ffx_read_text(a.raw_fields, 'lease_id') <> '' AND NOT ours.is_ours
            THEN ffx_read_uuid(ffx_read_text(a.raw_fields, 'lease_id'))
        ELSE a.ffx_lease_id
    END AS lease_id,
    CASE WHEN held.is_held THEN greatest(a.lease_epoch, 0) END AS lease_epoch,
    CASE WHEN held.is_held THEN ffx_read_instant(a.lease_expires_at_ms) END AS lease_expires_at,
    CASE WHEN held.is_held AND ours.is_ours THEN ffx_read_instant(a.ffx_timeout_at_ms) END AS timeout_at,
    ffx_read_instant(a.started_at_ms) AS started_at,
    CASE
        WHEN n.outcome NOT IN ('waiting_children', 'attempt_interrupted', 'lease_expired_reclaimable')
            THEN ffx_read_instant(a.terminal_at_ms)
    END AS ended_at,
    coalesce(
        nullif(ffx_read_text(a.raw_fields, 'failure_reason'), ''),
        CASE
            WHEN last_one.is_last THEN coalesce(
                nullif(ffx_read_text(e.raw_fields, 'failure_reason'), ''),
                nullif(ffx_read_text(e.raw_fields, 'last_failure_message'), '')
            )
        END
    ) AS failure_reason,
    coalesce(
        nullif(ffx_read_text(a.raw_fields, 'failure_category'), ''),
        CASE WHEN last_one.is_last THEN nullif(ffx_read_text(e.raw_fields, 'failure_category'), '') END
    ) AS failure_category,
    CASE
        WHEN n.outcome IS NULL AND a.outcome <> '' THEN 'ff_attempt.outcome'
        WHEN n.attempt_type IS NULL AND stored.stored_type <> '' THEN 'ff_attempt.attempt_type'
        WHEN ffx_read_text(a.raw_fields, 'attempt_id') <> ''
            AND NOT ours.is_ours
            AND ffx_read_uuid(ffx_read_text(a.raw_fields, 'attempt_id')) IS NULL
            THEN 'ff_attempt.raw_fields.attempt_id'
        WHEN held.is_held
            AND ffx_read_text(a.raw_fields, 'lease_id') <> ''
            AND NOT ours.is_ours
            AND ffx_read_uuid(ffx_read_text(a.raw_fields, 'lease_id')) IS NULL
            THEN 'ff_attempt.raw_fields.lease_id'
        ELSE NULL::text
    END AS corruption
FROM ff_attempt AS a
-- LIMIT as above.
LEFT JOIN LATERAL (
    SELECT
        x.attempt_index,
        x.lifecycle_phase,
        x.ownership_state,
        x.raw_fields,
        x.ffx_lease_epoch
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = a.partition_key
        AND x.execution_id = a.execution_id
    LIMIT 1
) AS e ON true
-- Whether this library wrote the row last: what FlowFabric keeps in the document counts where it did not.
CROSS JOIN LATERAL (
    SELECT (a.lease_epoch = e.ffx_lease_epoch) IS TRUE AS is_ours
) AS ours
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN ffx_read_text(a.raw_fields, 'attempt_type') <> '' AND NOT ours.is_ours
                THEN ffx_read_text(a.raw_fields, 'attempt_type')
            ELSE a.ffx_attempt_type
        END AS stored_type
) AS stored
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN stored.stored_type IN ('initial', 'retry', 'reclaim', 'replay', 'fallback') THEN stored.stored_type END AS attempt_type,
        CASE
            WHEN a.outcome = 'failure' THEN 'failed'
            WHEN a.outcome IN (
                'success', 'failed', 'retry', 'interrupted', 'waiting_children', 'attempt_interrupted',
                'lease_expired_reclaimable', 'interrupted_reclaimed', 'cancelled', 'expired', 'skipped'
            ) THEN a.outcome
            ELSE NULL::text
        END AS outcome
) AS n
-- The failure that ended the execution stands in its row.
CROSS JOIN LATERAL (
    SELECT e.lifecycle_phase IN ('terminal', 'cancelled') AND e.attempt_index = a.attempt_index AS is_last
) AS last_one
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN a.lease_expires_at_ms IS NOT NULL
                AND a.worker_instance_id IS NOT NULL
                AND e.ownership_state IN ('leased', 'lease_expired_reclaimable')
                AND a.attempt_index <= e.attempt_index
                THEN a.attempt_index = (
                    SELECT max(t.attempt_index)
                    FROM ff_attempt AS t
                    WHERE
                        t.partition_key = a.partition_key
                        AND t.execution_id = a.execution_id
                        AND t.attempt_index <= e.attempt_index
                )
            ELSE false
        END AS is_held
) AS held;

COMMENT ON VIEW ffx_attempt IS
    'Attempts as this library''s reads give them, one row each. An interface: columns keep name, type and meaning, new ones come behind. Find those of one execution by (partition_key, execution_id).';
COMMENT ON COLUMN ffx_attempt.partition_key IS
    'Logical shard, 0 to 255, N of the id {fp:N}:<uuid>. Filter by (partition_key, execution_id): the key of the table.';
COMMENT ON COLUMN ffx_attempt.execution_id IS
    'The uuid half of the execution''s id.';
COMMENT ON COLUMN ffx_attempt.attempt IS
    'Index of the attempt, from 0.';
COMMENT ON COLUMN ffx_attempt.execution IS
    'Id of the execution as the library prints it: {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_attempt.attempt_id IS
    'Id of the attempt; NULL: another program kept none.';
COMMENT ON COLUMN ffx_attempt.attempt_type IS
    'Why it was made: initial, retry, reclaim, replay or fallback; NULL: not written down.';
COMMENT ON COLUMN ffx_attempt.outcome IS
    'How its last lease ended; NULL: leased, or never leased. Over: success, failed, retry (another attempt follows), cancelled, expired, skipped, interrupted_reclaimed, and interrupted with an ended_at (timed out). To go on: interrupted, waiting_children, attempt_interrupted, lease_expired_reclaimable.';
COMMENT ON COLUMN ffx_attempt.worker_id IS
    'Logical worker that has it or had it last.';
COMMENT ON COLUMN ffx_attempt.worker_instance_id IS
    'Process that has it or had it last.';
COMMENT ON COLUMN ffx_attempt.lease_id IS
    'Id of the lease; NULL: nobody holds one, or another program kept none.';
COMMENT ON COLUMN ffx_attempt.lease_epoch IS
    'Fencing token of the lease; NULL: nobody holds one.';
COMMENT ON COLUMN ffx_attempt.lease_expires_at IS
    'When the lease runs out unless it is renewed; NULL: nobody holds one.';
COMMENT ON COLUMN ffx_attempt.timeout_at IS
    'When the attempt times out, renewed or not; NULL: it does not, or is not held.';
COMMENT ON COLUMN ffx_attempt.started_at IS
    'Start of its last lease.';
COMMENT ON COLUMN ffx_attempt.ended_at IS
    'When it was over; NULL: it is not.';
COMMENT ON COLUMN ffx_attempt.failure_reason IS
    'Text of its failure; NULL: none.';
COMMENT ON COLUMN ffx_attempt.failure_category IS
    'Category of its failure; NULL: none, or not written by this library.';
COMMENT ON COLUMN ffx_attempt.corruption IS
    'Column with a value that nobody knows; NULL: none.';

CREATE VIEW ffx_flow AS
SELECT
    f.partition_key,
    f.flow_id,
    coalesce(ffx_read_text(f.raw_fields, 'flow_kind'), '') AS kind,
    coalesce(ffx_read_text(f.raw_fields, 'namespace'), 'default') AS namespace,
    f.public_flow_state AS state,
    CASE
        WHEN jsonb_typeof(f.raw_fields) = 'object' THEN (
            SELECT coalesce(jsonb_object_agg(tag.key, coalesce(tag.value #>> '{}', '')), '{}')
            FROM jsonb_each(f.raw_fields) AS tag
            WHERE
                tag.key ~ '^[a-z][a-z0-9_]*[.]'
                AND jsonb_typeof(tag.value) IN ('string', 'null')
        )
        ELSE '{}'::jsonb
    END AS tags,
    f.graph_revision AS revision,
    coalesce(ffx_read_number(f.raw_fields, 'node_count'), 0) AS nodes,
    coalesce(ffx_read_number(f.raw_fields, 'edge_count'), 0) AS edges,
    ffx_read_instant(f.created_at_ms) AS created_at,
    ffx_read_instant(coalesce(ffx_read_number(f.raw_fields, 'last_mutation_at_ms'), f.created_at_ms)) AS last_mutation_at,
    ffx_read_instant(f.terminal_at_ms) AS cancelled_at,
    nullif(ffx_read_text(f.raw_fields, 'cancel_reason'), '') AS cancel_reason,
    nullif(ffx_read_text(f.raw_fields, 'cancellation_policy'), '') AS cancellation_policy,
    CASE
        WHEN jsonb_typeof(f.raw_fields) NOT IN ('object', 'null') THEN 'ff_flow_core.raw_fields'
        WHEN jsonb_typeof(f.raw_fields -> 'flow_kind') NOT IN ('string', 'null') THEN 'ff_flow_core.raw_fields.flow_kind'
        WHEN jsonb_typeof(f.raw_fields -> 'namespace') NOT IN ('string', 'null') THEN 'ff_flow_core.raw_fields.namespace'
        WHEN jsonb_typeof(f.raw_fields -> 'cancel_reason') NOT IN ('string', 'null')
            THEN 'ff_flow_core.raw_fields.cancel_reason'
        WHEN jsonb_typeof(f.raw_fields -> 'cancellation_policy') NOT IN ('string', 'null')
            THEN 'ff_flow_core.raw_fields.cancellation_policy'
        WHEN f.graph_revision < 0 THEN 'ff_flow_core.graph_revision'
        WHEN f.raw_fields ? 'node_count' AND ffx_read_number(f.raw_fields, 'node_count') IS NULL
            THEN 'ff_flow_core.raw_fields.node_count'
        WHEN f.raw_fields ? 'edge_count' AND ffx_read_number(f.raw_fields, 'edge_count') IS NULL
            THEN 'ff_flow_core.raw_fields.edge_count'
        WHEN f.raw_fields ? 'last_mutation_at_ms' AND ffx_read_number(f.raw_fields, 'last_mutation_at_ms') IS NULL
            THEN 'ff_flow_core.raw_fields.last_mutation_at_ms'
        ELSE NULL::text
    END AS corruption
FROM ff_flow_core AS f;

COMMENT ON VIEW ffx_flow IS
    'Flows as this library''s reads give them, one row each. An interface: columns keep name, type and meaning, new ones come behind. Its members are counted by grouping ffx_execution WHERE (partition_key, flow_id): that costs as much as it has members, so it stands in no column here.';
COMMENT ON COLUMN ffx_flow.partition_key IS
    'Logical shard of the flow and of its members, 0 to 255. Filter by (partition_key, flow_id): the key of the table.';
COMMENT ON COLUMN ffx_flow.flow_id IS
    'Id of the flow.';
COMMENT ON COLUMN ffx_flow.kind IS
    'Its kind; empty: none.';
COMMENT ON COLUMN ffx_flow.namespace IS
    'Its namespace.';
COMMENT ON COLUMN ffx_flow.state IS
    'open until it is cancelled, then cancelled; other programs may also store running, blocked, completed or failed.';
COMMENT ON COLUMN ffx_flow.tags IS
    'Object of strings.';
COMMENT ON COLUMN ffx_flow.revision IS
    'One more for each member and each edge added.';
COMMENT ON COLUMN ffx_flow.nodes IS
    'Members.';
COMMENT ON COLUMN ffx_flow.edges IS
    'Dependencies.';
COMMENT ON COLUMN ffx_flow.created_at IS
    'When it was created.';
COMMENT ON COLUMN ffx_flow.last_mutation_at IS
    'The last change of its structure.';
COMMENT ON COLUMN ffx_flow.cancelled_at IS
    'When it was cancelled; NULL: it was not.';
COMMENT ON COLUMN ffx_flow.cancel_reason IS
    'Why it was cancelled; NULL: nobody said, or it was not.';
COMMENT ON COLUMN ffx_flow.cancellation_policy IS
    'What became of its members: cancel_flow_only, cancel_pending, cancel_all or cancel_everything; NULL: it was not cancelled.';
COMMENT ON COLUMN ffx_flow.corruption IS
    'Column with a value that nobody can read, for which the library''s reads refuse the row; NULL: none.';

-- migrate:down

DROP VIEW ffx_flow;

DROP VIEW ffx_attempt;
