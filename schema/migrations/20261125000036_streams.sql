-- Output streams: the position of each attempt's stream, and what a reader needs to know of each frame besides its id.
--
-- The position is on the attempt's row. An append compares the fence, takes the next ids and so orders the frames by one
-- update of that row. The columns are in no index, and a claim, a renewal or a completion changes none of them.
--
-- usable-from: 20261125000020

-- migrate:up

ALTER TABLE ff_attempt
    ADD COLUMN ffx_stream_ts_ms bigint,
    ADD COLUMN ffx_stream_seq integer,
    ADD COLUMN ffx_stream_frames bigint,
    ADD COLUMN ffx_stream_durable bigint;

COMMENT ON COLUMN ff_attempt.ffx_stream_ts_ms IS
    'Milliseconds since the Unix epoch: ts_ms of its newest stream frame. NULL: it has written none.';
COMMENT ON COLUMN ff_attempt.ffx_stream_seq IS
    'seq of its newest stream frame. NULL: it has written none.';
COMMENT ON COLUMN ff_attempt.ffx_stream_frames IS
    'Stream frames that it has written, trimmed ones included. NULL: none.';
COMMENT ON COLUMN ff_attempt.ffx_stream_durable IS
    'Those of mode durable among them. NULL: none.';

ALTER TABLE ff_stream_frame
    ADD COLUMN ffx_lease_epoch bigint,
    ADD COLUMN ffx_number bigint,
    ADD COLUMN ffx_durable bigint;

COMMENT ON COLUMN ff_stream_frame.ffx_lease_epoch IS
    'Fencing token of the lease that wrote it. Frames of one attempt with different tokens were written by different runs of the handler. NULL: written by FlowFabric.';
COMMENT ON COLUMN ff_stream_frame.ffx_number IS
    'Its number among the frames of its attempt, from 1, without gaps. A reader that misses a number knows that a frame was trimmed.';
COMMENT ON COLUMN ff_stream_frame.ffx_durable IS
    'How many frames of mode durable its attempt had written by then, itself included.';

-- The tables only grow and are deleted from, so a vacuum that waits for a fifth of them comes late.
ALTER TABLE ff_stream_frame SET (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1
);

-- RFC 7396, with one addition: the text __ff_null__ as the value of a member stands for a JSON null, which the RFC can't
-- express. In arrays it is data. In PL/pgSQL because it calls itself.
CREATE FUNCTION ffx_merge_patch(target jsonb, patch jsonb) RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    merged jsonb := CASE WHEN jsonb_typeof(target) = 'object' THEN target ELSE '{}' END;
    member record;
BEGIN
    IF jsonb_typeof(patch) <> 'object' THEN
        RETURN patch;
    END IF;
    FOR member IN SELECT p.key, p.value FROM jsonb_each(patch) AS p LOOP
        CASE
            WHEN member.value = 'null' THEN
                merged := merged - member.key;
            WHEN member.value = '"__ff_null__"' THEN
                merged := merged || jsonb_build_object(member.key, NULL);
            WHEN jsonb_typeof(member.value) = 'object' THEN
                merged := merged || jsonb_build_object(member.key, ffx_merge_patch(merged -> member.key, member.value));
            ELSE
                merged := merged || jsonb_build_object(member.key, member.value);
        END CASE;
    END LOOP;
    RETURN merged;
END;
$$;

COMMENT ON FUNCTION ffx_merge_patch(target jsonb, patch jsonb) IS
    'A JSON document after a merge patch (RFC 7396). The text __ff_null__ as the value of a member sets JSON null.';

CREATE FUNCTION ffx_merge_patches(target jsonb, patches jsonb[]) RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    merged jsonb := target;
    patch jsonb;
BEGIN
    FOREACH patch IN ARRAY patches LOOP
        merged := ffx_merge_patch(merged, patch);
    END LOOP;
    RETURN merged;
END;
$$;

COMMENT ON FUNCTION ffx_merge_patches(target jsonb, patches jsonb[]) IS
    'A JSON document after several merge patches, in array order: see ffx_merge_patch.';

-- migrate:down

DROP FUNCTION ffx_merge_patches(jsonb, jsonb[]);

DROP FUNCTION ffx_merge_patch(jsonb, jsonb);

ALTER TABLE ff_stream_frame RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_insert_scale_factor
);

ALTER TABLE ff_stream_frame
    DROP COLUMN ffx_durable,
    DROP COLUMN ffx_number,
    DROP COLUMN ffx_lease_epoch;

ALTER TABLE ff_attempt
    DROP COLUMN ffx_stream_durable,
    DROP COLUMN ffx_stream_frames,
    DROP COLUMN ffx_stream_seq,
    DROP COLUMN ffx_stream_ts_ms;
