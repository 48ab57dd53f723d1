-- name: SetFlowTags :execrows
-- SetFlowTags sets tags of a flow, in any state. 0 rows: the flow does not exist. One statement reads and writes, so
-- concurrent writers of other tags lose nothing.
--
-- Used by: engine.SetFlowTags.
-- Locks: L0 waits (the flow row, UPDATE).
UPDATE ff_flow_core AS f
SET
    raw_fields = CASE WHEN jsonb_typeof(f.raw_fields) = 'object' THEN f.raw_fields ELSE '{}'::jsonb END
        || CAST(@tags::text AS jsonb)
        || jsonb_build_object('last_mutation_at_ms', ffx_now_ms(sqlc.narg(now_ms)))
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id;

-- name: GetFlowTag :one
-- GetFlowTag returns a tag of a flow. No row: the flow does not exist.
--
-- Used by: engine.FlowTag.
-- Locks: none.
SELECT
    (coalesce(jsonb_typeof(f.raw_fields -> @tag_key::text), '') = 'string')::boolean AS is_set,
    coalesce(f.raw_fields ->> @tag_key::text, '')::text AS tag_value
FROM ff_flow_core AS f
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id;
