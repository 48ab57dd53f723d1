CREATE OR REPLACE FUNCTION get_parcel_partitions_before(before DATE) RETURNS TABLE (partition_name TEXT)
    LANGUAGE plpgsql AS
$$
BEGIN
    RETURN QUERY SELECT 'x'::text;
END;
$$;

CREATE OR REPLACE FUNCTION create_v1_range_partition(of TEXT, day DATE) RETURNS INTEGER
    LANGUAGE plpgsql AS
$$
BEGIN
    RETURN 0;
END;
$$;

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

CREATE TABLE v1_queue_item (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    depot_id UUID NOT NULL,
    belt TEXT NOT NULL,
    parcel_id BIGINT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 1
);

CREATE TABLE v1_parcel_event (
    parcel_id BIGINT NOT NULL,
    parcel_inserted_at TIMESTAMPTZ NOT NULL,
    state "ParcelState" NOT NULL,
    at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (parcel_id, parcel_inserted_at, state, at)
) PARTITION BY LIST (state);
