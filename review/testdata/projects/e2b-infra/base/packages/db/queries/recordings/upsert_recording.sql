-- name: UpsertRecording :one
INSERT INTO public.recordings (id, studio_id, title, labels, updated_at)
VALUES (@id, @studio_id, sqlc.narg(title), @labels, now())
ON CONFLICT (id) DO UPDATE SET title = excluded.title, labels = excluded.labels, updated_at = now()
RETURNING id;
