-- name: GetDepotBySlug :one
SELECT * FROM "Depot" WHERE "slug" = @slug::text AND "deletedAt" IS NULL;

-- name: UpsertBelt :one
INSERT INTO "Belt" ("id", "depotId", "name")
VALUES (gen_random_uuid(), @depotId::uuid, @name::text)
ON CONFLICT ("depotId", "name") DO UPDATE SET "lastHeartbeatAt" = CURRENT_TIMESTAMP
RETURNING *;

-- name: ListBelts :many
SELECT * FROM "Belt" WHERE "depotId" = @depotId::uuid ORDER BY "name";

-- name: FindParcel :one
SELECT id, inserted_at, weight FROM v1_parcel WHERE external_id = @externalId::uuid;
