-- Output streams of attempts. partition_key is the execution's partition modulo 256.

-- migrate:up

-- Append-only frames, ordered by (ts_ms, seq) within an attempt.
CREATE TABLE ff_stream_frame (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    ts_ms bigint NOT NULL,
    seq integer NOT NULL,
    fields jsonb NOT NULL,
    mode text NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index, ts_ms, seq)
);

-- The merged document of an attempt's summary frames.
CREATE TABLE ff_stream_summary (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    document_json jsonb NOT NULL,
    version integer NOT NULL DEFAULT 0,
    patch_kind text,
    last_updated_ms bigint NOT NULL,
    first_applied_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
);

-- Rate state by which best-effort frames are trimmed.
CREATE TABLE ff_stream_meta (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    ema_rate_hz double precision NOT NULL DEFAULT 0,
    last_append_ts_ms bigint NOT NULL DEFAULT 0,
    maxlen_applied_last integer NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
);

-- The reference's row-level wake-up. The trigger that calls it is left out: 20261101000011 installs
-- the statement-level one.
CREATE FUNCTION ff_notify_stream_frame() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify(
        'ff_stream_' || NEW.execution_id::text || '_' || NEW.attempt_index::text,
        NEW.ts_ms::text || '-' || NEW.seq::text
    );
    RETURN NEW;
END;
$$;

-- migrate:down

DROP FUNCTION ff_notify_stream_frame();

DROP TABLE ff_stream_meta;

DROP TABLE ff_stream_summary;

DROP TABLE ff_stream_frame;
