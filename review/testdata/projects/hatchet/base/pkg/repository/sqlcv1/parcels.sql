-- name: CreatePartitions :exec
SELECT create_v1_range_partition('v1_parcel', @date::date);

-- name: ListPartitionsBefore :many
SELECT 'v1_parcel' AS parent_table, p::text AS partition_name FROM get_parcel_partitions_before(@date::date) AS p;

-- name: CreateParcels :copyfrom
INSERT INTO v1_parcel (depot_id, belt, external_id, sticky, priority, input) VALUES ($1, $2, $3, $4, $5, $6);

-- name: FlattenParcels :many
WITH input AS (
    SELECT UNNEST(@ids::bigint[]) AS id, UNNEST(@insertedAts::timestamptz[]) AS inserted_at
)
SELECT p.id, p.inserted_at, p.external_id
FROM v1_parcel p
WHERE (p.id, p.inserted_at) IN (SELECT id, inserted_at FROM input);

-- name: ListParcels :many
SELECT id, inserted_at, sticky, input FROM v1_parcel
WHERE depot_id = @depotId::uuid AND inserted_at >= @since::timestamptz
ORDER BY inserted_at DESC LIMIT @max::int;

-- name: AddParcelEvent :exec
INSERT INTO v1_parcel_event (parcel_id, parcel_inserted_at, state) VALUES (@parcelId, @insertedAt, @state::"ParcelState");
