INSERT INTO ff_completion_event (
    -- Takes ${rows} (partition_key, execution_id, flow_id, ffx_namespace, ffx_instance_tag).
    partition_key,
    execution_id,
    flow_id,
    outcome,
    namespace,
    instance_tag,
    occurred_at_ms,
    dispatched_at_ms
)
SELECT
    r.partition_key,
    r.execution_id,
    r.flow_id,
    'success',
    r.ffx_namespace,
    r.ffx_instance_tag,
    ${at_ms},
    ${at_ms}
FROM ${rows} AS r
