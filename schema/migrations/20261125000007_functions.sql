-- The clock, the key of a flow's lock, and rules that several statements share. The planner inlines those in SQL into
-- the statement, so that no plan differs for the call.
--
-- usable-from: 20261125000001

-- migrate:up

-- STABLE and without STRICT or SET, so that the planner inlines it and an index on a time column serves a comparison
-- with it.
CREATE FUNCTION ffx_now_ms(now_ms bigint) RETURNS bigint
LANGUAGE sql
STABLE
PARALLEL SAFE
AS $$
    SELECT coalesce(now_ms, (extract(epoch FROM statement_timestamp()) * 1000)::bigint);
$$;

COMMENT ON FUNCTION ffx_now_ms(now_ms bigint) IS
    'The given instant, or, of NULL, the start of the statement by the database''s clock: milliseconds since the Unix epoch.';

-- For functions that read the time once they hold a lock. A test replaces both.
CREATE FUNCTION ffx_now_locked_ms(now_ms bigint) RETURNS bigint
LANGUAGE sql
VOLATILE
PARALLEL SAFE
AS $$
    SELECT coalesce(now_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
$$;

COMMENT ON FUNCTION ffx_now_locked_ms(now_ms bigint) IS
    'The given instant, or, of NULL, the present by the database''s clock, also after a wait for a lock: milliseconds since the Unix epoch.';

-- Without STRICT, so that the planner inlines it.
CREATE FUNCTION ffx_past_ms(at_ms bigint, now_ms bigint) RETURNS bigint
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE WHEN at_ms > now_ms THEN now_ms ELSE at_ms END;
$$;

COMMENT ON FUNCTION ffx_past_ms(at_ms bigint, now_ms bigint) IS
    'A stored instant of the past, NULL included. One in the future counts as now: a clock that was ahead has written it.';

-- Level L0 of the lock order.
CREATE FUNCTION ffx_flow_key(flow_id uuid) RETURNS bigint
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT hashtextextended(flow_id::text, 8031);
$$;

COMMENT ON FUNCTION ffx_flow_key(flow_id uuid) IS
    'Key of the advisory transaction lock of a flow.';

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

COMMENT ON FUNCTION ffx_lost_too_often(reclaims integer, policy jsonb, default_limit integer) IS
    'Whether one more lost lease ends an execution, after so many reclaims: by the smallest limit of its policy and the default.';

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

COMMENT ON FUNCTION ffx_attempt_timeout_at(policy jsonb, from_ms bigint) IS
    'When an attempt that begins at from_ms has taken as long as its policy allows, in milliseconds; NULL without a timeout.';

CREATE FUNCTION ffx_attempt_type(attempt_state text) RETURNS text
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE attempt_state
        WHEN 'pending_retry_attempt' THEN 'retry'
        WHEN 'pending_replay_attempt' THEN 'replay'
        ELSE 'initial'
    END;
$$;

COMMENT ON FUNCTION ffx_attempt_type(attempt_state text) IS
    'The type of the attempt that a claim opens, from attempt_state of the execution before the claim: initial, retry or replay.';

CREATE FUNCTION ffx_attempt_policy(attempt_state text, raw_fields jsonb, attempt_index integer) RETURNS jsonb
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE
        -- A first attempt has none, so the fields need not be read.
        WHEN
            attempt_state <> 'pending_first_attempt'
            AND raw_fields #>> '{next_attempt_policy,attempt_index}' = attempt_index::text
            THEN raw_fields #> '{next_attempt_policy,policy}'
    END;
$$;

COMMENT ON FUNCTION ffx_attempt_policy(attempt_state text, raw_fields jsonb, attempt_index integer) IS
    'The policy that another program has stored for an attempt of its own, from columns of the execution before the claim; NULL if none.';

-- migrate:down

DROP FUNCTION ffx_attempt_policy(text, jsonb, integer);

DROP FUNCTION ffx_attempt_type(text);

DROP FUNCTION ffx_attempt_timeout_at(jsonb, bigint);

DROP FUNCTION ffx_lost_too_often(integer, jsonb, integer);

DROP FUNCTION ffx_flow_key(uuid);

DROP FUNCTION ffx_now_locked_ms(bigint);

DROP FUNCTION ffx_past_ms(bigint, bigint);

DROP FUNCTION ffx_now_ms(bigint);
