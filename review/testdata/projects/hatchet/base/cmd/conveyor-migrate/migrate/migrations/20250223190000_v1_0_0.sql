-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION get_parcel_partitions_before(before DATE) RETURNS TABLE (partition_name TEXT)
    LANGUAGE plpgsql AS
$$
BEGIN
    RETURN QUERY
    SELECT inhrelid::regclass::text
    FROM pg_inherits
    WHERE inhparent = 'v1_parcel'::regclass
      AND substring(inhrelid::regclass::text, '_(\d{8})$') ~ '^\d{8}'
      AND substring(inhrelid::regclass::text, '_(\d{8})$')::date < before;
END;
$$;

CREATE OR REPLACE FUNCTION create_v1_range_partition(of TEXT, day DATE) RETURNS INTEGER
    LANGUAGE plpgsql AS
$$
DECLARE
    made TEXT := format('%s_%s', of, to_char(day, 'YYYYMMDD'));
BEGIN
    IF EXISTS (SELECT 1 FROM pg_tables WHERE tablename = made) THEN
        RETURN 0;
    END IF;
    EXECUTE format('CREATE TABLE %s PARTITION OF %s FOR VALUES FROM (''%s'') TO (''%s'')', made, of, day, day + 1);
    RETURN 1;
END;
$$;
-- +goose StatementEnd

CREATE TYPE v1_sticky AS ENUM ('NONE', 'SOFT', 'HARD');

CREATE TABLE v1_parcel (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    inserted_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    depot_id UUID NOT NULL,
    belt TEXT NOT NULL,
    external_id UUID NOT NULL,
    sticky v1_sticky NOT NULL DEFAULT 'NONE',
    priority INTEGER DEFAULT 1,
    input JSONB,
    CONSTRAINT v1_parcel_pkey PRIMARY KEY (id, inserted_at)
) PARTITION BY RANGE (inserted_at);

CREATE INDEX v1_parcel_depot_inserted_idx ON v1_parcel (depot_id, inserted_at);

SELECT create_v1_range_partition('v1_parcel', '2026-11-01');
SELECT create_v1_range_partition('v1_parcel', '2026-11-02');
CREATE TABLE v1_parcel_rest PARTITION OF v1_parcel DEFAULT;

CREATE TABLE v1_queue_item (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    depot_id UUID NOT NULL,
    belt TEXT NOT NULL,
    parcel_id BIGINT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 1,
    CONSTRAINT v1_queue_item_priority_check CHECK (priority >= 1 AND priority <= 4)
) WITH (autovacuum_vacuum_scale_factor = 0.1);

CREATE INDEX v1_queue_item_list_idx ON v1_queue_item (depot_id, belt, priority DESC, id);
