-- name: ListRecordings :many
SELECT r.*
FROM public.recordings r
WHERE r.studio_id = @studio_id
  AND r.taken_down_at IS NULL
  AND (sqlc.narg(label)::jsonb IS NULL OR r.labels @> sqlc.narg(label)::jsonb)
ORDER BY r.updated_at DESC, r.id
LIMIT @query_limit;

-- name: CountWaiting :one
SELECT count(*) FROM public.recordings WHERE studio_id = @studio_id AND state = ANY (@states::text[]);
