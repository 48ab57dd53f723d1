-- Rules that several statements go by, each as a function that the planner puts into the statement in place of the
-- call. No plan differs for it.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_lost_too_often
CREATE FUNCTION ffx_lost_too_often(reclaims integer, policy jsonb, default_limit integer) RETURNS boolean
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT greatest(reclaims, 0) + 1 > least(
        CASE
            WHEN jsonb_typeof(policy #> '{timeout_policy,max_reclaim_count}') = 'number'
                THEN (policy #>> '{timeout_policy,max_reclaim_count}')::numeric
        END,
        CASE
            WHEN jsonb_typeof(policy -> 'max_reclaim_count') = 'number'
                THEN (policy ->> 'max_reclaim_count')::numeric
        END,
        default_limit
    );
$$;

COMMENT ON FUNCTION ffx_lost_too_often(integer, jsonb, integer) IS
    'Whether one more lost lease ends an execution, after so many reclaims: by the smallest limit of its policy and the default.';

-- object: ffx_attempt_timeout_at
CREATE FUNCTION ffx_attempt_timeout_at(policy jsonb, from_ms bigint) RETURNS bigint
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN jsonb_typeof(policy #> '{timeout_policy,attempt_timeout_ms}') = 'number'
            THEN least(
                (policy #>> '{timeout_policy,attempt_timeout_ms}')::numeric + from_ms,
                9223372036854775807
            )::bigint
    END;
$$;

COMMENT ON FUNCTION ffx_attempt_timeout_at(jsonb, bigint) IS
    'When an attempt that begins at from_ms has taken as long as its policy allows, in milliseconds; NULL without a timeout.';

-- migrate:down

DROP FUNCTION ffx_attempt_timeout_at(jsonb, bigint);
DROP FUNCTION ffx_lost_too_often(integer, jsonb, integer);
