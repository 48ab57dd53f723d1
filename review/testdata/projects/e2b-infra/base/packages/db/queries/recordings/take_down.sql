-- name: TakeDown :execrows
WITH gone AS (
    UPDATE public.recordings SET taken_down_at = now() WHERE recordings.id = @id AND taken_down_at IS NULL RETURNING recordings.studio_id
)
UPDATE public.studios SET created_at = now() FROM gone WHERE studios.id = gone.studio_id;
