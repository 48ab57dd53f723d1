-- Output streams: the position of each attempt's stream, and what a reader needs to know of each frame besides its id.
--
-- The position is on the attempt's row. An append compares the fence, takes the next ids and so orders the frames by one
-- update of that row. The columns are in no index, and a claim, a renewal or a completion changes none of them.
--
-- usable-from: 20261125000001

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

-- Trimming continues behind the last deleted frame of its mode, and knows how many are there. So it reads no frame twice,
-- however many durable frames are between them.
ALTER TABLE ff_stream_meta
    ADD COLUMN ffx_kept integer,
    ADD COLUMN ffx_untrimmed integer,
    ADD COLUMN ffx_trimmed_ts_ms bigint,
    ADD COLUMN ffx_trimmed_seq integer;

COMMENT ON COLUMN ff_stream_meta.ffx_kept IS
    'Frames of mode best_effort that the attempt''s stream has. NULL: written by FlowFabric.';
COMMENT ON COLUMN ff_stream_meta.ffx_untrimmed IS
    'Those of them that were appended since the last trimming. NULL: written by FlowFabric.';
COMMENT ON COLUMN ff_stream_meta.ffx_trimmed_ts_ms IS
    'Milliseconds since the Unix epoch: ts_ms of the id up to which they are deleted. NULL: none is.';
COMMENT ON COLUMN ff_stream_meta.ffx_trimmed_seq IS
    'seq of the id up to which they are deleted. NULL: none is.';

ALTER TABLE ff_stream_summary
    ADD COLUMN ffx_kept integer,
    ADD COLUMN ffx_trimmed_ts_ms bigint,
    ADD COLUMN ffx_trimmed_seq integer;

COMMENT ON COLUMN ff_stream_summary.ffx_kept IS
    'Frames of mode summary that the attempt''s stream has. NULL: written by FlowFabric.';
COMMENT ON COLUMN ff_stream_summary.ffx_trimmed_ts_ms IS
    'Milliseconds since the Unix epoch: ts_ms of the id up to which they are deleted. NULL: none is.';
COMMENT ON COLUMN ff_stream_summary.ffx_trimmed_seq IS
    'seq of the id up to which they are deleted. NULL: none is.';

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
BEGIN
    IF jsonb_typeof(patch) <> 'object' THEN
        RETURN patch;
    END IF;
    -- Removed members, then all others at once: one by one, each would copy the document.
    RETURN (merged - ARRAY(SELECT p.key FROM jsonb_each(patch) AS p WHERE p.value = 'null')) || coalesce((
        SELECT jsonb_object_agg(p.key, CASE
            WHEN p.value = '"__ff_null__"' THEN 'null'
            WHEN jsonb_typeof(p.value) = 'object' THEN ffx_merge_patch(merged -> p.key, p.value)
            ELSE p.value
        END)
        FROM jsonb_each(patch) AS p
        WHERE p.value <> 'null'
    ), '{}');
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

-- Frames for people. A base64 text that can't be decoded gives NULL instead of an error that ends the whole query.
CREATE VIEW ffx_stream_frames AS
SELECT
    f.partition_key,
    f.execution_id,
    '{fp:' || f.partition_key || '}:' || f.execution_id AS id,
    f.attempt_index AS attempt,
    f.ts_ms || '-' || f.seq AS frame,
    ffx_read_instant(f.ts_ms) AS at,
    f.mode,
    coalesce(f.fields ->> 'frame_type', '') AS type,
    nullif(f.fields ->> 'correlation_id', '') AS correlation,
    CASE WHEN (f.fields ->> 'encoding' = 'base64') IS NOT TRUE THEN coalesce(f.fields ->> 'payload', '') END AS payload,
    CASE
        WHEN
            f.fields ->> 'encoding' = 'base64'
            AND f.fields ->> 'payload' ~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$'
            THEN decode(f.fields ->> 'payload', 'base64')
    END AS bytes,
    f.ffx_number AS number,
    f.ts_ms,
    f.seq
FROM ff_stream_frame AS f;

COMMENT ON VIEW ffx_stream_frames IS
    'Frames of the output streams of attempts, one row each, with their payloads. An interface: columns keep name, type and meaning, new ones come behind. Find those of an execution by (partition_key, execution_id), in the order of attempt, ts_ms, seq.';
COMMENT ON COLUMN ffx_stream_frames.partition_key IS
    'Logical shard, 0 to 255, N of the id {fp:N}:<uuid>. Filter by (partition_key, execution_id): the key of the table.';
COMMENT ON COLUMN ffx_stream_frames.execution_id IS
    'The uuid half of the execution''s id.';
COMMENT ON COLUMN ffx_stream_frames.id IS
    'The execution''s id as the library prints it: {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_stream_frames.attempt IS
    'Attempt that wrote it, from 0.';
COMMENT ON COLUMN ffx_stream_frames.frame IS
    'The frame''s id as the library prints it: <ts_ms>-<seq>.';
COMMENT ON COLUMN ffx_stream_frames.at IS
    'When it was appended.';
COMMENT ON COLUMN ffx_stream_frames.mode IS
    'durable; summary: a JSON merge patch of the attempt''s document; best_effort: deleted after a while.';
COMMENT ON COLUMN ffx_stream_frames.type IS
    'Type that its writer gave it: event, stdout, stderr, blob, log or another text.';
COMMENT ON COLUMN ffx_stream_frames.correlation IS
    'Text that links frames; NULL: none.';
COMMENT ON COLUMN ffx_stream_frames.payload IS
    'Its text; NULL: it is not text, see bytes.';
COMMENT ON COLUMN ffx_stream_frames.bytes IS
    'Its bytes if they are not text; NULL: it is text, or what is stored can''t be decoded.';
COMMENT ON COLUMN ffx_stream_frames.number IS
    'Its number among the frames of its attempt, from 1. A missing number is a frame that was deleted.';
COMMENT ON COLUMN ffx_stream_frames.ts_ms IS
    'Milliseconds since the Unix epoch, the first half of the frame''s id.';
COMMENT ON COLUMN ffx_stream_frames.seq IS
    'Second half of the frame''s id: its place among the frames of one millisecond, from 0.';

-- migrate:down

DROP VIEW ffx_stream_frames;

DROP FUNCTION ffx_merge_patches(jsonb, jsonb[]);

DROP FUNCTION ffx_merge_patch(jsonb, jsonb);

ALTER TABLE ff_stream_frame RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_insert_scale_factor
);

ALTER TABLE ff_stream_summary
    DROP COLUMN ffx_trimmed_seq,
    DROP COLUMN ffx_trimmed_ts_ms,
    DROP COLUMN ffx_kept;

ALTER TABLE ff_stream_meta
    DROP COLUMN ffx_trimmed_seq,
    DROP COLUMN ffx_trimmed_ts_ms,
    DROP COLUMN ffx_untrimmed,
    DROP COLUMN ffx_kept;

ALTER TABLE ff_stream_frame
    DROP COLUMN ffx_durable,
    DROP COLUMN ffx_number,
    DROP COLUMN ffx_lease_epoch;

ALTER TABLE ff_attempt
    DROP COLUMN ffx_stream_durable,
    DROP COLUMN ffx_stream_frames,
    DROP COLUMN ffx_stream_seq,
    DROP COLUMN ffx_stream_ts_ms;
